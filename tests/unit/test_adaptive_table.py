"""Adaptive compaction on real tables: what is measured, what a round does, and a writer that is told to slow down."""

import json
import threading
import time
from dataclasses import replace
from datetime import UTC

import pytest
from typer.testing import CliRunner

import lakesql
from lakesql.cli import app
from lakesql.errors import SQLError, TableError
from lakesql.services import adaptive_facts, adaptive_reads, adaptive_rounds, compaction, log_compaction
from lakesql.services.adaptive_facts import measure
from lakesql.services.adaptive_model import Costs, Target, amplification
from lakesql.services.compaction_plan import ADAPTIVE, STRATEGY
from lakesql.table.state import load
from tests.writing import CON, put, rows_of, table, values

START_MS = 1_800_000_000_000
UTC_TABLE = {"properties": {"hoodie.table.timeline.timezone": "UTC"}}
READS, STALE = "lakesql.compaction.target.read_amplification", "lakesql.compaction.target.staleness"
PRESSURE = "lakesql.compaction.backpressure"


class Clock:
    """Epoch milliseconds that a test moves on; each look takes one."""

    def __init__(self) -> None:
        self.now = START_MS

    def __call__(self) -> int:
        self.now += 1
        return self.now


def batch(n: int, partitions: str = "xy", rows: int = 50) -> str:
    return values(*[(f"{p}{k}", p, n, n) for p in partitions for k in range(rows)])


@pytest.fixture(params=[9, 6])
def logged(tmp_path, request):
    """Base files at 0 s; logs of x at 100 s and 200 s, of y at 200 s."""
    clock = Clock()
    t = table(tmp_path / "t", "mor", request.param, **UTC_TABLE)
    put(t, batch(0), clock=clock)
    clock.now = START_MS + 100_000
    put(t, batch(1, "x"), clock=clock)
    clock.now = START_MS + 200_000
    put(t, batch(2), clock=clock)
    clock.now = START_MS + 300_000
    return t, clock


def logs_of(t):
    return {s.partition.removeprefix("city="): len(s.logs) for s in load(t.storage).slices()}


# ---------------------------------------------------------------- what is measured


def test_sizes_rows_and_rates_of_each_group(logged):
    t, clock = logged
    state = load(t.storage)
    # version 6 has the times of its files alone, which are of this minute
    now, span = (clock.now, 300) if state.config.version == 9 else (int(time.time() * 1000), 60)
    x, y = measure(state, now, UTC).groups
    slices = {s.partition.removeprefix("city="): s for s in state.slices()}
    assert (x.key, y.key) == (slices["x"].group, slices["y"].group)
    assert x.base_bytes == slices["x"].base.size_bytes
    assert x.log_bytes == sum(f.size_bytes for f in slices["x"].logs) > 0
    assert (x.log_rows, x.base_rows, y.log_rows) == (100, 50, 50)
    assert (x.log_files, y.log_files) == (len(slices["x"].logs), len(slices["y"].logs))
    assert 1.7 < x.rate / y.rate < 2.2
    assert x.rate == pytest.approx(x.log_bytes / span, rel=0.15)
    assert not x.taken


@pytest.mark.parametrize("logged", [9], indirect=True)  # version 6 knows completion times by its files only
def test_age_counts_from_the_oldest_commit_in_the_logs(logged):
    t, clock = logged
    x, y = measure(load(t.storage), clock.now, UTC).groups
    assert x.age_s == pytest.approx(200, abs=0.1)
    assert y.age_s == pytest.approx(100, abs=0.1)


def test_groups_of_a_pending_plan_are_taken(logged):
    t, clock = logged
    compaction.schedule(t.storage, {}, partitions=["city=x"], clock=clock)
    x, y = measure(load(t.storage), clock.now, UTC).groups
    assert x.taken
    assert not y.taken


