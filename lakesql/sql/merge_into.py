"""MERGE, UPDATE and DELETE compiled into the SELECT that yields rows to upsert, insert or delete. Pure: text in,
text out.

The semantics are those of standard SQL (CoW and MoR alike, against the merged view): WHEN clauses are tried in
order and the first whose condition is true decides; a condition that is NULL does not apply. One join of source and
snapshot, one `LATERAL` that picks the clause of each row once, and a CASE per column; conditions and values stay
the user's text. Its rows go into a table named STAGE, `checks` are asked of it, and `rows_sql` reads what `write`
gets:

    the table's columns | __op upsert, insert, delete | _hoodie_record_key, _hoodie_partition_path: of the target row

ON must contain `column = source expression` for every record key field, because a row is written by its key; more
may stand beside it. What one statement may not do is found in the stage, by joins: two source rows for one row of
the table, two inserts of one key, an insert of a key that exists, an update that moves a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakesql.errors import SQLError
from lakesql.sql import dialect
from lakesql.sql.merge_names import Names, On, Target, analyse_on, column_of
from lakesql.sql.nodes import Assignment, Clause, Delete, Merge, Text, Update
from lakesql.sql.spark_dml import translated, translated_merge
from lakesql.table.names import literal, quote

STAGE = "__lakesql_stage"
POLICIES = ("error", "first", "last", "ordering")
DUPLICATES = "lakesql.merge.duplicates"

_ROW, _MARK, _MOVED = '"__lakesql_row"', '"__lakesql_mark"', '"__lakesql_moved"'
_ACTION, _CHOICE = '"__lakesql_action"', '"__lakesql_choice"'
_KEY, _PATH, _OP = '"_hoodie_record_key"', '"_hoodie_partition_path"', '"__op"'
_OPS = {"update": "upsert", "insert": "insert", "delete": "delete"}


@dataclass(frozen=True, slots=True)
class Check:
    """`sql` yields one text per offending key; when it yields any, `message` is the error, with {keys} in it."""

    sql: str
    message: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """What to run: the stage, the checks, and the rows to write."""

    stage_sql: str
    checks: tuple[Check, ...]
    rows_sql: str


@dataclass(frozen=True, slots=True)
class _Action:
    """A clause with its values: column -> expression over the join; columns without a value are left out."""

    clause: Clause
    values: Mapping[str, str]


def compile_merge(
    statement: Merge, target: Target, source_columns: Sequence[str], duplicates: str = "error"
) -> Compiled:
    """`source_columns`: names of the columns of `statement.source`. SQLError or Unsupported for what cannot be done."""
    source_alias = statement.source_alias or "__lakesql_source"
    if source_alias.lower() == statement.alias.lower():
        raise SQLError(f"target and source are both called {source_alias}; give one of them an alias.")
    _check_policy(duplicates, target)
    merge = translated_merge(statement) if statement.spark else statement
    names = Names(merge.alias, source_alias, target, {c.lower(): c for c in source_columns})
    on = analyse_on(merge, names)
    actions = [_action(clause, names) for clause in merge.clauses]
    moved = _moved_sql(actions, names)
    rows = _merge_select(merge, names, on, actions, moved, duplicates)
    checks = list(_duplicate_checks(actions, target)) if duplicates == "error" else []
    checks += _write_checks(actions, target, on, bool(moved))
    columns = ", ".join([*map(quote, target.columns), _OP, _KEY, _PATH])
    final = f"SELECT {columns} FROM {STAGE}{_one_per_key(target, duplicates)}"
    return Compiled(rows, tuple(checks), final)


def compile_update(statement: Update, target: Target) -> Compiled:
    """UPDATE t SET ... WHERE: the rows that match, with their new values."""
    update = translated(statement) if statement.spark else statement
    fixed = {f.lower() for f in (*target.key_fields, *target.partition_fields)}
    values = {}
    for assignment in update.assignments:
        column = column_of(assignment.column, target)
        if column.lower() in fixed:
            role = "record key" if column in target.key_fields else "partition"
            raise SQLError(
                f"UPDATE cannot set {column}: it is a {role} column of {target.name}. "
                "DELETE the row and INSERT it with the new value."
            )
        values[column] = _cast(value_of(assignment.value), column, target)
    alias = quote(update.alias)
    fields = [f"{values.get(c, f'{alias}.{quote(c)}')} AS {quote(c)}" for c in target.columns]
    return _simple(target, update.ctes, alias, update.where, fields, "upsert")


def compile_delete(statement: Delete, target: Target) -> Compiled:
    """DELETE FROM t WHERE: keys and partitions of the rows that match."""
    delete = translated(statement) if statement.spark else statement
    alias = quote(delete.alias)
    kept = [c for c in target.columns if c in target.key_fields or c in target.partition_fields]
    fields = [f"{alias}.{quote(c)} AS {quote(c)}" for c in kept]
    return _simple(target, delete.ctes, alias, delete.where, fields, "delete")


def value_of(text: Text) -> str:
    """A value as it is written; DEFAULT is none here."""
    if text.sql.strip().upper() == "DEFAULT":
        raise SQLError("DEFAULT is not a value: Hudi tables have no column defaults.")
    return text.sql


def _simple(target: Target, ctes: str, alias: str, where: Text | None, fields: Sequence[str], op: str) -> Compiled:
    select = ", ".join([*fields, f"{literal(op)} AS {_OP}", f"{alias}.{_KEY}", f"{alias}.{_PATH}"])
    condition = f"\nWHERE {where.sql}" if where else ""
    return Compiled(
        f"{_with(ctes)}SELECT {select}\nFROM ({target.snapshot}) AS {alias}{condition}", (), f"SELECT * FROM {STAGE}"
    )


def _with(ctes: str) -> str:
    return f"{ctes}\n" if ctes else ""


def _check_policy(duplicates: str, target: Target) -> None:
    if duplicates not in POLICIES:
        raise SQLError(f"{DUPLICATES} = {duplicates!r}: use one of {', '.join(POLICIES)}.")
    if duplicates == "ordering" and not target.ordering_fields:
        raise SQLError(f"{DUPLICATES} = 'ordering': {target.name} has no ordering field. Use error, first or last.")


# ---------------------------------------------------------------- clauses


def _action(clause: Clause, names: Names) -> _Action:
    """The values of every column that the clause gives one; SQLError when it cannot."""
    if clause.action in ("nothing", "delete"):
        values = {}
    elif clause.assignments is None:
        values = _star(clause, names)
    elif clause.by_position:
        values = _by_position(clause.assignments, names.target)
    else:
        values = _assigned(clause.assignments, names.target)
    _check_references(clause, names)
    if clause.action == "insert":
        _check_insert(values, names.target)
    return _Action(clause, values)


def _star(clause: Clause, names: Names) -> dict[str, str]:
    missing = [c for c in names.target.columns if c.lower() not in names.source]
    if missing:
        verb = "UPDATE SET *" if clause.action == "update" else "INSERT *"
        raise SQLError(
            f"{verb} needs every column of {names.target.name} in the source; missing: {', '.join(missing)}. "
            "Add them to the source, or list the columns."
        )
    alias = quote(names.source_alias)
    return {c: f"{alias}.{quote(names.source[c.lower()])}" for c in names.target.columns}


def _by_position(assignments: Sequence[Assignment], target: Target) -> dict[str, str]:
    if len(assignments) != len(target.columns):
        raise SQLError(
            f"INSERT VALUES has {len(assignments)} values, {target.name} has {len(target.columns)} columns: "
            f"{', '.join(target.columns)}."
        )
    return {c: value_of(a.value) for c, a in zip(target.columns, assignments, strict=True)}


def _assigned(assignments: Sequence[Assignment], target: Target) -> dict[str, str]:
    values: dict[str, str] = {}
    for assignment in assignments:
        column = column_of(assignment.column, target)
        if column in values:
            raise SQLError(f"column {column} is given twice.")
        values[column] = value_of(assignment.value)
    return values


def _check_insert(values: Mapping[str, str], target: Target) -> None:
    needed = [("record key", f) for f in target.key_fields]
    needed += [("ordering", f) for f in target.ordering_fields if target.event_time and f in target.columns]
    for role, field in needed:
        if field not in values:
            raise SQLError(
                f"INSERT does not give the {role} column {field} of {target.name} a value; add it to the column list."
            )


def _check_references(clause: Clause, names: Names) -> None:
    """NOT MATCHED has no target row, NOT MATCHED BY SOURCE no source row to speak of."""
    if clause.kind == "matched":
        return
    foreign = names.of_target if clause.kind == "not_matched" else names.of_source
    alias = names.target_alias if clause.kind == "not_matched" else names.source_alias
    texts = [clause.condition] if clause.condition else []
    texts += [a.value for a in clause.assignments or ()]
    for text in texts:
        try:
            node = sqlglot.parse_one(f"SELECT {text.sql}", read="duckdb").expressions[0]
        except SqlglotError:
            continue  # DuckDB will say what is wrong with it
        inner = {id(c) for q in node.find_all(exp.Query) for c in q.find_all(exp.Column)}
        wrong = next((c for c in node.find_all(exp.Column) if id(c) not in inner and foreign(c)), None)
        if wrong is not None:
            words = "NOT MATCHED" if clause.kind == "not_matched" else "NOT MATCHED BY SOURCE"
            raise SQLError(f"WHEN {words} cannot refer to {wrong.sql('duckdb')}: there is no row of {alias} there.")


def _moved_sql(actions: Sequence[_Action], names: Names) -> str:
    """Condition under which an update gives a key or partition column another value; '' when none can."""
    target, alias = names.target, quote(names.target_alias)
    cases = []
    for number, action in enumerate(actions):
        if action.clause.action != "update":
            continue
        changed = []
        for column in (*target.key_fields, *target.partition_fields):
            value = action.values.get(column)
            if value is not None:
                changed.append(_differ(f"{alias}.{quote(column)}", value, column, target))
        if changed:
            cases.append(f"WHEN {number} THEN {' OR '.join(changed)}")
    return f"coalesce(CASE {_ACTION} {' '.join(cases)} END, false)" if cases else ""


def _is_paired(column: str, value: str, on: On) -> bool:
    """Whether the value is what ON says the column equals."""
    pair = on.pairs.get(column)
    return pair is not None and dialect.same_expression(pair, value)


def _differ(stored: str, value: str, column: str, target: Target) -> str:
    """Whether a value is another one than the stored one, as keys and paths are spelt: '01' = 1 and 0.0 = -0.0 in ON."""
    if target.columns[column] in ("FLOAT", "DOUBLE"):
        return f"CAST({stored} AS VARCHAR) IS DISTINCT FROM CAST({_cast(value, column, target)} AS VARCHAR)"
    return f"{stored} IS DISTINCT FROM {_cast(value, column, target)}"


def _cast(value: str, column: str, target: Target) -> str:
    kind = target.columns[column]
    # A collation of the source would make keys equal that are not.
    return f"CAST({value} AS {kind})" + (" COLLATE C" if kind == "VARCHAR" else "")


# ---------------------------------------------------------------- the SELECT


def _merge_select(merge: Merge, names: Names, on: On, actions: Sequence[_Action], moved: str, duplicates: str) -> str:
    target, t, s = names.target, quote(names.target_alias), quote(names.source_alias)
    kinds = {a.clause.kind for a in actions if a.clause.action != "nothing"}
    join = {
        (False, False): "INNER", (True, False): "LEFT", (False, True): "RIGHT", (True, True): "FULL",
    }["not_matched" in kinds, "by_source" in kinds]  # fmt: skip
    acting = {n: _OPS[a.clause.action] for n, a in enumerate(actions) if a.clause.action in _OPS}
    fields = []
    for column, kind in target.columns.items():
        value = _choose(_values_of(column, actions, names, duplicates), kind, len(acting))
        fields.append(f"{value} AS {quote(column)}")
    ops = _choose({n: literal(op) for n, op in acting.items()}, "VARCHAR", len(acting))
    fields += [f"{ops} AS {_OP}", f"{t}.{_KEY}", f"{t}.{_PATH}", f"{s}.{_ROW}"]
    if moved:
        fields.append(f"{moved} AS {_MOVED}")
    newline = ",\n       "
    return (
        f"{_with(merge.ctes)}SELECT {newline.join(fields)}\n"
        f"FROM (SELECT *, row_number() OVER () AS {_ROW} FROM {merge.source.sql}) AS {s}\n"
        f"{join} JOIN (SELECT *, true AS {_MARK} FROM ({target.snapshot})) AS {t} ON ({on.sql}),\n"
        f"LATERAL (SELECT {_pick(actions, join, t, s)} AS {_ACTION}) AS {_CHOICE}\n"
        f"WHERE {_ACTION} IS NOT NULL"
    )


def _pick(actions: Sequence[_Action], join: str, t: str, s: str) -> str:
    """The number of the clause that applies; NULL for none and for DO NOTHING."""
    matched = {"INNER": "", "LEFT": f"{t}.{_MARK}", "RIGHT": f"{s}.{_ROW} IS NOT NULL"}
    exists = {
        "matched": matched.get(join, f"{t}.{_MARK} AND {s}.{_ROW} IS NOT NULL"),
        "not_matched": f"{t}.{_MARK} IS NULL",
        "by_source": f"{s}.{_ROW} IS NULL",
    }
    whens = []
    for number, action in enumerate(actions):
        condition = f"({action.clause.condition.sql})" if action.clause.condition else ""
        both = " AND ".join(part for part in (exists[action.clause.kind], condition) if part) or "true"
        result = "NULL" if action.clause.action == "nothing" else str(number)
        whens.append(f"WHEN {both} THEN {result}")
    return f"CASE {' '.join(whens)} END"


def _values_of(column: str, actions: Sequence[_Action], names: Names, duplicates: str) -> dict[int, str]:
    """Clause number -> value of the column; clauses that give NULL are left out."""
    target = names.target
    stored = f"{quote(names.target_alias)}.{quote(column)}"
    identity = column in target.key_fields or column in target.partition_fields
    values = {}
    for number, action in enumerate(actions):
        if action.clause.action == "nothing":
            continue
        if column in action.values:
            values[number] = _cast(action.values[column], column, target)
        elif action.clause.action == "update" or (action.clause.action == "delete" and identity):
            values[number] = stored
        elif action.clause.action == "delete" and duplicates == "ordering" and column in target.ordering_fields:
            # A delete among several source rows of one key is weighed by the source's ordering value.
            given = names.source.get(column.lower())
            if given:
                values[number] = _cast(f"{quote(names.source_alias)}.{quote(given)}", column, target)
    return values


def _choose(values: Mapping[int, str], kind: str, clauses: int) -> str:
    """One CASE over the clause numbers; numbers with one value share a branch, `clauses` with one value need no CASE."""
    if not values:
        return f"CAST(NULL AS {kind})"
    branches: dict[str, list[int]] = {}
    for number, value in values.items():
        branches.setdefault(value, []).append(number)
    if len(branches) == 1 and len(values) == clauses:
        return next(iter(branches))
    whens = []
    for value, numbers in branches.items():
        test = f"= {numbers[0]}" if len(numbers) == 1 else f"IN ({', '.join(map(str, numbers))})"
        whens.append(f"WHEN {_ACTION} {test} THEN {value}")
    return f"CASE {' '.join(whens)} END"


# ---------------------------------------------------------------- checks


def _shown(target: Target) -> str:
    """A SQL text that names a row of the stage by its key, and partition."""
    fields = [*target.key_fields, *(f for f in target.partition_fields if f not in target.key_fields)]
    if not target.key_fields:
        return _KEY
    parts = ", ', ', ".join(f"{literal(f + '=')}, coalesce(CAST({quote(f)} AS VARCHAR), 'NULL')" for f in fields)
    return f"concat({parts})"


def _identity(target: Target) -> list[str]:
    return [quote(f) for f in dict.fromkeys((*target.key_fields, *target.partition_fields))]


def _duplicate_checks(actions: Sequence[_Action], target: Target) -> Iterator[Check]:
    """Several source rows for one row of the table, or for one new key."""
    policies = f"Make the source unique, or SET {DUPLICATES} = 'first', 'last' or 'ordering'."
    shown = _shown(target)
    if any(a.clause.kind == "matched" and a.clause.action != "nothing" for a in actions):
        yield Check(
            f"SELECT any_value({shown}) FROM {STAGE} WHERE {_OP} <> 'insert' AND {_ROW} IS NOT NULL "
            f"GROUP BY {_KEY}, {_PATH} HAVING count(DISTINCT {_ROW}) > 1 ORDER BY 1 LIMIT 6",
            f"{target.name}: several source rows match the same row of the table: {{keys}}. {policies}",
        )
    if target.key_fields and any(a.clause.action == "insert" for a in actions):
        present = " AND ".join(f"{quote(f)} IS NOT NULL" for f in target.key_fields)
        yield Check(
            f"SELECT any_value({shown}) FROM {STAGE} WHERE {_OP} = 'insert' AND {present} "
            f"GROUP BY {', '.join(_identity(target))} HAVING count(*) > 1 ORDER BY 1 LIMIT 6",
            f"{target.name}: several source rows would insert the same key: {{keys}}. {policies}",
        )


def _write_checks(actions: Sequence[_Action], target: Target, on: On, moved: bool) -> list[Check]:
    """An update that moves a row, an insert of a key that is there."""
    found = []
    if moved:
        fields = ", ".join(dict.fromkeys((*target.key_fields, *target.partition_fields)))
        found.append(
            Check(
                f"SELECT {_shown(target)} FROM {STAGE} WHERE {_MOVED} ORDER BY 1 LIMIT 6",
                f"{target.name}: UPDATE would give a row another record key or partition ({fields}): {{keys}}. "
                "Compare these columns in ON with values of their own types, or DELETE the row and INSERT it anew.",
            )
        )
    inserts = [a for a in actions if a.clause.action == "insert"]
    if inserts and target.key_fields and not all(_sure_new(a, target, on) for a in inserts):
        same = " AND ".join(f"s.{f} IS NOT DISTINCT FROM t.{f}" for f in _identity(target))
        found.append(
            Check(
                f"SELECT {_shown(target)} FROM (SELECT * FROM {STAGE} WHERE {_OP} = 'insert') s "
                f"SEMI JOIN ({target.snapshot}) t ON {same} ORDER BY 1 LIMIT 6",
                f"{target.name}: WHEN NOT MATCHED would insert keys that the table has already, because ON compares "
                f"more "
                "than the key: {keys}. Move the other conditions into WHEN MATCHED AND ..., or leave these source "
                "rows out.",
            )
        )
    return found


def _sure_new(action: _Action, target: Target, on: On) -> bool:
    """Whether a row that ON did not match cannot have a key of the table."""
    if on.extra:
        return False
    fields = (*target.key_fields, *(f for f in target.partition_fields if f in on.pairs))
    return all(f in action.values and _is_paired(f, action.values[f], on) for f in fields)


def _one_per_key(target: Target, duplicates: str) -> str:
    if duplicates == "error":
        return ""
    order = {"first": f"{_ROW}", "last": f"{_ROW} DESC"}.get(duplicates)
    if order is None:
        order = ", ".join([*(f"{quote(f)} DESC NULLS LAST" for f in target.ordering_fields), f"{_ROW} DESC"])
    same = ", ".join([f"{_OP} = 'insert'", _KEY, _PATH, *_identity(target)])
    # rank, not row_number: a source row that matches several rows of the table is kept as often.
    return f" QUALIFY rank() OVER (PARTITION BY {same} ORDER BY {order}) = 1"
