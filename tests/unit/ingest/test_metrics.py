"""Counters, meters, histograms and events: right, bounded, and safe between threads."""

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from lakesql.ingest import metrics as module
from lakesql.ingest.meters import Histogram, Meter
from lakesql.ingest.metrics import Metrics, current, scoped
from lakesql.ingest.openmetrics import openmetrics


def test_counters_of_all_tasks_sum_up_in_the_job():
    job = Metrics("job")
    one, two = job.task("task-0"), job.task("task-1")
    one.count("num.of.decoding.errors", 2)
    two.count("num.of.decoding.errors")
    two.mark("records", 10)
    job.count("job.commits")
    assert job.totals() == {"job.commits": 1, "num.of.decoding.errors": 3, "records": 10}


def test_many_threads_lose_no_count():
    scope = Metrics("job")

    def work():
        for _ in range(2000):
            scope.count("a")
            scope.mark("b", 2)
            scope.observe("c", [1.0, 2.0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scope.totals() == {"a": 8000, "b": 16000}
    assert {row["measure"]: row["value"] for row in scope.rows() if row["name"] == "c"}["count"] == 16000


def test_quantiles_are_right_to_a_few_percent_whatever_the_scale():
    values = np.random.default_rng(1).lognormal(3, 2, 100_000)
    histogram = Histogram()
    for part in np.array_split(values, 7):
        histogram.observe(part)
    for share in (0.01, 0.5, 0.95, 0.999):
        assert histogram.quantile(share) == pytest.approx(np.quantile(values, share), rel=0.04)
    measures = histogram.measures()
    assert measures["sum"] == pytest.approx(values.sum())
    assert (measures["min"], measures["max"], measures["count"]) == (values.min(), values.max(), 100_000)


def test_histograms_add_up_to_that_of_all_values():
    first, second, whole = Histogram(), Histogram(), Histogram()
    first.observe(np.array([1.0, 2.0, 1e-9]))
    second.observe(np.array([-3.0, 1e30, np.nan, np.inf]))
    whole.observe(np.array([1.0, 2.0, 1e-9, -3.0, 1e30]))
    first.add(second)
    assert first.measures() == whole.measures()
    assert Histogram().measures() == {"count": 0.0}


def test_a_meter_comes_near_the_rate_and_forgets_it():
    meter = Meter(0.0)
    for second in range(1800):
        meter.mark(50, float(second))
    measures = meter.measures(1800.0)
    assert measures["rate_mean"] == 50
    assert measures["rate_1m"] == pytest.approx(50, rel=0.01)
    assert measures["rate_15m"] == pytest.approx(50, rel=0.01)
    quiet = meter.measures(2100.0)
    assert quiet["rate_1m"] < 1
    assert 30 < quiet["rate_15m"] < 40


def test_a_timing_event_has_its_duration_and_a_histogram():
    clock = iter([1.0, 1.25, 9.0, 9.0, 9.0])
    scope = Metrics("job", now_ms=lambda: 77, monotonic=lambda: next(clock))
    with scope.timed("lookup", table="x"):
        pass
    event = scope.events()[0]
    assert (event.name, event.duration_ms, event.facts, event.at_ms) == ("lookup", 250.0, {"table": "x"}, 77)
    assert json.loads(event.json_line()) == {
        "at_ms": 77, "scope": "job", "event": "lookup", "duration_ms": 250.0, "table": "x",
    }  # fmt: skip


def test_events_are_handed_on_at_once_and_kept_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(module, "EVENTS", 3)
    seen = []
    job = Metrics("job", on_event=seen.append)
    scope = job.task("task-0")
    scope._events = module.deque(maxlen=3)
    for number in range(5):
        scope.event("e", number=number)
    assert [event.facts["number"] for event in seen] == [0, 1, 2, 3, 4]
    assert [event.facts["number"] for event in job.events()] == [2, 3, 4]
    assert job.totals() == {"events.dropped": 2}


def test_a_decoder_of_a_person_finds_the_scope_of_its_task():
    job = Metrics("job")
    scope = job.task("task-0")
    with scoped(scope):
        current().count("mine")
    current().count("outside")
    assert job.totals() == {"mine": 1}


def test_the_table_has_each_task_and_the_sums_of_the_job():
    job = Metrics("job")
    job.task("task-0").count("a", 1)
    job.task("task-1").count("a", 2)
    job.task("task-1").observe("h", 5)
    rows = job.table().to_pylist()
    assert {(row["scope"], row["value"]) for row in rows if row["name"] == "a"} == {
        ("task-0", 1), ("task-1", 2), ("job", 3),
    }  # fmt: skip
    assert [json.loads(line)["scope"] for line in job.json_lines().splitlines()].count("job") == 1 + len(
        [row for row in rows if row["name"] == "h" and row["scope"] == "job"]
    )
    assert job.event_table().num_rows == 0


def test_openmetrics_text_is_read_by_the_parser_of_the_project():
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    job = Metrics("job")
    task = job.task("task-0")
    task.count("num.of.decoding.errors", 4)
    task.mark("records", 7)
    task.observe("batch.millis", [1, 2, 3])
    job.count("batch.millis", 1)
    families = {one.name: one for one in text_string_to_metric_families(openmetrics(job, "PullFromKafka"))}
    samples = families["lakesql_ingest_num_of_decoding_errors"].samples
    assert {(one.labels["scope"], one.value) for one in samples if one.name.endswith("_total")} == {
        ("task-0", 4.0), ("job", 4.0),
    }  # fmt: skip
    assert samples[0].labels["job"] == "PullFromKafka"
    assert "lakesql_ingest_records_rate_1m" in families
    assert families["lakesql_ingest_batch_millis_histogram"].type == "summary"


def test_without_the_library_the_text_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", SimpleNamespace())
    from lakesql.errors import IngestError

    with pytest.raises(IngestError, match=r"lakesql\[kafka\]"):
        openmetrics(Metrics("job"), "j")