def test_past_compactions_tell_their_bytes_and_seconds(tmp_path):
    t = table(tmp_path / "t", "mor", **UTC_TABLE)
    put(t, batch(0))
    put(t, batch(1))
    logs = sum(f.size_bytes for s in load(t.storage).slices() for f in s.logs)
    done = compaction.compact(CON, t.storage, {})
    now = int(time.time() * 1000)
    found = measure(load(t.storage), now, UTC)
    [run] = found.runs
    assert (run.groups, run.log_bytes, run.base_bytes) == (2, logs, done.bytes_written)
    assert 0 < run.seconds < done.duration_s + 2
    assert found.costs.factor == pytest.approx(
        run.seconds
        / (
            Costs().round_s
            + 2 * Costs().group_s
            + run.base_bytes * Costs().base_byte_s
            + run.log_bytes * Costs().log_byte_s
        )
    )


def test_logs_that_were_merged_into_one_count_no_more_and_keep_their_age(tmp_path):
    clock = Clock()
    t = table(tmp_path / "t", "mor", event=False, **UTC_TABLE)
    put(t, batch(0, "x"), clock=clock)
    for n in range(1, 6):
        clock.now += 10_000
        put(t, batch(n, "x"), clock=clock)
    before = measure(load(t.storage), clock.now, UTC).groups[0]
    log_compaction.compact_logs(CON, t.storage, {}, clock=clock)
    after = measure(load(t.storage), clock.now, UTC).groups[0]
    assert (before.log_files, after.log_files) == (5, 1)
    assert after.log_bytes < before.log_bytes / 3
    assert (before.log_rows, after.log_rows) == (250, 50)
    assert after.age_s == pytest.approx(before.age_s, abs=1)


# ---------------------------------------------------------------- a round


@pytest.mark.parametrize("logged", [9], indirect=True)
def test_a_round_compacts_what_the_target_needs_and_says_why(logged):
    t, clock = logged
    rows = rows_of(t)
    x, y = measure(load(t.storage), clock.now, UTC).groups
    target = 1 + (y.log_bytes + x.log_bytes / 10) / (x.base_bytes + y.base_bytes)
    only_x = {STRATEGY: ADAPTIVE, READS: str(target)}
    done = compaction.compact(CON, t.storage, only_x, clock=clock)
    assert done.file_groups == 1
    assert logs_of(t) == {"x": 0, "y": y.log_files}
    [text] = [n for n in done.notes if n.startswith("adaptive: ")]
    assert "compact 1 of 2 file groups" in text
    assert "Leaves 1 group with logs that need no compaction yet" in text
    assert rows_of(t) == rows
    again = compaction.compact(CON, t.storage, only_x, clock=clock)
    assert again.instant is None
    assert "compact nothing" in again.notes[0]


def test_a_stale_view_is_made_fresh(logged):
    t, clock = logged
    settings = {STRATEGY: ADAPTIVE, STALE: "1 second"}
    assert compaction.compact(CON, t.storage, settings, clock=clock).file_groups == 2
    assert logs_of(t) == {"x": 0, "y": 0}


def test_named_partitions_are_decided_about_alone(logged):
    t, clock = logged
    done = compaction.compact(
        CON, t.storage, {STRATEGY: ADAPTIVE, STALE: "1 second"}, partitions=["city=y"], clock=clock
    )
    assert "compact 1 of 1 file group " in done.notes[0]
    assert logs_of(t)["y"] == 0
    assert logs_of(t)["x"] > 0


def test_logs_are_merged_where_time_is_short(tmp_path, monkeypatch):
    t = table(tmp_path / "t", "mor", event=False, **UTC_TABLE)
    put(t, batch(0, rows=5))
    for n in range(1, 13):
        put(t, batch(n, rows=5))
    rows = rows_of(t)
    base = load(t.storage).slices()[0].base.size_bytes
    dear = Costs(round_s=0, group_s=0, base_byte_s=60 / base, log_byte_s=0)
    monkeypatch.setattr(adaptive_facts, "Costs", lambda: dear)
    settings = {STRATEGY: ADAPTIVE, READS: "1.0001", "lakesql.compaction.budget": "0.1"}
    done = compaction.compact(CON, t.storage, settings)
    assert any("merge the logs of" in n for n in done.notes), done.notes
    actions = [i.action for i in load(t.storage).timeline.instants if i.action.endswith("compaction")]
    assert "logcompaction" in actions
    assert rows_of(t) == rows


