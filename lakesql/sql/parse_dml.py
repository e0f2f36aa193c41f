"""Parsers of the statements that change rows: MERGE, UPDATE, DELETE, INSERT, TRUNCATE.

Each takes a cursor at its verb and gives the statement, or None when the target is not a Hudi table of ours: then the
text belongs to DuckDB. What we know and do not do is refused here by name, before anything runs.
"""

from collections.abc import Callable

from lakesql.counted import counted
from lakesql.sql.cursor import Cursor
from lakesql.sql.lexer import IDENTIFIERS
from lakesql.sql.nodes import Assignment, Clause, Delete, Insert, Merge, Name, Text, Truncate, Update

IsHudi = Callable[[Name], bool]

_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")


def merge(cursor: Cursor, is_hudi: IsHudi, ctes: str = "") -> Merge | None:
    """MERGE [WITH SCHEMA EVOLUTION] INTO t [AS a] USING s [AS b] ON cond WHEN ... THEN ... [RETURNING ...]"""
    cursor.expect("MERGE")
    evolves = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = cursor.name("the table to merge into")
    if not is_hudi(target):
        return None
    alias = _alias(cursor, target, "USING")
    cursor.expect("USING")
    source, source_alias = _source(cursor)
    on: Text | None = None
    using_columns: tuple[str, ...] = ()
    if cursor.accept("USING"):
        using_columns = tuple(cursor.list_of_names("a column"))
    else:
        cursor.expect("ON")
        on = cursor.until("a condition", "WHEN")
    clauses = []
    while cursor.sees("WHEN"):
        clauses.append(_clause(cursor, alias, target))
    returning = _returning(cursor)
    if not clauses:
        cursor.fail(f"expected WHEN MATCHED or WHEN NOT MATCHED, found {cursor.shown()}")
    cursor.finish()
    _no_unreachable(cursor, clauses)
    return Merge(
        target, alias, source, source_alias, on, using_columns, tuple(clauses), ctes, cursor.spark, returning, evolves
    )


def _no_unreachable(cursor: Cursor, clauses: list[Clause]) -> None:
    """A clause behind one of its kind without condition can never apply: surely a mistake."""
    final: set[str] = set()
    for clause in clauses:
        if clause.kind in final:
            cursor.fail("this clause never applies: an earlier one of its kind has no condition", clause.start)
        if clause.condition is None:
            final.add(clause.kind)


def _alias(cursor: Cursor, target: Name, *keywords: str) -> str:
    if cursor.accept("AS"):
        return cursor.identifier("an alias")
    if cursor.peek().kind in IDENTIFIERS and cursor.peek().word not in keywords:
        return cursor.identifier("an alias")
    return target[-1].rstrip("/").rsplit("/", 1)[-1]


def _source(cursor: Cursor) -> tuple[Text, str | None]:
    """The FROM item behind USING as text, and the name its columns go by."""
    start = cursor.at
    item = cursor.until("a table or a query in parentheses", "ON", "USING", "WHEN")
    taken = cursor.tokens[start : cursor.at]
    if taken[0].word in _QUERY_WORDS:
        cursor.fail("the query behind USING must stand in parentheses", taken[0].start)
    inner = Cursor(cursor.text, taken)
    name: str | None = None
    if inner.sees("("):
        inner.bracketed("a query")
    else:
        parts = inner.name("a table")
        name = parts[-1]
        if inner.sees("("):
            inner.bracketed("arguments")
            name = None
    last = None
    if not inner.done and taken[-1].text == ")":
        # alias (columns)
        opening = max(i for i, t in enumerate(taken) if t.text == "(")
        last = taken[opening - 1] if opening > inner.at else None
    elif not inner.done:
        last = taken[-1]
    return item, last.name if last is not None and last.kind in IDENTIFIERS else name


