"""Avro's schema resolution on columns: from what a writer wrote to the schema that a reader wants.

Strategy: the two schemas are compared once. The result is a schema to decode the bytes with (the writer's, with the
reader's type wherever the bytes are the same: string and bytes, long and timestamp-millis) and a tree of steps that turn
the decoded Arrow columns into the reader's: fields by name or alias, defaults for missing ones, wider numbers, branches
of unions, symbols of enums. A step also tells which rows have a value that the reader cannot hold. Avro specification,
"schema resolution"; where it leaves the choice of a union's branch open: the same type first, then one it widens to.
Times change their unit with their meaning. Not done: recursive types, see avro_types.
"""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import FormatError
from lakesql.format.avro_decode import decode_spans
from lakesql.format.avro_types import Node, arrow_fields, parse_schema, parse_type
from lakesql.format.conform import to_unit, without_nulls
from lakesql.format.words import U8, Mask, varint

Converted = tuple[pa.Array, Mask | None]  # the mask: rows with a value that the reader cannot hold
Convert = Callable[[pa.Array], Converted]

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
_NAMED = ("record", "error", "enum", "fixed")
_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
_SAME_BYTES = (("string", "bytes"), ("bytes", "string"))
_BASE = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()}


class Mismatch(FormatError):
    """The reader's schema cannot take what the writer's has."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a value of one type is read: decode it as `json` says, then `convert` (None: it is right as it is)."""

    json: Any
    convert: Convert | None


@dataclass(frozen=True, slots=True)
class Resolution:
    """How records of one writer become rows of the reader.

    node    what to decode, a record
    keep    which of its fields
    schema  of the rows
    finish  the decoded fields and their number of rows to (columns of `schema`, rows that the reader cannot hold)
    """

    node: Node
    keep: tuple[bool, ...]
    schema: pa.Schema
    finish: Callable[[list[pa.Array], int], tuple[list[pa.Array], Mask | None]]


def as_record(schema: Any) -> Any:
    """The schema, or a record with the one field `value` around it: records add no bytes of their own."""
    if isinstance(schema, dict) and schema.get("type") in ("record", "error"):
        return schema
    return {"type": "record", "name": "value", "fields": [{"name": "value", "type": schema}]}


def resolution(writer: Any, reader: Any) -> Resolution:
    """How to read `writer`'s records as `reader`'s (parsed JSON both). Mismatch, FormatError or Unsupported when that
    cannot be done for any record."""
    writer, reader = as_record(writer), as_record(reader)
    schema = pa.schema(arrow_fields(parse_schema(reader)))
    parse_schema(writer)
    w, r = expanded(writer), expanded(reader)
    fields = _fields(w, r, "")
    node = parse_schema(_effective(w, fields))
    wanted = {f.index for f in fields if f.index is not None}
    keep = tuple(i in wanted for i in range(len(node.names)))
    place = {index: k for k, index in enumerate(i for i in range(len(keep)) if keep[i])}

    def finish(columns: list[pa.Array], rows: int) -> tuple[list[pa.Array], Mask | None]:
        bad: Mask | None = None
        out = []
        for field in fields:
            array, wrong = field.of(None if field.index is None else columns[place[field.index]], rows)
            bad = _either(bad, wrong)
            out.append(array)
        return out, bad

    return Resolution(node, keep, schema, finish)


# ---------------------------------------------------------------- schemas as trees
def expanded(schema: Any) -> Any:
    """The schema with each name of a type replaced by its definition, and full names everywhere."""
    return _expanded(schema, "", {})


def _expanded(schema: Any, namespace: str, names: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_expanded(branch, namespace, names) for branch in schema]
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return schema
        full = _full(schema, namespace)
        return names[full] if full in names else names[schema]
    kind = schema["type"]
    if not isinstance(kind, str):
        return _expanded(kind, namespace, names)
    if kind in _PRIMITIVES:
        return schema
    if kind in ("array", "map"):
        key = "items" if kind == "array" else "values"
        return {**schema, key: _expanded(schema[key], namespace, names)}
    if kind not in _NAMED:
        return _expanded(kind, namespace, names)
    name = _full(str(schema["name"]), schema.get("namespace", namespace) or "")
    space = name.rpartition(".")[0]
    out = {k: v for k, v in schema.items() if k != "namespace"} | {"name": name}
    if space == "":
        out["namespace"] = ""
    out["aliases"] = [_full(a, space) for a in schema.get("aliases") or ()]
    names[name] = out
    if "fields" in out:
        out["fields"] = [{**f, "type": _expanded(f["type"], space, names)} for f in schema["fields"]]
    return out


