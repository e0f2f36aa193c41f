"""EXPLAIN of a MERGE, UPDATE, DELETE or INSERT on a Hudi table. Nothing is written.

    EXPLAIN           one row per file group of the plan: what is read and written there, estimated in bytes
    EXPLAIN (FATES)   one row per source row, and row of the table that it meets: what becomes of it, by which clause

Both walk the road of the statement itself up to the first byte to write, so they cannot disagree with it. FATES shows
rows that make a MERGE fail, duplicates and those of a THEN ERROR, where the statement raises an error; what else the
statement refuses, it refuses too.
"""

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from lakesql.sql.merge_names import Target
from lakesql.sql.stage import CLAUSE, KEY, OP, PATH, ROW, STAGE, same_key
from lakesql.sql.versions import LATE_FATE, UNCHANGED_FATE, versions_sql
from lakesql.table.names import literal, quote
from lakesql.write import Outcome, PlannedFile

PLAN_SCHEMA = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("kind", pa.string()),
        ("rows_inserted", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("bytes_read", pa.int64()),
        ("bytes_written", pa.int64()),
    ]
)


def plan_table(files: Sequence[PlannedFile]) -> pa.Table:
    """The plan as rows; none when the statement would change nothing."""
    return pa.Table.from_pylist([{n: getattr(f, n) for n in PLAN_SCHEMA.names} for f in files], PLAN_SCHEMA)


def merge_fates_sql(con: duckdb.DuckDBPyConnection, told: Outcome, target: Target, duplicates: str) -> str:
    """The fates of a MERGE compiled with `fates`: source_row, record_key, partition_path, fate, clause."""
    acts = f"s.{OP} IN ('upsert', 'insert', 'delete')"
    twins = f"count(CASE WHEN {OP} IN ('upsert', 'insert', 'delete') THEN 1 END) OVER (PARTITION BY "
    several = "s.twins > 1" if duplicates == "error" else "false"
    fate = (
        f"CASE WHEN s.{OP} = 'error' THEN 'error' WHEN {acts} THEN CASE WHEN {several} OR v.number IS NULL "
        f"THEN 'duplicate' ELSE v.fate END WHEN s.{CLAUSE} IS NULL THEN 'no clause' ELSE {literal(UNCHANGED_FATE)} END"
    )
    known = " AND ".join(f"s.{quote(f)} IS NOT NULL" for f in target.partition_fields) or "true"
    return f"""
        SELECT s.{ROW} AS source_row, coalesce(v.key, s.{KEY}, s.own_key) AS record_key,
               coalesce(v.part, s.{PATH}, CASE WHEN {known} THEN s.own_path END) AS partition_path,
               {fate} AS fate, CAST(s.{CLAUSE} AS BIGINT) AS clause
        FROM (SELECT *, rowid AS place, {target.key_sql} AS own_key, {target.path_sql} AS own_path,
                     {twins}{", ".join(same_key(target))}) AS twins FROM {STAGE}) s
        LEFT JOIN ({versions_sql(con, told)}) v ON v.number = s.place
        ORDER BY s.{ROW} NULLS LAST, record_key, partition_path"""


def simple_fates_sql(con: duckdb.DuckDBPyConnection, told: Outcome, key: str, path: str, policy: str = "none") -> str:
    """The fates of an UPDATE, DELETE or INSERT, whose rows are in the stage. `key`, `path`: SQL over its columns.

    `policy`: the duplicate policy of an INSERT, under which a key that exists is a duplicate.
    """
    fate = "coalesce(v.fate, 'duplicate')"
    if policy == "drop":
        existing = f"v.fate IN ({literal(LATE_FATE)}, {literal(UNCHANGED_FATE)})"
        fate = f"CASE WHEN {existing} THEN 'duplicate' ELSE {fate} END"
    return f"""
        SELECT r.place + 1 AS source_row, coalesce(v.key, r.own_key) AS record_key,
               coalesce(v.part, r.own_path) AS partition_path, {fate} AS fate, NULL::BIGINT AS clause
        FROM (SELECT rowid AS place, {key} AS own_key, {path} AS own_path FROM {STAGE}) r
        LEFT JOIN ({versions_sql(con, told)}) v ON v.number = r.place ORDER BY 1"""
