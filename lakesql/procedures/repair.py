"""Procedures that mend a table: partition metafiles, keys that are there twice, hoodie.properties.

Each shows what it would do unless `dry_run => false` is given, where Hudi has that parameter. Everything that changes a
table holds its lock; rows change by a commit (an insert overwrite of the partition), never inside of a file.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.errors import LakeError, SQLError, TableError
from lakesql.format.metadata import TableConfig, format_properties, parse_properties, table_checksum
from lakesql.format.timeline import new_instant_time
from lakesql.procedures.changing import changed
from lakesql.procedures.declare import PATH, REQUIRED, TABLE, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.shape import counted
from lakesql.storage import Sink, Storage, open_storage
from lakesql.table import read
from lakesql.table.names import literal, quote
from lakesql.table.state import PROPERTIES, TableState
from lakesql.write import WriteResult, write
from lakesql.write.retry import locked

METAFILE = ".hoodie_partition_metadata"
_BASE_METAFILE = METAFILE + ".parquet"
_USE_BASE = "hoodie.partition.metafile.use.base.format"
_FIXED = ("hoodie.table.version", "hoodie.timeline.layout.version")
_CHECKSUM = "hoodie.table.checksum"
_DEDUPE_TYPES = ("insert_type", "update_type", "upsert_type")
_DRY_RUN = Parameter("dry_run", "BOOLEAN", True, "only show what would be done")


def _changes(arguments: Mapping[str, Any]) -> bool:
    return not arguments["dry_run"]


# ---------------------------------------------------------------- partition metafiles
def has_metafile(state: TableState, partition: str) -> bool:
    """Whether other readers see the partition when they list folders."""
    return any(state.storage.stat(_in(partition, name)) is not None for name in (METAFILE, _BASE_METAFILE))


def _in(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def _partitions(state: TableState) -> list[str]:
    return sorted({f.partition for f in state.files})


def _made_by(state: TableState) -> str:
    """The instant that a new metafile names."""
    writes = state.timeline.completed_writes()
    return max(i.requested for i in writes) if writes else state.timeline.newest_time


def _depth(partition: str) -> int:
    return len(partition.split("/")) if partition else 0


def _add_metafiles(call: Call) -> Rows:
    if call["dry_run"]:
        return _metafile_rows(call.state(), False)
    with locked(call.storage, call.settings):
        return _metafile_rows(call.state(), True)


def _metafile_rows(state: TableState, mend: bool) -> list[dict[str, str]]:
    rows = []
    for partition in _partitions(state):
        present = has_metafile(state, partition)
        if mend and not present:
            text = f"#partition metadata\ncommitTime={_made_by(state)}\npartitionDepth={_depth(partition)}\n"
            state.storage.put_if_absent(_in(partition, METAFILE), text.encode())
        rows.append(
            {
                "partition_path": partition,
                "metadata_is_present": "Yes" if present else "No",
                "action": "Repaired" if mend and not present else "None",
            }
        )
    return rows


def _migrate(call: Call) -> Rows:
    if call["dry_run"]:
        return [_migration_row(call.state(), p, "MIGRATE", "NONE") for p in _partitions(call.state())]
    with locked(call.storage, call.settings):
        state = call.state()
        rows = [_migration_row(state, partition, "MIGRATED", "MIGRATED") for partition in _partitions(state)]
        for partition in _partitions(state):
            _migrate_one(state, partition)
        _put_properties(state.storage, {**state.config.properties, _USE_BASE: "true"}, call.clock())
    return rows


def _migration_row(state: TableState, partition: str, with_text: str, without: str) -> dict[str, str]:
    text = state.storage.stat(_in(partition, METAFILE)) is not None
    base = state.storage.stat(_in(partition, _BASE_METAFILE)) is not None
    return {
        "partition_path": partition,
        "text_metafile_present": str(text).lower(),
        "base_metafile_present": str(base).lower(),
        "action": with_text if text else without,
    }


def _migrate_one(state: TableState, partition: str) -> None:
    """The same two values in the footer of a Parquet file without rows; the text file goes last."""
    path = _in(partition, _BASE_METAFILE)
    if state.storage.stat(path) is None:
        values = {"commitTime": _made_by(state), "partitionDepth": str(_depth(partition))}
        if state.storage.stat(_in(partition, METAFILE)) is not None:
            values |= parse_properties(state.storage.read(_in(partition, METAFILE)).decode("latin-1"))
        schema = pa.schema([("c", pa.string())]).with_metadata(values)
        buffer = pa.BufferOutputStream()
        pq.write_table(schema.empty_table(), buffer)
        state.storage.put_if_absent(path, buffer.getvalue().to_pybytes())
    state.storage.delete(_in(partition, METAFILE))


# ---------------------------------------------------------------- duplicates
def _deduplicate(call: Call) -> Rows:
    if call["dedupe_type"] not in _DEDUPE_TYPES:
        raise SQLError(
            f"CALL repair_deduplicate: dedupe_type => {call['dedupe_type']!r}; use one of {', '.join(_DEDUPE_TYPES)}."
        )
    state, partition = call.state(), call["duplicated_partition_path"].strip("/")
    _require_told_apart(state, partition)
    keys, copies, kept = _copies(call, state, partition)
    if copies and call["repaired_output_path"]:
        _export(call, kept, open_storage(call["repaired_output_path"]).sink("repaired.parquet"))
    where = f"in partition {partition}" if partition else f"in {state.name}"
    what = f"{counted(copies, 'copy', 'copies')} of {counted(keys, 'key', 'keys')} {where}"
    if not copies:
        yield {"result": f"No key is there twice {where}."}
    elif call["dry_run"]:
        yield {"result": f"{what} would be removed; dry_run => false removes them."}
    else:
        found = changed(call, call.storage, lambda now, settings: _deduplicated(call, now, settings, partition))
        yield {"result": f"{found.action} {found.instant} removed {what}."}


def _export(call: Call, rows: str, sink: Sink) -> None:
    try:
        if isinstance(sink.target, str):
            call.con.execute(f"COPY ({rows}) TO {literal(sink.target)} (FORMAT parquet)")
        else:
            with (
                call.con.sql(rows).to_arrow_reader() as reader,
                pq.ParquetWriter(sink.target, reader.schema, compression="snappy") as writer,
            ):
                for batch in reader:
                    writer.write_batch(batch)
        sink.close()
    finally:
        sink.abort()


def _deduplicated(call: Call, state: TableState, settings: Mapping[str, str], partition: str) -> WriteResult:
    _, _, kept = _copies(call, state, partition)
    names = ", ".join(map(quote, ("_hoodie_record_key", "_hoodie_partition_path", *state.schema.names)))
    return write(
        call.con, state, f"SELECT {names} FROM ({kept})", operation="insert_overwrite", settings=settings,
        partitions=[partition], reads_table=True, clock=call.clock,
    )  # fmt: skip


def _require_told_apart(state: TableState, partition: str) -> None:
    if partition not in {s.partition for s in state.slices()}:
        raise TableError(f"{state.path}: there is no partition {partition!r}. CALL show_fsview_latest lists them.")
    if not state.config.meta_fields:
        raise TableError(f"{state.path}: the table stores no keys with its rows, so copies cannot be told.")


def _copies(call: Call, state: TableState, partition: str) -> tuple[int, int, str]:
    """(keys that are there more than once, copies too many, the query of the rows that stay)."""
    plan = read.plan(state)
    plan = read.ReadPlan(plan.view, plan.mode, tuple(s for s in plan.slices if s.partition == partition))
    rows = read.to_sql(call.con, plan)
    keys, copies = call.con.execute(
        "SELECT count(*), coalesce(sum(n - 1), 0)::BIGINT FROM "
        f"(SELECT count(*) AS n FROM ({rows}) GROUP BY _hoodie_record_key HAVING count(*) > 1)"
    ).fetchall()[0]
    kept = f"SELECT * FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY _hoodie_record_key ORDER BY {_newest(state)}) = 1"
    return keys, copies, kept


def _newest(state: TableState) -> str:
    """The copy that stays: of the newest commit, then with the largest ordering value, then the last one written."""
    ordering = [f for f in state.config.ordering_fields if f in state.schema.names]
    return ", ".join(f"{quote(c)} DESC" for c in ("_hoodie_commit_time", *ordering, "_hoodie_commit_seqno"))


# ---------------------------------------------------------------- hoodie.properties
def _overwrite_properties(call: Call) -> Rows:
    if (call["table"] is None) == (call["path"] is None):
        raise SQLError("CALL repair_overwrite_hoodie_props: give table => 'name' or path => 'folder', one of them.")
    storage = call.resolve(call["table"]) if call["path"] is None else open_storage(call["path"])
    new = _properties_of(call["new_props_file_path"])
    where = f"{storage.uri}/{PROPERTIES}"
    name = new.get("hoodie.table.name", "")
    new[_CHECKSUM] = table_checksum(name, new.get("hoodie.database.name", ""))
    TableConfig.from_text(format_properties(new, ""), call["new_props_file_path"])
    with locked(storage, call.settings):
        old = _stored(storage)
        for key in _FIXED:
            if old.get(key, new[key]) != new[key]:
                raise TableError(
                    f"{where}: the new properties have {key}={new[key]}, the table has {old[key]}; its timeline would no "
                    "longer be read. Correct the new file. Nothing was changed."
                )
        _put_properties(storage, new, call.clock())
    for key in sorted({*old, *new}):
        yield {"property": key, "old_value": old.get(key, "null"), "new_value": new.get(key, "null")}


def _properties_of(path: str) -> dict[str, str]:
    folder, _, name = path.rpartition("/")
    try:
        text = open_storage(folder or ("/" if path.startswith("/") else ".")).read(name).decode("latin-1")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TableError(f"{path}: there is no such file. Correct new_props_file_path. Nothing was changed.") from error
    return parse_properties(text, path)


def _stored(storage: Storage) -> dict[str, str]:
    """The properties as they are, also when they are damaged; {} when there are none."""
    try:
        return parse_properties(storage.read(PROPERTIES).decode("latin-1"))
    except (FileNotFoundError, LakeError):
        return {}


def _put_properties(storage: Storage, properties: Mapping[str, str], now_ms: int) -> None:
    stamp = new_instant_time(now_ms)
    header = (
        f"Updated at {stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}.{stamp[14:]}Z"
    )
    storage.put(PROPERTIES, format_properties(properties, header).encode("latin-1"))


PROCEDURES = (
    Procedure(
        "repair_add_partition_meta",
        "Adds the metafiles without which Spark does not see a partition folder.",
        columns(partition_path="text", metadata_is_present="text", action="text"),
        _add_metafiles,
        (_DRY_RUN,),
        writes=_changes,
    ),
    Procedure(
        "repair_migrate_partition_meta",
        "Turns the metafiles of partitions into Parquet files.",
        columns(partition_path="text", text_metafile_present="text", base_metafile_present="text", action="text"),
        _migrate,
        (_DRY_RUN,),
        writes=_changes,
    ),
    Procedure(
        "repair_deduplicate",
        "Keeps the row of the newest commit of each key that is in a partition more than once, whatever its ordering value.",
        columns(result="text"),
        _deduplicate,
        (
            Parameter("duplicated_partition_path", "VARCHAR", REQUIRED, "the partition; '' without partitions"),
            Parameter("repaired_output_path", "VARCHAR", None, "a folder that gets the rows that stay, as Parquet"),
            _DRY_RUN,
            Parameter(
                "dedupe_type", "VARCHAR", "insert_type", "insert_type, update_type or upsert_type; all keep the newest"
            ),
        ),
        writes=_changes,
    ),
    Procedure(
        "repair_overwrite_hoodie_props",
        "Replaces hoodie.properties by a file and shows the differences; works on a damaged one too, by path.",
        columns(property="text", old_value="text", new_value="text"),
        _overwrite_properties,
        (TABLE, Parameter("new_props_file_path", "VARCHAR", REQUIRED, "the new file"), PATH),
        of_table=False,
        writes=True,
    ),
)
