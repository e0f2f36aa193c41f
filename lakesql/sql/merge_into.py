"""MERGE, UPDATE and DELETE compiled into the SELECT that yields rows to upsert, insert or delete. Pure: text in,
text out.

The semantics are those of standard SQL (CoW and MoR alike, against the merged view): WHEN clauses are tried in
order and the first whose condition is true decides; a condition that is NULL does not apply. One join of source and
snapshot, one `LATERAL` that picks the clause of each row once, and a CASE per column; conditions and values stay
the user's text. Its rows go into a table named STAGE, `checks` are asked of it, and `rows_sql` reads what `write`
gets:

    the table's columns | __op upsert, insert, delete | _hoodie_record_key, _hoodie_partition_path: of the target row

ON must contain `column = source expression` for every record key field, because a row is written by its key; more
may stand beside it. What one statement may not do is found in the stage (`stage`), by joins: two source rows for one
row of the table, two inserts of one key, an insert of a key that exists, an update that changes a record key. An
update of a partition column moves the row: it is deleted where it is and inserted where it goes, in one commit; on an
event-time table a move with a smaller ordering value loses as every late update does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakesql.counted import counted
from lakesql.errors import SQLError
from lakesql.format.avro import META_COLUMNS
from lakesql.sql import dialect, places, stage
from lakesql.sql.merge_names import Names, On, Target, analyse_on, column_of, find
from lakesql.sql.nodes import Assignment, Clause, Delete, Merge, Text, Update
from lakesql.sql.spark_dml import translated, translated_merge
from lakesql.sql.stage import CLAUSE, ERROR, KEY, OP, PATH, ROW, STAGE, Check, Compiled
from lakesql.sql.struct_fields import Path, with_fields
from lakesql.table.exact import exact_cast
from lakesql.table.names import literal, quote
from lakesql.write.names_of_settings import DUPLICATES, EVOLVE

__all__ = ["STAGE", "Compiled", "compile_delete", "compile_merge", "compile_update"]

POLICIES = ("error", "first", "last", "ordering")

_MARK = '"__lakesql_mark"'
_ACTION, _CHOICE = '"__lakesql_action"', '"__lakesql_choice"'
_OPS = {"update": "upsert", "insert": "insert", "delete": "delete", "error": "error"}


@dataclass(frozen=True, slots=True)
class _Action:
    """A clause with its values: column -> expression over the join; columns without a value are left out."""

    clause: Clause
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How the rows are to come: under which policy, numbered, and with those that no clause changes."""

    duplicates: str
    numbered: bool
    fates: bool
    placed: bool = False  # with the places of the target rows
    all_matched: bool = False  # with the matched rows that no clause changes


def compile_merge(
    statement: Merge,
    target: Target,
    source_columns: Sequence[str] | Mapping[str, str],
    duplicates: str = "error",
    numbered: bool = False,
    fates: bool = False,
) -> Compiled:
    """`source_columns`: names of the columns of `statement.source`, to their types if known. SQLError or Unsupported for
    what cannot be done.

    `numbered`: the rows to write carry the number of their row in the stage; `fates`: the stage has every source row.
    """
    source_alias = statement.source_alias or "__lakesql_source"
    if source_alias.lower() == statement.alias.lower():
        raise SQLError(f"target and source are both called {source_alias}; give one of them an alias.")
    _check_policy(duplicates, target)
    merge = translated_merge(statement) if statement.spark else statement
    names = Names(merge.alias, source_alias, target, {c.lower(): c for c in source_columns})
    on = analyse_on(merge, names)
    actions = [_action(clause, names) for clause in merge.clauses]
    rekeyed = _changed_sql(actions, names, target.key_fields)
    moved = _changed_sql(actions, names, target.partition_fields)
    compared = None if fates else _compared(actions, target, on)
    placed = bool(target.placed) and not fates and not places.takes_whole_rows(_texts(merge), merge.alias)
    types = {n.lower(): t for n, t in source_columns.items()} if isinstance(source_columns, Mapping) else {}
    told = placed and _keys_told(actions, target, on, types)
    wanted = _Wanted(duplicates, numbered, fates, placed, told and not _all_acted_on(actions))
    first = [places.first_compared(compared, target)] if placed and compared else compared
    select = _merge_select(merge, names, on, actions, (rekeyed, moved), wanted, first or ())
    select = stage.with_same(select, first)
    if moved:
        select = _with_new_path(select, target)
    checks = _checks(actions, target, on, bool(rekeyed), duplicates)
    missing = _ops_missing(actions, fates) or wanted.all_matched
    chosen = stage.one_per_key(target, duplicates), missing, compared is not None
    assigned = frozenset(c for a in actions if a.clause.action == "update" for c in a.values)
    later = [c for c in compared or () if c not in (first or ())]
    plan = Compiled(
        select,
        checks,
        stage.rows_sql(target, numbered, *chosen),
        unchanged_sql="" if compared is None else stage.unchanged_sql(chosen[0]),
        assigned=assigned - set(target.key_fields),  # an update cannot change them
        one_per_key=chosen[0],
        differing_sql=places.differing_sql(target, later) if later else "",
        found_sql=places.found_sql(target, wanted.all_matched or duplicates != "error") if told else "",
        doubts_sql=places.doubts_sql(target, on) if told else "",
        inside_sqls=tuple(_inside(merge, names, actions, types)),
    )
    if not moved:
        return plan
    inserts = any(a.clause.action == "insert" for a in actions)
    moves = tuple(stage.move_checks(target, inserts, chosen[0]))
    return replace(plan, move_checks=moves, moving_rows_sql=stage.moving_rows_sql(target, *chosen))