def _clause(cursor: Cursor, alias: str, target: Name) -> Clause:
    start = cursor.peek().start
    cursor.expect("WHEN")
    kind = "not_matched" if cursor.accept("NOT") else "matched"
    cursor.expect("MATCHED")
    if kind == "not_matched" and cursor.accept("BY"):
        if cursor.accept("SOURCE"):
            kind = "by_source"
        else:
            cursor.expect("TARGET")
    condition = cursor.until("a condition", "THEN") if cursor.accept("AND") else None
    cursor.expect("THEN")
    if cursor.accept("ERROR"):
        ends = cursor.done or cursor.peek().word in ("WHEN", "RETURNING")
        message = None if ends else cursor.until("a message", "WHEN", "RETURNING")
        return Clause(kind, "error", condition, None, start, message=message)
    if cursor.accept("DO", "NOTHING"):
        return Clause(kind, "nothing", condition, None, start)
    allowed = "INSERT" if kind == "not_matched" else "UPDATE or DELETE"
    if cursor.peek().word not in allowed.split(" or "):
        cursor.fail(f"expected {allowed.replace(' or ', ', ')}, DO NOTHING or ERROR, found {cursor.shown()}")
    if cursor.accept("DELETE"):
        return Clause(kind, "delete", condition, None, start)
    if cursor.accept("UPDATE"):
        return Clause(kind, "update", condition, _update(cursor, kind, alias, target), start)
    cursor.expect("INSERT")
    assignments, by_position = _insert(cursor, alias, target)
    return Clause(kind, "insert", condition, assignments, start, by_position)


def _update(cursor: Cursor, kind: str, alias: str, target: Name) -> tuple[Assignment, ...] | None:
    """What UPDATE sets; None for `*`."""
    if cursor.accept("BY", "NAME") or cursor.accept("SET", "*"):
        if cursor.peek().word in ("EXCEPT", "EXCLUDE"):
            cursor.refuse("UPDATE SET * EXCEPT", "List the columns to set.")
        if kind == "by_source":
            cursor.fail("a row without source row has nothing to set by *; list the columns")
        return None
    if not cursor.sees("SET"):
        cursor.refuse("UPDATE without SET", "Write UPDATE SET * (by name) or list the columns.")
    cursor.expect("SET")
    return _assignments(cursor, alias, target, "WHEN", "RETURNING")


def _insert(cursor: Cursor, alias: str, target: Name) -> tuple[tuple[Assignment, ...] | None, bool]:
    """What INSERT gives each column, None for `*`; and whether the values go by position."""
    if cursor.accept("*") or cursor.accept("BY", "NAME"):
        if cursor.peek().word in ("EXCEPT", "EXCLUDE"):
            cursor.refuse("INSERT * EXCEPT", "List the columns to insert.")
        return None, False
    if cursor.sees("DEFAULT", "VALUES"):
        cursor.refuse("INSERT DEFAULT VALUES", "Hudi tables have no column defaults; list columns and values.")
    columns: list[tuple[str, int]] = []
    if cursor.accept("("):
        columns.append(_column(cursor, alias, target))
        while cursor.accept(","):
            columns.append(_column(cursor, alias, target))
        cursor.expect(")")
    if not cursor.sees("VALUES"):
        cursor.refuse("INSERT without VALUES", "Write INSERT * (by name) or INSERT (columns) VALUES (...).")
    cursor.expect("VALUES")
    opening = cursor.peek()
    cursor.expect("(")
    values = [cursor.until("a value", ",")]
    while cursor.accept(","):
        values.append(cursor.until("a value", ","))
    cursor.expect(")")
    if columns and len(columns) != len(values):
        cursor.fail(f"{counted(len(columns), 'column')} but {counted(len(values), 'value')}", opening.start)
    if columns:
        pairs = zip(columns, values, strict=True)
        return tuple(Assignment(name, value, start) for (name, start), value in pairs), False
    return tuple(Assignment("", value, value.start) for value in values), True


