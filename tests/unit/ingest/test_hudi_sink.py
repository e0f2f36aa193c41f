"""A Hudi table as the target of an ingestion: what a commit holds, and when it is refused."""

import socket
import subprocess
import sys
import threading
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakesql
from lakesql.counted import counted
from lakesql.errors import IngestConflict, IngestError, JobError, TableError
from lakesql.ingest import tombstones
from lakesql.ingest.hudi_sink import HudiSink
from lakesql.ingest.model import Decoded, PartitionState, Range, State, TopicPartition, WorkUnit
from lakesql.ingest.quarantine import quarantine_table
from lakesql.ingest.spool import Spool
from lakesql.storage import open_storage
from lakesql.table.state import load
from tests.unit.ingest.loading import (
    BAD,
    BAD_SCHEMA,
    CON,
    KEYED,
    after,
    decoded,
    job,
    record,
    rows_of,
    run,
    sink,
    units,
)
from tests.unit.test_cleaning_golden import unpacked

ONE, TWO = ("o", 0), ("o", 1)


def commits(path):
    return len(load(open_storage(path)).timeline.completed_writes())


def said(done):
    return " ".join(done.notes)


def next_of(target):
    return {str(at): offset for at, offset in target.stored().offsets().items()}


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("version", ["9", "6"])
def test_rows_and_offsets_come_with_one_commit(tmp_path, type_, version):
    path = tmp_path / "t"
    given = job(path, properties={"type": type_, "primaryKey": "id", "hoodie.table.version": version})
    topics = {ONE: [record(1, 10), record(2, 20), record(1, 11)], TWO: [record(3, 30)]}
    done = run(sink(path, given), topics)
    assert (done.inserted, done.updated, done.ignored) == (3, 0, 1)
    assert rows_of(path) == [(1, 11), (2, 20), (3, 30)]
    assert next_of(sink(path, given)) == {"o:0": 3, "o:1": 1}
    topics[ONE] += [record(2, 21), record(4, 40)]
    done = run(sink(path, given), topics)
    assert (done.inserted, done.updated) == (1, 1)
    assert rows_of(path) == [(1, 11), (2, 21), (3, 30), (4, 40)]
    assert commits(path) == 2
    state = load(open_storage(path))
    assert state.config.is_mor == (type_ == "mor")
    assert state.config.version == int(version)
    assert state.schema.names == ["id", "v"]


def test_run_without_anything_new_makes_no_commit(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    run(sink(path), topics)
    done = run(sink(path), topics)
    assert done.commit is None
    assert commits(path) == 1


def test_table_without_key_takes_every_record(tmp_path):
    path = tmp_path / "t"
    given = job(path, properties={"type": "mor"})
    topics = {ONE: [record(1, 10), record(1, 10), ("1", None)]}
    done = run(sink(path, given), topics)
    assert done.inserted == 2
    assert "1 tombstone skipped: the table has no record key." in said(done)
    assert rows_of(path) == [(1, 10), (1, 10)]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_operation_that_looks_up_no_keys_keeps_repeated_ones(tmp_path, operation):
    path = tmp_path / "t"
    given = job(path, operation=operation)
    topics = {ONE: [record(1, 10), record(1, 11), ("1", None)]}
    done = run(sink(path, given), topics)
    assert f"the operation {operation} looks up no keys" in said(done)
    assert rows_of(path) == [(1, 10), (1, 11)]


def test_rows_lie_in_the_order_of_topic_partition_and_offset(tmp_path):
    path = tmp_path / "t"
    given = job(path, properties={"type": "cow"})
    topics = {("b", 0): [record(n, 0) for n in range(5)], ("a", 1): [record(n, 1) for n in range(5)]}
    topics["a", 0] = [record(n, 2) for n in range(5)]
    target = sink(path, given)
    before = target.stored()
    load_ = target.begin(before, "r")
    work = {unit.ranges[0].at: unit for unit in units(topics, before)}
    for start in (3, 0):  # batches come as they come
        for at in sorted(work, reverse=True):
            batch = [(n, *topics[at][n]) for n in range(start, min(start + 3, 5))]
            load_.take(work[at], decoded(*at, batch[::-1]))
    load_.commit(after(before, list(work.values()), topics, "r"))
    found = lakesql.open_table(path).read(columns=["v", "id"]).read_all().to_pylist()
    assert [tuple(r.values()) for r in found] == [(v, n) for v in (2, 1, 0) for n in range(5)]


def test_batches_of_many_partitions_are_brought_into_order(tmp_path):
    path = tmp_path / "t"
    given = job(path, properties={"type": "cow"})
    topics = {("o", n): [record(n, i) for i in range(4)] for n in range(6)}
    target = sink(path, given)
    before = target.stored()
    load_ = target.begin(before, "r")
    ranges = tuple(Range("o", n, 0, 4, "stored") for n in range(6))
    unit = WorkUnit("o", ranges, 0)
    for offset in range(4):
        mixed = pa.concat_tables(
            [decoded("o", n, [(offset, *topics["o", n][offset])]).rows for n in (4, 2, 5, 0, 1, 3)]
        )
        one = decoded("o", 0, [])
        load_.take(unit, replace(one, rows=mixed.unify_dictionaries()))
    load_.commit(after(before, [unit], topics, "r"))
    found = lakesql.open_table(path).read(columns=["id", "v"]).read_all().to_pylist()
    assert [tuple(r.values()) for r in found] == [(n, i) for n in range(6) for i in range(4)]


def test_units_from_several_threads_are_all_there(tmp_path):
    path = tmp_path / "t"
    topics = {("o", n): [record(n * 1000 + i, i) for i in range(300)] for n in range(8)}
    target = sink(path)
    before = target.stored()
    load_ = target.begin(before, "r")
    work = units(topics, before)

    def read(unit):
        (one,) = unit.ranges
        records = [(o, *r) for o, r in enumerate(topics[one.topic, one.partition])]
        for start in range(0, 300, 20):
            load_.take(unit, decoded(one.topic, one.partition, records[start : start + 20]))

    threads = [threading.Thread(target=read, args=(unit,)) for unit in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load_.commit(after(before, work, topics, "r")).inserted == 2400
    assert rows_of(path) == sorted(((n * 1000 + i, i) for n in range(8) for i in range(300)), key=repr)


def test_forgotten_unit_does_not_count(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), ("x", BAD)], TWO: [record(2, 20), ("y", BAD)]}
    target = sink(path)
    before = target.stored()
    load_ = target.begin(before, "r")
    work = units(topics, before)
    for unit, at in zip(work, (ONE, TWO), strict=True):
        load_.take(unit, decoded(*at, [(n, *r) for n, r in enumerate(topics[at])]))
    load_.forget(work[0])
    load_.commit(after(before, work[1:], topics, "r"))
    assert rows_of(path) == [(2, 20)]
    assert quarantine_table(str(path))["_key"].to_pylist() == [b"y"]
    run(target, topics)
    assert rows_of(path) == [(1, 10), (2, 20)]
    assert quarantine_table(str(path))["_key"].to_pylist() == [b"y", b"x"]