def _inside(merge: Merge, names: Names, actions: Sequence[_Action], types: Mapping[str, str]) -> Iterator[str]:
    """For each clause the values that it gives to columns with structs, of no row."""
    target, source = names.target, quote(names.source_alias)
    as_they_are = {f"{source}.{quote(name)}": types.get(lower) for lower, name in names.source.items()}
    for action in actions:
        given = {c: v for c, v in action.values.items() if as_they_are.get(v) != target.columns[c]}
        if structs := _structs(given, target):
            rows = f"(SELECT * FROM {merge.source.sql}) AS {source}, ({target.snapshot}) AS {quote(names.target_alias)}"
            yield f"{_with(merge.ctes)}SELECT {structs} FROM {rows} LIMIT 0"


def _structs(values: Mapping[str, str], target: Target) -> str:
    """Those of the values that are of columns with structs, as a SELECT list."""
    return ", ".join(f"{value} AS {quote(c)}" for c, value in values.items() if "STRUCT(" in target.columns[c])


def _texts(merge: Merge) -> Iterator[str]:
    """The expressions that may name the target."""
    if merge.on:
        yield merge.on.sql
    for clause in merge.clauses:
        if clause.condition:
            yield clause.condition.sql
        yield from (assignment.value.sql for assignment in clause.assignments or ())


def _keys_told(actions: Sequence[_Action], target: Target, on: On, source_types: Mapping[str, str]) -> bool:
    """Whether the stage tells where all rows are that have a key of it."""
    inserts = [a for a in actions if a.clause.action == "insert"]
    by_source = any(a.clause.kind == "by_source" for a in actions)
    return not by_source and all(_sure_new(a, target, on) for a in inserts) and places.tells(target, on, source_types)


def _all_acted_on(actions: Sequence[_Action]) -> bool:
    """Whether every matched row has a clause that does something."""
    matched = [a.clause for a in actions if a.clause.kind == "matched"]
    return any(c.condition is None for c in matched) and all(c.action != "nothing" for c in matched)


def _compared(actions: Sequence[_Action], target: Target, on: On) -> list[str] | None:
    """The columns that some update gives a value, but for those that ON says are equal; None without an update."""
    updates = [a for a in actions if a.clause.action == "update"]
    if not updates:
        return None
    return [c for c in target.columns if any(c in a.values and not _is_paired(c, a.values[c], on) for a in updates)]


def _ops_missing(actions: Sequence[_Action], fates: bool) -> bool:
    """Whether the stage has rows that are not written."""
    return fates or any(a.clause.action == "error" for a in actions)


