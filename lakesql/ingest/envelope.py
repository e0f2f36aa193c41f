"""Envelopes of change data capture: Debezium's, flattened as Hudi's sources do (kafka-ingestion 3.2), and DMS's.

    debezium   before, after, op, ts_ms, source: the row is `after`, of a delete (op d) `before`. Columns in front of it:
               _change_operation_type, _upstream_event_processed_ts_ms, db_shard_source_partition, _event_origin_ts_ms,
               and of Postgres db_schema_source_partition, _event_tx_id, _event_lsn, _event_xmin, of MySQL _event_bin_file, _event_pos, _event_row and
               _event_seq. Tables with the payload class of that database merge by them and delete rows of op d.
    dms        data, metadata: the row is `data`, with a column Op in front of it (I, U, D); rows that have Op pass

The marker of unchanged TOAST columns stays in the row: the table's merge rule keeps the stored value. A truncate (op t),
a message (op m) or a control record has no row and is a bad record: nothing is removed silently. Works on decoded
columns, so JSON and Avro are alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import JobError, LastingError
from lakesql.ingest.decode_json import Envelope
from lakesql.ingest.decoded import Part, one_array
from lakesql.ingest.json_types import Column, scalar, struct_of

ENVELOPE = "lakesql.envelope"
CONNECTOR = "lakesql.debezium.connector"
KINDS = ("none", "debezium", "dms")

_SHARD = {"name": "db_shard_source_partition"}
_TIME = {"ts_ms": "_event_origin_ts_ms"}
_POSTGRES = {
    **_SHARD,
    "schema": "db_schema_source_partition",
    **_TIME,
    "txId": "_event_tx_id",
    "lsn": "_event_lsn",
    "xmin": "_event_xmin",
}
_MYSQL = _SHARD | _TIME | {"file": "_event_bin_file", "pos": "_event_pos", "row": "_event_row"}
_OTHER = _SHARD | _TIME
_TEXTS = ("name", "schema", "file")
_SEQUENCE = "_event_seq"
_OPERATION, _PROCESSED = "_change_operation_type", "_upstream_event_processed_ts_ms"
ADDED = frozenset({_OPERATION, _PROCESSED, _SEQUENCE, *_POSTGRES.values(), *_MYSQL.values(), "Op"})
"""Columns that an envelope adds to the row."""

_OPERATIONS = {"insert": "I", "load": "I", "update": "U", "delete": "D"}

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Unwrapping:
    """One kind of envelope: `json` for the JSON decoder, `flatten` for decoded columns."""

    json: Envelope
    flatten: Callable[[Part], Part]


def unwrapping(kind: str, connector: str | None, hint: pa.Schema | None) -> Unwrapping | None:
    """The envelope of this kind; None for 'none'. `hint`: columns of the target, which decide what is added."""
    kind = kind.lower()
    if kind not in KINDS:
        raise JobError(f"{ENVELOPE}={kind}: use one of {', '.join(KINDS)}.")
    connector = (connector or "").lower() or None
    if connector not in (None, "postgresql", "postgres", "mysql", "mariadb", "other"):
        raise JobError(f"{CONNECTOR}={connector}: use postgresql, mysql or other.")
    if kind == "none":
        return None
    wanted = None if hint is None or not len(hint) else frozenset(hint.names)
    if connector is None and wanted:
        connector = "postgresql" if "_event_lsn" in wanted else "mysql" if _SEQUENCE in wanted else None
    if kind == "dms":
        return Unwrapping(Envelope(_dms_document, ("$.data",), bare=True), _dms)
    return Unwrapping(
        Envelope(lambda columns, peek: _debezium_document(columns, connector or peek("$.source.connector")),
                 ("$.after", "$.before")),
        lambda part: _debezium(part, connector, wanted),
    )  # fmt: skip


def row_columns(hint: pa.Schema | None) -> pa.Schema | None:
    """The columns of the target that the row itself brings."""
    return None if hint is None else pa.schema([f for f in hint if f.name not in ADDED])


# ---------------------------------------------------------------- Debezium
def _source_fields(connector: str | None) -> dict[str, str]:
    if connector in ("postgresql", "postgres"):
        return _POSTGRES
    return _MYSQL if connector in ("mysql", "mariadb") else _OTHER


def _debezium_document(columns: Sequence[Column], connector: str | None) -> list[Column]:
    text, number = scalar("VARCHAR"), scalar("BIGINT")
    source = [Column(n, text if n in _TEXTS else number) for n in _source_fields(connector)]
    row = struct_of(columns)
    return [
        Column("op", text),
        Column("ts_ms", number),
        Column("source", struct_of(source)),
        Column("before", row),
        Column("after", row),
    ]


def _debezium(part: Part, connector: str | None, wanted: frozenset[str] | None) -> Part:
    table = part.columns
    missing = [n for n in ("op", "after") if n not in table.column_names]
    if missing and not part.rows.size:
        return part
    if missing:
        raise LastingError(
            f"{ENVELOPE}=debezium: the records have no field {missing[0]!r}, only {', '.join(table.column_names)[:200]}. "
            "Set the envelope to none when the connector unwraps the records itself."
        )
    rows = table.num_rows
    after = _column(table, "after")
    before = _column(table, "before") if "before" in table.column_names else pa.nulls(rows, after.type)
    source = _column(table, "source") if "source" in table.column_names else None
    op = _column(table, "op").cast(pa.string())
    deleted = _mask(pc.equal(op, "d"))
    row = after
    if deleted.any():
        before = before if before.type == after.type else before.cast(after.type)
        pick = np.where(deleted, np.arange(rows), np.arange(rows) + rows)
        row = pa.concat_arrays([before, after]).take(pa.array(pick))
    known = _mask(pc.is_in(op, value_set=pa.array(["c", "u", "r", "d"])))
    reasons = {
        "op": ~known,
        "row": known & ~np.asarray(row.is_valid().to_numpy(zero_copy_only=False)),
    }
    added = _added(table, op, source, connector)
    position = "_event_lsn" if "_event_lsn" in added else _SEQUENCE if _SEQUENCE in added else None
    if position is not None:
        there = np.asarray(added[position].is_valid().to_numpy(zero_copy_only=False))
        reasons["position"] = known & ~reasons["row"] & ~there
    bad = np.logical_or.reduce(list(reasons.values()))
    for i in np.flatnonzero(bad).tolist():
        name = next(n for n, mask in reasons.items() if mask[i])
        part.bad.add(int(part.rows[i]), "decode", _reason(name, op[i].as_py(), position))
    names = [n for n in added if wanted is None or n in wanted]
    columns = {n: added[n] for n in names if n != _SEQUENCE}
    columns |= {field.name: child for field, child in zip(row.type, row.flatten(), strict=True)}
    if _SEQUENCE in names:
        columns[_SEQUENCE] = added[_SEQUENCE]
    if len(columns) < len(names) + row.type.num_fields:
        raise LastingError(
            f"{ENVELOPE}=debezium: the table of the source has a column that the envelope adds too: "
            f"{', '.join(sorted(set(names) & {f.name for f in row.type}))}. Rename it in the connector."
        )
    return _kept(part, pa.table(columns), bad)


def _added(table: pa.Table, op: pa.Array, source: pa.Array | None, connector: str | None) -> dict[str, pa.Array]:
    """The columns in front of the row by their names."""
    out = {_OPERATION: op}
    if "ts_ms" in table.column_names:
        out[_PROCESSED] = _column(table, "ts_ms").cast(pa.int64())
    if source is None or not pa.types.is_struct(source.type):
        return out
    fields = {f.name: child for f, child in zip(source.type, source.flatten(), strict=True)}
    specific = _source_fields(connector)
    if connector is None:
        specific = _POSTGRES if "lsn" in fields else _MYSQL if {"file", "pos"} <= set(fields) else _OTHER
    out |= {name: fields[n] for n, name in specific.items() if n in fields}
    if specific is _MYSQL and {"file", "pos"} <= set(fields):
        number = pc.replace_substring_regex(fields["file"].cast(pa.string()), r"^.*\.", "")
        number = pc.if_else(pc.equal(number, ""), None, number)
        out[_SEQUENCE] = pc.binary_join_element_wise(number, fields["pos"].cast(pa.string()), ".")
    return out


def _reason(name: str, op: str | None, position: str | None) -> str:
    if name == "op":
        known = {"t": "a truncate is not applied", "m": "a message of the database has no row"}
        return known.get(op or "", f"op {op!r} is none of c, u, r, d; is this record in Debezium's envelope?")
    if name == "row":
        image = "before" if op == "d" else "after"
        return f"op {op!r} without an image {image!r}; the table may need REPLICA IDENTITY FULL"
    return f"the source gives no position of the change, so {position} cannot be made"


# ---------------------------------------------------------------- DMS
def _dms_document(columns: Sequence[Column], peek: Callable[[str], str | None]) -> list[Column]:
    text = scalar("VARCHAR")
    if peek("$.metadata") is None:  # flat records; the columns may be those of a table, without what is added
        lacks = peek("$.Op") is not None and all(c.name != "Op" for c in columns)
        return [*([Column("Op", text)] if lacks else []), *columns]
    metadata = struct_of([Column("operation", text), Column("record-type", text)])
    return [Column("data", struct_of([c for c in columns if c.name != "Op"])), Column("metadata", metadata)]


def _dms(part: Part) -> Part:
    table = part.columns
    if "metadata" not in table.column_names or "data" not in table.column_names:
        if part.rows.size and "Op" not in table.column_names:
            raise LastingError(
                f"{ENVELOPE}=dms: the records have neither data and metadata nor a column Op, only "
                f"{', '.join(table.column_names)[:200]}. Set the envelope to none."
            )
        return part
    row, metadata = _column(table, "data"), _column(table, "metadata")
    fields = {f.name: child for f, child in zip(metadata.type, metadata.flatten(), strict=True)}
    operation = pc.utf8_lower(fields["operation"].cast(pa.string()))
    names = pa.array(list(_OPERATIONS))
    index = pc.index_in(operation, value_set=names)
    op = pa.array(list(_OPERATIONS.values())).take(index)
    there = np.asarray(row.is_valid().to_numpy(zero_copy_only=False))
    bad = ~there | ~np.asarray(op.is_valid().to_numpy(zero_copy_only=False))
    for i in np.flatnonzero(bad).tolist():
        found = operation[i].as_py()
        part.bad.add(int(part.rows[i]), "decode", f"a control record of DMS ({found}) has no row and is not applied")
    columns = {"Op": op} | {f.name: child for f, child in zip(row.type, row.flatten(), strict=True)}
    return _kept(part, pa.table(columns), bad)


# ---------------------------------------------------------------- small things
def _column(table: pa.Table, name: str) -> pa.Array:
    return one_array(table.column(name))


def _mask(array: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(array, False).to_numpy(zero_copy_only=False), np.bool_)


def _kept(part: Part, table: pa.Table, bad: Mask) -> Part:
    if not bad.any():
        return Part(part.total, table, part.rows, part.bad)
    return Part(part.total, table.filter(pa.array(~bad)), part.rows[~bad], part.bad)
