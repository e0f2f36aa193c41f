"""A writer that dies right before its commit becomes visible, and what lies in the table's folders afterwards."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql.format import log
from lakesql.format.files import BaseFile, LogFile, parse_data_file
from lakesql.handle import Table
from lakesql.storage import open_storage
from tests.faulty import FaultError, FaultyStorage
from tests.lakes import LOCAL, Lake


def die_before_completing(table: lakesql.Table, data: pa.Table) -> str:
    """Upsert as a process that is killed just before the put that completes the commit; the pending instant.

    A copy of the table tells how many puts come before that one.
    """
    twin = shutil.copytree(table.path, f"{table.path}-twin")
    whole = FaultyStorage(open_storage(str(twin)), fail_at=0, kinds=("put",))
    Table(whole).upsert(data)
    completing = Table(whole.inner).state.timeline.completed_writes()[-1].file_name
    shutil.rmtree(twin)
    number = [path.rsplit("/", 1)[-1] for _, path in whole.calls].index(completing) + 1
    with pytest.raises((FaultError, lakesql.LakeError)):
        Table(FaultyStorage(open_storage(table.path), fail_at=number, kinds=("put",))).upsert(data)
    (dead,) = table.state.timeline.pending("commit", "deltacommit")
    return str(dead.requested)


def data_files(table: lakesql.Table, lake: Lake | None = None) -> list[BaseFile | LogFile]:
    """Every data file below the table's folder, committed or not."""
    found = []
    for path, size in (lake or Lake(LOCAL, Path(table.path))).files(table.path).items():
        partition, _, name = path.rpartition("/")
        if not path.startswith(".hoodie/"):
            parsed = parse_data_file(partition, name, size)
            found += [parsed] if parsed is not None else []
    return found


def blocks_of(table: lakesql.Table, file: BaseFile | LogFile) -> list[log.Block]:
    """The blocks of a log file; none for a base file."""
    return log.scan_blocks(Path(table.path, file.path).read_bytes(), file.path) if isinstance(file, LogFile) else []


def files_with_rows_of(table: lakesql.Table, instant: str) -> list[BaseFile | LogFile]:
    """Data files with rows of `instant` that no command block takes back (version 6 keeps log files)."""
    files = data_files(table)
    if table.state.config.version >= 8:
        return [file for file in files if file.instant == instant]
    bases = [file for file in files if isinstance(file, BaseFile) and file.instant == instant]
    logs = {file: blocks_of(table, file) for file in files if isinstance(file, LogFile)}
    undone = {
        file.file_id
        for file, blocks in logs.items()
        for block in blocks
        if block.kind == log.COMMAND and block.headers.get(log.TARGET_INSTANT_TIME) == instant
    }
    written = {
        file: {block.headers.get(log.INSTANT_TIME) for block in blocks if block.kind != log.COMMAND}
        for file, blocks in logs.items()
    }
    return [*bases, *(file for file in logs if instant in written[file] and file.file_id not in undone)]
