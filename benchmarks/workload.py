"""What every engine is given: the rows of the table, the changes, and what must come of them.

The table comes in FILES files of equally many rows, its key is a random text, so that no reader prunes files by key. A
change is a file of whole rows in random order, or of keys:

    U1   1 % of the table's rows, the same share of every file; no key is new
    U2  10 % of the table's rows, 80 % of them in every fifth file; no key is new
    M1, M2   as U1 and U2, but a tenth of the rows have new keys
    D20  1 % of the table's rows, all in every fifth file: 20 % of the files are dirty afterwards
    DEL  the keys of 1 % of the rows, the same share of every file

Updated rows differ in three columns. Times are in UTC, which every engine knows. Expected results are the number of rows and
a checksum, computed once by plain SQL on the same Parquet files. Needs nothing but DuckDB, of any version: an engine may run in an environment of its own.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

FILES = 20
HOT_FILES = range(0, FILES, 5)
ZSTD_LEVEL = 1  # lakesql's, given to every other writer too
FORMAT = "4"  # of the folder; a new number makes the data anew

COLUMNS = ("id", "event_time", "customer", "quantity", "amount", "status", "city", "remark")
CHANGED = ("event_time", "amount", "status")
SELECT = """
    substr(md5(i::VARCHAR), 1, 16) AS id,
    make_timestamp(1700000000000000 + i * 1000 + {late})::TIMESTAMPTZ AS event_time,
    (hash(i) % 200000)::BIGINT AS customer,
    (hash(i + 1) % 50)::INTEGER AS quantity,
    round((hash(i + 2) % 1000000) / 100.0 + {late}, 2)::DOUBLE AS amount,
    ['new', 'paid', 'sent', 'done', 'back'][((hash(i + 3) % 5 + {late}) % 5 + 1)::BIGINT] AS status,
    'city ' || (hash(i + 4) % 200) AS city,
    'remark ' || (hash(i + 5) % 3000000) AS remark
"""
_CHECKSUM = """
    SELECT count(*), sum(md5_number_lower(concat_ws('|', id, epoch_us(event_time), customer, quantity,
        round(amount * 100)::BIGINT, status, city, remark))::HUGEINT)::VARCHAR
    FROM {rows}"""

QUERIES = {
    "full": "SELECT * FROM {source}",
    "sum": "SELECT sum(amount) FROM {source}",
    "filter": "SELECT id, amount FROM {source} WHERE customer < 2000 AND status = 'paid'",
    "group": "SELECT city, status, count(*), sum(amount), max(event_time) FROM {source} GROUP BY ALL",
    "pruned": "SELECT id, amount FROM {source} WHERE event_time < '{early}'::TIMESTAMPTZ",
}
_RESULTS = {
    "full": "count(*)",
    "sum": "round(sum(amount))::BIGINT",
    "filter": "count(*), round(sum(amount))::BIGINT",
    "group": 'count(*), round(sum("sum(amount)"))::BIGINT',
    "pruned": "count(*), round(sum(amount))::BIGINT",
}


@dataclass(frozen=True, slots=True)
class Change:
    """Its share of the table's rows, which part of the updates goes to the hot files, and the share of new keys."""

    name: str
    text: str
    share: float
    hot: float | None = None
    new: float = 0.0
    keys_only: bool = False

    def rows(self, table_rows: int) -> int:
        return round(table_rows * self.share)

    def updates(self, table_rows: int) -> list[tuple[int, int]]:
        """(file, number of its rows that are changed)."""
        total = round(self.rows(table_rows) * (1 - self.new))
        if self.hot is None:
            return _spread(total, list(range(FILES)))
        hot = round(total * self.hot)
        rest = [f for f in range(FILES) if f not in HOT_FILES]
        return _spread(hot, list(HOT_FILES)) + (_spread(total - hot, rest) if total > hot else [])


CHANGES = {
    c.name: c
    for c in (
        Change("U1", "1 % updated, the same share of every file", 0.01),
        Change("U2", "10 % updated, 80 % of them in 20 % of the files", 0.1, hot=0.8),
        Change("M1", "1 %, a tenth of it new keys, the same share of every file", 0.01, new=0.1),
        Change("M2", "10 %, a tenth of it new keys, 80 % of the updates in 20 % of the files", 0.1, hot=0.8, new=0.1),
        Change("D20", "1 % updated, all in 20 % of the files", 0.01, hot=1.0),
        Change("DEL", "1 % deleted, the same share of every file", 0.01, keys_only=True),
    )
}


def merge_sql(target: str, source: str) -> str:
    sets = ", ".join(f"{c} = s.{c}" for c in CHANGED)
    values = ", ".join(f"s.{c}" for c in COLUMNS)
    return f"""
        MERGE INTO {target} t USING {source} s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET {sets}
        WHEN NOT MATCHED THEN INSERT ({", ".join(COLUMNS)}) VALUES ({values})"""


def query(name: str, source: str, root: Path) -> str:
    return QUERIES[name].format(source=source, early=_early(root))


def prepare(folder: Path, rows: int) -> Path:
    """The files and the changes of a table of that many rows below `folder`; made when they are not there."""
    if rows % FILES or rows < 100 * FILES:
        raise SystemExit(f"--rows {rows}: give a multiple of {FILES}, at least {100 * FILES}.")
    root = folder / f"rows-{rows}"
    done = root / "complete"
    if done.exists() and done.read_text() == FORMAT:
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    per_file = rows // FILES
    for number in range(FILES):
        numbers = f"range({number * per_file}, {(number + 1) * per_file}) t(i)"
        con.execute(f"COPY (SELECT {SELECT.format(late=0)} FROM {numbers}) TO '{rows_file(root, number)}'")
    for change in CHANGES.values():
        _write_change(con, root, change, rows)
    done.write_text(FORMAT)
    return root


