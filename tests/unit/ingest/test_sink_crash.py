"""A run that dies at any write to the storage: the next one from the stored offsets gives every record exactly once."""

import shutil
from pathlib import Path

import pytest

from lakesql.errors import LakeError
from lakesql.ingest.quarantine import quarantine_table
from lakesql.storage import LocalStorage, Storage
from lakesql.table.state import load
from tests.faulty import HOW, FaultyStorage
from tests.unit.ingest.loading import BAD, job, record, rows_of, run, sink

ONE, TWO = ("o", 0), ("o", 1)
KINDS = {
    "new table": {"type": "mor"},
    "mor": {"type": "mor", "primaryKey": "id"},
    "cow": {"type": "cow", "hoodie.table.version": "6"},
}
FIRST = {ONE: [record(1, 10), ("x", BAD)], TWO: [record(2, 20)]}
SECOND = {
    ONE: [*FIRST[ONE], record(3, 30), ("y", BAD), record(1, 11), ("7", None)],
    TWO: [*FIRST[TWO], record(4, 40), ("z", BAD)],
}


class Twin(FaultyStorage):
    """A storage that counts and dies with another one."""

    def __init__(self, inner: Storage, other: FaultyStorage) -> None:
        self.other = other
        super().__init__(inner, other.fail_at, other.how, kinds=other.kinds)
        self.calls = other.calls

    @property
    def failed(self) -> bool:
        return self.other.failed

    @failed.setter
    def failed(self, value: bool) -> None:
        self.other.failed = value


def dying(path, given, call, how):
    """(whether the process died, what was raised) of a run whose process dies at that call."""
    table = FaultyStorage(LocalStorage(path), call, how, kinds=("put", "delete"))
    bad = Twin(LocalStorage(f"{path}_quarantine"), table)
    try:
        run(sink(path, given, table, quarantine_storage=bad), SECOND, "dead")
    except (OSError, LakeError) as error:
        return table.failed, error
    return table.failed, None


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_run_that_dies_at_any_call_is_made_good_by_the_next(tmp_path, kind, how):
    keyed = "primaryKey" in KINDS[kind]
    want = [(1, 11), (2, 20), (3, 30), (4, 40)] if keyed else [(1, 10), (1, 11), (2, 20), (3, 30), (4, 40)]
    begun = tmp_path / "begun"
    if kind != "new table":
        run(sink(begun, job(begun, properties=KINDS[kind])), FIRST, "first")
    outcomes = set()
    for call in range(1, 200):
        path = tmp_path / f"t{call}"
        given = job(path, properties=KINDS[kind])
        if begun.exists():
            shutil.copytree(begun, path)
            shutil.copytree(f"{begun}_quarantine", f"{path}_quarantine")
        died, error = dying(path, given, call, how)
        if died:
            outcomes.add(run(sink(path, given), SECOND, "next").commit is None)
        assert rows_of(path) == want, (call, error)
        assert quarantine_table(str(path))["_key"].to_pylist() == [b"x", b"y", b"z"], (call, error)
        assert {str(at): n for at, n in sink(path, given).stored().offsets().items()} == {"o:0": 6, "o:1": 3}
        files = [f.name for f in Path(f"{path}_quarantine").iterdir() if not f.name.startswith(".")]
        assert len(files) == (1 if kind == "new table" else 2), (call, error, files)
        now = load(LocalStorage(path))
        assert all(now.timeline.is_committed(f.instant) for f in now.files), (call, error)
        assert not now.timeline.pending(), (call, error)
        if not died:
            break
    assert not died
    assert outcomes == {True, False}  # it died before the commit and behind it
