"""Decoded batches on their way into a target: Arrow files outside of it, and the order in which they are read back.

Each thread writes files of its own, one per kind and schema, uncompressed, so that they are read back mapped into
memory and without decoding. A batch is cut into pieces of one partition each; which piece lies where is remembered, so
reading in the order of topic, partition and offset is a matter of picking pieces, and nothing is sorted. Only batches
with many short runs stay whole; then the reader sorts.

A spool of a process that died is recognised by its lock, which the operating system gave back, and removed: by the next
run of the same ingestion, and by any run of the same user on the same host.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import tempfile
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from lakesql.errors import LastingError

SPOOL_DIR = "lakesql.spool.dir"
"""The setting that names the folder of the spools."""
_PREFIX = "lakesql-spool-"
_LOCK = ".lock"
_RUN_ROWS = 200
"""Batches whose runs of one partition are shorter than this on average are not cut."""
_LONG_RUN_ROWS = 2000
"""Batches whose runs are longer than this before sorting are cut as they are."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A record batch in a file. `last`: the largest offset; `mixed`: several partitions or topics."""

    topic: str
    partition: int
    first: int
    last: int
    mixed: bool
    group: int
    file: int
    number: int  # of the record batch within the file
    rows: int


@dataclass(slots=True)
class _File:
    path: Path
    schema: pa.Schema
    writer: pa.RecordBatchFileWriter | None
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """All batches of a kind: one table for each schema; `sorted`: a single one, in the order of its records."""

    tables: tuple[pa.Table, ...]
    schema: pa.Schema | None  # None: no batch has come, not even an empty one
    rows: int
    sorted: bool


@dataclass(slots=True)
class _Kind:
    pieces: list[_Piece] = field(default_factory=list)
    schemas: dict[pa.Schema, int] = field(default_factory=dict)


class Spool:
    """Batches by kind ('rows', 'deletes', 'bad'), each belonging to a work unit."""

    def __init__(self, owner: str, parent: str | None = None) -> None:
        parent = parent or tempfile.gettempdir()
        prefix = f"{_PREFIX}{_short(owner)}-{_short(socket.gethostname())}-"
        _remove_dead(Path(parent), owner)
        self.folder = Path(parent) / f"{prefix}{uuid.uuid4().hex}"
        self._lock_file = _lock_of(self.folder)
        try:
            Path(parent).stat()  # the lock would make it
            _acquire(self._lock_file)  # before there is anything that another run could take for dead
            self.folder.mkdir(mode=0o700)
        except OSError as error:
            raise LastingError(
                f"{parent}: no folder for the records of a run can be made there ({error.strerror}). Set "
                "lakesql.spool.dir to a folder on a disk with room."
            ) from error
        self._guard = threading.Lock()
        self._kinds: dict[str, _Kind] = {}
        self._files: list[_File] = []
        self._open: dict[tuple[int, str, pa.Schema], int] = {}

    def add(self, group: int, kind: str, table: pa.Table) -> None:
        """Keep a batch with the columns _topic, _partition and _offset. One thread at a time per group."""
        given, table = table, _plain(table)
        with self._guard:
            held = self._kinds.setdefault(kind, _Kind())
            held.schemas.setdefault(table.schema, len(held.schemas))
        if not table.num_rows:
            return
        number, file = self._file(kind, table.schema)
        found = []
        try:
            for piece, mixed in _pieces(table, given["_topic"]):
                for batch in piece.combine_chunks().to_batches():
                    found.append(_described(batch, mixed, group, number, file.batches))
                    assert file.writer is not None
                    file.writer.write_batch(batch)
                    file.batches += 1
        except OSError as error:
            raise LastingError(
                f"{self.folder}: the records of the run cannot be kept there ({error.strerror or error}). Make room, or "
                "set lakesql.spool.dir to a folder on another disk. Nothing was committed."
            ) from error
        with self._guard:
            held.pieces.extend(found)

    def forget(self, group: int) -> None:
        """The batches of this unit do not count."""
        with self._guard:
            for kind in self._kinds.values():
                kind.pieces = [piece for piece in kind.pieces if piece.group != group]

    def waiting(self, kind: str) -> Waiting:
        """What was added and not forgotten. Files that are being written are closed: add no more afterwards."""
        with self._guard:
            for file in self._files:
                if file.writer is not None:
                    file.writer.close()
                    file.writer = None
            self._open.clear()
            held = self._kinds.get(kind, _Kind())
            pieces = sorted(held.pieces, key=lambda p: (p.topic, p.partition, p.first, p.last))
        schema = _unified(list(held.schemas))
        readers = {n: pa.ipc.open_file(pa.memory_map(str(self._files[n].path))) for n in {p.file for p in pieces}}
        by_schema: dict[pa.Schema, list[pa.RecordBatch]] = {}
        for piece in pieces:
            batches = by_schema.setdefault(self._files[piece.file].schema, [])
            batches.append(readers[piece.file].get_batch(piece.number))
        tables = tuple(pa.Table.from_batches(batches, own) for own, batches in by_schema.items())
        in_order = len(tables) <= 1 and _in_order(pieces)
        return Waiting(tables, schema, sum(p.rows for p in pieces), in_order)

    def close(self) -> None:
        """Remove the files. Harmless the second time."""
        with self._guard:
            for file in self._files:
                if file.writer is not None:
                    with contextlib.suppress(OSError, pa.ArrowException):
                        file.writer.close()
            self._files.clear()
            self._open.clear()
            self._kinds.clear()
            _remove(self.folder, self._lock_file)

    def _file(self, kind: str, schema: pa.Schema) -> tuple[int, _File]:
        key = (threading.get_ident(), kind, schema)
        with self._guard:
            number = self._open.get(key)
            if number is None:
                number = self._open[key] = len(self._files)
                path = self.folder / f"{number:06d}.arrow"
                self._files.append(_File(path, schema, pa.ipc.new_file(str(path), schema)))
            return number, self._files[number]


