"""The parsers of ingestion: INGEST, EXPLAIN INGEST, and CREATE, RUN, SHOW, ALTER, DROP and REPLAY INGESTION.

What begins with INGEST, or names an INGESTION behind one of these verbs, is ours and never reaches DuckDB: its own parser
would print the statement, and with it the passwords among the options. Values of options stay texts here; the keys are
checked when the statement runs (`ingest`).
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import NoReturn

from lakesql.sql.cursor import Cursor
from lakesql.sql.lexer import IDENTIFIERS, Token
from lakesql.sql.nodes import (
    AlterIngestion,
    Call,
    CreateIngestion,
    DropIngestion,
    ExplainIngest,
    Ingest,
    Ingestion,
    Name,
    Option,
    Place,
    Places,
    ReplayIngestion,
    RunIngestion,
    SetOffsets,
    ShowIngestion,
    Text,
)  # fmt: skip
from lakesql.sql.parse_ddl import properties

FORMATS = ("JSON", "AVRO", "RAW", "STRING", "PYTHON")
OUTPUTS = {False: ("HUDI",), True: ("AVRO", "PARQUET", "TXT")}
_SIGNS = ("=>", ":=", "=", ":")
_NEAR = 0.7
_NEAR_NOUN = 0.85  # farther than that, a word may be a table's name
_CLAUSES = ("OPTIONS", "FORMAT", "USING", "TBLPROPERTIES", "PARTITIONED BY", "AS SELECT")


def statement(cursor: Cursor) -> Ingestion | Call | None:
    """The statement when it is about an ingestion, None otherwise. SQLError for one that is malformed."""
    verb = _verb(cursor)
    if verb is None:
        return None
    parsers: dict[str, Callable[[Cursor], Ingestion | Call]] = {
        "INGEST": ingest, "CREATE": _create, "RUN": _run, "SHOW": _show, "ALTER": _alter, "DROP": _drop, "REPLAY": _replay,
    }  # fmt: skip
    return parsers[verb](cursor)


def explained(cursor: Cursor) -> ExplainIngest | None:
    """What stands behind EXPLAIN when it is an INGEST or a RUN INGESTION."""
    verb = _verb(cursor)
    if verb is None:
        return None
    if verb == "INGEST":
        return ExplainIngest(ingest(cursor))
    if verb == "REPLAY":
        return ExplainIngest(_replay(cursor))
    if verb != "RUN":
        cursor.refuse(f"EXPLAIN of {verb} INGESTION", "EXPLAIN INGEST ... and EXPLAIN RUN INGESTION name show a plan.")
    return ExplainIngest(_run(cursor))


def _verb(cursor: Cursor) -> str | None:
    """Which of our verbs the statement has; SQLError for one that is nearly ours. None: it is not ours."""
    first, second = cursor.peek().word, cursor.peek(1).word
    if first == "INGEST":
        return first
    words = [t.word for t in cursor.tokens[cursor.at :]]
    if second == "INTO" and any(words[i : i + 3] == ["FROM", "KAFKA", "OPTIONS"] for i in range(2, len(words))):
        cursor.fail(f"{first or cursor.shown()} does not read from Kafka; did you mean INGEST INTO?")
    if words[:4] == ["CREATE", "OR", "REPLACE", "INGESTION"]:
        return first
    verbs = ("CREATE", "RUN", "SHOW", "ALTER", "DROP", "REPLAY")
    if second in ("INGESTION", "INGESTIONS"):
        if first in verbs:
            return first
        near = get_close_matches(first, verbs, 1, _NEAR)
        if near and words[2:3]:
            cursor.fail(f"{first} {second} is no statement; did you mean {near[0]} INGESTION?")
    elif first in verbs and first != "SHOW" and words[2:3] and _is_nearly_noun(second):
        cursor.fail(f"{first} {second} is no statement; did you mean {first} INGESTION?")
    return None


def _is_nearly_noun(word: str) -> bool:
    return bool(get_close_matches(word, ("INGESTION",), 1, _NEAR_NOUN))


# ---------------------------------------------------------------- INGEST


def ingest(cursor: Cursor) -> Ingest:
    """INGEST INTO t | 'text with {topic}' | FILES 'path' FROM KAFKA [OPTIONS] (...) clauses [AS SELECT ...]"""
    start = cursor.peek().start
    cursor.expect("INGEST")
    cursor.expect("INTO")
    into, files = _target(cursor)
    cursor.expect("FROM")
    if not cursor.accept("KAFKA"):
        cursor.fail(f"expected KAFKA, found {cursor.shown()}; it is the only source there is")
    if not cursor.accept("OPTIONS") and not cursor.sees("("):
        _expected(cursor, "OPTIONS and a list of settings in brackets", ("OPTIONS",))
    options = _options(cursor)
    kind = function = output = query = None
    format_options: tuple[Option, ...] = ()
    given: dict[str, str] = {}
    partitioned_by: tuple[str, ...] = ()
    seen: set[str] = set()
    while not cursor.done:
        clause = cursor.peek().word
        if clause in seen:
            cursor.fail(f"{clause} is given twice")
        seen.add(clause)
        if cursor.accept("FORMAT"):
            kind, function, format_options = _format(cursor)
        elif cursor.accept("USING"):
            output = _one_of(cursor, "a format of the output", OUTPUTS[files]).lower()
        elif cursor.sees("TBLPROPERTIES"):
            _only_for_tables(cursor, files)
            cursor.next()
            given = properties(cursor)
        elif cursor.sees("PARTITIONED", "BY"):
            _only_for_tables(cursor, files)
            partitioned_by = _partitioned_by(cursor)
        elif cursor.sees("AS") or clause in ("SELECT", "WITH", "FROM"):
            cursor.accept("AS")
            query = _query(cursor)
        else:
            _expected(cursor, "FORMAT, USING, TBLPROPERTIES, PARTITIONED BY or AS SELECT", _CLAUSES)
    return Ingest(
        into, files, options, kind, function, format_options, output, given, partitioned_by, query, start
    )  # fmt: skip


def _target(cursor: Cursor) -> tuple[Name, bool]:
    if cursor.sees("FILES") and cursor.peek(1).kind == "string":
        cursor.next()
        return (_text(cursor, "a folder"),), True
    if cursor.peek().kind == "string":
        return (_text(cursor, "a table"),), False
    target = cursor.name("a table, a text with {topic}, or FILES 'folder'")
    if target[-1].upper() == "FILES" and cursor.peek().kind in ("param", "number"):
        cursor.fail(f"expected the folder in quotes, found {cursor.shown()}")
    return target, False


def _text(cursor: Cursor, what: str) -> str:
    text = cursor.string(what)
    if not text.strip():
        cursor.fail(f"{what} cannot be empty", cursor.peek(-1).start)
    return text


def _only_for_tables(cursor: Cursor, files: bool) -> None:
    if files:
        clause = "PARTITIONED BY" if cursor.sees("PARTITIONED") else "TBLPROPERTIES"
        cursor.fail(f"{clause} is for Hudi tables; the folders of FILES follow writer.partition.* among the OPTIONS")


def _format(cursor: Cursor) -> tuple[str, str | None, tuple[Option, ...]]:
    kind = _one_of(cursor, "a format", FORMATS)
    function = None
    if kind == "PYTHON":
        function = _text(cursor, "the name of a registered decoder")
    return kind.lower(), function, _options(cursor, bare=True) if cursor.sees("(") else ()


def _partitioned_by(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("PARTITIONED", "BY")
    names = cursor.list_of_names("a partition column")
    twice = next((n for i, n in enumerate(names) if n.lower() in [m.lower() for m in names[:i]]), None)
    if twice:
        cursor.fail(f"the partition column {twice} is given twice", cursor.peek(-1).start)
    return tuple(names)


def _query(cursor: Cursor) -> Text:
    """The query over the relation kafka, to the end of the statement."""
    if cursor.peek().word not in ("SELECT", "WITH", "FROM") and not cursor.sees("("):
        cursor.fail(f"expected SELECT ... FROM kafka, found {cursor.shown()}")
    first = cursor.at
    text = cursor.until("a query")
    cursor.finish()
    words = cursor.tokens[first:]
    parameter = next((t for t in words if t.kind == "param"), None)
    if parameter is not None:
        cursor.fail("the query of an ingestion is kept and run again, so it takes no parameters", parameter.start)
    if not any(t.name.lower() == "kafka" for t in words if t.kind in IDENTIFIERS):
        cursor.fail("the query of an ingestion reads the relation kafka: ... AS SELECT ... FROM kafka", text.start)
    return text


# ---------------------------------------------------------------- options


def _options(cursor: Cursor, bare: bool = False) -> tuple[Option, ...]:
    """`('a.b' = 'c', d.e => 1)`; with `bare` a value may follow its key without a sign, as in WIRE 'linkedin'."""
    opening = cursor.peek().start
    cursor.expect("(")
    found: list[Option] = []
    while not cursor.accept(")"):
        if cursor.done:
            cursor.fail("this '(' is not closed", opening)
        start = cursor.peek().start
        key = _key(cursor)
        if not any(cursor.accept(sign) for sign in _SIGNS) and not bare:
            cursor.fail(f"expected '=' and the value of {key}, found {cursor.shown()}")
        if any(o.key == key for o in found):
            cursor.fail(f"{key} is given twice", start)
        found.append(Option(key, _value(cursor, key), start))
        if not cursor.accept(",") and not cursor.sees(")"):
            cursor.fail(f"expected ',' or ')', found {cursor.shown()}")
    return tuple(found)


def _key(cursor: Cursor) -> str:
    token = cursor.peek()
    key = _text(cursor, "a key") if token.kind in ("string", "quoted") else ".".join(cursor.name("a key"))
    if key != key.strip():
        cursor.fail("a key has no blanks around it", token.start)
    return key


def _value(cursor: Cursor, key: str) -> Text:
    """One literal, parameter or word, and what is written to it without a blank, such as a.b or host:9092."""
    first = cursor.peek()
    if first.kind not in ("string", "quoted", "param", "number", "word") and first.text not in ("-", "+", ".", "*"):
        cursor.fail(f"expected the value of {key}, found {cursor.shown()}")
    last = cursor.next()
    while first.kind not in ("string", "quoted", "param") and _touches(last, cursor.peek()):
        last = cursor.next()
    return Text(cursor.text[first.start : last.end], first.start)


def _touches(token: Token, following: Token) -> bool:
    return following.start == token.end and following.kind != "end" and following.text not in (",", ")", "(")


# ---------------------------------------------------------------- named ingestions


def _noun(cursor: Cursor) -> None:
    if cursor.accept("INGESTION"):
        return
    if cursor.sees("INGESTIONS"):
        cursor.fail("expected INGESTION, found 'INGESTIONS'; one at a time")
    cursor.expect("INGESTION")


def _name(cursor: Cursor) -> str:
    token = cursor.peek()
    name = cursor.string("a name") if token.kind == "string" else cursor.identifier("the name of an ingestion")
    if not name.strip() or name != name.strip() or name.startswith(".") or any(c in '/\\\0\n"' for c in name):
        cursor.fail(f"{name!r} cannot name an ingestion: it would be no file's name", token.start)
    return name


def _create(cursor: Cursor) -> CreateIngestion:
    """CREATE [OR REPLACE] INGESTION [IF NOT EXISTS] name AS INGEST ..."""
    cursor.expect("CREATE")
    replace = cursor.accept("OR", "REPLACE")
    _noun(cursor)
    at = cursor.peek().start
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if replace and if_not_exists:
        cursor.fail("OR REPLACE and IF NOT EXISTS exclude each other", at)
    name = _name(cursor)
    cursor.expect("AS")
    if not cursor.sees("INGEST"):
        _expected(cursor, "INGEST INTO", ("INGEST",))
    return CreateIngestion(name, replace, if_not_exists, ingest(cursor))


def _run(cursor: Cursor) -> RunIngestion:
    """RUN INGESTION name [WITH (...)]"""
    cursor.expect("RUN")
    _noun(cursor)
    name = _name(cursor)
    options = _options(cursor) if cursor.accept("WITH") else ()
    cursor.finish()
    return RunIngestion(name, options)


def _show(cursor: Cursor) -> ShowIngestion | Call:
    """SHOW INGESTIONS | SHOW INGESTION name"""
    cursor.expect("SHOW")
    if cursor.accept("INGESTIONS"):
        cursor.finish()
        return Call("show_ingestions", ())
    _noun(cursor)
    name = _name(cursor)
    cursor.finish()
    return ShowIngestion(name)


def _alter(cursor: Cursor) -> AlterIngestion | SetOffsets:
    """ALTER INGESTION name SET OPTIONS (...) | SET OFFSETS (...)"""
    cursor.expect("ALTER")
    _noun(cursor)
    name = _name(cursor)
    cursor.expect("SET")
    if cursor.accept("OPTIONS"):
        options = _options(cursor)
        cursor.finish()
        return AlterIngestion(name, options)
    if not cursor.accept("OFFSETS"):
        _expected(cursor, "OPTIONS (...) or OFFSETS (...)", ("OPTIONS", "OFFSETS"))
    places = _places(cursor)
    cursor.finish()
    return SetOffsets(name, places)


def _places(cursor: Cursor) -> Places:
    """`([topic 'orders',] 0 = 1200, 1 = earliest, all = timestamp '...' [, topic 'other', ...])`"""
    opening = cursor.peek().start
    cursor.expect("(")
    found: dict[str, list[Place]] = {}
    topic = ""
    while not cursor.accept(")"):
        if cursor.done:
            cursor.fail("this '(' is not closed", opening)
        start = cursor.peek().start
        if cursor.accept("TOPIC"):
            cursor.accept("=")
            topic = _text(cursor, "a topic")
            if topic in found:
                cursor.fail(f"topic {topic} is given twice", start)
            found[topic] = []
        else:
            one = _place(cursor)
            if any(p.partition == one.partition for p in found.setdefault(topic, [])):
                cursor.fail("this partition is given twice", start)
            found[topic].append(one)
        if not cursor.accept(",") and not cursor.sees(")"):
            cursor.fail(f"expected ',' or ')', found {cursor.shown()}")
    empty = next((t for t, places in found.items() if not places), None)
    if not found or empty is not None:
        cursor.fail("say where to go on: partition = offset | earliest | latest | timestamp '...'", opening)
    if "" in found and len(found) > 1:
        cursor.fail("name the topic before its first partition", opening)
    return tuple((t, tuple(places)) for t, places in found.items())


def _place(cursor: Cursor) -> Place:
    token = cursor.peek()
    partition = None
    if token.kind == "number" and token.text.isdigit():
        partition = int(cursor.next().text)
    elif not cursor.accept("ALL") and not cursor.accept("*"):
        cursor.fail(f"expected TOPIC, the number of a partition, or ALL, found {cursor.shown()}")
    if not cursor.accept("="):
        cursor.expect("=>")
    return _offset(cursor, partition, token)


def _offset(cursor: Cursor, partition: int | None, token: Token) -> Place:
    """An offset, EARLIEST, LATEST or TIMESTAMP '...'"""
    value = cursor.peek()
    if cursor.accept("EARLIEST"):
        return Place(partition, "earliest", None, token.start)
    if cursor.accept("LATEST"):
        return Place(partition, "latest", None, token.start)
    if cursor.accept("TIMESTAMP"):
        if cursor.peek().kind not in ("string", "param"):
            cursor.fail(f"expected a time in quotes, found {cursor.shown()}")
        time = cursor.next()
        return Place(partition, "timestamp", Text(time.text, time.start), token.start)
    if value.kind == "param" or (value.kind == "number" and value.text.isdigit()):
        cursor.next()
        return Place(partition, "offset", Text(value.text, value.start), token.start)
    return _expected(
        cursor, "an offset, EARLIEST, LATEST or TIMESTAMP '...'", ("EARLIEST", "LATEST", "TIMESTAMP")
    )  # fmt: skip


def _drop(cursor: Cursor) -> DropIngestion:
    """DROP INGESTION [IF EXISTS] name"""
    cursor.expect("DROP")
    _noun(cursor)
    if_exists = cursor.accept("IF", "EXISTS")
    name = _name(cursor)
    cursor.finish()
    return DropIngestion(name, if_exists)


def _replay(cursor: Cursor) -> ReplayIngestion:
    """REPLAY INGESTION name FROM {QUARANTINE | place [TO place]} [WITH (...)]; a place is one for all partitions, or a list
    in brackets"""
    cursor.expect("REPLAY")
    _noun(cursor)
    name = _name(cursor)
    cursor.expect("FROM")
    begin = end = None
    if not cursor.accept("QUARANTINE"):
        begin, end = _span(cursor), _span(cursor) if cursor.accept("TO") else None
    options = _options(cursor) if cursor.accept("WITH") else ()
    cursor.finish()
    return ReplayIngestion(name, begin, end, options)


def _span(cursor: Cursor) -> Places:
    """The places of a replay."""
    if cursor.sees("("):
        return _places(cursor)
    return (("*", (_offset(cursor, None, cursor.peek()),)),)


# ---------------------------------------------------------------- errors


def _one_of(cursor: Cursor, what: str, known: Sequence[str]) -> str:
    token = cursor.peek()
    word = token.name.upper() if token.kind in IDENTIFIERS else ""
    if word in known:
        cursor.next()
        return word
    return _expected(cursor, f"{what} ({', '.join(known)})", known)


def _expected(cursor: Cursor, what: str, known: Sequence[str]) -> NoReturn:
    """SQLError that says what may stand here, and which of the known words the next one resembles."""
    near = get_close_matches(cursor.peek().word, known, 1, _NEAR) if cursor.peek().word else []
    meant = f"; did you mean {near[0]}?" if near else ""
    cursor.fail(f"expected {what}, found {cursor.shown()}{meant}")
