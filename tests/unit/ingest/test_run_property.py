"""Random topics, batches, failures and crashes: after enough runs every record is in the target once, and at no time is
an offset stored whose records are not."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.errors import IngestError
from lakesql.ingest.model import BadRecords, TopicPartition
from lakesql.ingest.run import run

from .fakes import BAD_VALUE, Broker, Crash, FakeClient, FakeSink, Faults, NoWaiting, consistent, job, parts

STEPS = ["open", "fetch", "decode", "stored", "begin", "take", "taken", "forget", "commit", "committed", "discard"]
values = st.lists(st.sampled_from([b"a", b"b", None, BAD_VALUE]), max_size=12)
logs = st.dictionaries(
    st.tuples(st.sampled_from(["s", "t", "u"]), st.integers(0, 2)), st.tuples(values, st.integers(0, 2)), max_size=6
)
errors = st.sampled_from(
    [Crash, lambda: IngestError("gone for now"), lambda: OSError(5, "broken"), lambda: ValueError(1)]
)
faults = st.dictionaries(
    st.sampled_from(STEPS), st.dictionaries(st.integers(1, 4), errors.map(lambda e: e()), max_size=3)
)
runs = st.fixed_dictionaries(
    {
        "workers": st.integers(1, 3),
        "commit_policy": st.sampled_from(["full", "successful", "partial"]),
        "commit_interval_s": st.sampled_from([None, 0.0, 0.001]),
        "task_retries": st.integers(0, 2),
        "bad": st.sampled_from(
            [BadRecords(max_percent=100), BadRecords(), BadRecords(max_count=1), BadRecords("fail")]
        ),
    }
)
shapes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(logs, runs, faults, shapes, st.integers(0, 12) | st.none(), st.integers(0, 8)), max_size=4))
def test_every_record_is_stored_once_whatever_fails(rounds):
    source, sink = Broker(), FakeSink()
    before: dict[TopicPartition, int] = {}
    for new, settings_, wrong, (per_unit, per_task, batch, mixed), limit, stops in rounds:
        for (topic, partition), (some, gap) in sorted(new.items()):
            source.add(topic, partition, some, gap)
        broken = Faults(wrong)
        sink.faults = broken
        failing = dict.fromkeys(list(source.ends)[:1], stops) if stops else {}
        client = FakeClient(source, broken, batch, mixed, failing)
        given_ = parts(client, sink, limit=limit or None, faults=broken, per_unit=per_unit, per_task=per_task)
        try:
            report = run(job(**settings_), given_, timing=NoWaiting())
        except (Crash, IngestError, OSError, ValueError):
            pass
        else:
            stored = sink.states[-1].offsets() if sink.states else {}
            for one in report.partitions:
                assert one.next <= stored.get(TopicPartition(one.topic, one.partition), one.low)
        consistent(source, sink)
        after = sink.states[-1].offsets() if sink.states else {}
        assert all(after[at] >= offset for at, offset in before.items())
        before = after
    sink.faults = Faults()
    last = run(job(workers=2, bad=BadRecords(max_percent=100)), parts(FakeClient(source, mixed=2), sink))
    assert last.exit_code == 0
    consistent(source, sink)
    assert len(sink.all()) == sum(len(log) for log in source.logs.values())
    if sink.states:
        assert sink.states[-1].offsets() == source.ends
