"""What a run waits for and tries again: told while it waits, and once more in its report.

Whoever tries again, a task, the client or a registry, says so to its scope as an event named *Retry with the facts
`about`, what is waited for, and `text`, a sentence. Here these sentences are handed on and counted.
"""

import threading
from collections.abc import Callable

from lakesql.ingest.metrics import Event

ENDING = "Retry"
EVERY_S = 5.0
"""How often, at most, one who waits says so."""


class Retries:
    """Hears the events of a run; `tell` gets each sentence at once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], tuple[int, str]] = {}  # how often, the last sentence

    def hear(self, event: Event) -> None:
        if not event.name.endswith(ENDING):
            return
        key, text = (event.name, str(event.facts["about"])), str(event.facts["text"])
        with self._lock:
            self._found[key] = (self._found.get(key, (0, ""))[0] + 1, text)
        self._tell(text)

    def notes(self) -> tuple[str, ...]:
        """One sentence for each that was waited for: the last, and how many there were."""
        with self._lock:
            found = list(self._found.values())
        return tuple(text if times == 1 else f"{text} That was the last of {times} times." for times, text in found)
