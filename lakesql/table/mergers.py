"""A person's own merge functions for tables whose merge mode is CUSTOM, by name.

    def merger(older, newer, schema, properties) -> pyarrow.Table

`older` and `newer` are tables of the same number of rows, aligned: row i of both is one record key, both are rows and no
deletes. The result has one row per pair, in the same order, with the columns of `schema` (meta columns included; take
them from one side). A row whose `_hoodie_is_deleted` is true, in the schema or besides it, is a delete. `properties`
are the table's. It is called with many rows at once and must not depend on how they are cut.

A table names its merger by `lakesql.record.merger`, `hoodie.record.merge.strategy.id` or its payload class.
"""

import importlib
from collections.abc import Callable, Mapping

import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format.metadata import TableConfig

Merger = Callable[[pa.Table, pa.Table, pa.Schema, Mapping[str, str]], pa.Table]

PROPERTY = "lakesql.record.merger"
_STRATEGY = "hoodie.record.merge.strategy.id"
_registered: dict[str, Merger] = {}


def register_merger(name: str, merger: Merger | str) -> None:
    """Use `merger`, a function or its address `module:function`, for CUSTOM tables that name `name`.

    `name` is what the table says: the value of `lakesql.record.merger`, a merge strategy id, or a payload class with or
    without its package. The registration holds for this process. TableError when the address leads to no function.
    """
    function = _import(merger) if isinstance(merger, str) else merger
    if not callable(function):
        raise TableError(f"merger {name!r}: {merger!r} is no function of (older, newer, schema, properties).")
    _registered[name] = function


def _import(address: str) -> Merger:
    module, _, name = address.partition(":")
    try:
        found: Merger = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise TableError(f"merger {address!r}: {error}. Give it as module:function, importable from here.") from error
    return found


def find(config: TableConfig) -> Merger | None:
    """The merger registered for a table; None when there is none."""
    payload = config.payload_class or ""
    names = (config.properties.get(PROPERTY), config.properties.get(_STRATEGY), payload, payload.rsplit(".", 1)[-1])
    return next((_registered[name] for name in names if name and name in _registered), None)