@pytest.fixture
def mor(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql("CREATE TABLE t (id BIGINT, v BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
        con.sql("INSERT INTO t SELECT i, 0 FROM range(100) r(i)")
        con.sql("UPDATE t SET v = 1")
        yield con


def test_the_handle_compacts_adaptively(mor):
    t = mor.table("t")
    assert t.compact(strategy="adaptive", **{READS: "1000"}).instant is None
    assert t.compact(strategy="adaptive", run=False, **{READS: "1.0001"}).completed is None
    assert t.compact(strategy="adaptive").completed


def test_statements_compact_adaptively(mor):
    assert not mor.sql(
        f"CALL run_compaction(op => 'run', table => 't', options => '{STRATEGY}=adaptive,{READS}=1000')"
    ).fetchall()
    mor.sql(f"SET {STRATEGY} = 'adaptive'")
    mor.sql(f"SET {READS} = 1.0001")
    assert len(mor.sql("CALL run_compaction(op => 'run', table => 't')").fetchall()) == 1


def test_inline_compaction_asks_the_controller_and_no_trigger(mor):
    t = mor.table("t")
    inline = {"hoodie.compact.inline": "true", STRATEGY: "adaptive"}
    first = t.upsert([{"id": 1, "v": 2}], **inline, **{READS: "1000"})
    assert not [n for n in first.notes if n.startswith("Compaction")]
    second = t.upsert([{"id": 1, "v": 3}], **inline, **{READS: "1.0001"})
    assert any(n.startswith("Compaction") for n in second.notes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (READS, "1"),
        (READS, "much"),
        (STALE, "soon"),
        (STALE, "0 seconds"),
        ("lakesql.compaction.budget", "1.5"),
        ("lakesql.compaction.period", "-1"),
        ("lakesql.compaction.log_read_cost", "0"),
        ("lakesql.compaction.observe_reads", "maybe"),
        (PRESSURE, "-2"),
        (STRATEGY, "clever"),
    ],
)
def test_settings_that_mean_nothing_are_refused_at_once(mor, name, value):
    with pytest.raises((SQLError, TableError), match=name):
        mor.sql(f"SET {name} = '{value}'")


def test_the_command_decides_by_targets(mor):
    path = mor.table("t").path
    run = CliRunner().invoke
    done = run(app, ["compact", path, "--adaptive", "--target-read-amplification", "1000"], catch_exceptions=False)
    assert "adaptive: compact nothing" in done.output
    arguments = ["--adaptive", "--target-staleness", "1 ms", "--budget", "0.9"]
    done = run(app, ["compact", path, *arguments], catch_exceptions=False)
    assert "adaptive: compact 1 of 1 file group" in done.output
    assert "compact: compaction" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--budget", "0.3"], "add --adaptive"), (["--adaptive", "--logs"], "exclude each other")],
)
def test_options_that_do_not_go_together_are_refused(mor, arguments, message):
    done = CliRunner().invoke(app, ["compact", mor.table("t").path, *arguments])
    assert done.exit_code != 0
    assert message in str(done.exception)


# ---------------------------------------------------------------- backpressure


def written(t, **settings):
    return t.upsert([{"id": 1, "v": 9}], **settings)


def test_a_write_says_that_compaction_is_behind_only_where_asked(mor):
    t = mor.table("t")
    assert not [n for n in written(t, **{READS: "1.0001"}).notes if "behind" in n]
    assert any(
        "Compaction is behind: a snapshot reads" in n for n in written(t, **{READS: "1.0001", PRESSURE: "note"}).notes
    )
    assert not [n for n in written(t, **{READS: "1000", PRESSURE: "note"}).notes if "behind" in n]


