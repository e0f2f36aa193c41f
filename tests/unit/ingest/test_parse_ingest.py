"""The statements of ingestion: what they say, and what is wrong with those that are malformed."""

import random
import re

import pytest

from lakesql.errors import LakeError, SQLError, Unsupported
from lakesql.sql.lexer import split
from lakesql.sql.nodes import (
    AlterIngestion,
    Call,
    CreateIngestion,
    DropIngestion,
    ExplainIngest,
    Ingest,
    Option,
    Passed,
    Place,
    ReplayIngestion,
    RunIngestion,
    SetOffsets,
    ShowIngestion,
    Text,
)
from lakesql.sql.statements import parse


def parsed(sql):
    [piece] = split(sql)
    return parse(sql, piece, lambda name: name[-1] == "trips")


def options(*pairs, sql):
    """Options with the positions they have in the text."""
    found, at = [], 0
    for key, value in pairs:
        start = min(p for p in (sql.find(f"'{key}'", at), sql.find(key, at)) if p >= 0)
        at = sql.index(value, start)
        found.append(Option(key, Text(value, at), start))
    return tuple(found)


# ---------------------------------------------------------------- what is said


def test_every_clause_of_an_ingest_into_a_table():
    sql = (
        "INGEST INTO orders FROM KAFKA OPTIONS ('kafka.brokers'='127.0.0.1:9092', mr.job.max.mappers = 8)\n"
        "FORMAT JSON (COLUMNS 'id INT')\nUSING HUDI\nTBLPROPERTIES (type = 'mor', primaryKey = 'id')\n"
        "PARTITIONED BY (dt)\nAS SELECT id, dt FROM kafka"
    )
    assert parsed(sql) == Ingest(
        into=("orders",),
        files=False,
        options=options(("kafka.brokers", "'127.0.0.1:9092'"), ("mr.job.max.mappers", "8"), sql=sql),
        format="json",
        function=None,
        format_options=options(("COLUMNS", "'id INT'"), sql=sql),
        output="hudi",
        properties={"type": "mor", "primaryKey": "id"},
        partitioned_by=("dt",),
        query=Text("SELECT id, dt FROM kafka", sql.index("SELECT")),
        start=0,
    )


def test_files_take_their_format_from_using():
    found = parsed(
        "INGEST INTO FILES '/data/events' FROM KAFKA OPTIONS ('a'='b') FORMAT AVRO (WIRE 'none') USING PARQUET"
    )
    assert (found.into, found.files, found.output) == (("/data/events",), True, "parquet")
    assert [(o.key, o.value.sql) for o in found.format_options] == [("WIRE", "'none'")]


def test_one_table_for_each_topic():
    assert parsed("INGEST INTO '{topic}' FROM KAFKA (kafka.brokers => b1:9092)").into == ("{topic}",)


@pytest.mark.parametrize("sign", ["=", "=>", ":=", ":"])
@pytest.mark.parametrize("key", ["kafka.brokers", "'kafka.brokers'", '"kafka.brokers"'])
def test_the_short_form_takes_bare_and_quoted_keys(key, sign):
    [option] = parsed(f"INGEST INTO t FROM KAFKA ({key} {sign} 'x:1')").options
    assert (option.key, option.value.sql) == ("kafka.brokers", "'x:1'")


@pytest.mark.parametrize("value", ["latest", "8", "-1", "b1:9092", "a.b-c", "$1", "?", "$name", "'x, y'", "30s"])
def test_values_are_literals_words_and_parameters(value):
    assert parsed(f"INGEST INTO t FROM KAFKA (k = {value}, l = 1)").options[0].value.sql == value


def test_a_person_s_own_decoder_is_named_behind_python():
    found = parsed("INGEST INTO t FROM KAFKA (a=1) FORMAT PYTHON 'clicks'")
    assert (found.format, found.function) == ("python", "clicks")


def test_named_ingestions():
    assert parsed("CREATE INGESTION o AS INGEST INTO t FROM KAFKA (a=1)") == CreateIngestion(
        "o", False, False, parsed("CREATE INGESTION o AS INGEST INTO t FROM KAFKA (a=1)").ingest
    )
    assert parsed("CREATE OR REPLACE INGESTION o AS INGEST INTO t FROM KAFKA (a=1)").replace
    assert parsed("CREATE INGESTION IF NOT EXISTS o AS INGEST INTO t FROM KAFKA (a=1)").if_not_exists
    assert parsed("RUN INGESTION o") == RunIngestion("o", ())
    assert [o.key for o in parsed("RUN INGESTION o WITH (a.b = 1)").options] == ["a.b"]
    assert parsed("SHOW INGESTIONS") == Call("show_ingestions", ())
    assert parsed('show ingestion "my orders"') == ShowIngestion("my orders")
    assert parsed("DROP INGESTION IF EXISTS o") == DropIngestion("o", True)
    assert isinstance(parsed("ALTER INGESTION o SET OPTIONS ('a' = 'b')"), AlterIngestion)
    assert parsed("EXPLAIN RUN INGESTION o") == ExplainIngest(RunIngestion("o", ()))
    assert isinstance(parsed("EXPLAIN INGEST INTO t FROM KAFKA (a=1)").statement, Ingest)


