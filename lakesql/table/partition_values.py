"""Partition columns read from the paths of files, so that a filter on them leaves out files without opening any.

DuckDB works out a condition on `filename` from the list of files alone. So where a partition column is an expression over
`filename`, `WHERE day = ...` opens the files of one partition, not the footers of all. With Hudi a column and the path may
differ: a global index told to leave rows where they are (`hoodie.simple.index.update.partition.path=false`) keeps a row
in its old partition with the new value. What a row says is what counts, hence the path is used only for base files that
are known to hold nothing else (`told`):

- a commit of lakesql says so of all its files (TOLD in its extraMetadata): its rows went where their values belong, and
  those taken over from older files were in such files;
- an insert of another engine into a new file group, whose path it made of the rows' values.

All others, files of partitions whose path does not tell the value exactly (NULL, escaped characters, other types than
texts, integers, dates), and tables of few files are read as they are. Not here: which rows a write puts where.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date

import pyarrow as pa

from lakesql.errors import Unsupported
from lakesql.format.files import BaseFile, FileSlice
from lakesql.format.metadata import CommitMetadata, TableConfig
from lakesql.table.keys import NULL_PARTITION, generator, path_texts
from lakesql.table.names import duckdb_type
from lakesql.table.state import TableState

TOLD, BY_PATH = "lakesql.partition.values", "path"
"""Key and value in extraMetadata: the partition columns of every row in this commit's files are those of its path."""

FILES_MIN = 32
"""With fewer files their footers cost less than a second scan."""

_INSERTS = frozenset(("INSERT", "BULK_INSERT", "INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"))
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SPECIAL = re.compile(r"[*?\[\]{}\\%]")  # of file patterns, and of escapes


def told(state: TableState, files: Sequence[BaseFile]) -> list[bool]:
    """For each base file whether its path tells the partition columns of all its rows."""
    if not _plain(state.config):
        return [False] * len(files)
    known = _told_by(state, {f.instant for f in files})
    return [(by is True) or (by is not False and f.file_id in by) for f in files for by in (known[f.instant],)]


def slices_told(state: TableState, slices: Sequence[FileSlice]) -> list[bool]:
    """For each file slice whether its path tells the partition columns of all rows of its base file and logs.

    A log of version 6 does not name its commit.
    """
    if not _plain(state.config):
        return [False] * len(slices)
    bases = told(state, [s.base for s in slices if s.base is not None])
    base_of = iter(bases)
    based = [next(base_of) if s.base is not None else True for s in slices]
    known = _told_by(state, {log.instant for s in slices for log in s.logs}) if state.config.version >= 8 else {}
    return [
        base and all(known.get(log.instant) is True for log in s.logs) for s, base in zip(slices, based, strict=True)
    ]


def _plain(config: TableConfig) -> bool:
    try:
        return bool(config.partition_fields) and generator(config) in ("SIMPLE", "COMPLEX") and not config.slash_dates
    except Unsupported:
        return False


def _told_by(state: TableState, instants: Collection[str]) -> Mapping[str, bool | frozenset[str]]:
    """What commits say of their files: all, none, or those of these file groups."""
    known: dict[str, bool | frozenset[str]] = state.kept("partition values told", dict)
    missing = set(instants) - known.keys()
    if missing:
        writes = {i.requested: i for i in state.timeline.completed_writes()}
        if missing - writes.keys():
            writes |= {i.requested: i for i in state.history.completed_writes()}
        known.update((name, _told_of(state.commit(writes[name])) if name in writes else False) for name in missing)
    return known


def _told_of(commit: CommitMetadata) -> bool | frozenset[str]:
    if commit.extra.get(TOLD) == BY_PATH:
        return True
    if (commit.operation or "").upper() not in _INSERTS:
        return False
    stats = [s for stats in commit.partition_stats.values() for s in stats]
    return frozenset(s.file_id for s in stats if s.file_id and s.prev_commit in (None, "", "null"))


def to_tell(state: TableState, rewritten: Iterable[tuple[str, str]], in_place: bool) -> Mapping[str, str]:
    """What a commit says for later `told`: TOLD, or nothing.

    `rewritten`: (partition, file id) of the file groups whose stored rows its new files take over; `in_place`: the
    rows that it brings lie where their values belong.
    """
    if not in_place or not _plain(state.config):
        return {}
    groups = set(rewritten)
    slices = [s for s in state.slices() if s.group in groups] if groups else []
    return {TOLD: BY_PATH} if all(slices_told(state, slices)) else {}


def from_paths(
    state: TableState, schema: pa.Schema, columns: Sequence[str], files: Sequence[BaseFile]
) -> tuple[list[bool], dict[str, str]]:
    """(for each file whether the expressions hold for it, partition column -> SQL over `filename`)."""
    fields = [f for f in state.config.partition_fields if f in columns]
    if not fields or len(files) < FILES_MIN or not all(map(_kind, (schema.field(f).type for f in fields))):
        return [False] * len(files), {}
    partitions = {f.partition for f in files}
    if len(partitions) < 2:
        return [False] * len(files), {}
    exact = {p for p in partitions if _is_exact(state.config, schema, p)}
    holds = [t and f.partition in exact for f, t in zip(files, told(state, files), strict=True)]
    if not any(holds):
        return holds, {}
    before = len(state.storage.data_path("x/y").split("/")) - 2
    found = {}
    for place, field in enumerate(state.config.partition_fields):
        if field in fields:
            text = f"split_part(filename, '/', {before + place + 1})"
            if state.config.hive_style:
                text = f"substr({text}, {len(field) + 2})"
            kind = schema.field(field).type
            found[field] = text if _kind(kind) is str else f"CAST({text} AS {duckdb_type(kind, field)})"
    return holds, found


def _kind(arrow: pa.DataType) -> type | None:
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        return str
    if pa.types.is_signed_integer(arrow):
        return int
    return date if pa.types.is_date32(arrow) else None


def _is_exact(config: TableConfig, schema: pa.Schema, partition: str) -> bool:
    """Whether the path of a partition is the text of its values and nothing else."""
    fields, texts = config.partition_fields, path_texts(config, partition)
    if texts is None or partition.count("/") >= len(fields) or _SPECIAL.search(partition):
        return False
    return all(
        text not in ("", NULL_PARTITION) and field in schema.names and _spells(_kind(schema.field(field).type), text)
        for field, text in zip(fields, texts, strict=True)
    )


def _spells(kind: type | None, text: str) -> bool:
    """Whether a text is the one spelling of a value of a kind."""
    if kind is int:
        return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and str(int(text)) == text
    if kind is date:
        return _DATE.fullmatch(text) is not None and _is_date(text)
    return kind is str


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
