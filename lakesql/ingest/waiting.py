"""Offsets of an ingestion whose table does not exist yet and cannot be made, since nothing says its columns.

That is so when the first runs find no record: without stored offsets `bootstrap.with.offset = latest` would start at
another end each time, and records in between would be skipped (kafka-ingestion 3.3, C2). Until the first commit of the
table they lie beside it, in `<table>_ingest/<ingestion>-<number>.json`: numbers count up, and of two runs that put the
same number one wins. The first commit of the table removes them; from then on they would not be looked at anyway.
"""

import json
import re
from dataclasses import replace

from lakesql.errors import CommitConflict
from lakesql.ingest.model import State
from lakesql.ingest.quarantine import slug
from lakesql.ingest.statefile import export_state, import_state
from lakesql.storage import Storage


def folder_of(table_path: str) -> str:
    return f"{table_path.rstrip('/')}_ingest"


def read(storage: Storage, ingestion: str) -> State | None:
    """The newest offsets that wait."""
    numbers = _numbers(storage, ingestion)
    if not numbers:
        return None
    path = _path(ingestion, numbers[-1])
    return import_state(storage.read(path).decode(), ingestion, f"{storage.uri}/{path}")


def all_of(storage: Storage) -> list[State]:
    """The newest offsets of every ingestion that wait here, by name."""
    newest: dict[str, str] = {}
    for path in sorted(info.path for info in storage.list("")[0]):
        if found := re.fullmatch(r"(.+)-\d{8}\.json", path):
            newest[found[1]] = path
    found_states = []
    for path in newest.values():
        text, where = storage.read(path).decode(), f"{storage.uri}/{path}"
        state = import_state(text, "", where)
        found_states.append(replace(state, ingestion=str(json.loads(text)["ingestion"])))
    return sorted(found_states, key=lambda state: state.ingestion)


def put(storage: Storage, before: State, state: State) -> str:
    """Keep a state on top of another one; the path of its file. CommitConflict when that one is not the newest."""
    numbers = _numbers(storage, state.ingestion)
    now = read(storage, state.ingestion)
    path = _path(state.ingestion, numbers[-1] + 1 if numbers else 1)
    same = now is None or now.offsets() == before.offsets()
    if not same or not storage.put_if_absent(path, export_state(state).encode()):
        raise CommitConflict(f"{storage.uri}/{path}: another run of the ingestion {state.ingestion} was faster.")
    for number in numbers:
        storage.delete(_path(state.ingestion, number))
    return path


def remove(storage: Storage, ingestion: str) -> None:
    for number in _numbers(storage, ingestion):
        storage.delete(_path(ingestion, number))


def _path(ingestion: str, number: int) -> str:
    return f"{slug(ingestion)}-{number:08d}.json"


def _numbers(storage: Storage, ingestion: str) -> list[int]:
    own = re.compile(re.escape(slug(ingestion)) + r"-(\d{8})\.json")
    return sorted(int(match[1]) for info in storage.list("")[0] if (match := own.fullmatch(info.path)))