def _checks(actions: Sequence[_Action], target: Target, on: On, rekeyed: bool, duplicates: str) -> tuple[Check, ...]:
    kinds = {(a.clause.kind, a.clause.action) for a in actions}
    updates = bool(kinds & {("matched", "update"), ("matched", "delete")})
    inserts = [a for a in actions if a.clause.action == "insert"]
    found: list[Check] = []
    if any(action == "error" for _, action in kinds):
        found.append(stage.error_check(target))
    if duplicates == "error":
        found += stage.duplicate_checks(target, updates, bool(inserts))
    if rekeyed:
        found.append(stage.rekeyed_check(target))
    if inserts and target.key_fields and not all(_sure_new(a, target, on) for a in inserts):
        found.append(stage.existing_check(target))
    return tuple(found)


def compile_update(statement: Update, target: Target, numbered: bool = False, fates: bool = False) -> Compiled:
    """UPDATE t SET ... WHERE: the rows that match, with their new values. `fates`: also those that stay as they are."""
    update = translated(statement) if statement.spark else statement
    alias = quote(update.alias)
    values = _assigned(update.assignments, target, alias)
    rekeyed = [c for c in values if c in target.key_fields]
    if rekeyed:
        raise SQLError(
            f"UPDATE cannot set {rekeyed[0]}: it is a record key column of {target.name}, and a row is found by its "
            "key. DELETE the row and INSERT it with the new value."
        )
    cast = {column: _cast(value, column, target) for column, value in values.items()}
    fields = [f"{cast.get(c, f'{alias}.{quote(c)}')} AS {quote(c)}" for c in target.columns]
    changed = [f"{alias}.{quote(f)} IS DISTINCT FROM {cast[f]}" for f in target.partition_fields if f in cast]
    if changed:
        fields.append(f"({' OR '.join(changed)}){_not_late(cast, target, alias)} AS {stage.PATH_CHANGED}")
    compared = None if fates else [c for c in target.columns if c in cast]
    fields += [f"{alias}.{quote(c)} AS {stage.stored(c)}" for c in compared or ()]
    whole = places.takes_whole_rows([a.value.sql for a in update.assignments], update.alias)
    target = replace(target, placed="") if fates or whole else _told_by_key(target, update.where, update.alias)
    select = _simple_select(target, update.ctes, alias, update.where, fields, "upsert")
    select = stage.with_same(select, compared)
    rows = stage.rows_sql(target, numbered, marked=not fates)
    unchanged = "" if fates else stage.unchanged_sql()
    structs = _structs(values, target)
    inside = (f"{_with(update.ctes)}SELECT {structs} FROM ({target.snapshot}) AS {alias} LIMIT 0",) if structs else ()
    plan = Compiled(select, (), rows, unchanged_sql=unchanged, assigned=frozenset(cast), inside_sqls=inside)
    plan = _with_places(plan, target)
    if not changed:
        return plan
    moves = tuple(stage.move_checks(target, False))
    moving = stage.moving_rows_sql(target, marked=not fates)
    return replace(plan, stage_sql=_with_new_path(select, target), move_checks=moves, moving_rows_sql=moving)


def compile_delete(statement: Delete, target: Target, numbered: bool = False) -> Compiled:
    """DELETE FROM t WHERE: keys and partitions of the rows that match."""
    delete = translated(statement) if statement.spark else statement
    alias = quote(delete.alias)
    kept = [c for c in target.columns if c in target.key_fields or c in target.partition_fields]
    fields = [f"{alias}.{quote(c)} AS {quote(c)}" for c in kept]
    target = _told_by_key(target, delete.where, delete.alias)
    select = _simple_select(target, delete.ctes, alias, delete.where, fields, "delete")
    number = ', rowid AS "__lakesql_number"' if numbered else ""
    columns = ", ".join([*map(quote, kept), OP, KEY, PATH]) if target.placed else "*"
    return _with_places(Compiled(select, (), f"SELECT {columns}{number} FROM {STAGE}"), target)


def _told_by_key(target: Target, where: Text | None, alias: str) -> Target:
    """The target with the places of its rows only where they tell where the keys are."""
    by_key = bool(target.placed) and places.chosen_by_key(where.sql if where else None, alias, target)
    return target if by_key else replace(target, placed="")


def _with_places(plan: Compiled, target: Target) -> Compiled:
    if not target.placed:
        return plan
    return replace(plan, found_sql=places.found_sql(target, False), doubts_sql=places.doubts_sql(target))


def value_of(text: Text) -> str:
    """A value as it is written. DEFAULT is NULL: Hudi tables have no column defaults."""
    return "NULL" if text.sql.strip().upper() == "DEFAULT" else text.sql


