"""Limits of a task: where they stop, and that reading on from there gives every record once."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.errors import JobError
from lakesql.ingest.limits import cut, limited, permits
from lakesql.ingest.model import Fetched, Limit, Position, TopicPartition
from tests.unit.ingest.fetches import raw, reader

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
HIGH = 40
LOGS = st.fixed_dictionaries(
    {at: st.lists(st.integers(0, HIGH - 1), unique=True, max_size=15).map(sorted) for at in (A, B, C)}
)
ORDER = st.lists(st.sampled_from([A, B, C]), max_size=40)


class Clock:
    """Time that passes only by sleeping, and by `step` at each look."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def values(fetches):
    return [value.as_py().decode() for fetched in fetches for value in fetched.batch.column("_value")]


def positions(fetches, start):
    """Where each partition stands after these fetches."""
    found = dict(start)
    for fetched in fetches:
        found.update({at: position.next for at, position in fetched.positions.items()})
    return found


def everything(logs):
    return sorted(f"{at}@{offset}" for at, log in logs.items() for offset in log)


@settings(max_examples=150, deadline=None)
@given(logs=LOGS, order=ORDER, sizes=st.lists(st.integers(1, 9), max_size=8), amount=st.integers(1, 12))
def test_reading_on_after_a_count_limit_gives_every_record_once(logs, order, sizes, amount):
    start, got, runs = dict.fromkeys(logs, 0), [], 0
    while any(at < HIGH for at in start.values()):
        fetches = list(limited(reader(logs, order, sizes, start, HIGH), Limit("count", amount)))
        assert len(values(fetches)) <= amount
        got += values(fetches)
        start = positions(fetches, start)
        runs += 1
        assert runs < 60
    assert sorted(got) == everything(logs)


@settings(max_examples=80, deadline=None)
@given(
    logs=LOGS, order=ORDER, sizes=st.lists(st.integers(1, 20), max_size=8), rate=st.integers(1, 7), stop=st.integers()
)
def test_a_slowed_reader_drops_nothing_and_can_be_left_anywhere(logs, order, sizes, rate, stop):
    start, clock = dict.fromkeys(logs, 0), Clock()
    fetches = list(
        limited(reader(logs, order, sizes, start, HIGH), Limit("rate", rate), clock=clock, sleep=clock.sleep)
    )
    assert sorted(values(fetches)) == everything(logs)
    assert frozenset().union(*(fetched.done for fetched in fetches)) == logs.keys()
    left = fetches[: stop % (len(fetches) + 1)]
    rest = reader(logs, order, sizes, positions(left, start), HIGH)
    assert sorted(values(left) + values(rest)) == everything(logs)


@settings(max_examples=100, deadline=None)
@given(
    records=st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=20),
    at=st.integers(0, 20),
    failed=st.sets(st.sampled_from([A, B, C])),
)
def test_both_parts_of_a_cut_say_what_is_theirs(records, at, failed):
    numbered = [(one, 2 * number) for number, one in enumerate(records)]
    ends = {one: Position(offset + 1, 3) for one, offset in numbered}
    whole = Fetched(
        raw(numbered), ends, frozenset(ends) - failed, dict.fromkeys(failed & ends.keys(), "x"), {records[0]: 0}
    )
    head, tail = cut(whole, min(at, len(records)))
    assert values([head, tail]) == values([whole])
    for one in ends:
        behind = [offset for other, offset in numbered[at:] if other == one]
        assert head.positions[one].next == (behind[0] if behind else ends[one].next)
        assert (one in tail.positions) == bool(behind)
    assert head.done | tail.done == whole.done
    assert not head.done & tail.done
    assert {**head.failed, **tail.failed} == whole.failed
    assert (head.moved, tail.moved) == (whole.moved, {})


def test_a_count_limit_stops_at_the_record_and_closes_the_reader():
    source = reader({A: range(10)}, [], [8], {A: 0}, 10)
    (only,) = limited(source, Limit("count", 3))
    assert (only.batch.num_rows, only.positions[A].next, only.done) == (3, 3, frozenset())
    assert list(source) == []


def test_a_count_limit_of_exactly_all_records_ends_with_all_done():
    (only,) = limited(reader({A: range(8)}, [], [8], {A: 0}, 8), Limit("count", 8))
    assert only.done == {A}


def test_a_time_limit_stops_between_batches():
    fetches = list(limited(reader({A: range(10)}, [], [2] * 5, {A: 0}, 10), Limit("time", 3.5), clock=Clock(1.0)))
    assert [fetched.batch.num_rows for fetched in fetches] == [2, 2, 2]
    assert fetches[-1].positions[A].next == 6


@pytest.mark.parametrize(("amount", "per_s"), [(10, 1.0), (0.01, 0.001), (600, 60.0)])
def test_a_rate_limit_waits_and_units_below_a_second_count(amount, per_s):
    clock = Clock()
    limit = Limit("rate", amount, per_s)  # 10 records a second in three units
    fetches = list(limited(reader({A: range(95)}, [], [50, 45], {A: 0}, 95), limit, clock=clock, sleep=clock.sleep))
    assert len(values(fetches)) == 95
    assert max(fetched.batch.num_rows for fetched in fetches) == 10
    assert clock.now == pytest.approx(9.5, abs=0.6)


def test_time_in_which_nothing_came_is_not_made_up_for_by_a_rate_limit():
    clock = Clock()

    def slow():
        for fetched in reader({A: range(40)}, [], [20, 20], {A: 0}, 40):
            clock.now += 100
            yield fetched

    fetches = limited(slow(), Limit("rate", 10), clock=clock, sleep=clock.sleep)
    times = [clock.now for fetched in fetches if fetched.batch.num_rows]
    assert times == pytest.approx([100, 101, 201, 202])


def test_a_pool_lets_so_many_tasks_read_at_a_time():
    limit = Limit("pool", 2)
    pool = permits(limit)
    state, lock, most = [0], threading.Lock(), []
    ready = threading.Barrier(6)

    def source():
        with lock:
            state[0] += 1
            most.append(state[0])
        yield from reader({A: range(3)}, [], [1] * 3, {A: 0}, 3)
        with lock:
            state[0] -= 1

    def task(found):
        ready.wait()
        found += values(limited(source(), limit, pool))

    results = [[] for _ in range(6)]
    threads = [threading.Thread(target=task, args=(found,)) for found in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(found) == 3 for found in results)
    assert max(most) <= 2


def test_a_task_that_is_left_gives_its_permit_back():
    limit = Limit("pool", 1)
    pool = permits(limit)
    left = limited(reader({A: range(3)}, [], [1] * 3, {A: 0}, 3), limit, pool)
    next(left)
    assert not pool.acquire(blocking=False)
    left.close()
    assert len(values(limited(reader({A: range(3)}, [], [1] * 3, {A: 0}, 3), limit, pool))) == 3


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (Limit("depth", 1), "extract.limit.type: 'depth' is none of count, time, rate, pool"),
        (Limit("rate", 0), "0 records in 1 s is no rate"),
        (Limit("rate", 5, 0.0), "5 records in 0 s is no rate"),
        (Limit("pool", 0), "0 tasks at a time is less than one"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(limit, words):
    with pytest.raises(JobError, match=words):
        limited(iter(()), limit)


def test_without_a_limit_the_reader_is_given_as_it_is():
    source = iter(())
    assert limited(source, None) is source
    assert permits(None) is None
