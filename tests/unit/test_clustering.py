"""Clustering: the rows stay, the files change; and everybody who comes in between."""

import contextlib
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.errors import CommitConflict, LakeError, SQLError, TableError, Unsupported
from lakesql.format.files import BaseFile
from lakesql.format.metadata import encode_record
from lakesql.services import clustering
from lakesql.services.clustering_plan import SORT_COLUMNS
from lakesql.services.maintenance import maintain
from lakesql.storage import LocalStorage, Storage
from lakesql.table import read
from lakesql.table.known_settings import make_utc
from lakesql.table.state import TableState, load
from lakesql.write import new_file_id
from lakesql.write.pending import CLUSTERING
from lakesql.write.transaction import OWNER, heartbeat_path
from tests import writing
from tests.faulty import HOW, FaultError, FaultyStorage

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
KINDS = pytest.mark.parametrize(("type_", "version"), [(t, v) for t in ("cow", "mor") for v in (6, 8, 9)])
BY_V = {SORT_COLUMNS: "v"}
NO_PACKING = {"hoodie.parquet.small.file.limit": "0"}
YIELD = {"hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true"}


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        make_utc(con)
        yield con


def scattered(path: Path, type_: str = "cow", version: int = 9) -> TableState:
    """Three file groups in each of two partitions, some rows updated and deleted."""
    state = writing.table(path, type_, version)
    for number in range(3):
        new = [(f"k{number}{i}", "xy"[i % 2], (7 * i + number) % 10, 1) for i in range(6)]
        writing.upsert(state, *new, settings=NO_PACKING)
    writing.upsert(state, ("k00", "x", 99, 2), ("k11", "y", None, 2))
    writing.delete(state, ("k20", "x"))
    return load(state.storage)


def all_of(state: TableState) -> list[tuple[Any, ...]]:
    """The rows with their meta columns, but for the file name."""
    return writing.rows_of(state, "* EXCLUDE (_hoodie_file_name)")


def values_in_files(state: TableState) -> list[list[int | None]]:
    return [table["v"].to_pylist() for table in writing.base_tables(state)]


def orphans(state: TableState) -> list[str]:
    """Base files of instants that are not on the timeline."""
    now = load(state.storage)
    known = {i.requested for i in now.timeline.instants}
    return [f.path for f in now.files if isinstance(f, BaseFile) and f.instant not in known]


def pending(state: TableState) -> list[str]:
    return clustering.pending(load(state.storage))


@KINDS
def test_rows_and_their_meta_columns_stay(tmp_path: Path, type_: str, version: int, con: Any) -> None:
    state = scattered(tmp_path / "t", type_, version)
    want, files = all_of(state), len(state.slices())
    (result,) = clustering.cluster(con, state.storage, BY_V)
    assert all_of(state) == want
    assert writing.rust_rows(state) == writing.rows_of(state)
    assert (files, result.groups_replaced, result.files_written, result.rows) == (6, 6, 2, len(want))
    for values in values_in_files(state):
        assert values == sorted(values, key=lambda v: (v is not None, v or 0))
    assert not pending(state)
    newest = writing.load(state.storage).timeline.completed_writes()[-1]
    metadata = load(state.storage).commit(newest)
    assert (newest.completed_action, metadata.operation, metadata.compacted) == ("replacecommit", "CLUSTER", False)
    assert {p: len(ids) for p, ids in metadata.replaced.items()} == {"city=x": 3, "city=y": 3}


@KINDS
def test_history_before_a_clustering_stays_and_it_is_no_change(
    tmp_path: Path, type_: str, version: int, con: Any
) -> None:
    state = scattered(tmp_path / "t", type_, version)
    before = state.timeline.completed_writes()
    want = writing.rows_of(state)
    clustering.cluster(con, state.storage, BY_V)
    last = writing.upsert(state, ("k00", "x", 100, 3), ("k11", "y", 101, 3), ("new", "y", 102, 3))
    table = lakesql.open_table(state.path)

    def ids(reader: pa.RecordBatchReader) -> list[str]:
        return sorted(reader.read_all()["id"].to_pylist())

    assert len(table.read(as_of=before[-1].requested).read_all()) == len(want)
    assert len(table.read(as_of=before[0].requested).read_all()) == 6
    assert ids(table.changes(before[-1].requested)) == ["k00", "k11", "new"]
    assert ids(table.changes(before[-1].requested, clustering.listed(table.state)[0].instant)) == []
    assert ids(table.changes(before[2].requested, before[-1].requested)) == ["k00", "k11"]
    assert last.rows_updated == 2
    assert len(writing.rows_of(state)) == len(want) + 1
    assert writing.rust_rows(state) == writing.rows_of(state)