def test_offsets_are_set_by_topic_and_partition():
    sql = "ALTER INGESTION o SET OFFSETS (topic 'a', 0 = 1200, 1 = earliest, TOPIC 'b', all = timestamp '2026-01-01', 3 = $1)"
    assert parsed(sql) == SetOffsets(
        "o",
        (
            ("a", (Place(0, "offset", Text("1200", 46), 42), Place(1, "earliest", None, 52))),
            (
                "b",
                (
                    Place(None, "timestamp", Text("'2026-01-01'", sql.index("'2026")), sql.index("all")),
                    Place(3, "offset", Text("$1", sql.index("$1")), sql.index("3 =")),
                ),
            ),
        ),
    )
    assert parsed("ALTER INGESTION o SET OFFSETS (0 = latest)").places[0][0] == ""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ingestion FROM x",
        "SHOW ingest",
        "SHOW ingestion_runs",
        "DROP TABLE ingestion",
        "CREATE TABLE ingestion (a INT)",
        "CREATE VIEW kafka AS SELECT 1",
        "FROM ingestions",
        "DESCRIBE ingestion",
        "INSERT INTO other SELECT * FROM kafka",
        "SELECT * FROM kafka",
    ],
)
def test_what_only_looks_like_it_goes_to_duckdb(sql):
    assert parsed(sql) == Passed(sql)


# ---------------------------------------------------------------- what is wrong

