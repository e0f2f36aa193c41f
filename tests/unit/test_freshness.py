"""`hudi_freshness`, and read-optimized reads that demand freshness."""

import io

import pytest

import lakesql
from lakesql.format.timeline import instant_millis
from lakesql.services.freshness import freshness, lag_text, parse_span
from lakesql.shell import batch, new_shell
from tests import samples

MINUTE_MS = 60_000


@pytest.fixture(params=["6", "8", "9"])
def con(tmp_path, request):
    con = lakesql.connect(warehouse=tmp_path / "lake")
    con.sql(
        "CREATE TABLE t (id BIGINT, v VARCHAR, ts BIGINT, p VARCHAR) USING hudi PARTITIONED BY (p) TBLPROPERTIES "
        "(type = 'mor', primaryKey = 'id', orderingFields = 'ts', 'hoodie.write.table.version' = '"
        + request.param
        + "', "
        "hoodie.table.timeline.timezone = 'UTC')"
    )
    with con:
        yield con


@pytest.fixture
def stale(con):
    """Two partitions; the view lacks an update and a delete of p=b, by the second and third of four commits."""
    texts = (
        "INSERT INTO t SELECT i, 'old', 1, CASE WHEN i < 5 THEN 'a' ELSE 'b' END FROM range(10) r(i)",
        "UPDATE t SET v = 'new', ts = 2 WHERE id IN (5, 6)",
        "DELETE FROM t WHERE id = 7",
        "INSERT INTO t VALUES (99, 'late', 1, 'c')",
    )
    con.first, con.second, con.third, con.fourth = (con.execute(text).fetchone()[0] for text in texts)
    return con


def one(con, text):
    return con.sql(text).fetchall()[0]


def test_a_table_without_logs_lacks_nothing(con):
    con.sql("INSERT INTO t VALUES (1, 'a', 1, 'a')")
    con.sql("INSERT INTO t VALUES (2, 'a', 1, 'b')")
    row = con.sql(
        "SELECT latest_commit = complete_to, oldest_missing, lag_s, lag_commits, stale_groups, log_rows FROM hudi_freshness('t')"
    )
    assert row.fetchall() == [(True, None, 0.0, 0, 0, 0)]


def test_a_table_without_commits_has_no_times(con):
    assert one(con, "SELECT latest_commit, complete_to, lag_commits FROM hudi_freshness('t')") == (None, None, 0)


def test_the_lag_counts_from_the_oldest_commit_of_which_something_is_missing(stale):
    columns = "latest_commit, complete_to, oldest_missing, lag_commits, file_groups, stale_groups, log_files, log_rows"
    assert one(stale, f"SELECT {columns} FROM hudi_freshness('t')") == (
        stale.fourth, stale.first, stale.second, 2, 3, 1, 2, 3,
    )  # fmt: skip
    state = stale.table("t").state
    oldest = next(i for i in state.timeline.completed_writes() if i.requested == stale.second)
    completed = instant_millis(state.timeline.time_of(oldest))
    lags = [freshness(state, completed + minutes * MINUTE_MS)[0].lag_s for minutes in (1, 61)]
    assert lags == pytest.approx([60, 3660], abs=2)


def test_partitions_lag_on_their_own(stale):
    rows = stale.sql(
        "SELECT partition_path, complete_to, log_rows FROM hudi_freshness('t', by_partition := true)"
    ).fetchall()
    prefix = "p=" if rows[0][0].startswith("p=") else ""
    assert rows == [(f"{prefix}a", stale.fourth, 0), (f"{prefix}b", stale.first, 3), (f"{prefix}c", stale.fourth, 0)]