# ---------------------------------------------------------------- columns


def test_offset_columns_of_hudi_streamer_are_appended_when_asked_for(tmp_path):
    path = tmp_path / "t"
    given = job(path, options={"hoodie.streamer.source.kafka.append.offsets": "true"})
    run(sink(path, given), {ONE: [record(1, 10), record(2, 20)]})
    names = ["id", "v", *(f"_hoodie_kafka_source_{n}" for n in ("offset", "partition", "timestamp", "key"))]
    assert load(open_storage(path)).schema.names == names
    assert rows_of(path, names) == [
        (1, 10, 0, 0, 1_700_000_000_000, "1"),
        (2, 20, 1, 0, 1_700_000_000_001, "2"),
    ]


def test_select_sees_the_columns_of_kafka_and_decides_what_is_stored(tmp_path):
    path = tmp_path / "t"
    select = "SELECT id, v * 2 AS v, _topic || '-' || _partition AS place, decode(_key) AS k FROM kafka WHERE v > 10;"
    given = job(path, select=select, partition_by=("place",), properties=KEYED)
    topics = {ONE: [record(1, 10), record(2, 20)], TWO: [record(3, 30)]}
    run(sink(path, given), topics)
    assert rows_of(path, ("id", "v", "place", "k")) == [(2, 40, "o-0", "2"), (3, 60, "o-1", "3")]
    assert load(open_storage(path)).schema.names == ["id", "v", "k", "place"]
    assert next_of(sink(path, given)) == {"o:0": 2, "o:1": 1}


def test_a_column_that_is_called_like_one_of_kafka_does_not_get_its_values(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), record(2, 20)]}
    run(sink(path, job(path, select="SELECT id, v, 70::BIGINT AS _offset FROM kafka")), topics)
    topics[ONE] += [record(3, 30)]
    run(sink(path), topics)
    assert rows_of(path, ("id", "v", "_offset")) == [(1, 10, 70), (2, 20, 70), (3, 30, None)]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("SELECT nothing FROM kafka", "AS SELECT does not fit the records: .*nothing.*has the columns id, v, _topic"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("SELECT FROM WHERE", "AS SELECT does not fit"),
    ],
)
def test_select_that_cannot_run_is_refused_before_anything_is_written(tmp_path, select, message):
    with pytest.raises(JobError, match=message):
        run(sink(tmp_path / "t", job(tmp_path / "t", select=select)), {ONE: [record(1, 10)]})
    assert not (tmp_path / "t").exists()


def test_new_column_is_added_only_where_a_setting_allows_it(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    run(sink(path), topics)
    topics[ONE].append(record(2, 20, w="new"))
    with pytest.raises(TableError, match="the rows have the column w"):
        run(sink(path), topics)
    assert next_of(sink(path)) == {"o:0": 1}
    run(sink(path, job(path, settings={"lakesql.schema.evolve": "true"})), topics)
    assert rows_of(path, ("id", "v", "w")) == [(1, 10, None), (2, 20, "new")]


def test_batches_of_one_run_may_have_different_columns(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), record(2, 20), record(3, 30), record(4, 40, w="x"), record(5, 50.5)]}
    run(sink(path), topics, batch=1)
    assert rows_of(path, ("id", "v", "w")) == [
        (1, 10.0, None),
        (2, 20.0, None),
        (3, 30.0, None),
        (4, 40.0, "x"),
        (5, 50.5, None),
    ]