def test_without_columns_the_files_are_joined_as_they_come(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    want = all_of(state)
    clustering.cluster(con, state.storage, {})
    assert all_of(state) == want
    assert len(load(state.storage).slices()) == 2


def test_a_group_becomes_files_of_the_target_size(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    want = all_of(state)
    size = sum(s.base.size_bytes for s in state.slices() if s.base and s.partition == "city=x")
    settings = BY_V | {"hoodie.clustering.plan.strategy.target.file.max.bytes": str(size // 3 + 1)}
    clustering.cluster(con, state.storage, settings)
    assert {len(values) for values in values_in_files(state)} == {2, 3}
    assert all_of(state) == want


def test_a_partition_without_rows_loses_its_file_groups(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t", "mor")
    gone = [row for row in writing.rows_of(state) if row[1] == "x"]
    writing.delete(state, *[(row[0], row[1]) for row in gone])
    want = writing.rows_of(state)
    clustering.cluster(con, state.storage, BY_V)
    assert writing.rows_of(state) == want
    assert {s.partition for s in load(state.storage).slices()} == {"city=y"}
    writing.upsert(state, ("again", "x", 1, 1))
    assert writing.rows_of(state) == sorted([*want, ("again", "x", 1, 1)], key=repr)


def test_a_table_without_rows_is_left_alone(tmp_path: Path, con: Any) -> None:
    state = writing.table(tmp_path / "t")
    assert clustering.cluster(con, state.storage, BY_V) == []


@pytest.mark.parametrize(("type_", "version", "how"), [("cow", 9, HOW[0]), ("mor", 6, HOW[1]), ("mor", 8, HOW[2])])
def test_a_crash_at_any_call_changes_no_row(tmp_path: Path, type_: str, version: int, how: str, con: Any) -> None:
    origin = scattered(tmp_path / "origin", type_, version)
    want = all_of(origin)
    call, finished = 0, False
    while not finished:
        call += 1
        path = tmp_path / f"t{call}"
        shutil.copytree(tmp_path / "origin", path)
        storage = FaultyStorage(LocalStorage(str(path)), call, how, kinds=("put", "delete"))
        with contextlib.suppress(FaultError, LakeError):
            clustering.cluster(con, storage, BY_V)
        finished = not storage.failed
        state = load(LocalStorage(str(path)))
        assert all_of(state) == want, call
        assert writing.rust_rows(state) == writing.rows_of(state), call
        clustering.cluster(con, state.storage, BY_V)
        assert all_of(state) == want, call
        assert not pending(state), call
        assert not orphans(state), call
        writing.upsert(state, ("k00", "x", 1000, 9))
        assert ("k00", "x", 1000, 9) in writing.rows_of(state), call
    assert call > 10


def test_a_plan_keeps_writes_from_its_groups_and_lets_others_pass(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    instant = clustering.schedule(state.storage, BY_V)
    with pytest.raises(CommitConflict, match=f"is part of the pending clustering {instant}"):
        writing.upsert(state, ("k00", "x", 5, 5))
    writing.upsert(state, ("fresh", "x", 5, 5))
    want = writing.rows_of(state)
    assert instant is not None
    clustering.run(con, state.storage, BY_V, instant)
    assert writing.rows_of(state) == want
    writing.upsert(state, ("k00", "x", 5, 5))


@KINDS
@pytest.mark.parametrize(
    "settings", [YIELD, {"hoodie.clustering.updates.strategy": "org.apache.hudi.x.SparkAllowUpdateStrategy"}]
)
def test_a_pending_clustering_is_rolled_back_when_writes_go_first(
    tmp_path: Path, type_: str, version: int, settings: dict[str, str], con: Any
) -> None:
    state = scattered(tmp_path / "t", type_, version)
    instant = clustering.schedule(state.storage, BY_V)
    result = writing.upsert(state, ("k00", "x", 5, 5), ("k11", "y", 6, 6), settings=settings)
    assert (result.rows_updated, pending(state)) == (2, [])
    assert result.notes[0] == f"Rolled back the pending clustering {instant}, which covered file groups of this write."
    assert writing.rust_rows(state) == writing.rows_of(state)
    assert [r[2] for r in writing.rows_of(state) if r[0] in ("k00", "k11")] == [5, 6]
    clustering.cluster(con, state.storage, BY_V)
    assert [r[2] for r in writing.rows_of(state) if r[0] in ("k00", "k11")] == [5, 6]


def test_an_explicit_reject_strategy_wins(tmp_path: Path) -> None:
    state = scattered(tmp_path / "t")
    clustering.schedule(state.storage, BY_V)
    settings = YIELD | {"hoodie.clustering.updates.strategy": "SparkRejectUpdateStrategy"}
    with pytest.raises(CommitConflict, match="pending clustering"):
        writing.upsert(state, ("k00", "x", 5, 5), settings=settings)


def test_a_running_clustering_is_not_rolled_back(tmp_path: Path) -> None:
    state = scattered(tmp_path / "t")
    instant = clustering.schedule(state.storage, BY_V)
    with state.storage.lock(CLUSTERING, 0), pytest.raises(CommitConflict, match="lock"):
        writing.upsert(state, ("k00", "x", 5, 5), settings=YIELD)
    assert pending(state) == [instant]


def in_the_middle(action: Callable[[], object]) -> Callable[[], str]:
    """Ids for new file groups; with the first one something happens."""
    todo = [action]

    def ids() -> str:
        if todo:
            todo.pop()()
        return new_file_id()

    return ids


def test_writers_do_not_wait_for_a_running_clustering(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None

    def write() -> None:
        writing.upsert(state, ("fresh", "x", 5, 5), settings=NO_PACKING | {"hoodie.write.lock.wait_time_ms": "0"})

    clustering.run(con, state.storage, BY_V, instant, ids=in_the_middle(write))
    assert ("fresh", "x", 5, 5) in writing.rows_of(state)
    assert len(load(state.storage).slices()) == 3


def test_a_column_added_while_a_clustering_runs_stays(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None

    def write() -> None:
        now = load(state.storage).with_columns(pa.schema([("extra", pa.int64())]))
        row = "SELECT 'n' AS id, 'x' AS city, 1::BIGINT AS v, 1::BIGINT AS ts, 5::BIGINT AS extra"
        writing.write(writing.CON, now, row, operation="upsert", settings=NO_PACKING)

    clustering.run(con, state.storage, BY_V, instant, ids=in_the_middle(write))
    found = writing.rows_of(state, "id, extra")
    assert [row for row in found if row[1] is not None] == [("n", 5)]
    assert len(found) == 18


@KINDS
def test_a_clustering_gives_way_to_a_write_to_its_groups(
    tmp_path: Path, type_: str, version: int, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another engine may be allowed to update file groups under a plan."""
    state = scattered(tmp_path / "t", type_, version)
    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None

    def write() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("lakesql.write.refuse_pending", lambda *_: None)
            patch.setattr("lakesql.write.route.refuse_pending", lambda *_: None)
            writing.upsert(state, ("k00", "x", 5, 5))

    with pytest.raises(CommitConflict, match=f"clustering {instant} gives way: .* was changed by"):
        clustering.run(con, state.storage, BY_V, instant, ids=in_the_middle(write))
    assert ("k00", "x", 5, 5) in writing.rows_of(state)
    assert not pending(state)
    assert not [f for f in load(state.storage).files if f.instant == instant]
    assert not orphans(state)
    assert any(i.action == "rollback" and i.is_completed for i in load(state.storage).timeline.instants)

    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None
    write()
    with pytest.raises(CommitConflict, match=f"clustering {instant} gives way: file group .* has changed"):
        clustering.run(con, state.storage, BY_V, instant)
    assert not pending(state)
    assert ("k00", "x", 5, 5) in writing.rows_of(state)


def test_a_failed_run_leaves_the_plan_and_no_file(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    want, files = all_of(state), writing.listing(state.path)
    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None
    calls = iter(range(9))

    def ids() -> str:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return new_file_id()

    with pytest.raises(KeyboardInterrupt):
        clustering.run(con, state.storage, BY_V, instant, ids=ids)
    assert pending(state) == [instant]
    assert writing.listing(state.path) - files == {f".hoodie/timeline/{instant}.clustering.requested"}
    clustering.run(con, state.storage, BY_V, instant)
    assert all_of(state) == want


def test_rows_that_go_missing_stop_a_clustering(tmp_path: Path, con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state = scattered(tmp_path / "t")
    want = all_of(state)
    real = pa.Table.from_batches
    monkeypatch.setattr(
        "lakesql.services.clustering_write.conform",
        lambda table, schema, _: real(table.slice(0, max(0, len(table) - 1)).to_batches(), table.schema).select(
            schema.names
        ),
    )
    with pytest.raises(TableError, match=r"rows were read and \d written, or their keys differ"):
        clustering.cluster(con, state.storage, BY_V)
    assert all_of(state) == want
    assert not orphans(state)


def test_only_one_runs_at_a_time(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None
    with state.storage.lock(CLUSTERING, 0), pytest.raises(CommitConflict):
        clustering.run(con, state.storage, BY_V, instant)
    assert clustering.run(con, state.storage, BY_V, instant).files_written == 2
    with pytest.raises(TableError, match=f"there is no pending clustering {instant}"):
        clustering.run(con, state.storage, BY_V, instant)


def inflight(state: TableState, instant: str, owner: bytes | None) -> None:
    """Somebody began the plan and left a file."""
    storage: Storage = state.storage
    storage.put_if_absent(f".hoodie/timeline/{instant}.clustering.inflight", b"")
    storage.put(f".hoodie/.temp/{instant}/city=x/left-0_0-0-1_{instant}.parquet.marker.CREATE", b"")
    storage.put(f"city=x/left-0_0-0-1_{instant}.parquet", b"PAR1")
    if owner is not None:
        storage.put(heartbeat_path(instant), owner)


def test_a_run_of_a_dead_process_is_taken_up(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    want = all_of(state)
    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None
    inflight(state, instant, OWNER)
    clustering.run(con, state.storage, BY_V, instant)
    assert all_of(state) == want
    assert not orphans(state)
    assert not [p for p in writing.listing(state.path) if "left-0" in p]


def test_a_run_of_another_engine_is_left_alone_while_it_lives(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    want = all_of(state)
    instant = clustering.schedule(state.storage, BY_V)
    assert instant is not None
    inflight(state, instant, None)
    with pytest.raises(CommitConflict, match=f"another writer runs clustering {instant}"):
        clustering.run(con, state.storage, BY_V, instant)
    with pytest.raises(CommitConflict, match=f"another writer carries clustering {instant} out"):
        writing.upsert(state, ("k00", "x", 5, 5), settings=YIELD)
    later = lambda: __import__("time").time_ns() // 1_000_000 + 130_000  # noqa: E731
    clustering.run(con, state.storage, BY_V, instant, clock=later)
    assert all_of(state) == want


def test_what_cannot_be_clustered_is_refused_before_a_plan_is_made(tmp_path: Path) -> None:
    schema = pa.schema([*writing.SCHEMA, ("tags", pa.list_(pa.string()))])
    state = writing.table(tmp_path / "t", schema=schema)
    for settings, text in (
        ({SORT_COLUMNS: "nothing"}, "no column nothing to sort by; the table has id, city, v, ts, tags"),
        ({SORT_COLUMNS: "tags"}, "column tags is a list<.*>, whose values have no order"),
        ({"hoodie.layout.optimize.strategy": "hilbert"}, "hilbert needs columns to sort by"),
    ):
        with pytest.raises(TableError, match=text):
            clustering.schedule(state.storage, settings)
    bucketed = writing.table(
        tmp_path / "b", properties={"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    )
    writing.upsert(bucketed, ("a", "x", 1, 1))
    with pytest.raises(Unsupported, match="the table has a bucket index"):
        clustering.schedule(bucketed.storage, BY_V)
    assert not pending(state)
    assert not pending(bucketed)


def test_groups_under_a_plan_are_not_planned_again(tmp_path: Path) -> None:
    state = scattered(tmp_path / "t")
    first = clustering.schedule(state.storage, {"hoodie.clustering.plan.strategy.partition.selected": "city=x"})
    second = clustering.schedule(state.storage, {})
    assert clustering.schedule(state.storage, {}) is None
    shown = {one.instant: one.partitions for one in clustering.listed(load(state.storage))}
    assert shown == {first: ("city=x",), second: ("city=y",)}


def unzipped(name: str, folder: Path) -> TableState:
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(folder)
    (root,) = {p.parent for p in folder.rglob(".hoodie") if p.is_dir()}
    return load(LocalStorage(str(root)))


@pytest.mark.parametrize(("word", "version"), [("compaction", 9), ("compaction", 6), ("logcompaction", 8)])
def test_groups_under_a_compaction_are_not_planned(tmp_path: Path, word: str, version: int, con: Any) -> None:
    state = scattered(tmp_path / "t", "mor", version)
    taken = state.slices()[0]
    operation = {"baseInstantTime": taken.instant, "fileId": taken.file_id, "partitionPath": taken.partition}
    plan = encode_record("HoodieCompactionPlan", {"operations": [operation], "version": 2})
    later = str(int(state.timeline.newest_time) + 1)
    state.storage.put(f"{state.timeline_folder}/{later}.{word}.requested", plan)
    want = all_of(state)
    clustering.cluster(con, state.storage, {})
    assert all_of(state) == want
    assert [s.group for s in load(state.storage).slices()].count(taken.group) == 1


@pytest.mark.parametrize(
    "name",
    ["h015_clustered_cow", "h015_clustered_mor", "h102_clustered_cow", "h120_clustered_cow", "h120_clustered_mor"],
)
def test_we_run_the_plan_that_spark_left(tmp_path: Path, name: str, con: Any) -> None:
    state = unzipped(name, tmp_path)
    (instant,) = pending(state)
    want, groups = all_of(state), len(state.slices())
    zone = {"hoodie.table.timeline.timezone": "UTC"}
    result = clustering.run(con, state.storage, zone, instant)
    assert all_of(state) == want
    assert (groups, result.groups_replaced, len(load(state.storage).slices())) == (4, 4, 2)
    assert clustering.listed(load(state.storage))[0].state == "COMPLETED"


def test_inline_clustering_waits_for_so_many_commits(tmp_path: Path, con: Any) -> None:
    state = writing.table(tmp_path / "t")
    settings = BY_V | {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "3"}
    said = []
    for number in range(6):
        writing.upsert(state, (f"k{number}", "x", number, 1), settings=NO_PACKING)
        said.append(len(maintain(con, state.storage, settings)))
    assert said == [0, 0, 1, 0, 0, 1]
    assert len(writing.rows_of(state)) == 6
    assert len(load(state.storage).slices()) == 1


def test_inline_scheduling_only_plans(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t")
    notes = maintain(con, state.storage, BY_V | {"hoodie.clustering.schedule.inline": "true"})
    (instant,) = pending(state)
    assert notes == (f"Scheduled clustering {instant}.",)
    (note,) = maintain(con, state.storage, {"hoodie.clustering.inline": "true"})
    assert note == f"Clustering {instant} made 2 file groups of 6 (17 rows)."


def test_by_handle_and_by_call(tmp_path: Path) -> None:
    state = scattered(tmp_path / "t")
    want = writing.rows_of(state)
    table = lakesql.open_table(state.path)
    assert table.cluster(["v", "id"], "hilbert")[0].files_written == 2
    sorted_by_two = f"options => '{SORT_COLUMNS}=v,id', order_strategy => 'zorder'"
    with lakesql.connect(warehouse=str(tmp_path)) as con:

        def call(arguments: str, procedure: str = "run_clustering") -> list[tuple[Any, ...]]:
            return con.sql(f"CALL {procedure}({arguments})").fetchall()

        of_x = "predicate => \"city = 'x'\", show_involved_partition => true"
        ((instant, *shown),) = call(f"table => 't', op => 'schedule', order => 'v', {of_x}")
        assert shown == [1, "REQUESTED", "city=x"]
        assert call("table => 't', op => 'execute'") == [(instant, 1, "COMPLETED", "*")]
        assert call(f"table => 't', selected_partitions => 'city=y', {sorted_by_two}")[0][1:] == (1, "COMPLETED", "*")
        shown = [row[2:] for row in call("'t', 2, true", "show_clustering")]
        assert shown == [("COMPLETED", "city=y"), ("COMPLETED", "city=x")]
        assert call("table => 't', predicate => \"city = 'z'\"") == []
        for text, said in (
            ("predicate => 'v = 1'", "Give a condition on the partition columns"),
            ("op => 'later'", "use schedule, execute or scheduleAndExecute"),
            ("instants => '20200101000000000'", "no pending clustering 20200101000000000"),
            ("order_strategy => 'round'", "must be one of linear, z-order, hilbert"),
            ("options => 'nonsense'", "write key=value"),
        ):
            with pytest.raises(SQLError, match=said):
                call(f"table => 't', {text}")
    assert writing.rows_of(state) == want


def share_read(state: TableState, column: str) -> float:
    """How many of the row groups the statistics let a filter on a hundredth of the values read; mean of ten filters."""
    ranges = []
    for file in load(state.storage).base_files():
        metadata = pq.read_metadata(state.storage.data_path(file.path))
        index = metadata.schema.to_arrow_schema().get_field_index(column)
        statistics = [metadata.row_group(n).column(index).statistics for n in range(metadata.num_row_groups)]
        ranges += [(s.min, s.max) for s in statistics]
    assert len(ranges) > 30
    filters = [(low, low + 100) for low in range(250, 10_000, 1_000)]
    hits = sum(smallest <= high and largest >= low for smallest, largest in ranges for low, high in filters)
    return hits / len(ranges) / len(filters)


@pytest.mark.parametrize("strategy", ["z-order", "hilbert"])
def test_a_curve_lets_filters_on_either_column_skip_most_of_the_table(tmp_path: Path, strategy: str) -> None:
    schema = pa.schema([("id", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
    table = lakesql.create_table(tmp_path / "t", schema, primary_key=["id"])
    with duckdb.connect() as con:
        rows = con.sql(
            "SELECT i::VARCHAR AS id, (hash(i) % 10000)::BIGINT AS a, (hash(i + 0.5) % 10000)::BIGINT AS b FROM range(40000) t(i)"
        )
        table.bulk_insert(rows.to_arrow_table())
    state = table.state
    size = sum(s.base.size_bytes for s in state.slices() if s.base)
    target = {"hoodie.clustering.plan.strategy.target.file.max.bytes": str(size // 40)}
    table.cluster(["id"], **target)
    assert share_read(state, "a") == share_read(state, "b") == 1
    table.cluster(["a", "b"], strategy, **target)
    assert max(share_read(state, "a"), share_read(state, "b")) < 0.3
    table.cluster(["a", "b"], "linear", **target)
    assert share_read(state, "a") < 0.1
    assert share_read(state, "b") == 1


@pytest.mark.slow
def test_sorting_more_than_the_memory_limit_spills(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("a", pa.int64()), ("text", pa.string())])
    table = lakesql.create_table(tmp_path / "t", schema, primary_key=["id"])
    with duckdb.connect() as con:
        for part in range(2):
            text = f"repeat(hash(i * 3 + {part})::VARCHAR, 20)"
            rows = f"(i * 2 + {part})::VARCHAR AS id, (hash(i) % 1000)::BIGINT AS a, {text} AS text"
            table.bulk_insert(con.sql(f"SELECT {rows} FROM range(200000) t(i)").to_arrow_table())
    config = {"memory_limit": "250MB", "temp_directory": str(tmp_path / "spill"), "threads": "2"}
    (result,) = lakesql.open_table(table.path, config).cluster(["a", "id"], "z-order")
    assert result.rows == 400_000


def test_deltas_written_after_a_clustering_merge_into_its_groups(tmp_path: Path, con: Any) -> None:
    state = scattered(tmp_path / "t", "mor")
    clustering.cluster(con, state.storage, BY_V)
    writing.upsert(state, ("k00", "x", 7, 7))
    writing.delete(state, ("k12", "x"))
    want = all_of(state)
    assert len(read.plan(load(state.storage)).slices) == 2
    clustering.cluster(con, state.storage, BY_V)
    assert all_of(state) == want
