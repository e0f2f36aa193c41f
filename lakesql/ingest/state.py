"""What an ingestion keeps between runs: `State` as JSON in the commits of its table, and Hudi Streamer's checkpoint text.

`lakesql.ingest.v1` holds an object: ingestion name -> {"version": 1, "run": ..., "partitions": {topic: {number: {...}}}},
so that several ingestions of one table live side by side; a commit of one copies the others as they are. Fields that
have their default are left out, fields that are not known are ignored. Beside it, when the table has one ingestion of
one topic, stands `deltastreamer.checkpoint.key` = `topic,0:17,1:42` (next offsets), with which Hudi Streamer goes on.
When Hudi Streamer committed later than we did, its text moves our offsets of that topic. A checkpoint that belongs to
neither, of another topic or of another kind of source, is left as it is.
Not here: when to commit (`hudi_sink`), files that people give (`statefile`).
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

import pyarrow as pa

from lakesql.errors import FormatError
from lakesql.format.timeline import Instant
from lakesql.ingest.model import PartitionState, State, TopicPartition
from lakesql.table.state import TableState
from lakesql.write.carried import CHECKPOINTS, INGESTIONS, Found, active, find

VERSION = 1
CHECKPOINT = CHECKPOINTS[-1]
"""The key under which a checkpoint is written; both are read."""

_CHECKPOINT = re.compile(r"(?P<topic>[^,]+)(?P<offsets>(?:,\d+:\d+)+)", re.ASCII)
_DEFAULTS = {f.name: f.default for f in fields(PartitionState) if f.default is not MISSING}
_NUMBERS = {"next", "low", "leader_epoch", "records", "bytes", "quarantined", "deletes", "lost", "skipped"} | {
    "newest_ms",
    "last_ms",
    "ends_ms",
    "lag",
    "missing_since_ms",
}
_FLOATS = {"average_bytes", "average_millis"}

Stored = Mapping[str, Any]
"""One ingestion as its JSON says it."""


# ---------------------------------------------------------------- one state


def encode(state: State) -> dict[str, Any]:
    """A state as JSON values, in the order of topic and partition."""
    topics: dict[str, dict[str, Any]] = {}
    for at, one in sorted(state.partitions.items()):
        values = {f.name: getattr(one, f.name) for f in fields(one)}
        kept = {k: v for k, v in values.items() if k not in _DEFAULTS or v != _DEFAULTS[k]}
        if one.gap is not None:
            kept["gap"] = list(one.gap)
        topics.setdefault(at.topic, {})[str(at.partition)] = kept
    found: dict[str, Any] = {"version": VERSION, "run": state.run, "at_ms": state.at_ms, "partitions": topics}
    if state.quarantine:
        found["quarantine"] = list(state.quarantine)
    if state.released:
        found["released"] = list(state.released)
    if state.metrics:
        found["metrics"] = dict(sorted(state.metrics.items()))
    if state.note:
        found["note"] = state.note
    return found


def decode(ingestion: str, stored: object, where: str) -> State:
    """The state that `encode` wrote. FormatError, beginning with `where`, for anything that does not say it clearly."""
    where = f"{where}: the state of ingestion {ingestion}"
    if not isinstance(stored, dict):
        raise _broken(where, f"it is {stored!r:.80} and not an object")
    version = stored.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _broken(where, f"version is {version!r:.80}")
    if version > VERSION:
        raise FormatError(
            f"{where} has version {version}; this release of lakesql knows {VERSION}. Nothing was read. Use the "
            "release that wrote it."
        )
    partitions: dict[TopicPartition, PartitionState] = {}
    for topic, numbers in _mapping(stored.get("partitions", {}), where, "partitions").items():
        for number, one in _mapping(numbers, where, f"topic {topic}").items():
            if not (number.isascii() and number.isdigit() and len(number) <= 10 and int(number) < 2**31):
                raise _broken(where, f"{number!r} of topic {topic} is no partition number")
            at = TopicPartition(topic, int(number))
            partitions[at] = _partition(_mapping(one, where, str(at)), f"{where}, partition {at}")
    quarantine, metrics = stored.get("quarantine", []), stored.get("metrics", {})
    released = stored.get("released", [])
    for what, names in (("quarantine", quarantine), ("released", released)):
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise _broken(where, f"{what} is not a list of names")
    if not (isinstance(metrics, dict) and all(_is_real(v) for v in metrics.values())):
        raise _broken(where, "metrics are not numbers")
    run, at_ms, note = stored.get("run", ""), stored.get("at_ms", 0), stored.get("note", "")
    if not (isinstance(run, str) and isinstance(note, str) and _is_number(at_ms)):
        raise _broken(where, "run, note or at_ms is of the wrong type")
    return State(ingestion, run, at_ms, partitions, tuple(quarantine), metrics, note, tuple(released))


def _partition(stored: Mapping[str, Any], where: str) -> PartitionState:
    for name in ("next", "low"):
        if name not in stored:
            raise _broken(where, f"{name} is missing")
    values: dict[str, Any] = {}
    for field in fields(PartitionState):
        if field.name not in stored:
            continue
        value = stored[field.name]
        if value is None and _DEFAULTS.get(field.name, 0) is None:
            continue
        if field.name == "gap":
            fits = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
            value = tuple(value) if fits else value
        elif field.name in _FLOATS:
            fits = _is_real(value)
        else:
            fits = _is_number(value) if field.name in _NUMBERS else isinstance(value, str)
        if not fits:
            raise _broken(where, f"{field.name} is {value!r:.80}")
        values[field.name] = value
    if values["next"] < 0 or values["low"] < 0:
        raise _broken(where, "an offset is negative")
    return PartitionState(**values)


def _mapping(value: object, where: str, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _broken(where, f"{what} is {value!r:.80} and not an object")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _broken(where: str, what: str) -> FormatError:
    return FormatError(
        f"{where} cannot be read: {what}. Offsets are not guessed. Restore the commit or set the offsets with "
        "ALTER INGESTION ... SET OFFSETS."
    )


# ---------------------------------------------------------------- Hudi Streamer's text


def checkpoint_text(topic: str, offsets: Mapping[int, int]) -> str | None:
    """`topic,0:17,1:42`; None when Hudi Streamer could not read it back: no partition, or a comma in the name."""
    if not offsets or not topic or "," in topic:
        return None
    return ",".join([topic, *(f"{number}:{offset}" for number, offset in sorted(offsets.items()))])


def parse_checkpoint(text: str) -> tuple[str, dict[int, int]] | None:
    """Topic and next offsets of a checkpoint; None for the checkpoint of a source that is not Kafka."""
    match = _CHECKPOINT.fullmatch(text.strip())
    if match is None:
        return None
    pairs = [pair.split(":") for pair in match["offsets"][1:].split(",")]
    return match["topic"], {int(number): int(offset) for number, offset in pairs}


# ---------------------------------------------------------------- in commits


def found_in(state: TableState) -> Found:
    """What the newest commits say; the archive is asked only when the active timeline has nothing of ours."""
    found = find(active(state))
    if found.ingestions is not None:
        return found
    older = find(_archived(state))
    if found.checkpoints:
        return found._replace(ingestions=older.ingestions, ingestions_at=older.ingestions_at)
    return older


def _archived(state: TableState) -> Iterator[tuple[Instant, Mapping[str, str]]]:
    held = {i.requested for i in state.timeline.completed_writes()}
    for instant in reversed(state.history.completed_writes()):
        archived = state.archived.get(instant.requested)
        if instant.requested not in held and archived and archived.metadata:
            yield instant, archived.metadata.extra


def stored_in(found: Found, where: str) -> dict[str, Stored]:
    """The ingestions of a table by name. FormatError for JSON that is broken."""
    if found.ingestions is None:
        return {}
    where = f"{where}: commit {found.ingestions_at}"
    try:
        value = json.loads(found.ingestions)
    except (ValueError, RecursionError) as error:
        raise _broken(f"{where}: {INGESTIONS}", f"it is not JSON ({error})") from error
    return dict(_mapping(value, f"{where}: {INGESTIONS}", "it"))


def state_of(table: TableState, ingestion: str, topics: Collection[str] | None = None) -> tuple[State, str | None]:
    """The state of an ingestion, and the instant that says it; an empty one and None when there is none.

    A table that Hudi Streamer alone has written gives its checkpoint, when its topic is one of `topics` (None: any).
    """
    found = found_in(table)
    stored = stored_in(found, table.path)
    decoded = {name: decode(name, one, f"{table.path}: commit {found.ingestions_at}") for name, one in stored.items()}
    own = decoded.get(ingestion)
    text = parse_checkpoint(found.checkpoint or "")
    if text is None:
        return own or State(ingestion), found.ingestions_at if own else None
    topic, offsets = text
    holders = [name for name, one in decoded.items() if any(at.topic == topic for at in one.partitions)]
    if holders == [ingestion] and own is not None:
        moved = _moved(own, topic, offsets, found.checkpoints_at)
        return moved, found.ingestions_at if moved is own else found.checkpoints_at
    if own is None and not holders and (topics is None or topic in topics):
        begun = {TopicPartition(topic, number): PartitionState(offset, offset) for number, offset in offsets.items()}
        note = f"Offsets of topic {topic} are those of Hudi Streamer's commit {found.checkpoints_at}."
        return State(ingestion, partitions=begun, note=note), found.checkpoints_at
    return own or State(ingestion), found.ingestions_at if own else None


def _moved(own: State, topic: str, offsets: Mapping[int, int], instant: str | None) -> State:
    """A state with the offsets of a topic as a checkpoint says; itself when they are the same."""
    moved: dict[TopicPartition, PartitionState] = {}
    for number, offset in offsets.items():
        at = TopicPartition(topic, number)
        before = own.partitions.get(at)
        if before is None:
            moved[at] = PartitionState(offset, offset)
        elif before.next != offset:
            moved[at] = replace(before, next=offset, low=offset, leader_epoch=None, gap=None)
    if not moved:
        return own
    note = f"Hudi Streamer's commit {instant} moved the offsets of topic {topic}."
    return replace(own, partitions={**own.partitions, **moved}, note=note)


def extras_of(table: TableState, state: State) -> dict[str, str]:
    """The extraMetadata of a commit that brings this state: it, the other ingestions as they are, the checkpoint."""
    found = found_in(table)
    stored = {**stored_in(found, table.path), state.ingestion: encode(state)}
    extras = {INGESTIONS: json.dumps(stored, separators=(",", ":"), ensure_ascii=True, sort_keys=True)}
    topics = {topic for one in stored.values() for topic in _mapping(one.get("partitions", {}), table.path, "it")}
    before = parse_checkpoint(found.checkpoint or "")
    if found.checkpoint and (before is None or before[0] not in topics):
        return {**extras, **found.checkpoints}  # of a Hudi Streamer that reads something else
    if len(stored) == len(topics) == 1:
        (topic,) = topics
        text = checkpoint_text(topic, {at.partition: one.next for at, one in state.partitions.items()})
        if text is not None:
            extras[CHECKPOINT] = text
    return extras


# ---------------------------------------------------------------- its history

RUNS = pa.schema(
    [
        pa.field("instant", pa.string()),
        pa.field("ingestion", pa.string()),
        pa.field("run", pa.string()),
        pa.field("at", pa.timestamp("ms", "UTC")),
        pa.field("partitions", pa.int32()),
        pa.field("records", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("quarantined", pa.int64()),
        pa.field("deletes", pa.int64()),
        pa.field("lost", pa.int64()),
        pa.field(
            "offsets",
            pa.list_(
                pa.struct(
                    [("topic", pa.string()), ("partition", pa.int32()), ("low", pa.int64()), ("next", pa.int64())]
                )
            ),
        ),
        pa.field("note", pa.string()),
    ]
)


def all_states(table: TableState) -> Iterator[tuple[str, State]]:
    """(instant, state) of every commit that brought one, the oldest first; copies of other commits are left out."""
    known: dict[str, Stored] = {}
    for instant in table.history.completed_writes():
        text = table.commit(instant).extra.get(INGESTIONS)
        if not text:
            continue
        stored = stored_in(Found(text, instant.requested), table.path)
        for name, one in sorted(stored.items()):
            if one != known.get(name):
                yield instant.requested, decode(name, one, f"{table.path}: commit {instant.requested}")
        known = stored


def runs_table(table: TableState, ingestion: str | None = None) -> pa.Table:
    """The commits of an ingestion into a table, or of all (`kafka_ingest_runs`)."""
    return runs((instant, state) for instant, state in all_states(table) if ingestion in (None, state.ingestion))


def runs(commits: Iterable[tuple[str, State]]) -> pa.Table:
    """Commits, each with its name, as rows: numbers of the commit, offsets after it."""
    rows = []
    for instant, state in commits:
        ones = [(at, one) for at, one in sorted(state.partitions.items())]
        totals = {name: sum(getattr(one, name) for _, one in ones) for name in ("records", "bytes", "quarantined")}
        totals |= {name: sum(getattr(one, name) for _, one in ones) for name in ("deletes", "lost")}
        offsets = [{"topic": at.topic, "partition": at.partition, "low": o.low, "next": o.next} for at, o in ones]
        row = {"instant": instant, "ingestion": state.ingestion, "run": state.run, "at": state.at_ms}
        rows.append({**row, **totals, "partitions": len(ones), "offsets": offsets, "note": state.note or None})
    return pa.Table.from_pylist(rows, RUNS)
