"""A Hudi table as an immutable value: configuration, timeline, data files, schema.

`load` takes one look at the storage: `hoodie.properties`, one listing of the timeline, one listing of the data
files, in that order, so that a file whose instant is not in the listed timeline is ignored (hudi-format 2.11).
Everything else is a question asked of that value; nothing in here changes a table. Commit metadata is read on
demand and cached by the identity of its file, since instant files never change.

Schema: the newest completed write commit that carries one (7.3), without the meta columns.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import pyarrow as pa

from lakesql.errors import FileGone, FormatError, LakeError, TableError, Unsupported
from lakesql.format.avro import arrow_schema, avro_schema, without_meta_fields
from lakesql.format.files import BaseFile, FileSlice, LogFile, base_files, file_slices, parse_data_file
from lakesql.format.metadata import CommitMetadata, TableConfig, decode_commit, decode_record
from lakesql.format.timeline import WRITE_ACTIONS, Instant, Timeline
from lakesql.storage import FileInfo, Storage
from lakesql.table.archive import Archived, read_archived
from lakesql.table.newest import Circumstances, Newest, Seed, grow
from lakesql.table.promised import Promise, promise, require_files
from lakesql.table.sight import HOODIE as HOODIE
from lakesql.table.sight import PROPERTIES as PROPERTIES
from lakesql.table.sight import sight
from lakesql.table.sight import timeline_folder as timeline_folder

Decoded = TypeVar("Decoded")
DataFile = BaseFile | LogFile

_CACHE_ENTRIES = 4096
_cache: OrderedDict[tuple[str, str, int, int | str], object] = OrderedDict()
_cache_lock = threading.Lock()


class _VanishedError(FileGone):
    """A file of the timeline that was listed is gone."""


@dataclass(frozen=True)
class TableState:
    """What one look at a table saw. `as_of` limits what its questions may answer with (requested time, inclusive)."""

    storage: Storage
    config: TableConfig
    timeline: Timeline
    files: tuple[BaseFile | LogFile, ...]
    instant_files: Mapping[str, FileInfo]
    added: tuple[Mapping[str, object], ...] = ()
    """Avro fields of columns that a write in progress appends to the schema."""

    @property
    def path(self) -> str:
        return self.storage.uri

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def timeline_folder(self) -> str:
        return timeline_folder(self.config)

    @cached_property
    def _archive(self) -> Sequence[Archived]:
        return read_archived(self.storage, self.config)

    @cached_property
    def archived(self) -> Mapping[str, Archived]:
        """Completed instants that have left the active timeline, by requested time."""
        return {a.instant.requested: a for a in self._archive}

    @property
    def archived_others(self) -> list[Archived]:
        """The archived instants that are no writes: cleans, rollbacks, savepoints."""
        return [a for a in self._archive if a.instant.completed_action not in WRITE_ACTIONS]

    @cached_property
    def history(self) -> Timeline:
        """The timeline with its archived part."""
        return self.timeline.with_archived(tuple(a.instant for a in self.archived.values()))

    @cached_property
    def avro(self) -> dict[str, object]:
        """The Avro schema of the table's columns, without the meta columns."""
        stored = self.avro_as_of(None)
        return stored | {"fields": [*cast(list[object], stored["fields"]), *self.added]} if self.added else stored

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns, without the meta columns, as Arrow types."""
        return arrow_schema(self.avro)

    @property
    def added_names(self) -> tuple[str, ...]:
        """The columns that a write in progress appends."""
        return tuple(str(f["name"]) for f in self.added)

    def with_columns(self, schema: pa.Schema) -> "TableState":
        """The same state with these nullable columns appended, for a write that adds them."""
        fields = pa.schema([f.with_nullable(True) for f in schema])
        added = avro_schema(fields, self.name)["fields"]
        return replace(self, added=(*self.added, *added))

    def avro_as_of(self, as_of: str | None) -> dict[str, object]:
        """The table schema of the newest commit not younger than `as_of` (requested time), as Avro."""
        text = self.extra_as_of(as_of, "schema") or self.config.create_schema
        if not text:
            first = min((i.requested for i in self.history.completed_writes()), default=None)
            if as_of is not None and first is not None and as_of < first:
                raise TableError(
                    f"{self.path}: there was no table yet as of {as_of}; its first commit is {first}. Give that "
                    "instant or a later time."
                )
            text = self._archived_extra(as_of, "schema")
        if not text:
            raise TableError(
                f"{self.path}: no commit carries a schema and hoodie.properties has no hoodie.table.create.schema. "
                "Write to the table once, or restore hoodie.table.create.schema."
            )
        try:
            return self._with_partition_columns(without_meta_fields(json.loads(text)))
        except ValueError as error:
            raise FormatError(
                f"{self.path}: the table schema is not JSON: {error}. Restore it from another commit."
            ) from error

    def _with_partition_columns(self, avro: dict[str, Any]) -> dict[str, Any]:
        """Commits leave out the partition columns that the files do not hold (3.8); the created schema has them."""
        present = {f["name"] for f in avro["fields"]}
        absent = [c for c in self.config.partition_fields if c not in present]
        if not self.config.drop_partition_columns or not absent:
            return avro
        created = {f["name"]: f for f in json.loads(self.config.create_schema or '{"fields": []}')["fields"]}
        text = {"type": ["null", "string"], "default": None}
        return avro | {"fields": [*avro["fields"], *(created.get(c, {"name": c} | text) for c in absent)]}

    def extra_as_of(self, as_of: str | None, key: str) -> str | None:
        """The value of `key` in the newest completed write commit that carries it."""
        writes = sorted(self.timeline.completed_writes(), key=lambda i: i.requested, reverse=True)
        for number, instant in enumerate(writes):
            if number == (0 if self.files else 1):  # a plan needs all of them, a question about the schema mostly one
                self.fetched(writes[number:])
            if (as_of is None or instant.requested <= as_of) and (text := self.commit(instant).extra.get(key)):
                return text
        if as_of is None or self.timeline.start is None or as_of >= self.timeline.start:
            return None
        return self._archived_extra(as_of, key)

    def _archived_extra(self, as_of: str | None, key: str) -> str | None:
        for archived in sorted(self.archived.values(), key=lambda a: a.instant.requested, reverse=True):
            metadata = archived.metadata if as_of is None or archived.instant.requested <= as_of else None
            if metadata and (text := metadata.extra.get(key)):
                return text
        return None

    def commit(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed write instant, active or archived; empty when the archive kept none.

        FormatError for a file that is damaged, or empty where the table version always writes a record.
        """
        if instant.file_name not in self.instant_files:
            archived = self.archived.get(instant.requested)
            return (archived and archived.metadata) or CommitMetadata()
        if instant.is_completed and self.config.version >= 8 and self.instant_files[instant.file_name].size_bytes == 0:
            raise FormatError(
                f"{self.path}/{self.timeline_folder}/{instant.file_name}: the completed {instant.completed_action} is "
                "empty; what it wrote is not known. Restore the file, or roll the commit back with the engine that "
                "wrote it."
            )
        try:
            return _cached(self, instant.file_name, partial(decode_commit, version=self.config.version))
        except _VanishedError:
            # Archived since the look: the archive is written before the file goes.
            for archived in read_archived(self.storage, self.config):
                found = archived.instant
                if (found.requested, found.completed_action) == (instant.requested, instant.completed_action):
                    return archived.metadata or CommitMetadata()
            raise

    def plan(self, instant: Instant, file_name: str) -> dict[str, Any]:
        """The single Avro record of a plan file (compaction, clustering, clean, ...) in the timeline folder."""
        if file_name not in self.instant_files:
            raise FormatError(
                f"{self.path}: {instant.action} {instant.requested} has no file {file_name}. "
                "Roll the service back or restore the file."
            )
        return _cached(self, file_name, decode_record)

    def replaced(self, as_of: str | None = None) -> frozenset[tuple[str, str]]:
        """(partition, file id) of every file group that a completed replacecommit has taken out."""
        return frozenset(self.replacements(as_of))

    def replacements(self, as_of: str | None = None) -> dict[tuple[str, str], str]:
        """(partition, file id) of every replaced file group -> the instant that took it out."""
        gone: dict[tuple[str, str], str] = {}
        for instant in self._replacing():
            if as_of is None or instant.requested <= as_of:
                for partition, ids in self.commit(instant).replaced.items():
                    for file_id in ids:
                        group = partition, file_id
                        gone[group] = min(gone.get(group, instant.requested), instant.requested)
        return gone

    def _replacing(self) -> Iterator[Instant]:
        replacing = [i for i in self.timeline.completed_writes() if i.completed_action == "replacecommit"]
        yield from self.fetched(replacing)
        start = self.timeline.start
        if start and any(f.instant < start for f in self.files):
            for archived in self.archived.values():
                if archived.instant.completed_action == "replacecommit":
                    yield archived.instant

    @cached_property
    def pending_compactions(self) -> Mapping[tuple[str, str], str]:
        """(partition, file id) -> instant of the pending compaction that covers the group."""
        return self._covered("compaction")

    @cached_property
    def pending_log_compactions(self) -> Mapping[tuple[str, str], str]:
        """(partition, file id) -> instant of the pending log compaction that covers the group."""
        return self._covered("logcompaction")

    def _covered(self, action: str) -> dict[tuple[str, str], str]:
        covered = {}
        for instant in self.timeline.pending(action):
            plan = self.plan(instant, f"{instant.requested}.{action}.requested")
            for operation in plan.get("operations") or []:
                covered[operation["partitionPath"] or "", operation["fileId"]] = instant.requested
        return covered

    @cached_property
    def pending_clustering(self) -> Mapping[tuple[str, str], str]:
        """(partition, file id) -> instant of the pending clustering that covers the group."""
        covered = {}
        for instant in self.timeline.pending("clustering", "replacecommit"):
            name = f"{instant.requested}.{instant.action}.requested"
            if self.instant_files.get(name, FileInfo(name, 0, 0)).size_bytes == 0:
                continue
            plan = self.plan(instant, name).get("clusteringPlan") or {}
            for group in plan.get("inputGroups") or []:
                for piece in group["slices"] or []:
                    covered[piece["partitionPath"] or "", piece["fileId"]] = instant.requested
        return covered

    def slices(self, as_of: str | None = None) -> list[FileSlice]:
        """The latest readable file slice of each live file group, by partition and file id.

        TableError when a file that a commit names, and that no newer file stands in for, is gone, FormatError when a
        file is shorter than its commit says.
        """
        if as_of is None:
            return list(self._flat)
        slices = self._sorted(self.files, as_of)
        self._require_files(slices, as_of)
        return slices

    def _sorted(self, files: Iterable[DataFile], as_of: str | None) -> list[FileSlice]:
        return file_slices(
            files,
            self.view_timeline,
            version=self.config.version,
            as_of=as_of,
            replaced=self.replaced(as_of),
            pending_compactions=self.pending_compactions,
        )

    @cached_property
    def _flat(self) -> tuple[FileSlice, ...]:
        return self._newest.flat()

    @cached_property
    def _newest(self) -> Newest:
        writes = self.timeline.completed_writes()
        instants = frozenset(i.requested for i in writes)
        under = Circumstances(self.path, self.timeline.start, instants, self.replaced(), dict(self.pending_compactions))
        with self._breaking():
            return grow(under, self._seed, self.files, writes, lambda f: self._sorted(f, None), self._promised_by)

    @cached_property
    def _seed(self) -> Seed | None:
        return None

    def grown_from(self, before: "TableState", listed: Iterable[str]) -> "TableState":
        """This state, told that it follows on `before`, with only these folders listed anew."""
        newest, seed = before.__dict__.get("_newest"), before._seed
        if newest is not None:
            self.__dict__["_seed"] = Seed(newest, frozenset(listed))
        elif seed is not None:
            self.__dict__["_seed"] = Seed(seed.newest, seed.listed | frozenset(listed))
        return self

    def base_files(self, as_of: str | None = None) -> list[BaseFile]:
        """The newest committed base file of each live file group: what a read-optimized query reads.

        TableError or FormatError, as `slices`, for a base file that is gone or cut short.
        """
        found = base_files(
            self.files, self.view_timeline, version=self.config.version, as_of=as_of, replaced=self.replaced(as_of)
        )
        self._require_files([FileSlice(f.partition, f.file_id, f.instant, f, ()) for f in found], as_of, logs=False)
        return found

    def _require_files(self, slices: Sequence[FileSlice], as_of: str | None, logs: bool = True) -> None:
        replaced = {file_id for _, file_id in self.replaced(as_of)}
        promises = self.promises(as_of)
        if not logs:
            promises = {path: group for path, group in promises.items() if ".log." not in path.rsplit("/", 1)[-1]}
        every = (one for group in promises.values() for one in group)
        with self._breaking():
            require_files(self.path, every, self.files, slices, replaced)

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        try:
            yield
        except LakeError:
            self.__dict__["is_broken"] = True
            raise

    def promises(self, as_of: str | None, archived: bool = False) -> dict[str, list[Promise]]:
        """What the write stats of the commits up to `as_of` say, by path; with `archived` those of the archive too."""
        if not archived:
            return _up_to(self._promises, as_of)
        stored = _by_path(self._promised_by(a.instant for a in self.archived.values()))
        for path, group in self._promises.items():
            stored.setdefault(path, []).extend(group)
        return _up_to(stored, as_of)

    @cached_property
    def _promises(self) -> dict[str, list[Promise]]:
        return _by_path(self._promised_by(self.timeline.completed_writes()))

    def _promised_by(self, instants: Iterable[Instant]) -> Iterator[Promise]:
        for instant in self.fetched(instants):
            written = (instant.completed or "") if self.config.version >= 8 else ""
            for stats in self.commit(instant).partition_stats.values():
                yield from (promise(instant.requested, written, stat) for stat in stats)

    def fetched(self, instants: Iterable[Instant]) -> Iterable[Instant]:
        """The same instants, those with a file asked for together, so that `commit` and `record` find them known.

        What goes wrong is for those to say.
        """
        if not self.storage.remote:
            return instants
        every = list(instants)
        named = {i.file_name: i for i in every if i.file_name in self.instant_files}
        with _cache_lock:
            missing = [i for name, i in named.items() if _key(self, name) not in _cache]
        if len(missing) > 1:
            self.storage.together(*(partial(_tried, self.commit, i) for i in missing))
        return every

    def kept(self, name: str, make: Callable[[], Decoded]) -> Decoded:
        """What `make` gives, made once for this state."""
        made = self._kept
        if name not in made:
            made[name] = make()
        return cast(Decoded, made[name])

    @cached_property
    def _kept(self) -> dict[str, Any]:
        return {}

    @cached_property
    def is_broken(self) -> bool:
        """Whether a plan has found that a file is missing or cut short."""
        return False

    @cached_property
    def view_timeline(self) -> Timeline:
        """The timeline that file visibility asks: with its archive when a file is older than the active part."""
        start = self.timeline.start
        if (
            self.timeline.layout >= 2
            and start
            and any(isinstance(f, LogFile) and f.instant < start for f in self.files)
        ):
            return self.history
        return self.timeline

    def record(self, instant: Instant) -> dict[str, Any]:
        """The single Avro record of the file of an instant of the active timeline that is no write."""
        return _cached(self, instant.file_name, decode_record)