def _simple_select(target: Target, ctes: str, alias: str, where: Text | None, fields: Sequence[str], op: str) -> str:
    placed = places.fields(alias, target) if target.placed else []
    select = ", ".join([*fields, f"{literal(op)} AS {OP}", f"{alias}.{KEY}", f"{alias}.{PATH}", *placed])
    condition = f"\nWHERE {where.sql}" if where else ""
    return f"{_with(ctes)}SELECT {select}\nFROM ({target.placed or target.snapshot}) AS {alias}{condition}"


def _with_new_path(select: str, target: Target) -> str:
    """The stage with the partition path that each moving row goes to; a path that is the same is no move."""
    path = f"CASE WHEN {OP} = 'upsert' AND {stage.PATH_CHANGED} THEN nullif({target.path_sql}, {PATH}) END"
    return f"SELECT * EXCLUDE ({stage.PATH_CHANGED}), {path} AS {stage.NEW_PATH} FROM (\n{select})"


def _not_late(values: Mapping[str, str], target: Target, alias: str) -> str:
    """Condition, to be added with AND, under which a new row is not late against the row it replaces."""
    if not target.event_time or not any(f in values for f in target.ordering_fields):
        return ""
    old = [f"{alias}.{quote(f)}" for f in target.ordering_fields]
    new = [values.get(f, o) for f, o in zip(target.ordering_fields, old, strict=True)]
    rows = [", ".join(f"{v} IS NOT NULL, {v}" for v in row) for row in (new, old)]
    return f" AND row({rows[0]}) >= row({rows[1]})"


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
    for assignment in clause.assignments or ():
        name = assignment.column.lower()
        if name in names.source and name not in META_COLUMNS and find(name, names.target.columns) is None:
            raise SQLError(
                f"{names.target.name} has no column {assignment.column}, the source has. SET {EVOLVE} = true lets the "
                "statement add it."
            )
    if clause.action in ("nothing", "delete", "error"):
        values = {}
    elif clause.assignments is None:
        values = _star(clause, names)
    elif clause.by_position:
        values = _by_position(clause.assignments, names.target)
    else:
        values = _assigned(clause.assignments, names.target, quote(names.target_alias))
    _check_references(clause, names)
    if clause.action == "insert":
        _check_insert(values, names.target)
    return _Action(clause, values)


def _star(clause: Clause, names: Names) -> dict[str, str]:
    missing = [c for c in names.target.columns if c.lower() not in names.source]
    if missing and not names.target.evolves:
        verb = "UPDATE SET *" if clause.action == "update" else "INSERT *"
        raise SQLError(
            f"{verb} needs every column of {names.target.name} in the source; missing: {', '.join(missing)}. "
            "Add them to the source, or list the columns."
        )
    alias = quote(names.source_alias)
    return {c: f"{alias}.{quote(names.source[c.lower()])}" for c in names.target.columns if c not in missing}


def _by_position(assignments: Sequence[Assignment], target: Target) -> dict[str, str]:
    if len(assignments) != len(target.columns):
        raise SQLError(
            f"INSERT VALUES has {counted(len(assignments), 'value')}, {target.name} has {counted(len(target.columns), 'column')}: "
            f"{', '.join(target.columns)}."
        )
    return {c: value_of(a.value) for c, a in zip(target.columns, assignments, strict=True)}


def _assigned(assignments: Sequence[Assignment], target: Target, alias: str) -> dict[str, str]:
    """Column -> value; fields of a struct that are set come as the struct with the other fields as stored."""
    values: dict[str, str] = {}
    fields: dict[str, dict[Path, str]] = {}
    for assignment in assignments:
        column = column_of(assignment.column, target)
        if assignment.path:
            fields.setdefault(column, {})[assignment.path] = value_of(assignment.value)
            continue
        if column in values:
            raise SQLError(f"column {column} is given twice.")
        values[column] = value_of(assignment.value)
    for column, given in fields.items():
        values[column] = with_fields(f"{alias}.{quote(column)}", target.columns[column], given, column)
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
    texts += [clause.message] if clause.message else []
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


