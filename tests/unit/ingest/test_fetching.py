"""Batches of a reader come in groups: large ones while much is there, at once when little is."""

import gc
import threading

import pyarrow as pa
import pytest

from lakesql.ingest import fetching
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
