"""Tables that Hudi left after its own services, cleaned and archived on by us: the rows stay, and hudi-rs agrees."""

import itertools
import zipfile
from pathlib import Path

import pytest

import lakesql
from lakesql.format.timeline import COMPLETED, instant_millis
from lakesql.services import archiving, cleaning
from lakesql.storage import open_storage
from lakesql.table.retained import retained_from
from tests.interop import rust
from tests.zipped import FOLDER

SETTINGS = {
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "1",
    "hoodie.keep.max.commits": "2",
}
NAMES = [
    "h120_services_mor",
    "h120_rollback_mor",
    "h102_rollback_mor",
    "h120_overwrite_table_mor",
    "h015_overwrite_table_mor",
    "h120_clustered_cow",
    "h120_clustered_mor",
    "h015_clustered_cow",
    "h015_clustered_mor",
    "h102_clustered_cow",
    "h120_pending_mor",
    "h102_pending_mor",
    "h120_logcompact_mor",
    "h015_logcompact_mor",
    "r060_cow_v8_archived",
    "r060_mor_v9_archived",
]


def unpacked(name: str, to: Path) -> Path:
    """The table of a zip on disk."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(to)
        (root,) = {
            p.partition("/.hoodie/")[0] for p in archive.namelist() if "/.hoodie/" in p and "/metadata/" not in p
        }
    return to / root


def rows_of(path: Path, as_of: str | None = None) -> list[str]:
    found = lakesql.open_table(path).read(as_of=as_of).read_all()
    return sorted(map(repr, found.to_pylist()))


def rows_of_rust(path: Path, columns: list[str]) -> list[str]:
    found = rust.read(path)
    return sorted(map(repr, found.select(columns).to_pylist())) if found.num_columns else []


@pytest.mark.parametrize("name", NAMES)
def test_rows_and_retained_states_stay_when_we_clean_and_archive_on(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    state = lakesql.open_table(path).state
    ticks = itertools.count(instant_millis(state.timeline.newest_time) + 3_600_000)
    before, storage = rows_of(path), open_storage(str(path))
    keys = ["_hoodie_record_key", "_hoodie_partition_path"]
    by_rust = rows_of_rust(path, keys)
    history = {i.requested for i in state.history.completed_writes()}
    newest = [
        i.requested for i in state.timeline.completed_writes()[-2:] if i.requested >= (retained_from(state) or "")
    ]
    states = {instant: rows_of(path, instant) for instant in newest}
    cleaned = cleaning.clean(storage, SETTINGS, lambda: next(ticks))
    assert rows_of(path) == before
    archived = archiving.archive(storage, SETTINGS, lambda: next(ticks))
    assert rows_of(path) == before
    assert rows_of_rust(path, keys) == by_rust
    after = lakesql.open_table(path).state
    assert {i.requested for i in after.history.completed_writes()} == history
    earliest = retained_from(after) or ""
    for instant, rows in states.items():
        if instant >= earliest:
            assert rows_of(path, instant) == rows
    if name in ("h120_services_mor", "h015_overwrite_table_mor"):
        assert cleaned
        assert archived
    assert all(i.state == COMPLETED for i in after.timeline.instants if i.action == "clean")