MALFORMED = [
    ("INGEST", "expected INTO, found the end"),
    ("INGEST orders FROM KAFKA (a=1)", "expected INTO, found 'orders'"),
    ("INGEST INTO FROM KAFKA (a=1)", "expected FROM, found 'KAFKA'"),
    ("INGEST INTO 7 FROM KAFKA (a=1)", "expected a table, a text with {topic}, or FILES 'folder', found '7'"),
    ("INGEST INTO '' FROM KAFKA (a=1)", "a table cannot be empty"),
    ("INGEST INTO FILES $1 FROM KAFKA (a=1)", "expected the folder in quotes"),
    ("INGEST INTO t FROM PULSAR (a=1)", "expected KAFKA, found 'PULSAR'; it is the only source"),
    ("INGEST INTO t FROM KAFKA OPTION (a=1)", "did you mean OPTIONS?"),
    ("INGEST INTO t FROM KAFKA", "expected OPTIONS and a list of settings"),
    ("INGEST INTO t FROM KAFKA (a=1", "expected ',' or ')', found the end"),
    ("INGEST INTO t FROM KAFKA (a=1,", "this '(' is not closed"),
    ("INGEST INTO t FROM KAFKA (a 1)", "expected '=' and the value of a, found '1'"),
    ("INGEST INTO t FROM KAFKA (a=)", "expected the value of a, found ')'"),
    ("INGEST INTO t FROM KAFKA (a=1 b=2)", "expected ',' or ')', found 'b'"),
    ("INGEST INTO t FROM KAFKA (a=1, 'a'=2)", "a is given twice"),
    ("INGEST INTO t FROM KAFKA (' a'=2)", "a key has no blanks"),
    ("INGEST INTO t FROM KAFKA (a=1) FORMT JSON", "did you mean FORMAT?"),
    ("INGEST INTO t FROM KAFKA (a=1) FORMAT", "expected a format (JSON, AVRO, RAW, STRING, PYTHON)"),
    ("INGEST INTO t FROM KAFKA (a=1) FORMAT JASON", "did you mean JSON?"),
    ("INGEST INTO t FROM KAFKA (a=1) FORMAT PYTHON", "expected the name of a registered decoder in quotes"),
    ("INGEST INTO t FROM KAFKA (a=1) FORMAT JSON FORMAT JSON", "FORMAT is given twice"),
    ("INGEST INTO t FROM KAFKA (a=1) USING AVRO", "expected a format of the output (HUDI)"),
    ("INGEST INTO FILES 'x' FROM KAFKA (a=1) USING PARKET", "did you mean PARQUET?"),
    ("INGEST INTO FILES 'x' FROM KAFKA (a=1) PARTITIONED BY (a)", "PARTITIONED BY is for Hudi tables"),
    ("INGEST INTO FILES 'x' FROM KAFKA (a=1) TBLPROPERTIES (a=1)", "TBLPROPERTIES is for Hudi tables"),
    ("INGEST INTO t FROM KAFKA (a=1) PARTITIONED BY (a, A)", "the partition column A is given twice"),
    ("INGEST INTO t FROM KAFKA (a=1) AS", "expected SELECT ... FROM kafka, found the end"),
    ("INGEST INTO t FROM KAFKA (a=1) AS DELETE FROM kafka", "expected SELECT ... FROM kafka, found 'DELETE'"),
    ("INGEST INTO t FROM KAFKA (a=1) AS SELECT 1", "reads the relation kafka"),
    ("INGEST INTO t FROM KAFKA (a=1) AS SELECT * FROM kafka WHERE a = $1", "takes no parameters"),
    ("INGEST INTO t FROM KAFKA (a=1) AS SELECT * FROM kafka) x", "unexpected ')'"),
    ("CREATE INGESTION AS INGEST INTO t FROM KAFKA (a=1)", "expected AS, found 'INGEST'"),
    ("CREATE INGESTION 'a/b' AS INGEST INTO t FROM KAFKA (a=1)", "cannot name an ingestion"),
    ("CREATE INGESTION '.a' AS INGEST INTO t FROM KAFKA (a=1)", "cannot name an ingestion"),
    ("CREATE INGESTION a AS INSERT INTO t SELECT 1", "expected INGEST INTO, found 'INSERT'"),
    ("CREATE OR REPLACE INGESTION IF NOT EXISTS a AS INGEST INTO t FROM KAFKA (a=1)", "exclude each other"),
    ("CREATE INGESTON a AS INGEST INTO t FROM KAFKA (a=1)", "did you mean CREATE INGESTION?"),
    ("CRATE INGESTION a AS INGEST INTO t FROM KAFKA (a=1)", "did you mean CREATE INGESTION?"),
    ("INJEST INTO t FROM KAFKA OPTIONS (a=1)", "did you mean INGEST INTO?"),
    ("INSERT INTO trips FROM KAFKA OPTIONS (a=1)", "did you mean INGEST INTO?"),
    ("RUN INGESTION", "expected the name of an ingestion"),
    ("RUN INGESTIONS a", "one at a time"),
    ("RUN INGESTION a WITH", "expected (, found the end"),
    ("RUN INGESTION a b", "unexpected 'b'"),
    ("SHOW INGESTION", "expected the name of an ingestion"),
    ("SHOW INGESTIONS a", "unexpected 'a'"),
    ("DROP INGESTION a, b", "unexpected ','"),
    ("ALTER INGESTION a", "expected SET, found the end"),
    ("ALTER INGESTION a SET OFFSET (0 = 1)", "did you mean OFFSETS?"),
    ("REPLAY INGESTION a", "expected FROM"),
    ("REPLAY INGESTION a FROM", "expected an offset, EARLIEST, LATEST or TIMESTAMP"),
    ("REPLAY INGESTION a FROM ()", "say where to go on"),
    ("REPLAY INGESTION a FROM erliest", "did you mean EARLIEST?"),
    ("REPLAY INGESTION a FROM 5 TO", "expected an offset"),
    ("REPLAY INGESTION a FROM 5 UNTIL 7", "unexpected 'UNTIL'"),
    ("ALTER INGESTION a SET OFFSETS ()", "say where to go on"),
    ("ALTER INGESTION a SET OFFSETS (topic 'x')", "say where to go on"),
    ("ALTER INGESTION a SET OFFSETS (0 = 1, topic 'x', 1 = 2)", "name the topic before its first partition"),
    ("ALTER INGESTION a SET OFFSETS (topic x, 1 = 2)", "expected a topic in quotes"),
    ("ALTER INGESTION a SET OFFSETS (0 = 1, 0 = 2)", "this partition is given twice"),
    ("ALTER INGESTION a SET OFFSETS (0 = -1)", "expected an offset, EARLIEST, LATEST or TIMESTAMP"),
    ("ALTER INGESTION a SET OFFSETS (0 = erliest)", "did you mean EARLIEST?"),
    ("ALTER INGESTION a SET OFFSETS (0 = 1.5)", "expected an offset"),
    ("ALTER INGESTION a SET OFFSETS (x = 1)", "expected TOPIC, the number of a partition, or ALL"),
    ("ALTER INGESTION a SET OFFSETS (0 = timestamp 7)", "expected a time in quotes"),
    ("ALTER INGESTION a SET OFFSETS (topic 'x', 0 = 1, topic 'x', 1 = 1)", "topic x is given twice"),
    ("REPLAY INGESTION o FROM QUARANTINE TO 7", "unexpected 'TO'"),
]


