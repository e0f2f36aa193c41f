"""SELECTs over base files: columns matched by name, missing ones NULL, renamed ones mapped, types widened by DuckDB.

An explicit file list and an explicit schema: DuckDB opens no footer to bind, and no stray file can slip in. Every scan
may carry the position of a row: FILE_NO (the place of its file in the list given) and ROW_NO (its place in the file).
Partition columns that are not stored (hudi-format 3.8) come from the partition path, and so do stored ones where the
path surely says the same (`partition_values`).
"""

from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa

from lakesql.errors import FormatError
from lakesql.format.avro import META_COLUMNS
from lakesql.format.files import BaseFile
from lakesql.table.evolution import Evolution
from lakesql.table.keys import NULL_PARTITION
from lakesql.table.lists import list_sql
from lakesql.table.names import duckdb_type, literal, quote
from lakesql.table.partition_values import from_paths
from lakesql.table.state import TableState

FILE_NO, ROW_NO = "__lakesql_file_no", "__lakesql_row_no"
"""Names that no column of a table has."""

_VIRTUAL = ("file_index", "file_row_number", "filename")  # of read_parquet; a column of the name would hide them


def scan_sql(
    state: TableState,
    files: Sequence[BaseFile],
    schema: pa.Schema,
    columns: Sequence[str],
    evolved: Evolution | None = None,
    positions: bool = False,
    more: Sequence[str] = (),
) -> str:
    """SELECT of `columns` (names of `schema`) over the files, with FILE_NO and ROW_NO in front on request.

    `more`: paths of further files, which have the columns of `schema`, read in the same scan; see `takes_more`.
    """
    groups: dict[tuple[tuple[tuple[str, str], ...] | str, bool], list[int]] = {}
    dropped = [c for c in state.config.partition_fields if c in columns] if state.config.drop_partition_columns else []
    told: Sequence[bool] = ()
    by_path: dict[str, str] = {}
    if not dropped and evolved is None:
        told, by_path = from_paths(state, schema, columns, files)
    for index, file in enumerate(files):
        names = tuple(sorted(evolved.names_at(file.instant).items())) if evolved else ()
        groups.setdefault((file.partition if dropped else names, bool(by_path) and told[index]), []).append(index)
    if more:
        groups.setdefault(((), False), [])
    selects = []
    for (key, known), indexes in groups.items():
        chosen = [files[i] for i in indexes]
        renames = dict(key) if isinstance(key, tuple) else {}
        constants = by_path if known else {}
        if dropped:
            constants = _partition_values(state, chosen[0].partition, schema, dropped)
        state.storage.expect([f.path for f in chosen])
        paths = [*(state.storage.data_path(f.path) for f in chosen), *(() if known else more)]
        selects.append(
            _one_scan(state, paths, indexes, schema, columns, renames if evolved else None, constants, positions)
        )
    return " UNION ALL ".join(selects) if selects else empty_sql(schema, columns, positions)


def takes_more(state: TableState, evolved: Evolution | None) -> bool:
    """Whether base files hold the columns of the schema just as files of ours do, so that one scan can read both.

    A scan more costs a statement a millisecond or two before it begins, twice for a relation.
    """
    return state.config.meta_fields and not state.config.drop_partition_columns and evolved is None


def empty_sql(schema: pa.Schema, columns: Sequence[str], positions: bool = False) -> str:
    """A SELECT with the right columns and no rows."""
    fields = [f"0 AS {FILE_NO}", f"0 AS {ROW_NO}"] if positions else []
    fields += [f"CAST(NULL AS {duckdb_type(schema.field(c).type, c)}) AS {quote(c)}" for c in columns]
    return f"SELECT {', '.join(fields) or '0'} WHERE false"


def parquet_sql(
    paths: Sequence[str], schema: pa.Schema, columns: Sequence[str], renames: dict[str, str] | None = None
) -> str:
    """The `read_parquet` call over files given by their paths; columns of `schema` under their own names.

    Columns with the name of a virtual one are called by `_inner`.
    """
    stored = {name: old for old, name in (renames or {}).items()}
    entries = []
    for number, name in enumerate(columns):
        old = name if renames is None else stored.get(name, f"__lakesql_absent_{number}")
        kind = duckdb_type(schema.field(name).type, name)
        entries.append(f"{literal(old)}: {{name: {literal(_inner(name))}, type: {literal(kind)}, default_value: NULL}}")
    return f"read_parquet({list_sql(paths)}, hive_partitioning=false, binary_as_string=false, schema=MAP{{{', '.join(entries)}}})"


def select_sql(paths: Sequence[str], schema: pa.Schema, columns: Sequence[str]) -> str:
    """SELECT of `columns` over files given by their paths, under their own names whatever these are."""
    fields = ", ".join(f"{quote(_inner(c))} AS {quote(c)}" for c in columns)
    return f"SELECT {fields or '1'} FROM {parquet_sql(paths, schema, columns)}"


def _inner(name: str) -> str:
    return f"__lakesql_{name}" if name.lower() in _VIRTUAL else name


def _one_scan(
    state: TableState,
    paths: Sequence[str],
    indexes: Sequence[int],
    schema: pa.Schema,
    columns: Sequence[str],
    renames: dict[str, str] | None,
    constants: dict[str, str],
    positions: bool,
) -> str:
    stored = [c for c in columns if c not in constants and (state.config.meta_fields or c not in META_COLUMNS)]
    absent = [c for c in columns if c not in constants and c not in stored]
    probe = stored or [next(c for c in schema.names if c not in constants and c not in absent)]
    source = parquet_sql(paths, schema, probe, renames)
    fields = []
    if positions:
        contiguous = list(indexes) == list(range(len(indexes)))
        index = "file_index::INTEGER" if contiguous else f"({list(indexes)}::INTEGER[])[file_index::BIGINT + 1]"
        fields += [f"{index} AS {FILE_NO}", f"file_row_number AS {ROW_NO}"]
    for column in columns:
        kind = duckdb_type(schema.field(column).type, column)
        if column in constants:
            fields.append(f"{constants[column]} AS {quote(column)}")
        elif column in absent:
            fields.append(f"CAST(NULL AS {kind}) AS {quote(column)}")
        else:
            inner = _inner(column)
            fields.append(quote(column) if inner == column else f"{quote(inner)} AS {quote(column)}")
    return f"SELECT {', '.join(fields) or '1'} FROM {source}"


def _partition_values(state: TableState, partition: str, schema: pa.Schema, dropped: Sequence[str]) -> dict[str, str]:
    """SQL constants of the partition columns that the files of a partition do not hold."""
    fields = state.config.partition_fields
    segments = partition.split("/")
    if len(segments) != len(fields):
        raise FormatError(
            f"{state.path}/{partition}: the path has {len(segments)} levels for the partition columns {', '.join(fields)}. "
            "The partition columns are not stored in the files and cannot be rebuilt from this path."
        )
    values = {}
    for field, segment in zip(fields, segments, strict=True):
        text = segment.removeprefix(f"{field}=") if state.config.hive_style else segment
        if field in dropped:
            null = text == NULL_PARTITION
            value = "NULL" if null else literal(unquote(text) if state.config.url_encode else text)
            values[field] = f"CAST({value} AS {duckdb_type(schema.field(field).type, field)})"
    return values
