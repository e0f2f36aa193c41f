"""Arguments of a wrong kind are errors of lakesql that say what was expected."""

import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import lakesql
from tests.samples import SCHEMA, Kind, create, rows, tuples

ROW = ("a", "x", 1, 1)


@pytest.fixture
def table(tmp_path: Path) -> lakesql.Table:
    made = create(tmp_path / "t", Kind("mor", 9))
    made.upsert(rows(ROW))
    return made


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"schema": None}, "the schema must be a pyarrow.Schema, found NoneType"),
        ({"schema": {"id": "int"}}, "found dict"),
        ({"primary_key": None}, "primary_key must be a list of column names, found None"),
        ({"primary_key": "id"}, "primary_key must be a list of column names"),
        ({"primary_key": [1]}, "primary_key must be a list of column names"),
        ({"primary_key": ["id", "id"]}, "primary_key names column id twice"),
        ({"partitioned_by": ["city", "city"]}, "partitioned_by names column city twice"),
        ({"type": None}, "type None is unknown"),
        ({"version": "9"}, "the version must be a number"),
        ({"name": 5}, "the name must be a text"),
        ({"properties": {"hoodie.x": 5}}, "property 'hoodie.x' = 5: key and value must be texts"),
        ({"properties": ["a"]}, "properties must be a dict"),
        ({"path": ""}, "is not a path"),
        ({"path": None}, "a path is a text"),
    ],
)
def test_create_table_says_what_it_expects(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    given = {"path": tmp_path / "t", "schema": SCHEMA, "primary_key": ["id"]} | arguments
    with pytest.raises(lakesql.LakeError, match=text):
        lakesql.create_table(**given)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.upsert([]),
        lambda t: t.upsert([{}]),
        lambda t: t.upsert([1]),
        lambda t: t.upsert([None]),
        lambda t: t.upsert([{"id": "\udc80", "city": "x", "v": 1, "ts": 1}]),
        lambda t: t.upsert([{"id": "b", "city": "x", "v": 2**63, "ts": 1}]),
        lambda t: t.upsert([{"id": "b", "city": "a\0b", "v": 1, "ts": 1}]),
        lambda t: t.upsert([{"id": "b", "city": "z" * 300, "v": 1, "ts": 1}]),
        lambda t: t.upsert(pa.table({})),
        lambda t: t.upsert(pa.table([["b"], ["c"]], names=["id", "id"])),
        lambda t: t.upsert(pa.table([["b"], ["c"]], names=["id", "ID"]).to_reader()),
        lambda t: t.upsert(pd.DataFrame([["b", "c"]], columns=["id", "id"])),
        lambda t: t.upsert(pd.DataFrame({"id": ["b", 1]})),
        lambda t: t.read(where=""),
        lambda t: t.read(where=5),
        lambda t: t.read(where="nosuch = 1"),
        lambda t: t.read(where="id ="),
        lambda t: t.read(where="id = 'a'); DROP TABLE x; --"),
        lambda t: t.read(where="CAST(id AS INT) = 1").read_all(),
        lambda t: t.read(columns=[]),
        lambda t: t.read(columns=[None]),
        lambda t: t.read(columns="id"),
        lambda t: t.read(as_of=datetime.datetime(2020, 1, 1)),
        lambda t: t.read(as_of=20240101),
        lambda t: t.read(as_of=""),
        lambda t: t.changes(None),
        lambda t: t.changes(5),
    ],
)
def test_mistakes_with_a_table_are_our_errors_and_change_nothing(table: lakesql.Table, call: Any) -> None:
    with pytest.raises(lakesql.LakeError):
        call(table)
    assert tuples(table.read()) == [ROW]


@pytest.mark.parametrize("warehouse", [None, 5, "/x\0"])
def test_connect_says_what_a_warehouse_is(warehouse: Any) -> None:
    with pytest.raises(lakesql.LakeError, match="path"):
        lakesql.connect(warehouse=warehouse)


def test_mistakes_in_statements_are_our_errors(tmp_path: Path, table: lakesql.Table) -> None:
    with lakesql.connect(warehouse=tmp_path) as con:
        for statement in (None, 5):
            with pytest.raises(lakesql.LakeError, match="a statement is a text"):
                con.execute(statement)  # type: ignore[arg-type]
        with pytest.raises(lakesql.LakeError, match="parameter 1: a value of type object"):
            con.execute("INSERT INTO t VALUES (?, 'x', 1, 1)", [object()])
        with pytest.raises(lakesql.LakeError, match="nosuch"):
            con.execute("INSERT INTO t SELECT * FROM read_parquet('/nosuch.parquet')")
    assert tuples(table.read()) == [ROW]


def test_comments_and_bounds_in_a_condition_are_harmless(table: lakesql.Table) -> None:
    assert tuples(table.read(where="id = 'a' OR false -- either")) == [ROW]
    assert table.read(where="id = 'b'").read_all().num_rows == 0
