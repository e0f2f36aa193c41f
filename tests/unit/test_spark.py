"""Engine spark without Spark: what is translated, what is refused by name, and which types fit."""

from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import LakeError, SQLError, Unsupported
from lakesql.spark import casts
from lakesql.spark.engine import fitted
from lakesql.spark.errors import ours
from lakesql.spark.translate import parsed, spark_sql


def constant(text: str) -> tuple[str | None, str] | None:
    if "random" in text.lower() or "count" in text.lower():
        return None
    row = duckdb.sql(f"SELECT CAST(v AS VARCHAR), typeof(v) FROM (SELECT {text} AS v)").fetchall()[0]
    return row[0], row[1]


def translated(text: str) -> str:
    return spark_sql(parsed(text), constant)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("SELECT a / b FROM t", "SELECT CAST(`a` AS DOUBLE) / CAST(`b` AS DOUBLE) FROM `t`"),
        ("SELECT a // b FROM t", "SELECT `a` DIV `b` FROM `t`"),
        ("FROM t ORDER BY a", "SELECT * FROM `t` ORDER BY `a` NULLS LAST"),
        ("SELECT avg(a) FROM t", "SELECT AVG(CAST(`a` AS DOUBLE)) FROM `t`"),
        ("SELECT a FROM t WHERE a LIKE 'x\\_%'", "SELECT `a` FROM `t` WHERE `a` LIKE 'x\\\\_%' ESCAPE '\\001'"),
        ("SELECT 'it''s \\ ' AS x, a FROM t", "SELECT 'it\\'s \\\\ ' AS `x`, `a` FROM `t`"),
        ("SELECT CAST(a AS TIMESTAMP) FROM t", "SELECT CAST(`a` AS TIMESTAMP_NTZ) FROM `t`"),
        ("SELECT CAST(a AS TIMESTAMPTZ) FROM t", "SELECT CAST(`a` AS TIMESTAMP) FROM `t`"),
        ("SELECT a, strftime(DATE '2026-01-02', '%d') AS d FROM t", "SELECT `a`, '02' AS `d` FROM `t`"),
    ],
)
def test_what_means_the_same_is_written_so(given: str, wanted: str) -> None:
    assert translated(given) == wanted


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT strftime(a, '%d') FROM t", "time_to_str"),
        ("SELECT median(a) FROM t", "median()"),
        ("SELECT a[1] FROM t", "Bracket"),
        ("SELECT round(a, 2) FROM t", "round() with digits"),
        ("SELECT substring(a, 0, 2) FROM t", "substring()"),
        ("SELECT 0x1F FROM t", "0x1F"),
        ("SELECT TRY_CAST(a AS INT) FROM t", "TryCast|TRY_CAST|try_cast"),
        ("SELECT a FROM t UNION BY NAME SELECT b FROM u", "UNION BY NAME"),
        ("SELECT DISTINCT ON (a) b FROM t", "DISTINCT ON"),
        ("SELECT a FROM t ORDER BY ALL", "ORDER BY ALL"),
        ("SELECT random() FROM t", "rand"),
        ("SELECT list(a ORDER BY b) FROM t", "array_agg|ArrayAgg"),
        ("SELECT a FROM t ASOF JOIN u USING (x)", "ASOF"),
        ("SELECT t.* EXCLUDE (a), b FROM t", "EXCLUDE"),
    ],
)
def test_what_may_differ_is_refused_by_name(text: str, named: str) -> None:
    import re

    with pytest.raises(Unsupported) as raised:
        translated(text)
    assert re.search("|".join(map(re.escape, named.split("|"))), str(raised.value))


@pytest.mark.parametrize(
    ("given", "wanted", "inner", "differs"),
    [
        ("double", "int", "AttributeReference", True),
        ("decimal(5,2)", "bigint", "AttributeReference", True),
        ("decimal(5,2)", "bigint", "Round", False),
        ("int", "bigint", "AttributeReference", False),
        ("double", "string", "AttributeReference", True),
        ("date", "string", "AttributeReference", False),
        ("string", "date", "AttributeReference", True),
        ("array<int>", "array<bigint>", "AttributeReference", True),
    ],
)
def test_casts_that_change_values_are_known(given: str, wanted: str, inner: str, differs: bool) -> None:
    assert bool(casts._changes(given, wanted, inner, None, "")) is differs


def test_a_text_constant_in_iso_form_is_a_date_on_both() -> None:
    assert not casts._changes("string", "date", "Literal", "2026-01-02", "")
    assert casts._changes("string", "date", "Literal", "2026", "")


def test_rows_come_in_the_types_of_duckdb_or_not_at_all() -> None:
    rows = pa.table({"a": pa.array([1], pa.int64())})
    assert fitted(rows, pa.schema([("a", pa.decimal128(38, 0))])).schema.field(0).type == pa.decimal128(38, 0)
    assert fitted(None, pa.schema([("a", pa.int32())])).num_rows == 0
    with pytest.raises(Unsupported, match="Spark gives int64 where DuckDB gives string"):
        fitted(rows, pa.schema([("a", pa.string())]))
    with pytest.raises(duckdb.OutOfRangeException):
        fitted(pa.table({"a": pa.array([1 << 40], pa.int64())}), pa.schema([("a", pa.int32())]))


def test_errors_of_this_side_pass_as_they_are() -> None:
    with pytest.raises(SQLError, match="mine"), ours("t"):
        raise SQLError("mine")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lakesql.connect(engine="flink"), "use one of duckdb, spark"),
        (lambda: lakesql.connect(spark=object()), "add engine='spark'"),
    ],
)
def test_an_engine_that_is_not_there_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(LakeError, match=said):
        make()
