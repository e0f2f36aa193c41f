"""Keys of messages as columns: for tombstones, which have nothing else, and for rows whose value lacks its key.

`lakesql.key.format` says how the bytes of a key become columns, `lakesql.key.columns` how these are called, with or
without types (`id` or `id BIGINT, region VARCHAR`). Text and raw keys are one column; JSON keys are an object with the
columns, or one plain value for one column; Avro keys come with a schema as values do (`__key_schema_id`, subject
`<topic>-key`). Columns take the type that the target has for them. What does not work is bad at stage 'key'.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import JobError
from lakesql.ingest import decode_avro, decode_json
from lakesql.ingest.decode_json import JsonValues
from lakesql.ingest.decode_plain import RawValues, TextValues
from lakesql.ingest.decoded import Bad, Part, finer, one_array
from lakesql.ingest.json_types import columns_of_arrow, quoted
from lakesql.ingest.model import Format

KEY_FORMAT = "lakesql.key.format"
KEY_COLUMNS = "lakesql.key.columns"
KEY_WIRE = "lakesql.key.wire"
KEY_FORMATS = ("none", "string", "json", "avro", "raw")


def split_columns(text: str) -> list[tuple[str, str]]:
    """(name, type or '') of a list such as `id, amount DECIMAL(10, 2)`."""
    parts, depth, quote, start = [], 0, False, 0
    for i, letter in enumerate(text):
        quote ^= letter == '"'
        depth += (letter in "([") - (letter in ")]") if not quote else 0
        if letter == "," and not depth and not quote:
            parts.append(text[start:i])
            start = i + 1
    out = []
    for part in (*parts, text[start:]):
        body = part.strip()
        if body.startswith('"'):
            name, _, kind = body[1:].partition('"')
        else:
            name, _, kind = body.partition(" ")
        if name:
            out.append((name, kind.strip()))
    return out


class Keys:
    """The key columns of one decoder."""

    def __init__(
        self,
        form: Format,
        columns: Sequence[str],
        hint: pa.Schema | None,
        avro: decode_avro.Shared,
        json: decode_json.Shared,
    ) -> None:
        self.format = (form.options.get(KEY_FORMAT) or "none").lower()
        if self.format not in KEY_FORMATS:
            raise JobError(f"{KEY_FORMAT}={self.format}: use one of {', '.join(KEY_FORMATS)}.")
        given = split_columns(form.options.get(KEY_COLUMNS) or "") or [(name, "") for name in columns]
        self.names = tuple(name for name, _ in given)
        kinds = {name: kind for name, kind in given if kind}
        self._types = {f.name: f.type for f in hint if f.name in self.names} if hint is not None else {}
        if self.format in ("string", "raw") and len(self.names) != 1:
            raise JobError(f"{KEY_FORMAT}={self.format}: the key is one column. Name it in {KEY_COLUMNS}.")
        self._decoder: RawValues | TextValues | JsonValues | decode_avro.AvroValues | None = None
        if self.format == "raw":
            self._decoder = RawValues(self.names[0])
        elif self.format == "string":
            self._decoder = TextValues(self.names[0])
        elif self.format == "avro":
            wire = form.options.get(KEY_WIRE, "").lower() or (form.wire if form.kind == "avro" else None) or "confluent"
            self._decoder = decode_avro.AvroValues(form, avro, "key", wire)
        elif self.format == "json":
            plain = replace(form, wire=form.options.get(KEY_WIRE, "").lower() or None)
            text = self._columns_text(kinds)
            self._decoder = JsonValues(
                plain, json, unwrap=True, part="key", columns_text=text, prepared=self._as_documents
            )
        if kinds and self.format in ("string", "raw"):
            column = JsonValues.types_of(f"{quoted(self.names[0])} {kinds[self.names[0]]}")
            self._types |= {f.name: f.type for f in column}

    def _columns_text(self, kinds: dict[str, str]) -> str | None:
        """Columns of a JSON key as a list of SQL columns; None: found in the data."""
        for name in self.names:
            if name not in kinds and name in self._types:
                kinds = kinds | {name: columns_of_arrow(pa.schema([(name, self._types[name])]))[0].type.sql}
        if not self.names or set(kinds) != set(self.names):
            return None
        return ", ".join(f"{quoted(name)} {kinds[name]}" for name in self.names)

    def close(self) -> None:
        if isinstance(self._decoder, JsonValues):
            self._decoder.close()

    def decode(self, keys: pa.Array, headers: pa.Array | None, topic: str) -> Part:
        """The key columns of these records; stage of all bad ones is 'key'."""
        assert self._decoder is not None
        total, bad = len(keys), Bad()
        there = np.asarray(keys.is_valid().to_numpy(zero_copy_only=False))
        rows = np.arange(total)
        if not there.all():
            bad.add_all(np.flatnonzero(~there).tolist(), "key", "the record has no key")
            rows = rows[there]
            keys, headers = keys.filter(pa.array(there)), None if headers is None else headers.filter(pa.array(there))
        if self.format == "json":
            keys = self._as_documents(keys)
        part = self._decoder.decode(keys, headers, topic)
        wrong = part.bad.placed(rows)
        bad += Bad(wrong.rows, ["key"] * len(wrong.rows), [f"key: {e}" for e in wrong.errors], wrong.schema_ids)
        return self._typed(total, part.columns, rows[part.rows], bad)

    def _as_documents(self, keys: pa.Array) -> pa.Array:
        """JSON keys as objects; one column may come as a plain value."""
        return _as_objects(keys, self.names[0]) if len(self.names) == 1 else keys

    def _typed(self, total: int, table: pa.Table, rows: np.ndarray, bad: Bad) -> Part:
        if table.column_names == ["value"] and len(self.names) == 1:
            table = table.rename_columns(list(self.names))
        missing = [n for n in self.names if n not in table.column_names]
        if missing and len(rows):
            bad.add_all(
                rows.tolist(), "key", f"key: it has no column {missing[0]}, only {', '.join(table.column_names)}"
            )
            return Part(total, table.slice(0, 0), rows[:0], bad)
        table = table.select([n for n in self.names if n in table.column_names] or table.column_names)
        for name in table.column_names:
            column = one_array(table.column(name))
            kind = self._types.get(name, column.type)
            good, column = _cast(column, kind)
            for row, reason in good[1]:
                bad.add(int(rows[row]), "key", f"key: {name}: {reason}")
            if good[1]:
                keep = good[0]
                table, rows = table.take(pa.array(keep, pa.int64())), rows[keep]
            table = table.set_column(table.column_names.index(name), name, column)
            empty = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
            if empty.any():
                bad.add_all(rows[empty].tolist(), "key", f"key: {name} is missing or NULL")
                table, rows = table.filter(pa.array(~empty)), rows[~empty]
        return Part(total, table, rows, bad)


def _cast(column: pa.Array, kind: pa.DataType) -> tuple[tuple[np.ndarray, list[tuple[int, str]]], pa.Array]:
    """((rows that can be cast, rows that cannot and why), the cast values)."""
    pieces: dict[int, pa.Array] = {}

    def fits(low: int, high: int) -> str | None:
        try:
            pieces[low] = column.slice(low, high - low).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            return str(error)
        return None

    good, wrong = finer(len(column), fits)
    rows = np.concatenate([np.arange(low, high) for low, high in good]) if good else np.empty(0, np.int64)
    values = pa.concat_arrays([pieces[low] for low, _ in good]) if good else pa.nulls(0, kind)
    return (rows, wrong), values


def _as_objects(keys: pa.Array, name: str) -> pa.Array:
    """JSON keys that are one plain value as objects with this one member."""
    objects = pc.match_substring_regex(keys, r"^\s*\{")
    if pc.all(objects).as_py() in (True, None):
        return keys
    member = '{"' + name.replace("\\", "\\\\").replace('"', '\\"') + '":'
    wrapped = pc.binary_join_element_wise(member.encode(), keys, b"}", b"")
    return pc.if_else(objects, keys, wrapped)
