"""What every engine is given: the rows of the table, those of the sources, the statement, and what must come of it.

The table comes in FILES files of equally many rows, its key is a random text. A source has a tenth of new keys, the
rest changes three columns of rows that are there, in random order:

    U1   1 % of the table's rows, the same share of every file
    U2  10 % of the table's rows, 80 % of the updates in every fifth file

Expected are the number of rows and a checksum, computed once by plain SQL on the same Parquet files. Needs nothing but
DuckDB, of any version: an engine may run in an environment of its own.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb

FILES = 20
HOT_FILES = range(0, FILES, 5)
ZSTD_LEVEL = 1  # lakesql's, given to every other writer too
FORMAT = "1"  # of the folder; a new number makes the data anew

COLUMNS = ("id", "event_time", "customer", "quantity", "amount", "status", "city", "remark")
CHANGED = ("event_time", "amount", "status")
_SELECT = """
    substr(md5(i::VARCHAR), 1, 16) AS id,
    make_timestamp(1700000000000000 + i * 1000 + {late}) AS event_time,
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


@dataclass(frozen=True, slots=True)
class Case:
    """A source: its share of the table's rows, and which part of the updates goes to the hot files."""

    name: str
    text: str
    share: float
    hot: float | None

    def rows(self, table_rows: int) -> int:
        return round(table_rows * self.share)

    def updates(self, table_rows: int) -> list[tuple[int, int]]:
        """(file, number of its rows that are updated)."""
        total = self.rows(table_rows) * 9 // 10
        if self.hot is None:
            return _spread(total, list(range(FILES)))
        hot = round(total * self.hot)
        return _spread(hot, list(HOT_FILES)) + _spread(total - hot, [f for f in range(FILES) if f not in HOT_FILES])


CASES = {
    "U1": Case("U1", "the same share of every file", 0.01, None),
    "U2": Case("U2", "80 % of the updates in 20 % of the files", 0.1, 0.8),
}


def merge_sql(target: str, source: str) -> str:
    sets = ", ".join(f"{c} = s.{c}" for c in CHANGED)
    values = ", ".join(f"s.{c}" for c in COLUMNS)
    return f"""
        MERGE INTO {target} t USING {source} s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET {sets}
        WHEN NOT MATCHED THEN INSERT ({", ".join(COLUMNS)}) VALUES ({values})"""


def prepare(root: Path, rows: int) -> None:
    """The table's rows in FILES files, the sources, and `expected.json`, below `root`; made when they are not there."""
    if rows % FILES or rows < 100 * FILES:
        raise SystemExit(f"--rows {rows}: give a multiple of {FILES}, at least {100 * FILES}.")
    root.mkdir(parents=True)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    per_file = rows // FILES
    for number in range(FILES):
        numbers = f"range({number * per_file}, {(number + 1) * per_file}) t(i)"
        con.execute(f"COPY (SELECT {_SELECT.format(late=0)} FROM {numbers}) TO '{rows_file(root, number)}'")
    expected = {}
    for case in CASES.values():
        updates = case.updates(rows)
        new = case.rows(rows) - sum(count for _, count in updates)
        old = f"SELECT file * {per_file} + n * {per_file} // count AS i FROM ({_values(updates)}), range(count) t(n)"
        con.execute(
            f"COPY (SELECT * FROM (SELECT {_SELECT.format(late=1)} FROM ({old} UNION ALL FROM range({rows}, {rows + new}))) "
            f"ORDER BY md5(id)) TO '{source_file(root, case.name)}'"
        )
        expected[case.name] = checksum(con, f"({_expected_sql(root, case.name)})")
    (root / "expected.json").write_text(json.dumps(expected) + "\n")


def rows_file(root: Path, number: int) -> Path:
    return root / f"rows-{number:02}.parquet"


def source_file(root: Path, case: str) -> Path:
    return root / f"source-{case}.parquet"


def load_source(con: duckdb.DuckDBPyConnection, root: Path, case: str) -> str:
    """The name of a table in memory with the rows of a source."""
    con.execute(f"CREATE TEMP TABLE merge_source AS FROM read_parquet('{source_file(root, case)}')")
    return "merge_source"


def checksum(con: duckdb.DuckDBPyConnection, rows: str) -> list[object]:
    """Number of rows, and a sum over all values that no order or DuckDB version changes."""
    return list(con.execute(_CHECKSUM.format(rows=rows)).fetchall()[0])


def expected(root: Path, case: str) -> list[object]:
    found: list[object] = json.loads((root / "expected.json").read_text())[case]
    return found


def _expected_sql(root: Path, case: str) -> str:
    """The merged rows without any MERGE: a left join for the stored ones, an anti join for the new ones."""
    source = f"read_parquet('{source_file(root, case)}')"
    table = f"read_parquet('{root}/rows-*.parquet')"
    values = ", ".join(f"CASE WHEN s.id IS NULL THEN t.{c} ELSE s.{c} END AS {c}" for c in CHANGED)
    return (
        f"SELECT t.* REPLACE ({values}) FROM {table} t LEFT JOIN {source} s ON t.id = s.id UNION ALL "
        f"SELECT s.* FROM {source} s ANTI JOIN {table} t ON t.id = s.id"
    )


def _spread(total: int, files: list[int]) -> list[tuple[int, int]]:
    """`total` cut into equal parts, one per file."""
    return [(f, total * (n + 1) // len(files) - total * n // len(files)) for n, f in enumerate(files)]


def _values(pairs: list[tuple[int, int]]) -> str:
    return f"FROM (VALUES {', '.join(f'({a}, {b})' for a, b in pairs)}) v(file, count)"