def test_batches_that_do_not_agree_about_a_column_are_refused(tmp_path):
    topics = {ONE: [record(1, 10), record(2, "text")]}
    with pytest.raises(IngestError, match=r"do not agree about their columns.*\bv\b.*Nothing was committed"):
        run(sink(tmp_path / "t"), topics, batch=1)
    assert not (tmp_path / "t").exists()


def test_column_that_is_there_twice_is_refused(tmp_path):
    topics = {ONE: [("1", {"id": 1, "V": 1, "v": 2})]}
    with pytest.raises(IngestError, match="the column v twice"):
        run(sink(tmp_path / "t"), topics)


def test_unknown_property_of_a_new_table_is_an_error_of_the_job(tmp_path):
    given = job(tmp_path / "t", properties={"primarykey": "id"})
    with pytest.raises(JobError, match="did you mean primaryKey"):
        run(sink(tmp_path / "t", given), {ONE: [record(1, 10)]})


# ---------------------------------------------------------------- empty runs


def test_empty_first_run_keeps_its_start_offsets_until_there_is_a_table(tmp_path):
    path = tmp_path / "t"
    start = State("orders", "r1", 1, {TopicPartition("o", 0): PartitionState(7, 7)})
    done = sink(path).begin(sink(path).stored(), "r1").commit(start)
    assert done.commit is None
    assert "start offsets wait in" in done.notes[0]
    assert not path.exists()
    assert next_of(sink(path)) == {"o:0": 7}
    assert sink(path, job(path, "another")).stored() == State("another")
    topics = {ONE: [record(n, n) for n in range(9)]}
    run(sink(path), topics)
    assert rows_of(path) == [(7, 7), (8, 8)]
    assert next_of(sink(path)) == {"o:0": 9}
    assert not list((tmp_path / "t_ingest").glob("*.json"))


def test_two_empty_first_runs_do_not_overwrite_each_other(tmp_path):
    path = tmp_path / "t"
    before = sink(path).stored()
    loads = [sink(path).begin(before, name) for name in "ab"]
    states = [State("orders", "r", 1, {TopicPartition("o", 0): PartitionState(n, n)}) for n in (7, 8)]
    loads[0].commit(states[0])
    with pytest.raises(IngestConflict, match="was faster"):
        loads[1].commit(states[1])
    loads[1].discard()
    assert next_of(sink(path)) == {"o:0": 7}


def test_empty_first_run_makes_the_table_when_the_columns_are_known(tmp_path):
    path = tmp_path / "t"
    target = sink(path)
    load_ = target.begin(target.stored(), "r")
    empty = decoded("o", 0, [(0, *record(1, 10))])
    load_.take(
        WorkUnit("o", (Range("o", 0, 5, 5, "bootstrap latest"),), 0), replace(empty, rows=empty.rows.slice(0, 0))
    )
    done = load_.commit(State("orders", "r", 1, {TopicPartition("o", 0): PartitionState(5, 5)}))
    assert done.commit is not None
    assert rows_of(path) == []
    assert next_of(sink(path)) == {"o:0": 5}


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_offsets_alone_are_a_commit_of_a_table_that_exists(tmp_path, type_):
    path = tmp_path / "t"
    lakesql.create_table(path, pa.schema([("id", pa.int64()), ("v", pa.int64())]), type=type_, primary_key=["id"])
    target = sink(path)
    done = target.begin(target.stored(), "r").commit(
        State("orders", "r", 1, {TopicPartition("o", 0): PartitionState(5, 5)})
    )
    assert done.commit is not None
    run(target, {ONE: [record(n, n) for n in range(7)]})
    assert rows_of(path) == [(5, 5), (6, 6)]
    moved = after(target.stored(), [], {}, "set")
    moved = replace(moved, partitions={TopicPartition("o", 0): PartitionState(0, 0)}, note="set by hand")
    target.begin(target.stored(), "set").commit(moved)
    assert next_of(target) == {"o:0": 0}
    assert target.stored().note == "set by hand"


def test_first_run_of_bad_records_only_is_read_again(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [("x", BAD)]}
    with pytest.raises(IngestError, match="of 1 record of the first run none can be decoded"):
        run(sink(path), topics)
    assert next_of(sink(path)) == {"o:0": 0}
    topics[ONE].append(record(1, 10))
    run(sink(path), topics)
    assert rows_of(path) == [(1, 10)]
    assert quarantine_table(str(path)).num_rows == 1


def test_records_without_a_move_of_an_offset_are_an_error(tmp_path):
    target = sink(tmp_path / "t")
    load_ = target.begin(target.stored(), "r")
    load_.take(units({ONE: [record(1, 1)]}, target.stored())[0], decoded("o", 0, [(0, *record(1, 1))]))
    with pytest.raises(IngestError, match="no offset of the ingestion orders moved"):
        load_.commit(State("orders"))
    load_.discard()


