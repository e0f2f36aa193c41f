"""A run joins its parts: what is stored, what is reported, what happens when something fails."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from lakesql.errors import IngestConflict, IngestError, LastingError, TooManyBadRecords
from lakesql.ingest import fetching
from lakesql.ingest.metrics import Metrics, current
from lakesql.ingest.model import BadRecords, Fetched, Position, Range, Target, Task, TopicPartition, WorkUnit
from lakesql.ingest.report import complete_until, read_until
from lakesql.ingest.run import planned, run

from .fakes import (
    BAD_VALUE,
    OUTAGE,
    Broker,
    Crash,
    FakeClient,
    FakeDecoder,
    FakeSink,
    Faults,
    NoWaiting,
    consistent,
    job,
    parts,
    raw,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def broker() -> Broker:
    return Broker().fill("a", 0, 10).fill("a", 1, 7).fill("b", 0, 5)


def by_partition(report):
    return {TopicPartition(one.topic, one.partition): one for one in report.partitions}


def test_a_run_stores_every_record_and_the_next_run_stores_only_what_is_new():
    source, sink = broker(), FakeSink()
    report = run(job(workers=2), parts(FakeClient(source), sink))
    assert report.exit_code == 0
    assert len(sink.rows) == 22
    consistent(source, sink)
    source.fill("a", 1, 4)
    again = run(job(), parts(FakeClient(source), sink))
    assert sum(one.read for one in again.partitions) == 4
    consistent(source, sink)
    assert sink.states[-1].offsets() == {A0: 10, A1: 11, B0: 5}


def test_a_run_without_news_makes_no_commit_but_the_first_one_stores_its_offsets():
    source, sink = Broker().add("a", 0, []), FakeSink()
    run(job(), parts(FakeClient(source), sink))
    assert sink.states[-1].offsets() == {A0: 0}
    report = run(job(), parts(FakeClient(source), sink))
    assert len(sink.states) == 1
    assert report.committed == {}
    assert [one.stop for one in report.partitions] == ["nothing to read"]


def test_a_topic_is_complete_until_the_plan_unless_a_limit_cut_a_partition():
    class At(NoWaiting):
        def now_ms(self) -> int:
            return self.time

    source, sink, timing = Broker().add("a", 0, []).fill("a", 1, 9).fill("b", 0, 0), FakeSink(), At()
    timing.time = 1_000_000
    run(job(), parts(FakeClient(source, batch=1), sink, limit=4), timing=timing)
    partitions = sink.states[-1].partitions
    assert {at: (one.lag, read_until(one)) for at, one in partitions.items()} == {
        A0: (0, 1_000_000),  # idle: nothing was there when the run was planned
        A1: (5, 3000),
        B0: (0, 1_000_000),
    }
    assert complete_until(partitions) == {"a": 3000, "b": 1_000_000}
    timing.time = 2_000_000
    run(job(), parts(FakeClient(source), sink), timing=timing)
    assert complete_until(sink.states[-1].partitions) == {"a": 2_000_000, "b": 2_000_000}


def test_a_failure_takes_back_how_far_its_topic_is_complete():
    source, sink = Broker().fill("a", 0, 3), FakeSink()
    run(job(), parts(FakeClient(source), sink))
    source.fill("a", 0, 9).fill("a", 1, 1)
    client = FakeClient(source, batch=1, failing={A0: 6})
    run(job(commit_policy="successful"), parts(client, sink, per_unit=1))
    one = sink.states[-1].partitions[A0]
    assert (one.next, one.lag, read_until(one)) == (3, 9, 2000)


def test_offsets_behind_the_last_record_are_stored_where_transactions_leave_gaps():
    source, sink = Broker().add("a", 0, [b"1", b"2"], gap=3), FakeSink()
    report = run(job(), parts(FakeClient(source), sink))
    assert sink.states[-1].offsets() == {A0: 5}
    assert report.partitions[0].read == 2


def test_a_partition_that_vanished_keeps_its_offset_and_says_since_when():
    source, sink = broker(), FakeSink()
    run(job(), parts(FakeClient(source), sink))
    kept = source.logs.pop(B0), source.ends.pop(B0)
    report = run(job(), parts(FakeClient(source), sink))
    state = sink.states[-1].partitions[B0]
    assert (state.next, state.records) == (5, 0)
    assert state.missing_since_ms is not None
    assert by_partition(report)[B0].reason == "not there"
    since = state.missing_since_ms
    source.fill("a", 0, 1)
    run(job(), parts(FakeClient(source), sink))
    assert sink.states[-1].partitions[B0].missing_since_ms == since
    source.logs[B0], source.ends[B0] = kept
    run(job(), parts(FakeClient(source), sink))
    assert sink.states[-1].partitions[B0].missing_since_ms is None


@pytest.mark.parametrize(
    ("policy", "stored", "rows"),
    [("full", {}, 0), ("successful", {A0: 0, A1: 7, B0: 5}, 12), ("partial", {A0: 4, A1: 7, B0: 5}, 16)],
)
def test_a_partition_that_fails_is_treated_by_the_commit_policy(policy, stored, rows):
    source, sink = broker(), FakeSink()
    client = FakeClient(source, failing={A0: 4})
    report = run(job(commit_policy=policy), parts(client, sink))
    assert (sink.states[-1].offsets() if sink.states else {}) == stored
    assert len(sink.rows) == rows
    consistent(source, sink)
    assert report.exit_code == 3
    assert by_partition(report)[A0].stop.startswith("error: a:0 stopped at offset 4: leader lost")
    assert by_partition(report)[A0].next == stored.get(A0, 0)
    if policy == "full":
        assert by_partition(report)[A1].stop == "not committed: a:0 failed, and job.commit.policy is full"
    after = run(job(commit_policy=policy), parts(FakeClient(source), sink))
    assert after.exit_code == 0
    assert len(sink.rows) == 22


def test_other_partitions_of_a_unit_are_read_again_without_the_one_that_failed():
    source, sink = broker(), FakeSink()
    client = FakeClient(source, failing={A0: 4}, mixed=2)
    run(job(commit_policy="successful"), parts(client, sink))
    of_a = [[one.at for one in ranges] for ranges in client.reads if ranges[0].topic == "a"]
    assert of_a == [[A0, A1], [A1]]
    assert sink.states[-1].offsets() == {A0: 0, A1: 7, B0: 5}


def test_a_registry_that_is_down_is_tried_again_with_growing_pauses():
    source, sink, timing = broker(), FakeSink(), NoWaiting()
    faults = Faults({"decode": {1: OUTAGE, 2: OUTAGE, 3: OUTAGE}})
    metrics = Metrics("j")
    report = run(job(), parts(FakeClient(source), sink, faults=faults), timing=timing, metrics=metrics)
    assert report.exit_code == 0
    assert timing.slept == [0.0, 1.0, 2.0]
    assert metrics.totals()["task.retries"] == 3
    consistent(source, sink)


def test_records_that_do_not_fit_are_not_tried_again():
    source, sink, timing = broker(), FakeSink(), NoWaiting()
    wrong = LastingError("a column comes twice")
    report = run(job(), parts(FakeClient(source), sink, faults=Faults({"decode": {1: wrong}})), timing=timing)
    assert (report.exit_code, report.failures, timing.slept) == (3, (wrong,), [])


def test_a_registry_that_stays_down_fails_the_task_and_no_record_is_called_bad():
    source, sink = broker(), FakeSink()
    faults = Faults({"decode": dict.fromkeys(range(1, 100), OUTAGE)})
    report = run(job(task_retries=2), parts(FakeClient(source), sink, faults=faults), timing=NoWaiting())
    assert report.exit_code == 3
    assert report.failures == (OUTAGE,)
    assert sink.states == []
    assert sink.bad == []


def test_a_retried_task_does_not_read_again_what_it_had_finished():
    source, sink = Broker().fill("a", 0, 3).fill("b", 0, 6), FakeSink()
    faults = Faults({"fetch": {3: OUTAGE}})
    client = FakeClient(source, faults)
    run(job(), parts(client, sink, per_task=2), timing=NoWaiting())
    assert [[(one.at, one.low) for one in ranges] for ranges in client.reads] == [[(A0, 0), (B0, 0)], [(B0, 0)]]
    consistent(source, sink)


def test_an_error_of_the_disk_is_not_tried_again():
    source, timing = broker(), NoWaiting()
    sink = FakeSink(faults=Faults({"take": {2: OSError(28, "No space left on device")}}))
    report = run(job(), parts(FakeClient(source), sink), timing=timing)
    assert timing.slept == []
    assert "No space left" in str(report.failures[0])
    assert sink.states == []
    assert sink.discarded == 1


@pytest.fixture
def one_by_one(monkeypatch):
    """Each batch is decoded on its own."""
    monkeypatch.setattr(fetching, "GROUP_S", 0)


@pytest.mark.usefixtures("one_by_one")
def test_partial_keeps_what_was_taken_before_the_last_attempt_failed():
    source, sink = Broker().fill("a", 0, 10), FakeSink()
    faults = Faults({"decode": {2: OUTAGE}})
    client = FakeClient(source)
    report = run(job(commit_policy="partial", task_retries=0), parts(client, sink, faults=faults))
    assert 0 < sink.states[-1].offsets()[A0] < 10
    assert report.exit_code == 3
    consistent(source, sink)


@pytest.mark.parametrize("policy", ["full", "successful", "partial"])
@pytest.mark.parametrize(
    ("rule", "bad", "good", "fails"),
    [
        (BadRecords(), 10, 90, False),
        (BadRecords(), 11, 89, True),
        (BadRecords(), 50, 49, False),  # fewer than a hundred say nothing
        (BadRecords(max_percent=0), 1, 500, True),
        (BadRecords(max_percent=100), 200, 0, False),
        (BadRecords(max_percent=100, max_count=3), 4, 10, True),
        (BadRecords(max_percent=100, max_count=3), 3, 10, False),
        (BadRecords(action="fail"), 1, 10, True),
    ],
)
def test_bad_records_are_kept_up_to_a_bound_and_beyond_it_the_partition_moves_no_offset(policy, rule, bad, good, fails):
    source, sink = Broker().add("a", 0, [BAD_VALUE] * bad + [b"x"] * good).fill("a", 1, 5), FakeSink()
    report = run(job(bad=rule, commit_policy=policy), parts(FakeClient(source, batch=50, mixed=2), sink))
    consistent(source, sink)
    if fails:
        assert report.exit_code == 6
        assert isinstance(report.failures[0], TooManyBadRecords)
        assert ("take lakesql.bad.records out" in str(report.failures[0])) == (rule.action == "fail")
        assert sink.states == [] if policy == "full" else sink.states[-1].offsets() == {A0: 0, A1: 5}
    else:
        assert report.exit_code == 0
        assert len(sink.bad) == bad
        assert sink.states[-1].partitions[A0].quarantined == bad


def test_tombstones_are_deletes_and_not_bad():
    source, sink = Broker().add("a", 0, [b"1", None, None]), FakeSink()
    report = run(job(bad=BadRecords(action="fail")), parts(FakeClient(source), sink))
    assert (report.partitions[0].written, report.partitions[0].deletes) == (1, 2)
    assert sink.states[-1].partitions[A0].deletes == 2


def test_a_limit_commits_what_was_read_and_the_next_run_goes_on_there():
    source, sink, metrics = broker(), FakeSink(), Metrics("j")
    report = run(job(), parts(FakeClient(source), sink, limit=6), metrics=metrics)
    assert report.exit_code == 0
    assert report.stop == "limit"
    assert by_partition(report)[A0].stop == "limit"
    assert sink.states[-1].offsets() == {A0: 3, A1: 3, B0: 5}
    stops = [event for event in metrics.events() if event.name == "PrematureExtractorStop"]
    assert stops[0].facts == {"limiterStopCause": "count 6", "partitions": "a:0,a:1"}
    while run(job(), parts(FakeClient(source), sink, limit=6)).stop:
        consistent(source, sink)
    assert len(sink.rows) == 22


def test_a_start_that_retention_overtook_meanwhile_is_counted_and_stored_as_a_gap():
    source, sink = Broker().fill("a", 0, 20), FakeSink()
    client = FakeClient(source)
    source.starts[A0] = 8
    plan = parts(client, sink).plan
    source.starts[A0] = 0
    given = parts(client, sink)

    def then_deleted(*args):
        result = plan(*args)
        source.starts[A0] = 8
        return result

    object.__setattr__(given, "plan", then_deleted)
    report = run(job(), given)
    state = sink.states[-1].partitions[A0]
    assert (state.gap, state.lost, state.next) == ((0, 8), 8, 20)
    assert report.partitions[0].lost == 8
    source.fill("a", 0, 1)
    run(job(), parts(client, sink))
    state = sink.states[-1].partitions[A0]
    assert (state.gap, state.lost) == (None, 8)


def test_another_run_that_was_first_wins_and_this_one_stores_nothing():
    source, sink = broker(), FakeSink()

    def other_run():
        if not sink.states:
            run(job(), parts(FakeClient(source), sink))

    client = FakeClient(source, during=other_run)
    report = run(job(), parts(client, sink))
    assert report.exit_code == 7
    assert isinstance(report.failures[0], IngestConflict)
    consistent(source, sink)
    assert len(sink.rows) == 22


def test_a_client_that_does_not_move_its_position_is_an_error_and_moves_no_offset():
    source, sink = broker(), FakeSink()

    class Stuck(FakeClient):
        def _next(self, open_):
            one = super()._next(open_)
            object.__setattr__(one, "positions", {})
            return one

    report = run(job(task_retries=1), parts(Stuck(source), sink), timing=NoWaiting())
    assert "would lose or double records" in str(report.failures[0])
    assert sink.states == []


def test_a_client_that_repeats_records_is_an_error():
    source, sink = broker(), FakeSink()

    class Repeating(FakeClient):
        def _next(self, open_):
            low = dict(open_)
            one = super()._next(open_)
            open_.update({at: (max(begin - 1, 0), end) for at, (begin, end) in open_.items() if at in low})
            return one

    report = run(job(task_retries=0), parts(Repeating(source), sink))
    assert report.exit_code == 3
    assert sink.states == []


def test_a_decoder_that_loses_records_is_an_error():
    source, sink = broker(), FakeSink()
    given = parts(FakeClient(source), sink)

    class Losing:
        def decode(self, batch):
            return FakeDecoder().decode(batch.slice(1))

        def close(self):
            pass

    object.__setattr__(given, "decoder", lambda _: Losing())
    report = run(job(), given, timing=NoWaiting())
    assert "each must become a row, a delete or a bad record" in str(report.failures[0])
    assert sink.states == []


def test_each_topic_has_a_target_of_its_own_and_one_that_fails_does_not_block_the_others():
    source, sinks = broker(), {}

    def sink(path, _):
        return sinks.setdefault(path, FakeSink())

    client = FakeClient(source, failing={A0: 2})
    report = run(job(target=Target("hudi", "/w/{topic}")), parts(client, sink, per_task=3))
    assert sinks["/w/a"].states == []
    assert sinks["/w/b"].states[-1].offsets() == {B0: 5}
    assert list(report.committed) == ["/w/b"]
    assert report.exit_code == 3


@pytest.mark.usefixtures("one_by_one")
def test_commits_within_a_run_store_exactly_the_rows_that_they_hold():
    source, sink = Broker().fill("a", 0, 60).fill("a", 1, 60).fill("b", 0, 60), FakeSink()
    client = FakeClient(source, during=lambda: time.sleep(0.002))
    sizes = []

    class Checking(FakeSink):
        def begin(self, before, run):
            consistent(source, self)
            sizes.append(len(self.rows))
            return super().begin(before, run)

    sink = Checking()
    report = run(job(workers=3, commit_interval_s=0.01), parts(client, sink, per_unit=1))
    assert report.exit_code == 0
    assert len(sink.states) > 2
    assert report.committed["/t"].inserted == 180
    assert sum(one.written for one in report.partitions) == 180
    assert sum(state.partitions[A0].records for state in sink.states) == 60
    consistent(source, sink)


@pytest.mark.usefixtures("one_by_one")
def test_a_failure_after_a_commit_within_the_run_goes_back_to_that_commit_and_no_further():
    source, sink = Broker().fill("a", 0, 200), FakeSink()
    client = FakeClient(source, failing={A0: 150}, during=lambda: time.sleep(0.002))
    report = run(job(commit_interval_s=0.01), parts(client, sink))
    assert 0 < report.partitions[0].next <= 150
    assert report.partitions[0].next == sink.states[-1].offsets()[A0]
    consistent(source, sink)
    run(job(), parts(FakeClient(source), sink))
    assert len(sink.rows) == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_leaves_no_offset_moved(number):
    source, sink, told = Broker().fill("a", 0, 3000), FakeSink(), threading.Event()

    def slowly():
        time.sleep(0.005)
        if len(client.reads) and not told.is_set():
            told.set()
            os.kill(os.getpid(), number)

    client = FakeClient(source, during=slowly)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        run(job(), parts(client, sink))
    assert time.monotonic() - began < 3
    assert sink.states == []
    assert sink.discarded == 1
    assert client.closed == 1
    kept = "lakesql-requests"  # threads that ask object stores are the process's
    names = [one.name for one in threading.enumerate()]
    assert not [name for name in names if name.startswith("lakesql-") and not name.startswith(kept)]


def test_what_is_no_exception_in_a_task_ends_the_run():
    source, sink = broker(), FakeSink(faults=Faults({"take": {2: Crash()}}))
    with pytest.raises(Crash):
        run(job(workers=2), parts(FakeClient(source), sink))
    assert sink.states == []


def test_brokers_that_do_not_answer_end_the_run_before_anything_is_begun():
    sink = FakeSink(faults=Faults({"begin": {1: AssertionError()}}))
    client = FakeClient(broker(), Faults({"topics": {1: IngestError("no broker answers at 127.0.0.1:9")}}))
    with pytest.raises(IngestError, match="no broker"):
        run(job(), parts(client, sink))


def test_a_plan_without_a_run_reads_nothing():
    client = FakeClient(broker())
    plan = planned(job(), parts(client, FakeSink()))
    assert len(plan.ranges) == 3
    assert client.reads == []


def test_averages_of_a_partition_are_stored_for_the_next_plan():
    source, sink = Broker().add("a", 0, [b"12345678", b"1234"]), FakeSink()
    run(job(), parts(FakeClient(source), sink))
    one = sink.states[-1].partitions[A0]
    assert one.average_bytes == 6
    assert one.average_millis >= 0
    assert (one.newest_ms, one.last_ms, one.leader_epoch, one.lag) == (1000, 1000, 7, 0)


def test_a_commit_carries_the_metrics_of_the_run_under_the_names_of_the_reference():
    source, sink = Broker().add("a", 0, [b"1", b"2", BAD_VALUE]), FakeSink()
    metrics = Metrics("j")
    report = run(job(), parts(FakeClient(source), sink), metrics=metrics)
    for name, value in {
        "job.records.written": 2,
        "writer.records.written": 2,
        "num.of.decoding.errors": 1,
        "error.message.undecodable.count": 1,
        "error.partition.count": 1,
    }.items():
        assert sink.states[-1].metrics[name] == report.metrics[name] == value
    one = next(event for event in metrics.events() if event.name == "KafkaExtractorTopicMetadata")
    assert one.facts["processedRecordCount"] == 3
    assert one.facts["undecodableMessageCount"] == 1
    assert one.facts["actualHighWatermark"] == 3


def test_the_event_of_a_partition_has_times_and_lateness_and_each_gap_by_itself():
    """Timestamps of the broker are 1000 times the offset; the clock stands at 70 s."""
    source, sink, metrics = Broker().fill("a", 0, 40), FakeSink(), Metrics("j")

    class Clock(NoWaiting):
        def now_ms(self):
            return 70_000

    class Slow(FakeDecoder):
        def decode(self, batch):
            time.sleep(0.01)
            return super().decode(batch)

    def retention():
        if client.reads and not source.starts:
            time.sleep(0.01)
            source.starts[A0] = 20

    client = FakeClient(source, batch=5)
    client.during = lambda: retention() if sink.faults else None
    given = parts(client, sink)
    object.__setattr__(given, "decoder", lambda _: Slow())
    report = run(job(settings={"gobblin.kafka.recordLevelSlaMinutes": "0.7"}), given, metrics=metrics, timing=Clock())
    facts = next(event for event in metrics.events() if event.name == "KafkaExtractorTopicMetadata").facts
    assert (facts["processedRecordCount"], facts["lostRecordCount"], facts["gaps"]) == (20, 20, [[0, 20]])
    assert facts["slaMissedRecordCount"] == report.metrics["sla.missed.record.count"] == 8  # offsets 20 to 27
    assert (facts["minTimestamp"], facts["maxTimestamp"], facts["partitionTotalSize"]) == (20_000, 39_000, 40)
    assert facts["decodeRecordTime"] >= 10
    assert facts["fetchMessageBufferTime"] >= 10
    assert facts["convertRecordTime"] >= 0
    assert facts["readRecordTime"] >= facts["decodeRecordTime"]
    assert "Lost while a:0 was read: 20 offsets, 0 to 20, which were deleted before their turn came." in report.notes
    assert sink.states[-1].partitions[A0].gap == (0, 20)


def test_without_a_bound_nothing_is_late():
    metrics = Metrics("j")
    run(job(), parts(FakeClient(Broker().fill("a", 0, 4)), FakeSink()), metrics=metrics)
    facts = next(event for event in metrics.events() if event.name == "KafkaExtractorTopicMetadata").facts
    assert facts["slaMissedRecordCount"] == -1


def test_a_hole_without_records_is_no_gap():
    source, sink = Broker().add("a", 0, [b"1"] * 4, gap=6).add("a", 0, [b"2"] * 2), FakeSink()
    metrics = Metrics("j")
    report = run(job(), parts(FakeClient(source), sink), metrics=metrics)
    facts = next(event for event in metrics.events() if event.name == "KafkaExtractorTopicMetadata").facts
    assert (facts["gaps"], facts["lostRecordCount"], facts["processedRecordCount"]) == ([], 0, 6)
    assert (sink.states[-1].partitions[A0].gap, report.notes) == (None, ())


def planning(given, change):
    """The same parts, with another plan than theirs."""
    plan = given.plan
    object.__setattr__(given, "plan", lambda *args: change(plan(*args)))
    return given


def test_a_plan_that_carries_partitions_in_empty_ranges_keeps_them_as_they_are():
    source, sink = broker(), FakeSink()
    run(job(), parts(FakeClient(source), sink))
    before = sink.states[-1].partitions[B0]
    source.logs.pop(B0)
    source.ends.pop(B0)
    source.fill("a", 0, 1)

    def carrying(plan):
        empty = Range(*B0, 5, 5, "carried: the topic is gone", 5)
        return replace(plan, ranges=(*plan.ranges, empty), carried={B0: "the topic is gone"})

    metrics = Metrics("j")
    report = run(job(), planning(parts(FakeClient(source), sink), carrying), metrics=metrics)
    after = sink.states[-1].partitions[B0]
    assert (after.next, after.lag, after.average_bytes) == (before.next, before.lag, before.average_bytes)
    assert after.missing_since_ms is not None
    assert len([one for one in report.partitions if one.topic == "b"]) == 1
    assert report.exit_code == 0


def test_a_partition_without_offsets_stays_new_and_the_run_says_that_it_failed():
    source, sink, metrics = Broker().fill("a", 0, 2), FakeSink(), Metrics("j")

    def failing(plan):
        return replace(plan, unknown={A1: "leader not available"})

    report = run(job(), planning(parts(FakeClient(source), sink), failing), metrics=metrics)
    assert report.exit_code == 3
    assert by_partition(report)[A1].stop == "error: leader not available"
    assert sink.states[-1].offsets() == {A0: 2}
    assert metrics.totals()["fail.to.get.offset.count"] == 1


def test_a_range_that_is_skipped_for_an_error_keeps_its_stored_offset_and_blocks_nothing():
    source, sink = broker(), FakeSink()
    run(job(), parts(FakeClient(source), sink, limit=3))
    stored = sink.states[-1].offsets()

    def skipping(plan):
        wrong = {A0: "offsets could not be had"}
        ranges = tuple(
            replace(one, high=one.low, error=wrong[one.at]) if one.at in wrong else one for one in plan.ranges
        )
        tasks = tuple(
            replace(
                task,
                units=tuple(replace(u, ranges=tuple(r for r in u.ranges if r.at not in wrong)) for u in task.units),
            )
            for task in plan.tasks
        )
        return replace(plan, ranges=ranges, tasks=tasks)

    report = run(job(), planning(parts(FakeClient(source), sink), skipping))
    assert report.exit_code == 3
    assert sink.states[-1].offsets() == {A0: stored[A0], A1: 7, B0: 5}
    consistent(source, sink)


@pytest.mark.parametrize(
    ("stored", "low", "name"), [(3, 8, "offset.too.early.count"), (30, 8, "offset.too.late.count")]
)
def test_stored_offsets_out_of_range_are_counted_under_the_names_of_the_reference(stored, low, name):
    source, sink, metrics = Broker().fill("a", 0, 10), FakeSink(), Metrics("j")

    def reset(plan):
        one = replace(plan.ranges[0], low=low, stored=stored, reason="reset nearest: earliest", gap=(3, 8))
        return replace(plan, ranges=(one,), tasks=(Task(0, (WorkUnit("a", (one,), 0),)),))

    run(job(), planning(parts(FakeClient(source), sink), reset), metrics=metrics)
    assert metrics.totals()[name] == 1
    assert len(sink.rows) == 2


def test_rows_of_a_log_that_was_cut_back_are_given_up_and_the_next_run_looks_anew():
    source, sink = Broker().fill("a", 0, 10), FakeSink()

    class Cut(FakeClient):
        def _next(self, open_):
            low = open_[A0][0]
            if low < 6:
                return super()._next(open_)
            open_.clear()
            return Fetched(raw([]), {A0: Position(4)}, frozenset({A0}), {}, {A0: 4})

    report = run(job(commit_policy="partial"), parts(Cut(source), sink))
    assert "cut back to offset 4" in by_partition(report)[A0].stop
    assert sink.rows == []
    assert sink.states[-1].offsets() == {A0: 0}


def test_a_log_that_was_cut_back_before_anything_was_read_goes_on_where_the_reset_says():
    source, sink = Broker().fill("a", 0, 10), FakeSink()
    run(job(), parts(FakeClient(source), sink))
    source.logs[A0] = source.logs[A0][:4]
    source.add("a", 0, [b"n"] * 5)

    class Cut(FakeClient):
        def _next(self, open_):
            open_.clear()
            return Fetched(raw([]), {A0: Position(4)}, frozenset({A0}), {}, {A0: 4})

    run(job(), parts(Cut(source), sink))
    assert sink.states[-1].offsets() == {A0: 4}


@pytest.mark.usefixtures("one_by_one")
def test_no_commit_within_a_run_is_made_for_a_target_without_news():
    source, sinks = Broker().fill("a", 0, 300).fill("b", 0, 1), {}

    def sink(path, _):
        return sinks.setdefault(path, FakeSink())

    client = FakeClient(source, during=lambda: time.sleep(0.001))
    run(job(target=Target("hudi", "/w/{topic}"), commit_interval_s=0.01, workers=2), parts(client, sink))
    assert len(sinks["/w/a"].states) > 1
    assert len(sinks["/w/b"].states) == 1


def test_workers_share_the_tasks_and_the_heaviest_comes_first():
    source, sink, names = Broker(), FakeSink(), set()
    for partition in range(12):
        source.fill("a", partition, 10 + partition)
    client = FakeClient(source, during=lambda: (names.add(threading.current_thread().name), time.sleep(0.001)))

    def weigh(plan):
        weights = {task.number: float(task.units[0].ranges[0].records) for task in plan.tasks}
        heavy = [
            replace(
                t,
                units=tuple(
                    replace(u, ranges=tuple(replace(r, weight=weights[t.number]) for r in u.ranges)) for u in t.units
                ),
            )
            for t in plan.tasks
        ]
        return replace(plan, tasks=tuple(heavy))

    report = run(job(workers=4), planning(parts(client, sink, per_unit=1), weigh))
    assert len(names) <= 4  # as many threads as workers, whatever the number of tasks
    assert {one.task for one in report.partitions} == set(range(12))
    consistent(source, sink)
    client, again = FakeClient(source), FakeSink()
    run(job(workers=1), planning(parts(client, again, per_unit=1), weigh))
    assert [ranges[0].partition for ranges in client.reads] == list(range(11, -1, -1))


def test_reading_does_not_run_ahead_of_decoding():
    source, sink, ahead = Broker().fill("a", 0, 400), FakeSink(), []
    fetched, decoded = [0], [0]

    def count():
        fetched[0] += 1
        ahead.append(fetched[0] - decoded[0])

    class Slow(FakeDecoder):
        def decode(self, batch):
            time.sleep(0.005)
            done = super().decode(batch)
            decoded[0] += 1
            return done

    given = parts(FakeClient(source, batch=1, during=count), sink)
    object.__setattr__(given, "decoder", lambda _: Slow())
    whole, fetching.GROUP_ROWS = fetching.GROUP_ROWS, 1  # one batch at a time, so that decoded ones can be counted
    try:
        run(job(), given)
    finally:
        fetching.GROUP_ROWS = whole
    assert max(ahead) <= 2
    assert len(sink.rows) == 400


def test_batches_that_wait_are_decoded_together():
    source, sink, sizes = Broker().fill("a", 0, 100), FakeSink(), []

    class Slow(FakeDecoder):
        def decode(self, batch):
            sizes.append(batch.num_rows)
            time.sleep(0.01)
            return super().decode(batch)

    given = parts(FakeClient(source, batch=5), sink)
    object.__setattr__(given, "decoder", lambda _: Slow())
    run(job(), given)
    assert max(sizes) > 5
    assert sum(sizes) == 100


def test_a_decoder_of_a_person_counts_into_the_scope_of_its_task():
    source, sink, metrics = broker(), FakeSink(), Metrics("j")

    class Counting(FakeDecoder):
        def decode(self, batch):
            current().count("mine", batch.num_rows)
            return super().decode(batch)

    given = parts(FakeClient(source), sink)
    object.__setattr__(given, "decoder", lambda _: Counting())
    report = run(job(workers=2), given, metrics=metrics)
    assert report.metrics["mine"] == 22
    scopes = {(row["scope"], row["value"]) for row in metrics.table().to_pylist() if row["name"] == "mine"}
    assert scopes == {("task-0", 17.0), ("task-1", 5.0), ("j", 22.0)}


@pytest.mark.parametrize("policy", ["full", "successful", "partial"])
def test_a_reader_that_ends_without_a_reason_fails_its_partitions_and_loses_nothing(policy):
    source, sink = broker(), FakeSink()

    class Ending(FakeClient):
        def read(self, *args):
            yield next(super().read(*args))

    report = run(job(commit_policy=policy), parts(Ending(source), sink))
    assert report.exit_code == 3
    assert any("reading ended at offset" in one.stop for one in report.partitions)
    consistent(source, sink)
    assert run(job(), parts(FakeClient(source), sink)).exit_code == 0
    assert len(sink.rows) == 22
