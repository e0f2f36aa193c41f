"""Looks at tables in buckets: how many requests they take, and what they must see all the same."""

import itertools

import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import CommitConflict
from lakesql.format.metadata import format_properties
from lakesql.handle import Table
from lakesql.storage import Storage, open_storage
from lakesql.table.listing import known_state, look
from lakesql.table.sight import PROPERTIES
from lakesql.table.state import load
from tests.samples import SCHEMA, Kind, create, rows, tuples

pytest.importorskip("obstore")
_numbers = itertools.count()
A, B = ("a", "x", 1, 1), ("b", "y", 1, 1)


@pytest.fixture
def path() -> str:
    return f"memory://sight-{next(_numbers)}/t"


def asked(storage: Storage, run: object) -> dict[str, int]:
    """The requests by kind that a call makes."""
    before = dict(storage.requests)
    run()  # type: ignore[operator]
    return {k: n - before.get(k, 0) for k, n in storage.requests.items() if n != before.get(k, 0)}


def test_a_second_look_is_one_listing(path: str) -> None:
    create(path, Kind("mor", 9)).upsert(rows(A, B))
    storage = open_storage(path)
    assert asked(storage, lambda: look(storage)) == {"get": 1, "list": 1}
    first = look(storage)
    assert asked(storage, lambda: look(storage)) == {"list": 1}
    assert look(storage) is first


@pytest.mark.parametrize("version", [9, 6])
def test_a_small_change_takes_twelve_requests(path: str, version: int) -> None:
    table = create(path, Kind("mor", version))
    for n in range(4):
        made = asked(table.state.storage, lambda n=n: table.upsert(rows(("a", "x", n, n))))
    assert sum(made.values()) <= 12 + (version < 8)  # in version 6 a log may have grown, and is read again
    assert tuples(table.read()) == [("a", "x", 3, 3)]


def test_what_a_write_remembers_is_what_a_look_finds(path: str) -> None:
    table = create(path, Kind("mor", 9))
    table.upsert(rows(A, B))
    table.upsert(rows(("a", "x", 2, 2)))
    known, found = known_state(table.state.storage), load(open_storage(path))
    assert known is not None
    assert known.timeline == found.timeline
    assert {f.path: f.size_bytes for f in known.files} == {f.path: f.size_bytes for f in found.files}


def test_commits_of_others_are_seen(path: str) -> None:
    mine, theirs = create(path, Kind("mor", 9)), lakesql.open_table(path)
    mine.upsert(rows(A))
    theirs.upsert(rows(("a", "x", 5, 5), B))
    assert tuples(mine.read()) == [("a", "x", 5, 5), B]
    mine.upsert(rows(("b", "y", 6, 6)))
    assert tuples(theirs.read()) == [("a", "x", 5, 5), ("b", "y", 6, 6)]


def test_properties_that_somebody_replaced_are_read_again(path: str) -> None:
    table = create(path, Kind("mor", 9))
    storage = table.state.storage
    look(storage)
    changed = {**table.state.config.properties, "hoodie.compaction.x": "1"}
    open_storage(path).put(PROPERTIES, format_properties(changed, "x").encode("latin-1"))
    assert look(storage).config.properties["hoodie.compaction.x"] == "1"


def test_a_write_prepared_on_a_table_that_changed_is_a_conflict_and_works_when_run_again(path: str) -> None:
    table = create(path, Kind("mor", 9))
    table.upsert(rows(A))
    changed = {**table.state.config.properties, "hoodie.compaction.x": "1"}
    open_storage(path).put(PROPERTIES, format_properties(changed, "x").encode("latin-1"))
    with pytest.raises(CommitConflict, match="properties changed while the rows were prepared"):
        table.upsert(rows(B))
    table.upsert(rows(B))
    assert tuples(table.read()) == [A, B]


def test_files_that_a_store_lists_before_the_timeline_are_listed_after_it(path: str) -> None:
    table = lakesql.create_table(path, SCHEMA, type="mor", primary_key=["id"], ordering_fields=["ts"])
    table.upsert(rows(A))
    other = lakesql.open_table(path)

    class Late(type(table.state.storage)):  # type: ignore[misc]
        """Somebody commits between the listing of the first names and that of the rest."""

        done = False

        def listed(self, folder, skip=lambda _: False):  # type: ignore[no-untyped-def]
            found = super().listed(folder, skip)
            if folder or Late.done:
                return found
            Late.done = True
            early = [f for f in found if f.path < ".hoodie/"]
            other.upsert(rows(("a", "x", 7, 7)))
            return early + [f for f in super().listed(folder, skip) if f.path >= ".hoodie/"]

    storage = open_storage(path)
    storage.__class__ = Late
    assert tuples(Table(storage).read()) == [("a", "x", 7, 7)]


def test_a_table_that_is_none_and_one_that_lost_its_properties_are_told_apart(path: str) -> None:
    with pytest.raises(lakesql.TableError, match="not a Hudi table"):
        lakesql.open_table(path)
    create(path, Kind("cow", 9)).upsert(pa.table({n: [v] for n, v in zip(SCHEMA.names, A, strict=True)}, SCHEMA))
    open_storage(path).delete(PROPERTIES)
    with pytest.raises(lakesql.TableError, match="is missing, and without it"):
        lakesql.open_table(path)
