"""The offsets that ingestions have stored, read from their targets alone: no broker is asked."""

import re
from collections.abc import Collection
from urllib.parse import unquote

from lakesql.errors import TableError
from lakesql.ingest import manifest
from lakesql.ingest.definitions import Definition
from lakesql.ingest.front import TOPIC, PathOf
from lakesql.ingest.model import State
from lakesql.ingest.state import found_in, state_of, stored_in
from lakesql.storage import Storage, open_storage
from lakesql.table.state import PROPERTIES, TableState, load

_MANIFESTS = "_lakesql"


def of_table(table: TableState, ingestion: str | None = None) -> list[State]:
    """The states of all ingestions of a table, or of one. Hudi Streamer's checkpoint counts as one without a name."""
    names = sorted(stored_in(found_in(table), table.path)) or [""]
    found = [state_of(table, name)[0] for name in names if ingestion in (None, name)]
    return [state for state in found if state.partitions]


def of_folder(storage: Storage, ingestion: str | None = None) -> list[State]:
    """The states of all ingestions into a folder of files, or of one."""
    names = [unquote(folder) for folder in storage.list(_MANIFESTS)[1]]
    found = [manifest.newest(storage, name).state for name in names if ingestion in (None, name)]
    return [state for state in found if state.partitions]


def is_folder(storage: Storage) -> bool:
    """Whether an ingestion has written files here, and no table."""
    return storage.stat(PROPERTIES) is None and bool(storage.list(_MANIFESTS)[1])


def commits_of_folder(storage: Storage, ingestion: str | None = None) -> list[tuple[str, State]]:
    """(number, state) of every commit of the ingestions into a folder of files, or of one; the oldest first."""
    found = [
        one
        for name in manifest.ingestions(storage)
        if ingestion in (None, name)
        for one in manifest.history(storage, name)
    ]
    return [(str(one.number), one.state) for one in sorted(found, key=lambda one: one.state.at_ms)]


def of_path(storage: Storage, ingestion: str | None = None) -> list[State]:
    """The states in a table or in a folder of files. TableError when it is neither."""
    if storage.stat(PROPERTIES) is not None:
        return of_table(load(storage), ingestion)
    if storage.list(_MANIFESTS)[1]:
        return of_folder(storage, ingestion)
    raise TableError(
        f"{storage.uri}: there is neither a Hudi table nor a folder that an ingestion has written. Correct the path."
    )


def of_definition(definition: Definition, path_of: PathOf) -> dict[str, State]:
    """The state of a named ingestion by the path of its targets, of which {topic} makes several."""
    path = definition.into if definition.files else path_of(definition.into)
    found: dict[str, State] = {}
    for one in _targets(path):
        storage = open_storage(one)
        if storage.stat(PROPERTIES) is None and not storage.list(_MANIFESTS)[1]:
            continue
        states = of_path(storage, definition.name)
        if states:
            found[one] = states[0]
    return found


def topics_of(states: Collection[State]) -> list[str]:
    """The topics that states know."""
    return sorted({at.topic for state in states for at in state.partitions})


def _targets(path: str) -> list[str]:
    if TOPIC not in path:
        return [path]
    above, _, rest = path.partition(TOPIC)
    folder, _, prefix = above.rpartition("/")
    suffix, slash, below = rest.partition("/")
    pattern = re.compile(re.escape(prefix) + "(.+)" + re.escape(suffix), re.DOTALL)
    return [
        f"{folder}/{name}{slash}{below.replace(TOPIC, match[1])}"
        for name in open_storage(folder or "/").list("")[1]
        if (match := pattern.fullmatch(name))
    ]
