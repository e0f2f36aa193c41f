"""A service as a process of its own: rounds, conflicts, failures, the end."""

import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from lakesql import handle
from lakesql.cli import app
from lakesql.errors import CommitConflict, FileGone, LakeError, TableError
from lakesql.table.state import load
from lakesql.upkeep import ONCE_WAITS, keep, seconds_of
from tests.faulty import FaultyStorage
from tests.writing import delete, rows_of, table, upsert


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("5", 5)])
def test_lengths_of_time(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "ten", "-1m", "1w"])
def test_wrong_lengths_of_time_say_how_to_write_them(text):
    with pytest.raises(LakeError, match="90s, 10m, 2h or 1d"):
        seconds_of(text)


def script(*steps):
    """A service that does one step after the other and is stopped at the end."""
    left = list(steps)

    def work():
        step = left.pop(0) if left else KeyboardInterrupt()
        if isinstance(step, BaseException):
            raise step
        return step

    return work


def test_conflicts_are_waited_out_and_later_failures_tried_again():
    said, slept = [], []
    work = script("one", CommitConflict("busy"), OSError("disk"), "two")
    assert keep(work, said.append, 600, slept.append) == 2
    assert said == [
        "one",
        "Waiting: busy",
        "This round failed, the next one tries again: disk",
        "two",
        "Stopped after 2 rounds.",
    ]
    assert [round(s) for s in slept] == [600, 5, 600, 600]


def test_failure_of_the_first_round_ends_it():
    with pytest.raises(TableError):
        keep(script(TableError("no table")), str, 600, lambda _: None)


def test_a_single_run_waits_for_a_while():
    assert keep(script(CommitConflict("busy"), "one"), str, None, lambda _: None) == 1
    with pytest.raises(CommitConflict):
        keep(script(*[CommitConflict("busy")] * (ONCE_WAITS + 1)), str, None, lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        keep(script(), str, None, lambda _: None)


def logged(path):
    t = table(path, "mor")
    upsert(t, ("a", "x", 1, 1), ("b", "y", 1, 1))
    upsert(t, ("a", "x", 2, 2))
    delete(t, ("b", "y"))
    return t


def test_command_compacts_a_table(tmp_path):
    t = logged(tmp_path / "t")
    runner = CliRunner()
    planned = runner.invoke(app, ["compact", t.path, "--schedule-only", "--partition", "city=x"])
    assert "scheduled compaction" in planned.output
    assert "1 file group," in runner.invoke(app, ["compact", t.path, "--run-only"]).output
    assert "1 file group," in runner.invoke(app, ["compact", t.path]).output
    assert "nothing to do" in runner.invoke(app, ["compact", t.path]).output
    assert rows_of(t) == [("a", "x", 2, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--schedule-only", "--run-only"], "exclude each other"),
        (["--set", "x"], "write KEY=VALUE"),
        (["--every", "soon"], "no length of time"),
        (["--set", "hoodie.compaction.strategy=no"], "must be one of"),
    ],
)
def test_wrong_options_say_what_is_right(tmp_path, options, message):
    t = logged(tmp_path / "t")
    found = CliRunner().invoke(app, ["compact", t.path, *options])
    assert isinstance(found.exception, LakeError)
    assert message in str(found.exception)


def test_the_signal_of_a_process_manager_ends_it():
    assert keep(lambda: "one", str, 600, lambda _: os.kill(os.getpid(), signal.SIGTERM)) == 1


def test_the_process_works_beside_a_writer_and_ends_cleanly(tmp_path):
    t = logged(tmp_path / "t")
    command = [sys.executable, "-c", "from lakesql.cli import main; main()", "compact", t.path, "--every", "0.2s"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            deadline = time.monotonic() + 60
            n = 10
            while time.monotonic() < deadline:
                n += 1
                upsert(t, ("a", "x", n, n))
                assert rows_of(t) == [("a", "x", n, n)]
                if sum(i.action == "compaction" and i.is_completed for i in load(t.storage).timeline.instants) > 2:
                    break
            process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=30)[0]
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Stopped after" in output
    assert rows_of(t) == [("a", "x", n, n)]
    assert sum(i.action == "compaction" for i in load(t.storage).timeline.instants) > 2


def test_a_file_that_a_clean_beside_took_is_waited_out_even_in_the_first_round():
    said = []
    work = script(FileGone("gone"), FileGone("gone"), "one", FileGone("gone"), "two")
    assert keep(work, said.append, 600, lambda _: None) == 2
    assert said == ["Waiting: gone", "Waiting: gone", "one", "Waiting: gone", "two", "Stopped after 2 rounds."]


def test_a_file_that_stays_away_ends_the_first_round():
    with pytest.raises(FileGone):
        keep(script(*[FileGone("gone")] * (ONCE_WAITS + 1)), str, 600, lambda _: None)


@pytest.mark.parametrize("work", ["cluster", "compact", "upsert"])
def test_files_that_vanish_within_a_round_are_told_apart_from_lost_ones(work, tmp_path):
    """The storage loses the newest base file after the table was listed, as when a clean removes a replaced group."""
    t = handle.open_table(logged(tmp_path / "t").path)
    storage = VanishingStorage(t.state.storage)
    mine = handle.Table(storage)
    storage.armed = True
    calls = {"cluster": mine.cluster, "compact": mine.compact, "upsert": lambda: mine.delete("v = 2")}
    with pytest.raises(FileGone, match="is gone"):
        calls[work]()


class VanishingStorage(FaultyStorage):
    """Data files are listed, and gone when they are opened."""

    armed = False

    def __init__(self, inner):
        super().__init__(inner, fail_at=0)

    def data_path(self, path):
        return super().data_path(f"gone/{path}" if self.armed else path)


def test_command_clusters_chosen_partitions_with_settings(tmp_path):
    t = logged(tmp_path / "t")
    upsert(t, ("c", "y", 3, 3))
    runner = CliRunner()
    done = runner.invoke(app, ["cluster", t.path, "--partition", "city=x"])
    assert "made 1 file group of 1" in done.output
    done = runner.invoke(app, ["cluster", t.path, "--partition", "city=nowhere"])
    assert "there is no partition 'city=nowhere'" in str(done.exception)


def test_command_archives_a_table(tmp_path):
    t = table(tmp_path / "t", "cow")
    for n in range(8):
        upsert(t, ("a", "x", n, n))
    short = ["--set", "hoodie.keep.min.commits=2", "--set", "hoodie.keep.max.commits=3"]
    keep_few = ["--set", "hoodie.clean.commits.retained=1"]
    runner = CliRunner()
    assert runner.invoke(app, ["archive", t.path]).output == "Nothing to archive.\n"
    assert "files removed" in runner.invoke(app, ["clean", t.path, *keep_few]).output
    assert "instants archived" in runner.invoke(app, ["archive", t.path, *short, *keep_few]).output
    assert len(load(t.storage).timeline.completed_writes()) == 2
    assert rows_of(t) == [("a", "x", 7, 7)]