def _by_path(promises: Iterable[Promise]) -> dict[str, list[Promise]]:
    found: dict[str, list[Promise]] = {}
    for one in promises:
        found.setdefault(one.path, []).append(one)
    return found


def _up_to(promises: dict[str, list[Promise]], as_of: str | None) -> dict[str, list[Promise]]:
    if as_of is None:
        return promises
    return {path: kept for path, group in promises.items() if (kept := [p for p in group if p.instant <= as_of])}


def read_config(storage: Storage) -> TableConfig:
    """The table configuration; TableError when there is no table, FormatError when its properties are damaged.

    While another engine replaces the properties, and after it died doing so, the backup counts (hudi-format 1.3).
    """
    damage: FormatError | None = None
    for path in (PROPERTIES, PROPERTIES + ".backup"):
        try:
            text = storage.read(path).decode("latin-1")
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            return TableConfig.from_file(text, f"{storage.uri}/{path}")
        except FormatError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    if any(storage.list(HOODIE)):
        raise TableError(
            f"{storage.uri}: {PROPERTIES} is missing, and without it the table cannot be read safely. Restore the file."
        )
    raise TableError(
        f"{storage.uri}: not a Hudi table, there is no {PROPERTIES}. "
        "Check the path, or create the table with CREATE TABLE ... USING hudi."
    )


