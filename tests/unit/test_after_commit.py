"""After the put that completes a commit nothing may turn it into a failed write: what goes wrong becomes a note."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakesql.storage import LocalStorage
from tests import writing


def test_failure_while_traces_are_removed_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = writing.table(tmp_path / "t")

    def fail(*_: object) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(LocalStorage, "delete_tree", fail)
    result = writing.upsert(state, ("a", "oslo", 1, 1))
    assert result.notes == (f"Temporary files of {result.instant} could not be removed (no more); they do no harm.",)
    monkeypatch.undo()
    assert writing.rows_of(state) == [("a", "oslo", 1, 1)]
    assert writing.upsert(state, ("a", "oslo", 2, 2)).notes == ()


def test_failure_to_release_the_lock_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = writing.table(tmp_path / "t")
    real = LocalStorage.lock

    @contextmanager
    def lock(self: LocalStorage, name: str, wait_s: float) -> Iterator[None]:
        with real(self, name, wait_s):
            yield
        raise OSError("gone")

    monkeypatch.setattr(LocalStorage, "lock", lock)
    result = writing.upsert(state, ("a", "oslo", 1, 1))
    assert result.notes == ("The write is complete, but the table's lock could not be released (gone).",)
    assert writing.rows_of(state) == [("a", "oslo", 1, 1)]


def test_interrupt_after_the_commit_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = writing.table(tmp_path / "t")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStorage, "delete_tree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writing.upsert(state, ("a", "oslo", 1, 1))
    assert writing.rows_of(state) == [("a", "oslo", 1, 1)]
