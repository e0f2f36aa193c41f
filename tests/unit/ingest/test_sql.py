"""Statements of ingestion on a connection: the real plan, run, decoders and Hudi sink, on a broker in memory."""

import io
import json
import time

import pytest

import lakesql
from lakesql.errors import IngestError, JobError, LakeError, SQLError, TableError
from lakesql.ingest import kafka
from lakesql.ingest.model import Bounds, TopicPartition
from lakesql.shell import batch, new_shell
from tests.kafka.produce import produce
from tests.unit.ingest.fakes import Broker, FakeClient

OPTIONS = "'kafka.brokers' = 'h:1', 'topic.whitelist' = 'orders', 'bootstrap.with.offset' = 'earliest'"
TABLE = "TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"


def message(number, **more):
    return json.dumps({"id": number, "ts": number, "amount": number / 2, **more}).encode()


@pytest.fixture
def broker(monkeypatch):
    found = (
        Broker().add("orders", 0, [message(i) for i in range(5)]).add("orders", 1, [message(i) for i in range(5, 12)])
    )
    clients = []

    def opened(settings, **_):
        clients.append(dict(settings))
        return FakeClient(found)

    monkeypatch.setattr(kafka, "open_client", opened)
    found.clients = clients
    return found


@pytest.fixture
def con(tmp_path, broker):  # noqa: ARG001
    with lakesql.connect(warehouse=tmp_path / "lake") as made:
        yield made


def ingest(into="orders", options=OPTIONS, rest=f"FORMAT JSON {TABLE}"):
    return f"INGEST INTO {into} FROM KAFKA OPTIONS ({options}) {rest}"


def rows(con, sql, *params):
    return con.execute(sql, *params).fetchall()


