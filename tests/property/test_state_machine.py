"""A table under any sequence of writes, table services, crashes and reopenings equals a dict (Hypothesis state machine).

Model: (city, id) -> (v, ts). A copy of the rows is kept per completed instant and compared by time travel. Keys are few,
so collisions, ties, nulls and late data are the rule. A deleted key is free: a row of any ordering value may come.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakesql
from lakesql.errors import LakeError
from lakesql.format.files import BaseFile
from lakesql.format.timeline import SERVICE_ACTIONS
from lakesql.services import clustering, compaction
from lakesql.sql.connection import Connection, connect
from lakesql.storage import open_storage
from lakesql.table.known_settings import make_utc
from lakesql.table.retained import retained_from, savepoints
from lakesql.table.state import load
from lakesql.write import write
from tests.faulty import FaultError, FaultyStorage
from tests.lakes import LOCAL, STORE, Lake

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
Key = tuple[str, str]
KEYS = st.tuples(st.sampled_from("pq"), st.sampled_from("abcdef"))
ROWS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 9)), st.one_of(st.none(), st.integers(0, 5))),
    min_size=1,
    max_size=5,
)
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def order(ts: int | None) -> tuple[bool, int]:
    """A null ordering value is the smallest."""
    return ts is not None, ts or 0


class TableMachine(RuleBasedStateMachine):
    where = STORE

    @initialize(
        kind=st.sampled_from(["cow", "mor"]),
        version=st.sampled_from([6, 8, 9]),
        event=st.booleans(),
        partitioned=st.booleans(),
        index=st.sampled_from(["SIMPLE", "BLOOM", "BUCKET"]),
    )
    def start(self, kind: str, version: int, event: bool, partitioned: bool, index: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lakesql-machine-"))
        self.lake = Lake(self.where, self.folder)
        self.path = self.lake.path()
        self.index = index
        self.event = event
        self.partitioned = partitioned
        self.fresh = 0
        self.rows: dict[Key, tuple[int | None, int | None]] = {}
        self.copies: dict[str, dict[Key, tuple[int | None, int | None]]] = {}
        self.version = version
        self.is_mor = kind == "mor"
        self.saved: list[str] = []
        ordering = ["ts"] if event else []
        self.table = lakesql.create_table(
            self.path,
            SCHEMA,
            type=kind,
            version=version,
            primary_key=["id"],
            ordering_fields=ordering,
            partitioned_by=["city"] if partitioned else [],
            properties={
                "hoodie.index.type": index,
                "hoodie.bucket.index.num.buckets": "2",
                "hoodie.clean.automatic": "false",  # `clean` decides when, and what is forgotten here
            },
        )
        self.con: Connection = connect(warehouse=self.lake.address)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.con.close()
            self.lake.remove(self.lake.address)
            shutil.rmtree(self.folder, ignore_errors=True)

    def at_home(self, key: Key) -> Key:
        """Without partitions all keys live in one place."""
        return key if self.partitioned else ("p", key[1])

    def batch(self, rows: list[tuple[Key, int | None, int | None]]) -> pa.Table:
        return pa.Table.from_pylist([{"id": k[1], "city": k[0], "v": v, "ts": ts} for k, v, ts in rows], schema=SCHEMA)

    def combined(self, rows: list[tuple[Key, int | None, int | None]]) -> dict[Key, tuple[int | None, int | None]]:
        """The survivor per key inside a batch: the largest ordering value, of equal ones the last."""
        best: dict[Key, tuple[int | None, int | None]] = {}
        for key, v, ts in rows:
            if key not in best or not self.event or order(ts) >= order(best[key][1]):
                best[key] = v, ts
        return best

    def after_upsert(self, rows: list[tuple[Key, int | None, int | None]]) -> dict[Key, tuple[int | None, int | None]]:
        def late(key: Key, ts: int | None) -> bool:
            return self.event and key in self.rows and order(ts) < order(self.rows[key][1])

        return self.rows | {key: (v, ts) for key, (v, ts) in self.combined(rows).items() if not late(key, ts)}

    def keep(self, instant: str | None, rows: dict[Key, tuple[int | None, int | None]]) -> None:
        self.rows = rows
        if instant is not None:
            self.copies[instant] = dict(rows)

    def back_to(self, instant: str | None) -> None:
        """The model as it was after a write; None: before the first one."""
        self.rows = dict(self.copies[instant]) if instant else {}
        for later in [i for i in self.copies if instant is None or i > instant]:
            del self.copies[later]

    @rule(rows=ROWS)
    def upsert(self, rows: list[tuple[Key, int | None, int | None]]) -> None:
        rows = [(self.at_home(key), v, ts) for key, v, ts in rows]
        want = self.after_upsert(rows)
        new = sum(key not in self.rows for key in want)
        result = self.table.upsert(self.batch(rows))
        assert result.rows_inserted == new
        counted = result.rows_inserted + result.rows_updated + result.rows_ignored
        assert counted == len(rows)
        self.keep(result.instant, want)

    @rule(count=st.integers(1, 3), city=st.sampled_from("pq"))
    def insert_fresh_keys(self, count: int, city: str) -> None:
        """Plain insert does not look keys up, so it draws new ones."""
        rows = [(self.at_home((city, f"n{self.fresh + i}")), i, 1) for i in range(count)]
        self.fresh += count
        result = self.table.insert(self.batch(rows))
        assert result.rows_inserted == count
        self.keep(result.instant, self.rows | {key: (v, ts) for key, v, ts in rows})

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3, unique=True))
    def delete(self, keys: list[Key]) -> None:
        keys = list(dict.fromkeys(map(self.at_home, keys)))
        result = self.table.delete(self.batch([(key, None, None) for key in keys]).select(["id", "city"]))
        assert result.rows_deleted == sum(key in self.rows for key in keys)
        self.keep(result.instant, {key: row for key, row in self.rows.items() if key not in keys})

    @rule(key=KEYS, v=st.integers(10, 19))
    def merge_in_sql(self, key: Key, v: int) -> None:
        key = self.at_home(key)
        source = f"(SELECT '{key[1]}' AS id, '{key[0]}' AS city, {v} AS v, 9 AS ts)"
        self.con.execute(
            f"MERGE INTO t USING {source} s ON t.id = s.id AND t.city = s.city "
            f"WHEN MATCHED AND t.v = 5 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        result = self.con.last_result
        assert result is not None
        rows = dict(self.rows)
        if key in rows and rows[key][0] == 5:
            del rows[key]
        else:
            rows[key] = v, 9
        self.keep(result.instant, rows)

    @rule(rows=ROWS)
    def insert_overwrite(self, rows: list[tuple[Key, int | None, int | None]]) -> None:
        unique = list({self.at_home(key): (self.at_home(key), v, ts) for key, v, ts in rows}.values())
        result = self.table.insert_overwrite(self.batch(unique))
        touched = {key[0] for key, _, _ in unique}
        kept = {key: row for key, row in self.rows.items() if key[0] not in touched}
        self.rows = kept
        self.keep(result.instant, kept | {key: (v, ts) for key, v, ts in unique})

    @precondition(lambda self: self.index != "BUCKET")
    @rule(
        order=st.sampled_from([[], ["v"], ["id", "v"]]),
        strategy=st.sampled_from(["linear", "z-order", "hilbert"]),
        call=st.integers(1, 40),
    )
    def cluster(self, order: list[str], strategy: str, call: int) -> None:
        """No row changes, whether the first attempt dies on the way or not."""
        settings = {clustering.SORT_COLUMNS: ",".join(order)} if order else {}
        settings |= {clustering.LAYOUT: strategy} if order else {}
        con = duckdb.connect()
        make_utc(con)
        storage = FaultyStorage(open_storage(self.path), call, "after")
        with contextlib.suppress(FaultError, LakeError, OSError, duckdb.Error):
            clustering.cluster(con, storage, settings)
        self.table.cluster(order, strategy if order else None)
        assert not clustering.pending(self.table.state)

    @rule(rows=ROWS, call=st.integers(1, 60), how=st.sampled_from(["before", "after", "torn"]))
    def crash_while_upserting(self, rows: list[tuple[Key, int | None, int | None]], call: int, how: str) -> None:
        """The state is the one before or the one after, and the next write goes on from it."""
        rows = [(self.at_home(key), v, ts) for key, v, ts in rows]
        con = duckdb.connect()
        con.register("rows", self.batch(rows))
        storage = FaultyStorage(open_storage(self.path), call, how)
        with contextlib.suppress(FaultError, LakeError, OSError, duckdb.Error):
            write(con, load(storage), "SELECT * FROM rows", operation="upsert")
        writes = [i for i in self.table.state.timeline.completed_writes() if i.action not in SERVICE_ACTIONS]
        newest = max((i.requested for i in writes), default="")
        if newest > max(self.copies, default=""):
            self.keep(newest, self.after_upsert(rows))

    @rule(commits=st.integers(1, 3), versions=st.booleans())
    def clean(self, commits: int, versions: bool) -> None:
        """What is no longer readable is said so, and is forgotten here as well."""
        policy = "KEEP_LATEST_FILE_VERSIONS" if versions else "KEEP_LATEST_COMMITS"
        retained = {"hoodie.clean.commits.retained": str(commits), "hoodie.clean.fileversions.retained": str(commits)}
        self.table.clean(**{"hoodie.clean.policy": policy, **retained})
        state = self.table.state
        earliest = retained_from(state) or ""
        self.copies = {t: rows for t, rows in self.copies.items() if t >= earliest or t in savepoints(state)}
        for t, rows in self.copies.items():
            assert self.read(as_of=t) == rows
        known = {i.requested for i in (*state.timeline.instants, *state.history.archived)}
        assert {f.instant for f in state.files if isinstance(f, BaseFile)} <= known, "a file of no instant"

    @rule(low=st.integers(1, 3))
    def archive(self, low: int) -> None:
        before = {row["instant"] for row in self.table.history().to_pylist()}
        limits = {"hoodie.keep.min.commits": str(low), "hoodie.keep.max.commits": str(low + 1)}
        self.table.archive(**limits, **{"hoodie.clean.commits.retained": "1"})
        assert {row["instant"] for row in self.table.history().to_pylist()} == before
        for t, rows in self.copies.items():
            assert self.read(as_of=t) == rows

    @precondition(lambda self: self.is_mor)
    @rule()
    def compact(self) -> None:
        """Rows stay."""
        self.table.compact()
        assert not any(one.logs for one in self.table.state.slices())

    @precondition(lambda self: self.is_mor and self.version >= 8 and not self.table.state.pending_compactions)
    @rule()
    def schedule_compaction(self) -> None:
        """In version 6 a planned group takes no writes, which the other rules would have to know."""
        self.table.compact(run=False)

    @precondition(lambda self: self.is_mor)
    @rule()
    def run_the_scheduled_compaction(self) -> None:
        self.table.compact(schedule=False)

    @precondition(lambda self: self.is_mor and self.version >= 8)
    @rule()
    def compact_logs(self) -> None:
        self.table.compact(logs=True, **{"hoodie.log.compaction.blocks.threshold": "2"})

    @precondition(lambda self: self.is_mor)
    @rule(call=st.integers(1, 60), how=st.sampled_from(["before", "after", "torn"]))
    def crash_while_compacting(self, call: int, how: str) -> None:
        """Whatever is left, the rows are the same and the next run finishes it."""
        storage = FaultyStorage(open_storage(self.path), call, how)
        with contextlib.suppress(FaultError, LakeError, OSError, duckdb.Error):
            compaction.compact(duckdb.connect(), storage, {})
        assert self.read() == self.rows
        self.compact()

    @precondition(lambda self: bool(self.copies) and self.newest_write() == max(self.copies))
    @rule()
    def roll_the_newest_write_back(self) -> None:
        newest = max(self.copies)
        if newest in self.saved:
            with pytest.raises(lakesql.TableError, match="has a savepoint"):
                self.table.rollback()
            return
        earliest = retained_from(self.table.state)
        if earliest and newest <= earliest:
            with pytest.raises(lakesql.TableError, match="cleaned"):
                self.table.rollback()
            return
        assert self.table.rollback(newest).instant == newest
        self.back_to(max((i for i in self.copies if i != newest), default=None))

    def newest_write(self) -> str:
        return max(i.requested for i in self.table.state.timeline.completed_writes())

    @precondition(
        lambda self: (
            bool(self.copies) and self.newest_write() == max(self.copies) and self.newest_write() not in self.saved
        )
    )
    @rule()
    def make_a_savepoint(self) -> None:
        self.saved.append(self.table.savepoint())
        assert self.saved[-1] == max(self.copies)

    @precondition(lambda self: bool(self.saved))
    @rule()
    def restore_to_the_newest_savepoint(self) -> None:
        done = self.table.restore()
        assert done.savepoint == self.saved[-1]
        assert {i for i in self.copies if i > self.saved[-1]} <= set(done.instants)
        self.back_to(self.saved[-1])

    @precondition(lambda self: bool(self.saved))
    @rule()
    def delete_the_newest_savepoint(self) -> None:
        assert self.table.delete_savepoint() == self.saved.pop()

    @rule()
    def reopen(self) -> None:
        self.table = lakesql.open_table(self.path)

    def read(self, **options: str) -> dict[Key, tuple[int | None, int | None]]:
        found = self.table.read(columns=["city", "id", "v", "ts"], **options).read_all().to_pylist()
        rows = {(r["city"], r["id"]): (r["v"], r["ts"]) for r in found}
        assert len(rows) == len(found), "a key is there twice"
        return rows

    @invariant()
    def snapshot_equals_the_dict(self) -> None:
        if hasattr(self, "table"):
            assert self.read() == self.rows

    @precondition(lambda self: bool(getattr(self, "copies", None)))
    @invariant()
    def time_travel_gives_the_rows_of_an_earlier_instant(self) -> None:
        instant = sorted(self.copies)[len(self.copies) // 2]
        assert self.read(as_of=instant) == self.copies[instant]

    @precondition(lambda self: len(getattr(self, "copies", ())) > 1)
    @invariant()
    def an_incremental_read_gives_the_rows_of_later_commits(self) -> None:
        timeline = self.table.state.timeline
        writes = timeline.completed_writes()
        if len(writes) < 2:
            return
        begin = timeline.time_of(writes[-2])
        changed = self.table.changes(begin).read_all()
        assert set(changed["_hoodie_commit_time"].to_pylist()) <= {writes[-1].requested}


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    max_examples=400 if LONG else 16,
    stateful_step_count=30 if LONG else 12,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=list(HealthCheck),
)


class OnStore(TableMachine):
    """A few of the same runs, on an S3 server."""

    where = "moto" if STORE == LOCAL else STORE


TestTableOnStore = OnStore.TestCase
TestTableOnStore.settings = settings(TestTable.settings, max_examples=2, stateful_step_count=8)
