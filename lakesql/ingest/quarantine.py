"""Records that could not be decoded, kept as rows: Parquet files in `<table>_quarantine` (kafka-ingestion 4.6).

A commit names the files that belong to it in its state; readers take no others. They are written whole, under the
table's lock and before the commit, and named after the ingestion and its range of offsets, so a run that is repeated
writes the same names. What a dead run left, named by no commit, the next commit of the ingestion removes. A commit may
also release files of earlier ones, whose records it brings as rows or in files of its own (`requeue`): they stay where
they are, for the case that this commit is undone, and count no more.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.errors import FormatError
from lakesql.format.timeline import instant_millis
from lakesql.ingest.model import BAD, State, TopicPartition
from lakesql.ingest.state import all_states, stored_in
from lakesql.storage import Storage, open_storage
from lakesql.table.state import TableState, load_head
from lakesql.write.carried import INGESTIONS, Found, active

ROWS_PER_FILE = 100_000
BYTES_PER_FILE = 32 << 20
_ZONES_MS = 86_400_000
"""Instants may be of any time zone."""


def _stored_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


STORED = pa.schema([*(pa.field(f.name, _stored_type(f.type)) for f in BAD), pa.field("run", pa.string())])
"""Columns of the files."""


def folder_of(table_path: str) -> str:
    return f"{table_path.rstrip('/')}_quarantine"


def slug(ingestion: str) -> str:
    """A file name that begins like the ingestion's name and is no other's."""
    digest = hashlib.sha256(ingestion.encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', ingestion)[:40]}-{digest}"


def name_of(ingestion: str, low: Mapping[TopicPartition, int], high: Mapping[TopicPartition, int]) -> str:
    """The name of the files of a commit that moves the offsets from `low` to `high`, without number and ending."""
    moved = sorted((*at, low.get(at, -1), offset) for at, offset in high.items() if low.get(at) != offset)
    return f"{slug(ingestion)}-{hashlib.sha256(json.dumps(moved).encode()).hexdigest()[:20]}"


def name_again(ingestion: str, released: Iterable[str]) -> str:
    """The same of a commit that brings what is still bad of these files."""
    return f"{slug(ingestion)}-{hashlib.sha256(json.dumps(sorted(released)).encode()).hexdigest()[:20]}"


def write_files(storage: Storage, name: str, tables: Iterable[pa.Table], run: str) -> tuple[str, ...]:
    """Write bad records, given in order; the names of the files. Memory is bounded by one file."""
    names: list[str] = []
    held: list[pa.RecordBatch] = []

    def put() -> None:
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_batches(held, STORED), sink, compression="zstd")
        names.append(f"{name}-{len(names):04d}.parquet")
        storage.put(names[-1], sink.getvalue())
        held.clear()

    for table in tables:
        columns = {f.name: table[f.name].cast(f.type) for f in STORED if f.name != "run"}
        columns["run"] = pa.repeat(pa.scalar(run, pa.string()), table.num_rows)
        for batch in pa.table(columns, STORED).to_batches(ROWS_PER_FILE):
            held.append(batch)
            if sum(b.num_rows for b in held) >= ROWS_PER_FILE or sum(b.nbytes for b in held) >= BYTES_PER_FILE:
                put()
    if held:
        put()
    return tuple(names)


def remove_unnamed(storage: Storage, table: TableState, ingestion: str) -> None:
    """Remove the files of an ingestion that no commit names. The table's lock must be held.

    The archive is read only when a file that the active timeline does not name is as young as that timeline.
    """
    own = re.compile(re.escape(slug(ingestion)) + r"-[0-9a-f]{20}-\d{4}\.parquet")
    there = [info for info in storage.list("")[0] if own.fullmatch(info.path)]
    known = {name for _, extra in active(table) for name in _named_in(extra)}
    start = table.timeline.start
    since_ms = instant_millis(start) - _ZONES_MS if start else 0
    strange = [info.path for info in there if info.path not in known and info.modified_ms >= since_ms]
    if strange:
        known |= {name for _, state in all_states(table) if state.ingestion == ingestion for name in state.quarantine}
    for name in strange:
        if name not in known:
            storage.delete(name)


def _named_in(extra: Mapping[str, str]) -> list[str]:
    text = extra.get(INGESTIONS)
    stored = stored_in(Found(text), "") if text else {}
    return [name for one in stored.values() for name in one.get("quarantine", ())]


def named(table: TableState, ingestion: str | None = None) -> list[str]:
    """The files that completed commits name and none has released since, the oldest first."""
    return held(state for _, state in all_states(table) if ingestion in (None, state.ingestion))


def held(states: Iterable[State]) -> list[str]:
    """The files that are in quarantine after these commits, given in their order."""
    found: dict[str, None] = {}
    for state in states:
        for name in state.released:
            found.pop(name, None)
        found.update(dict.fromkeys(state.quarantine))
    return list(found)


def quarantine_table(table_path: str, ingestion: str | None = None) -> pa.Table:
    """The quarantined records of an ingestion of a table, or of all (`kafka_quarantine`)."""
    return records(open_storage(folder_of(table_path)), named(load_head(open_storage(table_path)), ingestion))


def records(storage: Storage, names: Iterable[str]) -> pa.Table:
    """The records of these files."""
    return pa.concat_tables([STORED.empty_table(), *(_read(storage, name) for name in names)])


def _read(storage: Storage, name: str) -> pa.Table:
    where = f"{storage.uri}/{name}"
    try:
        found = pq.read_table(io.BytesIO(storage.read(name)), partitioning=None)
    except FileNotFoundError as error:
        raise FormatError(
            f"{where}: a commit names this file of quarantined records, and it is gone. Restore it."
        ) from error
    except pa.ArrowException as error:
        raise FormatError(f"{where}: this file of quarantined records is damaged ({error}). Restore it.") from error
    return found.select(STORED.names).cast(STORED)
