"""The sentences of a plan: what is skipped, what is lost, what cannot be read. One for each kind, however many partitions."""

from collections.abc import Iterable, Mapping, Sequence

from lakesql.counted import counted
from lakesql.ingest.model import Job, Range, TopicPartition
from lakesql.ingest.offsets import Refused, Start
from lakesql.ingest.packing import SLACK, Packed
from lakesql.ingest.weights import NOTHING_SEEN_BYTES

_NAMED = 3
_Starts = Mapping[TopicPartition, Start]


def notes_of(
    job: Job,
    starts: _Starts,
    refused: Mapping[TopicPartition, Refused],
    carried: Mapping[TopicPartition, str],
    absent: Sequence[str],
    missing: Mapping[TopicPartition, float],
    packed: Packed,
) -> tuple[str, ...]:
    """All sentences, losses first."""
    by_kind: dict[str, dict[TopicPartition, Start]] = {}
    for at, start in starts.items():
        by_kind.setdefault(start.kind, {})[at] = start
    found = [
        *_losses(job, by_kind),
        *_unread(by_kind, refused),
        *_given_up(by_kind, refused),
        *_gone(carried, missing),
        *(f"There is no topic {name}, which topic.whitelist names." for name in absent),
        *_packing(job, packed),
    ]
    return tuple(found)


def assumed_bytes(ranges: Iterable[Range]) -> tuple[str, ...]:
    """What a plan that is looked at says about its estimates of bytes: which of them no run has measured."""
    these = [one for one in ranges if one.bytes_assumed]
    if not these:
        return ()
    size = sum(one.expected_bytes for one in these)
    return (
        f"The expected bytes of {counted(len(these), 'partition')} ({size:,.0f}) are an assumption, {NOTHING_SEEN_BYTES:,.0f} bytes for each"
        f" record: no run has read them yet ({_named(str(one.at) for one in these)}).",
    )


def _losses(job: Job, by_kind: Mapping[str, _Starts]) -> list[str]:
    found = []
    lost = {at: s for starts in by_kind.values() for at, s in starts.items() if s.gap}
    if lost:
        records = sum(s.gap[1] - s.gap[0] for s in lost.values() if s.gap)
        ranges = _named(f"{at} from {s.gap[0]} to {s.gap[1]}" for at, s in lost.items() if s.gap)
        found.append(
            f"Lost: {counted(records, 'record')} of {counted(len(lost), 'partition')} between the stored offset and where reading goes on ({ranges})."
        )
    if above := by_kind.get("reset above"):
        ranges = _named(f"{at} at {s.stored}, goes on at {s.low}" for at, s in above.items())
        what = (
            "records may be read twice"
            if job.reset == "earliest"
            else "records written since then below that offset are not read"
        )
        found.append(
            f"The stored offset of {counted(len(above), 'partition')} is above the end: the log was cut, or the topic made again without an id to"
            f" tell it by ({ranges}); {what}."
        )
    if again := by_kind.get("recreated"):
        ranges = _named(f"{at} at {s.low}, stored was {s.stored}" for at, s in again.items())
        found.append(
            f"Topics deleted and made again: {counted(len(again), 'partition')} with a new beginning ({ranges}); what was not read of the old one is lost."
        )
    return found


def _unread(by_kind: Mapping[str, _Starts], refused: Mapping[TopicPartition, Refused]) -> list[str]:
    found = []
    failed = {at: s.error or "" for at, s in by_kind.get("unknown", {}).items()}
    failed |= {at: one.why for at, one in refused.items() if one.failed}
    if failed:
        reasons = _named(f"{at}: {why}" for at, why in sorted(failed.items()))
        found.append(f"Cannot be read now: {counted(len(failed), 'partition')}; stored offsets are kept ({reasons}).")
    if kept := by_kind.get("skip"):
        reasons = _named(f"{at}: {s.error}" for at, s in kept.items())
        found.append(f"Left where they are by the reset rule: {counted(len(kept), 'partition')} ({reasons}).")
    return found


def _given_up(by_kind: Mapping[str, _Starts], refused: Mapping[TopicPartition, Refused]) -> list[str]:
    found = []
    behind = {at: s for at, s in by_kind.get("bootstrap", {}).items() if s.skipped}
    for reason in sorted({s.reason for s in behind.values()}):
        these = {at: s for at, s in behind.items() if s.reason == reason}
        found.append(
            f"Skipped: {counted(sum(s.skipped for s in these.values()), 'record')} of {counted(len(these), 'partition')} without a stored offset"
            f" lie before its start ({reason}; {_named(f'{at} starts at {s.low}' for at, s in these.items())})."
        )
    again = {at: s for at, s in by_kind.get("recreated", {}).items() if s.skipped}
    moved = {at: s for at, s in by_kind.get("moved", {}).items() if s.skipped} | again
    if moved:
        what = (
            "topics.move.to.latest.offset"
            if not again
            else "the start of new partitions and topics.move.to.latest.offset"
        )
        found.append(
            f"Skipped: {counted(sum(s.skipped for s in moved.values()), 'record')} of {counted(len(moved), 'partition')} are given up by {what}"
            f" ({_named(f'{at} goes on at {s.low}' for at, s in moved.items())})."
        )
    asked = {at: one for at, one in refused.items() if not one.failed}
    if asked:
        found.append(
            f"Left new and unread: {counted(len(asked), 'partition')}, since {next(iter(asked.values())).why} ({_named(map(str, asked))})."
        )
    return found


def _gone(carried: Mapping[TopicPartition, str], missing: Mapping[TopicPartition, float]) -> list[str]:
    found = []
    for why in ("the topic is gone", "the partition is gone", "the topic is not selected"):
        these = [at for at, reason in carried.items() if reason == why]
        if these:
            longest = max((missing.get(at, 0.0) for at in these), default=0.0)
            since = f", for {longest:,.0f} seconds at most" if longest else ""
            found.append(
                f"The offsets of {counted(len(these), 'partition')} are carried on: {why}{since} ({_named(map(str, sorted(these)))})."
            )
    return found


def _packing(job: Job, packed: Packed) -> list[str]:
    found = []
    if packed.cut:
        found.append(
            f"Cut off groups: {counted(packed.cut, 'piece')}, so that no task is more than {SLACK - 1:.0%} above the lightest possible."
        )
    if packed.heaviest > SLACK * packed.bound * (1 + 1e-9):
        found.append(
            f"The heaviest task weighs {packed.heaviest / packed.bound:.2f} times what balanced tasks would: single partitions are too heavy to"
            f" spread, or {'the packer' if job.packer == 'CUSTOM' else 'lakesql.packing.even'} leaves it so."
        )
    return found


def _named(texts: Iterable[str]) -> str:
    """The first few, and how many more."""
    found = list(texts)
    more = f", and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more
