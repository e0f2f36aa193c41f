"""Where a partition begins: each decision by itself, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesql.ingest.model import Bounds, PartitionState
from lakesql.ingest.offsets import Policy, Refused, Start, decide, policy_of
from tests.unit.ingest.cluster import job

IN, PLAIN = Bounds(100, 200), Policy()


def stored(offset: int, topic_id: str | None = None) -> PartitionState:
    return PartitionState(next=offset, low=0, topic_id=topic_id, leader_epoch=7)


def start(
    bounds: Bounds | None,
    before: PartitionState | None,
    policy: Policy = PLAIN,
    topic_id: str | None = None,
    **more: object,
) -> Start:
    found = decide(bounds, before, topic_id, policy, **more)  # type: ignore[arg-type]
    assert isinstance(found, Start)
    return found


def refused(bounds: Bounds | None, before: PartitionState | None, policy: Policy = PLAIN, **more: object) -> Refused:
    found = decide(bounds, before, None, policy, **more)  # type: ignore[arg-type]
    assert isinstance(found, Refused)
    return found


@pytest.mark.parametrize("offset", [100, 150, 200])
def test_a_stored_offset_within_the_bounds_is_where_reading_goes_on(offset: int) -> None:
    found = start(IN, stored(offset))
    assert (found.low, found.high, found.reason, found.gap, found.skipped) == (offset, 200, "stored", None, 0)
    assert found.leader_epoch == 7


@pytest.mark.parametrize(("how", "low", "skipped"), [("latest", 200, 100), ("earliest", 100, 0)])
def test_a_new_partition_starts_by_bootstrap(how: str, low: int, skipped: int) -> None:
    found = start(IN, None, Policy(how))
    assert (found.low, found.high, found.skipped, found.reason) == (low, 200, skipped, f"bootstrap {how}")


@pytest.mark.parametrize(("reset", "low"), [("nearest", 100), ("earliest", 100), ("fail", 100), ("latest", 200)])
def test_lookback_below_the_earliest_offset_follows_the_reset_rule(reset: str, low: int) -> None:
    assert start(IN, None, Policy("offset_lookback", lookback=30)).low == 170
    assert start(IN, None, Policy("offset_lookback", lookback=1000, reset=reset)).low == low
    assert not refused(IN, None, Policy("offset_lookback", lookback=1000, reset="skip")).failed


def test_a_new_partition_that_is_to_be_skipped_stays_new() -> None:
    assert not refused(IN, None, Policy("skip")).failed
    assert start(IN, stored(-1), Policy("earliest")).reason == "bootstrap earliest"  # -1 counts as none


@pytest.mark.parametrize(("offset", "low"), [(150, 150), (5, 100), (900, 200)])
def test_a_start_by_time_stays_within_the_bounds(offset: int, low: int) -> None:
    found = start(IN, None, Policy("timestamp", at_ms=1), at_time=offset)
    assert (found.low, found.skipped) == (low, low - 100)
    assert refused(IN, None, Policy("timestamp", at_ms=1)).failed


def test_a_partition_added_to_a_known_topic_may_start_at_its_earliest_record() -> None:
    assert start(IN, None, Policy("latest"), added=True).low == 200
    assert start(IN, None, Policy("latest", added="earliest"), added=True).low == 100
    assert start(IN, None, Policy("latest", added="earliest"), added=False).low == 200


@pytest.mark.parametrize(
    ("reset", "low", "gap"),
    [("nearest", 100, (40, 100)), ("earliest", 100, (40, 100)), ("latest", 200, (40, 200))],
)
def test_retention_that_overtook_the_stored_offset_leaves_a_counted_gap(
    reset: str, low: int, gap: tuple[int, int]
) -> None:
    found = start(IN, stored(40), Policy(reset=reset))
    assert (found.low, found.high, found.gap) == (low, 200, gap)


@pytest.mark.parametrize(("reset", "low"), [("nearest", 200), ("latest", 200), ("earliest", 100)])
def test_a_stored_offset_past_the_end_goes_to_the_end_and_not_to_the_start(reset: str, low: int) -> None:
    found = start(IN, stored(201), Policy(reset=reset))
    assert (found.low, found.gap, found.kind) == (low, None, "reset above")


@pytest.mark.parametrize("reset", ["skip", "fail"])
@pytest.mark.parametrize("offset", [40, 201])
def test_skip_and_fail_keep_the_stored_offset_and_say_why(reset: str, offset: int) -> None:
    found = start(IN, stored(offset), Policy(reset=reset))
    assert (found.low, found.high, found.kind) == (offset, offset, reset)
    assert f"{offset}" in (found.error or "")


@pytest.mark.parametrize("bounds", [None, Bounds(error="leader not available"), Bounds(-1, -1), Bounds(5, 4)])
def test_offsets_that_could_not_be_had_keep_the_stored_one(bounds: Bounds | None) -> None:
    found = start(bounds, stored(40), Policy(to_latest=True))
    assert (found.low, found.high, found.kind) == (40, 40, "unknown")
    assert found.error
    assert refused(bounds, None).failed


def test_a_topic_that_jumps_to_its_end_counts_what_it_gives_up() -> None:
    jump = Policy(to_latest=True)
    assert start(IN, stored(150), jump)[:2] == (200, 200)
    assert start(IN, stored(150), jump).skipped == 50
    assert start(IN, None, jump).skipped == 100
    assert start(IN, stored(40), jump).gap == (40, 100)
    assert start(IN, stored(40), jump).skipped == 100


def test_a_topic_made_again_begins_as_a_new_one() -> None:
    found = start(IN, stored(150, "old"), Policy("earliest"), "new")
    assert (found.low, found.reason, found.topic_id, found.stored) == (
        100,
        "new topic id: bootstrap earliest",
        "new",
        150,
    )
    kept = start(IN, stored(150, "old"), Policy("skip"), "new")
    assert (kept.low, kept.high, kept.topic_id) == (150, 150, "old")  # the next run notices again
    assert start(IN, stored(150, "same"), topic_id="same").reason == "stored"
    assert start(IN, stored(150, None), topic_id="first").topic_id == "first"
    assert start(IN, stored(150, "known"), topic_id=None).topic_id == "known"


offsets = st.integers(0, 1000)
policies = st.builds(
    Policy,
    st.sampled_from(["latest", "earliest", "offset_lookback", "timestamp", "skip"]),
    st.integers(0, 500),
    st.just(1),
    st.sampled_from(["nearest", "earliest", "latest", "skip", "fail"]),
    st.booleans(),
    st.sampled_from(["bootstrap", "earliest"]),
)


@given(
    offsets, offsets, st.none() | st.integers(-1, 1500), policies, st.booleans(), st.booleans(), st.integers(0, 1500)
)
def test_ranges_stay_within_the_bounds_and_every_lost_record_is_counted(
    one: int, other: int, before: int | None, policy: Policy, again: bool, added: bool, at_time: int
) -> None:
    earliest, latest = min(one, other), max(one, other)
    kept = None if before is None else stored(before, "old")
    found = decide(Bounds(earliest, latest), kept, "new" if again else "old", policy, added=added, at_time=at_time)
    fresh = before is None or before < 0
    if isinstance(found, Refused):
        assert fresh  # a stored offset is never without a range
        return
    assert found.low <= found.high
    if found.low == found.high == before:
        return  # carried on, or nothing new
    assert earliest <= found.low <= found.high == latest
    if fresh or again:
        assert found.skipped == found.low - earliest  # all that lies before is told
    elif before is not None and before <= latest:
        told = (found.gap[1] - found.gap[0] if found.gap else 0) + found.skipped
        assert told == found.low - before
    if found.gap:
        assert found.gap[0] == before
        assert found.gap[1] <= found.low


def test_policies_of_a_topic_win_over_those_of_the_job() -> None:
    plain = job(
        bootstrap="earliest",
        to_latest=frozenset({"t"}),
        settings={"lakesql.bootstrap.timestamp": "1970-01-01T00:00:01"},
    )
    assert policy_of(plain, "T", {}) == Policy("earliest", 0, 1000, "nearest", True)
    own = {
        "bootstrap.with.offset": "OFFSET_LOOKBACK",
        "kafka.offset.lookback": "5",
        "reset.on.offset.out.of.range": "fail",
    }
    assert policy_of(plain, "u", own) == Policy("offset_lookback", 5, 1000, "fail", False)
