"""Procedures about the metadata table, which lakesql does not maintain and does not need: how large it is, which files it
knows, whether they are those on storage, and taking it away. Column statistics come from the Parquet footers (`statistics`).
"""

from collections.abc import Iterator

from lakesql.errors import TableError
from lakesql.format.files import BaseFile, LogFile, parse_data_file
from lakesql.procedures.declare import FILTER, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.shape import limit, showing
from lakesql.table.metadata_files import FOLDER, known_files
from lakesql.table.state import HOODIE, TableState, load
from lakesql.write import metadata_table
from lakesql.write.retry import locked

_FEW = 5
_CHANGES = ".cdc"  # files of change data, which lakesql does not read
_KINDS = (
    ("totalBaseFileSizeInBytes", "baseFileCount", BaseFile),
    ("totalLogFileSizeInBytes", "logFileCount", LogFile),
)


def _stats(call: Call) -> Rows:
    state = call.state()
    for partition in state.config.metadata_partitions:
        files = list(_files(state, partition))
        for size, count, kind in _KINDS:
            found = [f for f in files if isinstance(f, kind)]
            yield {"stat_key": f"{partition}.{size}", "stat_value": str(sum(f.size_bytes for f in found))}
            yield {"stat_key": f"{partition}.{count}", "stat_value": str(len(found))}


def _files(state: TableState, partition: str) -> Iterator[BaseFile | LogFile]:
    for info in state.storage.walk(f"{FOLDER}/{partition}"):
        folder, _, name = info.path.rpartition("/")
        found = parse_data_file(folder, name, info.size_bytes)
        if found is not None:
            yield found


# ---------------------------------------------------------------- the files it knows
def _partitions(call: Call) -> Rows:
    return [{"partition": name} for name in known_files(call.state())]


def _known_files(call: Call) -> Rows:
    state = call.state()
    known = known_files(state)
    if call["partition"] is None:
        every = ((p, name) for p, names in known.items() for name in sorted(names))
        return [{"file_path": f"{p}/{name}" if p else name} for p, name in every]
    partition = call["partition"].strip("/")
    if partition not in known:
        few = ", ".join(map(repr, list(known)[:_FEW])) + (", ..." if len(known) > _FEW else "")
        raise TableError(
            f"{state.path}: the metadata table knows no partition {partition!r}; it knows {few or 'none'}."
        )
    return [{"file_path": name} for name in sorted(known[partition])]


def _validate(call: Call) -> Rows:
    """What is on storage and what the metadata table says of it; only differences unless `verbose`."""
    state = call.state()
    known = known_files(state)
    there: dict[str, dict[str, int]] = {}
    for info in state.storage.walk("", lambda folder: folder == HOODIE):
        folder, _, name = info.path.rpartition("/")
        if parse_data_file(folder, name, info.size_bytes) is not None or name.endswith(_CHANGES):
            there.setdefault(folder, {})[name] = info.size_bytes
    for partition in sorted({*known, *there}):
        ours, theirs = there.get(partition, {}), known.get(partition, {})
        for name in sorted({*ours, *theirs}):
            if call["verbose"] or ours.get(name) != theirs.get(name):
                yield {
                    "partition": partition,
                    "file_name": name,
                    "is_present_in_fs": name in ours,
                    "is_present_in_metadata": name in theirs,
                    "fs_size": ours.get(name, 0),
                    "metadata_size": theirs.get(name, 0),
                }


def _delete(call: Call) -> Rows:
    with locked(call.storage, call.settings):
        note = metadata_table.remove(load(call.storage), call.clock())
    yield {"result": note or "There is no metadata table."}


PROCEDURES = (
    showing(
        "show_metadata_table_stats",
        "Number and bytes of the files of each partition of the metadata table.",
        columns(stat_key="text", stat_value="text"),
        _stats,
        (FILTER,),
    ),
    showing(
        "show_metadata_table_partitions",
        "The partitions that the metadata table knows.",
        columns(partition="text"),
        _partitions,
        (FILTER,),
    ),
    showing(
        "show_metadata_table_files",
        "The files that the metadata table knows, of one partition or with their paths of all.",
        columns(file_path="text"),
        _known_files,
        (
            Parameter("partition", "VARCHAR", None, "the files of this partition, by name"),
            limit(100),
            FILTER,
        ),
    ),
    Procedure(
        "validate_metadata_table_files",
        "Compares the files on storage with those that the metadata table knows; only differences unless verbose.",
        columns(
            partition="text",
            file_name="text",
            is_present_in_fs="bool",
            is_present_in_metadata="bool",
            fs_size="long",
            metadata_size="long",
        ),
        _validate,
        (Parameter("verbose", "BOOLEAN", False, "all files, not only those that differ"),),
    ),
    Procedure(
        "delete_metadata_table",
        "Takes the metadata table away; readers list the folders, and Spark builds it anew at its next write.",
        columns(result="text"),
        _delete,
        writes=True,
    ),
)
