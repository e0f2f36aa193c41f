"""Statements that are refused: `refused_statements.txt` has each with its full message.

A block is a script whose last statement fails, a line of `=>`, and the error. `make regold` writes the errors anew. What
DuckDB says in its own words, which differ between its versions, is not in it.
"""

from pathlib import Path

import pytest

import lakesql
from lakesql.errors import LakeError
from tests.sql_tables import AB, all_rows

GOLDEN = Path(__file__).with_name("refused_statements.txt")
SEPARATOR = "\n\n"
SETUP = """
CREATE TABLE trips (id STRING, v BIGINT, ts BIGINT, city STRING) USING hudi PARTITIONED BY (city)
  TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts');
INSERT INTO trips VALUES ('a', 1, 10, 'sf'), ('b', 2, 10, 'ny');
CREATE TABLE people (id STRING, addr STRUCT<city: STRING, zip: INT>) USING hudi TBLPROPERTIES (primaryKey = 'id');
CREATE TABLE two_places (id STRING, city STRING) USING hudi PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id');
INSERT INTO two_places VALUES ('a', 'sf'), ('a', 'ny');
CREATE TABLE keyless (v BIGINT) USING hudi;
CREATE TEMP TABLE s AS SELECT 'a' AS id, 5 AS v, 20 AS ts, 'sf' AS city;
CREATE TEMP TABLE twice AS SELECT * FROM s UNION ALL SELECT 'a', 6, 30, 'sf';
"""
STATEMENTS = [block.partition("\n=>\n")[0] for block in GOLDEN.read_text(encoding="utf-8").strip().split(SEPARATOR)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    with lakesql.connect(warehouse=str(folder)) as con:
        con.sql(SETUP)
        yield con, str(folder)


def refusal(lake, statement):
    """The class and text of the error, the folder of the warehouse left out."""
    con, folder = lake
    found: LakeError | None = None
    try:
        con.sql(statement)
    except LakeError as error:
        found = error
    finally:
        con.rollback()
        con.sql("RESET")
    assert found is not None, f"not refused: {statement}"
    assert all_rows(con) == AB, "a refused statement must change nothing"
    return f"{type(found).__name__}: {found}".replace(folder, "WAREHOUSE")


def test_refused_statements_have_their_golden_messages(lake, regold):
    now = SEPARATOR.join(f"{s}\n=>\n{refusal(lake, s)}" for s in STATEMENTS) + "\n"
    if regold:
        GOLDEN.write_text(now, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == now


def test_no_message_shows_generated_sql_or_is_empty():
    for block in GOLDEN.read_text(encoding="utf-8").strip().split(SEPARATOR):
        _, _, message = block.partition("\n=>\n")
        assert len(message.partition(": ")[2]) > 20, block
        assert "__lakesql" not in message, block
