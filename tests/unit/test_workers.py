"""Threads of a write at a Ctrl-C: none writes after the write was undone, none is left to keep the process alive."""

import os
import signal
import threading
import time

import pytest

from lakesql.services import compaction_files
from lakesql.write import slices
from lakesql.write.workers import Workers
from tests.writing import listing, rows_of, table, upsert

PATIENCE_S = 10
A, B = ("a", "x", 1, 10), ("b", "y", 2, 10)


class Interruption:
    """Ctrl-C that hits the start of a thread with that name: the thread runs, whoever started it does not know it."""

    def __init__(self, monkeypatch, name):
        self.begun = threading.Event()
        self.threads = []
        start = threading.Thread.start

        def interrupted(thread):
            if not thread.name.startswith(name) or self.threads:
                return start(thread)
            self.threads.append(thread)
            start(thread)
            assert self.begun.wait(PATIENCE_S)
            raise KeyboardInterrupt

        monkeypatch.setattr(threading.Thread, "start", interrupted)

    def slow(self, function):
        """The function, but it begins to work when the write has had the time to be undone."""

        def late(*arguments):
            self.begun.set()
            time.sleep(0.3)
            return function(*arguments)

        return late

    def ended(self):
        for thread in self.threads:
            thread.join(PATIENCE_S)
        return bool(self.threads) and not any(thread.is_alive() for thread in self.threads)


@pytest.mark.parametrize("version", [6, 9])
def test_log_file_in_the_making_is_undone_with_its_write(tmp_path, monkeypatch, version):
    t = table(tmp_path / "t", "mor", version)
    upsert(t, A, B)
    before = listing(t.path)
    interruption = Interruption(monkeypatch, "lakesql-log")
    monkeypatch.setattr(slices, "encode_groups", interruption.slow(slices.encode_groups))
    with pytest.raises(KeyboardInterrupt):
        upsert(t, ("a", "x", 5, 50))
    assert interruption.ended()
    assert listing(t.path) == before
    upsert(t, ("b", "y", 6, 60))
    assert rows_of(t) == [A, ("b", "y", 6, 60)]


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_base_file_in_the_making_is_undone_and_its_thread_ends(tmp_path, monkeypatch, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A)
    before = listing(t.path)
    interruption = Interruption(monkeypatch, "lakesql-write")
    monkeypatch.setattr(slices, "_write_base", interruption.slow(slices._write_base))
    with pytest.raises(KeyboardInterrupt):
        upsert(t, B)
    assert interruption.ended()
    assert {f for f in listing(t.path) - before if not f.endswith(".hoodie_partition_metadata")} == set()
    upsert(t, B)
    assert rows_of(t) == [A, B]


def test_base_file_of_a_compaction_in_the_making_is_awaited(monkeypatch):
    interruption = Interruption(monkeypatch, "lakesql-compact")
    done = []
    with pytest.raises(KeyboardInterrupt), Workers(compaction_files.WORKERS, "lakesql-compact") as workers:
        workers.submit(interruption.slow(done.append), 1)
    assert done == [1]
    assert interruption.ended()


def test_job_that_comes_after_the_end_does_not_run(monkeypatch):
    started, done = [], []
    start = threading.Thread.start

    def interrupted(thread):
        started.append(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        patched.setattr("concurrent.futures.ThreadPoolExecutor.shutdown", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt), Workers(1, "late") as workers:
            workers.submit(done.append, 1)
    (thread,) = started
    start(thread)
    workers._pool.shutdown()
    thread.join(PATIENCE_S)
    assert (done, thread.is_alive()) == ([], False)


def test_more_ctrl_c_while_the_jobs_end_does_not_leave_one_running():
    giving_up, done = threading.Event(), []

    def interrupt(*_):
        raise KeyboardInterrupt

    def job():
        assert giving_up.wait(PATIENCE_S)
        for _ in range(3):
            time.sleep(0.03)
            os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(0.1)
        done.append(1)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), Workers(1, "slow", giving_up.set) as workers:
            workers.submit(job)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert done == [1]


def test_error_of_a_job_is_the_error_of_its_result():
    def fail():
        raise OSError("disk full")

    with Workers(1, "failing") as workers:
        future = workers.submit(fail)
        with pytest.raises(OSError, match="disk full"):
            future.result()
