"""Spark's spelling in DuckDB's: expressions, queries, types; what would silently change is refused."""

import pyarrow as pa
import pytest

from lakesql.errors import SQLError, Unsupported
from lakesql.sql import dialect
from lakesql.write.columns import storable


@pytest.mark.parametrize(
    ("spark", "duckdb"),
    [
        ("`a`.`b` + 1", '"a"."b" + 1'),
        ("a <=> b", "a IS NOT DISTINCT FROM b"),
        ('nvl(a, "x")', "COALESCE(a, 'x')"),
        ("dayofweek(d)", "(DAYOFWEEK(CAST(d AS DATE)) + 1)"),
        ("array(1, 2)[0]", "[1, 2][1]"),
    ],
)
def test_expressions_are_translated(spark, duckdb):
    assert dialect.expression(spark) == duckdb


def test_sources_and_with_clauses_are_translated():
    assert dialect.from_item("(SELECT `x` FROM `s`) AS `q`") == '(SELECT "x" FROM "s") AS "q"'
    assert dialect.ctes("WITH `a` AS (SELECT 1)") == 'WITH "a" AS (SELECT 1)'


@pytest.mark.parametrize(
    ("text", "message"),
    [("hash(a)", "hash()"), ("xxhash64(a)", "xxhash64()")],
)
def test_functions_with_another_meaning_are_refused(text, message):
    with pytest.raises(Unsupported, match="DuckDB") as caught:
        dialect.expression(text)
    assert message in str(caught.value)


def test_distribute_by_is_refused():
    with pytest.raises(Unsupported, match="DISTRIBUTE BY has no meaning"):
        dialect.query("SELECT * FROM t DISTRIBUTE BY a")


def test_text_that_is_no_sql_is_an_error_that_shows_it():
    with pytest.raises(SQLError, match="cannot parse a b c d"):
        dialect.expression("a b c d")


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("s.ID", '"S"."id"', True),
        ("(s.id)", "s.id", True),
        ("s.id + 1", "s.id+1", True),
        ("s.id", "t.id", False),
        ("s.id +", "s.id +", False),
    ],
)
def test_expressions_are_compared_without_case_and_blanks(left, right, same):
    assert dialect.same_expression(left, right) is same


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("STRING", pa.string()),
        ("varchar(20)", pa.string()),
        ("tinyint", pa.int32()),
        ("bigint", pa.int64()),
        ("LONG", pa.int64()),
        ("real", pa.float32()),
        ("decimal", pa.decimal128(10, 0)),
        ("DECIMAL(20, 4)", pa.decimal128(20, 4)),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("TIMESTAMPTZ", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("date", pa.date32()),
        ("binary", pa.binary()),
        ("BLOB", pa.binary()),
        ("int[]", pa.list_(pa.field("element", pa.int32()))),
        ("map<string, double>", pa.map_(pa.string(), pa.float64())),
        (
            "struct<a: int, b: array<string>>",
            pa.struct([("a", pa.int32()), pa.field("b", pa.list_(pa.field("element", pa.string())))]),
        ),
        ("STRUCT(a INT, b VARCHAR)", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ],
)
def test_column_types_of_both_spellings(text, kind):
    assert dialect.column_type(text, "column c") == kind


@pytest.mark.parametrize("text", ["hugeint", "interval", "json", "uuid", "time", "map<int, string>"])
def test_types_that_hudi_lacks_are_refused_by_name(text):
    with pytest.raises(Unsupported, match="column c"):
        dialect.column_type(text, "column c")


@pytest.mark.parametrize("text", ["nonsense(", "decimal(50, 2)", "foo"])
def test_text_that_is_no_type_is_an_error(text):
    with pytest.raises(SQLError, match="column c"):
        dialect.column_type(text, "column c")


def test_result_types_are_brought_to_what_a_table_can_hold():
    given = pa.schema(
        [
            ("a", pa.int8()),
            ("b", pa.uint32()),
            ("c", pa.timestamp("ns")),
            ("d", pa.dictionary(pa.int8(), pa.string())),
            ("e", pa.list_(pa.int16())),
            ("f", pa.struct([("x", pa.large_string())])),
            ("g", pa.timestamp("ms", "Europe/Berlin")),
        ]
    )
    assert storable(given) == pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.int64()),
            ("c", pa.timestamp("us")),
            ("d", pa.string()),
            ("e", pa.list_(pa.field("element", pa.int32()))),
            ("f", pa.struct([("x", pa.string())])),
            ("g", pa.timestamp("us", "UTC")),
        ]
    )


def test_result_type_without_counterpart_names_the_column():
    with pytest.raises(Unsupported, match="column x has type uint64"):
        storable(pa.schema([("x", pa.uint64())]))
