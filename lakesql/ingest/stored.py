"""What ingestions have stored, read from their targets alone: offsets, commits, quarantine. No broker is asked."""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress

import pyarrow as pa

from lakesql.errors import TableError
from lakesql.ingest import manifest, waiting
from lakesql.ingest.definitions import Definition
from lakesql.ingest.front import TOPIC, PathOf
from lakesql.ingest.manifest import Manifest
from lakesql.ingest.model import State
from lakesql.ingest.quarantine import held, records
from lakesql.ingest.state import found_in, runs, state_of, stored_in
from lakesql.storage import Storage, open_storage
from lakesql.table.state import PROPERTIES, TableState, load

_WAITING = waiting.folder_of("")


def of_table(table: TableState, ingestion: str | None = None) -> list[State]:
    """The states of all ingestions of a table, or of one. Hudi Streamer's checkpoint counts as one without a name."""
    names = sorted(stored_in(found_in(table), table.path)) or [""]
    found = [state_of(table, name)[0] for name in names if ingestion in (None, name)]
    return [state for state in found if state.partitions]


def of_folder(storage: Storage, ingestion: str | None = None) -> list[State]:
    """The states of all ingestions into a folder of files, or of one."""
    names = manifest.ingestions(storage)
    found = [manifest.newest(storage, name).state for name in names if ingestion in (None, name)]
    return [state for state in found if state.partitions]


def of_path(storage: Storage, ingestion: str | None = None) -> list[State]:
    """The states in a table, in a folder of files, or waiting for a table. TableError when it is none of these."""
    if storage.stat(PROPERTIES) is not None:
        found = of_table(load(storage), ingestion)
        return found + waiting_for(storage, ingestion, [state.ingestion for state in found])
    if waits := waiting_for(storage):
        return [state for state in waits if ingestion in (None, state.ingestion)]
    _require_folder(storage)
    return of_folder(storage, ingestion)


def waiting_for(storage: Storage, ingestion: str | None = None, known: Collection[str] = ()) -> list[State]:
    """Offsets that wait for the first commit of a table (`waiting`), of ingestions that it does not know."""
    waits = waiting.all_of(open_storage(waiting.folder_of(storage.uri)))
    return [state for state in waits if ingestion in (None, state.ingestion) and state.ingestion not in known]


def runs_of_folder(storage: Storage, ingestion: str | None = None) -> pa.Table:
    """The commits into a folder of files in the order of time, by the numbers of their manifests."""
    commits = sorted(_commits(storage, ingestion), key=lambda one: (one.state.at_ms, one.state.ingestion, one.number))
    return runs((str(one.number), one.state) for one in commits)


def quarantine_of_folder(storage: Storage, ingestion: str | None = None) -> pa.Table:
    """The records of a folder's ingestions that could not be decoded."""
    return records(storage, held(one.state for one in _commits(storage, ingestion)))


def _commits(storage: Storage, ingestion: str | None) -> Iterator[Manifest]:
    _require_folder(storage)
    for name in manifest.ingestions(storage):
        if ingestion in (None, name):
            yield from manifest.history(storage, name)


def _require_folder(storage: Storage) -> None:
    if not storage.list(manifest.FOLDER)[1]:
        raise TableError(
            f"{storage.uri}: there is neither a Hudi table nor a folder that an ingestion has written. Correct the path."
        )


def of_definition(definition: Definition, path_of: PathOf) -> dict[str, State]:
    """The state of a named ingestion by the path of its targets, of which {topic} makes several."""
    path = definition.into if definition.files else path_of(definition.into)
    found: dict[str, State] = {}
    for one in targets_of(path):
        storage = open_storage(one)
        if storage.stat(PROPERTIES) is None and not storage.list(manifest.FOLDER)[1] and not waiting_for(storage):
            continue
        states = of_path(storage, definition.name)
        if states:
            found[one] = states[0]
    return found


def of_pattern(path: str, ingestion: str | None = None) -> Iterator[tuple[Storage, list[State]]]:
    """The states in each of the targets that a path with {topic} means."""
    for one in targets_of(path):
        storage = open_storage(one)
        with suppress(TableError):
            if states := of_path(storage, ingestion):
                yield storage, states


def topics_of(states: Collection[State]) -> list[str]:
    """The topics that states know."""
    return sorted({at.topic for state in states for at in state.partitions})


def targets_of(path: str) -> list[str]:
    """The folders that a path with {topic} means, as they are there now; any other path is itself."""
    if TOPIC not in path:
        return [path]
    above, _, rest = path.partition(TOPIC)
    folder, _, prefix = above.rpartition("/")
    suffix, slash, below = rest.partition("/")
    pattern = re.compile(re.escape(prefix) + "(.+)" + re.escape(suffix), re.DOTALL)
    there = open_storage(folder or "/").list("")[1]
    names = sorted({*there, *(name.removesuffix(_WAITING) for name in there if name.endswith(_WAITING))})
    return [
        f"{folder}/{name}{slash}{below.replace(TOPIC, match[1])}"
        for name in names
        if (match := pattern.fullmatch(name))
    ]