# ---------------------------------------------------------------- tombstones


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_last_record_of_a_key_by_offset_wins_between_rows_and_tombstones(tmp_path, type_, ordered):
    path = tmp_path / "t"
    more = {"orderingFields": "v"} if ordered else {}
    given = job(path, properties={"type": type_, "primaryKey": "id", **more})
    topics = {ONE: [record(1, 10), record(2, 20), record(3, 30)]}
    run(sink(path, given), topics)
    topics[ONE] += [
        ("1", None),  # gone
        record(2, 99),
        ("2", None),  # gone, though its row is newer by the ordering field
        ("4", None),  # not there
        record(4, 40),
        record(5, 50),
        ("5", None),
        record(5, 5),  # behind its tombstone: stays, though older by the ordering field
        record(6, 60),
        ("6", None),
    ]
    done = run(sink(path, given), topics)
    assert rows_of(path) == [(3, 30), (4, 40), (5, 5)]
    assert done.deleted == 2


def test_tombstones_alone_delete(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), record(2, 20)]}
    run(sink(path), topics)
    topics[ONE].append(("1", None))
    for asked in (job(path), job(path, select="SELECT id, v FROM kafka")):
        run(sink(path, asked), topics)
        assert rows_of(path) == [(2, 20)]


def test_select_that_cannot_run_over_tombstones_is_refused(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10, w=1)]}
    select = "SELECT id, v + w AS v FROM kafka"
    run(sink(path, job(path, select=select)), topics)
    topics[ONE].append(("1", None))
    with pytest.raises(JobError, match=r"AS SELECT cannot run over tombstones: .*w"):
        run(sink(path, job(path, select=select)), topics)
    topics[ONE].append(record(2, 20, w=2))
    run(sink(path, job(path, select=select)), topics)
    assert rows_of(path) == [(2, 22)]


def test_tombstones_go_through_the_select(tmp_path):
    path = tmp_path / "t"
    select = "SELECT 'k' || id AS id, v + 1 AS v FROM kafka"
    topics = {ONE: [record(1, 10), record(2, 20)]}
    run(sink(path, job(path, select=select)), topics)
    topics[ONE] += [("1", None), record(2, 30), record(3, 30), ("3", None), ("2", None), record(2, 31)]
    run(sink(path, job(path, select=select)), topics)
    assert rows_of(path) == [("k2", 32)]


def test_key_of_a_tombstone_may_be_taken_from_the_bytes_of_the_kafka_key(tmp_path):
    path = tmp_path / "t"
    select = "SELECT decode(_key) AS id, v FROM kafka"
    topics = {ONE: [record(1, 10), record(2, 20), ("2", None)]}
    run(sink(path, job(path, select=select)), topics, key=None)
    assert rows_of(path) == [("1", 10)]
    topics[ONE] += [("1", None), record(3, 30)]
    run(sink(path, job(path, select=select)), topics, key=None)
    assert rows_of(path) == [("3", 30)]


def test_tombstones_without_a_key_format_void_no_row_of_their_own_commit_either(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), ("1", None), record(2, 20), ("2", None), ("3", None)]}
    done = run(sink(path), topics, key=None)
    assert rows_of(path) == [(1, 10), (2, 20)]
    assert "3 tombstones skipped: the record key is NULL, since nothing says that the Kafka key holds id" in said(done)


BY_KEY = "coalesce(id, TRY_CAST(decode(_key) AS BIGINT)) AS id, v FROM kafka"


@pytest.mark.parametrize(
    ("select", "left", "skipped"),
    [
        ("SELECT id, v FROM kafka", [1, 2, 3, 9], 3),  # the key is in the value alone
        (f"SELECT {BY_KEY} WHERE v IS NOT NULL", [1, 2, 3, 9], 3),
        (f"SELECT {BY_KEY} WHERE decode(_key) <> '2'", [3], 1),
        ("SELECT coalesce(k.id, n.id) AS id, v FROM kafka k LEFT JOIN names n ON n.name = decode(_key)", [1, 3, 9], 2),
        (f"WITH n AS (SELECT {BY_KEY}) FROM n -- and no more", [3], 0),
        ("SELECT TRY_CAST(decode(_key) AS BIGINT) AS id, max(v) AS v FROM kafka GROUP BY _key", [3], 0),
    ],
)
def test_tombstone_of_which_the_select_makes_no_key_deletes_and_voids_nothing(tmp_path, select, left, skipped):
    path = tmp_path / "t"
    topics = {ONE: [record(9, 9)]}
    run(sink(path), topics)
    topics[ONE] += [record(1, 10), record(2, 20), record(3, 30), ("1", None), ("2", None), ("9", None)]
    with duckdb.connect() as con:
        con.execute("CREATE TABLE names AS SELECT 2 AS id, '2' AS name")
        done = run(HudiSink(con, job(path, select=select), str(path)), topics, key=None)
    assert [row[0] for row in rows_of(path)] == left
    assert (f"{counted(skipped, 'tombstone')} skipped: AS SELECT makes no row" in said(done)) == (skipped > 0)


