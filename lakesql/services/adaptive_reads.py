"""A record of how often a table is read, for adaptive compaction: kept when the table's property asks for it.

The property `lakesql.compaction.observe_reads` is on. Each process counts its snapshot reads, newer ones counting more, and
leaves the count at most every FLUSH_S seconds as a small file of its own below `.hoodie/.lakesql`, so nobody waits for
anybody. A count that cannot be written or read is left out: a read never fails for it.
"""

import json
import math
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from lakesql.errors import LakeError
from lakesql.services.adaptive_facts import MEMORY_S
from lakesql.services.adaptive_settings import OBSERVE_READS
from lakesql.storage import Storage
from lakesql.table.state import TableState

FOLDER = ".hoodie/.lakesql"
FLUSH_S = 10.0
FORGET_S = 10 * MEMORY_S


@dataclass(slots=True)
class _Count:
    name: str
    since_ms: int
    at_ms: int
    weighted: float = 0.0
    flushed_ms: int = 0


_counts: dict[str, _Count] = {}
_lock = threading.Lock()


def observed(properties: Mapping[str, str]) -> bool:
    return properties.get(OBSERVE_READS, "").lower() == "true"


def note_read(state: TableState, now_ms: int) -> None:
    """Count a snapshot read of a table that observes them."""
    if not observed(state.config.properties):
        return
    with _lock:
        count = _counts.setdefault(state.path, _Count(f"reads-{secrets.token_hex(8)}.json", now_ms, now_ms))
        count.weighted = _faded(count.weighted, now_ms - count.at_ms) + 1
        count.at_ms = max(now_ms, count.at_ms)
        if now_ms - count.flushed_ms < FLUSH_S * 1000:
            return
        count.flushed_ms = now_ms
        body = {"since_ms": count.since_ms, "at_ms": count.at_ms, "weighted": count.weighted}
    try:
        state.storage.put(f"{FOLDER}/{count.name}", json.dumps(body).encode())
    except (LakeError, OSError):
        return


def reads_per_s(storage: Storage, now_ms: int) -> float:
    """Snapshot reads per second of all processes, newer ones counting more. Counts that are long over are removed."""
    total, since = 0.0, now_ms
    try:
        files, _ = storage.list(FOLDER)
    except (LakeError, OSError):
        return 0.0
    for file in files:
        if not file.path.rsplit("/", 1)[-1].startswith("reads-"):
            continue
        try:
            body = json.loads(storage.read(file.path))
            at_ms, begun, weighted = int(body["at_ms"]), int(body["since_ms"]), float(body["weighted"])
            if now_ms - at_ms > FORGET_S * 1000:
                storage.delete(file.path)
                continue
        except (LakeError, OSError, ValueError, KeyError, TypeError):
            continue
        total += _faded(weighted, now_ms - at_ms)
        since = min(since, begun)
    span = max((now_ms - since) / 1000, FLUSH_S)
    return total / (MEMORY_S * -math.expm1(-span / MEMORY_S))


def _faded(weighted: float, millis: int) -> float:
    return weighted * math.exp(-max(0, millis) / 1000 / MEMORY_S)
