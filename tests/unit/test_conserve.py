"""Conservation: a write whose files do not add up is abandoned, and the table stays as it was."""

import pyarrow as pa
import pytest

from lakesql.errors import TableError
from lakesql.write import slices
from lakesql.write.basefile import Edit
from lakesql.write.conserve import require_records, require_rows, require_unique
from lakesql.write.plan import APPEND, REWRITE, Changes, Target
from tests.writing import delete, listing, put, rows_of, table, upsert, values

TARGET = Target(REWRITE, "p", "f-0", 0, 0, 3, Changes(updates=2, deletes=1, revived=1))
BEFORE = [("a", "x", 1, 1), ("b", "x", 2, 1)]


def test_rows_before_plus_inserted_minus_deleted_are_rows_after():
    require_rows("t", TARGET, 10, 13)
    with pytest.raises(TableError) as caught:
        require_rows("t: commit 1", TARGET, 10, 12)
    assert str(caught.value) == (
        "t: commit 1: file group p/f-0: the new base file has 12 rows, expected are 13 (10 before, 4 inserted, 1 deleted). "
        "The commit was abandoned and its files were removed; the table is as it was. Run the statement again; if it "
        "fails again, report it with this text."
    )


def test_log_file_holds_what_was_planned():
    target = Target(APPEND, "", "f-0", 0, 0, 0, Changes(updates=2, deletes=1, revived=1))
    require_records("t", target, 3, 1)
    with pytest.raises(
        TableError, match="file group f-0: the log file has 3 records and 0 deletes, expected are 3 and 1"
    ):
        require_records("t", target, 3, 0)


def keys(*names, same_hash=False):
    """Keys with a hash, as the stream of a write gives them."""
    hashes = [7 if same_hash else ord(name) for name in names]
    return pa.table({"key": pa.array(names), "hash": pa.array(hashes, pa.uint64())})


def test_equal_hashes_of_different_keys_are_no_violation():
    require_unique("t", TARGET, [keys("a", "b", same_hash=True)], [keys("c", same_hash=True)])


def test_new_keys_come_once_and_do_not_change_at_the_same_time():
    require_unique("t", TARGET, [keys("a", "b")], [keys("c", "c")])
    require_unique("t", TARGET, [], [])
    with pytest.raises(TableError, match="new record keys come twice: b"):
        require_unique("t", TARGET, [keys("a", "b"), keys("b")], [])
    with pytest.raises(TableError, match="new and changed at once: a"):
        require_unique("t", TARGET, [keys("a")], [keys("a")])


def losing(made, pieces, fold):
    """An edit that takes one row too many out."""
    edit, added = KEPT(made, pieces, fold)
    return Edit(edit.replaced[:0], edit.replacements.slice(0, 0), edit.replaced[:1]), added


KEPT = slices._edit


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_write_that_would_lose_a_row_is_abandoned(tmp_path, monkeypatch, type_):
    state = table(tmp_path, type_)
    upsert(state, *BEFORE)
    files = listing(tmp_path)
    if type_ == "cow":
        monkeypatch.setattr(slices, "_edit", losing)
    else:
        monkeypatch.setattr(slices, "_deletes", lambda rows: DELETES(rows).slice(1))
    change = upsert if type_ == "cow" else delete
    with pytest.raises(TableError, match="The commit was abandoned and its files were removed"):
        change(state, ("a", "x", 9, 2) if type_ == "cow" else ("a", "x"))
    assert rows_of(state) == BEFORE
    assert listing(tmp_path) == files
    monkeypatch.undo()
    change(state, ("a", "x", 9, 2) if type_ == "cow" else ("a", "x"))
    assert rows_of(state) != BEFORE


DELETES = slices._deletes


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_write_that_would_double_a_key_is_abandoned(tmp_path, monkeypatch, type_):
    state = table(tmp_path, type_)
    upsert(state, *BEFORE)
    new_rows = slices._Numbered.new_rows
    monkeypatch.setattr(slices._Numbered, "new_rows", lambda self, rows: new_rows(self, doubled(rows)))
    with pytest.raises(TableError, match=r"file group .*: (the new base file has|new record keys come twice)"):
        upsert(state, ("c", "y", 1, 1))
    assert rows_of(state) == BEFORE


def doubled(rows):
    return pa.concat_tables([rows, rows])


def test_table_that_has_a_key_twice_is_still_written(tmp_path):
    state = table(tmp_path)
    put(state, values(("a", "x", 1, 1), ("a", "x", 2, 1)), "insert")
    upsert(state, ("a", "x", 3, 2), ("b", "x", 4, 2))
    assert rows_of(state) == [("a", "x", 3, 2), ("a", "x", 3, 2), ("b", "x", 4, 2)]