def _full(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    kind = schema if isinstance(schema, str) else schema["type"]
    return "record" if kind == "error" else str(kind)


def _same_name(w: Any, r: Any) -> bool:
    """Named types match by their names without namespace, or by an alias of the reader's."""
    last = w["name"].rpartition(".")[2]
    return last == r["name"].rpartition(".")[2] or w["name"] in r["aliases"] or last in r["aliases"]


# ---------------------------------------------------------------- steps
def _step(w: Any, r: Any, where: str) -> Step:
    wk, rk = _kind(w), _kind(r)
    if "union" in (wk, rk):
        return _union_step(w, r, where)
    if wk == rk == "record":
        return _record_step(w, r, where)
    if wk == rk and wk in ("array", "map"):
        return _items_step(w, r, where)
    if wk == rk == "enum" and _same_name(w, r):
        return _enum_step(w, r)
    step = _leaf_step(w, r, wk, rk)
    if step is None:
        raise Mismatch(f"{where or 'the record'}: written as {_short(w)}, to be read as {_short(r)}")
    return step


def _short(schema: Any) -> str:
    if isinstance(schema, list):
        return "[" + ", ".join(_short(b) for b in schema) + "]"
    if isinstance(schema, str):
        return schema
    return f"{schema['type']} {schema.get('logicalType') or schema.get('name') or ''}".strip()


def _leaf_step(w: Any, r: Any, wk: str, rk: str) -> Step | None:
    if wk == rk == "fixed" and (w["size"] != r["size"] or not _same_name(w, r)):
        return None
    source, target = parse_type(w).arrow, parse_type(r).arrow
    wl, rl = _logical(wk, source), _logical(rk, target)
    if wl and rl and source != target:
        return Step(w, _time_or_decimal(source, target)) if _alike(source, target) else None
    if wk == rk and wk not in ("enum", "array", "map"):
        return Step(r, None)
    if (wk, rk) in _SAME_BYTES and not wl:
        return Step(r, None)
    if rk in _WIDER.get(wk, ()):
        return Step(wk, _widened(_BASE[rk], target))
    return None


def _logical(kind: str, arrow: pa.DataType) -> bool:
    plain = pa.binary(arrow.byte_width) if kind == "fixed" and pa.types.is_fixed_size_binary(arrow) else None
    return kind != "enum" and arrow != (plain or parse_type(kind if kind in _PRIMITIVES else "null").arrow)


def _alike(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        return bool(source.scale == target.scale and source.precision <= target.precision)
    same = (pa.types.is_timestamp, pa.types.is_time)
    return any(is_(source) and is_(target) for is_ in same)


def _time_or_decimal(source: pa.DataType, target: pa.DataType) -> Convert:
    """Another unit of a time (the numbers of a timestamp with and without zone are the same), or more digits."""
    if pa.types.is_timestamp(source):
        middle = pa.timestamp(target.unit, source.tz)
        return lambda array: (_units(array, middle).view(target), None)
    if pa.types.is_time(source):
        return lambda array: (_units(array, target), None)
    return lambda array: (array.cast(target), None)


def _units(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Times that the finer unit cannot hold wrap round as Java's multiplication does; they are out of any calendar."""
    if array.type == target:
        return array
    if pa.types.is_timestamp(target) and array.type.unit == "ms":
        return pc.multiply(array.view(pa.int64()), 1000).view(target)
    return to_unit(array, target)


def _widened(base: pa.DataType, target: pa.DataType) -> Convert:
    if target == base:
        return lambda array: (array.cast(base, safe=False), None)
    return lambda array: (array.cast(base, safe=False).view(target), None)


def _enum_step(w: Any, r: Any) -> Step:
    unknown = [s for s in w["symbols"] if s not in r["symbols"]]
    if not unknown:
        return Step(w, None)
    strange, default = pa.array(unknown, pa.string()), r.get("default")

    def convert(array: pa.Array) -> Converted:
        found = pc.is_in(array, value_set=strange)
        if default is not None:
            return pc.if_else(found, pa.scalar(default, pa.string()), array), None
        return array, _mask(found)

    return Step(w, convert)


def _items_step(w: Any, r: Any, where: str) -> Step:
    key, mark = ("items", "[]") if _kind(w) == "array" else ("values", "{}")
    inner = _step(w[key], r[key], where + mark)
    json_ = {**w, key: inner.json}
    target = parse_type(r).arrow
    if inner.convert is None and parse_type(json_).arrow == target:
        return Step(json_, None)

    def convert(array: pa.Array) -> Converted:
        is_list = pa.types.is_list(array.type)
        child, wrong = _applied(inner, array.values if is_list else array.items)
        field = target.value_field if is_list else target.item_field
        child = child if field.nullable else without_nulls(child)
        validity, offsets = array.buffers()[:2]
        bad = None
        if wrong is not None:
            edges = np.frombuffer(offsets, np.int32)[: len(array) + 1]
            before = np.append(0, np.cumsum(wrong))
            bad = before[edges[1:]] > before[edges[:-1]]
        if not is_list:
            entries = pa.struct([target.key_field, target.item_field])
            child = pa.Array.from_buffers(entries, len(child), [None], children=[array.keys, child])
        return pa.Array.from_buffers(target, len(array), [validity, offsets], children=[child]), bad

    return Step(json_, convert)


def _applied(step: Step, array: pa.Array) -> Converted:
    assert array.offset == 0  # a decoded array is never a slice; buffers are taken as they are
    return (array, None) if step.convert is None else step.convert(array)


def _mask(found: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), np.bool_)


def _valid(array: pa.Array) -> Mask:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _either(a: Mask | None, b: Mask | None) -> Mask | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b


# ---------------------------------------------------------------- records
@dataclass(frozen=True, slots=True)
class _Field:
    """One field of the reader: from field `index` of the writer by `step`, or a constant."""

    arrow: pa.Field
    index: int | None
    step: Step | None
    default: pa.Array | None

    def of(self, column: pa.Array | None, rows: int) -> Converted:
        if column is None:
            assert self.default is not None
            return self.default.take(pa.array(np.zeros(rows, np.int64))), None
        assert self.step is not None
        return _applied(self.step, column)


def _fields(w: Any, r: Any, where: str) -> list[_Field]:
    there = {f["name"]: i for i, f in enumerate(w["fields"])}
    taken = {f["name"] for f in r["fields"]}
    out = []
    for field, arrow in zip(r["fields"], arrow_fields(parse_type(r)), strict=True):
        name = field["name"]
        path = f"{where}.{name}" if where else name
        aliases = [a for a in field.get("aliases") or () if a not in taken]
        taken |= set(aliases)
        index = next((there[n] for n in (name, *aliases) if n in there), None)
        if index is not None:
            out.append(_Field(arrow, index, _step(w["fields"][index]["type"], field["type"], path), None))
        elif "default" in field:
            out.append(_Field(arrow, None, None, _default(field["type"], field["default"], path)))
        else:
            raise Mismatch(f"{path}: the writer has no such field, and the reader's schema gives no default for it")
    return out


def _effective(w: Any, fields: list[_Field]) -> Any:
    """The writer's record with the types of those fields that are read."""
    steps = {f.index: f.step.json for f in fields if f.step is not None}
    return {**w, "fields": [{**f, "type": steps.get(i, f["type"])} for i, f in enumerate(w["fields"])]}


def _record_step(w: Any, r: Any, where: str) -> Step:
    fields = _fields(w, r, where)
    json_, target = _effective(w, fields), parse_type(r).arrow
    same = [f.index for f in fields] == list(range(len(w["fields"])))
    plain = same and all(f.step is not None and f.step.convert is None for f in fields)
    if plain and parse_type(json_).arrow == target:
        return Step(json_, None)

    def convert(array: pa.Array) -> Converted:
        bad: Mask | None = None
        children = []
        for field in fields:
            child, wrong = field.of(None if field.index is None else array.field(field.index), len(array))
            bad = _either(bad, wrong)
            children.append(child if field.arrow.nullable else without_nulls(child))
        if bad is not None:
            bad = bad & _valid(array)
        return pa.Array.from_buffers(target, len(array), [array.buffers()[0]], children=children), bad

    return Step(json_, convert)


# ---------------------------------------------------------------- unions
def _union_step(w: Any, r: Any, where: str) -> Step:
    written, wanted = (s if isinstance(s, list) else [s] for s in (w, r))
    chosen = [_branch(b, wanted, where) for b in written]
    if all(step is None for _, step in chosen):
        raise Mismatch(f"{where or 'the record'}: written as {_short(w)}, to be read as {_short(r)}")
    branches = [b if step is None else step.json for b, (_, step) in zip(written, chosen, strict=True)]
    json_ = branches if isinstance(w, list) else branches[0]
    target = parse_type(r).arrow
    values = [i for i, b in enumerate(written) if _kind(b) != "null"]
    places = [j for j, b in enumerate(wanted) if _kind(b) != "null"]
    null_is_bad = len(values) < len(written) and len(places) == len(wanted)
    plain = all(step is not None and step.convert is None for _, step in chosen) and not null_is_bad
    if plain and [chosen[i][0] for i in values] == places and parse_type(json_).arrow == target:
        return Step(json_, None)

    def convert(array: pa.Array) -> Converted:
        given = [array] if len(values) == 1 else [array.field(k) for k in range(len(values))]
        if not values:
            given = []
        bad = ~_valid(array) if null_is_bad else None
        into: dict[int, list[pa.Array]] = {j: [] for j in places}
        for i, one in zip(values, given, strict=True):
            place, step = chosen[i]
            if step is None:
                bad = _either(bad, _valid(one))
                continue
            out, wrong = _applied(step, one)
            if wrong is not None:
                bad = _either(bad, wrong & _valid(one))
            into[place].append(out)
        members = [_first(into[j], parse_type(wanted[j]).arrow, len(array)) for j in places]
        if len(places) == 1:
            return members[0], bad
        if not places:
            return pa.nulls(len(array)), bad
        there = np.logical_or.reduce([_valid(m) for m in members])
        bits = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
        return pa.Array.from_buffers(target, len(array), [bits], children=members), bad

    return Step(json_, convert)


def _branch(w: Any, wanted: list[Any], where: str) -> tuple[int, Step | None]:
    """The reader's branch for a branch of the writer: of the same type and name, of the same type, or a wider one."""
    kind = _kind(w)

    def rank(r: Any) -> int:
        if _kind(r) != kind:
            return 2
        return 1 if kind in ("record", "enum", "fixed") and not _same_name(w, r) else 0

    for j in sorted(range(len(wanted)), key=lambda j: (rank(wanted[j]), j)):
        try:
            return j, _step(w, wanted[j], where)
        except Mismatch:
            continue
    return -1, None


def _first(arrays: list[pa.Array], t: pa.DataType, rows: int) -> pa.Array:
    """In each row the value of the array that has one."""
    if not arrays:
        return pa.nulls(rows, t)
    if len(arrays) == 1:
        return arrays[0]
    pick = np.arange(rows)
    there = _valid(arrays[0])
    for number, array in enumerate(arrays[1:], 1):
        here = _valid(array)
        pick = np.where(here, np.arange(rows) + number * rows, pick)
        there |= here
    return pa.concat_arrays(arrays).take(pa.array(pick, mask=~there))


# ---------------------------------------------------------------- defaults
def _default(schema: Any, value: Any, where: str) -> pa.Array:
    """A field's default as an array of one value."""
    try:
        data = np.frombuffer(_encoded(schema, value), U8)
    except (KeyError, TypeError, ValueError, AttributeError, struct.error, OverflowError):
        raise Mismatch(f"{where}: default {json.dumps(value)[:60]} is no value of type {_short(schema)}") from None
    node = parse_schema(as_record({"type": "record", "name": "d", "fields": [{"name": "value", "type": schema}]}))
    return decode_spans(node, data, np.zeros(1, np.int64), np.array([len(data)]), [True], where)[0]


def _encoded(schema: Any, value: Any) -> bytes:
    """Avro bytes of a default as JSON has it: bytes as Latin-1 text, of a union its first branch that fits."""
    kind = _kind(schema)
    if kind == "union":
        for number, branch in enumerate(schema):
            try:
                return varint(number) + _encoded(branch, value)
            except (KeyError, TypeError, ValueError, AttributeError, struct.error, OverflowError):
                continue
        raise ValueError(value)
    if kind == "array":
        return (varint(len(value)) + b"".join(_encoded(schema["items"], v) for v in value) if value else b"") + b"\0"
    if kind == "map":
        entries = b"".join(_encoded("string", k) + _encoded(schema["values"], v) for k, v in value.items())
        return (varint(len(value)) + entries if value else b"") + b"\0"
    if kind == "record":
        given: Mapping[str, Any] = {f["name"]: f["default"] for f in schema["fields"] if "default" in f} | value
        return b"".join(_encoded(f["type"], given[f["name"]]) for f in schema["fields"])
    if kind == "enum":
        return varint(schema["symbols"].index(value))
    if kind in ("bytes", "fixed"):
        data = bytes(value.encode("latin-1"))
        if kind == "fixed" and len(data) != schema["size"]:
            raise ValueError(value)
        return data if kind == "fixed" else varint(len(data)) + data
    return _encoded_primitive(kind, value)


def _encoded_primitive(kind: str, value: Any) -> bytes:
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    bits = {"int": 31, "long": 63}.get(kind)
    if bits and isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits:
        return varint(value)
    if kind in ("float", "double") and not isinstance(value, bool):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "string" and isinstance(value, str):
        data = value.encode()
        return varint(len(data)) + data
    raise ValueError(value)
