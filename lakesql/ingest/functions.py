"""A person's own Python function, named as module:function."""

import importlib
from collections.abc import Callable
from typing import Any

from lakesql.errors import JobError


def function_of(name: str | None, setting: str) -> Callable[..., Any]:
    """The function; JobError names the setting when there is none."""
    module, _, attribute = (name or "").partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(
            f"setting {setting} = {name!r}: there is no such function ({error}). Name one that can be imported as module:function."
        ) from error
    if not callable(found):
        raise JobError(f"setting {setting} = {name!r}: this is no function. Name one as module:function.")
    return found  # type: ignore[no-any-return]
