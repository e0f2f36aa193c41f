"""Ctrl-C stays a KeyboardInterrupt: DuckDB makes other errors of it, which say nothing to whoever pressed the keys.

While DuckDB runs a query, the signal ends it as RuntimeError("Query interrupted"); inside Python that DuckDB calls, a
function or a registered table, it comes back as the text of an error. `Connection.interrupt` of another thread is neither and stays what it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb


@contextmanager
def interrupts() -> Iterator[None]:
    """Whatever was made of a KeyboardInterrupt within is one again outside."""
    try:
        yield
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from error
        raise


def _is_interrupt(error: BaseException | None) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # an error may be given as its own cause
        seen.add(id(error))
        text = str(error)
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, RuntimeError) and "Query interrupted" in text):
            return True
        if isinstance(error, duckdb.Error) and (": KeyboardInterrupt" in text or "Query interrupted" in text):
            return True
        error = error.__cause__
    return False