def named(con, sql, *params):
    found = con.execute(sql, *params)
    names = [d[0] for d in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


# ---------------------------------------------------------------- INGEST


def test_an_ingest_makes_the_table_and_its_view_and_says_what_became_of_each_partition(con):
    report = named(con, ingest())
    assert [(r["topic"], r["partition"], r["low"], r["next"], r["read"], r["written"], r["stop"]) for r in report] == [
        ("orders", 0, 0, 5, 5, 5, "high"),
        ("orders", 1, 0, 7, 7, 7, "high"),
    ]
    assert list(report[0]) == [
        "topic", "partition", "low", "high", "next", "read", "written", "quarantined", "deletes", "lag", "stop",
    ]  # fmt: skip
    assert rows(con, "SELECT count(*), sum(id), sum(amount) FROM orders") == [(12, 66, 33.0)]
    assert rows(con, "SELECT count(*) FROM orders_rt") == [(12,)]
    assert (con.last_result.operation, con.last_result.rows_inserted, con.last_result.action) == (
        "ingest",
        12,
        "deltacommit",
    )


def test_the_next_run_goes_on_where_the_last_one_ended(con, broker):
    rows(con, ingest())
    broker.add("orders", 0, [message(3, amount=99)])
    assert [(r["low"], r["read"], r["stop"]) for r in named(con, ingest())] == [
        (5, 1, "high"),
        (7, 0, "nothing to read"),
    ]
    assert rows(con, "SELECT count(*), max(amount) FROM orders") == [(12, 99.0)]


def test_the_select_shapes_the_rows_and_may_join_tables_of_the_connection(con):
    con.execute("CREATE TABLE names AS SELECT range AS id, 'n' || range AS name FROM range(20)")
    rest = f"FORMAT JSON {TABLE} PARTITIONED BY (p) AS SELECT k.id, ts, name, _partition % 2 AS p FROM kafka k JOIN names USING (id)"
    rows(con, ingest(rest=rest))
    assert rows(con, "SELECT p, count(*), min(name) FROM orders GROUP BY 1 ORDER BY 1") == [(0, 5, "n0"), (1, 7, "n10")]


def test_each_topic_may_have_a_table_of_its_own(con, broker):
    broker.add("clicks", 0, [message(1)])
    rows(con, ingest("'{topic}_raw'", OPTIONS.replace("'orders'", "'.*'")))
    assert rows(con, "SELECT (SELECT count(*) FROM orders_raw), (SELECT count(*) FROM clicks_raw)") == [(12, 1)]


def test_files_are_written_as_the_options_say(con, tmp_path):
    rows(
        con,
        ingest(
            f"FILES '{tmp_path}/out'",
            options=OPTIONS + ", 'writer.codec.type' = 'snappy'",
            rest="FORMAT JSON USING PARQUET",
        ),
    )
    assert rows(con, f"SELECT count(*) FROM read_parquet('{tmp_path}/out/**/*.parquet')") == [(12,)]
    assert rows(con, f"SELECT sum(next) FROM kafka_offsets('{tmp_path}/out')") == [(12,)]


def test_what_is_stored_in_a_folder_of_files_is_shown_as_that_of_a_table(con, broker, tmp_path):
    for name in ("one", "two"):
        rows(con, ingest(f"FILES '{tmp_path}/out'", OPTIONS + f", 'job.name' = '{name}'", "FORMAT JSON"))
    broker.add("orders", 1, [b"{", message(99)])
    rows(con, ingest(f"FILES '{tmp_path}/out'", OPTIONS + ", 'job.name' = 'one'", "FORMAT JSON"))
    runs = named(con, f"FROM kafka_ingest_runs('{tmp_path}/out')")
    assert [(r["instant"], r["ingestion"], r["records"], r["quarantined"]) for r in runs] == [
        ("1", "one", 12, 0), ("1", "two", 12, 0), ("2", "one", 2, 1),
    ]  # fmt: skip
    assert runs[2]["offsets"][1] == {"topic": "orders", "partition": 1, "low": 7, "next": 9}
    [bad] = named(con, f"FROM kafka_quarantine('{tmp_path}/out')")
    assert (bad["_topic"], bad["_partition"], bad["_offset"], bytes(bad["_value"])) == ("orders", 1, 7, b"{")
    assert named(con, f"FROM kafka_quarantine('{tmp_path}/out', ingestion := 'two')") == []
    assert len(named(con, f"FROM kafka_ingest_runs('{tmp_path}/out', ingestion := 'two')")) == 1
    assert rows(con, f"SELECT sum(lag) FROM kafka_lag('{tmp_path}/out', brokers := 'h:1', ingestion := 'two')") == [
        (2,)
    ]
    offsets = named(con, f"CALL show_ingestion_offsets(path => '{tmp_path}/out')")
    assert [(o["ingestion"], o["next"]) for o in offsets] == [("one", 5), ("one", 9), ("two", 5), ("two", 7)]
    for function in ("kafka_ingest_runs", "kafka_quarantine"):
        with pytest.raises(LakeError, match="neither a Hudi table nor a folder that an ingestion has written"):
            rows(con, f"FROM {function}('{tmp_path}/elsewhere')")


def test_offsets_that_wait_for_a_table_are_shown(con, broker):
    options = OPTIONS.replace("earliest", "latest")
    sql = ingest("fresh", options)
    rows(con, f"CREATE INGESTION fresh_in AS {sql}")
    rows(con, "RUN INGESTION fresh_in")
    rows(con, "CREATE INGESTION each AS " + ingest("'{topic}_own'", options))
    rows(con, "RUN INGESTION each")
    wanted = [("fresh_in", "orders", 0, 5), ("fresh_in", "orders", 1, 7)]
    for source in (
        "kafka_offsets('fresh')",
        f"kafka_offsets('{con.warehouse}/fresh')",
        "show_ingestion_offsets(ingestion => 'fresh_in')",
        "show_ingestion_offsets(table => 'fresh')",
        f"show_ingestion_offsets(path => '{con.warehouse}/fresh')",
    ):
        found = named(con, ("FROM " if source.startswith("kafka") else "CALL ") + source)
        assert [(o["ingestion"], o["topic"], o["partition"], o["next"]) for o in found] == wanted, source
    assert [o["next"] for o in named(con, "CALL show_ingestion_offsets(ingestion => 'each')")] == [5, 7]
    assert [(s["name"], s["partitions"]) for s in named(con, "CALL show_ingestions()")] == [
        ("each", 2),
        ("fresh_in", 2),
    ]
    assert rows(con, "SELECT sum(lag) FROM kafka_lag('fresh', brokers := 'h:1')") == [(0,)]
    assert named(con, "FROM kafka_offsets('fresh', ingestion := 'other')") == []
    broker.add("orders", 0, [message(40)])
    rows(con, "RUN INGESTION fresh_in")
    assert rows(con, "SELECT partition, next FROM kafka_offsets('fresh')") == [(0, 6), (1, 7)]
    with pytest.raises(LakeError, match="nowhere is not a Hudi table of this connection"):
        rows(con, "CALL show_ingestion_offsets(table => 'nowhere')")


def test_bad_records_are_in_the_quarantine_of_the_table(con, broker):
    broker.add("orders", 0, [b"{", message(77)])
    assert [r["quarantined"] for r in named(con, ingest())] == [1, 0]
    assert con.last_result.rows_quarantined == 1
    assert ", 1 quarantined" in str(con.last_result)
    [bad] = named(con, "FROM kafka_quarantine('orders')")
    assert (bad["_offset"], bytes(bad["_value"]), bad["_topic"]) == (5, b"{", "orders")


def test_the_format_is_json_unless_something_says_it(con):
    assert len(rows(con, ingest(rest=TABLE))) == 2


def test_json_may_have_a_frame(con, broker):
    broker.add("framed", 0, [b"\x00\x00\x00\x00\x07" + message(1), message(2)])
    options = OPTIONS.replace("'orders'", "'framed'")
    rows(con, ingest(options=options, rest=f"FORMAT JSON (WIRE 'confluent') {TABLE}"))
    assert rows(con, "SELECT id FROM orders") == [(1,)]
    assert [r["stage"] for r in named(con, "FROM kafka_quarantine('orders')")] == ["frame"]


def test_parameters_stand_for_values_of_options(con):
    sql = ingest(
        options="'kafka.brokers' = $1, 'topic.whitelist' = ?, 'bootstrap.with.offset' = $b".replace("?", "$t").replace(
            "$1", "$k"
        )
    )
    con.execute(sql, {"k": "h:1", "t": "orders", "b": "earliest"})
    assert rows(con, "SELECT count(*) FROM orders") == [(12,)]


def test_settings_of_the_session_hold_for_the_table(con, tmp_path):
    con.execute("SET hoodie.write.table.version = 6")
    rows(con, ingest(rest="FORMAT JSON TBLPROPERTIES (primaryKey = 'id')"))
    assert "hoodie.table.version=6" in (tmp_path / "lake/orders/.hoodie/hoodie.properties").read_text()


class Screen(io.StringIO):
    """A standard error that is a terminal, or none."""

    def __init__(self, tty):
        super().__init__()
        self.tty = tty

    def isatty(self):
        return self.tty


@pytest.mark.parametrize("tty", [True, False])
def test_a_run_shows_its_progress_on_a_terminal_alone(con, monkeypatch, tty):
    screen, out = Screen(tty), io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    shell = new_shell(con, "csv")
    assert batch(shell, f"CREATE INGESTION o AS {ingest()};")
    before = screen.getvalue()
    assert batch(shell, "RUN INGESTION o;"), screen.getvalue()
    shown = screen.getvalue()[len(before) :]
    assert ("Committed" in shown and "12 records" in shown) is tty
    assert tty or "records" not in shown
    assert "orders,0,0,5,5" in out.getvalue()


def test_a_run_from_python_is_silent(con, capfd):
    rows(con, ingest())
    assert capfd.readouterr() == ("", "")


def test_new_columns_come_when_the_session_or_the_ingestion_asks_for_them(con, broker):
    rows(con, ingest())
    broker.add("orders", 0, [message(50, note="new")])
    select = f"FORMAT JSON {TABLE} AS SELECT id, ts, amount, note FROM kafka"
    with pytest.raises(LakeError, match="note"):
        rows(con, ingest(rest=select))
    con.execute("SET lakesql.schema.evolve = true")
    con.execute("SET lakesql.read_optimized.max_staleness = '1h'")
    rows(con, ingest(rest=select))
    assert con.last_result.notes == ()
    assert rows(con, "SELECT note FROM orders WHERE id = 50") == [("new",)]
    con.execute("RESET lakesql.schema.evolve")
    broker.add("orders", 0, [message(51, more=1)])
    options = OPTIONS + ", 'lakesql.schema.evolve' = 'true'"
    rows(con, ingest(options=options, rest=select.replace("note", "more")))
    assert rows(con, "SELECT more FROM orders WHERE id = 51") == [(1,)]


# ---------------------------------------------------------------- EXPLAIN


def test_the_plan_reads_nothing_and_writes_nothing(con, tmp_path):
    plan = named(con, "EXPLAIN " + ingest())
    assert [(p["topic"], p["partition"], p["low"], p["high"], p["expected_records"], p["reason"]) for p in plan][
        :2
    ] == [
        ("orders", 0, 0, 5, 5, "bootstrap earliest"),
        ("orders", 1, 0, 7, 7, "bootstrap earliest"),
    ]
    assert not any((tmp_path / "lake").glob("*"))


def test_what_latest_skips_is_in_the_plan(con):
    plan = named(con, "EXPLAIN " + ingest(options=OPTIONS.replace("earliest", "latest")))
    assert [p["skipped"] for p in plan if p["topic"]] == [5, 7]


# ---------------------------------------------------------------- named ingestions


@pytest.fixture
def defined(con):
    con.execute(f"CREATE INGESTION o AS {ingest()}")
    return con


def test_a_named_ingestion_runs_again_and_again(defined, broker):
    assert sum(r["read"] for r in named(defined, "RUN INGESTION o")) == 12
    broker.add("orders", 1, [message(50)])
    assert [r["read"] for r in named(defined, "EXPLAIN RUN INGESTION o") if "read" in r] == []
    assert sum(r["read"] for r in named(defined, "RUN INGESTION o")) == 1


def test_its_offsets_go_by_its_name(defined):
    rows(defined, "RUN INGESTION o")
    assert {r["ingestion"] for r in named(defined, "FROM kafka_offsets('orders')")} == {"o"}


def test_run_with_changes_settings_for_this_time_alone(defined):
    report = named(defined, "RUN INGESTION o WITH ('extract.limit.enabled'='true', 'extract.limit.type'='count', "
                   "'extract.limit.count.limit'=1, 'mr.job.max.mappers'=1)")  # fmt: skip
    assert sum(r["read"] for r in report) == 1
    assert sum(r["read"] for r in named(defined, "RUN INGESTION o")) == 11


def test_show_tells_the_statement_and_where_it_is_kept(defined, tmp_path):
    found = dict(rows(defined, "SHOW INGESTION o"))
    assert found["statement"].startswith("CREATE INGESTION o AS\nINGEST INTO orders\nFROM KAFKA OPTIONS (")
    assert found["kept in"] == str(tmp_path / "lake/.lakesql/ingestions/o.json")
    [listed] = named(defined, "SHOW INGESTIONS")
    assert (listed["name"], listed["target"], listed["topics"], listed["partitions"], listed["problem"]) == (
        "o", "orders", "orders", 0, None,
    )  # fmt: skip
    rows(defined, "RUN INGESTION o")
    [listed] = named(defined, "CALL show_ingestions()")
    assert (listed["partitions"], listed["lag"]) == (2, 0)


def test_create_alter_drop(defined):
    with pytest.raises(SQLError, match="ingestion o exists"):
        defined.execute(f"CREATE INGESTION o AS {ingest()}")
    assert rows(defined, f"CREATE INGESTION IF NOT EXISTS o AS {ingest()}") == [("Ingestion o exists.",)]
    defined.execute(f"CREATE OR REPLACE INGESTION o AS {ingest('other')}")
    assert dict(rows(defined, "SHOW INGESTION o"))["target"].endswith("/lake/other")
    defined.execute("ALTER INGESTION o SET OPTIONS ('topic.whitelist' = 'nix')")
    assert "'topic.whitelist' = 'nix'" in dict(rows(defined, "SHOW INGESTION o"))["statement"]
    assert "keeps rows and offsets" in rows(defined, "DROP INGESTION o")[0][0]
    assert rows(defined, "DROP INGESTION IF EXISTS o") == [("There is no ingestion o.",)]
    with pytest.raises(SQLError, match="there is no ingestion o"):
        defined.execute("DROP INGESTION o")


def test_the_definitions_are_no_tables(defined, tmp_path):
    rows(defined, "RUN INGESTION o")
    assert set(lakesql.connect(warehouse=tmp_path / "lake").tables) == {"orders"}


def test_a_definition_that_cannot_be_read_is_listed_with_its_problem(defined, tmp_path):
    (tmp_path / "lake/.lakesql/ingestions/x.json").write_text("{")
    assert [(r["name"], r["problem"] is not None) for r in named(defined, "SHOW INGESTIONS")] == [
        ("o", False),
        ("x", True),
    ]


# ---------------------------------------------------------------- offsets


def test_offsets_are_set_with_a_commit_that_says_what_is_skipped_and_read_again(defined, broker):
    rows(defined, "RUN INGESTION o")
    dry = named(defined, "CALL reset_ingestion_offsets(ingestion => 'o', offset => 'earliest', dry_run => true)")
    assert [(m["before"], m["after"], m["reread"], m["commit"]) for m in dry] == [(5, 0, 5, None), (7, 0, 7, None)]
    broker.add("orders", 0, [message(60), message(61)])
    moved = named(defined, "ALTER INGESTION o SET OFFSETS (topic 'orders', 0 = latest, 1 = $1)", [2])
    assert [(m["before"], m["after"], m["skipped"], m["reread"]) for m in moved] == [(5, 7, 2, 0), (7, 2, 0, 5)]
    assert all(m["commit"] for m in moved)
    assert [(r["low"], r["read"]) for r in named(defined, "RUN INGESTION o")] == [(7, 0), (2, 5)]
    assert rows(defined, "SELECT count(*) FROM orders") == [(12,)]


def test_offsets_set_on_a_topic_that_was_made_again_are_those_of_the_new_topic(tmp_path, mock_kafka):
    options = f"'kafka.brokers' = '{mock_kafka.brokers}', 'topic.whitelist' = 'orders'"
    mock_kafka.create("orders", 1)
    produce(mock_kafka.brokers, "orders", [message(i) for i in range(5)], partition=0)
    with lakesql.connect(warehouse=tmp_path) as con:
        con.execute(f"CREATE INGESTION o AS {ingest(options=options)}")
        rows(con, "RUN INGESTION o")
        mock_kafka.delete("orders")
        mock_kafka.create("orders", 1)
        produce(mock_kafka.brokers, "orders", [message(i) for i in range(100, 108)], partition=0)
        rows(con, "ALTER INGESTION o SET OFFSETS (0 = 5)")  # the old topic's end, too
        assert [(r["low"], r["read"]) for r in named(con, "RUN INGESTION o")] == [(5, 3)]
        assert rows(con, "SELECT id FROM orders ORDER BY id") == [(105,), (106,), (107,)]


def test_records_whose_columns_cannot_be_are_refused_at_once(con, broker):
    broker.add("odd", 0, [b'{"id": 1, "_offset": 7}'])
    with pytest.raises(LakeError, match="a column '_offset', which Kafka's own columns have too"):
        con.execute(ingest(options=OPTIONS.replace("'orders'", "'odd'")))


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ("0 = 99", "it has records from 0 to 5"),
        ("5 = 1", "has no partition 5; it has 0 to 1"),
        ("topic 'nix', 0 = 1", "topic nix does not exist"),
        ("0 = timestamp 'soon'", "is no time"),
        ("0 = timestamp '9999999999999999999999'", "is no time"),
        ("0 = timestamp '²'", "is no time"),
    ],
)
def test_offsets_that_cannot_be_are_refused(defined, places, text):
    rows(defined, "RUN INGESTION o")
    before = rows(defined, "SELECT next FROM kafka_offsets('orders')")
    with pytest.raises(SQLError, match=text):
        defined.execute(f"ALTER INGESTION o SET OFFSETS ({places})")
    assert rows(defined, "SELECT next FROM kafka_offsets('orders')") == before


