"""Manifests of a file target: what a folder holds by which run, numbered, each created by exactly one run.

    <target>/_lakesql/<ingestion>/0000000001.json    files, offsets, checksum of the manifest before

A commit is the creation of the next number (kafka-ingestion 4.3, 4.4). The files lie in the staging folder then and get
their names afterwards; `finish` repeats that and may be repeated itself. A reader that lists the target sees whole files
only, one that reads manifests sees whole commits only. Folders whose names begin with an underscore are not data to
anything that reads a lake.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import quote, unquote

from lakesql.errors import FormatError, IngestConflict, IngestError, JobError
from lakesql.ingest.model import State
from lakesql.ingest.state import decode, encode
from lakesql.storage import Storage

_NAME = re.compile(r"(\d{10})\.json")
_BAD = re.compile(r"(\d{10})-")
VERSION = 1
NAME_MAX, _PART_MAX = 200, 120
"""Bytes of a name: file systems allow 255, and some of them write under a longer name first."""

FOLDER = "_lakesql"
"""Of all ingestions into a target."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a commit: its final path, where it waits before, what it holds."""

    path: str
    staged: str
    topic: str
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit of an ingestion into a folder. number 0: there is none yet."""

    number: int
    state: State
    files: tuple[DataFile, ...] = ()
    checksum: str = ""  # of the bytes it was read from


def home(ingestion: str) -> str:
    """The folder of an ingestion's manifests, relative to the target."""
    return f"{FOLDER}/{quote(ingestion, safe=' ')}"


def require_name(ingestion: str, target: str) -> None:
    """JobError for a name that no folder can have."""
    size = len(quote(ingestion, safe=" "))
    if size > NAME_MAX:
        raise JobError(
            f"job.name {ingestion:.40}...: in a folder of files ({target}) it names a folder of its own and may have at most "
            f"{NAME_MAX} characters, each beyond a-z, 0-9, _, ., - counting for several; it has {size}. Choose a shorter name."
        )


def part(ingestion: str) -> str:
    """The ingestion in the name of a data file, beside which there must be room for numbers."""
    plain = quote(ingestion, safe=" ")
    if len(plain) <= _PART_MAX:
        return plain
    return f"{plain[: _PART_MAX - 17]}-{hashlib.sha256(ingestion.encode()).hexdigest()[:16]}"


def staging(ingestion: str) -> str:
    """Where files wait for their commit."""
    return f"{home(ingestion)}/staging"


def quarantine(ingestion: str, number: int) -> str:
    """Where the bad records of a commit lie, without the number and ending that `quarantine.write_files` adds."""
    return f"{home(ingestion)}/quarantine/{number:010d}"


def remove_unnamed(storage: Storage, last: Manifest) -> None:
    """Remove the bad records of a commit that did not happen."""
    for file in storage.list(f"{home(last.state.ingestion)}/quarantine")[0]:
        found = _BAD.match(file.path.rpartition("/")[2])
        if found and int(found[1]) > last.number:
            storage.delete(file.path)


def ingestions(storage: Storage) -> list[str]:
    """The ingestions that have committed into this folder."""
    found = [unquote(name) for name in storage.list(FOLDER)[1]]
    return [name for name in found if newest(storage, name).number]


def history(storage: Storage, ingestion: str) -> list[Manifest]:
    """Every commit of an ingestion, the oldest first."""
    return [read(storage, ingestion, number) for number in range(1, newest(storage, ingestion).number + 1)]


def newest(storage: Storage, ingestion: str) -> Manifest:
    """The last commit. FormatError when its manifest is damaged."""
    files, _ = storage.list(home(ingestion))
    numbers = [int(found[1]) for file in files if (found := _NAME.fullmatch(file.path.rpartition("/")[2]))]
    if not numbers:
        return Manifest(0, State(ingestion))
    return read(storage, ingestion, max(numbers))


def read(storage: Storage, ingestion: str, number: int) -> Manifest:
    """A commit by its number. FormatError when its manifest is damaged."""
    path = _path(ingestion, number)
    data = storage.read(path)
    try:
        found: Mapping[str, Any] = json.loads(data)
        if found["version"] != VERSION:
            raise FormatError(f"{storage.uri}/{path} has version {found['version']}; this lakesql reads {VERSION}.")
        files = tuple(_file(file) for file in found["files"])
        state = decode(ingestion, found["state"], f"{storage.uri}/{path}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(
            f"{storage.uri}/{path}: the manifest is damaged ({error}). Restore the file from a backup; without it the "
            "offsets of this ingestion are not known. Nothing was read."
        ) from error
    return Manifest(number, state, files, hashlib.sha256(data).hexdigest())


def _file(stored: Mapping[str, Any]) -> DataFile:
    """A file of a manifest. TypeError for values that are not of their kind."""
    file = DataFile(**stored)
    for field in fields(file):
        kind = int if field.name in ("rows", "size") else str
        if not isinstance(getattr(file, field.name), kind):
            raise TypeError(f"{field.name} of a file is no {kind.__name__}")
    return file


def commit(storage: Storage, before: Manifest, state: State, files: tuple[DataFile, ...]) -> Manifest:
    """Create the manifest behind `before`. IngestConflict when another run has created it first."""
    number = before.number + 1
    content = {
        "version": VERSION,
        "ingestion": state.ingestion,
        "number": number,
        "before": before.checksum,
        "files": [asdict(file) for file in files],
        "state": encode(state),
    }
    path = _path(state.ingestion, number)
    data = json.dumps(content, indent=1).encode()
    if not storage.put_if_absent(path, data):
        raise IngestConflict(
            f"{storage.uri}: another run of the ingestion {state.ingestion} has committed number {number} first. Nothing "
            "of this run was committed; run it again."
        )
    return Manifest(number, state, files, hashlib.sha256(data).hexdigest())


def finish(storage: Storage, manifest: Manifest) -> None:
    """Give the files of a commit their final names, as far as they do not have them. May be repeated.

    IngestError when a file is neither here nor there.
    """
    for file in manifest.files:
        try:
            storage.rename(file.staged, file.path)
        except FileNotFoundError:
            found = storage.stat(file.path)
            if found is None or found.size_bytes != file.size:
                raise IngestError(
                    f"{storage.uri}/{file.path}: commit {manifest.number} of the ingestion {manifest.state.ingestion} "
                    f"wrote it with {file.size} bytes, and it is {'gone' if found is None else 'another file now'}. "
                    "Restore it, or remove it from the manifest to go on without its rows."
                ) from None


def _path(ingestion: str, number: int) -> str:
    return f"{home(ingestion)}/{number:010d}.json"