def test_exact_counts_are_what_compaction_would_change(stale):
    stale.sql(
        "MERGE INTO t USING (SELECT 5 AS id, 'again' AS v, 3 AS ts, 'b' AS p) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    )
    counts = "rows_inserted, rows_updated, rows_deleted"
    assert one(stale, f"SELECT {counts} FROM hudi_freshness('t', exact := true)") == (0, 2, 1)
    assert one(stale, f"SELECT {counts} FROM hudi_freshness('t')") == (None, None, None)


def test_a_fresh_enough_view_is_read(stale):
    assert stale.sql("FROM hudi_read_optimized('t', max_staleness := '1 hour')").to_arrow_table().num_rows == 11
    assert stale.sql("FROM hudi_read_optimized('t', max_staleness := INTERVAL 1 HOUR)").to_arrow_table().num_rows == 11


def test_a_stale_view_is_refused_with_its_lag_and_the_cure(stale):
    with pytest.raises(lakesql.TableError, match=f"lacks changes of 2 commits.*{stale.second}.*CALL run_compaction"):
        stale.sql("FROM hudi_read_optimized('t', max_staleness := '0 seconds')").fetchall()


@pytest.mark.parametrize("read", ["t_ro", "hudi_read_optimized('t')", "hudi_scan('t', mode := 'read_optimized')"])
def test_every_read_optimized_read_follows_the_setting(stale, read):
    stale.sql("SET lakesql.read_optimized.max_staleness = '0 seconds'")
    with pytest.raises(lakesql.TableError, match="at most 0 s was asked for"):
        stale.sql(f"SELECT * FROM {read}")
    with pytest.raises(lakesql.TableError, match="at most 0 s was asked for"):
        stale.cursor().sql(f"SELECT * FROM {read}")
    stale.sql("SET lakesql.read_optimized.on_stale = 'snapshot'")
    assert stale.sql(f"SELECT count(*) FROM {read}").fetchall() == [(10,)]
    stale.sql("RESET lakesql.read_optimized.max_staleness")
    assert stale.sql(f"SELECT count(*) FROM {read}").fetchall() == [(11,)]


def test_the_arguments_of_a_read_go_before_the_settings(stale):
    stale.sql("SET lakesql.read_optimized.max_staleness = '0 seconds'")
    read = "hudi_read_optimized('t', max_staleness := '1 day', on_stale := 'warn')"
    assert stale.sql(f"SELECT count(*) FROM {read}").fetchall() == [(11,)]
    assert stale.sql("SELECT count(*) FROM hudi_read_optimized('t', as_of := '" + stale.third + "')").fetchall() == [
        (10,)
    ]


def test_a_property_of_the_table_limits_its_reads(tmp_path):
    con = lakesql.connect(warehouse=tmp_path)
    con.sql(
        "CREATE TABLE t (id BIGINT, v BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id', "
        "lakesql.read_optimized.max_staleness = '0 seconds', lakesql.read_optimized.on_stale = 'snapshot')"
    )
    con.sql("INSERT INTO t VALUES (1, 1)")
    con.sql("UPDATE t SET v = 2")
    assert con.sql("SELECT v FROM t_ro").fetchall() == [(2,)]
    con.sql("SET lakesql.read_optimized.max_staleness = '1 hour'")
    assert con.sql("SELECT v FROM t_ro").fetchall() == [(1,)]
    table = con.table("t")
    assert table.read(mode="read_optimized", columns=["v"]).read_all()["v"].to_pylist() == [2]
    assert table.read(mode="read_optimized", columns=["v"], max_staleness="1 hour").read_all()["v"].to_pylist() == [1]


def test_warn_gives_the_rows_and_a_warning(stale):
    stale.sql("SET lakesql.read_optimized.max_staleness = '0 seconds'")
    stale.sql("SET lakesql.read_optimized.on_stale = 'warn'")
    with pytest.warns(lakesql.StaleReadWarning, match="lacks changes of 2 commits"):
        assert stale.sql("SELECT count(*) FROM t_ro").fetchall() == [(11,)]
    with pytest.warns(lakesql.StaleReadWarning, match="lacks changes of 2 commits"):
        stale.table("t").read(mode="read_optimized", max_staleness="0 seconds", on_stale="warn").read_all()


def test_the_connection_tells_how_complete_its_last_read_was(stale):
    stale.sql("SELECT count(*) FROM t_ro").fetchall()
    read = stale.last_read
    assert (read.mode, read.complete_to, read.lag_commits) == ("read_optimized", stale.first, 2)
    stale.sql("SELECT count(*) FROM t").fetchall()
    assert stale.last_read is None


def test_describe_of_the_view_tells_its_lag(stale):
    rows = {row[0]: row[5] for row in stale.sql("DESCRIBE t_ro").fetchall()}
    assert rows.pop("_hoodie_commit_time").startswith("lacks changes of 2 commits")
    assert set(rows.values()) == {None}
    assert {row[5] for row in stale.sql("DESCRIBE t").fetchall()} == {None}


def test_the_shell_tells_the_lag_of_a_view_it_read(stale):
    out, err = io.StringIO(), io.StringIO()
    shell = new_shell(stale, "table", 40)
    shell.out, shell.err = out, err
    batch(shell, "SELECT count(*) FROM t_ro; SELECT 1")
    assert err.getvalue().count("Note: ") == 1
    assert "the read-optimized view lacks changes of 2 commits" in err.getvalue()


def test_a_span_of_time_is_read_as_duckdb_reads_it():
    assert [parse_span(t) for t in ("15 minutes", "2 hours 30 seconds", "00:00:01.5")] == [900, 7230, 1.5]
    for text in ("soon", "-1 hour", ""):
        with pytest.raises(ValueError, match="span of time"):
            parse_span(text)


def test_a_lag_is_told_in_its_two_largest_units():
    assert [lag_text(s) for s in (0, 59, 61, 7200, 90061)] == ["0 s", "59 s", "1 min 1 s", "2 h", "1 d 1 h"]


def test_a_log_compaction_is_no_commit_that_the_view_lacks(tmp_path):
    made = samples.create(tmp_path / "t", samples.Kind("mor", 9))
    made.upsert(samples.rows(("a", "x", 1, 1)))
    for n in (2, 3, 4):
        made.upsert(samples.rows(("a", "x", n, n)))
    before = made.freshness()
    assert made.compact(logs=True, **{"hoodie.log.compaction.blocks.threshold": "2"}).file_groups == 1
    after = made.freshness()
    assert (before.lag_commits, after.lag_commits) == (3, 3)
    assert after.complete_to == before.complete_to
