"""What ingestions keep in commits, handed on from commit to commit (kafka-ingestion 3.1, 4.3).

The offsets of an ingestion lie in the extraMetadata of its commits. Whoever resumes looks for the newest commit that
has them; Hudi Streamer gives up, or starts anew, when archiving took that commit away. So every commit of lakesql
copies them: `commit.metadata_of`, through which all writes and services go, asks `handed_on`.

Looking for them costs no request: planning a write or a service has read the metadata of every commit of the active
timeline already (`TableState.promises`), and they are cached. So there is no mark that says whether a table ever had
offsets, which other engines would not keep. What lies in the archive alone is not brought back.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lakesql.format.timeline import Instant
from lakesql.table.state import TableState

INGESTIONS = "lakesql.ingest.v1"
"""Our state: JSON of ingestion name to what it keeps."""

CHECKPOINTS = ("streamer.checkpoint.key.v2", "deltastreamer.checkpoint.key")
"""Hudi Streamer's keys, in the order in which it looks for them within a commit; for Kafka it writes the second."""

KEYS = (INGESTIONS, *CHECKPOINTS)


class Found(NamedTuple):
    """What the newest commits that have any of the keys say.

    A commit with INGESTIONS says it all. Checkpoints of a newer commit, one of Hudi Streamer, go before its own.
    """

    ingestions: str | None = None
    ingestions_at: str | None = None  # instant of the commit that it was found in
    checkpoints: Mapping[str, str] = {}
    checkpoints_at: str | None = None

    @property
    def checkpoint(self) -> str | None:
        """The text that counts for Hudi Streamer."""
        return next((self.checkpoints[key] for key in CHECKPOINTS if key in self.checkpoints), None)


def find(commits: Iterable[tuple[Instant, Mapping[str, str]]]) -> Found:
    """The keys in commits, given with their extraMetadata from the newest backwards."""
    checkpoints: dict[str, str] = {}
    at: str | None = None
    for instant, extra in commits:
        if not checkpoints:
            checkpoints = {key: extra[key] for key in CHECKPOINTS if extra.get(key)}
            at = instant.requested if checkpoints else None
        if extra.get(INGESTIONS):
            return Found(extra[INGESTIONS], instant.requested, checkpoints, at)
    return Found(None, None, checkpoints, at)


def active(state: TableState) -> Iterator[tuple[Instant, Mapping[str, str]]]:
    """The completed commits of the active timeline with their extraMetadata, the newest first."""
    for instant in reversed(state.timeline.completed_writes()):
        yield instant, state.commit(instant).extra


def handed_on(state: TableState, extra: Mapping[str, str]) -> dict[str, str]:
    """The keys that a commit on top of `state` takes over; none when it brings our state itself."""
    if INGESTIONS in extra:
        return {}
    found = find(active(state))
    carried = dict(found.checkpoints)
    if any(key in extra for key in CHECKPOINTS):
        carried = {}
    if found.ingestions is not None:
        carried[INGESTIONS] = found.ingestions
    return carried
