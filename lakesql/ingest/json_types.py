"""Types of JSON columns: from a SQL column list, an Arrow schema, a JSON schema, or the structure of sample documents.

A `Column` has a tree of `Type`s. A type says what DuckDB is to parse (`parsed`) and what the column becomes (`sql`):
they differ where DuckDB would lose something without a word, so that the two can be compared afterwards. Timestamps are
parsed with their offset, decimals with more digits behind the point, bytes as base64 text. Nothing is decoded here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import JobError
from lakesql.format.avro_types import is_binary, is_list, is_text

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_FLOATS = ("FLOAT", "DOUBLE")
_TIMES = ("DATE", "TIME", "UUID", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE")
_ZONELESS = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS")
_EXACT_DIGITS = 38
_SAMPLED_DEPTH = 32
"""What lies deeper in sample documents is JSON text: Arrow nests no further than 64, and one document must not stop all."""


@dataclass(frozen=True, slots=True)
class Type:
    """kind: 'integer', 'float', 'decimal', 'boolean', 'text', 'time', 'bytes', 'json', 'struct', 'list', 'map'."""

    kind: str
    sql: str
    names: tuple[str, ...] = ()
    children: tuple["Type", ...] = ()

    def parsed(self, lenient: bool) -> str:
        """The SQL type that from_json is asked for."""
        if self.kind == "struct":
            fields = (f"{quoted(n)} {c.parsed(lenient)}" for n, c in zip(self.names, self.children, strict=True))
            return f"STRUCT({', '.join(fields)})"
        if self.kind == "list":
            return self.children[0].parsed(lenient) + "[]"
        if self.kind == "map":
            return f"MAP(VARCHAR, {self.children[0].parsed(lenient)})"
        if self.sql in _ZONELESS:
            return "TIMESTAMP WITH TIME ZONE"
        if self.kind == "bytes":
            return "VARCHAR"
        if self.kind == "decimal":
            precision, scale = (int(n) for n in self.sql[8:-1].split(","))
            return f"DECIMAL({_EXACT_DIGITS},{scale + _EXACT_DIGITS - precision})"
        if self.kind == "integer" and lenient and self.sql not in ("HUGEINT", "UBIGINT"):
            return f"DECIMAL({_EXACT_DIGITS},18)"
        return self.sql

    def structure(self, lenient: bool) -> Any:
        """The same as the JSON that from_json takes."""
        if self.kind == "struct":
            return {n: c.structure(lenient) for n, c in zip(self.names, self.children, strict=True)}
        if self.kind == "list":
            return [self.children[0].structure(lenient)]
        return self.parsed(lenient)

    def compared(self, lenient: bool) -> bool:
        """True when values may change from `parsed` to `sql`, so that both have to be compared."""
        if self.kind in ("decimal", "integer"):
            return self.parsed(lenient) != self.sql
        return any(c.compared(lenient) for c in self.children)


@dataclass(frozen=True, slots=True)
class Column:
    """A column and the key of the document that it comes from; both have the same name."""

    name: str
    type: Type


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def struct_of(columns: Sequence[Column]) -> Type:
    names, types = tuple(c.name for c in columns), tuple(c.type for c in columns)
    fields = ", ".join(f"{quoted(n)} {t.sql}" for n, t in zip(names, types, strict=True))
    return Type("struct", f"STRUCT({fields})", names, types)


def scalar(sql: str, where: str = "") -> Type:
    """A type without children by its SQL name as DuckDB prints it."""
    if sql in _INTEGERS:
        return Type("integer", sql)
    if sql in _FLOATS:
        return Type("float", sql)
    if sql.startswith("DECIMAL("):
        return Type("decimal", sql)
    if sql in _TIMES:
        return Type("time", sql)
    kinds = {"BOOLEAN": "boolean", "VARCHAR": "text", "BLOB": "bytes", "JSON": "json"}
    if sql not in kinds:
        raise JobError(
            f"JSON column {where}: type {sql} is not read from JSON. Use numbers, BOOLEAN, VARCHAR, DATE, TIME, "
            "TIMESTAMP, TIMESTAMPTZ, UUID, BLOB, JSON, STRUCT, lists and MAP(VARCHAR, ...)."
        )
    return Type(kinds[sql], sql)


def _checked(columns: Sequence[Column], where: str = "") -> list[Column]:
    """Refuse what the JSON functions cannot tell apart or reach."""
    for name, t in ((c.name, c.type) for c in columns):
        _checked_type(t, f"{where}{name}", top=not where)
    _distinct([c.name for c in columns], where)
    return list(columns)


def _distinct(names: Sequence[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise JobError(f"JSON columns {where}{seen[name.lower()]} and {where}{name} differ in case only. Keep one.")
        seen[name.lower()] = name


def _checked_type(t: Type, where: str, *, top: bool = False) -> None:
    if t.kind == "bytes" and not top:
        raise JobError(f"JSON column {where}: BLOB is read from base64 only as a column of its own, not inside others.")
    _distinct(t.names, where + ".")
    for name, child in zip(t.names or ("[]",) * len(t.children), t.children, strict=True):
        _checked_type(child, f"{where}.{name}")


# ---------------------------------------------------------------- SQL
def columns_of_sql(con: duckdb.DuckDBPyConnection, text: str, setting: str) -> list[Column]:
    """The columns of a list as in CREATE TABLE: `id BIGINT, tags VARCHAR[]`."""
    statement = f"CREATE OR REPLACE TEMP TABLE lakesql_columns ({text})"
    try:
        if len(con.extract_statements(statement)) != 1:
            raise JobError(f"{setting}: expected one list of columns as in CREATE TABLE.")
        con.execute(statement).fetchall()
        table = con.sql("SELECT * FROM lakesql_columns")
        columns = [Column(n, _of_duckdb(t, n)) for n, t in zip(table.columns, table.types, strict=True)]
        con.execute("DROP TABLE lakesql_columns").fetchall()
    except duckdb.Error as error:
        raise JobError(f"{setting}: {text[:80]!r} is no list of columns: {str(error).splitlines()[0]}") from None
    return _checked(columns)


def _of_duckdb(t: Any, where: str) -> Type:
    if t.id == "struct":
        return struct_of([Column(n, _of_duckdb(c, f"{where}.{n}")) for n, c in t.children])
    if t.id in ("list", "array"):
        item = _of_duckdb(t.children[0][1], where + "[]")
        return Type("list", item.sql + "[]", (), (item,))
    if t.id == "map":
        key, value = (c for _, c in t.children)
        if str(key) != "VARCHAR":
            raise JobError(f"JSON column {where}: keys of a map are VARCHAR in JSON, not {key}.")
        child = _of_duckdb(value, where + "{}")
        return Type("map", f"MAP(VARCHAR, {child.sql})", (), (child,))
    return scalar(str(t), where)


# ---------------------------------------------------------------- Arrow
def columns_of_arrow(schema: pa.Schema) -> list[Column]:
    """The columns that give these Arrow types."""
    return _checked([Column(f.name, _of_arrow(f.type, f.name)) for f in schema])


def _of_arrow(t: pa.DataType, where: str) -> Type:
    if pa.types.is_dictionary(t):
        t = t.value_type
    if pa.types.is_struct(t):
        return struct_of([Column(f.name, _of_arrow(f.type, f"{where}.{f.name}")) for f in t])
    if is_list(t):
        item = _of_arrow(t.value_type, where + "[]")
        return Type("list", item.sql + "[]", (), (item,))
    if pa.types.is_map(t) and is_text(t.key_type):
        child = _of_arrow(t.item_type, where + "{}")
        return Type("map", f"MAP(VARCHAR, {child.sql})", (), (child,))
    return scalar(_flat_sql(t), where)


def _flat_sql(t: pa.DataType) -> str:
    if pa.types.is_integer(t):
        name = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[t.bit_width]
        return name if pa.types.is_signed_integer(t) else "U" + name
    if pa.types.is_decimal(t) and t.precision <= _EXACT_DIGITS:
        return f"DECIMAL({t.precision},{t.scale})"
    if pa.types.is_timestamp(t):
        if t.tz is not None:
            return "TIMESTAMP WITH TIME ZONE"
        return {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS"}.get(t.unit, "TIMESTAMP")
    if is_binary(t) or pa.types.is_fixed_size_binary(t):
        return "BLOB"
    known = (
        (pa.types.is_float16, "FLOAT"),
        (pa.types.is_float32, "FLOAT"),
        (pa.types.is_float64, "DOUBLE"),
        (pa.types.is_boolean, "BOOLEAN"),
        (is_text, "VARCHAR"),
        (pa.types.is_date, "DATE"),
        (pa.types.is_time, "TIME"),
    )
    return next((name for is_, name in known if is_(t)), str(t))


def fuller(known: Type, found: Type) -> Type:
    """A column's type with the fields that it lacks inside of those that sample documents have there; the same object if
    that is none. A name that differs from one of the column's in case only is no new field."""
    if known.kind == "struct" and found.kind == "struct":
        there = dict(zip(found.names, found.children, strict=True))
        fields = [Column(n, fuller(t, there.get(n, t))) for n, t in zip(known.names, known.children, strict=True)]
        taken = {n.lower() for n in known.names}
        new = [Column(n, t) for n, t in there.items() if n.lower() not in taken]
        same = not new and all(c.type is t for c, t in zip(fields, known.children, strict=True))
        return known if same else struct_of([*fields, *new])
    if known.kind == "list" and found.kind == "list":
        item = fuller(known.children[0], found.children[0])
        return known if item is known.children[0] else Type("list", item.sql + "[]", (), (item,))
    if known.kind == "map" and found.kind in ("struct", "map"):  # of objects a sample cannot tell the two apart
        value = known.children[0]
        for one in found.children:
            value = fuller(value, one)
        return known if value is known.children[0] else Type("map", f"MAP(VARCHAR, {value.sql})", (), (value,))
    return known


