"""A table service as a process of its own beside the writers: once, or again and again until it is stopped.

A conflict with a writer or with another runner is waited out, and so is a file that a clean beside took. Once a round
has worked, any later failure of a table or its storage is said and the next round tries again; a failure of the first
round ends the process, since it will not heal. Ctrl-C and the SIGTERM of a process manager end it between two steps of
the service, whose own clean-up runs.
"""

import signal
import time
from collections.abc import Callable

import duckdb

from lakesql.errors import CommitConflict, FileGone, LakeError
from lakesql.values import duration

WAIT_S = 5.0
ONCE_WAITS = 12


def seconds_of(text: str) -> float:
    """`90s`, `10m`, `2h`, `1d` or a number of seconds. LakeError for anything else."""
    plain = text.strip()
    try:
        milliseconds = duration(plain + "s" if plain.replace(".", "", 1).isdigit() else plain)
    except ValueError:
        milliseconds = 0
    if milliseconds <= 0:
        raise LakeError(f"{text!r} is no length of time; write for example 90s, 10m, 2h or 1d.")
    return milliseconds / 1000


def keep(
    work: Callable[[], object],
    say: Callable[[str], None],
    every_s: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run `work` once, or every `every_s` seconds until Ctrl-C; how many rounds worked. What it gives is said."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    rounds = waits = 0
    try:
        while True:
            began = time.monotonic()
            pause = every_s
            try:
                say(str(work()))
                rounds, waits = rounds + 1, 0
            except (CommitConflict, FileGone) as conflict:
                waits += 1
                heals = isinstance(conflict, CommitConflict) or rounds > 0  # a file may be gone for good
                if waits > ONCE_WAITS and not (heals and every_s is not None):
                    raise
                pause = WAIT_S if every_s is None else min(WAIT_S, every_s)
                say(f"Waiting: {conflict}")
            except (LakeError, OSError, duckdb.Error) as error:
                if not rounds:
                    raise
                say(f"This round failed, the next one tries again: {error}")
            if pause is None:
                return rounds
            sleep(max(0.0, pause - (time.monotonic() - began)))
    except KeyboardInterrupt:
        if every_s is None:
            raise
        say(f"Stopped after {rounds} rounds.")
        return rounds
    finally:
        signal.signal(signal.SIGTERM, former)
