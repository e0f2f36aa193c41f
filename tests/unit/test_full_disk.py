"""A full disk during a table service: a clear error, a table that reads as before, and a run that works once there is room."""

import errno
from pathlib import Path

import duckdb
import pytest

import lakesql
from lakesql.errors import LakeError, TableError
from lakesql.services import compaction
from lakesql.storage import Sink, open_storage
from tests.faulty import FaultyStorage
from tests.samples import Kind, create, rows, tuples
from tests.writing import listing

WANT = [("a", "x", 3, 3), ("b", "y", 2, 2), ("c", "x", 1, 1)]
VERSIONS = pytest.mark.parametrize("version", [9, 8, 6])


class FullDisk(FaultyStorage):
    """The disk is full from call number `fail_at` on."""

    def _call(self, kind, path, data=b"", *, create=False):  # type: ignore[no-untyped-def]  # noqa: ARG002
        if kind == "put":
            self.calls.append((kind, path))
            if len(self.calls) >= self.fail_at > 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        return super()._call("", path)


class FullFiles(FaultyStorage):
    """Data files are opened, and cannot be written."""

    def sink(self, path: str) -> Sink:
        sink = super().sink(path)
        sink.target = "/dev/full"
        return sink


def logged(tmp_path: Path, version: int) -> lakesql.Table:
    table = create(tmp_path / "t", Kind("mor", version))
    table.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1), ("c", "x", 1, 1)))
    table.upsert(rows(("a", "x", 2, 2), ("b", "y", 2, 2)))
    table.upsert(rows(("a", "x", 3, 3)))
    return table


def whole_again(table: lakesql.Table) -> None:
    assert tuples(table.read()) == WANT
    table.compact()
    assert tuples(table.read()) == WANT
    assert not any(one.logs for one in table.state.slices())
    assert not table.state.pending_compactions


@VERSIONS
@pytest.mark.parametrize("service", ["compact", "cluster"])
def test_storage_that_is_full_from_any_put_on(version: int, service: str, tmp_path: Path) -> None:
    number = 0
    while True:
        number += 1
        table = logged(tmp_path / str(number), version)
        full = FullDisk(open_storage(table.path), fail_at=number)
        mine = lakesql.handle.Table(full)
        error = None
        try:
            mine.compact() if service == "compact" else mine.cluster(["v"])
        except (LakeError, OSError) as found:
            error = found
        if len(full.calls) < number:
            break
        assert error is None or "No space left" in str(error)
        if service == "cluster":
            table.cluster(["v"])
        whole_again(table)
    assert number > 3


@VERSIONS
def test_a_base_file_that_the_disk_has_no_room_for(version: int, tmp_path: Path) -> None:
    table = logged(tmp_path, version)
    planned = table.compact(run=False)
    before = listing(table.path)
    mine = lakesql.handle.Table(FullFiles(open_storage(table.path), fail_at=0))
    with pytest.raises(TableError, match=r"parquet: cannot be written: No space left on device\. Make room"):
        mine.compact(schedule=False)
    assert list(table.state.pending_compactions.values()) or planned.instant in {
        i.requested for i in table.state.timeline.pending()
    }
    assert {name for name in listing(table.path) - before if name.endswith(".parquet")} == set()
    whole_again(table)


def test_duckdb_without_room_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = logged(tmp_path, 9)

    def no_room(*_: object, **__: object) -> None:
        raise duckdb.OutOfMemoryException("failed to offload data block of size 256.0 KiB (0 bytes/0 bytes used).")

    with monkeypatch.context() as patched:
        patched.setattr("lakesql.table.deltas._merged", no_room)
        with pytest.raises(TableError, match=r"ran out of memory or of room.*offload.*the plan stays.*run it again"):
            compaction.compact(duckdb.connect(), open_storage(table.path), table.properties)
    whole_again(table)
