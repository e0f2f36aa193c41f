"""Avro types as a tree of `Node`s with the Arrow type of each, and the way back from an Arrow schema to an Avro schema.

Strategy: a schema is parsed once into immutable nodes; encoder and decoder walk the tree and never see JSON again.
Types follow Hudi format note 7.1, record and fixed names 7.2. A union of null and one type is a nullable column; a
union of several types is a struct `member0, member1, ...` with at most one member set, as parquet-avro lays it out.
Not done: recursive types and decimals of more than 38 digits (no Arrow column holds them here), timestamps in
nanoseconds, the Avro defaults of missing fields (a missing column is NULL).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakesql.errors import FormatError, TableError, Unsupported

AvroSchema = dict[str, Any]

_PRIMITIVES: dict[str, tuple[pa.DataType, int, int | None]] = {
    # type: (Arrow type, fewest bytes, exact bytes or None)
    "null": (pa.null(), 0, 0),
    "boolean": (pa.bool_(), 1, 1),
    "int": (pa.int32(), 1, None),
    "long": (pa.int64(), 1, None),
    "float": (pa.float32(), 4, 4),
    "double": (pa.float64(), 8, 8),
    "string": (pa.string(), 1, None),
    "bytes": (pa.binary(), 1, None),
}

_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}

DECIMAL_DIGITS_MAX = 38


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One Avro type.

    kind         the Avro type name, or 'union'
    arrow        Arrow type of its column
    names        symbols of an enum, field names of a record
    children     fields of a record, item of an array, value of a map, branches of a union
    null_branch  position of null among the branches of a union, -1 when it has none
    size_bytes   bytes of a fixed; for every other kind the fewest bytes a value takes
    exact_bytes  bytes of every value, None when values differ
    """

    kind: str
    arrow: pa.DataType
    names: tuple[str, ...] = ()
    children: tuple["Node", ...] = ()
    null_branch: int = -1
    size_bytes: int = 0
    exact_bytes: int | None = None

    @property
    def nullable(self) -> bool:
        """True when a value of this type may be null."""
        return self.kind == "null" or self.null_branch >= 0


def parse_schema(avro: AvroSchema) -> Node:
    """The record type that an Avro schema (parsed JSON) describes; FormatError when it is malformed or not a record."""
    node = _parsed(json.dumps(avro))
    if node.kind != "record":
        raise FormatError(f"Avro schema: expected a record, found {node.kind!r}. A table schema is always a record.")
    return node


def parse_type(avro: Any) -> Node:
    """Any Avro type (parsed JSON); FormatError when it is malformed, Unsupported when no Arrow type can hold it."""
    return _parsed(json.dumps(avro))


@lru_cache(maxsize=256)
def _parsed(text: str) -> Node:
    return _parse(json.loads(text), "", {}, "")


def arrow_fields(node: Node) -> list[pa.Field]:
    """Arrow fields of a record node, required Avro fields as non-null fields."""
    return [pa.field(n, c.arrow, nullable=c.nullable) for n, c in zip(node.names, node.children, strict=True)]


# ---------------------------------------------------------------- Avro -> Node
_Names = dict[str, Node | None]  # full name -> node; None while the type is being parsed


def _parse(avro: Any, namespace: str, names: _Names, where: str) -> Node:
    if isinstance(avro, list):
        return _union([_parse(branch, namespace, names, where) for branch in avro], where)
    if isinstance(avro, str):
        if avro in _PRIMITIVES:
            return _primitive(avro)
        return _named(avro, namespace, names, where)
    if not isinstance(avro, dict) or "type" not in avro:
        raise FormatError(f"Avro schema: {where or 'top level'}: expected a type, found {json.dumps(avro)[:80]}.")
    kind = avro["type"]
    if not isinstance(kind, str):
        return _parse(kind, namespace, names, where)
    if kind in _PRIMITIVES:
        return _logical(_primitive(kind), avro, where)
    if kind == "array":
        item = _parse(_member(avro, "items", where), namespace, names, f"{where}[]")
        arrow = pa.list_(pa.field("element", item.arrow, nullable=item.nullable))
        return Node("array", arrow, children=(item,), size_bytes=1)
    if kind == "map":
        value = _parse(_member(avro, "values", where), namespace, names, f"{where}{{}}")
        arrow = pa.map_(pa.string(), pa.field("value", value.arrow, nullable=value.nullable))
        return Node("map", arrow, children=(value,), size_bytes=1)
    if kind in ("record", "error", "enum", "fixed"):
        return _definition(avro, kind, namespace, names, where)
    return _named(kind, namespace, names, where)


