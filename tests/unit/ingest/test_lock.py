"""One running instance of an ingestion; a dead one does not block."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import pytest

from lakesql.errors import IngestionRunning, JobError
from lakesql.ingest.definitions import Definition
from lakesql.ingest.front import work_of
from lakesql.ingest.lock import job_lock, lock_file
from lakesql.ingest.model import Target

from .fakes import job

HOLDING = """
import sys, time
from lakesql.ingest.lock import job_lock
from lakesql.ingest.model import Format, Job, Target
with job_lock(Job("j", {}, Target("hudi", sys.argv[1]), Format("raw"))):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDING), f"{tmp_path}/table"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def locked(tmp_path, **changes):
    return job(lock=True, target=Target("hudi", f"{tmp_path}/table"), **changes)


def test_a_living_run_refuses_others_and_names_itself_and_a_killed_one_is_taken_over(holder, tmp_path):
    began = time.monotonic()
    refused = rf"process {holder.pid} on .*, since 20.*job.lock.enabled"
    with pytest.raises(IngestionRunning, match=refused), job_lock(locked(tmp_path)):
        pass
    assert time.monotonic() - began < 1
    with pytest.raises(IngestionRunning, match=r"Waited 0\.2 s"), job_lock(locked(tmp_path, lock_wait_s=0.2)):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    with job_lock(locked(tmp_path, lock_wait_s=30)) as notes:
        assert f"process {holder.pid}" in notes[0]
    with job_lock(locked(tmp_path)) as notes:
        assert notes == ()


def test_two_runs_in_one_process_exclude_each_other(tmp_path):
    with job_lock(locked(tmp_path)), pytest.raises(IngestionRunning), job_lock(locked(tmp_path)):
        pass


def test_jobs_of_different_names_do_not_meet(tmp_path):
    with job_lock(locked(tmp_path)), job_lock(locked(tmp_path, name="other")):
        pass
    assert lock_file(locked(tmp_path, name="a/b")) != lock_file(locked(tmp_path, name="a_b"))


def test_a_lock_that_is_switched_off_makes_no_file(tmp_path):
    with job_lock(replace(locked(tmp_path), lock=False)) as notes:
        assert notes == ()
    assert list(tmp_path.iterdir()) == []


def test_a_living_run_of_another_host_holds_its_lock_by_its_heartbeat(tmp_path):
    one = locked(tmp_path)
    owner = lock_file(one).with_name(lock_file(one).name + ".holder")
    owner.parent.mkdir(parents=True)
    about = {"job": "j", "host": "elsewhere", "pid": 7, "since": 1e9, "beat": 1e9}
    owner.write_text(json.dumps(about))
    with (
        pytest.raises(IngestionRunning, match="process 7 on elsewhere, since 2001-09-09 01:46:40 UTC"),
        job_lock(one, now=lambda: 1e9 + 59),
    ):
        pass
    with job_lock(one, now=lambda: 1e9 + 61) as notes:
        assert "elsewhere" in notes[0]


def test_the_heartbeat_is_written_while_the_lock_is_held(tmp_path):
    one, seconds = locked(tmp_path), iter(range(1000))
    owner = lock_file(one).with_name(lock_file(one).name + ".holder")
    with job_lock(one, now=lambda: float(next(seconds)), beat_s=0.01):
        first = json.loads(owner.read_text())["beat"]
        deadline = time.monotonic() + 5
        while json.loads(owner.read_text())["beat"] == first and time.monotonic() < deadline:
            time.sleep(0.01)
        assert json.loads(owner.read_text())["beat"] > first
        assert json.loads(owner.read_text())["pid"] == os.getpid()
    assert not owner.exists()


def test_the_file_of_an_owner_that_cannot_be_read_is_written_anew(tmp_path):
    one = locked(tmp_path)
    owner = lock_file(one).with_name(lock_file(one).name + ".holder")
    owner.parent.mkdir(parents=True)
    owner.write_text("{")
    with job_lock(one) as notes:
        assert "unreadable" in notes[0]


def test_a_folder_that_cannot_be_written_is_an_error_of_the_job(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match=r"job\.lock\.dir"), job_lock(locked(tmp_path, lock_dir=str(tmp_path / "file"))):
        pass


def test_the_front_ends_leave_the_place_of_the_lock_to_the_lock(tmp_path):
    given = {"kafka.brokers": "h:1"}
    table = work_of(Definition("j", f"{tmp_path}/table", options=given), str).job
    files = work_of(Definition("j", f"{tmp_path}/out", files=True, options=given), str).job
    assert [lock_file(one).parent for one in (table, files)] == [
        tmp_path / ".lakesql" / "locks",
        tmp_path / "out" / "_lakesql" / "locks",
    ]
    chosen = work_of(Definition("j", f"{tmp_path}/table", options=given | {"job.lock.dir": "/l"}), str).job
    assert lock_file(chosen).parent.as_posix() == "/l"


def test_locks_lie_where_no_reader_of_the_target_looks(tmp_path):
    assert lock_file(locked(tmp_path)).parent == tmp_path / ".lakesql" / "locks"
    assert lock_file(job(target=Target("files", str(tmp_path)))).parent == tmp_path / "_lakesql" / "locks"
    assert lock_file(job(target=Target("hudi", f"{tmp_path}/x_{{topic}}"))).parent == tmp_path / ".lakesql" / "locks"
    assert lock_file(locked(tmp_path, lock_dir="/var/lock/x")).parent.as_posix() == "/var/lock/x"
