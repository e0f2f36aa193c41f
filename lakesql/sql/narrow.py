"""Which file slices of the target a MERGE reads: those of the partitions that its source names.

Every file that DuckDB reads is opened first, and that set the pace of a small MERGE into many file groups: ten rows took
1.8 s on 10,000 groups, and take 0.2 s where 100 are opened. Where ON compares partition columns with
the source, the partition paths of the table tell which rows can match. The source is put into the TEMP table SOURCE,
once and for all of the statement, and the partitions are joined with it by the equalities of ON themselves, so types
and collations mean what they mean in the MERGE. A path that does not say what its rows have there is always read, and
so is a slice that may hold rows whose columns say something else (`partition_values.slices_told`).

Not narrowed are tables of few slices, WHEN NOT MATCHED BY SOURCE, which is about all rows, keys that are unique in
the whole table, and conditions that fail for a row of the source: the MERGE then tells the error, or why there is none.
Within a partition DuckDB's join leaves out row groups by their statistics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakesql.format.metadata import TableConfig
from lakesql.sql.functions import part_sql, placed_sql
from lakesql.sql.merge_names import Names, Target, analyse_on
from lakesql.sql.nodes import Merge, Text
from lakesql.sql.places import PATH_KINDS
from lakesql.sql.session import Session
from lakesql.sql.spark_dml import translated_merge
from lakesql.sql.spellings import described
from lakesql.table import read
from lakesql.table.keys import NULL_PARTITION, path_texts
from lakesql.table.names import literal, quote
from lakesql.table.partition_values import slices_told
from lakesql.table.state import TableState

SOURCE = "__lakesql_merge_source"
SLICES_MIN = 32
"""With fewer, putting the source into a table costs as much as it spares."""
_PATHS = "__lakesql_paths"
_CHANGING = (exp.Anonymous, exp.AnonymousAggFunc, exp.Query, exp.Rand, exp.Randn, exp.Uuid)
"""What may give another value at each call, or cannot be told."""


def narrowed(
    session: Session,
    statement: Merge,
    state: TableState,
    target: Target,
    source_types: Mapping[str, str],
    everywhere: Callable[[], bool],
) -> tuple[Merge, Target]:
    """The statement and its target, with the source in SOURCE and only the slices read that it can match.

    `state`: the snapshot of the statement; `source_types`: the columns of the source; `everywhere`: a key is unique in
    the table. Both are as they were where nothing is spared.
    """
    alias = statement.source_alias or ""
    by_source = any(c.kind == "by_source" for c in statement.clauses)
    if by_source or not target.plain_paths or alias.lower() == statement.alias.lower():
        return statement, target
    slices = read.plan(state).slices
    paths = sorted({s.partition for s in slices})
    if len(slices) < SLICES_MIN or len(paths) < 2 or everywhere():
        return statement, target
    merge = translated_merge(statement) if statement.spark else statement
    names = Names(merge.alias, alias or SOURCE, target, {c.lower(): c for c in source_types})
    types = {name.lower(): kind for name, kind in source_types.items()}
    pairs = _usable(analyse_on(merge, names).pairs, target, types)
    if not pairs:
        return statement, target
    con = session.con
    con.execute(f"CREATE OR REPLACE TEMP TABLE {SOURCE} AS {merge.ctes} SELECT * FROM {merge.source.sql}").fetchall()
    if described(session, f"SELECT * FROM {SOURCE}") != source_types:
        return statement, target
    statement = replace(statement, source=Text(SOURCE, statement.source.start))
    failing = " OR ".join(fails for _, fails in pairs.values())
    if con.execute(f"SELECT 1 FROM {SOURCE} AS {quote(alias or SOURCE)} WHERE {failing} LIMIT 1").fetchall():
        return statement, target
    values = {field: value for field, (value, _) in pairs.items()}
    kept = _matching(session, state.config, paths, values, target, alias)
    told = slices_told(state, slices)
    numbers = [n for n, s in enumerate(slices) if s.partition in kept or not told[n]]
    if len(numbers) == len(slices):
        return statement, target
    whole = f"{session.home}hudi_scan({literal(state.path)})"
    assert target.snapshot.endswith(whole), "the columns that the statement adds stand before the table"
    part = f"{target.snapshot.removesuffix(whole)}({part_sql(state.path, numbers)})"
    placed = placed_sql(state.path, numbers) if target.placed else ""
    return statement, replace(target, placed=placed, part=part)


def _usable(pairs: Mapping[str, str], target: Target, types: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Partition column -> (expression of the source, condition under which it may fail), for those that a path tells."""
    found = {}
    for field in target.partition_fields:
        if field in pairs and target.columns[field] in PATH_KINDS:
            value = _value(pairs[field], target.columns[field], types)
            if value is not None:
                found[field] = value
    return found


def _value(expression: str, kind: str, types: Mapping[str, str]) -> tuple[str, str] | None:
    """The expression, and when it may fail; None for one that has not one value for each row of the source."""
    try:
        node = sqlglot.parse_one(f"SELECT {expression}", read="duckdb").expressions[0]
    except SqlglotError:
        return None
    if any(isinstance(part, _CHANGING) for part in node.walk()):
        return None
    if not isinstance(node, exp.Column):
        value = f"TRY({expression})"
        return value, f"{value} IS NULL"
    is_text = types.get(node.name.lower()) == "VARCHAR"
    if not is_text or kind == "VARCHAR":
        return expression, "false"
    value = f"TRY_CAST({expression} AS {kind})"
    return value, f"({expression} IS NOT NULL AND {value} IS NULL)"


def _matching(
    session: Session, config: TableConfig, paths: Sequence[str], pairs: Mapping[str, str], target: Target, alias: str
) -> set[str]:
    """The partition paths whose rows the source can match."""
    places = [config.partition_fields.index(f) for f in pairs]
    told = [(path, values) for path in paths if (values := _values(config, path)) is not None]
    columns = {"path": pa.array([path for path, _ in told], pa.string())}
    columns |= {f"v{i}": pa.array([values[i] for _, values in told], pa.string()) for i in places}
    typed = [f"TRY_CAST(v{i} AS {target.columns[f]})" for i, f in zip(places, pairs, strict=True)]
    unclear = [f"v{i} IN ('', '{NULL_PARTITION}') OR {value} IS NULL" for i, value in zip(places, typed, strict=True)]
    same = [f"p.c{i} = {value}" for i, value in zip(places, pairs.values(), strict=True)]
    fields = ", ".join(f"{value} AS c{i}" for i, value in zip(places, typed, strict=True))
    con = session.con
    con.register(_PATHS, pa.table(columns))
    try:
        found = con.execute(
            f"SELECT path FROM {_PATHS} WHERE {' OR '.join(unclear)} UNION ALL "
            f"SELECT path FROM (SELECT path, {fields} FROM {_PATHS}) p "
            f"SEMI JOIN {SOURCE} AS {quote(alias or SOURCE)} ON {' AND '.join(same)}"
        ).fetchall()
    finally:
        con.unregister(_PATHS)
    return {path for (path,) in found} | set(paths).difference(path for path, _ in told)


def _values(config: TableConfig, path: str) -> list[str] | None:
    texts = path_texts(config, path)
    return [unquote(text) for text in texts] if texts is not None and config.url_encode else texts