def _definition(avro: Mapping[str, Any], kind: str, namespace: str, names: _Names, where: str) -> Node:
    name = str(_member(avro, "name", where))
    if "." not in name:
        space = avro.get("namespace", namespace) or ""
        name = f"{space}.{name}" if space else name
    names[name] = None
    if kind == "fixed":
        size = _member(avro, "size", where)
        if not isinstance(size, int) or size < 0:
            raise FormatError(f"Avro schema: {where}: expected the size of a fixed, found {size!r}.")
        plain = Node("fixed", pa.binary(size), size_bytes=size, exact_bytes=size)
        node = _logical(plain, avro, where)
    elif kind == "enum":
        symbols = tuple(str(s) for s in _member(avro, "symbols", where))
        node = Node("enum", pa.string(), symbols, size_bytes=1)
    else:
        space = name.rpartition(".")[0]
        fields, children = [], []
        for field in _member(avro, "fields", where):
            fields.append(str(_member(field, "name", where)))
            inner = f"{where}.{fields[-1]}" if where else fields[-1]
            children.append(_parse(_member(field, "type", inner), space, names, inner))
        node = _record(tuple(fields), tuple(children), where)
    names[name] = node
    return node


def _record(fields: tuple[str, ...], children: tuple[Node, ...], where: str) -> Node:
    if len(set(fields)) < len(fields):
        raise FormatError(f"Avro schema: {where or 'top level'}: a record has two fields of one name: {list(fields)}.")
    arrow = pa.struct([pa.field(n, c.arrow, nullable=c.nullable) for n, c in zip(fields, children, strict=True)])
    exact = [c.exact_bytes for c in children]
    total = None if None in exact else sum(e for e in exact if e is not None)
    return Node("record", arrow, fields, children, -1, sum(c.size_bytes for c in children), total)


def _named(name: str, namespace: str, names: _Names, where: str) -> Node:
    full = f"{namespace}.{name}" if namespace and "." not in name else name
    key = full if full in names else name
    if key not in names:
        raise FormatError(f"Avro schema: {where or 'top level'}: unknown type {name!r}.")
    node = names[key]
    if node is None:
        raise Unsupported(f"Avro schema: {where}: type {name!r} contains itself; Arrow has no recursive types.")
    return node


def _union(branches: Sequence[Node], where: str) -> Node:
    kinds = [b.kind for b in branches]
    if not branches or "union" in kinds or kinds.count("null") > 1:
        raise FormatError(f"Avro schema: {where}: a union needs branches, none of them a union, null once: {kinds}.")
    null = kinds.index("null") if "null" in kinds else -1
    values = [b for b in branches if b.kind != "null"]
    if not values:
        arrow = pa.null()
    elif len(values) == 1:
        arrow = values[0].arrow
    else:
        arrow = pa.struct([pa.field(f"member{i}", b.arrow) for i, b in enumerate(values)])
    return Node("union", arrow, (), tuple(branches), null, 1 + min(b.size_bytes for b in branches))


def _primitive(kind: str) -> Node:
    arrow, fewest, exact = _PRIMITIVES[kind]
    return Node(kind, arrow, size_bytes=fewest, exact_bytes=exact)


def _logical(node: Node, avro: Mapping[str, Any], where: str) -> Node:
    """A logical type that Avro does not define for the type below it is ignored, as the Avro specification says."""
    logical = avro.get("logicalType")
    if logical is None:
        return node
    arrow = _LOGICAL.get((node.kind, str(logical)))
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = avro.get("precision"), avro.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
            raise FormatError(f"Avro schema: {where}: decimal({precision}, {scale}) is not a decimal type.")
        if precision > DECIMAL_DIGITS_MAX:
            raise Unsupported(f"Avro schema: {where}: decimal({precision}, {scale}) has more than 38 digits.")
        arrow = pa.decimal128(precision, scale)
    elif str(logical).endswith("timestamp-nanos"):
        raise Unsupported(f"Avro schema: {where}: {logical} is not read; Hudi tables use micro- or milliseconds.")
    if arrow is None:
        return node
    return Node(node.kind, arrow, size_bytes=node.size_bytes, exact_bytes=node.exact_bytes)


def _member(avro: Any, key: str, where: str) -> Any:
    if not isinstance(avro, Mapping) or key not in avro:
        raise FormatError(f"Avro schema: {where or 'top level'}: {key!r} is missing in {json.dumps(avro)[:80]}.")
    return avro[key]


# ---------------------------------------------------------------- Arrow -> Avro
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def record_of(schema: pa.Schema, table_name: str) -> AvroSchema:
    """Avro record `hoodie.<table>.<table>_record` for an Arrow schema (7.2).

    Nullable fields become ["null", T] with default null, others plain T. Unsupported names the column whose type the
    format cannot hold, TableError a column whose name Avro does not allow.
    """
    name = _sanitised(table_name)
    space = f"hoodie.{name}"
    fields = fields_of(list(schema), f"{space}.{name}_record", "")
    return {"type": "record", "name": f"{name}_record", "namespace": space, "fields": fields}