# ---------------------------------------------------------------- structures and JSON schemas
def columns_of_structure(text: str | None) -> list[Column]:
    """The columns of what json_group_structure says about sample documents. Keys that were always null are left out,
    and so are keys that differ from another one in case only; what had several types is JSON text."""
    found = _of_structure(json.loads(text)) if text else None
    if found is None or found.kind != "struct":
        return []
    return [Column(n, t) for n, t in zip(found.names, found.children, strict=True)]


def _of_structure(found: Any, depth: int = 0) -> Type | None:
    if depth == _SAMPLED_DEPTH and isinstance(found, Mapping | list):
        return scalar("JSON")
    if isinstance(found, Mapping):
        columns: dict[str, Column] = {}
        for name, inner in found.items():
            t = _of_structure(inner, depth + 1)
            if t is not None and name and '"' not in name:
                columns.setdefault(name.lower(), Column(name, t))
        return struct_of(list(columns.values())) if columns else scalar("JSON") if not found else None
    if isinstance(found, list):
        item = _of_structure(found[0], depth + 1) if found else None
        return None if item is None else Type("list", item.sql + "[]", (), (item,))
    if found == "NULL":
        return None
    return scalar("BIGINT" if found == "UBIGINT" else "DOUBLE" if found == "HUGEINT" else str(found))