def _assignments(cursor: Cursor, alias: str, target: Name, *stops: str) -> tuple[Assignment, ...]:
    found: list[Assignment] = []
    while True:
        if cursor.sees("("):
            cursor.refuse("SET (a, b) = (...)", "Set one column at a time.")
        (name, *below), start = _path(cursor, alias, target)
        if cursor.sees("["):
            cursor.refuse("setting an element of a list or map", "Set the whole column.")
        cursor.expect("=")
        value = cursor.until("a value", ",", *stops, stop_if=_at_clause(stops))
        found.append(Assignment(name, value, start, tuple(below)))
        if not cursor.accept(","):
            break
    names = [[part.lower() for part in (a.column, *a.path)] for a in found]
    for number, (place, assignment) in enumerate(zip(names, found, strict=True)):
        # A field and the struct around it are the same place.
        if any(place[: len(other)] == other[: len(place)] for other in names[:number]):
            cursor.fail(f"column {'.'.join((assignment.column, *assignment.path))} is set twice", assignment.start)
    return tuple(found)


def _at_clause(stops: tuple[str, ...]) -> Callable[[Cursor], bool]:
    """FROM ends an expression unless it belongs to IS DISTINCT FROM."""

    def stop(cursor: Cursor) -> bool:
        return "WHERE" in stops and cursor.sees("FROM") and cursor.peek(-1).word != "DISTINCT"

    return stop


def _path(cursor: Cursor, alias: str, target: Name) -> tuple[Name, int]:
    """A column on the left side with the fields below it; `t.x` and `x` are the same."""
    start = cursor.peek().start
    parts = cursor.name("a column")
    if len(parts) > 1 and parts[0].lower() in (alias.lower(), target[-1].lower()):
        parts = parts[1:]
    return parts, start


def _column(cursor: Cursor, alias: str, target: Name) -> tuple[str, int]:
    """A whole column of a column list; `t.x` and `x` are the same."""
    parts, start = _path(cursor, alias, target)
    if len(parts) > 1:
        cursor.refuse(f"inserting the struct field {'.'.join(parts)}", f"Give the whole column {parts[0]}.")
    return parts[0], start


def update(cursor: Cursor, is_hudi: IsHudi, ctes: str = "") -> Update | None:
    """UPDATE t [AS a] SET x = e, ... [WHERE cond] [RETURNING ...]"""
    cursor.expect("UPDATE")
    target = cursor.name("the table to update")
    if not is_hudi(target):
        return None
    alias = _alias(cursor, target, "SET")
    cursor.expect("SET")
    assignments = _assignments(cursor, alias, target, "WHERE", "RETURNING")
    if cursor.sees("FROM"):
        cursor.refuse("UPDATE ... FROM", "Write it as MERGE INTO ... WHEN MATCHED THEN UPDATE.")
    where = cursor.until("a condition", "RETURNING") if cursor.accept("WHERE") else None
    returning = _returning(cursor)
    cursor.finish()
    return Update(target, alias, assignments, where, ctes, cursor.spark, returning)


def delete(cursor: Cursor, is_hudi: IsHudi, ctes: str = "") -> Delete | None:
    """DELETE FROM t [AS a] [WHERE cond] [RETURNING ...]"""
    cursor.expect("DELETE")
    cursor.accept("FROM")
    target = cursor.name("the table to delete from")
    if not is_hudi(target):
        return None
    alias = _alias(cursor, target, "WHERE", "USING", "RETURNING")
    if cursor.sees("USING"):
        cursor.refuse("DELETE ... USING", "Write it as MERGE INTO ... WHEN MATCHED THEN DELETE.")
    where = cursor.until("a condition", "RETURNING") if cursor.accept("WHERE") else None
    returning = _returning(cursor)
    cursor.finish()
    return Delete(target, alias, where, ctes, cursor.spark, returning)