def _write_change(con: duckdb.DuckDBPyConnection, root: Path, change: Change, rows: int) -> None:
    per_file, updates = rows // FILES, change.updates(rows)
    new = change.rows(rows) - sum(count for _, count in updates)
    old = f"SELECT file * {per_file} + n * {per_file} // count AS i FROM ({_values(updates)}), range(count) t(n)"
    made = f"SELECT {SELECT.format(late=1)} FROM ({old} UNION ALL FROM range({rows}, {rows + new}))"
    columns = "id" if change.keys_only else "*"
    con.execute(f"COPY (SELECT {columns} FROM ({made}) ORDER BY md5(id)) TO '{source_file(root, change.name)}'")


def rows_of(root: Path) -> int:
    return int(root.name.removeprefix("rows-"))


def home(root: Path, engine: str, table: str) -> Path:
    """The folder of an engine's table. Those named `wide-...` have rows of their own, whatever the workload's size."""
    return (root.parent if table.startswith("wide-") else root) / f"{engine}-{table}"


def rows_file(root: Path, number: int) -> Path:
    return root / f"rows-{number:02}.parquet"


def rows_files(root: Path) -> list[str]:
    return [str(rows_file(root, number)) for number in range(FILES)]


def source_file(root: Path, change: str) -> Path:
    return root / f"source-{change}.parquet"


def load_source(con: duckdb.DuckDBPyConnection, root: Path, change: str) -> str:
    """The name of a table in memory with the rows of a change."""
    con.execute(f"CREATE TEMP TABLE merge_source AS FROM read_parquet('{source_file(root, change)}')")
    return "merge_source"


def checksum(con: duckdb.DuckDBPyConnection, rows: str) -> list[object]:
    """Number of rows, and a sum over all values that no order or DuckDB version changes."""
    return list(con.execute(_CHECKSUM.format(rows=rows)).fetchall()[0])


def result(con: duckdb.DuckDBPyConnection, query_name: str, rows: str) -> tuple[Any, ...]:
    """What a query gave, in a few numbers."""
    renamed = rows if query_name != "sum" else f'(SELECT "sum(amount)" AS amount FROM {rows})'
    found: tuple[Any, ...] = con.execute(f"SELECT {_RESULTS[query_name]} FROM {renamed}").fetchall()[0]
    return found


def expected(root: Path, change: str) -> list[object]:
    """Rows and checksum of the table after a change, or of `base`."""
    return _kept(root, f"checksum-{change}", lambda con: checksum(con, _after(root, change)))


def expected_result(root: Path, change: str, query_name: str) -> list[object]:
    """What a query of the table after a change, or of `base`, gives, in a few numbers."""
    rows = f"({query(query_name, _after(root, change), root)})"
    return _kept(root, f"{query_name}-{change}", lambda con: list(result(con, query_name, rows)))


def require(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise SystemExit(f"wrong result of {what}: {found}, expected {wanted}")


def one_key(root: Path) -> str:
    """The key that is looked up: one from the middle of the table."""
    number = rows_of(root) // 2 + 17
    found: str = duckdb.execute(f"SELECT substr(md5('{number}'), 1, 16)").fetchall()[0][0]
    return found


def _kept(root: Path, name: str, compute: Callable[[duckdb.DuckDBPyConnection], list[object]]) -> list[object]:
    """An expectation, computed when it is first asked for."""
    file = root / f"expected-{name}.json"
    if not file.exists():
        file.write_text(json.dumps(compute(duckdb.connect())) + "\n")
    found: list[object] = json.loads(file.read_text())
    return found


def _early(root: Path) -> str:
    """A time that one row in forty is older than: half of the first file."""
    micros = 1_700_000_000_000_000 + rows_of(root) // (2 * FILES) * 1000
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="microseconds")


def _after(root: Path, change: str) -> str:
    """The changed rows without any MERGE: a left join for the stored ones, an anti join for the new ones."""
    table = f"read_parquet('{root}/rows-*.parquet')"
    if change == "base":
        return table
    source = f"read_parquet('{source_file(root, change)}')"
    if CHANGES[change].keys_only:
        return f"(SELECT t.* FROM {table} t ANTI JOIN {source} s ON t.id = s.id)"
    values = ", ".join(f"CASE WHEN s.id IS NULL THEN t.{c} ELSE s.{c} END AS {c}" for c in CHANGED)
    return (
        f"(SELECT t.* REPLACE ({values}) FROM {table} t LEFT JOIN {source} s ON t.id = s.id UNION ALL "
        f"SELECT s.* FROM {source} s ANTI JOIN {table} t ON t.id = s.id)"
    )


def _spread(total: int, files: list[int]) -> list[tuple[int, int]]:
    """`total` cut into equal parts, one per file."""
    return [(f, total * (n + 1) // len(files) - total * n // len(files)) for n, f in enumerate(files)]


def _values(pairs: list[tuple[int, int]]) -> str:
    return f"FROM (VALUES {', '.join(f'({a}, {b})' for a, b in pairs)}) v(file, count)"
