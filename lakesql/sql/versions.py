"""Old and new version of every row that a statement concerns, as SQL: what RETURNING and EXPLAIN (FATES) are made of.

New versions are the rows as tagged (`write.outcome`), old ones are looked up in the snapshot that they meet, by record
key and the partition where the table has it. The two halves of a move are one row here.
"""

import duckdb

from lakesql.table import read
from lakesql.table.names import literal, quote
from lakesql.write import Outcome
from lakesql.write.plan import DELETED, IGNORED, INSERTED

INSERTED_FATE, UPDATED_FATE, DELETED_FATE, MOVED_FATE = "inserted", "updated", "deleted", "moved"
UNCHANGED_FATE, LATE_FATE = "unchanged", "ignored (late)"

_KEY, _PATH = "_hoodie_record_key", "_hoodie_partition_path"


def versions_sql(con: duckdb.DuckDBPyConnection, told: Outcome) -> str:
    """number BIGINT | key, part VARCHAR: where the row is afterwards, or was | fate VARCHAR | old, new STRUCT or NULL.

    A row that loses is late, unless nothing of it differs from what is stored; one that finds nothing to delete is
    unchanged.
    """
    columns = told.plan.view.state.schema.names
    snapshot = read.to_sql(con, told.plan, [_KEY, _PATH, *columns])
    fate = (
        f"CASE WHEN f.number IS NULL THEN {literal(DELETED_FATE)} "
        f"WHEN f.fate = {INSERTED} THEN CASE WHEN s.number IS NULL THEN {literal(INSERTED_FATE)} "
        f"ELSE {literal(MOVED_FATE)} END "
        f"WHEN f.new IS NOT DISTINCT FROM s.old THEN {literal(UNCHANGED_FATE)} "
        f"WHEN f.fate <> {IGNORED} THEN {literal(UPDATED_FATE)} "
        f"WHEN s.number IS NULL THEN {literal(UNCHANGED_FATE)} ELSE {literal(LATE_FATE)} END"
    )
    return f"""
        WITH told AS (
          SELECT *, bool_or(fate = {DELETED}) OVER (PARTITION BY number) AS leaves FROM ({told.sql})),
        fresh AS (
          SELECT DISTINCT ON (number, part) number, key, place AS part, fate, {_struct("told", columns)} AS new
          FROM told WHERE fate <> {DELETED}),
        found AS (
          SELECT DISTINCT number, key, place FROM told
          WHERE fate <> {INSERTED} AND (fate = {DELETED} OR NOT leaves)),
        stale AS (
          SELECT t.number, t.key, t.place AS part, {_struct("o", columns)} AS old
          FROM found t JOIN ({snapshot}) o ON o.{quote(_KEY)} = t.key AND o.{quote(_PATH)} = t.place)
        SELECT coalesce(f.number, s.number) AS number, coalesce(f.key, s.key) AS key, coalesce(f.part, s.part) AS part,
               {fate} AS fate, s.old, f.new
        FROM fresh f FULL JOIN stale s ON f.number = s.number"""


def _struct(alias: str, columns: list[str]) -> str:
    return f"struct_pack({', '.join(f'{quote(c)} := {alias}.{quote(c)}' for c in columns)})"