class Asked:
    """A connection on which it fails to ask about one tombstone at a time."""

    def __init__(self, con, error):
        self._con, self._error = con, error

    def execute(self, sql):
        if "WHERE EXISTS" in sql:
            raise self._error
        return self._con.execute(sql)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (duckdb.OutOfMemoryException("x"), True),
        (duckdb.InterruptException("x"), True),
        (duckdb.IOException("x"), True),
        (duckdb.ConversionException("x"), True),
        (duckdb.BinderException("x"), False),
        (duckdb.ParserException("x"), False),
        (duckdb.NotImplementedException("x"), False),
    ],
)
def test_tombstones_are_all_meant_only_where_the_select_cannot_be_asked_about_each(tmp_path, error, raised):
    path = tmp_path / "t"
    run(sink(path), {ONE: [record(1, 10)]})
    table, asked = load(open_storage(path)), ("SELECT id FROM kafka", "tombs", [])
    with duckdb.connect() as con:
        con.execute("CREATE TABLE tombs AS SELECT 1 AS id")
        con.execute("CREATE VIEW kafka AS FROM tombs")
        assert tombstones.meant(con, table, *asked) == tombstones.MEANT
        if raised:
            with pytest.raises(type(error)):
                tombstones.meant(Asked(con, error), table, *asked)
        else:
            assert tombstones.meant(Asked(con, error), table, *asked) == "tombs"


def test_a_select_that_cannot_be_asked_about_one_tombstone_takes_all_of_them(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), record(2, 20)]}
    select = "SELECT id, v FROM kafka USING SAMPLE 100%"
    run(sink(path, job(path, select=select)), topics)
    topics[ONE].append(("1", None))
    run(sink(path, job(path, select=select)), topics)
    assert rows_of(path) == [(2, 20)]


def test_a_file_that_the_select_reads_and_that_is_gone_is_no_fault_of_the_select(tmp_path):
    path, names = tmp_path / "t", tmp_path / "names.csv"
    names.write_text("id\n1\n2\n")
    given = job(path, select=f"SELECT id, v FROM kafka JOIN '{names}' USING (id)")
    topics = {ONE: [record(1, 10), record(2, 20)]}
    run(sink(path, given), topics)
    names.unlink()
    topics[ONE].append(("1", None))
    with pytest.raises(duckdb.IOException, match="No files found"):
        run(sink(path, given), topics)
    names.write_text("id\n1\n2\n")
    run(sink(path, given), topics)
    assert rows_of(path) == [(2, 20)]


def test_tombstone_that_does_not_say_its_key_is_skipped_and_said(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    run(sink(path), topics)
    topics[ONE] += [("1", None)]
    done = run(sink(path), topics, key=None)
    assert "1 tombstone skipped: the record key is NULL" in said(done)
    topics[ONE] += [("1", None), ("2", None)]
    done = run(sink(path, job(path, select="SELECT v AS other FROM kafka")), topics)
    assert "2 tombstones skipped: without the record key column id" in said(done)
    assert rows_of(path) == [(1, 10)]


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_partition_of_a_tombstone_is_looked_up_by_its_key(tmp_path, type_):
    path = tmp_path / "t"
    given = job(path, properties={"type": type_, "primaryKey": "id"}, partition_by=("city",))
    topics = {ONE: [record(1, 10, city="x"), record(2, 20, city="y"), record(3, 30, city="y")]}
    run(sink(path, given), topics)
    topics[ONE] += [
        ("1", None),
        record(2, 21, city="z"),  # another partition: both stay, as with every upsert
        record(9, 90, city="x"),
        ("9", None),  # only in this batch
        ("3", None),
        record(3, 31, city="w"),  # moved behind its tombstone
        ("8", None),
    ]
    done = run(sink(path, given), topics)
    assert rows_of(path, ("id", "v", "city")) == [(2, 20, "y"), (2, 21, "z"), (3, 31, "w")]
    assert "2 tombstones without a partition skipped: the table has no such key" in said(done)


def test_records_of_all_partitions_of_a_key_meet_its_tombstone(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), ("2", None)], TWO: [("1", None), record(2, 20)]}
    run(sink(path), topics)
    assert rows_of(path) == [(2, 20)]


# ---------------------------------------------------------------- change events


DEBEZIUM = {
    "type": "mor",
    "primaryKey": "id",
    "orderingFields": "_event_lsn",
    "payloadClass": "org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload",
    "hoodie.table.version": "6",
}


def test_deletes_of_change_events_that_a_table_keeps_as_rows_are_said(tmp_path):
    path = tmp_path / "t"
    given = job(path, settings={"lakesql.envelope": "debezium"})
    topics = {ONE: [record(1, "a", _change_operation_type="c"), record(2, "b", _change_operation_type="d")]}
    done = run(sink(path, given), topics)
    assert rows_of(path) == [(1, "a"), (2, "b")]
    assert "1 delete of change events kept as rows with _change_operation_type = 'd'" in said(done)


def test_debezium_events_go_by_the_payload_of_the_table(tmp_path):
    path = tmp_path / "t"
    given = job(path, properties=DEBEZIUM, settings={"lakesql.envelope": "debezium"})

    def event(key, v, op, lsn):
        return record(key, v, _change_operation_type=op, _event_lsn=lsn)

    topics = {ONE: [event(1, "a", "c", 1), event(2, "b", "c", 2), event(3, "c", "c", 3)]}
    run(sink(path, given), topics)
    topics[ONE] += [
        event(1, "__debezium_unavailable_value", "u", 4),
        event(2, None, "d", 5),
        ("2", None),
        event(3, "late", "u", 1),
        event(2, "later by offset, older by lsn", "u", 4),
    ]
    done = run(sink(path, given), topics)
    assert rows_of(path) == [(1, "a"), (3, "c")]
    assert "the change events of this table say themselves what is deleted" in said(done)


