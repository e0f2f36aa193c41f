"""The lock of a table: ours, and with it the one that the table's other writers take (`hoodie.write.lock.*`).

    on a local disk      a lock of the operating system; with a provider that works over files its file besides, so that
                         Spark waits for us and we for it
    on an object store   Hudi's storage-based lock, which is ours there (`stores.lock`)
    a lock object        what the person passed (`lakesql.connect(..., lock=...)`), before the others: for providers that
                         need a service we do not talk to, and for stores without conditional puts

A provider that we cannot take and that nobody supplies is refused: both writers would think they are alone.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from lakesql.errors import CommitConflict, TableError, Unsupported
from lakesql.storage import LocalStorage, open_storage
from lakesql.stores import lock as store_lock
from lakesql.stores import lock_object
from lakesql.stores.base import TABLE_LOCK, Storage

PROVIDER = "hoodie.write.lock.provider"
FILE_FOLDER, FILE_EXPIRE = "hoodie.write.lock.filesystem.path", "hoodie.write.lock.filesystem.expire"
SETTINGS = (PROVIDER, FILE_FOLDER, FILE_EXPIRE, store_lock.VALID_SETTING, store_lock.RENEW_SETTING)

_STORAGE, _FILE, _PROCESS = "StorageBasedLockProvider", "FileSystemBasedLockProvider", "InProcessLockProvider"
_SERVICES = {
    "ZookeeperBasedLockProvider": "ZooKeeper",
    "ZookeeperBasedImplicitBasePathLockProvider": "ZooKeeper",
    "DynamoDBBasedLockProvider": "DynamoDB",
    "DynamoDBBasedImplicitPartitionKeyLockProvider": "DynamoDB",
    "HiveMetastoreBasedLockProvider": "the Hive metastore",
}
_OWNER = "lakesql"
_POLL_S = 0.2


@contextmanager
def table_lock(storage: Storage, settings: Mapping[str, str], wait_s: float) -> Iterator[None]:
    """Hold the lock of a table; `settings` are those it stores and the writer's.

    CommitConflict when it does not get free, Unsupported when other writers take one that we cannot.
    """
    provider, given = provider_of(settings), storage.lock_object or lock_object.current()
    if given is None:
        _refuse(storage, provider)
    with ExitStack() as stack:
        stack.enter_context(store_lock.timed(store_lock.times_of(settings)))
        if given is not None:
            stack.enter_context(lock_object.entered(given, storage.uri, wait_s))
        stack.enter_context(storage.lock(TABLE_LOCK, wait_s))
        if not storage.remote and provider == _STORAGE:
            stack.enter_context(store_lock.held(storage, store_lock.TABLE, wait_s))
        if not storage.remote and provider == _FILE:
            stack.enter_context(_file_lock(storage, settings, wait_s))
        yield


def provider_of(settings: Mapping[str, str]) -> str:
    """The class name, without its package, of the lock provider that is asked for; '' for none."""
    return str(settings.get(PROVIDER, "")).strip().rsplit(".", 1)[-1]


def _refuse(storage: Storage, provider: str) -> None:
    known = ("", _STORAGE, _PROCESS) if storage.remote else ("", _STORAGE, _PROCESS, _FILE)
    if provider in known:
        return
    if provider in _SERVICES:
        why = f"other writers lock the table in {_SERVICES[provider]}, which lakesql does not talk to"
    elif provider == _FILE:
        why = "a lock in a file needs a file system that creates files exclusively, and an object store is none"
    else:
        why = "lakesql does not know this class"
    raise Unsupported(
        f"{storage.uri}: {PROVIDER} = {provider}: {why}, so both could commit at the same time. Nothing was written. Pass "
        "a lock object that takes it, lakesql.connect(..., lock=...), or let all writers use StorageBasedLockProvider "
        "(Hudi 1.1 and later)."
    )


@contextmanager
def _file_lock(storage: Storage, settings: Mapping[str, str], wait_s: float) -> Iterator[None]:
    """Hold the file of Hudi's FileSystemBasedLockProvider: there while somebody writes (hudi-format 9.2)."""
    folder = str(settings.get(FILE_FOLDER, "")).strip()
    place, path = (open_storage(folder), "lock") if folder else (storage, ".hoodie/lock")
    if folder and not isinstance(place, LocalStorage):
        raise Unsupported(
            f"{storage.uri}: {FILE_FOLDER} = {folder}: the lock of a table on a local disk lies on a local disk."
        )
    expire_min = _minutes(settings)
    about = {"owner": _OWNER, "table": storage.uri, "process": os.getpid(), "host": socket.gethostname()}
    content = json.dumps({"lockCreateTime": time.strftime("%Y-%m-%d %H:%M:%S"), **about}).encode()
    deadline = time.monotonic() + wait_s
    while not place.put_if_absent(path, content):
        # The lock of the operating system is held, so what another of us left there belongs to nobody alive.
        if _is_left(place, path, storage.uri, expire_min):
            place.delete(path)
        elif time.monotonic() >= deadline:
            raise CommitConflict(
                f"{storage.uri}: {place.uri}/{path} was there for {wait_s:g} s: another writer holds the lock of "
                f"{_FILE}. Nothing was changed. Try again when it is done; if it is dead, remove the file."
            )
        else:
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
    try:
        yield
    finally:
        place.delete(path)


def _is_left(place: Storage, path: str, table: str, expire_min: int) -> bool:
    found = place.stat(path)
    if found is None:
        return False
    if expire_min and time.time() * 1000 - found.modified_ms > expire_min * 60_000:
        return True
    with suppress(FileNotFoundError, ValueError):
        content = json.loads(place.read(path))
        owner = (content.get("owner"), content.get("table")) if isinstance(content, dict) else None
        return owner == (_OWNER, table)
    return False


def _minutes(settings: Mapping[str, str]) -> int:
    text = str(settings.get(FILE_EXPIRE, "0")).strip()
    if not text.isdigit():
        raise TableError(
            f"setting {FILE_EXPIRE} = {text!r}: a number of minutes. Correct the value or RESET {FILE_EXPIRE}."
        )
    return int(text)
