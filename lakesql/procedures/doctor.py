"""`doctor`: what is wrong with a table, one finding each with the command that mends it. Reads only.

A check is a function from the table to findings; one that cannot finish because of damage becomes the finding itself, so
that the others still run. `error`: some reader gets wrong rows or none; `warning`: it will cost or break later;
`note`: worth knowing. To add a check: one function in CHECKS.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb

from lakesql.counted import counted
from lakesql.errors import LakeError, SQLError
from lakesql.format import log
from lakesql.format.files import BaseFile, FileSlice, LogFile, file_slices
from lakesql.format.timeline import WRITE_ACTIONS, Timeline, instant_millis
from lakesql.procedures.declare import PATH, TABLE, Call, Procedure, Rows, columns
from lakesql.procedures.files import broken
from lakesql.procedures.repair import has_metafile
from lakesql.procedures.shape import zone_of
from lakesql.storage import Storage, open_storage
from lakesql.table import keys, read
from lakesql.table.clock import Clock, system_clock
from lakesql.table.keys import record_key_sql
from lakesql.table.logs import committed_blocks
from lakesql.table.names import literal
from lakesql.table.promised import require_files
from lakesql.table.state import TableState, load
from lakesql.write.metadata_table import listed
from lakesql.write.undo import FOREIGN_DEAD_MS, newest_trace_ms

ERROR, WARNING, NOTE = "error", "warning", "note"
_FEW = 3
_AHEAD_MS = 5_000
_LOGS_MANY, _LOGS_SOME = 10, 5
_METADATA = ".hoodie/metadata"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `command` mends it, '' when nothing of ours does."""

    severity: str
    check: str
    what: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """The table under examination. `con` is for queries of ours."""

    state: TableState
    con: duckdb.DuckDBPyConnection
    clock: Clock

    def call(self, procedure: str, arguments: str = "") -> str:
        """The CALL of a procedure on this table."""
        return f"CALL {procedure}(path => {literal(self.state.path)}{', ' if arguments else ''}{arguments})"


def examine(con: duckdb.DuckDBPyConnection, storage: Storage, clock: Clock = system_clock) -> list[Finding]:
    """Every finding, errors first. TableError when there is no table at all."""
    storage.attach(con)
    try:
        state = load(storage)
    except LakeError as error:
        if not any(storage.list(".hoodie")):
            raise
        mend = f"CALL repair_overwrite_hoodie_props(path => {literal(storage.uri)}, new_props_file_path => '...')"
        return [Finding(ERROR, "properties", str(error), mend if "hoodie.properties" in str(error) else "")]
    patient = Patient(state, con, clock)
    found: list[Finding] = []
    stopped: dict[str, list[str]] = {}
    for name, check in CHECKS.items():
        try:
            found += check(patient)
        except (LakeError, OSError, duckdb.Error) as error:
            stopped.setdefault(str(error).splitlines()[0], []).append(name)
    found += _unfinished(stopped, found)
    return sorted(found, key=lambda one: (ERROR, WARNING, NOTE).index(one.severity))


def _unfinished(stopped: dict[str, list[str]], found: list[Finding]) -> Iterator[Finding]:
    """Each reason why checks stopped, once; a note when it is a finding of its own already."""
    for reason, names in stopped.items():
        if any(reason in one.what for one in found):
            yield Finding(NOTE, names[0], f"Not checked until that is mended: {', '.join(names)}.")
        else:
            rest = f" Nor did: {', '.join(names[1:])}." if len(names) > 1 else ""
            yield Finding(ERROR, names[0], f"The check did not finish: {reason}{rest}")


# ---------------------------------------------------------------- timeline
def _pending(patient: Patient) -> Iterator[Finding]:
    """Writes, rollbacks, cleans and restores that somebody began and does not go on with."""
    state = patient.state
    for instant in state.timeline.pending():
        if instant.action not in (*WRITE_ACTIONS, "rollback", "clean", "restore", "indexing"):
            continue
        if (instant.action, instant.requested) in {("replacecommit", t) for t in state.pending_clustering.values()}:
            continue
        age_ms = patient.clock() - newest_trace_ms(state, instant)
        what = f"{instant.action} {instant.requested} is {instant.state.lower()}"
        if age_ms <= FOREIGN_DEAD_MS:
            yield Finding(NOTE, "pending", f"{what}; its writer was active {age_ms / 1000:.0f} s ago.")
        elif instant.action in WRITE_ACTIONS:
            mend = patient.call("rollback_to_instant", f"instant_time => {literal(instant.requested)}")
            yield Finding(
                WARNING, "pending", f"{what} since {age_ms // 60_000} minutes; the next write undoes it.", mend
            )
        else:
            yield Finding(
                WARNING, "pending", f"{what} since {age_ms // 60_000} minutes.", _mend(patient, instant.action)
            )


def _mend(patient: Patient, action: str) -> str:
    return patient.call("run_clean") if action == "clean" else ""


