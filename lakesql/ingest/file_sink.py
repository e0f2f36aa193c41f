"""A folder as the target of an ingestion: Avro, Parquet or plain files below topics and times, exactly once.

    take      rows go to files in the staging folder, one for each work unit and folder; with AS SELECT they wait for the
              commit, where what is selected goes to files of its topic (`file_select`)
    commit    files are on the disk -> the manifest of the next number -> the files get their names
    settle    the names that a dead run owes are given
    begin     the same, and what was staged without a commit is removed

One run at a time works on a folder for one ingestion: a lock of the operating system, which a dead process does not hold.
The number of the manifest is what makes a second run on another machine fail (`manifest`).
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import CommitConflict, IngestConflict, IngestError, IngestionRunning, LakeError
from lakesql.ingest import manifest
from lakesql.ingest.file_select import Selection, timed
from lakesql.ingest.file_writers import FileWriter, writer_of
from lakesql.ingest.folders import TimeFolders, time_folders, topic_folder
from lakesql.ingest.manifest import DataFile, Manifest
from lakesql.ingest.model import KAFKA, Committed, Decoded, Job, Load, Sink, State, WorkUnit
from lakesql.ingest.quarantine import held, write_files
from lakesql.ingest.spool import SPOOL_DIR, Spool
from lakesql.ingest.topics import target_options
from lakesql.storage import Sink as NewFile
from lakesql.storage import Storage, open_storage

OPEN_FILES_MAX = 128
"""Files of one work unit that are written at a time; records of more folders close the one that waited longest."""

TopicOptions = Callable[[str], Mapping[str, str]]
Open = Callable[[NewFile, pa.Schema, str], FileWriter]


class FileSink(Sink):
    """Files below one folder. `con`: its DuckDB runs AS SELECT, by a cursor."""

    def __init__(
        self, job: Job, path: str, storage: Storage | None = None, con: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        manifest.require_name(job.name, path)
        self._job, self._con = job, con
        self._storage = storage or open_storage(path)
        self._options_of = partial(target_options, job)
        time_folders(job.target.options)  # what is wrong with the settings is said before anything is read
        writer_of(job.target.options)

    def stored(self) -> State:
        return manifest.newest(self._storage, self._job.name).state

    def settle(self) -> None:
        with contextlib.suppress(CommitConflict), self._lock():  # a run that lives gives its names itself
            manifest.finish(self._storage, manifest.newest(self._storage, self._job.name))

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        return self._storage.lock(f"{manifest.home(self._job.name)}/load", 0)

    def begin(self, before: State, run: str) -> "FileLoad":
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._lock())
            except CommitConflict as error:
                raise IngestionRunning(f"The ingestion {self._job.name} is running already: {error}") from error
            last = manifest.newest(self._storage, self._job.name)
            manifest.finish(self._storage, last)
            self._storage.delete_tree(manifest.staging(self._job.name))
            manifest.remove_unnamed(self._storage, last)
            if last.state.offsets() != before.offsets():
                raise IngestConflict(
                    f"{self._storage.uri}: the offsets of the ingestion {self._job.name} have moved since this run was "
                    f"planned (commit {last.number}). Nothing was read; run it again."
                )
            selection = self._selection()
            return FileLoad(self._storage, self._job, self._options_of, last, run, held.pop_all(), selection)

    def quarantined(self) -> tuple[Storage, list[str]]:
        return self._storage, held(one.state for one in manifest.history(self._storage, self._job.name))

    def _selection(self) -> Selection | None:
        if self._job.target.select is None:
            return None
        spool = Spool(f"{self._storage.uri}\n{self._job.name}", self._job.settings.get(SPOOL_DIR))
        return Selection(self._con or duckdb.connect(), self._job.target.select, self._storage.uri, spool)


@dataclass(frozen=True, slots=True)
class _Folder:
    """What one work unit writes: the settings of its topic, and its open files by folder."""

    path: str
    times: TimeFolders | None
    extension: str
    open: Open
    counted: bool  # the number of rows is a part of the file name
    writers: dict[str, tuple[FileWriter, str, str]] = field(default_factory=dict)  # folder -> writer, staged, final
    closed: list[DataFile] = field(default_factory=list)
    bad: list[pa.Table] = field(default_factory=list)


class FileLoad(Load):
    """Files on their way into a folder within one commit."""

    def __init__(
        self,
        storage: Storage,
        job: Job,
        options_of: TopicOptions,
        before: Manifest,
        run: str,
        held: contextlib.ExitStack,
        selection: Selection | None = None,
    ) -> None:
        self._selection = selection
        self._storage, self._job, self._options_of = storage, job, options_of
        self._before, self._run, self._held = before, run, held
        self._units: dict[int, _Folder] = {}
        self._files = 0
        self._owing = False  # a commit may name staged files
        self._guard = threading.Lock()

    def take(self, unit: WorkUnit, decoded: Decoded) -> None:
        if self._selection is not None:
            self._selection.take(unit, decoded)
            return
        own = self._unit(unit)
        if decoded.bad.num_rows:
            own.bad.append(decoded.bad)
        rows = decoded.rows
        if not rows.num_rows:
            return
        plain = rows.drop_columns([name for name in KAFKA.names if name in rows.schema.names])
        self._spread(own, unit, None if own.times is None else own.times.of(rows), plain)

    def _spread(self, own: _Folder, unit: WorkUnit, folders: pa.DictionaryArray | None, plain: pa.Table) -> None:
        """Rows to the files of their folders; None: all to one."""
        if folders is None:
            self._append(own, unit, "", plain)
            return
        used = pc.unique(folders.indices).to_pylist()
        for code in used:
            name = folders.dictionary[code].as_py()
            part = plain if len(used) == 1 else plain.filter(pc.equal(folders.indices, code))
            self._append(own, unit, name, part)

    def _write_selected(self, selection: Selection) -> None:
        """Files of what is selected; the work units are the topics."""
        numbers: dict[str, int] = {}
        for topic, rows in selection.selected():
            unit = WorkUnit(topic, (), numbers.setdefault(topic, len(numbers)))
            own = self._unit(unit)
            given = rows if own.times is None else timed(rows, bool(own.times.columns), self._storage.uri)
            folders = None if own.times is None else own.times.of(given)
            self._spread(own, unit, folders, rows)

    def forget(self, unit: WorkUnit) -> None:
        if self._selection is not None:
            self._selection.forget(unit)
            return
        with self._guard:
            own = self._units.pop(unit.group, None)
        if own is None:
            return
        for writer, staged, _ in own.writers.values():
            writer.abandon()
            self._storage.delete(staged)
        for file in own.closed:
            self._storage.delete(file.staged)

    def commit(self, state: State) -> Committed:
        if self._selection is not None:
            self._write_selected(self._selection)
        units = [self._units[group] for group in sorted(self._units)]
        for own in units:
            for folder in list(own.writers):
                self._close(own, folder)
        files = tuple(sorted((f for own in units for f in own.closed), key=lambda f: f.path))
        bad = [table for own in units for table in own.bad]
        if self._selection is not None:
            bad += self._selection.bad()
        named = write_files(self._storage, manifest.quarantine(self._job.name, self._before.number + 1), bad, self._run)
        self._owing = True  # whether the manifest is there or not is for the next `begin` to see
        done = manifest.commit(self._storage, self._before, replace(state, quarantine=named), files)
        try:
            manifest.finish(self._storage, done)
        except LakeError as error:
            raise IngestError(
                f"{self._storage.uri}: commit {done.number} of the ingestion {self._job.name} is complete, rows and offsets, "
                f"but its files cannot be given their names: {error} The next run does that first; nothing is lost."
            ) from error
        self._owing = False
        self.discard()
        return Committed(
            str(done.number),
            inserted=sum(f.rows for f in files),
            files=len(files),
            bytes=sum(f.size for f in files),
        )

    def discard(self) -> None:
        with self._guard:
            units, self._units = list(self._units.values()), {}
        for own in units:
            for writer, _, _ in own.writers.values():
                writer.abandon()
        if self._selection is not None:
            self._selection.close()
        with self._held:
            if units and not self._owing:
                self._storage.delete_tree(manifest.staging(self._job.name))

    def _unit(self, unit: WorkUnit) -> _Folder:
        with self._guard:
            if unit.group not in self._units:
                options = self._options_of(unit.topic)
                extension, opener = writer_of(options)
                counted = options.get("writer.include.record.count.in.file.names", "false").strip().lower() == "true"
                path = topic_folder(unit.topic, options, self._run)
                self._units[unit.group] = _Folder(path, time_folders(options), extension, opener, counted)
            return self._units[unit.group]

    def _append(self, own: _Folder, unit: WorkUnit, folder: str, rows: pa.Table) -> None:
        waiting = own.writers.pop(folder, None)
        if waiting is not None and not _takes(waiting[0], rows.schema):
            own.writers[folder] = waiting
            self._close(own, folder)
            waiting = None
        if waiting is None:
            if len(own.writers) >= OPEN_FILES_MAX:
                self._close(own, next(iter(own.writers)))
            waiting = self._opened(own, unit, folder, rows.schema)
        own.writers[folder] = waiting  # the one used last stands last
        waiting[0].append(rows)

    def _opened(self, own: _Folder, unit: WorkUnit, folder: str, schema: pa.Schema) -> tuple[FileWriter, str, str]:
        written = sum(f.path.rpartition("/")[0] == "/".join(p for p in (own.path, folder) if p) for f in own.closed)
        part = f"_{written}" if written else ""
        name = f"part.task_{manifest.part(self._job.name)}_{self._before.number + 1:010d}_{unit.group}{part}"
        with self._guard:
            self._files += 1
            # What another run left must not be taken for a file of this one, nor of the commit before.
            own_name = f"{self._before.number + 1:010d}-{quote(self._run, safe=' ')}"
            staged = f"{manifest.staging(self._job.name)}/{own_name}/{self._files:08d}"
        final = "/".join(p for p in (own.path, folder, name) if p)
        return own.open(self._storage.sink(staged), schema, unit.topic), staged, final

    def _close(self, own: _Folder, folder: str) -> None:
        writer, staged, final = own.writers.pop(folder)
        done = writer.close()
        count = f".{done.rows}" if own.counted else ""
        topic = own.path.rpartition("/")[2]
        path = f"{final}{count}.{own.extension}"
        own.closed.append(DataFile(path, staged, topic, done.rows, done.size, done.sha256))


def _takes(writer: FileWriter, schema: pa.Schema) -> bool:
    """Whether rows of a schema can go into a file under way: the same one, the Avro schema that it came with included."""
    return bool(writer.schema.equals(schema, check_metadata=True))
