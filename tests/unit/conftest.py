"""Connections for tests of statements: with an empty warehouse, and with the small table trips in both types."""

import pytest

import lakesql


@pytest.fixture
def con(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as found:
        yield found


@pytest.fixture(params=["cow", "mor"])
def trips(con, request):
    """A connection with the table trips (a at sf, b at ny) in both types."""
    con.sql(
        "CREATE TABLE trips (id STRING, v BIGINT, ts BIGINT, city STRING) USING hudi PARTITIONED BY (city) "
        f"TBLPROPERTIES (type = '{request.param}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql("INSERT INTO trips VALUES ('a', 1, 10, 'sf'), ('b', 2, 10, 'ny')")
    return con