def insert(cursor: Cursor, is_hudi: IsHudi, ctes: str = "") -> Insert | None:
    """INSERT INTO | OVERWRITE [TABLE] t [PARTITION (...)] [(columns)] [BY NAME] query [RETURNING ...]"""
    cursor.expect("INSERT")
    replaces = cursor.accept("OR", "REPLACE") or cursor.accept("OR", "IGNORE")
    overwrite = cursor.accept("OVERWRITE")
    if not overwrite or cursor.sees("INTO"):
        cursor.expect("INTO")
    cursor.accept("TABLE")
    target = cursor.name("the table to insert into")
    if not is_hudi(target):
        return None
    if replaces:
        cursor.refuse("INSERT OR REPLACE | IGNORE", _DUPLICATES)
    partition = _partition(cursor)
    if cursor.sees("IF"):
        cursor.refuse("INSERT OVERWRITE ... IF NOT EXISTS", "Check with hudi_partitions('t') first.")
    if cursor.sees("REPLACE"):
        cursor.refuse("INSERT INTO ... REPLACE WHERE", "DELETE the rows first, or INSERT OVERWRITE partitions.")
    columns = None
    if cursor.sees("(") and cursor.peek(1).word not in _QUERY_WORDS and cursor.peek(1).text != "(":
        columns = tuple(_column(inner, target[-1], target)[0] for inner in _items(cursor))
    by_name = cursor.accept("BY", "NAME")
    if not by_name:
        cursor.accept("BY", "POSITION")
    if by_name and columns is not None:
        cursor.fail("a column list and BY NAME exclude each other")
    if cursor.sees("DEFAULT", "VALUES"):
        cursor.refuse("INSERT DEFAULT VALUES", "Hudi tables have no column defaults; give the values.")
    if cursor.peek().word not in _QUERY_WORDS and not cursor.sees("("):
        cursor.fail(f"expected SELECT or VALUES, found {cursor.shown()}")
    source = cursor.until("a query", "RETURNING", stop_if=lambda c: c.sees("ON", "CONFLICT"))
    if cursor.sees("ON"):
        cursor.refuse("INSERT ... ON CONFLICT", _DUPLICATES)
    if overwrite and cursor.sees("RETURNING"):
        cursor.refuse("INSERT OVERWRITE ... RETURNING", "SELECT from the table afterwards.")
    returning = _returning(cursor)
    cursor.finish()
    return Insert(target, columns, by_name, overwrite, partition, source, ctes, cursor.spark, returning)


_DUPLICATES = "SET hoodie.spark.sql.insert.into.operation = 'upsert', or use MERGE INTO."


def _items(cursor: Cursor) -> list[Cursor]:
    """The items of `(a, b)`, each with a cursor of its own."""
    cursor.expect("(")
    found = []
    while True:
        start = cursor.at
        cursor.until("a column", ",")
        found.append(Cursor(cursor.text, cursor.tokens[start : cursor.at]))
        if not cursor.accept(","):
            cursor.expect(")")
            return found


def _partition(cursor: Cursor) -> tuple[tuple[str, Text | None], ...]:
    if not cursor.accept("PARTITION"):
        return ()
    cursor.expect("(")
    found: list[tuple[str, Text | None]] = []
    while True:
        name = cursor.identifier("a partition column")
        found.append((name, cursor.until("a value", ",") if cursor.accept("=") else None))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(found)


def truncate(cursor: Cursor, is_hudi: IsHudi) -> Truncate | None:
    """TRUNCATE [TABLE] t"""
    cursor.expect("TRUNCATE")
    cursor.accept("TABLE")
    target = cursor.name("the table to empty")
    if not is_hudi(target):
        return None
    if cursor.sees("PARTITION"):
        cursor.refuse("TRUNCATE ... PARTITION", "DELETE FROM the table WHERE the partition columns have these values.")
    cursor.finish()
    return Truncate(target)


def _returning(cursor: Cursor) -> tuple[Text, ...]:
    """The items behind RETURNING; none when it is not there."""
    if not cursor.accept("RETURNING"):
        return ()
    items = [cursor.until("a column", ",")]
    while cursor.accept(","):
        items.append(cursor.until("a column", ","))
    return tuple(items)