def _changed_sql(actions: Sequence[_Action], names: Names, fields: Sequence[str]) -> str:
    """Condition under which an update gives one of the columns another value; '' when none can.

    Asked even of columns that ON compares: '01' = 1 and 0.0 = -0.0 there, and they are different keys.
    """
    target, alias = names.target, quote(names.target_alias)
    cases = []
    for number, action in enumerate(actions):
        if action.clause.action != "update":
            continue
        cast = {column: _cast(value, column, target) for column, value in action.values.items()}
        changed = [
            _differ(f"{alias}.{quote(column)}", cast[column], target.columns[column])
            for column in fields
            if column in cast
        ]
        if changed:
            late = _not_late(cast, target, alias) if fields == target.partition_fields else ""
            condition = " OR ".join(changed)
            cases.append(f"WHEN {number} THEN {f'({condition}){late}' if late else condition}")
    return f"coalesce(CASE {_ACTION} {' '.join(cases)} END, false)" if cases else ""


def _is_paired(column: str, value: str, on: On) -> bool:
    """Whether the value is what ON says the column equals."""
    pair = on.pairs.get(column)
    return pair is not None and dialect.same_expression(pair, value)


def _differ(stored: str, value: str, kind: str) -> str:
    """Whether a value is another one than the stored one, as keys and paths are spelt."""
    if kind in ("FLOAT", "DOUBLE"):
        return f"CAST({stored} AS VARCHAR) IS DISTINCT FROM CAST({value} AS VARCHAR)"
    return f"{stored} IS DISTINCT FROM {value}"


def _cast(value: str, column: str, target: Target) -> str:
    kind = target.columns[column]
    cast = f"CAST({value} AS {kind})"
    if column in (*target.key_fields, *target.partition_fields, *target.ordering_fields):
        what = f"{target.name}: column {column}"
        cast = exact_cast(value, kind, what) if target.checks_casts else f"CAST({cast} AS {kind})"
    # A collation of the source would make keys equal that are not.
    return f"{cast} COLLATE C" if kind == "VARCHAR" else cast


# ---------------------------------------------------------------- the SELECT


def _merge_select(
    merge: Merge,
    names: Names,
    on: On,
    actions: Sequence[_Action],
    changed: tuple[str, str],
    wanted: _Wanted,
    compared: Sequence[str],
) -> str:
    target, t, s = names.target, quote(names.target_alias), quote(names.source_alias)
    join = _join(actions, wanted.fates)
    acting = {n: _OPS[a.clause.action] for n, a in enumerate(actions) if a.clause.action in _OPS}
    fields = []
    for column, kind in target.columns.items():
        values = _values_of(column, actions, names, wanted.duplicates)
        otherwise = _identity_of(column, names, on) if wanted.fates else "NULL" if wanted.all_matched else ""
        fields.append(f"{_choose(values, kind, len(acting), otherwise)} AS {quote(column)}")
    no_op = "NULL" if wanted.fates or wanted.all_matched else ""
    ops = _choose({n: literal(op) for n, op in acting.items()}, "VARCHAR", len(acting), no_op)
    fields += [f"{ops} AS {OP}", f"{t}.{KEY}", f"{t}.{PATH}", f"{s}.{ROW}"]
    fields += [f"{t}.{quote(c)} AS {stage.stored(c)}" for c in compared]
    fields += [
        f"{sql} AS {name}" for sql, name in zip(changed, (stage.REKEYED, stage.PATH_CHANGED), strict=True) if sql
    ]
    if wanted.placed:
        fields += places.fields(t, target)
    messages = {n: _message(a.clause) for n, a in enumerate(actions) if a.clause.action == "error"}
    if messages or wanted.fates:
        fields.append(f"{_ACTION} + 1 AS {CLAUSE}")
    if messages:
        fields.append(f"{_choose(messages, 'VARCHAR', len(acting))} AS {ERROR}")
    kept = f" OR {s}.{ROW} IS NOT NULL" if wanted.fates else f" OR {t}.{KEY} IS NOT NULL" if wanted.all_matched else ""
    rows = target.placed if wanted.placed else target.part or target.snapshot
    newline = ",\n       "
    return (
        f"{_with(merge.ctes)}SELECT {newline.join(fields)}\n"
        f"FROM (SELECT *, row_number() OVER () AS {ROW} FROM {merge.source.sql}) AS {s}\n"
        f"{join} JOIN (SELECT *, true AS {_MARK} FROM ({rows})) AS {t} ON ({on.sql}),\n"
        f"LATERAL (SELECT {_pick(actions, join, t, s, wanted.fates)} AS {_ACTION}) AS {_CHOICE}\n"
        f"WHERE {_ACTION} IS NOT NULL{kept}"
    )


