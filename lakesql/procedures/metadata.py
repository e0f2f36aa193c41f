"""Procedures about the metadata table, which lakesql neither maintains nor reads (its rows are in HFiles): how large it
is, and taking it away. Column statistics come from the Parquet footers instead (`statistics`).
"""

from collections.abc import Iterator

from lakesql.format.files import BaseFile, LogFile, parse_data_file
from lakesql.procedures.declare import FILTER, Call, Procedure, Rows, columns
from lakesql.procedures.shape import showing
from lakesql.table.state import TableState, load
from lakesql.write import metadata_table
from lakesql.write.retry import locked
from lakesql.write.settings import parse_settings

FOLDER = ".hoodie/metadata"
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


def _delete(call: Call) -> Rows:
    with locked(call.storage, parse_settings(call.settings).lock_wait_ms / 1000):
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
    Procedure(
        "delete_metadata_table",
        "Takes the metadata table away; readers list the folders, and Spark builds it anew at its next write.",
        columns(result="text"),
        _delete,
        writes=True,
    ),
)