def test_a_write_waits_for_compaction_no_longer_than_asked(mor):
    t = mor.table("t")
    began = time.monotonic()
    notes = written(t, **{READS: "1.0001", PRESSURE: "0.3"}).notes
    assert 0.3 <= time.monotonic() - began < 20
    assert any("waited" in n and "in vain" in n for n in notes)


def test_a_write_goes_on_when_compaction_has_met_the_target(mor):
    t = mor.table("t")
    helper = lakesql.open_table(t.path)
    stop = threading.Event()

    def compacting() -> None:
        while not stop.wait(0.2):
            helper.compact()

    thread = threading.Thread(target=compacting)
    thread.start()
    try:
        notes = written(t, **{STALE: "1 ms", PRESSURE: "60"}).notes
    finally:
        stop.set()
        thread.join()
    assert not [n for n in notes if "in vain" in n]


# ---------------------------------------------------------------- observed reads


@pytest.fixture
def observed(tmp_path, monkeypatch):
    monkeypatch.setattr(adaptive_reads, "_counts", {})
    t = table(tmp_path / "t", "mor", properties={"lakesql.compaction.observe_reads": "true"})
    put(t, batch(0))
    return lakesql.open_table(t.path)


def test_snapshot_reads_are_counted_where_the_table_asks_for_it(observed):
    state = observed.state
    assert adaptive_reads.reads_per_s(state.storage, int(time.time() * 1000)) == 0
    observed.read().read_all()
    for _ in range(4):
        adaptive_reads.note_read(state, int(time.time() * 1000) + 11_000)
    rate = adaptive_reads.reads_per_s(state.storage, int(time.time() * 1000) + 11_000)
    assert 2 / 12 < rate <= 5 / 10
    config = adaptive_rounds.AdaptiveConfig()
    assert adaptive_rounds.measured(state, config, int(time.time() * 1000), UTC).reads_per_s > 0


def test_sql_reads_count_too(observed, tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql(f"SELECT * FROM hudi_scan('{observed.path}')").fetchall()
    assert adaptive_reads.reads_per_s(observed.state.storage, int(time.time() * 1000)) > 0


def test_without_the_property_nothing_is_recorded(mor):
    t = mor.table("t")
    t.read().read_all()
    assert not t.state.storage.list(adaptive_reads.FOLDER)[0]
    assert adaptive_rounds.measured(t.state, adaptive_rounds.AdaptiveConfig(), START_MS, UTC).reads_per_s is None


def test_a_record_that_cannot_be_written_or_read_breaks_no_read_and_no_round(observed, monkeypatch):
    state = observed.state

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(type(state.storage), "put", full)
        assert observed.read().read_all().num_rows == 100
    now = int(time.time() * 1000)
    for text in (b"", b"{", b"[]", json.dumps({"since_ms": "x"}).encode()):
        state.storage.put(f"{adaptive_reads.FOLDER}/reads-1.json", text)
        assert adaptive_reads.reads_per_s(state.storage, now) == 0


def test_counts_of_processes_that_are_long_gone_are_removed(observed):
    storage = observed.state.storage
    observed.read().read_all()
    later = int((time.time() + adaptive_reads.FORGET_S + 60) * 1000)
    assert adaptive_reads.reads_per_s(storage, later) == 0
    assert not storage.list(adaptive_reads.FOLDER)[0]


def test_the_target_missed_is_said_in_words(logged):
    t, clock = logged
    facts = measure(load(t.storage), clock.now, UTC)
    reads = amplification(facts.groups, facts.costs)
    assert adaptive_rounds.missed_text(facts, Target(reads + 0.01, 1e9)) is None
    assert f"{reads:.2f} times" in adaptive_rounds.missed_text(facts, Target(reads - 0.001))
    late = replace(facts, groups=tuple(replace(g, age_s=100.0) for g in facts.groups))
    assert "1 min 40 s behind, target 1 min" in adaptive_rounds.missed_text(late, Target(None, 60.0))
