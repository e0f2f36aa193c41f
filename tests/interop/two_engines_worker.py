"""Runs `two_engines.sql` on both engines and writes what each statement gave, as JSON: in the environment with pyspark.

Usage: two_engines_worker.py JAR FOLDER SCRIPT VERSION...
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import lakesql
from lakesql.sql.lexer import split

ONCE = "/* once */ "  # marks queries for the last of the versions
COUNTS = ("rows_inserted", "rows_updated", "rows_deleted", "rows_ignored")
CONFIG = {
    "lakesql.spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def outcome(con: Any, statement: str, folder: Path) -> list[Any]:
    """What a statement gives: the class of its error, or its counts and rows."""
    before = con.last_result
    try:
        relation = con.sql(statement)
    except Exception as error:
        return ["error", type(error).__name__]
    try:
        rows = None if relation is None else relation.to_arrow_table()
    except Exception as error:
        return ["error", type(error).__name__]
    if con.last_result is not None and con.last_result is not before:
        counts = [getattr(con.last_result, name) for name in COUNTS]
        returned = [] if rows is None or "instant" in rows.column_names else sorted(map(str, rows.to_pylist()))
        return ["written", counts, returned]
    if rows is None:
        return ["nothing"]
    rows = rows.drop_columns([c for c in rows.column_names if c in ("timestamp",)])
    types = [f"{f.name} {f.type}" for f in rows.schema]
    return ["rows", types, str(rows.to_pylist()).replace(str(folder), "")]


def both(jar: str, folder: Path, statements: list[str], version: int) -> list[dict[str, Any]]:
    """The outcomes of every statement on both engines."""
    found = []
    homes = {"duckdb": folder / f"duckdb{version}", "spark": folder / f"spark{version}"}
    config = {**CONFIG, "lakesql.spark.bundle": jar}
    with (
        lakesql.connect(warehouse=homes["duckdb"]) as here,
        lakesql.connect(warehouse=homes["spark"], engine="spark", config=config) as there,
    ):
        here.sql("SET TimeZone = 'UTC'")
        for con in (here, there):
            con.sql(f"SET hoodie.write.table.version = {version}")
        for statement in statements:
            given = outcome(here, statement, homes["duckdb"]), outcome(there, statement, homes["spark"])
            found.append({"statement": statement.strip(), "duckdb": given[0], "spark": given[1]})
    return found


def handed_over(jar: str, folder: Path, version: int) -> list[Any]:
    """A table written here, continued on Spark, and here again: its rows at the end, as both read them."""
    home = folder / f"shared{version}"
    with (
        lakesql.connect(warehouse=home) as here,
        lakesql.connect(warehouse=home, engine="spark", config={**CONFIG, "lakesql.spark.bundle": jar}) as there,
    ):
        here.sql(f"SET hoodie.write.table.version = {version}")
        here.sql(
            "CREATE TABLE t (id INT, v INT, ts INT) USING hudi TBLPROPERTIES (type='mor', primaryKey='id', orderingFields='ts')"
        )
        here.sql("INSERT INTO t VALUES (1, 10, 1), (2, 20, 1), (3, 30, 1)")
        there.sql("UPDATE t SET v = v + 1, ts = 2 WHERE id < 3")
        here.sql("MERGE INTO t USING (SELECT 2 AS id UNION ALL SELECT 4) s ON t.id = s.id WHEN MATCHED THEN DELETE "
                 "WHEN NOT MATCHED THEN INSERT (id, v, ts) VALUES (s.id, 40, 1)")  # fmt: skip
        there.sql("DELETE FROM t WHERE id = 3")
        here.sql("CALL run_compaction(op => 'scheduleAndExecute', table => 't')")
        there.sql("INSERT INTO t VALUES (5, 50, 1)")
        query = "SELECT id, v, ts FROM t ORDER BY id"
        told = "SELECT value FROM hudi_properties('t') WHERE key = 'hoodie.table.version'"
        return [here.sql(query).fetchall(), there.sql(query).fetchall(), here.sql(told).fetchall()[0][0]]


def main(jar: str, folder: str, script: str, *versions: str) -> None:
    warnings.simplefilter("ignore")
    statements = [piece.text for piece in split(Path(script).read_text())]
    shorter = [s for s in statements if ONCE not in s]
    answer = {
        version: {
            "statements": both(jar, Path(folder), statements if version == versions[-1] else shorter, int(version)),
            "handed_over": handed_over(jar, Path(folder), int(version)),
        }
        for version in versions
    }
    (Path(folder) / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