def load(storage: Storage) -> TableState:
    """One look at the table. Raises TableError, FormatError or Unsupported as `read_config` does."""
    if storage.remote and (seen := sight(storage)) is not None:
        head, files = head_of(storage, seen.config, seen.timeline), tuple(data_files(seen.data))
    else:
        head, files = load_head(storage), tuple(listed_files(storage))
    return with_files(storage, head, files, lambda: tuple(listed_files(storage)))


def with_files(
    storage: Storage, head: TableState, files: tuple[DataFile, ...], again: Callable[[], tuple[DataFile, ...]]
) -> TableState:
    """A look at the timeline with the files that were listed after it; `again` lists them once more.

    FormatError for files without a timeline.
    """
    if _unknown(head.timeline, files) and load_head(storage).timeline.start != head.timeline.start:
        # Instants were archived while the timeline was listed, and one of them may have been missed.
        head = load_head(storage)
        files = again()
    if files and not head.timeline.instants:
        # A writer announces itself before its first file, so a second look must find it.
        head = load_head(storage)
        if not head.timeline.instants:
            raise FormatError(
                f"{storage.uri}: there are data files, for example {files[0].path}, and no instant in "
                f"{head.timeline_folder}. Restore that folder, or hoodie.timeline.path in {PROPERTIES}."
            )
    return replace(head, files=files)