def _remove_dead(parent: Path, owner: str) -> None:
    """Remove the spools of this user whose processes are gone: of the same owner, and of others on this host.

    Another host's are left alone, since on a shared folder its locks may not be seen.
    """
    mine, here = _short(owner), _short(socket.gethostname())
    for path in parent.glob(f"{_PREFIX}*{_LOCK}"):
        by, _, rest = path.name.removeprefix(_PREFIX).partition("-")
        if by != mine and not rest.startswith(f"{here}-"):
            continue
        folder = path.with_name(path.name.removesuffix(_LOCK))
        lock = _lock_of(folder)
        with contextlib.suppress(Timeout, OSError):
            if path.stat().st_uid != _user():
                continue
            lock.acquire(timeout=0)
            _remove(folder, lock)


def _acquire(lock: FileLock) -> None:
    """Take the lock of a new spool. Who clears up may have seen its file before it was locked, and removed it: again."""
    for _ in range(100):
        lock.acquire(timeout=10)
        if Path(lock.lock_file).exists():
            return
        lock.release()
    raise OSError(f"{lock.lock_file} is removed again and again")


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # Windows says 0 for every file


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _lock_of(folder: Path) -> FileLock:
    return FileLock(f"{folder}{_LOCK}", thread_local=False)


def _remove(folder: Path, lock: FileLock) -> None:
    if lock.is_locked:
        shutil.rmtree(folder, ignore_errors=True)
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _plain(table: pa.Table) -> pa.Table:
    """Without dictionaries, of which a file could hold only one per column, and without metadata."""
    for number, one in enumerate(table.schema):
        if pa.types.is_dictionary(one.type):
            table = table.set_column(number, one.name, table.column(number).cast(one.type.value_type))
    return table.replace_schema_metadata(None)


def _pieces(table: pa.Table, topics: pa.ChunkedArray) -> list[tuple[pa.Table, bool]]:
    """(rows in the order of their offsets, whether they are of several partitions). `topics`: perhaps with a dictionary."""
    partition, offset = table["_partition"].to_numpy(), table["_offset"].to_numpy()
    names, codes = _coded(topics)
    edge = (partition[1:] != partition[:-1]) | (codes[1:] != codes[:-1])
    edges = np.flatnonzero(edge) + 1
    if (edge | (offset[1:] > offset[:-1])).all() and len(edges) * _LONG_RUN_ROWS <= len(offset):
        return _cut(table, edges)  # as they came, which costs no copy
    rank = np.argsort(np.argsort(np.array(names)))[codes]
    order = np.lexsort((offset, partition, rank))
    table = table.take(order)
    partition, rank = partition[order], rank[order]
    edges = np.flatnonzero((partition[1:] != partition[:-1]) | (rank[1:] != rank[:-1])) + 1
    if len(edges) * _RUN_ROWS > len(order):
        return [(table, True)]
    return _cut(table, edges)


def _coded(topics: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The topics that there are, and the number of that of each row."""
    whole = topics.dictionary_encode().unify_dictionaries()  # to encode what is encoded costs nothing
    codes = [chunk.indices.to_numpy() for chunk in whole.chunks]
    return whole.chunk(0).dictionary.to_pylist(), np.concatenate(codes) if len(codes) > 1 else codes[0]


def _cut(table: pa.Table, edges: np.ndarray) -> list[tuple[pa.Table, bool]]:
    bounds = [0, *edges.tolist(), table.num_rows]
    return [(table.slice(a, b - a), False) for a, b in pairwise(bounds)]


def _described(batch: pa.RecordBatch, mixed: bool, group: int, file: int, number: int) -> _Piece:
    topic, partition = batch["_topic"][0].as_py(), batch["_partition"][0].as_py()
    first, last = batch["_offset"][0].as_py(), batch["_offset"][-1].as_py()
    return _Piece(topic, partition, first, last, mixed, group, file, number, batch.num_rows)


def _in_order(pieces: Sequence[_Piece]) -> bool:
    if any(piece.mixed for piece in pieces) and len(pieces) > 1:
        return False
    return all((a.topic, a.partition) != (b.topic, b.partition) or a.last < b.first for a, b in pairwise(pieces))


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema | None:
    """One schema for all batches: columns that came later are added, numbers widened."""
    if not schemas:
        return None
    try:
        return pa.unify_schemas(sorted(schemas, key=str), promote_options="permissive")
    except pa.ArrowException as error:
        raise LastingError(
            f"the records of this run do not agree about their columns: {error}. Give the columns or a schema in the "
            "format, or bring them to one type with AS SELECT over FORMAT STRING. Nothing was committed."
        ) from error