def _join(actions: Sequence[_Action], fates: bool) -> str:
    kinds = {a.clause.kind for a in actions if a.clause.action != "nothing"}
    return {
        (False, False): "INNER", (True, False): "LEFT", (False, True): "RIGHT", (True, True): "FULL",
    }["not_matched" in kinds or fates, "by_source" in kinds]  # fmt: skip


def _message(clause: Clause) -> str:
    """What THEN ERROR says of a row."""
    return f"CAST({clause.message.sql} AS VARCHAR)" if clause.message else literal("a row that must not be there")


def _identity_of(column: str, names: Names, on: On) -> str:
    """What tells which row it is when no clause applies: the stored value, or what ON compares it with."""
    target = names.target
    if column not in target.key_fields and column not in target.partition_fields:
        return "NULL"
    stored, given = f"{quote(names.target_alias)}.{quote(column)}", on.pairs.get(column)
    return f"coalesce({stored}, {_cast(given, column, target)})" if given else stored


def _pick(actions: Sequence[_Action], join: str, t: str, s: str, fates: bool) -> str:
    """The number of the clause that applies; NULL for none, and for DO NOTHING unless `fates` are asked for."""
    matched = {"INNER": "", "LEFT": f"{t}.{_MARK}", "RIGHT": f"{s}.{ROW} IS NOT NULL"}
    exists = {
        "matched": matched.get(join, f"{t}.{_MARK} AND {s}.{ROW} IS NOT NULL"),
        "not_matched": f"{t}.{_MARK} IS NULL",
        "by_source": f"{s}.{ROW} IS NULL",
    }
    whens = []
    for number, action in enumerate(actions):
        condition = f"({action.clause.condition.sql})" if action.clause.condition else ""
        both = " AND ".join(part for part in (exists[action.clause.kind], condition) if part) or "true"
        result = "NULL" if action.clause.action == "nothing" and not fates else str(number)
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
        elif action.clause.action == "error" and identity:
            values[number] = _error_identity(column, action.clause, names)
        elif action.clause.action == "delete" and duplicates == "ordering" and column in target.ordering_fields:
            # A delete among several source rows of one key is weighed by the source's ordering value.
            given = names.source.get(column.lower())
            if given:
                values[number] = _cast(f"{quote(names.source_alias)}.{quote(given)}", column, target)
    return values


def _error_identity(column: str, clause: Clause, names: Names) -> str:
    """The key that an error names: of the source's column of that name where there is no target row."""
    if clause.kind != "not_matched":
        return f"{quote(names.target_alias)}.{quote(column)}"
    given = names.source.get(column.lower())
    return _cast(f"{quote(names.source_alias)}.{quote(given)}", column, names.target) if given else "NULL"


def _choose(values: Mapping[int, str], kind: str, clauses: int, otherwise: str = "") -> str:
    """One CASE over the clause numbers; numbers with one value share a branch, `clauses` with one value need no CASE.

    `otherwise`: the value for rows of no clause; '' when there are none.
    """
    if not values:
        return otherwise if otherwise not in ("", "NULL") else f"CAST(NULL AS {kind})"
    branches: dict[str, list[int]] = {}
    for number, value in values.items():
        branches.setdefault(value, []).append(number)
    if len(branches) == 1 and len(values) == clauses and not otherwise:
        return next(iter(branches))
    whens = []
    for value, numbers in branches.items():
        test = f"= {numbers[0]}" if len(numbers) == 1 else f"IN ({', '.join(map(str, numbers))})"
        whens.append(f"WHEN {_ACTION} {test} THEN {value}")
    return f"CASE {' '.join(whens)}{f' ELSE {otherwise}' if otherwise not in ('', 'NULL') else ''} END"


def _sure_new(action: _Action, target: Target, on: On) -> bool:
    """Whether a row that ON did not match cannot have a key of the table."""
    if on.extra:
        return False
    fields = (*target.key_fields, *(f for f in target.partition_fields if f in on.pairs))
    return all(f in action.values and _is_paired(f, action.values[f], on) for f in fields)