def test_a_replay_says_from_where_to_where():
    sql = "REPLAY INGESTION o FROM timestamp '2026-01-01' TO (topic 'a', 0 = 7, all = latest) WITH (a.b = 1)"
    assert parsed(sql) == ReplayIngestion(
        "o",
        (("*", (Place(None, "timestamp", Text("'2026-01-01'", 34), 24),)),),
        (("a", (Place(0, "offset", Text("7", 66), 62), Place(None, "latest", None, 69))),),
        options(("a.b", "1"), sql=sql),
    )
    assert parsed("REPLAY INGESTION o FROM 12").end is None
    again = parsed("REPLAY INGESTION o FROM QUARANTINE WITH (a.b = 1)")
    assert (again.begin, again.end, [option.key for option in again.options]) == (None, None, ["a.b"])
    assert isinstance(parsed("EXPLAIN REPLAY INGESTION o FROM earliest").statement, ReplayIngestion)


@pytest.mark.parametrize(("sql", "text"), MALFORMED)
def test_malformed_statements_say_what_was_expected_and_where(sql, text):
    with pytest.raises(SQLError) as caught:
        parsed(sql)
    assert text in str(caught.value)
    assert "line 1, column " in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("EXPLAIN (FATES) INGEST INTO t FROM KAFKA (a=1)", "EXPLAIN alone shows the plan"),
        ("EXPLAIN DROP INGESTION a", "EXPLAIN RUN INGESTION name"),
        ("PREPARE p AS INGEST INTO t FROM KAFKA (a=1)", "Use execute(sql, parameters)"),
    ],
)
def test_what_is_not_done_is_refused_by_name(sql, text):
    with pytest.raises(Unsupported) as caught:
        parsed(sql)
    assert text in str(caught.value)


def test_the_place_is_that_of_the_whole_script():
    script = "SELECT 1;\nINGEST INTO t\nFROM KAFKA (a = 1)\nFORMAT JASON"
    with pytest.raises(SQLError, match=r"line 4, column 8:\n  FORMAT JASON\n         \^"):
        parse(script, split(script)[1], lambda _: False)


GOOD = [
    "INGEST INTO orders FROM KAFKA OPTIONS ('kafka.brokers'='h:1', 'sasl.password'='geheim-xyz') FORMAT AVRO (WIRE 'none') "
    "TBLPROPERTIES (type='mor') PARTITIONED BY (dt) AS SELECT * FROM kafka",
    "CREATE INGESTION o AS INGEST INTO FILES '/d' FROM KAFKA (sasl.jaas.config = 'x password=\"geheim-xyz\";') USING AVRO",
    "ALTER INGESTION o SET OPTIONS ('ssl.key.password' = 'geheim-xyz', b = 2)",
    "ALTER INGESTION o SET OFFSETS (topic 'a', 0 = 1, all = timestamp '2026-01-01')",
    "RUN INGESTION o WITH ('kafka.schema.registry.url' = 'http://user:geheim-xyz@host/')",
]


SECRET_KEY = re.compile(r"password|jaas|user:")
"""Without such a word left, nobody can tell that there was a secret."""


def mutations(count):
    """Statements with tokens left out, doubled, swapped, cut off, or replaced; reproducible."""
    chance = random.Random(7)
    for number in range(count):
        good = GOOD[number % len(GOOD)]
        [piece] = split(good)
        words = [t.text for t in piece.tokens]
        kind, at = chance.randrange(5), chance.randrange(1, len(words))
        if kind == 0:
            del words[at]
        elif kind == 1:
            words.insert(at, words[at])
        elif kind == 2:
            words[at - 1], words[at] = words[at], words[at - 1]
        elif kind == 3:
            words[at] = chance.choice(["(", ")", ",", "=", "'", '"', "x", "7", "$1", ";", "KAFKA", "`", "/*"])
        else:
            cut = chance.randrange(len(good))
            yield good[:cut]
            continue
        yield " ".join(words)


def test_no_broken_statement_ends_in_a_traceback_or_shows_a_secret():
    refused = []
    for sql in mutations(3000):
        for piece in split(sql):
            try:
                parse(sql, piece, lambda _: False)
            except LakeError as error:
                refused.append((sql, str(error)))
    assert len(refused) > 1000
    assert [sql for sql, text in refused if "geheim-xyz" in text and SECRET_KEY.search(sql)] == []
