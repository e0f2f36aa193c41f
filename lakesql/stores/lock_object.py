"""The lock that a person passes for their tables: `lakesql.connect(..., lock=...)`, `open_table(..., lock=...)`.

It is called with (path of the table, seconds to wait) and gives a context manager, which is held while a table is
changed. On stores without conditional puts the other locks of a table are taken from it too, each with a path of its
own below the table's.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

from lakesql.errors import CommitConflict, LakeError

LockObject = Callable[[str, float], AbstractContextManager[object]]

_supplied: ContextVar[LockObject | None] = ContextVar("lakesql_lock_object", default=None)


@contextmanager
def supplied(lock: LockObject | None) -> Iterator[None]:
    """Within, tables are locked with this object too."""
    token = _supplied.set(lock)
    try:
        yield
    finally:
        _supplied.reset(token)


def current() -> LockObject | None:
    """The lock object of whoever runs this, None without one."""
    return _supplied.get()


@contextmanager
def entered(given: LockObject, path: str, wait_s: float) -> Iterator[None]:
    """Hold a lock object; what it raises instead of locking is a CommitConflict, which says that nothing was done."""
    try:
        lock = given(path, wait_s)
        lock.__enter__()
    except LakeError:
        raise
    except Exception as error:
        raise CommitConflict(
            f"{path}: the lock object that was passed did not lock within {wait_s:g} s ({type(error).__name__}: {error}). "
            "Nothing was changed. Try again when the other writer is done."
        ) from error
    with ExitStack() as stack:
        stack.push(lock.__exit__)
        yield
