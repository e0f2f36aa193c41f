"""`lakesql.Table`: what it takes in and what it refuses."""

import pyarrow as pa
import pytest

from lakesql.errors import FormatError, SQLError, TableError
from tests.samples import Kind, create, rows, tuples

FULL = ("a", "sf", 1, 10)


@pytest.fixture
def table(tmp_path):
    found = create(tmp_path / "t", Kind("mor", 9))
    found.insert(rows(FULL))
    return found


@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_rows_that_lack_columns_are_refused_and_the_columns_named(table, verb):
    lacking = pa.table({"ID": ["a"], "city": ["sf"]})
    with pytest.raises(TableError, match="the rows lack the columns v, ts of the table") as caught:
        getattr(table, verb)(lacking)
    assert "hoodie.datasource.write.reconcile.schema=true" in str(caught.value)
    assert tuples(table.read()) == [FULL]


def test_missing_columns_become_null_when_a_setting_says_so(table):
    lacking = pa.table({"id": ["b"], "city": ["sf"], "ts": [20]})
    table.upsert(lacking, **{"hoodie.datasource.write.reconcile.schema": "true"})
    assert tuples(table.read()) == [FULL, ("b", "sf", None, 20)]


def test_missing_key_column_is_named_as_such(table):
    with pytest.raises(TableError, match="the rows lack the record key column id"):
        table.upsert(pa.table({"city": ["sf"], "v": [1]}))


def test_delete_takes_keys_alone(table):
    table.delete(pa.table({"id": ["a"], "city": ["sf"]}))
    assert tuples(table.read()) == []


@pytest.mark.parametrize("condition", ["id = 'x", "nope = 1", "sum(v) > 1", "v = ", "nope(v)"])
def test_condition_that_is_none_is_explained_without_generated_sql(table, condition):
    for use in (table.delete, lambda c: table.read(where=c)):
        with pytest.raises(SQLError, match="Correct the condition") as caught:
            use(condition)
        assert repr(condition) in str(caught.value)
        assert "SELECT" not in str(caught.value)
    table.delete("v = 1 -- a comment")
    assert tuples(table.read()) == []


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 9), ("mor", 8)])
def test_empty_file_of_a_completed_commit_is_an_error_that_names_it(tmp_path, kind, version):
    table = create(tmp_path / "empty", Kind(kind, version))
    table.insert(rows(FULL))
    name = table.state.timeline.completed_writes()[0].file_name
    (tmp_path / "empty" / ".hoodie" / "timeline" / name).write_bytes(b"")
    with pytest.raises(FormatError, match=rf"{name}: the completed (delta)?commit is empty"):
        table.read()
    with pytest.raises(FormatError, match="is empty"):
        table.upsert(rows(("b", "x", 1, 10)))
