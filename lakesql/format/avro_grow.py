"""Fields that rows have inside structs and a table's Avro schema does not: the schema with them.

A field that a struct lacks is appended to its record as nullable with default null, at any depth: in structs, in the
items of lists, in the values of maps. Nothing else changes: names, order, docs, defaults and types stay as they are, so
older files and log blocks resolve, with NULL in what they lack. Names match as in SQL, without regard to case. Where the
rows have another kind of type than the table, such as a text for a struct, nothing is added and the cast will tell. Nor is
a field without a type (always NULL), which has nothing to lose.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakesql.format.avro_types import AvroSchema, fields_of, is_list


def grown(avro: AvroSchema, rows: pa.Schema) -> AvroSchema | None:
    """The record schema with what `rows` have more inside columns that it has; None when that is nothing.

    `rows` have types that a table can hold. TableError names a field whose name Avro does not allow, Unsupported one
    whose type a table cannot hold.
    """
    found: AvroSchema = copy.deepcopy(avro)
    by_name = {str(f["name"]).lower(): f for f in found["fields"]}
    records = _Records(found)
    more = False
    for field in rows:
        column = by_name.get(field.name.lower())
        if column is not None and pa.types.is_nested(field.type):
            more |= _grow(column["type"], field.type, records, records.name, str(column["name"]))
    return found if more else None


class _Records:
    """The records that a schema defines, by full name: a second use of one is its name only, and grows with it."""

    def __init__(self, avro: AvroSchema) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self.name = self._add(avro, "")

    def _add(self, avro: Any, space: str) -> str:
        """Collect what is defined here; the full name, if it is a record."""
        if isinstance(avro, list):
            for branch in avro:
                self._add(branch, space)
        if not isinstance(avro, dict):
            return ""
        kind = avro.get("type")
        if kind not in ("record", "error"):
            for inner in (kind, avro.get("items"), avro.get("values")):
                self._add(inner, space)
            return ""
        name = str(avro["name"])
        if "." not in name and (own := avro.get("namespace", space)):
            name = f"{own}.{name}"
        self._named[name] = avro, name
        for field in avro["fields"]:
            self._add(field["type"], name.rpartition(".")[0])
        return name

    def of(self, avro: Any, space: str) -> tuple[dict[str, Any], str] | None:
        """The record, with its full name, that a type is or names where `space` is the namespace; None: it is none."""
        name = avro
        if isinstance(avro, dict):
            name = avro.get("type")
            if name in ("record", "error"):
                name = str(avro["name"])
                space = avro.get("namespace", space)
        if not isinstance(name, str):
            return None
        full = f"{space}.{name}" if space and "." not in name else name
        return self._named.get(full) or self._named.get(name)


def _grow(avro: Any, rows: pa.DataType, records: _Records, outer: str, where: str) -> bool:
    """Append to the records below this type what the type of the rows has more; whether there was anything.

    outer   full name of the record that this type is in
    """
    if isinstance(avro, list):
        values = [branch for branch in avro if branch != "null"]
        return len(values) == 1 and _grow(values[0], rows, records, outer, where)
    if isinstance(avro, dict) and isinstance(avro.get("type"), dict | list):
        return _grow(avro["type"], rows, records, outer, where)
    kind = avro.get("type") if isinstance(avro, dict) else None
    if kind == "array" and is_list(rows):
        return _grow(avro["items"], rows.value_type, records, outer, where + "[]")
    if kind == "map" and pa.types.is_map(rows):
        return _grow(avro["values"], rows.item_type, records, outer, where + "{}")
    record = records.of(avro, outer.rpartition(".")[0])
    if record is None or not pa.types.is_struct(rows):
        return False
    found, name = record
    more = False
    by_name = {str(f["name"]).lower(): f for f in found["fields"]}
    for field in rows:
        inner = by_name.get(field.name.lower())
        if inner is not None:
            more |= _grow(inner["type"], field.type, records, name, f"{where}.{field.name}")
        elif not pa.types.is_null(field.type):
            found["fields"] += fields_of([field.with_nullable(True)], name, f"{where}.")
            more = True
    return more


# ---------------------------------------------------------------- what a table lacks
def lacking(rows: pa.DataType, table: pa.DataType, where: str) -> Iterator[str]:
    """The paths of fields inside a column's type that rows have and the table's column does not."""
    if is_list(rows) and is_list(table):
        yield from lacking(rows.value_type, table.value_type, where + "[]")
    elif pa.types.is_map(rows) and pa.types.is_map(table):
        yield from lacking(rows.item_type, table.item_type, where + "{}")
    elif pa.types.is_struct(rows) and pa.types.is_struct(table):
        kept = {f.name.lower(): f.type for f in table}
        for field in rows:
            inner = f"{where}.{field.name}"
            if field.name.lower() in kept:
                yield from lacking(field.type, kept[field.name.lower()], inner)
            elif not pa.types.is_null(field.type):
                yield inner
