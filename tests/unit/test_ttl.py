"""Partition TTL: whose time is over goes, by Hudi's two strategies; nobody else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakesql
from lakesql.errors import CommitConflict, TableError
from lakesql.format.timeline import instant_millis
from lakesql.services import ttl
from lakesql.services.maintenance import maintain
from lakesql.table.known_settings import make_utc
from lakesql.table.state import TableState, load
from lakesql.write import write
from tests import writing

DAY = 86_400_000
NOW = 1_800_000_000_000  # 2027-01-15
BY_TIME = {"hoodie.partition.ttl.strategy.days.retain": "10"}
BY_CREATION = BY_TIME | {"hoodie.partition.ttl.management.strategy.type": "keep_by_creation_time"}
KINDS = pytest.mark.parametrize(("type_", "version"), [(t, v) for t in ("cow", "mor") for v in (6, 8, 9)])


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        make_utc(con)
        yield con


def ticking(start: int) -> Any:
    """A clock that goes on by a millisecond at each look."""
    times = iter(range(start, start + 10**6))
    return lambda: next(times)


def aged(path: Path, type_: str = "cow", version: int = 9) -> TableState:
    """Partition old: not written for 20 days; kept: made 20 days ago, updated yesterday; new: made yesterday."""
    state = writing.table(path, type_, version)
    writing.upsert(state, ("a", "old", 1, 1), ("b", "kept", 1, 1), clock=ticking(NOW - 20 * DAY))
    writing.upsert(state, ("b", "kept", 2, 2), ("c", "new", 2, 2), clock=ticking(NOW - DAY))
    return load(state.storage)


@KINDS
def test_partitions_that_nobody_wrote_to_go(tmp_path: Path, type_: str, version: int, con: Any) -> None:
    """On Merge-on-Read the update of yesterday is in a log: it keeps its partition as well."""
    state = aged(tmp_path / "t", type_, version)
    gone, result = ttl.run(con, state.storage, BY_TIME, ticking(NOW))
    assert gone == ("city=old",)
    assert result is not None
    assert (result.action, result.rows_deleted) == ("replacecommit", 1)
    assert [row[0] for row in writing.rows_of(state)] == ["b", "c"]
    assert writing.rust_rows(state) == writing.rows_of(state)
    before = lakesql.open_table(state.path).read(as_of=state.timeline.completed_writes()[-1].requested)
    assert len(before.read_all()) == 3
    assert ttl.run(con, state.storage, BY_TIME, ticking(NOW + 1000)) == ((), None)


@KINDS
def test_by_creation_time_updates_do_not_count(tmp_path: Path, type_: str, version: int, con: Any) -> None:
    state = aged(tmp_path / "t", type_, version)
    gone, _ = ttl.run(con, state.storage, BY_CREATION, ticking(NOW))
    assert gone == ("city=kept", "city=old")
    assert [row[0] for row in writing.rows_of(state)] == ["c"]


def test_the_border_is_the_retention_to_the_millisecond(tmp_path: Path) -> None:
    state = writing.table(tmp_path / "t")
    writing.upsert(state, ("a", "x", 1, 1), clock=ticking(NOW))
    config = ttl.TtlConfig(days=10)
    now = load(state.storage)
    written = instant_millis(now.timeline.completed_writes()[0].requested)
    assert ttl.expired(now, config, "", lambda: written + 10 * DAY) == ()
    assert ttl.expired(now, config, "", lambda: written + 10 * DAY + 1) == ("city=x",)


def test_selected_partitions_and_the_largest_number(tmp_path: Path, con: Any) -> None:
    state = aged(tmp_path / "t")
    prefix = "hoodie.partition.ttl.strategy."
    selected = BY_CREATION | {f"{prefix}partition.selected": "city=kept,city=new"}
    assert ttl.run(con, state.storage, selected, ticking(NOW))[0] == ("city=kept",)
    state = aged(tmp_path / "u")
    limited = BY_CREATION | {f"{prefix}max.delete.partitions": "1"}
    assert ttl.run(con, state.storage, limited, ticking(NOW))[0] == ("city=kept",)
    assert ttl.run(con, state.storage, limited, ticking(NOW + 1000))[0] == ("city=old",)


def test_a_write_to_an_expired_partition_keeps_it(tmp_path: Path, con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state = aged(tmp_path / "t")

    def written_before(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(ttl, "write", write)
        writing.upsert(state, ("d", "old", 5, 5), clock=ticking(NOW))
        return write(*given, **named)

    monkeypatch.setattr(ttl, "write", written_before)
    assert ttl.run(con, state.storage, BY_TIME, ticking(NOW + 1000)) == ((), None)
    assert len(writing.rows_of(state)) == 4
    monkeypatch.setattr(ttl, "write", written_before)
    with pytest.raises(CommitConflict):
        ttl.run(con, state.storage, BY_CREATION | {"lakesql.write.retries": "0"}, ticking(NOW + 2000))


def test_inline_ttl_runs_after_a_write(tmp_path: Path, con: Any) -> None:
    state = aged(tmp_path / "t")
    assert maintain(con, state.storage, BY_TIME, ticking(NOW)) == ()
    inline = BY_TIME | {"hoodie.partition.ttl.inline": "true"}
    assert maintain(con, state.storage, inline, ticking(NOW)) == ("Partition TTL dropped city=old.",)


def test_what_has_no_retention_or_no_partition_is_refused(tmp_path: Path, con: Any) -> None:
    state = aged(tmp_path / "t")
    with pytest.raises(TableError, match=r"Set hoodie.partition.ttl.strategy.days.retain to a number of days"):
        ttl.run(con, state.storage, {})
    with pytest.raises(TableError, match="must be one of KEEP_BY_TIME, KEEP_BY_CREATION_TIME"):
        ttl.run(con, state.storage, BY_TIME | {ttl.STRATEGY: "KEEP_BY_MOOD"})
    flat = writing.table(tmp_path / "f", partitioned_by=[])
    with pytest.raises(TableError, match="the table has no partitions"):
        ttl.run(con, flat.storage, BY_TIME)


def test_by_handle_and_by_call(tmp_path: Path) -> None:
    """Written long ago in truth: the clock of the machine decides here."""
    for name in ("t", "u"):
        writing.upsert(writing.table(tmp_path / name), ("a", "old", 1, 1), clock=ticking(1_700_000_000_000))
    assert lakesql.open_table(str(tmp_path / "t")).expire_partitions(**BY_TIME) == ("city=old",)
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        call = "CALL run_ttl(table => 'u', ttl_policy => 'KEEP_BY_CREATION_TIME', retain_days => {})"
        assert con.sql(call.format(100_000)).fetchall() == []
        assert con.sql(call.format(10)).fetchall() == [("city=old",)]
        assert con.sql("SELECT count(*) FROM u").fetchall() == [(0,)]
