"""Taking the metadata table away before a commit that does not maintain it (hudi-format 11.8).

A metadata table that does not know our files makes them invisible and later doubles keys, without any error. The
property goes first and the folders after it: the other order makes every Spark write fail in between. Spark builds the
metadata table anew from a listing at its next write.
"""

from lakesql.errors import CommitConflict
from lakesql.format.metadata import TableConfig, format_properties
from lakesql.format.timeline import new_instant_time
from lakesql.storage import Storage
from lakesql.table.state import PROPERTIES, TableState, read_config

_KEYS = (
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.index.defs.path",
)
_FOLDERS = (".hoodie/metadata", ".hoodie/.index_defs")


def listed(config: TableConfig) -> bool:
    """Whether readers of the table trust a metadata table."""
    return any(config.properties.get(key, "").strip() for key in _KEYS[:2])


def remove(state: TableState, now_ms: int, completing: str = "") -> str | None:
    """Remove the metadata table if the table's properties, read again, list one. A sentence for the user, or None.

    CommitConflict for a version 6 table with a pending compaction: Spark's rebuild would lose log files there.
    `completing` is the instant of a compaction that is pending no longer when the lock is given back.
    """
    storage: Storage = state.storage
    if storage.remote and not listed(state.config):
        return None  # the look was a moment ago, and there is one more before the commit counts
    config = read_config(storage)
    if not listed(config):
        return None
    compactions = [i for i in state.timeline.pending("compaction") if i.requested != completing]
    if config.version < 8 and compactions:
        raise CommitConflict(
            f"{state.path}: the metadata table must be removed before this write, and compaction "
            f"{compactions[0].requested} is pending; in table version 6 the rebuilt metadata table would miss log "
            "files. Nothing was committed. Run the compaction, then write again."
        )
    kept = {key: value for key, value in config.properties.items() if key not in _KEYS}
    stamp = new_instant_time(now_ms)
    header = (
        f"Updated at {stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}.{stamp[14:]}Z"
    )
    storage.put(PROPERTIES, format_properties(kept, header).encode("latin-1"))
    for folder in _FOLDERS:
        storage.delete_tree(folder)
    partitions = ", ".join(config.metadata_partitions) or "none finished"
    return (
        f"The metadata table (partitions: {partitions}) was removed, because lakesql does not maintain it yet; "
        "readers list the folders instead, and Spark rebuilds it at its next write."
    )
