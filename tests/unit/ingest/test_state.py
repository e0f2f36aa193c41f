"""What an ingestion keeps in the commits of its table: JSON, Hudi Streamer's text, and that other writes hand it on."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import FormatError, JobError
from lakesql.ingest.model import PartitionState, State, TopicPartition
from lakesql.ingest.state import (
    all_states,
    checkpoint_text,
    decode,
    encode,
    extras_of,
    parse_checkpoint,
    runs_table,
    state_of,
)
from lakesql.ingest.statefile import export_state, import_state, read_state_file
from lakesql.services.compaction import compact
from lakesql.services.log_compaction import compact_logs
from lakesql.table.partition_values import TOLD
from lakesql.table.state import load
from tests.writing import CON, put, table, upsert, values

V1, V2, OURS = "deltastreamer.checkpoint.key", "streamer.checkpoint.key.v2", "lakesql.ingest.v1"
FULL = State(
    "a job",
    "run-7",
    1_700_000_000_000,
    {
        TopicPartition("b", 0): PartitionState(5, 0),
        TopicPartition("a.b_c-d", 10): PartitionState(
            9, 3, "id", 4, 6, 600, 1, 2, (1, 3), 2, 7, 100.5, 0.25, 1_700_000_000_001, 12, 1_700_000_000_002
        ),
    },
    ("x.parquet",),
    {"job.records.written": 6.0},
    "why",
)


def offsets(state, ingestion="one", topics=None):
    return {str(at): next_ for at, next_ in state_of(load(state.storage), ingestion, topics)[0].offsets().items()}


def store(t, ingestion="one", run="r", **topics):
    """Commit offsets of an ingestion: topic name to a list of next offsets."""
    partitions = {
        TopicPartition(topic, n): PartitionState(next_, 0)
        for topic, nexts in topics.items()
        for n, next_ in enumerate(nexts)
    }
    state = State(ingestion, run, 1, partitions)
    none = "SELECT * FROM (SELECT '' AS id, '' AS city, 0 AS v, 0 AS ts) WHERE false"
    return put(t, none, even_empty=True, guard=lambda now: extras_of(now, state))


def extra(t):
    now = load(t.storage)
    found = dict(now.commit(now.timeline.completed_writes()[-1]).extra)
    return {k: v for k, v in found.items() if k != "schema"}


# ---------------------------------------------------------------- JSON


def test_state_comes_back_from_json_as_it_was():
    assert decode("a job", json.loads(json.dumps(encode(FULL))), "x") == FULL
    assert decode("e", encode(State("e")), "x") == State("e")


def test_fields_of_a_later_release_are_ignored():
    stored = encode(FULL)
    stored["partitions"]["b"]["0"]["new_field"] = {"x": 1}
    assert decode("a job", stored | {"other": 1}, "x") == FULL


def test_newer_version_is_refused_and_not_guessed():
    with pytest.raises(FormatError, match="version 2; this release of lakesql knows 1"):
        decode("a", encode(FULL) | {"version": 2}, "t: commit 1")


@pytest.mark.parametrize(
    "broken",
    [
        7,
        {},
        {"version": True},
        {"version": 1, "partitions": []},
        {"version": 1, "partitions": {"t": {"x": {"next": 1, "low": 0}}}},
        {"version": 1, "partitions": {"t": {"0": {"next": 1}}}},
        {"version": 1, "partitions": {"t": {"0": {"next": "1", "low": 0}}}},
        {"version": 1, "partitions": {"t": {"0": {"next": -1, "low": 0}}}},
        {"version": 1, "partitions": {"t": {"0": {"next": 1, "low": 0, "gap": [1]}}}},
        {"version": 1, "partitions": {"t": {"0": {"next": 1, "low": 0, "average_bytes": "x"}}}},
        {"version": 1, "quarantine": "x"},
        {"version": 1, "metrics": {"a": "b"}},
        {"version": 1, "run": 7},
    ],
)
def test_broken_state_is_an_error_that_says_what_to_do(broken):
    with pytest.raises(FormatError, match=r"^t: commit 1: the state of ingestion a.* cannot be read: .*SET OFFSETS"):
        decode("a", broken, "t: commit 1")


def test_commit_whose_state_is_no_json_is_named(tmp_path):
    t = table(tmp_path / "t")
    result = upsert(t, ("a", "x", 1, 1), extra={OURS: '{"one": '})
    with pytest.raises(FormatError, match=f"commit {result.instant}: {OURS} cannot be read: it is not JSON"):
        offsets(t)


# ---------------------------------------------------------------- Hudi Streamer's text


def test_checkpoint_text_is_that_of_hudi_streamer():
    assert checkpoint_text("impressions", {1: 5, 0: 1, 10: 0}) == "impressions,0:1,1:5,10:0"
    assert parse_checkpoint("impressions,0:1,1:5,10:0") == ("impressions", {0: 1, 1: 5, 10: 0})
    for name in ("a.b_c-d", "näme", "with:colon", "0:1", " blank"):
        assert parse_checkpoint(checkpoint_text(name, {0: 3}) + "") == (name.strip(), {0: 3})
    assert checkpoint_text("with,comma", {0: 1}) is None
    assert checkpoint_text("empty", {}) is None


@pytest.mark.parametrize(
    "text", ["", "20240101000000000", "topic", "topic,", "topic,0", "topic,0:x", "topic,0:-1", "t,,0:1"]
)
def test_checkpoint_of_another_source_is_none(text):
    assert parse_checkpoint(text) is None


def test_one_ingestion_of_one_topic_writes_the_text_and_others_do_not(tmp_path):
    t = table(tmp_path / "t")
    store(t, orders=[3, 5])
    assert extra(t)[V1] == "orders,0:3,1:5"
    store(t, orders=[4, 5], more=[1])
    assert V1 not in extra(t)
    assert offsets(t) == {"orders:0": 4, "orders:1": 5, "more:0": 1}


def test_several_ingestions_of_one_table_live_side_by_side(tmp_path):
    t = table(tmp_path / "t")
    store(t, "one", orders=[3])
    store(t, "two", clicks=[7, 8])
    store(t, "one", orders=[4])
    assert offsets(t, "one") == {"orders:0": 4}
    assert offsets(t, "two") == {"clicks:0": 7, "clicks:1": 8}
    assert offsets(t, "three") == {}
    assert V1 not in extra(t)


@pytest.mark.parametrize("key", [V1, V2])
def test_offsets_of_hudi_streamer_are_taken_over(tmp_path, key):
    t = table(tmp_path / "t")
    streamer = upsert(t, ("a", "x", 1, 1), extra={key: "orders,0:10,1:20"})
    upsert(t, ("b", "x", 1, 1))
    state, _ = state_of(load(t.storage), "one", ["orders"])
    assert state.offsets() == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 20}
    assert str(streamer.instant)[:8] in state.note
    assert offsets(t, topics=["clicks"]) == {}


def test_v2_goes_before_v1_within_a_commit(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, ("a", "x", 1, 1), extra={V1: "orders,0:1", V2: "orders,0:2"})
    assert offsets(t) == {"orders:0": 2}


def test_later_commit_of_hudi_streamer_moves_our_offsets_of_its_topic(tmp_path):
    t = table(tmp_path / "t")
    store(t, orders=[3, 5])
    spark = upsert(t, ("a", "x", 1, 1), extra={V1: "orders,0:30,2:7"})
    upsert(t, ("b", "x", 1, 1))
    state, instant = state_of(load(t.storage), "one")
    assert {str(at): n for at, n in state.offsets().items()} == {"orders:0": 30, "orders:1": 5, "orders:2": 7}
    assert state.partitions[TopicPartition("orders", 0)].low == 30
    assert instant >= spark.instant
    store(t, orders=[31, 5, 7])
    assert offsets(t) == {"orders:0": 31, "orders:1": 5, "orders:2": 7}
    assert extra(t)[V1] == "orders,0:31,1:5,2:7"


@pytest.mark.parametrize("text", ["clicks,0:4", "20240101000000000"])
def test_checkpoint_of_a_streamer_that_reads_something_else_stays_as_it_is(tmp_path, text):
    t = table(tmp_path / "t")
    upsert(t, ("a", "x", 1, 1), extra={V1: text})
    store(t, orders=[3])
    assert extra(t)[V1] == text
    assert offsets(t, topics=["orders"]) == {"orders:0": 3}
    store(t, orders=[4])
    upsert(t, ("a", "x", 2, 2))
    assert extra(t)[V1] == text


# ---------------------------------------------------------------- handed on


def test_every_kind_of_commit_hands_the_offsets_on(tmp_path):
    t = table(tmp_path / "t", "mor")
    store(t, orders=[3])
    want = extra(t)
    assert set(want) == {OURS, V1, TOLD}
    for n in range(3):
        upsert(t, ("a", "x", n, n), ("b", "y", n, n))
        assert extra(t) == want
    compact_logs(
        CON, t.storage, {"hoodie.log.compaction.blocks.threshold": "2", "hoodie.log.compaction.enable": "true"}
    )
    assert extra(t) == want
    compact(CON, t.storage, {"hoodie.compact.inline.max.delta.commits": "1"})
    assert extra(t) == want
    handle = lakesql.open_table(t.path)
    handle.cluster(order=["v"])
    assert extra(t) == want
    handle.delete("id = 'a'")
    assert extra(t) == want
    put(t, values(("z", "x", 1, 1)), "insert_overwrite_table")
    assert extra(t) == want
    assert offsets(t) == {"orders:0": 3}
    actions = {i.completed_action for i in load(t.storage).timeline.completed_writes()}
    assert actions == {"deltacommit", "commit", "replacecommit"}


def test_own_extra_metadata_of_a_write_goes_before_what_is_handed_on(tmp_path):
    t = table(tmp_path / "t")
    store(t, orders=[3])
    upsert(t, ("a", "x", 1, 1), extra={V1: "orders,0:9", "mine": "1"})
    assert {k: extra(t)[k] for k in (V1, "mine")} == {V1: "orders,0:9", "mine": "1"}
    assert offsets(t) == {"orders:0": 9}


def test_handing_on_reads_no_more_than_a_write_reads_anyway(tmp_path):
    with_keys, without = table(tmp_path / "t"), table(tmp_path / "u")
    store(with_keys, orders=[3])
    upsert(without, ("q", "x", 0, 0))
    requests = [[upsert(t, ("a", "x", n, n)).requests for t in (with_keys, without)] for n in range(6)]
    assert all(one == other for one, other in requests[2:]), requests  # of different pasts before


def test_offsets_survive_archiving(tmp_path):
    t = table(tmp_path / "t")
    store(t, orders=[3])
    handle = lakesql.open_table(t.path)
    rows = pa.table({"id": ["a"], "city": ["x"], "v": [1], "ts": [1]})
    eager = {
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.cleaner.commits.retained": "1",
        "hoodie.commits.archival.batch": "1",
    }
    for _ in range(6):
        handle.upsert(rows, **eager)
    now = load(t.storage)
    assert len(now.archived) > 1
    assert offsets(t) == {"orders:0": 3}
    assert [state.run for _, state in all_states(now)] == ["r"]


def test_offsets_that_are_only_in_the_archive_are_found(tmp_path):
    t = table(tmp_path / "t")
    store(t, orders=[3])
    handle = lakesql.open_table(t.path)
    eager = {
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.cleaner.commits.retained": "1",
        "hoodie.commits.archival.batch": "1",
    }
    with pytest.MonkeyPatch.context() as patch:  # as an engine that does not hand keys on
        patch.setattr("lakesql.write.commit.handed_on", lambda *_: {})
        for _ in range(6):
            handle.upsert(pa.table({"id": ["a"], "city": ["x"], "v": [1], "ts": [1]}), **eager)
    now = load(t.storage)
    assert all(OURS not in now.commit(i).extra for i in now.timeline.completed_writes())
    assert offsets(t) == {"orders:0": 3}


def test_restore_and_rollback_take_the_offsets_back(tmp_path):
    t = table(tmp_path / "t")
    store(t, orders=[3])
    handle = lakesql.open_table(t.path)
    saved = handle.upsert(pa.table({"id": ["a"], "city": ["x"], "v": [1], "ts": [1]})).instant
    with lakesql.connect() as con:
        con.sql(f"CREATE TABLE t USING hudi LOCATION '{t.path}'")
        con.sql(f"CALL create_savepoint(table => 't', commit_time => '{saved}')")
        store(t, orders=[8])
        last = store(t, orders=[9]).instant
        con.sql(f"CALL rollback_to_instant(table => 't', instant_time => '{last}')")
        assert offsets(t) == {"orders:0": 8}
        con.sql("CALL rollback_to_savepoint(table => 't')")
    assert offsets(t) == {"orders:0": 3}


def test_history_has_a_row_for_each_commit_of_an_ingestion_and_none_for_copies(tmp_path):
    t = table(tmp_path / "t")
    first = store(t, "one", "r1", orders=[3, 4])
    upsert(t, ("a", "x", 1, 1))
    second = store(t, "two", "r2", clicks=[1])
    third = store(t, "one", "r3", orders=[5, 4])
    rows = runs_table(load(t.storage)).to_pylist()
    assert [(r["instant"], r["ingestion"], r["run"]) for r in rows] == [
        (first.instant, "one", "r1"),
        (second.instant, "two", "r2"),
        (third.instant, "one", "r3"),
    ]
    assert rows[2]["offsets"][0] == {"topic": "orders", "partition": 0, "low": 0, "next": 5}
    assert runs_table(load(t.storage), "two").num_rows == 1


# ---------------------------------------------------------------- files


def test_exported_state_is_imported_as_it_was(tmp_path):
    file = tmp_path / "state.json"
    file.write_text(export_state(FULL))
    assert read_state_file(file, "a job") == FULL
    assert import_state(export_state(FULL), "another") == replace(FULL, ingestion="another")


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition,offset\na,0,5\na,1,7\n",
        "\ufeffoffset, topic, partition\n5,a,0\n7,a,1\n",
        '[{"topic": "a", "partition": 0, "offset": 5}, {"topic": "a", "partition": "1", "offset": 7}]',
    ],
)
def test_plain_offsets_are_imported_as_csv_and_json(tmp_path, text):
    file = tmp_path / "offsets"
    file.write_text(text)
    assert read_state_file(file, "one").offsets() == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("topic,offset\na,1\n", "the columns are topic, offset"),
        ("topic,partition,offset\n", "names no partition"),
        ("topic,partition,offset\na,0,-1\n", "row 2"),
        ("topic,partition,offset\na,0,1\na,0,2\n", "row 3 names a:0 a second time"),
        ("topic,partition,offset\n,0,1\n", "row 2 has no topic"),
        ("[1]", "row 1"),
        ("{", "not JSON"),
        ("{}", "cannot be read"),
        ('[{"topic": "a", "partition": 0, "offset": true}]', "row 1"),
    ],
)
def test_offsets_that_cannot_be_understood_are_refused(text, message):
    with pytest.raises(JobError, match=message):
        import_state(text, "one")


def test_gobblin_state_is_refused_with_a_way_out(tmp_path):
    folder = tmp_path / "PullFromKafka"
    folder.mkdir()
    (folder / "current.jst").write_bytes(b"SEQ\x06")
    for path in (folder, folder / "current.jst"):
        with pytest.raises(JobError, match=r"serialised Java objects.*SET OFFSETS"):
            read_state_file(path, "one")
    (tmp_path / "state.bin").write_bytes(b"SEQ\x06\x19org.apache.hadoop.io.Text")
    with pytest.raises(JobError, match="serialised Java objects"):
        read_state_file(tmp_path / "state.bin", "one")
    with pytest.raises(JobError, match="cannot be read"):
        read_state_file(tmp_path / "nowhere.csv", "one")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "topic,partition,offset\n" + "o" * 200_000 + ",0,1",
        "topic,partition,offset\no,0," + "9" * 30,
        "topic,partition,offset\no," + "9" * 10 + ",1",
        '{"version": 1, "partitions": {"o": {"0": {"next": 1' + "0" * 30 + ', "low": 0}}}}',
        '{"version": 1, "partitions": {"o": {"' + "9" * 5000 + '": {"next": 1, "low": 0}}}}',
    ],
    ids=["nested", "long field", "offset", "partition", "next", "number"],
)
def test_what_is_too_deep_or_too_large_is_no_state(text: str) -> None:
    with pytest.raises(JobError):
        import_state(text, "x")