@pytest.mark.parametrize(
    "name",
    [
        "h015_payload_AWSDmsAvroPayload_mor",
        "h015_payload_AWSDmsAvroPayload_cow",
        "h120_payload_PostgresDebeziumAvroPayload_mor",
        "h015_payload_MySqlDebeziumAvroPayload_cow",
    ],
)
def test_change_events_go_into_a_table_of_another_writer_by_its_own_rules(tmp_path, name):
    path, twin = unpacked(name, tmp_path / "a"), unpacked(name, tmp_path / "b")
    table = lakesql.open_table(path)
    names = table.schema.names
    stored = table.read(columns=names).read_all().to_pylist()
    kind, mark = ("Op", "D") if "Dms" in name else ("_change_operation_type", "d")
    later = {} if "Dms" in name else dict.fromkeys((c for c in names if c.startswith("_event_")), 9)
    rows = [r | {kind: op} | {c: _later(r[c]) for c in later} for r, op in zip(stored, (mark, "U"), strict=False)]
    rows += [rows[-1] | {table.state.config.record_key_fields[0]: "new", kind: "c"}]
    utc = {"hoodie.table.timeline.timezone": "UTC"}
    run(HudiSink(CON, job(path, options=utc), str(path)), {ONE: [(str(n), r) for n, r in enumerate(rows)]})
    lakesql.open_table(twin).upsert(pa.Table.from_pylist(rows, table.schema), **utc)
    found = [sorted(map(repr, lakesql.open_table(p).read(columns=names).read_all().to_pylist())) for p in (path, twin)]
    assert found[0] == found[1]
    assert found[0] != sorted(map(repr, stored))


def _later(value):
    """A position in the log behind this one."""
    if isinstance(value, str):
        file, _, place = value.rpartition(".")
        return f"{file}.{int(place) + 100}"
    return value + 100


# ---------------------------------------------------------------- quarantine


def test_quarantine_has_the_raw_bytes_and_is_named_by_its_commit(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), ("bad", BAD)]}
    run(sink(path), topics, "run-1")
    topics[ONE] += [("worse", BAD), record(2, 20)]
    run(sink(path), topics, "run-2")
    found = quarantine_table(str(path), "orders").to_pylist()
    assert [(r["_topic"], r["_partition"], r["_offset"], r["_key"], r["_value"], r["run"]) for r in found] == [
        ("o", 0, 1, b"bad", b"{", "run-1"),
        ("o", 0, 2, b"worse", b"{", "run-2"),
    ]
    assert quarantine_table(str(path), "another").num_rows == 0
    assert len(list((tmp_path / "t_quarantine").iterdir())) == 2
    (tmp_path / "t_quarantine" / "foreign.parquet").write_bytes(b"x")
    assert quarantine_table(str(path)).num_rows == 2


def test_row_without_a_record_key_goes_to_the_quarantine_and_stops_nothing(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), ("lost", {"id": None, "v": 7}), ("x", BAD), record(2, 20)]}
    done = run(sink(path), topics)
    assert "1 record without a record key went to the quarantine" in said(done)
    assert rows_of(path) == [(1, 10), (2, 20)]
    bad, lost = quarantine_table(str(path)).to_pylist()
    assert (bad["_offset"], bad["stage"]) == (2, "decode")
    assert (lost["_offset"], lost["stage"], lost["_key"], lost["_value"]) == (1, "key", b"lost", b'{"id":null,"v":7}')
    assert sink(path).stored().partitions[TopicPartition(*ONE)].quarantined == 2


def test_row_without_a_record_key_behind_a_select_is_an_error(tmp_path):
    topics = {ONE: [record(1, 10), ("lost", {"id": None, "v": 7})]}
    with pytest.raises(TableError, match="the record key is NULL or empty"):
        run(sink(tmp_path / "t", job(tmp_path / "t", select="SELECT id, v FROM kafka")), topics)
    assert sink(tmp_path / "t").stored() == State("orders")


def test_columns_of_the_table_are_a_hint_for_decoders(tmp_path):
    assert sink(tmp_path / "t").columns() is None
    run(sink(tmp_path / "t"), {ONE: [record(1, 10)]})
    want = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    assert sink(tmp_path / "t").columns() == want