@pytest.mark.parametrize(("offset", "error"), [("6", SQLError), ("9" * 18, SQLError), ("9" * 30, JobError)])
def test_a_state_behind_the_end_of_its_topic_is_refused_for_it_would_skip_what_comes(defined, tmp_path, offset, error):
    rows(defined, "RUN INGESTION o")
    file = tmp_path / "state.csv"
    file.write_text(f"topic,partition,offset\norders,0,{offset}\n")
    with pytest.raises(error):
        rows(defined, f"CALL import_ingestion_state(ingestion => 'o', file => '{file}')")
    assert rows(defined, "SELECT next FROM kafka_offsets('orders')") == [(5,), (7,)]


def test_a_state_goes_out_to_a_file_and_comes_back(defined, tmp_path):
    rows(defined, "RUN INGESTION o")
    file = str(tmp_path / "state.json")
    rows(defined, "CALL export_ingestion_state(ingestion => 'o', file => $1)", [file])
    rows(defined, "CALL reset_ingestion_offsets(ingestion => 'o', offset => '1', topic => 'orders', partition => 0)")
    assert rows(defined, "SELECT next FROM kafka_offsets('orders')") == [(1,), (7,)]
    moved = named(defined, "CALL import_ingestion_state(ingestion => 'o', file => $1)", [file])
    assert [(m["before"], m["after"]) for m in moved] == [(1, 5), (7, 7)]
    (tmp_path / "offsets.csv").write_text("topic,partition,offset\nnix,0,1\n")
    with pytest.raises(SQLError, match="does not read nix; it reads orders"):
        defined.execute("CALL import_ingestion_state(ingestion => 'o', file => $1)", [str(tmp_path / "offsets.csv")])


