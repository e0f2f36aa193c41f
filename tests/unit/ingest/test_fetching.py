"""Batches of a reader come in groups: large ones while much is there, at once when little is."""

import gc
import threading
import time
import weakref

import pyarrow as pa
import pytest

from lakesql.ingest import collector, fetching
from lakesql.ingest.collector import without_collector
from lakesql.ingest.kafka_columns import empty_batch
from lakesql.ingest.model import RAW, Fetched


def of(rows: int) -> Fetched:
    columns = [pa.nulls(rows, field.type) if field.name != "_topic" else topic(rows) for field in RAW]
    return Fetched(pa.RecordBatch.from_arrays(columns, RAW.names), {}, frozenset(), {}, {})


def topic(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["a"]))


def sizes(groups):
    return [[one.batch.num_rows for one in group] for group in groups]


class Clock:
    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_groups_are_as_large_as_the_bound(monkeypatch):
    monkeypatch.setattr(fetching, "GROUP_ROWS", 5)
    given = iter([of(3), of(3), of(3), of(1)])
    assert sizes(fetching.groups(given, threading.Event(), Clock(0.0))) == [[3, 3], [3, 1]]


def test_records_that_trickle_wait_a_quarter_of_a_second_at_most():
    given = iter([of(1) for _ in range(6)])
    assert sizes(fetching.groups(given, threading.Event(), Clock(0.1))) == [[1, 1, 1], [1, 1, 1]]


def test_a_reader_that_has_nothing_more_for_now_ends_a_group():
    given = iter([of(2), Fetched(empty_batch(), {}, frozenset(), {}, {}), of(1)])
    assert sizes(fetching.groups(given, threading.Event(), Clock(0.0))) == [[2, 0], [1]]


def test_what_came_before_an_error_is_given_before_it():
    def reader():
        yield of(2)
        raise OSError("torn")

    groups = fetching.groups(reader(), threading.Event(), Clock(0.0))
    assert sizes([next(groups)]) == [[2]]
    with pytest.raises(OSError, match="torn"):
        next(groups)


@pytest.mark.parametrize("way", ["stop", "close"])
def test_leaving_closes_the_reader_and_gives_nothing_more(way, monkeypatch):
    monkeypatch.setattr(fetching, "GROUP_ROWS", 1)
    closed = []

    def reader():
        try:
            while True:
                yield of(1)
        finally:
            closed.append(True)

    stop = threading.Event()
    groups = fetching.groups(reader(), stop)
    next(groups)
    if way == "stop":
        stop.set()
        assert list(groups) == []
    groups.close()
    assert closed == [True]


def test_the_collector_rests_while_any_thread_is_within_and_is_back_after_an_error():
    assert gc.isenabled()
    with without_collector():
        with pytest.raises(ValueError, match="x"), without_collector():
            raise ValueError("x")
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class Node:
    """One that holds itself: only the collector removes it."""

    def __init__(self):
        self.own = self


def left_at(clock, seconds):
    """The generation that is collected when a block within another is left at that time."""
    found = []

    def heard(phase, info):
        if phase == "start":
            found.append(info["generation"])

    clock[0] = seconds
    gc.callbacks.append(heard)
    try:
        with without_collector(lambda: clock[0]):
            pass
    finally:
        gc.callbacks.remove(heard)
    return found


def test_a_rest_that_goes_on_is_broken_by_collections_of_what_is_young_and_each_minute_of_all():
    clock = [100.0]
    with without_collector(lambda: clock[0]):
        lost = weakref.ref(Node())
        assert [left_at(clock, 100 + s) for s in (0, 4.9)] == [[], []]
        assert lost() is not None
        assert [left_at(clock, 100 + s) for s in (5, 5.1, 9.9, 10)] == [[1], [], [], [1]]
        assert lost() is None
        assert [left_at(clock, 100 + s) for s in (59.9, 60, 64.9, 65)] == [[1], [2], [], [1]]
        assert not gc.isenabled()
    with without_collector(lambda: clock[0]):  # another rest begins anew
        assert left_at(clock, 169) == []


def test_threads_that_never_rest_all_at_once_do_not_keep_cycles(monkeypatch):
    monkeypatch.setattr(collector, "YOUNG_S", 0.05)
    found, stop = [], threading.Event()

    def task():
        while not stop.is_set():
            with without_collector():
                found.append(weakref.ref(Node()))
                time.sleep(0.01)

    with without_collector():
        threads = [threading.Thread(target=task) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        assert sum(one() is not None for one in found) < len(found) / 2
    assert gc.isenabled()


def test_a_collector_that_was_off_is_not_asked_to_collect():
    clock = [0.0]
    gc.disable()
    try:
        with without_collector(lambda: clock[0]):
            assert left_at(clock, 1000) == []
    finally:
        gc.enable()