def test_run_of_bad_records_alone_moves_the_offsets(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    run(sink(path), topics)
    topics[ONE].append(("x", BAD))
    assert run(sink(path), topics).commit is not None
    assert next_of(sink(path)) == {"o:0": 2}
    assert quarantine_table(str(path)).num_rows == 1


def test_many_bad_records_make_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr("lakesql.ingest.quarantine.ROWS_PER_FILE", 4)
    path = tmp_path / "t"
    run(sink(path), {ONE: [record(1, 10), *[("x", BAD)] * 10]})
    assert quarantine_table(str(path))["_offset"].to_pylist() == list(range(1, 11))
    assert len(list((tmp_path / "t_quarantine").iterdir())) == 2


def test_restored_table_forgets_the_quarantine_and_a_new_run_writes_it_again(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    first = run(sink(path), topics)
    with lakesql.connect() as con:
        con.sql(f"CREATE TABLE t USING hudi LOCATION '{path}'")
        con.sql(f"CALL create_savepoint(table => 't', commit_time => '{first.commit}')")
        topics[ONE] += [("x", BAD), record(2, 20)]
        run(sink(path), topics)
        con.sql("CALL rollback_to_savepoint(table => 't')")
    assert next_of(sink(path)) == {"o:0": 1}
    assert quarantine_table(str(path)).num_rows == 0
    run(sink(path), topics)
    assert rows_of(path) == [(1, 10), (2, 20)]
    assert quarantine_table(str(path)).num_rows == 1
    assert len(list((tmp_path / "t_quarantine").iterdir())) == 1


# ---------------------------------------------------------------- two runs, replays


def test_of_two_runs_from_one_state_one_commits(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    run(sink(path), topics)
    topics[ONE] += [record(2, 20), ("x", BAD)]
    before = sink(path).stored()
    loads = []
    for name in "ab":
        load_ = sink(path).begin(before, name)
        (unit,) = units(topics, before)
        load_.take(unit, decoded("o", 0, [(n, *topics[ONE][n]) for n in (1, 2)]))
        loads.append((load_, after(before, [unit], topics, name)))
    loads[1][0].commit(loads[1][1])
    with pytest.raises(IngestConflict, match="partition o:0 stands at 3, this run began at 1"):
        loads[0][0].commit(loads[0][1])
    loads[0][0].discard()
    assert rows_of(path) == [(1, 10), (2, 20)]
    assert quarantine_table(str(path))["run"].to_pylist() == ["b"]
    assert commits(path) == 2


def test_runs_of_two_threads_commit_every_record_once(tmp_path):
    path = tmp_path / "t"
    given = job(path, properties={"type": "mor"})
    topics = {ONE: [record(n, n) for n in range(30)]}
    run(sink(path, given), {ONE: topics[ONE][:1]})
    outcomes = []

    def work(name):
        for high in range(2, 31):
            try:
                outcomes.append(run(sink(path, given), {ONE: topics[ONE][:high]}, name).commit)
            except IngestConflict:
                outcomes.append("conflict")

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run(sink(path, given), topics)
    assert rows_of(path) == sorted(((n, n) for n in range(30)), key=repr)


def test_two_ingestions_feed_one_table(tmp_path):
    path = tmp_path / "t"
    one, two = sink(path, job(path, "one")), sink(path, job(path, "two"))
    run(one, {ONE: [record(1, 10)]})
    run(two, {("p", 0): [record(2, 20)]})
    run(one, {ONE: [record(1, 10), record(3, 30)]})
    assert rows_of(path) == [(1, 10), (2, 20), (3, 30)]
    assert next_of(one) == {"o:0": 2}
    assert next_of(two) == {"p:0": 1}


def test_commit_of_another_writer_in_between_does_no_harm(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    run(sink(path), topics)
    topics[ONE].append(record(2, 20))
    target = sink(path)
    before = target.stored()
    load_ = target.begin(before, "r")
    (unit,) = units(topics, before)
    load_.take(unit, decoded("o", 0, [(1, *topics[ONE][1])]))
    lakesql.open_table(path).upsert(pa.table({"id": [1, 9], "v": [11, 90]}))
    load_.commit(after(before, [unit], topics, "r"))
    assert rows_of(path) == [(1, 11), (2, 20), (9, 90)]


def test_replay_writes_rows_again_and_moves_nothing(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10), record(2, 20)]}
    run(sink(path), topics)
    lakesql.open_table(path).delete("id = 1")
    target = sink(path)
    load_ = target.replay("again")
    (unit,) = units(topics, State("orders"))
    load_.take(unit, decoded("o", 0, [(n, *r) for n, r in enumerate(topics[ONE])]))
    assert load_.commit(State("orders")).inserted == 1
    assert rows_of(path) == [(1, 10), (2, 20)]
    assert next_of(target) == {"o:0": 2}


def test_replay_beside_a_run_that_moves_the_offsets_writes_nothing(tmp_path):
    path = tmp_path / "t"
    topics = {ONE: [record(1, 10)]}
    run(sink(path), topics)
    load_ = sink(path).replay("again")
    (unit,) = units(topics, State("orders"))
    load_.take(unit, decoded("o", 0, [(0, *topics[ONE][0])]))
    topics[ONE] += [record(1, 11)]
    run(sink(path), topics)
    with pytest.raises(IngestConflict, match="was faster"):
        load_.commit(State("orders"))
    load_.discard()
    assert rows_of(path) == [(1, 11)]


def test_replay_is_refused_where_it_would_double_rows(tmp_path):
    path = tmp_path / "t"
    given = job(path, properties={"type": "mor"})
    run(sink(path, given), {ONE: [record(1, 10)]})
    with pytest.raises(IngestError, match="they would be there twice"):
        sink(path, given).replay("again")


# ---------------------------------------------------------------- the spool


def test_spool_of_a_dead_run_is_removed_and_that_of_a_living_one_is_not(tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    given = job(tmp_path / "t", settings={"lakesql.spool.dir": str(spool)})
    living = sink(tmp_path / "t", given).begin(State("orders"), "a")
    dead = sink(tmp_path / "t", given).begin(State("orders"), "b")
    dead._spool._lock_file.release()  # as the operating system does when the process ends
    third = sink(tmp_path / "t", given).begin(State("orders"), "c")
    assert {living._spool.folder, third._spool.folder} == {f for f in spool.iterdir() if f.is_dir()}
    for load_ in (living, third):
        load_.discard()
    assert list(spool.iterdir()) == []


def test_spools_of_dead_runs_of_other_ingestions_are_removed_but_not_those_of_another_host(tmp_path, monkeypatch):
    given = str(tmp_path)
    living = Spool("living", given)
    dead = [Spool("dead", given), Spool("dead too", given)]
    with monkeypatch.context() as far:
        far.setattr(socket, "gethostname", lambda: "elsewhere")
        dead += [Spool("of another host", given), Spool("third", given)]
    for one in dead:
        one._lock_file.release()
    third = Spool("third", given)
    assert {one for one in tmp_path.iterdir() if one.is_dir()} == {living.folder, third.folder, dead[2].folder}
    for one in (living, third):
        one.close()


def test_a_killed_process_leaves_a_spool_that_any_other_run_removes(tmp_path):
    code = (
        "import os, sys, pyarrow as pa; from lakesql.ingest.spool import Spool; s = Spool('a', sys.argv[1]);"
        "s.add(0, 'rows', pa.table({'_topic': ['t'], '_partition': pa.array([0], pa.int32()), '_offset': [1]}));"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert len(list(tmp_path.glob("*/*.arrow"))) == 1
    Spool("b", str(tmp_path)).close()
    assert list(tmp_path.iterdir()) == []


def test_folder_for_the_spool_that_does_not_exist_is_named(tmp_path):
    given = job(tmp_path / "t", settings={"lakesql.spool.dir": str(tmp_path / "nowhere")})
    with pytest.raises(IngestError, match=r"nowhere: no folder .*lakesql\.spool\.dir"):
        sink(tmp_path / "t", given).begin(State("orders"), "a")


def test_services_run_after_the_commit_and_say_so(tmp_path):
    path = tmp_path / "t"
    options = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
    topics = {ONE: []}
    notes = []
    for n in range(4):
        topics[ONE].append(record(1, n))
        notes += run(sink(path, job(path, options=options)), topics).notes
    assert any("ompact" in note for note in notes), notes
    assert rows_of(path) == [(1, 3)]
    assert next_of(sink(path)) == {"o:0": 4}


def test_decoded_batch_without_rows_is_no_harm(tmp_path):
    path = tmp_path / "t"
    run(sink(path), {ONE: [record(1, 10)]})
    target = sink(path)
    load_ = target.begin(target.stored(), "r")
    empty = decoded("o", 0, [])
    load_.take(units({ONE: []}, State("orders"))[0], Decoded(empty.rows, empty.deletes, BAD_SCHEMA.empty_table()))
    done = load_.commit(after(target.stored(), units({ONE: [0, 0]}, target.stored()), {ONE: [(None, {})] * 2}, "r"))
    assert done.commit is not None
    assert next_of(target) == {"o:0": 2}


# ---------------------------------------------------------------- against a model


@st.composite
def histories(draw):
    """Records of two partitions with keys of their own, cut into runs; None is a tombstone."""
    steps = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9)))
    logs = [draw(st.lists(steps, max_size=14)) for _ in range(2)]
    runs = draw(st.integers(1, 4))
    return [[sorted(draw(st.lists(st.integers(0, len(log)), min_size=runs, max_size=runs))) for log in logs], logs]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(), batch=st.integers(1, 5), type_=st.sampled_from(["cow", "mor"]), partitioned=st.booleans())
def test_table_is_what_the_log_says_however_it_is_cut(tmp_path_factory, history, batch, type_, partitioned):
    cuts, logs = history
    path = tmp_path_factory.mktemp("t") / "t"
    by = ("city",) if partitioned else ()
    given_ = job(path, properties={"type": type_, "primaryKey": "id"}, partition_by=by)
    topics = {}
    for n, log in enumerate(logs):
        keys = [(f"{n + 1}{k}", v) for k, v in log]
        topics["o", n] = [(k, None if v is None else {"id": int(k), "v": v, "city": f"c{k}"}) for k, v in keys]
    model = {}
    done = [0, 0]
    for run_ in range(len(cuts[0])):
        high = [cuts[n][run_] for n in (0, 1)]
        run(sink(path, given_), {at: topics[at][: high[at[1]]] for at in topics}, batch=batch)
        for n in (0, 1):
            for key, value in topics["o", n][done[n] : high[n]]:
                if value is None:
                    model.pop(int(key), None)
                else:
                    model[int(key)] = value["v"]
        done = high
        if path.exists():
            assert rows_of(path) == sorted(model.items(), key=repr)
        else:
            assert not model