def test_procedures_show_offsets_of_an_ingestion_or_a_table(defined, tmp_path):
    rows(defined, "RUN INGESTION o")
    of_ingestion = rows(defined, "CALL show_ingestion_offsets(ingestion => 'o')")
    assert len(of_ingestion) == 2
    assert rows(defined, "CALL show_ingestion_offsets(table => 'orders')") == of_ingestion
    assert rows(defined, "CALL show_ingestion_offsets(path => $1)", [str(tmp_path / "lake/orders")]) == of_ingestion
    with pytest.raises(SQLError, match="give ingestion =>"):
        defined.execute("CALL show_ingestion_offsets()")


def test_a_query_chooses_what_files_hold(con, broker, tmp_path):
    rows(con, "CREATE TABLE names AS SELECT 3 AS id, 'three' AS name")
    select = "AS SELECT k.id, name, _timestamp FROM kafka k LEFT JOIN names USING (id) WHERE k.id > 2"
    statement = ingest(
        f"FILES '{tmp_path}/out'", OPTIONS + ", 'lakesql.files.layout' = 'time'", f"FORMAT JSON USING PARQUET {select}"
    )
    rows(con, f"CREATE INGESTION f AS {statement}")
    found = named(con, "RUN INGESTION f")
    assert [(r["read"], r["next"]) for r in found] == [(5, 5), (7, 7)]
    broker.add("orders", 0, [message(1), message(20)])
    rows(con, "RUN INGESTION f")
    files = f"'{tmp_path}/out/orders/**/*.parquet'"
    assert rows(con, f"SELECT id, name FROM read_parquet({files}) ORDER BY id") == [
        (i, "three" if i == 3 else None) for i in (*range(3, 12), 20)
    ]
    shown = rows(con, "SHOW INGESTION f")
    assert "AS SELECT k.id" in str(shown)


# ---------------------------------------------------------------- REPLAY


def state_of(con):
    return rows(con, "SELECT topic, partition, next, records, stored_at FROM kafka_offsets('orders') ORDER BY ALL")