def columns_of_json_schema(schema: Any, where: str) -> list[Column]:
    """The columns of a JSON schema (the standard): an object with properties of plain types, lists and objects."""
    found = _of_json_schema(schema, where)
    if found.kind != "struct":
        raise JobError(f"{where}: expected a JSON schema of an object with properties. Give lakesql.json.columns.")
    return _checked([Column(n, t) for n, t in zip(found.names, found.children, strict=True)])


def _of_json_schema(schema: Any, where: str) -> Type:
    if not isinstance(schema, Mapping) or any(k in schema for k in ("$ref", "allOf", "if")):
        raise JobError(f"{where}: this JSON schema is not simple enough to become columns. Give lakesql.json.columns.")
    for several in ("oneOf", "anyOf"):
        if several in schema:
            rest = [s for s in schema[several] if s.get("type") != "null"]
            return _of_json_schema(rest[0], where) if len(rest) == 1 else scalar("JSON")
    kinds = schema.get("type")
    kinds = [k for k in (kinds if isinstance(kinds, list) else [kinds]) if k != "null"]
    kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object" and schema.get("properties"):
        return struct_of([Column(n, _of_json_schema(s, f"{where}.{n}")) for n, s in schema["properties"].items()])
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        child = _of_json_schema(schema["additionalProperties"], where + "{}")
        return Type("map", f"MAP(VARCHAR, {child.sql})", (), (child,))
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        item = _of_json_schema(schema["items"], where + "[]")
        return Type("list", item.sql + "[]", (), (item,))
    if kind == "string":
        times = {"date-time": "TIMESTAMP WITH TIME ZONE", "date": "DATE", "time": "TIME", "uuid": "VARCHAR"}
        return scalar(times.get(schema.get("format", ""), "VARCHAR"))
    return scalar({"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}.get(kind or "", "JSON"))


# ---------------------------------------------------------------- paths
@dataclass(frozen=True, slots=True)
class Place:
    """One node of the documents: how its JSON is reached, and the SQL of its parsed value.

    many   below a list or map: `value` is the SQL list of all values at this place, `path` has wildcards
    """

    name: str
    path: str
    value: str
    type: Type
    many: bool


def places(columns: Sequence[Column], root: str) -> Iterator[Place]:
    """All nodes of the columns; `root` is the SQL of the parsed struct."""
    for column in columns:
        pointer = "/" + column.name.replace("~", "~0").replace("/", "~1")
        yield from _places(
            column.type, column.name, pointer, f"{root}.{quoted(column.name)}", _dollar("$", column.name)
        )


def _dollar(path: str | None, name: str) -> str | None:
    """A path with wildcards behind it cannot have every name."""
    return None if path is None or '"' in name or not name else f'{path}."{name}"'


def _places(t: Type, name: str, pointer: str, value: str, dollar: str | None) -> Iterator[Place]:
    yield Place(name, pointer, value, t, many=False)
    if t.kind == "struct":
        for n, child in zip(t.names, t.children, strict=True):
            inner = pointer + "/" + n.replace("~", "~0").replace("/", "~1")
            yield from _places(child, f"{name}.{n}", inner, f"{value}.{quoted(n)}", _dollar(dollar, n))
    elif t.kind == "list":
        yield from _many(t.children[0], name + "[]", dollar and dollar + "[*]", value)
    elif t.kind == "map":
        yield from _many(t.children[0], name + "{}", dollar and dollar + ".*", f"map_values({value})")


def _many(t: Type, name: str, path: str | None, values: str) -> Iterator[Place]:
    if path is None:
        raise JobError(f"JSON column {name}: a key that is empty or has a double quote cannot have lists below it.")
    yield Place(name, path, values, t, many=True)
    if t.kind == "struct":
        for n, child in zip(t.names, t.children, strict=True):
            inner = f"list_transform({values}, lambda e: e.{quoted(n)})"
            yield from _many(child, f"{name}.{n}", _dollar(path, n), inner)
    elif t.kind == "list":
        yield from _many(t.children[0], name + "[]", path + "[*]", f"flatten({values})")
    elif t.kind == "map":
        inner = f"flatten(list_transform({values}, lambda e: map_values(e)))"
        yield from _many(t.children[0], name + "{}", path + ".*", inner)
