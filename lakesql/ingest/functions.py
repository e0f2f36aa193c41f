"""A person's own Python function, named as module:function in a setting."""

import importlib
from typing import Any

from lakesql.errors import JobError, LakeError


def called(name: str | None, setting: str, *arguments: object) -> Any:
    """What the function returns. JobError names the setting when there is no such function, or when it fails."""
    module, _, attribute = (name or "").partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(
            f"setting {setting} = {name!r}: there is no such function ({error}). Name one that can be imported, as module:function."
        ) from error
    if not callable(function):
        raise JobError(f"setting {setting} = {name!r}: this is no function. Name one as module:function.")
    try:
        return function(*arguments)
    except LakeError:
        raise
    except Exception as error:
        raise JobError(
            f"setting {setting} = {name!r}: the function failed ({type(error).__name__}: {error}). Correct it."
        ) from error