def test_a_replay_brings_rows_again_and_moves_no_offset(defined):
    rows(defined, "RUN INGESTION o")
    rows(defined, "DELETE FROM orders WHERE id IN (3, 4, 6)")
    before = state_of(defined)
    found = named(defined, "REPLAY INGESTION o FROM (0 = 3, 1 = earliest)")
    assert [(r["partition"], r["low"], r["high"], r["read"], r["stop"]) for r in found] == [
        (0, 3, 5, 2, "high"), (1, 0, 7, 7, "high"),
    ]  # fmt: skip
    assert rows(defined, "SELECT id FROM orders ORDER BY id") == [(i,) for i in range(12)]
    assert state_of(defined) == before
    assert (defined.last_result.rows_inserted, defined.last_result.notes) == (3, ())
    assert sum(r["read"] for r in named(defined, "RUN INGESTION o")) == 0


def test_a_replay_reads_to_where_the_ingestion_stands_or_to_what_is_said(defined, broker):
    rows(defined, "RUN INGESTION o")
    broker.add("orders", 0, [message(60)])
    assert [r["read"] for r in named(defined, "REPLAY INGESTION o FROM earliest")] == [5, 7]
    assert rows(defined, "SELECT count(*) FROM orders") == [(12,)]
    assert [r["read"] for r in named(defined, "REPLAY INGESTION o FROM (all = 2) TO (0 = 4)")] == [2, 5]
    assert "ends before where the ingestion stands in orders:0:" in str(defined.last_result.notes)
    assert [r["read"] for r in named(defined, "REPLAY INGESTION o FROM 4 TO latest")] == [2, 3]
    assert rows(defined, "SELECT count(*) FROM orders") == [(13,)]
    plan = named(defined, "EXPLAIN REPLAY INGESTION o FROM 1 TO 3")
    assert [(r["low"], r["high"], r["reason"]) for r in plan[:2]] == [(1, 3, "replay"), (1, 3, "replay")]
    assert sum(r["read"] for r in named(defined, "RUN INGESTION o")) == 1


def test_a_replay_is_refused_before_anything_is_read_where_it_cannot_be_right(defined, con, tmp_path):
    with pytest.raises(IngestError, match="has not read anything of what is to be replayed: orders:0, orders:1"):
        con.execute("REPLAY INGESTION o FROM earliest")
    rows(defined, "RUN INGESTION o")
    for sql, text in {
        "REPLAY INGESTION o FROM 99": "cannot go on at 99; it has records from 0 to",
        "REPLAY INGESTION o FROM 4 TO 3": "would begin at 4, behind its end at 3",
        "REPLAY INGESTION o FROM (topic 'x', 0 = 1)": "topic x does not exist",
        "REPLAY INGESTION o FROM (9 = 1)": "has no partition 9",
        "REPLAY INGESTION p FROM earliest": "there is no ingestion p",
    }.items():
        with pytest.raises(SQLError, match=text):
            con.execute(sql)
    rows(con, f"CREATE INGESTION plain AS {ingest('plain', rest='FORMAT JSON')}")
    rows(con, "RUN INGESTION plain")
    with pytest.raises(IngestError, match="they would be there twice"):
        con.execute("REPLAY INGESTION plain FROM earliest")
    rows(con, f"CREATE INGESTION f AS INGEST INTO FILES '{tmp_path}/f' FROM KAFKA OPTIONS ({OPTIONS}) FORMAT JSON")
    with pytest.raises(IngestError, match="a replay into files would write its records a second time"):
        con.execute("REPLAY INGESTION f FROM earliest")
    assert rows(con, "SELECT count(*) FROM plain") == [(12,)]


def test_a_partition_that_was_never_read_is_not_replayed(defined, broker):
    rows(defined, "RUN INGESTION o")
    broker.add("orders", 2, [message(70)])
    assert [r["partition"] for r in named(defined, "REPLAY INGESTION o FROM earliest")] == [0, 1]
    assert "the ingestion has not read them yet: orders:2" in str(defined.last_result.notes)


NAMES = "SELECT id, name FROM orders ORDER BY id"
BEFORE = [(1, "new"), (2, "new"), (3, "x"), (9, "x")]


class Interrupted(FakeClient):
    """One record in 0.2 seconds, then Ctrl-C in place of the fourth."""

    def _next(self, open_):
        self.batch = 1
        if open_[TopicPartition("orders", 0)][0] == 3:
            raise KeyboardInterrupt
        time.sleep(0.2)
        return super()._next(open_)


@pytest.fixture
def changing(con, monkeypatch):
    """Makes an ingestion that has read rows and their newer values; `opened` makes the clients of what comes then."""

    def made(options="", opened=FakeClient):
        names = ["old", "old", "x", "new", "new"]
        found = Broker().add("orders", 0, [message(i, name=n) for i, n in zip([1, 2, 3, 1, 2], names, strict=True)])
        found.add("orders", 1, [message(9, name="x")])
        monkeypatch.setattr(kafka, "open_client", lambda *_, **__: FakeClient(found))
        con.execute(f"CREATE INGESTION o AS {ingest(options=OPTIONS + options)}")
        while [r["read"] for r in named(con, "RUN INGESTION o")] != [0, 0]:
            pass
        assert rows(con, NAMES) == BEFORE
        monkeypatch.setattr(kafka, "open_client", lambda *_, **__: opened(found))
        return found

    return made


def failing(found):
    return FakeClient(found, failing={TopicPartition("orders", 0): 3})


LIMIT = "'extract.limit.enabled' = 'true', 'extract.limit.type' = 'count', 'extract.limit.count.limit' = '3'"


@pytest.mark.parametrize("options", [LIMIT, "'lakesql.commit.interval' = '1ms'", "'job.commit.policy' = 'partial'"])
def test_settings_that_cut_a_run_are_not_in_force_for_a_replay_and_it_says_so(changing, con, options):
    changing(", " + options)
    assert [(r["read"], r["stop"]) for r in named(con, "REPLAY INGESTION o FROM earliest")] == [
        (5, "high"),
        (1, "high"),
    ]
    assert rows(con, NAMES) == BEFORE
    [note] = con.last_result.notes
    assert note.startswith("Not in force for a replay, which is one commit of its whole range or none: ")
    assert note.removesuffix(".").rpartition(": ")[2].partition(" = ")[0] in options.replace("'", "")
    assert note in str(rows(con, "EXPLAIN REPLAY INGESTION o FROM earliest"))


