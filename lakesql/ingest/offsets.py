"""Where the reading of one partition begins and ends: the order of decisions of kafka-ingestion 2.1, without its defects.

A stored offset is never lost: what cannot be read keeps it in an empty range. Whatever is not going to be read is counted:
`gap` what a stored offset should still have got, `skipped` what was given up by a start or a move. All bounds are fixed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lakesql.ingest.model import Bounds, Job, PartitionState
from lakesql.ingest.setting_values import moment

AT = "lakesql.bootstrap.timestamp"
LEFT = "new topic id: skipped"
"""Reason of a range that keeps the offset of a topic that is no more, since its successor is not to be read."""
ADDED = "lakesql.bootstrap.added.partitions"


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for the partitions of one topic. `added`: 'earliest' or 'bootstrap', for partitions that came later."""

    bootstrap: str = "latest"
    lookback: int = 0
    at_ms: int | None = None
    reset: str = "nearest"
    to_latest: bool = False
    added: str = "bootstrap"


class Start(NamedTuple):
    """The decision about one partition: the fields of its Range. `kind` sorts it for the notes of the plan."""

    low: int
    high: int
    reason: str
    kind: str = "stored"
    stored: int | None = None
    gap: tuple[int, int] | None = None
    skipped: int = 0
    topic_id: str | None = None
    leader_epoch: int | None = None
    error: str | None = None


class Refused(NamedTuple):
    """A partition without a range: why, and whether that is a failure rather than what was asked for."""

    why: str
    failed: bool


def policy_of(job: Job, topic: str, own: Mapping[str, str]) -> Policy:
    """The policy of a job for a topic with settings of its own."""
    at = own.get(AT, job.settings.get(AT))
    return Policy(
        bootstrap=own.get("bootstrap.with.offset", job.bootstrap).lower(),
        lookback=int(own.get("kafka.offset.lookback", job.lookback)),
        at_ms=moment(at) if at else None,
        reset=own.get("reset.on.offset.out.of.range", job.reset).lower(),
        to_latest="all" in job.to_latest or topic.lower() in job.to_latest,
        added=own.get(ADDED, job.settings.get(ADDED, "bootstrap")).lower(),
    )


def is_new(stored: PartitionState | None, topic_id: str | None) -> bool:
    """Whether a partition has no offset to go on from: none stored, or one of a topic that was deleted and made again."""
    return stored is None or stored.next < 0 or _another(stored, topic_id)


def decide(
    bounds: Bounds | None,
    stored: PartitionState | None,
    topic_id: str | None,
    policy: Policy,
    *,
    added: bool = False,
    at_time: int | None = None,
) -> Start | Refused:
    """The range of one partition.

    added     the partition was not there when its topic was read before
    at_time   the offset of policy.at_ms, where that was asked for
    """
    before = stored if stored is not None and stored.next >= 0 else None
    if bounds is None or bounds.error is not None or not 0 <= bounds.earliest <= bounds.latest:
        return _unknown(bounds, before)
    earliest, latest = bounds.earliest, bounds.latest
    if before is None:
        if policy.to_latest:
            return Start(latest, latest, "moved to latest", "moved", None, None, latest - earliest, topic_id)
        return _bootstrap(earliest, latest, topic_id, policy, added, at_time)
    if _another(before, topic_id):
        return _new_topic(earliest, latest, topic_id, before, policy, at_time)
    at, id_now = before.next, topic_id or before.topic_id
    if policy.to_latest:
        gap = (at, earliest) if at < earliest else None
        return Start(latest, latest, "moved to latest", "moved", at, gap, max(0, latest - max(at, earliest)), id_now)
    if earliest <= at <= latest:
        return Start(at, latest, "stored", "stored", at, None, 0, id_now, before.leader_epoch)
    return _reset(earliest, latest, at, id_now, policy)


def _another(stored: PartitionState, topic_id: str | None) -> bool:
    return topic_id is not None and stored.topic_id is not None and topic_id != stored.topic_id


def _kept(before: PartitionState, reason: str, kind: str, error: str | None) -> Start:
    """An empty range that carries the stored offset on."""
    at = before.next
    return Start(at, at, reason, kind, at, None, 0, before.topic_id, before.leader_epoch, error)


def _unknown(bounds: Bounds | None, before: PartitionState | None) -> Start | Refused:
    """Offsets could not be had: the stored one survives, or the partition stays new (D2)."""
    if bounds is None:
        why = "the brokers gave no offsets"
    else:
        why = bounds.error or f"the brokers gave the offsets {bounds.earliest} to {bounds.latest}"
    return Refused(why, failed=True) if before is None else _kept(before, "offsets unknown", "unknown", why)


def _bootstrap(
    earliest: int, latest: int, topic_id: str | None, policy: Policy, added: bool, at_time: int | None
) -> Start | Refused:
    """The start of a partition without a stored offset (R19)."""
    how = "earliest" if added and policy.added == "earliest" else policy.bootstrap
    low = latest
    if how == "earliest":
        low = earliest
    elif how == "timestamp":
        if at_time is None:
            return Refused(f"the offset of the time {policy.at_ms} could not be had", failed=True)
        low = min(max(at_time, earliest), latest)
    elif how == "offset_lookback":
        low = latest - policy.lookback
        if low < earliest and policy.reset == "skip":
            return Refused(
                "kafka.offset.lookback reaches below the earliest offset and the reset rule is skip", failed=False
            )
        if low < earliest:
            low = latest if policy.reset == "latest" else earliest
    elif how == "skip":
        return Refused("bootstrap.with.offset is skip", failed=False)
    return Start(low, latest, f"bootstrap {how}", "bootstrap", None, None, low - earliest, topic_id)


def _new_topic(
    earliest: int, latest: int, topic_id: str | None, before: PartitionState, policy: Policy, at_time: int | None
) -> Start:
    """A topic under the same name with another id: its offsets have nothing to do with the stored one (4.4)."""
    if policy.to_latest:
        return Start(
            latest, latest, "new topic id: moved to latest", "recreated", before.next, None, latest - earliest, topic_id
        )
    start = _bootstrap(earliest, latest, topic_id, policy, False, at_time)
    if isinstance(start, Refused):
        error = start.why if start.failed else None
        return _kept(before, LEFT, "recreated", error)
    return start._replace(reason=f"new topic id: {start.reason}", kind="recreated", stored=before.next)


def _reset(earliest: int, latest: int, at: int, topic_id: str | None, policy: Policy) -> Start:
    """A stored offset that is no longer in the partition (R20, C3): the gap is told, never closed silently."""
    side = "below" if at < earliest else "above"
    if policy.reset in ("skip", "fail"):
        why = f"the stored offset {at} is {side} the offsets there are ({earliest} to {latest}) and the reset rule is {policy.reset}"
        return Start(at, at, f"reset {policy.reset}", policy.reset, at, None, 0, topic_id, None, why)
    to = policy.reset
    if to == "nearest":
        to = "earliest" if side == "below" else "latest"
    low = earliest if to == "earliest" else latest
    gap = (at, low) if low > at else None
    return Start(low, latest, f"reset {policy.reset}: {to}", f"reset {side}", at, gap, 0, topic_id)