def _clock(patient: Patient) -> Iterator[Finding]:
    """Instants ahead of the clock hide what is written until then."""
    state = patient.state
    newest = state.timeline.newest_time
    if newest:
        ahead_ms = instant_millis(newest, zone_of(state)) - patient.clock()
        if ahead_ms > _AHEAD_MS:
            yield Finding(
                ERROR,
                "clock",
                f"The newest instant {newest} is {ahead_ms / 1000:.0f} s ahead of this machine's clock; writes are refused "
                "until then. Synchronise the clocks of all writers.",
            )


def _metadata(patient: Patient) -> Iterator[Finding]:
    """A metadata table that does not know the newest commit hides its files from Spark and hudi-rs."""
    state = patient.state
    if not listed(state.config):
        if any(state.storage.list(_METADATA)):
            yield Finding(
                NOTE, "metadata table", "There is a folder of a metadata table that hoodie.properties does not list."
            )
        return
    mend = patient.call("delete_metadata_table")
    folder = f"{_METADATA}/{state.timeline_folder}"
    files, _ = state.storage.list(folder)
    names = [f.path.rsplit("/", 1)[-1] for f in files]
    if not names:
        yield Finding(ERROR, "metadata table", "hoodie.properties lists a metadata table, and it is not there.", mend)
        return
    theirs = Timeline.from_file_names(names, state.timeline.layout)
    known = {i.requested for i in theirs.instants if i.is_completed}
    missing = [i.requested for i in state.timeline.completed_writes() if i.requested not in known]
    missing = [t for t in missing if theirs.start is None or t >= theirs.start[: len(t)]]
    if missing:
        yield Finding(ERROR, "metadata table", f"It does not know {_some(missing, 'commits', 'commit')}.", mend)


# ---------------------------------------------------------------- files
def _orphans(patient: Patient) -> Iterator[Finding]:
    """Files of instants that the timeline does not know, and files that the commit of their instant does not name."""
    state = patient.state
    known = {i.requested for i in state.timeline.instants}
    base = [f for f in state.files if isinstance(f, BaseFile) or state.config.version >= 8]
    strays = [f.path for f in base if f.instant not in known and not state.timeline.is_committed(f.instant)]
    if strays:
        yield Finding(
            WARNING, "orphan files", f"No instant knows {_some(strays, 'files', 'file')}; readers skip them.",
            patient.call("run_clean"),
        )  # fmt: skip
    named = set(state.promises(None))
    instants = {p.instant for group in state.promises(None).values() for p in group}
    extra = [
        f.path for f in base if f.instant in instants and f.path not in named and state.timeline.is_committed(f.instant)
    ]
    if extra:
        yield Finding(
            ERROR, "orphan files", f"Readers take {_some(extra, 'files', 'file')} that the commit of its instant does not "
            "name: a failed attempt left it.",
        )  # fmt: skip


def _missing(patient: Patient) -> Iterator[Finding]:
    """Files that a commit names and that are gone or cut short."""
    state = patient.state
    slices = file_slices(
        state.files,
        state.view_timeline,
        version=state.config.version,
        replaced=state.replaced(),
        pending_compactions=state.pending_compactions,
    )
    replaced = {file_id for _, file_id in state.replaced()}
    promises = [one for group in state.promises(None).values() for one in group]
    try:
        require_files(state.path, promises, state.files, slices, replaced)
    except LakeError:
        for one in promises:
            try:
                require_files(state.path, [one], state.files, slices, replaced)
            except LakeError as error:
                mend = patient.call("rollback_to_instant", f"instant_time => {literal(one.instant)}")
                yield Finding(ERROR, "missing files", str(error), mend)


def _torn(patient: Patient) -> Iterator[Finding]:
    """Base files without a readable footer, log files with damaged blocks."""
    state = patient.state
    for base in state.base_files():
        reason = broken(state, base)
        if reason:
            mend = patient.call("rollback_to_instant", f"instant_time => {literal(base.instant)}")
            yield Finding(
                ERROR, "torn files", f"{base.path} cannot be read: {reason}. Restore it, or undo its commit.", mend
            )
    for piece in state.slices():
        try:
            committed_blocks(state, piece, None)
        except LakeError as error:
            yield Finding(ERROR, "torn files", str(error))
            continue
        for file in piece.logs:
            yield from _torn_blocks(state, file)


def _torn_blocks(state: TableState, file: LogFile) -> Iterator[Finding]:
    blocks = log.scan_blocks(state.storage.read(file.path), file.path)
    torn = [b.offset for b in blocks if b.kind == log.CORRUPT]
    if torn:
        yield Finding(NOTE, "torn files", f"{file.path} has a torn block at byte {torn[0]} that no commit counts on.")


def _metafiles(patient: Patient) -> Iterator[Finding]:
    """Partition folders that Spark does not see."""
    state = patient.state
    lacking = sorted(p for p in {s.partition for s in state.slices()} if not has_metafile(state, p))
    mend = patient.call("repair_add_partition_meta", "dry_run => false")
    if lacking == [""]:
        what = "The table's folder has no metafile; an upsert of Hudi 0.15 does not find the keys that are there."
        yield Finding(WARNING, "partition metafiles", what, mend)
        return
    if lacking:
        what = f"Without a metafile Spark does not see {_some(lacking, 'partitions', 'partition')}."
        yield Finding(ERROR, "partition metafiles", what, mend)


