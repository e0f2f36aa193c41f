"""The rows of one write: cast to the table's types, keyed, checked and reduced to one row per key.

They end up in the TEMP table `__lakesql_batch` of the caller's connection, so a batch may be larger than memory, and
nothing is written before every row has been checked. Its columns are the table's columns (missing ones NULL) and

    __lakesql_op    TINYINT   UPSERT, INSERT, DELETE (unconditional) or MARKED (a delete compared by ordering value)
    __lakesql_key   VARCHAR   record key; NULL only where the table generates keys
    __lakesql_part  VARCHAR   partition path
    __lakesql_number BIGINT   the number that the row came with, when the rows have a column `__lakesql_number`

`rowid` is the place of a row in the input. Rows of one key are then reduced to one (`precombine`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format.avro import META_COLUMNS
from lakesql.table.exact import exact_cast, refusal, role_of
from lakesql.table.keys import partition_path_sql, record_key_sql
from lakesql.table.merge import ALWAYS, Rule
from lakesql.table.names import duckdb_type, literal, quote
from lakesql.table.state import TableState
from lakesql.write.columns import require_known_fields
from lakesql.write.duplicates import refuse_look_alikes, unite_copies
from lakesql.write.held import HELD_ROWS, drop, hold, own
from lakesql.write.plan import BATCH, DELETE, INSERT, MARKED, NUMBER, UPSERT
from lakesql.write.precombine import all_differ, precombine

_OPS = {"upsert": UPSERT, "insert": INSERT, "delete": DELETE}
_KEY, _PARTITION, _OP = "_hoodie_record_key", "_hoodie_partition_path", "__op"

Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Batch:
    """What was asked for, and how many rows the reduction left."""

    rows: int
    rows_dropped: int  # lost against another row of the same key in this batch
    partitions: tuple[str, ...]
    keys_computed: bool = False  # the record keys are made of the key columns, not given
    numbered: bool = False  # the rows came with numbers: `__lakesql_number` of the batch
    held: pa.Table | None = None  # `__lakesql_batch` is a view of this table (`held`)


@dataclass(frozen=True, slots=True)
class Rules:
    """How the rows of an operation become a batch."""

    default_op: int
    merge: Rule
    ordering: tuple[str, ...]
    combine: bool  # reduce to one row per key
    keys_generated: bool
    partitions_only: bool  # only the partition paths matter
    key_style: str | None
    keys_everywhere: bool = False  # rows of one key are one row, whatever their partitions
    from_table: bool = False  # the rows of a statement on the table: several of a key are one change of all its rows

    @property
    def compares(self) -> bool:
        """Whether an incoming row may lose against the stored one by its ordering value."""
        return bool(self.ordering) and self.merge.write.row != ALWAYS


def materialise(
    con: Connection,
    state: TableState,
    rows_sql: str,
    rules: Rules,
    options: Mapping[str, str],
    rows_given: pa.Table | None = None,
) -> Batch:
    """Fill `__lakesql_batch` from `rows_sql` and reduce it. `rows_given`: what `rows_sql` gives, in this order, where the
    caller has it.

    TableError, naming column, example and table, for an unknown or missing column, a value that does not fit its
    column, a key, partition or ordering value that its cast would change, a missing record key, a NULL in a column that
    must have a value, or a partition path that is no path.
    """
    given = _described(con, rows_sql)
    sources = _sources(state, given, rules)
    _require_fields(con, state, rows_sql, sources)
    select = _select_sql(state, rows_sql, given, sources, rules, options)
    drop(con)
    held = None
    try:
        if rows_given is not None and rows_given.num_rows <= HELD_ROWS and not rules.from_table and NUMBER not in given:
            held = hold(con, state.schema, select, rows_given)
        else:
            con.execute(f"CREATE TEMP TABLE {BATCH} AS {select}").fetchall()
    except duckdb.Error as error:
        changed = refusal(error)
        if changed is not None:
            raise TableError(f"{state.path}: {changed}") from error
        _explain_cast(con, state, rows_sql, sources)
        if isinstance(error, duckdb.BinderException | duckdb.ConversionException | duckdb.InvalidInputException):
            raise TableError(f"{state.path}: the rows do not fit the table: {str(error).splitlines()[0]}") from error
        raise
    rows = _check(con, state, rules)
    if rules.keys_everywhere and NUMBER in given:
        rows -= _leave_moves_to_the_index(con)
    keys_computed = _KEY not in {name.lower() for name in given} or rules.from_table
    if keys_computed and rules.combine:
        refuse_look_alikes(con, state, rules.keys_everywhere)
    if rules.from_table:
        rows -= unite_copies(con, state, rules.keys_everywhere, NUMBER in given)
    dropped = 0
    if rules.combine and not all_differ(con, held):
        if held is not None:
            own(con)
            held = None
        dropped = precombine(con, state, rules.merge, rules.ordering, rules.keys_everywhere)
    return Batch(rows - dropped, dropped, _partitions(con), keys_computed, NUMBER in given, held)


def _partitions(con: Connection) -> tuple[str, ...]:
    return tuple(p for (p,) in con.execute(f"SELECT DISTINCT __lakesql_part FROM {BATCH} ORDER BY 1").fetchall())


def _leave_moves_to_the_index(con: Connection) -> int:
    """Under a global index a row that moves is found by its key: take out its delete; the number of rows taken out."""
    moving = f"SELECT {NUMBER} FROM {BATCH} GROUP BY 1 HAVING count(DISTINCT __lakesql_part) > 1"
    deletes = f"DELETE FROM {BATCH} WHERE __lakesql_op = {DELETE} AND {NUMBER} IN ({moving})"
    return int(con.execute(deletes).fetchall()[0][0])


def _described(con: Connection, rows_sql: str) -> dict[str, str]:
    """Column name -> DuckDB type of the rows given."""
    return {row[0]: row[1] for row in con.execute(f"DESCRIBE SELECT * FROM ({rows_sql})").fetchall()}


def _sources(state: TableState, given: Mapping[str, str], rules: Rules) -> dict[str, tuple[str, str]]:
    """Table column -> (column of the rows, its type). Names match as in SQL, without regard to case."""
    by_name: dict[str, str] = {}
    for name in given:
        if name.lower() in by_name:
            raise TableError(f"{state.path}: the rows have the column {name} twice. Give each column once.")
        by_name[name.lower()] = name
    special = {c.lower() for c in META_COLUMNS} | {_OP, NUMBER}
    known = {c.lower() for c in state.schema.names}
    unknown = [name for name in given if name.lower() not in known | special]
    if unknown:
        raise TableError(
            f"{state.path}: the rows have the column {', '.join(unknown)}, the table has "
            f"{', '.join(state.schema.names)}. Leave it out or rename it; in SQL, SET lakesql.schema.evolve = true adds it."
        )
    _require_key_columns(state, set(by_name), rules)
    return {c: (by_name[c.lower()], given[by_name[c.lower()]]) for c in state.schema.names if c.lower() in by_name}


def _require_fields(con: Connection, state: TableState, rows_sql: str, sources: Mapping[str, tuple[str, str]]) -> None:
    """TableError when a struct of the rows has a field that the table's lacks: DuckDB's cast would drop it."""
    nested = [
        f"{quote(source)} AS {quote(column)}"
        for column, (source, kind) in sources.items()
        if "STRUCT(" in kind and kind != duckdb_type(state.schema.field(column).type, column)
    ]
    if nested:
        none = con.sql(f"SELECT {', '.join(nested)} FROM ({rows_sql}) LIMIT 0").to_arrow_table()
        require_known_fields(state, none.schema)


def _require_key_columns(state: TableState, names: set[str], rules: Rules) -> None:
    config = state.config
    needed = []
    if _PARTITION not in names and not _partition_open(rules):
        needed += [("partition", f) for f in config.partition_fields]
    if _KEY not in names and not rules.partitions_only:
        needed += [("record key", f) for f in config.record_key_fields]
        if not config.record_key_fields and rules.default_op == DELETE:
            raise TableError(
                f"{state.path}: the keys of this table are generated (no hoodie.table.recordkey.fields); rows to "
                "delete must name them in a column _hoodie_record_key."
            )
    missing = [(role, f) for role, f in needed if f.lower() not in names and f.split(".")[0].lower() not in names]
    if missing:
        role, field = missing[0]
        raise TableError(
            f"{state.path}: the rows lack the {role} column {field}. Add it to the rows; NULL is not assumed."
        )


def _partition_open(rules: Rules) -> bool:
    """Rows to delete need not say where they are when their keys are looked up everywhere."""
    return rules.keys_everywhere and rules.default_op == DELETE


def _select_sql(
    state: TableState,
    rows_sql: str,
    given: Mapping[str, str],
    sources: Mapping[str, tuple[str, str]],
    rules: Rules,
    options: Mapping[str, str],
) -> str:
    fields = []
    for field in state.schema:
        kind = duckdb_type(field.type, field.name)
        source, source_kind = sources.get(field.name, ("", ""))
        role = role_of(field.name, state.config)
        if source_kind == kind:
            value = quote(source)
        elif source and role:
            value = exact_cast(quote(source), kind, f"{role} column {field.name}")
        else:
            value = f"CAST({quote(source) if source else 'NULL'} AS {kind})"
        # A collation of the source would make keys equal that are not.
        plain = f"{value} COLLATE C" if kind == "VARCHAR" else value
        fields.append(f"{plain} AS {quote(field.name)}")
    names = {name.lower(): name for name in given}
    for name in (_KEY, _PARTITION, _OP):
        column = quote(names[name]) if name in names else "NULL"
        fields.append(f"CAST({column} AS VARCHAR) COLLATE C AS {quote('__lakesql_given' + name)}")
    columns = ", ".join(quote(c) for c in state.schema.names)
    if NUMBER in given:
        fields.append(NUMBER)
        columns += f", {NUMBER}"
    key = _key_sql(state, sources, rules, options)
    part = (
        ("''" if _partition_open(rules) else "NULL")
        if not _computable(state.config.partition_fields, sources)
        else partition_path_sql(state.config, state.schema, options)
    )
    return (
        f"SELECT {columns}, {_op_sql(state, rules)} AS __lakesql_op, "
        f"coalesce(nullif({quote('__lakesql_given' + _KEY)}, ''), {key}) AS __lakesql_key, "
        f"coalesce({quote('__lakesql_given' + _PARTITION)}, {part}) AS __lakesql_part "
        f"FROM (SELECT {', '.join(fields)} FROM ({rows_sql}))"
    )


def _key_sql(
    state: TableState, sources: Mapping[str, tuple[str, str]], rules: Rules, options: Mapping[str, str]
) -> str:
    fields = state.config.record_key_fields
    if rules.partitions_only or not fields or not _computable(fields, sources):
        return "NULL"
    return record_key_sql(state.config, state.schema, rules.key_style, options)


def _computable(fields: Sequence[str], sources: Mapping[str, tuple[str, str]]) -> bool:
    return all(f in sources or f.split(".")[0] in sources for f in fields)


def _op_sql(state: TableState, rules: Rules) -> str:
    given = quote("__lakesql_given" + _OP)
    whens = " ".join(f"WHEN {literal(word)} THEN {code}" for word, code in _OPS.items())
    op = f"CASE lower(coalesce({given}, '')) WHEN '' THEN {rules.default_op} {whens} ELSE -1 END"
    marked = _marked_sql(state, rules.merge.name)
    if marked is None:
        return f"CAST({op} AS TINYINT)"
    # A marked delete without ordering value is a commit-time delete (hudi-format 5.3).
    compares = rules.compares and rules.merge.write.delete != ALWAYS
    compared = f"{quote(rules.ordering[0])} IS NOT NULL" if compares else "false"
    return (
        f"CAST(CASE WHEN {op} IN ({UPSERT}, {INSERT}) AND {marked} "
        f"THEN CASE WHEN {compared} THEN {MARKED} ELSE {DELETE} END ELSE {op} END AS TINYINT)"
    )


def _marked_sql(state: TableState, rule: str) -> str | None:
    """Condition under which a row says of itself that it is a delete (hudi-format 5.2)."""
    config, conditions = state.config, []
    names = state.schema.names
    if "_hoodie_is_deleted" in names and pa.types.is_boolean(state.schema.field("_hoodie_is_deleted").type):
        conditions.append(f"coalesce({quote('_hoodie_is_deleted')}, false)")
    if config.delete_field and config.delete_marker is not None and config.delete_field in names:
        text, marker = f"CAST({quote(config.delete_field)} AS VARCHAR)", literal(config.delete_marker)
        same = f"upper({text}) = upper({marker})" if rule == "AWSDmsAvroPayload" else f"{text} = {marker}"
        conditions.append(f"coalesce({same}, false)")
    if "_hoodie_operation" in names:
        conditions.append(f"coalesce({quote('_hoodie_operation')} IN ('D', '-U'), false)")
    return f"({' OR '.join(conditions)})" if conditions else None


def _explain_cast(con: Connection, state: TableState, rows_sql: str, sources: Mapping[str, tuple[str, str]]) -> None:
    """Raise TableError for the first column whose values do not fit; return when that was not the trouble."""
    for column, (source, source_kind) in sources.items():
        kind = duckdb_type(state.schema.field(column).type, column)
        if source_kind == kind:
            continue
        text = f"{state.path}: column {column} is {kind}, the rows give {source_kind}"
        value = quote(source)
        probe = (
            f"SELECT CAST({value} AS VARCHAR) FROM ({rows_sql}) "
            f"WHERE {value} IS NOT NULL AND TRY_CAST({value} AS {kind}) IS NULL LIMIT 1"
        )
        try:
            example = con.execute(probe).fetchall()
        except duckdb.BinderException as error:
            raise TableError(f"{text}, which cannot be converted. Give the column as {kind}.") from error
        except duckdb.Error:
            return
        if example:
            raise TableError(
                f"{text}; for example {example[0][0]!r} does not fit. Correct the rows, or CAST them as you mean it."
            )


def _check(con: Connection, state: TableState, rules: Rules) -> int:
    """The number of rows; TableError for the first rule that a row breaks, with that row's number and values."""
    required = [f.name for f in state.schema if not f.nullable]
    writes = f"__lakesql_op NOT IN ({DELETE}, {MARKED})"
    key_missing = "__lakesql_key IS NULL" + (
        f" AND __lakesql_op IN ({DELETE}, {MARKED})" if rules.keys_generated else ""
    )
    no_path = (
        "the partition path is not a path inside the table (a segment is empty, '.' or '..'); correct the value, or "
        "create the table with hoodie.datasource.write.partitionpath.urlencode=true"
    )
    rules_broken = [
        ("__lakesql_op = -1", "__op is none of upsert, insert, delete"),
        ("__lakesql_part IS NULL", "the partition path is NULL"),
    ]
    # Each path is asked once, not each row.
    paths = f"(SELECT DISTINCT __lakesql_part FROM {BATCH})"
    if con.execute(f"SELECT 1 FROM {paths} WHERE {_no_path_sql()} LIMIT 1").fetchall():
        rules_broken.append((_no_path_sql(), no_path))
    if not rules.partitions_only:
        fields = ", ".join(state.config.record_key_fields) or _KEY
        rules_broken.append((key_missing, f"the record key is NULL or empty (columns: {fields})"))
        rules_broken += [(f"{quote(c)} IS NULL AND {writes}", f"column {c} must not be NULL") for c in required]
    counts = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition, _ in rules_broken)
    total, *broken = con.execute(f"SELECT count(*), {counts} FROM {BATCH}").fetchall()[0]
    for (condition, text), count in zip(rules_broken, broken, strict=True):
        if count:
            shown = [*state.schema.names, "__lakesql_key", "__lakesql_part"]
            values = con.execute(
                f"SELECT rowid + 1, {', '.join(map(quote, shown))} FROM {BATCH} WHERE {condition} LIMIT 1"
            ).fetchall()[0]
            pairs = ", ".join(f"{n}={v!r}" for n, v in zip(shown, values[1:], strict=True) if not n.startswith("__"))
            path = f" (path {values[-1]!r})" if values[-1] is not None and state.config.partition_fields else ""
            raise TableError(
                f"{state.path}: {text}, in {count} of {total} rows; the first is row {values[0]}{path}: {pairs}. "
                "Nothing was written."
            )
    return int(total)


def _no_path_sql() -> str:
    part = "__lakesql_part"
    return (
        f"{part} <> '' AND (list_has_any(string_split({part}, '/'), ['', '.', '..']) OR starts_with({part}, '.hoodie'))"
    )
