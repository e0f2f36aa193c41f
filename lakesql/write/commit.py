"""The protocol of a commit: requested, inflight, files, completed (hudi-format 2.5, C.3); and giving up.

The caller holds the table's lock from before it looked at the table until the end. That keeps other lakesql writers
out; other engines do not know the lock, so right before completing the timeline is looked at once more. One put makes
the commit visible, nothing is needed after it. CommitUnknown is raised only when that put failed and the timeline
cannot be asked what became of it, or does not show it and a store may still carry it out; every other failure removes
what was written and leaves the table as it was.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import tzinfo

from lakesql.errors import CommitConflict, CommitUnknown, LakeError, OverBudget, Unsupported
from lakesql.format.metadata import CommitMetadata, TableConfig, WriteStat, encode_commit, encode_record
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED, Timeline, instant_file_name
from lakesql.stores import calls as store_calls
from lakesql.stores import lock as store_lock
from lakesql.stores.base import FileInfo
from lakesql.table.clock import Clock, draw
from lakesql.table.listing import note_commit
from lakesql.table.partition_values import to_tell
from lakesql.table.sight import sight
from lakesql.table.state import TableState, read_config
from lakesql.write import metadata_table
from lakesql.write.carried import handed_on
from lakesql.write.transaction import OWNER, PLANNED, Transaction, beat, clear, heartbeat_path, marked_files

_DRAWS_MAX = 10
_LATE_S = (0.5, 1.0, 2.0)


def begin(
    state: TableState, action: str, operation: str, clock: Clock, zone: tzinfo, owner: bytes = OWNER
) -> Transaction:
    """Announce a write: heartbeat, requested, inflight. The instant is larger than every time on the timeline."""
    newest = state.timeline.newest_time
    for _ in range(_DRAWS_MAX):
        instant = draw(clock, newest, zone, state.path)
        txn = Transaction(state.storage, state.config, instant, action, operation, owner, alone=owner == OWNER)
        try:
            beat(txn)
            requested = b"" if action != "replacecommit" else encode_record("HoodieRequestedReplaceMetadata", {})
            if not state.storage.put_if_absent(_file(txn, REQUESTED), requested):
                state.storage.delete(heartbeat_path(instant))
                newest = instant
                continue
            state.storage.put_if_absent(_file(txn, INFLIGHT), _inflight(txn))
        except BaseException:
            abort(txn)
            raise
        return txn
    raise CommitConflict(
        f"{state.path}: {_DRAWS_MAX} instants in a row were taken by another writer. Nothing was committed. Write "
        "again."
    )


def _file(txn: Transaction, stage: str, completed: str | None = None) -> str:
    name = instant_file_name(txn.instant, txn.action, stage, txn.config.layout, completed)
    return f"{txn.config.timeline_folder}/{name}"


def _inflight(txn: Transaction) -> bytes:
    if txn.action != "replacecommit":
        return b""
    return encode_commit(CommitMetadata(operation=txn.operation), version=txn.config.version, replace=False)


def prepare_partition(txn: Transaction, partition: str) -> None:
    """The file without which other readers do not see a partition (hudi-format 3.7). Before its first data file."""
    path = f"{partition}/.hoodie_partition_metadata" if partition else ".hoodie_partition_metadata"
    depth = len(partition.split("/")) if partition else 0
    text = f"#partition metadata\ncommitTime={txn.instant}\npartitionDepth={depth}\n"
    txn.storage.put_if_absent(path, text.encode())


def metadata_of(
    txn: Transaction,
    state: TableState,
    stats: Sequence[WriteStat],
    schema_json: str,
    extra: Mapping[str, str],
    replaced: Mapping[str, Sequence[str]],
    in_place: bool = True,
) -> CommitMetadata:
    """The body of the completed instant; always with the table schema (hudi-format 2.12).

    `state` is the table as it is now, under its lock: what ingestions stored there is handed on. `in_place`: no new row
    lies in another partition than its values say.
    """
    sources = {(stat.partition_path or "", stat.file_id or "") for stat in stats}
    if txn.operation.upper() == "CLUSTER":
        sources |= {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
    told = to_tell(state, sources, in_place)
    partitions: dict[str, tuple[WriteStat, ...]] = {}
    for stat in stats:
        partition = stat.partition_path or ""
        partitions[partition] = (*partitions.get(partition, ()), stat)
    return CommitMetadata(
        partition_stats=partitions,
        operation=txn.operation,
        extra={**handed_on(state, extra), **told, **extra, "schema": schema_json},
        compacted=False,
        replaced={partition: tuple(ids) for partition, ids in replaced.items()},
    )


def complete(
    txn: Transaction,
    state: TableState,
    metadata: CommitMetadata,
    touched: Collection[tuple[str, str]],
    clock: Clock,
    zone: tzinfo,
) -> str:
    """Make the commit visible; its completion time, in layout 1 the instant. `state` is what the write was planned on, `touched` the file groups it changes.

    CommitConflict when somebody interfered, CommitUnknown when the outcome cannot be told. After anything but a
    CommitUnknown and a success the caller must `abort`.
    """
    config, named = _seen(txn)
    now = Timeline.from_file_names(named, txn.config.layout, {n: f.modified_ms for n, f in named.items()})
    if _file(txn, INFLIGHT).rsplit("/", 1)[-1] not in named:
        raise CommitConflict(
            f"{txn.where}: another writer rolled our {txn.action} {txn.instant} back while it ran. Nothing was "
            "committed. Write again; let other writers use optimistic concurrency control if they run at the same "
            "time."
        )
    if metadata_table.listed(config):
        raise CommitConflict(
            f"{txn.where}: another writer built a metadata table while {txn.action} {txn.instant} ran; it would not "
            "know our files. Nothing was committed. Write again."
        )
    refuse_overlap(state, replace(state, timeline=now, instant_files=named), touched, txn.instant)
    completed = None
    if txn.config.layout != 1:
        completed = draw(clock, max(now.newest_time, txn.instant), zone, txn.where)
    body = encode_commit(metadata, version=txn.config.version, replace=txn.action == "replacecommit")
    path = _file(txn, COMPLETED, completed)
    publish(txn, path, body)
    with suppress(Exception):  # the commit is complete: what is not remembered is asked for
        note_commit(state, named, path, body)
    return completed or txn.instant


def _seen(txn: Transaction) -> tuple[TableConfig, Mapping[str, FileInfo]]:
    """The properties and the timeline files by name, as they are now."""
    if txn.storage.remote and (seen := sight(txn.storage, data=False)) is not None:
        return seen.config, seen.timeline
    files, _ = txn.storage.list(txn.config.timeline_folder)
    return read_config(txn.storage), {f.path.rsplit("/", 1)[-1]: f for f in files}


def refuse_overlap(
    before: TableState, after: TableState, touched: Collection[tuple[str, str]], own: str | None = None
) -> None:
    """CommitConflict when a write completed, or a table service planned, between two looks has one of the groups."""
    groups = set(touched)
    known = {i.requested for i in before.timeline.completed_writes()}
    active = {i.requested for i in after.timeline.completed_writes()}
    # What was archived between the looks may have completed between them as well.
    timeline = after.timeline if known <= active else after.history
    for instant in timeline.completed_writes():
        if instant.requested in known or instant.requested == own:
            continue
        metadata = after.commit(instant)
        theirs = {(p, s.file_id or "") for p, stats in metadata.partition_stats.items() for s in stats}
        theirs |= {(p, file_id) for p, ids in metadata.replaced.items() for file_id in ids}
        for partition, file_id in sorted(groups & theirs):
            raise CommitConflict(
                f"{before.path}: file group {file_id}{f' in partition {partition}' if partition else ''} was changed "
                f"by {instant.action} {instant.requested} after this write read it. Nothing was committed. Run the "
                "statement again; it will read the new slice."
            )
    planned = dict(after.pending_clustering)
    if before.config.version < 8:
        planned |= after.pending_compactions
    known = {i.requested for i in before.timeline.pending("clustering", "replacecommit", "compaction")}
    for group, plan in planned.items():
        if group in groups and plan not in known:
            raise CommitConflict(
                f"{before.path}: table service {plan} was planned over file group {'/'.join(p for p in group if p)} "
                "after this write began. Nothing was committed. Write again when it is done."
            )


def publish(txn: Transaction, path: str, body: bytes) -> None:
    """The one put that counts, and what to think when it fails.

    CommitConflict when a lock of a store that is held for it is lost before the put; when it is lost while the put is
    tried again, the first try may have arrived.
    """
    store_lock.require(txn.where)
    cause: Exception | None = None
    lost = False

    def again() -> None:
        nonlocal lost
        lost = True
        store_lock.require(txn.where)

    try:
        with store_calls.before_again(again):
            done = txn.storage.put_if_absent(path, body)
    except Exception as error:
        if isinstance(error, OverBudget | Unsupported) and not lost:
            raise  # before a request was made, or a refusal of all of them
        cause, done = error, False
        lost = txn.storage.remote and (lost or store_calls.is_transient(error))
    if not done:
        with store_calls.beyond_budget():
            _settle(txn, path, body, cause, lost)
    store_calls.committed()


def _settle(txn: Transaction, path: str, body: bytes, cause: Exception | None, lost: bool) -> None:
    """Look what became of the put that completes: nothing to say when it was ours.

    One that was sent and not answered (`lost`) may arrive after every look: its files are left.
    """
    try:
        found = _found_late(txn, path, waiting=cause is not None and txn.storage.remote)
    except FileNotFoundError:
        if lost and cause is not None:
            raise CommitUnknown(
                f"{txn.where}: {txn.action} {txn.instant} was sent to storage and the answer was lost ({cause}). It is not "
                f"there yet and may still arrive. Nothing was deleted. Look later whether {path} exists: if it does, the "
                "commit is complete; if not, the next write rolls it back."
            ) from cause
        raise CommitConflict(
            f"{txn.where}: storage refused to complete {txn.action} {txn.instant} ({cause}). Nothing was committed. "
            "Write again."
        ) from cause
    except Exception as error:
        raise CommitUnknown(
            f"{txn.where}: {txn.action} {txn.instant} was sent to storage, the answer was lost ({cause}), and the "
            f"timeline cannot be read ({error}). Nothing was deleted. Look whether {path} exists: if it does, the "
            "commit is complete; if not, the next write rolls it back."
        ) from cause
    if found != body:
        raise CommitConflict(
            f"{txn.where}: {path} was written by somebody else. Nothing of ours was committed. Write again."
        )


def _found_late(txn: Transaction, path: str, waiting: bool) -> bytes:
    """The file at `path`; a request whose answer was lost over a network may arrive a little later than a look."""
    for pause_s in _LATE_S if waiting else ():
        with suppress(FileNotFoundError):
            return txn.storage.read(path)
        time.sleep(pause_s)
    return txn.storage.read(path)


def finish(txn: Transaction) -> str | None:
    """Remove the traces of a completed instant; a sentence when that failed, which changes nothing for the commit."""
    try:
        with store_calls.beyond_budget():
            if txn.alone and txn.storage.remote:  # no folder is there to be removed, and the markers' names are known
                txn.storage.delete_all([*txn.markers, heartbeat_path(txn.instant)])
            else:
                clear(txn.storage, txn.instant, txn.owner == PLANNED)
                txn.storage.delete(heartbeat_path(txn.instant))
    except Exception as error:  # the commit is complete: whatever goes wrong from here on is no failed write
        return f"Temporary files of {txn.instant} could not be removed ({error}); they do no harm."
    return None


def abort(txn: Transaction) -> None:
    """Remove everything an instant that did not complete has written; never raises.

    Data files go first. When one cannot be removed, the pending instant stays, and the next writer rolls it back. An
    instant that did complete is left alone, but for its traces: an interrupt may come right after its put.
    """
    with suppress(OSError, LakeError), store_calls.beyond_budget():
        if is_completed(txn):
            finish(txn)
            return
        for path, _ in marked_files(txn.storage, txn.instant):
            txn.storage.delete(path)
        clear(txn.storage, txn.instant, txn.owner == PLANNED)
        for stage in (INFLIGHT, REQUESTED):
            txn.storage.delete(_file(txn, stage))
        txn.storage.delete(heartbeat_path(txn.instant))


def is_pending(txn: Transaction) -> bool:
    """Whether the instant was neither completed nor given up (its heartbeat goes first then), nor rolled back by anybody."""
    there = txn.storage.stat
    return there(heartbeat_path(txn.instant)) is not None and there(_file(txn, INFLIGHT)) is not None


def is_completed(txn: Transaction) -> bool:
    """Whether the timeline has the instant as completed."""
    files, _ = txn.storage.list(txn.config.timeline_folder)
    named = {f.path.rsplit("/", 1)[-1]: f.modified_ms for f in files}
    timeline = Timeline.from_file_names(named, txn.config.layout, named)
    return any(i.requested == txn.instant for i in timeline.completed_writes())