def _sanitised(name: str) -> str:
    """Hudi writes two underscores for each character that Avro does not allow in a name."""
    clean = re.sub(r"[^A-Za-z0-9_]", "__", name)
    return clean if _NAME.match(clean) else "__" + clean[1:]


def fields_of(fields: Sequence[pa.Field], namespace: str, outer: str) -> list[dict[str, Any]]:
    """The Avro fields of a record whose full name is `namespace`; `outer` begins the names that errors tell."""
    out: list[dict[str, Any]] = []
    for field in fields:
        where = f"{outer}{field.name}"
        if not _NAME.match(field.name):
            raise TableError(
                f"column {where!r}: Avro allows letters, digits and _ in a name, not starting with a digit. Rename it."
            )
        avro = _avro_type(field.type, namespace, field.name, where)
        if field.nullable:
            out.append({"name": field.name, "type": ["null", avro], "default": None})
        else:
            out.append({"name": field.name, "type": avro})
    return out


def _avro_type(t: pa.DataType, namespace: str, name: str, where: str) -> Any:
    if pa.types.is_dictionary(t):
        t = t.value_type
    if simple := _simple(t):
        return simple
    if pa.types.is_decimal(t) and t.precision <= DECIMAL_DIGITS_MAX and 0 <= t.scale <= t.precision:
        decimal = {"logicalType": "decimal", "precision": t.precision, "scale": t.scale}
        return _fixed(decimal_bytes(t.precision), namespace, name) | decimal
    if pa.types.is_fixed_size_binary(t):
        return _fixed(t.byte_width, namespace, name)
    if is_list(t):
        return {"type": "array", "items": _optional(t.value_field, namespace, name, where + "[]")}
    if pa.types.is_map(t) and is_text(t.key_type):
        return {"type": "map", "values": _optional(t.item_field, namespace, name, where + "{}")}
    if pa.types.is_struct(t) and t.num_fields:
        fields = fields_of([t.field(i) for i in range(t.num_fields)], f"{namespace}.{name}", where + ".")
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    raise Unsupported(f"column {where!r}: a Hudi table cannot hold {t}. {_advice(t)}")


def _fixed(size_bytes: int, namespace: str, name: str) -> dict[str, Any]:
    return {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": size_bytes}


def _optional(field: pa.Field, namespace: str, name: str, where: str) -> Any:
    avro = _avro_type(field.type, namespace, name, where)
    return ["null", avro] if field.nullable else avro


def _simple(t: pa.DataType) -> Any:
    """Avro type of an Arrow type that needs no name, None for all others."""
    if pa.types.is_boolean(t):
        return "boolean"
    if pa.types.is_integer(t) and t != pa.uint64():
        return "int" if t.bit_width < 32 or t == pa.int32() else "long"
    if t == pa.float32() or t == pa.float64():
        return "float" if t == pa.float32() else "double"
    if is_text(t):
        return "string"
    if is_binary(t):
        return "bytes"
    if pa.types.is_date(t):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_time(t) and t.unit != "ns":
        us = t.unit == "us"
        return {"type": "long" if us else "int", "logicalType": "time-micros" if us else "time-millis"}
    if pa.types.is_timestamp(t) and t.unit != "ns":
        unit = "micros" if t.unit == "us" else "millis"
        return {"type": "long", "logicalType": f"{'local-' if t.tz is None else ''}timestamp-{unit}"}
    return None


def _advice(t: pa.DataType) -> str:
    if (pa.types.is_timestamp(t) or pa.types.is_time(t)) and t.unit == "ns":
        return "Cast it to microseconds."
    if t == pa.uint64():
        return "Cast it to BIGINT, or to DECIMAL(20, 0) if it has values above 2^63."
    if pa.types.is_null(t):
        return "The column has no type; cast it to one."
    if pa.types.is_map(t):
        return "Keys of a map must be strings."
    return "Cast it to a supported type."


def decimal_bytes(precision: int) -> int:
    """Smallest n with 2^(8n-1) > 10^precision (7.1)."""
    return (int(10**precision).bit_length() + 8) // 8


def is_text(t: pa.DataType) -> bool:
    """string, large_string or string_view."""
    return bool(pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t))


def is_binary(t: pa.DataType) -> bool:
    """binary, large_binary or binary_view; not fixed_size_binary."""
    return bool(pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t))


def is_list(t: pa.DataType) -> bool:
    """Any list type: list, large_list, fixed_size_list or a view."""
    return bool(
        pa.types.is_list(t)
        or pa.types.is_large_list(t)
        or pa.types.is_fixed_size_list(t)
        or pa.types.is_list_view(t)
        or pa.types.is_large_list_view(t)
    )
