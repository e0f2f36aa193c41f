"""What the log of a file slice does to its base file, as numbers: kept on disk for the processes that come later.

An `Outcome` names base rows and log records by their places and holds nothing of what is in them, so no row of a table
outlives it here. Finding it means joining every key of the base file with the log; given the outcome, a first read
decodes the log alone. Files lie in the person's cache folder (platformdirs; XDG_CACHE_HOME on Linux), never in a table:

    <digest>.rows     MAGIC, CRC-32 of the rest, then deflated: five counts (int64), the dead rows as differences (int64),
                      the log record that met each (int64), the records that stay (bitmap), their `own` (bitmap)

The digest is that of the slice's identity, names and sizes of its files among it, so a slice that changed is another
file. A file appears whole, by a rename, and is checked when it is read: damage, another format or a folder that cannot
be used is a miss, never an error. At most LIMIT_BYTES in FILES_MAX files stay, those used last. Small base files are
not worth a file. `SET lakesql.read.disk_cache = false` switches the folder off for a connection, the table property of
that name for a table.
"""

import hashlib
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs

DISK_CACHE = "lakesql.read.disk_cache"
LIMIT_BYTES = 256 << 20
FILES_MAX = 20_000
BASE_BYTES_MIN = 1 << 20
SWEEP_EVERY = 256
_MAGIC = b"LKR1"
_SUFFIX = ".rows"
_COUNTS = struct.Struct("<5q")

_thread = threading.local()
_lock = threading.Lock()
_written = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The merge of one slice; `records` is how many records its log has, numbered from 0 in processing order."""

    records: int
    dead: np.ndarray  # base rows that do not count any more
    by: np.ndarray  # per dead row: the log record that met it
    kept: np.ndarray  # log records that survive, ascending
    own: np.ndarray  # per kept record: its ordering value is that of a row it removed
    beaten: bool  # a base row won against its key's log records


@contextmanager
def chosen(setting: str | None) -> Iterator[None]:
    """Within, this thread works for a connection that says this about the folder; None: nothing, it is used."""
    outer = getattr(_thread, "off", False)
    _thread.off = setting is not None and setting.lower() == "false"
    try:
        yield
    finally:
        _thread.off = outer


def used(properties: Mapping[str, str]) -> bool:
    """Whether outcomes of a table with these properties are looked for and kept on disk."""
    return not getattr(_thread, "off", False) and properties.get(DISK_CACHE, "").lower() != "false"


def digest(identity: object) -> str:
    """The name of an outcome from the text of everything it depends on."""
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:40]


def find(name: str) -> Outcome | None:
    """The outcome kept under this name; None when there is none, or none that is whole."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / f"{name}{_SUFFIX}"
    try:
        data = path.read_bytes()
    except OSError:
        return None
    found = _decoded(data)
    with suppress(OSError):
        if found is None:
            path.unlink()
        else:
            os.utime(path)
    return found


def keep(name: str, outcome: Outcome) -> None:
    """Keep an outcome, if the folder can be written."""
    global _written
    folder = _folder()
    if folder is None:
        return
    part = folder / f"{name}-{secrets.token_hex(4)}.part"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_bytes(_encoded(outcome))
        part.replace(folder / f"{name}{_SUFFIX}")
    except OSError:
        with suppress(OSError):
            part.unlink()
        return
    with _lock:
        due = _written % SWEEP_EVERY == 0
        _written += 1
    if due:
        _sweep(folder)


def _folder() -> Path | None:
    """None for a person without a home, as in a container that runs under a number nobody has."""
    try:
        return Path(platformdirs.user_cache_path("lakesql")) / "outcomes"
    except (RuntimeError, OSError):
        return None


def _encoded(one: Outcome) -> bytes:
    kept = np.zeros(one.records, np.bool_)
    kept[one.kept] = True
    counts = _COUNTS.pack(one.records, len(one.dead), len(one.kept), int(one.own.sum()), one.beaten)
    steps = np.diff(one.dead.astype("<i8"), prepend=0)
    bits = (np.packbits(kept), np.packbits(one.own.astype(np.bool_)))
    body = zlib.compress(
        b"".join((counts, steps.tobytes(), one.by.astype("<i8").tobytes(), *(b.tobytes() for b in bits))), 1
    )
    return _MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def _decoded(data: bytes) -> Outcome | None:
    """None for bytes that `_encoded` did not make."""
    if len(data) < 8 or data[:4] != _MAGIC or struct.unpack_from("<I", data, 4)[0] != zlib.crc32(data[8:]):
        return None
    body = zlib.decompress(data[8:])
    records, dead, kept, own, beaten = _COUNTS.unpack_from(body)
    steps, by = np.frombuffer(body, "<i8", 2 * dead, _COUNTS.size).reshape(2, dead).astype(np.int64)
    bits = np.frombuffer(body, np.uint8, -1, _COUNTS.size + 16 * dead)
    stays = np.flatnonzero(np.unpackbits(bits[: -(-records // 8)], count=records))
    owns = np.unpackbits(bits[-(-records // 8) :], count=kept).astype(np.bool_)
    if len(stays) != kept or int(owns.sum()) != own:
        return None
    return Outcome(records, np.cumsum(steps), by, stays, owns, bool(beaten))


def _sweep(folder: Path) -> None:
    """Remove the files used longest ago while there is too much, and what writers that died left."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                stat = entry.stat()
                found.append((stat.st_mtime, stat.st_size, entry.path))
    found.sort(reverse=True)
    newest = found[0][0] if found else 0.0
    total = 0
    for number, (used_at, size, path) in enumerate(found):
        torn = path.endswith(".part")
        total += size
        if (torn and used_at < newest - 3600) or total > LIMIT_BYTES or number >= FILES_MAX:
            with suppress(OSError):
                Path(path).unlink()