def _unknown(timeline: Timeline, files: Iterable[BaseFile | LogFile]) -> bool:
    """Whether a file is of an instant that the active timeline should know and does not."""
    listed = {i.requested for i in timeline.instants}
    return any(
        timeline.start is not None and timeline.start < f.instant < timeline.newest_time and f.instant not in listed
        for f in files
    )


def load_head(storage: Storage) -> TableState:
    """A look at properties and timeline alone, for questions about the schema: it knows no data files."""
    if storage.remote and (seen := sight(storage, data=False)) is not None:
        return head_of(storage, seen.config, seen.timeline)
    config = read_config(storage)
    files, _ = storage.list(timeline_folder(config))
    return head_of(storage, config, {f.path.rsplit("/", 1)[-1]: f for f in files})


def head_of(storage: Storage, config: TableConfig, named: Mapping[str, FileInfo]) -> TableState:
    """The state that properties and timeline files tell, without data files. Unsupported for what cannot be read."""
    if config.drop_partition_columns and config.key_generator not in (
        "SIMPLE",
        "SIMPLE_AVRO",
        "COMPLEX",
        "COMPLEX_AVRO",
    ):
        raise Unsupported(
            f"{storage.uri}: partition columns are not stored in the files and cannot be rebuilt from the path of a "
            f"{config.key_generator} key generator. Rewrite the table with "
            "hoodie.datasource.write.drop.partition.columns=false."
        )
    state = TableState(storage, config, timeline_of(config, named), (), named)
    return replace(state, timeline=_without_restored(state))


