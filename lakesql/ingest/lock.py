"""One running instance of an ingestion at a time (R46): a lock of the operating system and a file that says who has it.

The lock saves work; that a record arrives once does not rest on it, because the offsets are compared at the commit. A run
that died holds nothing: the system has freed its lock, and the next run takes over and says so. On a shared folder whose
locks do not reach other hosts, the heartbeat in the file of another host keeps its run safe for as long as it beats.
"""

import hashlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from lakesql.errors import IngestionRunning, JobError
from lakesql.ingest.model import Job, Target
from lakesql.storage import open_storage

BEAT_S = 10.0
STALE_S = 60.0
"""A heartbeat of another host that is older than this is a dead run's."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock; times in seconds since the epoch."""

    job: str
    host: str
    pid: int
    since: float
    beat: float

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"process {self.pid} on {self.host}, since {since}"


@contextmanager
def job_lock(job: Job, now: Callable[[], float] = time.time, beat_s: float = BEAT_S) -> Iterator[tuple[str, ...]]:
    """Hold the lock of this job; gives notes for the report. IngestionRunning when a living run has it.

    Waits up to job.lock_wait_s. Does nothing when the job has its lock switched off.
    """
    if not job.lock:
        yield ()
        return
    path = lock_file(job)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, thread_local=False)
        _acquire(lock, path, job, now)
    except OSError as error:
        raise JobError(f"The lock {path} of the ingestion {job.name} cannot be made ({error}). Set job.lock.dir to a folder "
                       "that can be written, or job.lock.enabled=false.") from error  # fmt: skip
    owner = _owner_file(path)
    try:
        notes = _taken_over(job, _read(owner), owner)
        stop = threading.Event()
        mine = Holder(job.name, socket.gethostname(), os.getpid(), now(), now())
        _write(owner, mine)
        beating = threading.Thread(
            target=_beat, args=(owner, mine, now, beat_s, stop), name="lakesql-lock", daemon=True
        )
        beating.start()
        try:
            yield notes
        finally:
            stop.set()
            beating.join()
            owner.unlink(missing_ok=True)
    finally:
        lock.release()


def lock_file(job: Job) -> Path:
    """Where the lock of a job is: named after the job, in job.lock.dir or with the target."""
    folder = Path(job.lock_dir) if job.lock_dir else _default_folder(job.target)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", job.name)[:80]
    digest = hashlib.sha256(job.name.encode()).hexdigest()[:8]
    return folder / f"ingest-{readable}-{digest}.lock"


def _default_folder(target: Target) -> Path:
    """A hidden folder beside a table, which may not exist yet, or in a folder of files; one for each topic: above all.

    Within, the lock would make a folder of a table that does not exist yet.
    """
    fixed, several, _ = target.path.partition("{topic}")
    if several or target.kind == "hudi":
        example = f"{fixed}topic" if several else fixed.rstrip("/")
        uri = open_storage(example).uri
        return _own_folder(uri) if "://" in uri else Path(uri).parent / ".lakesql" / "locks"
    uri = open_storage(target.path).uri
    return _own_folder(uri) if "://" in uri else Path(uri) / "_lakesql" / "locks"


def _own_folder(uri: str) -> Path:
    """For a target in an object store, where no process can hold a file: on this machine, with the person's own data.

    Runs on other machines are kept apart by the offsets that each commit moves.
    """
    digest = hashlib.sha256(uri.rpartition("/")[0].encode()).hexdigest()[:16]
    return Path(platformdirs.user_state_path("lakesql")) / "locks" / digest


def _acquire(lock: FileLock, path: Path, job: Job, now: Callable[[], float]) -> None:
    """Take the lock, waiting for the system's and for a living run of another host alike."""
    deadline = time.monotonic() + max(job.lock_wait_s, 0.0)
    while True:
        holder: Holder | None
        try:
            lock.acquire(timeout=max(deadline - time.monotonic(), 0.0))
        except Timeout:
            holder = _read(_owner_file(path))
        else:
            holder = _read(_owner_file(path))
            if holder is None or holder.host == socket.gethostname() or now() - holder.beat > STALE_S:
                return
            lock.release()
        if time.monotonic() >= deadline:
            raise IngestionRunning(_refusal(job, path, holder))
        time.sleep(0.05)


def _refusal(job: Job, path: Path, holder: Holder | None) -> str:
    who = str(holder) if holder else "a process that has not yet written its name"
    waited = f" Waited {job.lock_wait_s:g} s for it." if job.lock_wait_s else ""
    return (
        f"The ingestion {job.name} is running already: {who}.{waited} Wait for it to end, or stop it; lock file {path}. "
        "With job.lock.enabled=false runs start anyway, and of two at a time one fails when it commits."
    )


def _taken_over(job: Job, dead: Holder | None, owner: Path) -> tuple[str, ...]:
    if dead is None:
        if owner.exists():
            return (f"The lock of {job.name} has an unreadable owner file {owner}; it is written anew.",)
        return ()
    return (f"A run of {job.name} ended without giving its lock back ({dead}); the lock is taken over.",)


def _beat(owner: Path, mine: Holder, now: Callable[[], float], beat_s: float, stop: threading.Event) -> None:
    while not stop.wait(beat_s):
        with suppress(OSError):  # a full disk must not stop a run; the lock itself is the system's
            _write(owner, Holder(mine.job, mine.host, mine.pid, mine.since, now()))


def _owner_file(path: Path) -> Path:
    return path.with_name(path.name + ".holder")


def _write(owner: Path, holder: Holder) -> None:
    temporary = owner.with_name(f"{owner.name}.{holder.pid}")
    temporary.write_text(json.dumps(asdict(holder)))
    temporary.replace(owner)


def _read(owner: Path) -> Holder | None:
    try:
        return Holder(**json.loads(owner.read_text()))
    except (OSError, ValueError, TypeError):
        return None
