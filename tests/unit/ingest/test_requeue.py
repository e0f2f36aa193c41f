"""REPLAY INGESTION ... FROM QUARANTINE: what can be decoded by now comes in once, what cannot stays, whatever dies when."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.errors import FormatError, IngestConflict
from lakesql.ingest import requeue
from lakesql.ingest.state import decode, encode
from tests.kafka.fixtures import Ask
from tests.kafka.produce import Record, produce

LENIENT = "WITH ('lakesql.json.lenient' = 'true')"
REPLAY = f"REPLAY INGESTION o FROM QUARANTINE {LENIENT}"
KEYED = "TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"
OFFSETS = "SELECT topic, partition, next FROM kafka_offsets('orders') ORDER BY ALL"
ROWS = "SELECT id, ts FROM orders ORDER BY ALL"
BAD = "SELECT _partition, _offset, stage FROM kafka_quarantine('orders') ORDER BY ALL"


def good(number, ts=None):
    return json.dumps({"id": number, "ts": number if ts is None else ts}).encode()


def quoted(number, ts=None):
    return json.dumps({"id": str(number), "ts": number if ts is None else ts}).encode()


FIRST = {0: [good(1), quoted(2), b"no JSON", good(3)], 1: [quoted(4), good(5)]}


def rows(con, sql, *params):
    return con.execute(sql, *params).fetchall()


def named(con, sql):
    found = con.execute(sql)
    names = [d[0] for d in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.fixture
def con(tmp_path):
    with lakesql.connect(warehouse=tmp_path / "lake") as made:
        yield made


@pytest.fixture
def orders(mock_kafka):
    mock_kafka.create("orders", 2)
    for partition, values in FIRST.items():
        produce(mock_kafka.brokers, "orders", values, partition=partition)
    return mock_kafka.brokers


def ingestion(brokers, into="orders", rest=KEYED, more=""):
    return (
        f"CREATE INGESTION o AS INGEST INTO {into} FROM KAFKA ('kafka.brokers' = '{brokers}', 'topic.whitelist' = 'orders', "
        f"'bootstrap.with.offset' = 'earliest'{more}) FORMAT JSON (columns 'id BIGINT, ts BIGINT') {rest}"
    )


@pytest.fixture
def begun(con, orders):
    rows(con, ingestion(orders))
    rows(con, "RUN INGESTION o")
    assert rows(con, ROWS) == [(1, 1), (3, 3), (5, 5)]
    return con


def test_what_is_good_now_comes_in_once_and_what_is_not_stays(begun, orders):
    before = rows(begun, OFFSETS)
    found = named(begun, REPLAY)
    assert [(r["partition"], r["low"], r["high"], r["read"], r["written"], r["quarantined"]) for r in found] == [
        (0, 1, 3, 2, 1, 1), (1, 0, 1, 1, 1, 0),
    ]  # fmt: skip
    assert begun.last_result.rows_inserted == 2
    assert rows(begun, ROWS) == [(n, n) for n in range(1, 6)]
    assert rows(begun, BAD) == [(0, 2, "decode")]
    assert rows(begun, "SELECT _value, error FROM kafka_quarantine('orders')")[0][0] == b"no JSON"
    assert rows(begun, OFFSETS) == before
    commits = rows(begun, "SELECT instant, records, note FROM kafka_ingest_runs('orders')")
    assert commits[-1][2] == "replay of 3 quarantined records: 2 can be decoded now"

    named(begun, REPLAY)
    assert begun.last_result.instant is None
    assert "of 1 record in quarantine none can be decoded now" in str(begun.last_result.notes)
    assert rows(begun, "SELECT instant, records, note FROM kafka_ingest_runs('orders')") == commits

    produce(orders, "orders", [good(6), b"{"], partition=1)
    assert [r["read"] for r in named(begun, "RUN INGESTION o")] == [0, 2]
    assert rows(begun, BAD) == [(0, 2, "decode"), (1, 3, "decode")]
    assert rows(begun, "SELECT count(*) FROM orders") == [(6,)]


def test_with_the_format_of_before_nothing_is_committed(begun):
    commits = rows(begun, "SELECT count(*) FROM hudi_timeline('orders')")
    report = named(begun, "REPLAY INGESTION o FROM QUARANTINE")
    assert [(r["read"], r["written"], r["quarantined"]) for r in report] == [(2, 0, 2), (1, 0, 1)]
    assert rows(begun, "SELECT count(*) FROM hudi_timeline('orders')") == commits
    assert len(rows(begun, BAD)) == 3


def test_the_format_of_the_job_is_what_counts(begun):
    rows(begun, "ALTER INGESTION o SET OPTIONS ('lakesql.json.lenient' = 'true')")
    plan = named(begun, "EXPLAIN REPLAY INGESTION o FROM QUARANTINE")
    assert [(r["partition"], r["low"], r["high"], r["reason"]) for r in plan] == [
        (0, 1, 3, "quarantine: 2 records"), (1, 0, 1, "quarantine: 1 record"),
    ]  # fmt: skip
    assert len(rows(begun, BAD)) == 3
    named(begun, "REPLAY INGESTION o FROM QUARANTINE")
    assert len(rows(begun, ROWS)) == 5


def test_a_row_that_was_stored_later_is_newer(begun, orders):
    produce(orders, "orders", [good(2, 50)], partition=0)
    rows(begun, "RUN INGESTION o")
    named(begun, REPLAY)
    assert (2, 50) in rows(begun, ROWS)


def test_files_without_a_good_record_stay_as_they_are(begun, orders, tmp_path):
    produce(orders, "orders", [b"1 2"], partition=1)
    rows(begun, "RUN INGESTION o")
    files = sorted(p.name for p in (tmp_path / "lake/orders_quarantine").glob("*.parquet"))
    assert len(files) == 2
    named(begun, REPLAY)
    assert rows(begun, BAD) == [(0, 2, "decode"), (1, 2, "decode")]
    assert len(list((tmp_path / "lake/orders_quarantine").glob("*.parquet"))) == 3
    rows(begun, "RUN INGESTION o")
    assert rows(begun, BAD) == [(0, 2, "decode"), (1, 2, "decode")]


def test_a_table_without_a_key_and_a_folder_of_files_get_the_rows_once_too(con, orders, tmp_path):
    rows(con, ingestion(orders, rest="TBLPROPERTIES (type = 'cow')"))
    rows(con, ingestion(orders, f"FILES '{tmp_path}/out'", "USING PARQUET").replace("INGESTION o", "INGESTION f"))
    for name in "of":
        rows(con, f"RUN INGESTION {name}")
        for _ in range(2):
            named(con, f"REPLAY INGESTION {name} FROM QUARANTINE {LENIENT}")
    assert rows(con, ROWS) == [(n, n) for n in range(1, 6)]
    assert rows(con, f"SELECT id FROM read_parquet('{tmp_path}/out/orders/**/*.parquet') ORDER BY id") == [
        (n,) for n in range(1, 6)
    ]
    found = rows(con, f"SELECT _offset, stage FROM kafka_quarantine('{tmp_path}/out')")
    assert found == [(2, "decode")]
    assert [r["read"] for r in named(con, "RUN INGESTION f")] == [0, 0]


def test_each_table_of_a_topic_has_its_own_quarantine(con, orders):
    rows(con, ingestion(orders, "'raw_{topic}'"))
    rows(con, "RUN INGESTION o")
    named(con, REPLAY)
    assert rows(con, "SELECT count(*) FROM raw_orders") == [(5,)]
    assert rows(con, "SELECT _offset FROM kafka_quarantine('raw_orders')") == [(2,)]


def test_records_without_a_key_stay(con, mock_kafka):
    mock_kafka.create("orders", 1)
    produce(mock_kafka.brokers, "orders", [good(1), b'{"ts": 7}', quoted(2)])
    rows(con, ingestion(mock_kafka.brokers))
    rows(con, "RUN INGESTION o")
    assert rows(con, BAD) == [(0, 1, "key"), (0, 2, "type")]
    kept = rows(con, "SELECT _value, error FROM kafka_quarantine('orders') WHERE stage = 'key'")
    named(con, REPLAY)
    assert rows(con, "SELECT _value, error FROM kafka_quarantine('orders')") == kept
    assert rows(con, ROWS) == [(1, 1), (2, 2)]


def test_a_tombstone_whose_key_is_good_now_deletes(con, mock_kafka):
    mock_kafka.create("orders", 1)
    produce(mock_kafka.brokers, "orders", [Record(good(7), b"7"), Record(None, b'"7"')])
    key = ", 'lakesql.key.format' = 'json', 'lakesql.key.columns' = 'id BIGINT'"
    rows(con, ingestion(mock_kafka.brokers, rest="TBLPROPERTIES (type = 'mor', primaryKey = 'id')", more=key))
    rows(con, "RUN INGESTION o")
    assert len(rows(con, BAD)) == 1
    named(con, REPLAY)
    assert (rows(con, ROWS), rows(con, BAD)) == ([], [])


def test_a_replay_that_is_undone_can_be_done_again(begun):
    [instant] = rows(begun, "SELECT max(instant) FROM hudi_timeline('orders')")[0]
    rows(begun, "CALL create_savepoint(table => 'orders', commit_time => $1)", [instant])
    named(begun, REPLAY)
    rows(begun, "CALL rollback_to_savepoint(table => 'orders', instant_time => $1)", [instant])
    assert len(rows(begun, BAD)) == 3
    named(begun, REPLAY)
    assert (len(rows(begun, ROWS)), len(rows(begun, BAD))) == (5, 1)


def test_of_two_replays_at_a_time_one_commits(begun, monkeypatch):
    decode_all, others = requeue._decode_all, [0]

    def beside(*args):
        decode_all(*args)
        if not others[0]:
            others[0] += 1
            with begun.cursor() as other:
                rows(other, REPLAY)

    monkeypatch.setattr(requeue, "_decode_all", beside)
    rows(begun, "ALTER INGESTION o SET OPTIONS ('job.lock.enabled' = 'false')")
    with pytest.raises(IngestConflict, match="another replay of the quarantine of o was faster"):
        rows(begun, REPLAY)
    assert (len(rows(begun, ROWS)), len(rows(begun, BAD))) == (5, 1)


def test_a_replay_beside_a_run_that_moves_the_offsets_commits_nothing(begun, orders, monkeypatch):
    decode_all = requeue._decode_all

    def beside(*args):
        decode_all(*args)
        produce(orders, "orders", [good(9)], partition=0)
        with begun.cursor() as other:
            rows(other, "RUN INGESTION o")

    monkeypatch.setattr(requeue, "_decode_all", beside)
    rows(begun, "ALTER INGESTION o SET OPTIONS ('job.lock.enabled' = 'false')")
    with pytest.raises(IngestConflict, match="another run of the ingestion o was faster"):
        rows(begun, REPLAY)
    assert (len(rows(begun, ROWS)), len(rows(begun, BAD))) == (4, 3)


def test_a_released_file_that_is_gone_is_no_fault_and_one_in_quarantine_is(begun, tmp_path):
    named(begun, REPLAY)
    folder = tmp_path / "lake/orders_quarantine"
    inside = {p: pq.read_table(p).num_rows for p in folder.glob("*.parquet")}
    [old] = [p for p, count in inside.items() if count == 3]
    old.unlink()
    assert len(rows(begun, BAD)) == 1
    [new] = [p for p, count in inside.items() if count == 1]
    new.unlink()
    with pytest.raises(FormatError, match="a commit names this file"):
        rows(begun, BAD)


def test_released_files_are_kept_in_the_state():
    stored = {"version": 1, "partitions": {}, "released": ["a-0000.parquet"]}
    assert encode(decode("o", stored, "x"))["released"] == ["a-0000.parquet"]
    with pytest.raises(FormatError, match="released is not a list of names"):
        decode("o", stored | {"released": "a"}, "x")


@pytest.mark.slow
@pytest.mark.parametrize("into", ["orders", "files"])
def test_a_replay_that_is_killed_at_any_call_of_the_storage_is_made_good_by_the_next(
    into: str, orders: str, tmp_path: Path, dying_run: Ask
) -> None:
    kept, moved = tmp_path / "kept", tmp_path / "moved"
    out = f"FILES '{moved}/out'" if into == "files" else into
    where = f"read_parquet('{moved}/out/orders/**/*.parquet')" if into == "files" else into
    bad = f"SELECT _offset FROM kafka_quarantine('{moved / 'out' if into == 'files' else into}')"
    with lakesql.connect(warehouse=kept) as con:
        rows(con, ingestion(orders, out, "USING PARQUET" if into == "files" else KEYED))
    shutil.copytree(kept, moved)
    with lakesql.connect(warehouse=moved) as con:
        rows(con, "RUN INGESTION o")
    shutil.rmtree(kept)
    shutil.copytree(moved, kept)
    killed = set()
    for call in range(1, 100):
        shutil.rmtree(moved)
        shutil.copytree(kept, moved)
        answer = dying_run(REPLAY, moved, call, ("before", "torn", "after")[call % 3])
        with lakesql.connect(warehouse=moved) as con:
            if into == "orders":  # a reader of files takes those that stand there, also of a commit that is named later
                state = (len(rows(con, f"SELECT id FROM {where}")), len(rows(con, bad)))
                assert state in ((3, 3), (5, 1)), (call, state)
                killed.add(state)
            rows(con, REPLAY)
            assert rows(con, f"SELECT id FROM {where} ORDER BY id") == [(n,) for n in range(1, 6)], call
            assert rows(con, bad) == [(2,)], call
            assert [r["read"] for r in named(con, "RUN INGESTION o")] == [0, 0], call
        word, _, calls = answer.partition(" ")
        assert word in ("killed", "done"), answer  # done: the call failed by itself, as it may, before it was through
        if word == "done" and int(calls) < call:
            break
    assert call > 3
    assert into == "files" or killed == {(3, 3), (5, 1)}