def timeline_of(config: TableConfig, named: Mapping[str, FileInfo]) -> Timeline:
    """Every instant that the files of the timeline folder name, those that a pending restore takes back among them."""
    return Timeline.from_file_names(named, config.layout, {n: f.modified_ms for n, f in named.items()})


def _without_restored(state: TableState) -> Timeline:
    """The timeline without the writes that a pending restore takes back: its plan is what makes them go.

    Until the restore has completed their files vanish one by one, and no state in between need be whole.
    """
    gone: set[str] = set()
    for restore in state.timeline.pending("restore"):
        name = f"{restore.requested}.restore.requested"
        if name in state.instant_files and state.instant_files[name].size_bytes:
            gone |= {str(info["commitTime"]) for info in state.plan(restore, name)["instantsToRollback"]}
    if not gone:
        return state.timeline
    kept = (i for i in state.timeline.instants if i.requested not in gone or i.completed_action not in WRITE_ACTIONS)
    return replace(state.timeline, instants=tuple(kept))


def listed_files(storage: Storage, known: Mapping[str, DataFile] | None = None) -> Iterator[DataFile]:
    """Every data file below the table."""
    return data_files(storage.listed("", lambda folder: folder == HOODIE), known)


def data_files(infos: Iterable[FileInfo], known: Mapping[str, DataFile] | None = None) -> Iterator[DataFile]:
    """The data files among these; `known`: files by path, which need not be taken apart again."""
    for info in infos:
        before = known.get(info.path) if known else None
        if before is not None and before.size_bytes == info.size_bytes:
            yield before
            continue
        partition, _, name = info.path.rpartition("/")
        found = parse_data_file(partition, name, info.size_bytes)
        if found is not None:
            yield found


def _key(state: TableState, file_name: str) -> tuple[str, str, int, int | str]:
    info = state.instant_files[file_name]
    return state.storage.uri, file_name, info.size_bytes, info.etag or info.modified_ms


def keep_commit(state: TableState, file_name: str, body: bytes) -> None:
    """Remember what a file of the timeline holds that was just written; the state knows it with its tag."""
    with _cache_lock:
        _cache[_key(state, file_name)] = decode_commit(body, f"{state.path}/{state.timeline_folder}/{file_name}")


def _tried(function: Callable[[Instant], object], instant: Instant) -> None:
    with suppress(LakeError, OSError):
        function(instant)


def _cached(state: TableState, file_name: str, decode: Callable[[bytes, str], Decoded]) -> Decoded:
    key = _key(state, file_name)
    with _cache_lock:
        if key in _cache:
            _cache.move_to_end(key)
            return cast(Decoded, _cache[key])
    path = f"{state.timeline_folder}/{file_name}"
    try:
        value = decode(state.storage.read(path), f"{state.path}/{path}")
    except FileNotFoundError as error:
        raise _VanishedError(
            f"{state.path}: {path} has vanished while the table was read: another writer archived or rolled it back. "
            "Run the statement again."
        ) from error
    with _cache_lock:
        _cache[key] = value
        while len(_cache) > _CACHE_ENTRIES:
            _cache.popitem(last=False)
    return value
