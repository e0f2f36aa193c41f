"""Parsers of the statements about tables and settings: CREATE, DROP, SHOW, SET, RESET; and what is refused.

CREATE TABLE is ours when it says USING hudi, the others when they name a Hudi table. `refuse` knows the statements
of Hudi's SQL that lakesql does not run, and keeps every other statement that would change a Hudi table from DuckDB.
"""

from collections.abc import Callable, Sequence

from lakesql.errors import Unsupported
from lakesql.sql.cursor import Cursor, string_value
from lakesql.sql.lexer import IDENTIFIERS, Token, line_and_column
from lakesql.sql.nodes import (
    Column,
    CreateTable,
    DropTable,
    Name,
    ResetSetting,
    SetSetting,
    Show,
    ShowColumns,
    ShowProperties,
    ShowTables,
    Text,
)  # fmt: skip

IsHudi = Callable[[Name], bool]

_OWN_PREFIXES = ("hoodie.", "spark.hoodie.", "lakesql.")
_COLUMN_END = (
    "NOT",
    "NULL",
    "COMMENT",
    "DEFAULT",
    "PRIMARY",
    "UNIQUE",
    "CHECK",
    "GENERATED",
    "REFERENCES",
    "COLLATE",
    ",",
)


def create_table(cursor: Cursor) -> CreateTable | None:
    """CREATE [EXTERNAL] TABLE [IF NOT EXISTS] t [(columns)] USING hudi ... [AS query]; None without USING hudi."""
    if not _uses_hudi(cursor):
        _refuse_other_format(cursor)
        return None
    cursor.expect("CREATE")
    if cursor.sees("OR", "REPLACE"):
        cursor.refuse("CREATE OR REPLACE TABLE ... USING hudi", "DROP TABLE first, or INSERT OVERWRITE the rows.")
    if cursor.peek().word in ("TEMP", "TEMPORARY"):
        cursor.refuse("a temporary Hudi table", "Leave TEMP out, or leave USING hudi out.")
    cursor.accept("EXTERNAL")
    cursor.expect("TABLE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    target = cursor.name("a table name")
    if cursor.sees("LIKE"):
        cursor.refuse("CREATE TABLE ... LIKE", "List the columns, or use AS SELECT ... LIMIT 0.")
    columns = _columns(cursor) if cursor.sees("(") else []
    cursor.expect("USING")
    cursor.identifier("hudi")
    partitioned_by, location, comment, properties = _table_clauses(cursor, columns)
    query = None
    if cursor.accept("AS") or (not cursor.done and cursor.peek().word in ("SELECT", "WITH")):
        if columns:
            cursor.fail("a column list and AS SELECT exclude each other; the query gives names and types")
        query = cursor.until("a query", "RETURNING")
    cursor.finish()
    return CreateTable(
        target, if_not_exists, tuple(columns), partitioned_by, location, comment, properties, query, cursor.spark
    )


def _uses_hudi(cursor: Cursor) -> bool:
    at = _format_at(cursor)
    return at is not None and cursor.tokens[at].name.lower() == "hudi"


def _refuse_other_format(cursor: Cursor) -> None:
    """DuckDB has no USING here, so a statement that names a format is meant for an engine that has."""
    at = _format_at(cursor)
    if at is not None:
        cursor.at = at
        cursor.refuse(
            f"CREATE TABLE ... USING {cursor.peek().name}",
            "USING hudi makes a Hudi table; without USING it is DuckDB's.",
        )


def _format_at(cursor: Cursor) -> int | None:
    """CREATE ... TABLE ... USING format: where the format stands, outside of brackets and before any AS."""
    depth, words = 0, [t.word for t in cursor.tokens[:5]]
    if "TABLE" not in words:
        return None
    for i, token in enumerate(cursor.tokens):
        if token.kind == "op" and token.text in "()":
            depth += 1 if token.text == "(" else -1
        elif depth == 0 and token.word == "AS":
            return None
        elif depth == 0 and token.word == "USING":
            named = i + 1 < len(cursor.tokens) and cursor.tokens[i + 1].kind in IDENTIFIERS
            return i + 1 if named else None
    return None


def _columns(cursor: Cursor) -> list[Column]:
    cursor.expect("(")
    found = [_column_def(cursor)]
    while cursor.accept(","):
        found.append(_column_def(cursor))
    cursor.expect(")")
    return found


def _column_def(cursor: Cursor) -> Column:
    if cursor.sees("PRIMARY", "KEY"):
        cursor.refuse("PRIMARY KEY (...)", "Use TBLPROPERTIES (primaryKey = 'a,b').")
    name = cursor.identifier("a column name")
    cursor.accept(":")
    return _typed(cursor, name)


def _typed(cursor: Cursor, name: str) -> Column:
    kind = cursor.until("a type", *_COLUMN_END, angles=True)
    nullable, comment = True, None
    while True:
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("NULL"):
            nullable = True
        elif cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        elif cursor.sees("PRIMARY"):
            cursor.refuse("PRIMARY KEY on a column", f"Use TBLPROPERTIES (primaryKey = '{name}').")
        elif cursor.peek().word in _COLUMN_END:
            cursor.refuse(
                f"{cursor.peek().word} on a column of a Hudi table", "Hudi stores no such rule; leave it out."
            )
        else:
            return Column(name, kind, nullable, comment)


def _table_clauses(
    cursor: Cursor, columns: list[Column]
) -> tuple[tuple[str, ...], str | None, str | None, dict[str, str]]:
    """The clauses between USING hudi and AS, in any order."""
    partitioned_by: tuple[str, ...] = ()
    location = comment = None
    found: dict[str, str] = {}
    while not cursor.done and cursor.peek().word not in ("AS", "SELECT", "WITH"):
        if cursor.accept("PARTITIONED", "BY"):
            partitioned_by = _partitioned_by(cursor, columns)
        elif cursor.accept("LOCATION"):
            location = cursor.string("a path")
        elif cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        elif cursor.accept("TBLPROPERTIES") or cursor.accept("OPTIONS"):
            found |= properties(cursor)
        elif cursor.sees("CLUSTERED") or cursor.sees("SORTED") or cursor.sees("CLUSTER"):
            cursor.refuse(f"{cursor.peek().word} BY", "Hudi's bucket index is not written by lakesql; leave it out.")
        else:
            cursor.fail(
                "expected PARTITIONED BY, LOCATION, COMMENT, TBLPROPERTIES, OPTIONS or AS SELECT, "
                f"found {cursor.shown()}"
            )
    return partitioned_by, location, comment, found


def _partitioned_by(cursor: Cursor, columns: list[Column]) -> tuple[str, ...]:
    """Names; a name with a type defines the column, as in Hive."""
    cursor.expect("(")
    names = []
    while True:
        start = cursor.peek().start
        name = cursor.identifier("a partition column")
        if cursor.sees("("):
            cursor.refuse(f"the partition transform {name}(...)", "Partition by a column.")
        if not cursor.sees(",") and not cursor.sees(")"):
            if any(c.name.lower() == name.lower() for c in columns):
                cursor.fail(f"column {name} is defined twice", start)
            columns.append(_typed(cursor, name))
        names.append(name)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(names)


def properties(cursor: Cursor) -> dict[str, str]:
    """`(key = 'value', 'a.b' = c)`: keys may be dotted words or quoted, values quoted, numbers or words."""
    cursor.expect("(")
    found: dict[str, str] = {}
    while not cursor.accept(")"):
        token = cursor.peek()
        key = string_value(cursor.next()) if token.kind in ("string", "quoted") else ".".join(cursor.name("a key"))
        if not cursor.accept("=") and not cursor.accept("=>") and not cursor.accept(":="):
            cursor.accept(":")
        if key in found:
            cursor.fail(f"property {key} is given twice", token.start)
        found[key] = _value(cursor.until("a value", ","), cursor)
        if not cursor.accept(",") and not cursor.sees(")"):
            cursor.fail(f"expected ',' or ')', found {cursor.shown()}")
    return found


def _value(text: Text, cursor: Cursor) -> str:
    """A setting's value: quotes taken off when it is one literal."""
    token = next(t for t in cursor.tokens if t.start == text.start)
    if token.kind in ("string", "quoted") and token.end == text.start + len(text.sql):
        return string_value(token)
    return text.sql


def drop_table(cursor: Cursor, is_hudi: IsHudi) -> DropTable | None:
    """DROP TABLE [IF EXISTS] t [PURGE]"""
    cursor.expect("DROP")
    if not cursor.accept("TABLE"):
        return None
    if_exists = cursor.accept("IF", "EXISTS")
    target = cursor.name("a table")
    if not is_hudi(target):
        return None
    if cursor.sees(","):
        cursor.refuse("DROP TABLE of several tables", "Drop a Hudi table in a statement of its own.")
    if cursor.accept("CASCADE") or cursor.accept("RESTRICT"):
        pass
    purge = cursor.accept("PURGE")
    cursor.finish()
    return DropTable(target, if_exists, purge)


def show(cursor: Cursor, is_hudi: IsHudi) -> Show | None:
    """SHOW TBLPROPERTIES t [('key')] | SHOW TABLES LIKE 'pattern' | SHOW COLUMNS IN t"""
    cursor.expect("SHOW")
    if cursor.accept("TABLES"):
        if not cursor.accept("LIKE"):
            return None
        pattern = cursor.string("a pattern")
        cursor.finish()
        return ShowTables(pattern)
    if cursor.accept("COLUMNS"):
        if not cursor.accept("IN"):
            cursor.expect("FROM")
        target = cursor.name("a table")
        cursor.finish()
        return ShowColumns(target)
    if not cursor.accept("TBLPROPERTIES"):
        return None
    target = cursor.name("a table")
    if not is_hudi(target):
        cursor.fail(f"{'.'.join(target)} is not a Hudi table of this connection", cursor.peek(-1).start)
    key = None
    if cursor.accept("("):
        token = cursor.peek()
        key = string_value(cursor.next()) if token.kind in ("string", "quoted") else ".".join(cursor.name("a key"))
        cursor.expect(")")
    cursor.finish()
    return ShowProperties(target, key)


def set_setting(cursor: Cursor) -> SetSetting | None:
    """SET hoodie.x = y | SET hoodie.x"""
    cursor.expect("SET")
    key = _setting_key(cursor)
    if key is None:
        return None
    if cursor.done:
        return SetSetting(key, None)
    if not cursor.accept("="):
        cursor.expect("TO")
    return SetSetting(key, _value(cursor.until("a value"), cursor))


def reset_setting(cursor: Cursor) -> ResetSetting | None:
    """RESET hoodie.x | RESET"""
    cursor.expect("RESET")
    if cursor.done:
        return ResetSetting(None)
    key = _setting_key(cursor)
    if key is None:
        return None
    cursor.finish()
    return ResetSetting(key)


def _setting_key(cursor: Cursor) -> str | None:
    """A dotted key that is ours, and past it; the prefix `spark.` of Hudi's own settings is dropped."""
    token = cursor.peek()
    if token.kind in ("quoted", "backtick"):
        key = cursor.next().name
    else:
        # Keys may hold dashes and digits, which are tokens of their own.
        end = cursor.at
        while end < len(cursor.tokens) and (end == cursor.at or cursor.tokens[end].start == cursor.tokens[end - 1].end):
            if cursor.tokens[end].text == "=":
                break
            end += 1
        if end == cursor.at:
            return None
        key = cursor.text[token.start : cursor.tokens[end - 1].end]
        cursor.at = end
    from lakesql.write.names_of_settings import OVERWRITE_MODE

    if not key.startswith((*_OWN_PREFIXES, OVERWRITE_MODE)):
        return None
    return key.removeprefix("spark.") if key.startswith("spark.hoodie.") else key


_LATER = "Hudi's SQL has it, lakesql does not; run it on Spark."
_KEYED = "Rows are found by their keys without it"
_SORTED = (
    "CALL run_clustering(table => 't', order => 'column') sorts rows by what queries filter, so that they skip files"
)
_HINTS = {
    ("SHOW", "PARTITIONS"): "FROM hudi_partitions('t') lists them.",
    ("SHOW", "CREATE", "TABLE"): "FROM hudi_properties('t') and hudi_schema('t') show what a table is.",
    ("SHOW", "INDEXES"): "SHOW TBLPROPERTIES t shows hoodie.index.type.",
    ("RUN", "COMPACTION"): "Write RUN COMPACTION ON t.",
    ("SCHEDULE", "COMPACTION"): "Write SCHEDULE COMPACTION ON t.",
    ("REFRESH", "INDEX"): "Every write keeps the filters of its files; leave it out.",
    ("REFRESH", "TABLE"): "Every statement reads the newest state of a table; leave it out.",
    ("MSCK",): "Partitions are found by listing; leave it out.",
}
_GUARDED = {
    "ALTER", "ANALYZE", "CACHE", "COMMENT", "COPY", "CREATE", "DROP", "OPTIMIZE", "REFRESH", "REPAIR", "UNCACHE", "VACUUM",
}  # fmt: skip


_KINDS = {"TABLE", "VIEW", "INDEX", "MACRO"}
_FILLERS = {"TABLE", "VIEW", "IF", "NOT", "EXISTS", "ON", "LAZY", "ANALYZE", "FULL", "VERBOSE"}


def refuse(cursor: Cursor, is_hudi: IsHudi) -> None:
    """Raise Unsupported for what we know and do not do, and for anything else that would change a Hudi table."""
    for words, hint in _HINTS.items():
        if cursor.sees(*words) and (len(cursor.tokens) > len(words) or words[0] != "SHOW"):
            cursor.refuse(" ".join(words), hint)
    first = cursor.peek().word
    if first in ("DESCRIBE", "DESC") and cursor.peek(1).word in ("EXTENDED", "FORMATTED", "HISTORY", "DETAIL"):
        cursor.refuse(
            f"{first} {cursor.peek(1).word}", "DESCRIBE t shows the columns, hudi_properties('t') the properties."
        )
    if first == "FROM":
        _refuse_from_insert(cursor, is_hudi)
    if first in _GUARDED:
        _guard(cursor, is_hudi, first)


def _refuse_from_insert(cursor: Cursor, is_hudi: IsHudi) -> None:
    for i, token in enumerate(cursor.tokens):
        if token.word == "INSERT" and is_hudi(_name_at(cursor.tokens, i + 2 + (cursor.peek(i + 2).word == "TABLE"))):
            cursor.refuse("FROM ... INSERT INTO", "Write INSERT INTO t SELECT ... FROM.")


def _guard(cursor: Cursor, is_hudi: IsHudi, first: str) -> None:
    """Refuse a statement of a kind that changes tables when it is aimed at one of ours."""
    words = [t.word for t in cursor.tokens]
    for place in _targets(cursor.tokens, words, first):
        name = _name_at(cursor.tokens, place)
        if name and is_hudi(name):
            verb = " ".join([first, *(w for w in words[1:place] if w in _KINDS)])
            line, column = line_and_column(cursor.text, cursor.tokens[place].start)
            raise Unsupported(
                f"{verb} on the Hudi table {'.'.join(name)} is not supported (line {line}, column {column}). "
                f"{_advice(first, words, place + 2 * len(name) - 1).format(t=name[-1])}"
            )


def _targets(tokens: Sequence[Token], words: list[str], first: str) -> list[int]:
    """Where the names of the tables stand that a statement creates, drops or changes; what it reads is left out."""
    if first == "COPY":
        # COPY t FROM 'file' writes into t, COPY t TO and COPY (query) TO read it.
        name_end = 1 + 2 * len(_name_at(tokens, 1)) - 1
        closing = next((i for i in range(name_end, len(tokens)) if tokens[i].text == ")"), name_end - 1)
        after = closing + 1 if tokens[name_end : name_end + 1] and tokens[name_end].text == "(" else name_end
        return [1] if words[after : after + 1] == ["FROM"] else []
    if "INDEX" in words[:4]:
        start = words.index("ON") + 1 if "ON" in words else len(words)
    elif first == "CREATE":
        kind = next((i for i, w in enumerate(words[:6]) if w in ("VIEW", "TABLE", "MACRO")), len(words))
        start = kind + 1
    else:
        start = 1
    while words[start : start + 1] and words[start] in _FILLERS:
        start += 1
    places = [start]
    if first == "DROP":
        places += [i + 1 for i in range(start, len(tokens)) if tokens[i].text == ","]
    return places


_ADVICE = {
    "ANALYZE": "Statistics are in its base files; leave it out.",
    "CACHE": "CREATE TEMP TABLE rows AS FROM {t} keeps its rows in memory.",
    "COMMENT": "Comments are given in CREATE TABLE; leave it out.",
    "COPY": "Write INSERT INTO {t} SELECT * FROM 'file'.",
    "OPTIMIZE": "CALL run_clustering(table => '{t}') makes few sorted files of many, RUN COMPACTION ON {t} folds the logs of a "
    "Merge-on-Read table.",
    "REFRESH": "Every statement reads the newest state of a table; leave it out.",
    "REPAIR": "CALL doctor(table => '{t}') says what is wrong with it and what mends that.",
    "UNCACHE": "DROP TABLE drops a copy made with CREATE TEMP TABLE.",
    "VACUUM": "CALL run_clean(table => '{t}') removes files that no retained state needs; RUN COMPACTION ON {t} folds logs.",
}
_ALTERING = {
    "ADD COLUMN": "SET lakesql.schema.evolve = true, and an INSERT ... BY NAME or a MERGE adds the columns that its query has and "
    "{t} lacks.",
    "ADD PARTITION": "A partition is there with its first row; leave it out.",
    "DROP PARTITION": "CALL drop_partition(table => '{t}', partition => 'path') takes its rows out.",
    "RENAME TO": "CREATE TABLE new_name USING hudi ... AS FROM {t} copies it; DROP TABLE {t} then.",
    "SET TBLPROPERTIES": "SET hoodie.x = y sets a writer's setting for this connection; what a table is, CREATE TABLE says.",
    "": "CREATE TABLE new_name USING hudi ... AS SELECT ... FROM {t} makes a table with other columns; or run it on Spark.",
}
"""What follows the table in ALTER TABLE, and what to do instead."""


def _advice(first: str, words: list[str], behind: int) -> str:
    """What to do instead; `behind`: where the name of the table ends. `{t}` stands for the table."""
    if first == "DROP" and "VIEW" in words[:3]:
        return "DROP TABLE removes it."
    if "INDEX" in words[:4]:
        return f"{_KEYED}, leave it out." if first == "DROP" else f"{_KEYED}. {_SORTED}.".replace("'t'", "'{t}'")
    if first == "CREATE":
        return "Choose another name, or DROP TABLE it first."
    if first == "ALTER":
        change = [w.removesuffix("S") for w in words[behind:] if w not in ("IF", "NOT", "EXISTS")][:2]
        named = {" ".join(w.removesuffix("S") for w in key.split()): text for key, text in _ALTERING.items()}
        return named.get(" ".join(change), _ALTERING["ADD COLUMN" if change[:1] == ["ADD"] else ""])
    return _ADVICE.get(first, _LATER)


def _name_at(tokens: Sequence[Token], place: int) -> Name:
    """The dotted name that starts there; empty when there is none."""
    parts: list[str] = []
    while place < len(tokens) and tokens[place].kind in IDENTIFIERS:
        parts.append(tokens[place].name)
        if place + 1 >= len(tokens) or tokens[place + 1].text != ".":
            break
        place += 2
    return tuple(parts)