@pytest.mark.parametrize(
    ("options", "named_"),
    [
        (LIMIT, "extract.limit.type = count"),
        ("'extract.limit.enabled' = 'true', 'extract.limit.type' = 'time', 'extract.limit.timeLimit' = '3'", "= time"),
        ("'lakesql.commit.interval' = '1s'", "lakesql.commit.interval"),
        ("'job.commit.policy' = 'successful'", "job.commit.policy = successful"),
    ],
)
def test_a_replay_that_is_told_to_cut_itself_is_refused(changing, con, options, named_):
    changing()
    for statement in ("REPLAY", "EXPLAIN REPLAY"):
        with pytest.raises(SQLError, match=f"a replay cannot be run with .*{named_}"):
            con.execute(f"{statement} INGESTION o FROM earliest WITH ({options})")
    assert rows(con, NAMES) == BEFORE


def test_a_replay_takes_settings_that_cut_nothing(changing, con):
    changing(", 'job.commit.policy' = 'partial'")
    given = "'job.commit.policy' = 'full', 'lakesql.commit.interval' = 'off', 'extract.limit.enabled' = 'true'"
    rate = "'extract.limit.type' = 'rate', 'extract.limit.rate.limit' = '1000'"
    found = named(con, f"REPLAY INGESTION o FROM earliest WITH ({given}, {rate})")
    assert ([r["read"] for r in found], con.last_result.notes) == ([5, 1], ())


@pytest.mark.parametrize("policy", ["full", "partial", "successful"])
def test_of_a_replay_with_a_partition_that_fails_nothing_is_committed(changing, con, policy):
    changing(f", 'job.commit.policy' = '{policy}', 'task.maxretries' = '0'", failing)
    commits = rows(con, "SELECT instant FROM kafka_ingest_runs('orders')"), con.sql("SELECT * FROM orders").fetchall()
    with pytest.raises(
        IngestError, match=r"nothing was changed; .* What failed: orders:0 stopped at offset 3: leader lost"
    ):
        con.execute("REPLAY INGESTION o FROM earliest")
    assert rows(con, NAMES) == BEFORE
    again = rows(con, "SELECT instant FROM kafka_ingest_runs('orders')"), con.sql("SELECT * FROM orders").fetchall()
    assert again == commits


