"""The table of statements in docs/spark.md is made from the code, and every statement of the parser is in it."""

from typing import get_args

from lakesql.spark.answers import ANSWERS, COMPOSED, HERE, REFUSED, SAME, rows
from lakesql.sql import nodes
from lakesql.sql.functions import TABLE_FUNCTIONS
from tests.docs.blocks import DOCS
from tests.docs.generated import check, table

PAGE = DOCS / "spark.md"


def test_the_table_of_statements_is_that_of_the_code(regold: bool) -> None:
    check(PAGE, "statements", table(("statement", "on Spark", "what to know"), rows()), regold)


def test_every_statement_has_its_answer() -> None:
    assert set(get_args(nodes.Statement)) == set(ANSWERS)
    assert {answer for _, answer, _ in rows()} == {SAME, COMPOSED, HERE, REFUSED}


def test_table_functions_that_spark_reads_are_ours() -> None:
    from lakesql.spark.reads import READS

    assert set(READS) <= set(TABLE_FUNCTIONS)
    text = PAGE.read_text()
    assert [name for name in READS if name not in text] == []
