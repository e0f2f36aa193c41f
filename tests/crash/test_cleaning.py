"""A clean and an archive run that die at any call to the storage: nothing is lost, and the next ones finish the work."""

import contextlib

import pytest

import lakesql
from lakesql.errors import LakeError
from lakesql.services import archiving, cleaning
from lakesql.storage import Storage, open_storage
from lakesql.table.archive import read_archived
from tests.faulty import FaultError, FaultyStorage
from tests.lakes import Lake
from tests.samples import Kind, create, rows, tuples

SETTINGS = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "2",
}
NO = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
WANT = [("a", "x", 7, 7), ("b", "y", 7, 7)]


def both(storage: Storage) -> None:
    cleaning.clean(storage, SETTINGS)
    archiving.archive(storage, SETTINGS)


@pytest.fixture(params=[9, 6])
def template(request: pytest.FixtureRequest, lake: Lake) -> tuple[str, list[str]]:
    """A table with a history already, and its commits."""
    path = lake.path("template")
    table = create(path, Kind("cow", request.param))
    done = []
    for number in range(1, 8):
        done.append(str(table.upsert(rows(("a", "x", number, number), ("b", "y", number, number)), **NO).instant))
        if number == 4:
            both(open_storage(path))
    return path, done


@pytest.mark.parametrize("how", ["before", "after", "torn"])
def test_a_crash_at_any_call_loses_nothing_and_the_next_run_finishes(
    how: str, template: tuple[str, list[str]], lake: Lake
) -> None:
    source, done = template
    number, failed = 0, True
    while failed:
        number += 1
        path = lake.path(str(number))
        lake.copy(source, path)
        storage = FaultyStorage(open_storage(path), number, how, kinds=("put", "delete"))
        with contextlib.suppress(FaultError, LakeError):
            both(storage)
        failed = storage.failed
        table = lakesql.open_table(path)
        assert tuples(table.read()) == WANT
        assert tuples(table.read(as_of=done[-1])) == WANT
        assert [t for t in done if t not in {row["instant"] for row in table.history().to_pylist()}] == []
        both(open_storage(path))
        state = lakesql.open_table(path).state
        assert tuples(lakesql.open_table(path).read()) == WANT
        assert state.timeline.pending() == []
        assert len(state.timeline.completed_writes()) <= 3
        assert {f.instant for f in state.files} == {done[-2], done[-1]}, number
        found = [a.instant.requested for a in read_archived(state.storage, state.config)]
        writes = [t for t in found if t in done]
        assert sorted({*writes, *(i.requested for i in state.timeline.completed_writes())}) == done
        lake.remove(path)
    assert number > 20