def test_a_replay_that_is_stopped_has_committed_nothing_in_between(changing, con):
    changing(", 'lakesql.commit.interval' = '100ms', 'taskexecutor.threadpool.size' = '1'", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        con.execute("REPLAY INGESTION o FROM (0 = earliest)")
    assert rows(con, NAMES) == BEFORE


class Ageing(FakeClient):
    """Retention takes the records before `gone` as soon as `after` batches have been read."""

    after = gone = 0

    def _next(self, open_):
        self.batch = 1
        self.broker.starts[TopicPartition("orders", 0)] = self.gone if self.after <= 0 else 0
        self.after -= 1
        return super()._next(open_)


@pytest.mark.parametrize("reset", ["nearest", "latest"])
def test_a_replay_commits_nothing_when_records_are_deleted_behind_some_that_it_has_read(changing, con, reset):
    def opened(found):
        client = Ageing(found)
        client.after, client.gone = 1, 4
        return client

    changing(f", 'reset.on.offset.out.of.range' = '{reset}'", opened)
    with pytest.raises(IngestError, match=r"nothing was changed; .* orders:0: offsets 1 to 4 were deleted"):
        con.execute("REPLAY INGESTION o FROM (0 = earliest)")
    assert rows(con, NAMES) == BEFORE


def test_a_replay_goes_on_where_only_its_first_records_are_deleted_meanwhile(changing, con):
    def opened(found):
        client = Ageing(found)
        client.gone = 2
        return client

    changing(opened=opened)
    assert [r["read"] for r in named(con, "REPLAY INGESTION o FROM (0 = earliest)")] == [3]
    assert rows(con, NAMES) == BEFORE
    assert "Lost while orders:0 was read: 2 offsets" in str(con.last_result.notes)


def test_a_replay_whose_end_cannot_be_had_is_refused(changing, con, monkeypatch):
    changing()
    bounds, calls = FakeClient.bounds, []

    def lost(self, partitions, isolation):
        calls.append(1)
        found = bounds(self, partitions, isolation)
        return found if len(calls) == 1 else {at: Bounds(error="timed out") for at in found}

    monkeypatch.setattr(FakeClient, "bounds", lost)
    with pytest.raises(IngestError, match="the end of orders:0 could not be had: timed out"):
        con.execute("REPLAY INGESTION o FROM (0 = earliest)")
    assert rows(con, NAMES) == BEFORE


# ---------------------------------------------------------------- table functions


def test_lag_is_live_for_a_named_ingestion_and_as_planned_for_others(defined, broker):
    rows(defined, "RUN INGESTION o")
    rows(defined, ingest("other"))
    until = "SELECT partition, complete_until >= stored_at FROM kafka_lag('orders')"
    assert rows(defined, until) == [(0, True), (1, True)]
    broker.add("orders", 0, [message(60)])
    assert rows(defined, until) == [(0, False), (1, True)]
    assert rows(defined, "SELECT partition, lag, live FROM kafka_lag('orders')") == [(0, 1, True), (1, 0, True)]
    assert rows(defined, "SELECT partition, lag, live FROM kafka_lag('other')") == [(0, 0, False), (1, 0, False)]
    assert rows(defined, "SELECT lag, live FROM kafka_lag('other', brokers := 'h:1')") == [(1, True), (0, True)]


def test_lag_says_what_retention_has_taken(defined, broker):
    rows(defined, "RUN INGESTION o")
    broker.add("orders", 0, [message(i) for i in range(60, 70)])
    broker.starts[TopicPartition("orders", 0)] = 8
    assert rows(defined, "SELECT lag, lost FROM kafka_lag('orders')") == [(7, 3), (0, 0)]


def test_runs_are_the_commits_of_an_ingestion(defined, broker):
    rows(defined, "RUN INGESTION o")
    broker.add("orders", 0, [message(60)])
    rows(defined, "RUN INGESTION o")
    assert rows(defined, "SELECT ingestion, records FROM kafka_ingest_runs('orders') ORDER BY instant") == [
        ("o", 12),
        ("o", 1),
    ]


def test_a_commit_that_moves_offsets_counts_no_records(defined):
    rows(defined, "RUN INGESTION o")
    rows(defined, "ALTER INGESTION o SET OFFSETS (topic 'orders', 0 = earliest)")
    found = rows(defined, "SELECT records, bytes, note FROM kafka_ingest_runs('orders') ORDER BY instant")
    assert [(records, note) for records, _, note in found] == [(12, None), (0, "Offsets set by hand")]
    assert found[1][1] == 0


def test_runs_and_bad_records_of_a_folder_of_files_are_read_like_those_of_a_table(con, broker, tmp_path):
    broker.add("orders", 0, [b"{oops"])
    rows(con, ingest(f"FILES '{tmp_path}/out'", rest="FORMAT JSON USING PARQUET"))
    folder = f"'{tmp_path}/out'"
    assert rows(con, f"SELECT instant, records, quarantined FROM kafka_ingest_runs({folder})") == [("1", 13, 1)]
    assert rows(con, f"SELECT _topic, _offset, _value FROM kafka_quarantine({folder})") == [("orders", 5, b"{oops")]
    assert rows(con, f"SELECT count(*) FROM kafka_quarantine({folder}, ingestion := 'other')") == [(0,)]


def test_offsets_of_brokers_and_a_look_into_a_topic(con):
    assert rows(con, "SELECT topic, partition, latest FROM kafka_offsets('ord.*', brokers := 'h:1')") == [
        ("orders", 0, 5),
        ("orders", 1, 7),
    ]
    assert rows(con, "SELECT _partition, _offset, decode(_value)::JSON->>'id' FROM kafka_scan('orders', brokers := 'h:1', "
                "partition := 1, start := 5, stop := 6)") == [(1, 5, "10")]  # fmt: skip
    assert rows(con, "SELECT sum(id) FROM kafka_scan('orders', brokers := 'h:1', format := 'json')") == [(66,)]
    assert rows(con, "SELECT count(*) FROM kafka_scan('orders', brokers := 'h:1', rows := 3)") == [(3,)]


def test_table_functions_take_settings_of_the_client(con, broker):
    rows(con, "FROM kafka_offsets('orders', brokers := 'h:1', options := MAP {'security.protocol': 'SSL'})")
    assert broker.clients[-1]["security.protocol"] == "SSL"
    with pytest.raises(LakeError, match=r"setting securty\.protocol is unknown"):
        con.execute("FROM kafka_offsets('orders', brokers := 'h:1', options := MAP {'securty.protocol': 'SSL'})")
    with pytest.raises(LakeError, match=r"give brokers := 'host:port'"):
        con.execute("FROM kafka_scan('orders')")
    with pytest.raises(LakeError, match="no topic that fits 'nix'"):
        con.execute("FROM kafka_offsets('nix', brokers := 'h:1')")


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("sql", "kind", "text"),
    [
        (ingest(options="'kafka.brokers' = 'h:1', 'topic.whitlist' = 'orders'"), SQLError, "did you mean topic.whitelist"),
        (ingest(options="'topic.whitelist' = 'orders'"), JobError, "kafka.brokers"),
        (ingest(options=OPTIONS.replace("earliest", "first")), JobError, "bootstrap.with.offset"),
        (ingest(options=OPTIONS + ", 'lakesql.into' = 'x'"), SQLError, "the statement itself says where rows go"),
        (ingest(options=OPTIONS + ", 'sasl.password' = '${env:LAKESQL_NOT_THERE}'"), JobError, "variable LAKESQL_NOT_THERE"),
        (ingest(rest="FORMAT JSON (COLOMNS 'a INT')"), SQLError, "FORMAT has no option COLOMNS"),
        (ingest(rest="FORMAT AVRO"), JobError, "lakesql.wire"),
        (ingest(rest="FORMAT JSON TBLPROPERTIES (primarykey = 'id')"), SQLError, "did you mean primaryKey"),
        (ingest(rest="FORMAT JSON AS SELECT nix FROM kafka"), LakeError, "nix"),
        (ingest("\"a/b\"", rest="FORMAT RAW TBLPROPERTIES (type = 'x')"), LakeError, "type"),
        (f"CREATE INGESTION o AS {ingest(options=OPTIONS + ', job.name = x')}", SQLError, "contradicts its name"),
        ("RUN INGESTION o", SQLError, "there is no ingestion o"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_stored(con, tmp_path, monkeypatch, sql, kind, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=text):
        con.execute(sql)
    assert not con.tables


def test_a_name_that_is_taken_is_refused_before_the_run(con, tmp_path):
    con.execute("CREATE TABLE orders (a INT)")
    with pytest.raises(TableError, match="has a table of this name"):
        con.execute(ingest())
    (tmp_path / "lake" / "full").mkdir(parents=True)
    (tmp_path / "lake" / "full" / "x").write_text("")
    with pytest.raises(TableError, match="is not empty and holds no Hudi table"):
        con.execute(ingest("full"))


def test_brokers_that_do_not_answer_are_an_error_without_the_password(con, monkeypatch):
    def fails(settings, **_):
        raise IngestError(f"no answer, logged in with {settings['sasl.password']}")

    monkeypatch.setattr(kafka, "open_client", fails)
    with pytest.raises(IngestError, match=r"logged in with \*\*\*$"):
        con.execute(ingest(options=OPTIONS + ", 'sasl.password' = 'geheim-xyz'"))


def test_a_password_is_kept_plainly_only_with_a_word_about_it(con, monkeypatch):
    monkeypatch.setenv("KAFKA_PW", "geheim-xyz")
    sql = "CREATE INGESTION {} AS " + ingest(options=OPTIONS + ", 'sasl.password' = '{}'")
    assert "stored in plain text" not in rows(con, sql.format("a", "${env:KAFKA_PW}"))[0][0]
    assert "sasl.password: stored in plain text in " in rows(con, sql.format("b", "geheim-xyz"))[0][0]
    for name in "ab":
        assert "geheim-xyz" not in str(rows(con, f"SHOW INGESTION {name}"))
    assert dict(rows(con, "SHOW INGESTION a"))["options: sasl.password"] == "${env:KAFKA_PW}"


@pytest.mark.usefixtures("defined")
def test_a_read_only_connection_plans_and_shows_but_changes_nothing(tmp_path):
    with lakesql.connect(warehouse=tmp_path / "lake", read_only=True) as con:
        assert [r[:2] for r in rows(con, "EXPLAIN RUN INGESTION o")] == [("orders", 0), ("orders", 1), (None, None)]
        assert rows(con, "SHOW INGESTION o")
        for sql in (ingest(), "RUN INGESTION o", "DROP INGESTION o", f"CREATE INGESTION p AS {ingest()}",
                    "REPLAY INGESTION o FROM earliest", "ALTER INGESTION o SET OFFSETS (0 = 1)", "ALTER INGESTION o SET OPTIONS (a.b = 1)",
                    "CALL reset_ingestion_offsets(ingestion => 'o', offset => 'latest')"):  # fmt: skip
            with pytest.raises(TableError, match="read-only"):
                con.execute(sql)


def test_no_ingest_within_a_transaction(con):
    con.execute("BEGIN")
    with pytest.raises(SQLError, match="inside a transaction"):
        con.execute(ingest())


# ---------------------------------------------------------------- names with {topic}


def test_the_offsets_of_all_tables_of_a_pattern_are_shown_by_its_name(con, broker):
    broker.add("clicks", 0, [message(1)])
    with pytest.raises(TableError, match="no table or folder of that pattern"):
        con.execute("SELECT * FROM kafka_offsets('raw_{topic}')")
    rows(con, ingest("'raw_{topic}'", OPTIONS.replace("'orders'", "'.*'")))
    stored = "SELECT topic, partition, next FROM {} ORDER BY ALL"
    assert rows(con, stored.format("kafka_offsets('raw_{topic}')")) == [
        ("clicks", 0, 1), ("orders", 0, 5), ("orders", 1, 7),
    ]  # fmt: skip
    assert rows(con, "SELECT count(*), sum(lag) FROM kafka_lag('raw_{topic}')") == [(3, 0)]
    for call in ("kafka_ingest_runs('raw_{topic}')", "kafka_quarantine('raw_{topic}')"):
        with pytest.raises(
            SQLError, match=r"one for each topic.*raw_clicks.*kafka_offsets\('raw_\{topic\}'\) shows all"
        ):
            con.execute(f"SELECT * FROM {call}")
    with pytest.raises(SQLError, match="it takes topics"):
        con.execute("SELECT * FROM kafka_offsets('raw_{topic}', brokers := 'h:1')")


def test_an_imported_partition_that_the_topic_does_not_have_is_refused(con, tmp_path):
    con.execute(f"CREATE INGESTION o AS {ingest()}")
    rows(con, "RUN INGESTION o")
    (tmp_path / "state.csv").write_text("topic,partition,offset\norders,0,2\norders,7,2\n")
    call = f"CALL import_ingestion_state(ingestion => 'o', file => '{tmp_path}/state.csv')"
    with pytest.raises(SQLError, match="no partition orders:7; topic orders has partitions 0 to 1"):
        con.execute(call)
    assert rows(con, "SELECT next FROM kafka_offsets('orders') ORDER BY partition") == [(5,), (7,)]


# ---------------------------------------------------------------- what a plan and an error say


def test_a_plan_marks_bytes_that_no_run_has_measured(con, broker):
    plan = named(con, f"EXPLAIN {ingest()}")
    assert [(r["expected_bytes"], r["bytes_assumed"]) for r in plan[:2]] == [(5120, True), (7168, True)]
    assert "12,288) are an assumption, 1,024 bytes for each record" in plan[2]["reason"]
    rows(con, ingest())
    assert not any("assumption" in note for note in con.last_result.notes)
    broker.add("orders", 0, [message(3)])
    plan = named(con, f"EXPLAIN {ingest()}")
    assert [(r["expected_bytes"], r["bytes_assumed"]) for r in plan] == [(33, False), (0, False)]


def test_too_many_bad_records_show_the_first_one_without_its_secrets(con, broker):
    long = b'{"id": 1, "password": "geheim-xyz", "note": "' + b"x" * 500
    broker.add("orders", 0, [long, b"{", b"\x00\xff"])
    options = OPTIONS + ", 'lakesql.bad.records.max.count' = '1'"
    with pytest.raises(IngestError) as error:
        con.execute(ingest(options=options))
    text = str(error.value)
    assert "orders:0: 3 records cannot be decoded, more than the 1 allowed. The first: offset 5, decode: " in text
    assert 'its value begins {"id": 1, "password": ***, "note": "xxx' in text
    assert "geheim" not in text
    assert len(text) < 600


# ---------------------------------------------------------------- names of jobs


@pytest.mark.parametrize("size", [30, 200])
def test_a_long_name_makes_files_of_a_shorter_one(con, tmp_path, size):
    con.execute(ingest(f"FILES '{tmp_path}/out'", OPTIONS + f", 'job.name' = '{'n' * size}'", "FORMAT JSON"))
    files = [one.name for one in (tmp_path / "out" / "orders").rglob("*.avro")]
    assert files
    assert all(len(name) < 180 and name.startswith("part.task_nnnnn") for name in files)
    assert rows(con, f"SELECT sum(next) FROM kafka_offsets('{tmp_path}/out')") == [(12,)]


def test_a_name_too_long_for_a_folder_is_refused_before_anything_is_read(con, tmp_path, broker):
    with pytest.raises(JobError, match="at most 200 characters"):
        con.execute(ingest(f"FILES '{tmp_path}/out'", OPTIONS + f", 'job.name' = '{'n' * 201}'", "FORMAT JSON"))
    assert not list((tmp_path / "out").rglob("*.avro"))
    con.execute(ingest("long", OPTIONS + f", 'job.name' = '{'n' * 5000}'"))
    assert rows(con, "SELECT count(*) FROM long") == [(12,)]
    assert broker.clients