# ---------------------------------------------------------------- rows
def _duplicates(patient: Patient) -> Iterator[Finding]:
    """Keys that are in a partition more than once."""
    state = patient.state
    if not state.config.record_key_fields or not state.config.meta_fields:
        return
    plan = read.plan(state)
    partitions = [s.partition for s in plan.slices]
    if not partitions:
        return
    numbered = ", ".join(f"({number}, {literal(partition)})" for number, partition in enumerate(partitions))
    rows = patient.con.execute(
        f"SELECT partition, count(*) FROM (SELECT p.partition, record_key FROM ({read.keys_sql(patient.con, plan)}) k "
        f"JOIN (VALUES {numbered}) p(slice_no, partition) USING (slice_no) WHERE live "
        "GROUP BY ALL HAVING count(*) > 1) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    for partition, count in rows:
        mend = patient.call(
            "repair_deduplicate", f"duplicated_partition_path => {literal(partition)}, dry_run => false"
        )
        where = f" in partition {partition}" if partition else ""
        yield Finding(WARNING, "duplicate keys", f"Keys that are there more than once{where}: {count:,}.", mend)


def _key_encodings(patient: Patient) -> Iterator[Finding]:
    """Keys of one field under a complex key generator, spelt with and without the field's name."""
    state = patient.state
    if not keys.styled(state.config) or not state.config.meta_fields or not state.slices():
        return
    (field,) = state.config.record_key_fields
    columns = ["_hoodie_record_key", field if field in state.schema.names else field.split(".")[0]]
    prefixed = record_key_sql(state.config, state.schema, keys.PREFIXED)
    rows = read.to_sql(patient.con, read.plan(state), columns)
    named, bare = patient.con.execute(
        f"SELECT count(*) FILTER (same), count(*) FILTER (NOT same) FROM (SELECT _hoodie_record_key = {prefixed} AS same FROM ({rows}))"
    ).fetchall()[0]
    if named and bare:
        yield Finding(
            ERROR,
            "key encodings",
            f"Keys spelt {field}:value: {named:,}; keys spelt value: {bare:,}; updates miss the rows of the other spelling. "
            f"Write one spelling anew: INSERT OVERWRITE of the table with a SELECT of itself.",
        )


def _compaction(patient: Patient) -> Iterator[Finding]:
    """File groups whose logs weigh more than their base file, or are many."""
    state = patient.state
    heavy = [s for s in state.slices() if _is_heavy(s)]
    if heavy:
        logs, size = sum(len(s.logs) for s in heavy), sum(f.size_bytes for s in heavy for f in s.logs)
        what = f"{counted(len(heavy), 'file group')} with {counted(logs, 'log file')} of {size:,} bytes to merge at each read."
        yield Finding(WARNING, "compaction", what, patient.call("run_compaction", "op => 'run'"))
    for instant in state.timeline.pending("compaction", "clustering"):
        age_ms = patient.clock() - newest_trace_ms(state, instant)
        if age_ms > 24 * 3_600_000:
            service = "run_compaction" if instant.action == "compaction" else "run_clustering"
            yield Finding(
                WARNING, "compaction", f"{instant.action} {instant.requested} is pending since {age_ms // 3_600_000} hours.",
                patient.call(service, "op => 'run'" if service == "run_compaction" else "op => 'execute'"),
            )  # fmt: skip


def _is_heavy(piece: FileSlice) -> bool:
    """Many logs, or several that outweigh the base file."""
    outweigh = sum(f.size_bytes for f in piece.logs) > (piece.base.size_bytes if piece.base else 0)
    return len(piece.logs) > _LOGS_MANY or (len(piece.logs) >= _LOGS_SOME and outweigh)


def _some(names: list[str], many: str, one: str) -> str:
    """`file a`, or `12 files: a, b, c, ...`."""
    if len(names) == 1:
        return f"{one} {names[0]}"
    return f"{len(names)} {many}: {', '.join(names[:_FEW])}{', ...' if len(names) > _FEW else ''}"


CHECKS: dict[str, Callable[[Patient], Iterator[Finding]]] = {
    "pending": _pending,
    "clock": _clock,
    "metadata table": _metadata,
    "orphan files": _orphans,
    "missing files": _missing,
    "torn files": _torn,
    "partition metafiles": _metafiles,
    "duplicate keys": _duplicates,
    "key encodings": _key_encodings,
    "compaction": _compaction,
}


def _doctor(call: Call) -> Rows:
    if (call["table"] is None) == (call["path"] is None):
        raise SQLError("CALL doctor: give table => 'name' or path => 'folder', one of them.")
    storage = open_storage(call["path"]) if call["table"] is None else call.resolve(call["table"])
    for one in examine(call.con, storage, call.clock):
        yield {"severity": one.severity, "check": one.check, "finding": one.what, "command": one.command}


PROCEDURES = (
    Procedure(
        "doctor",
        "What is wrong with a table, and the command that mends it; no rows when nothing is.",
        columns(severity="text", check="text", finding="text", command="text"),
        _doctor,
        (TABLE, PATH),
        of_table=False,
    ),
)
