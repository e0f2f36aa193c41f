"""Procedures against Hudi: their names, parameters and columns as Hudi 1.2.0 declares them, and every one that only reads
over every real table.

`procedures.tsv` is what `HoodieProcedures` of the 1.2.0 bundle says of itself: name, parameters in order, columns with types.
"""

import csv
import zipfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql.format.files import LogFile
from lakesql.procedures import PROCEDURES
from lakesql.procedures.declare import Procedure, shown
from lakesql.procedures.help import ABSENT
from lakesql.sql.connection import Connection
from tests.golden.test_real_tables import ARCHIVES

HUDI = {
    row["procedure"]: row
    for row in csv.DictReader(Path(__file__).with_name("procedures.tsv").read_text().splitlines(), delimiter="\t")
}
OTHER_COLUMNS = {"help"}
OF_METADATA_FILES = {
    "show_metadata_table_files",
    "show_metadata_table_partitions",
    "validate_metadata_table_files",
}
ARROW = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(), "double": pa.float64()}


def parts(text: str) -> list[str]:
    return text.split("|") if text else []


@pytest.mark.parametrize("name", sorted(HUDI))
def test_procedure_of_hudi_is_here_or_said_to_be_absent(name: str) -> None:
    assert (name in PROCEDURES) != (name in ABSENT)


@pytest.mark.parametrize("name", sorted(set(HUDI) & set(PROCEDURES)))
def test_parameters_have_the_names_and_order_of_hudi(name: str) -> None:
    wanted = [p for p in parts(HUDI[name]["parameters"]) if p != "path" or not PROCEDURES[name].of_table]
    ours = [p.name for p in PROCEDURES[name].all_parameters if p.name != "path" or not PROCEDURES[name].of_table]
    shared = [p for p in ours if p in wanted]
    assert shared == wanted


@pytest.mark.parametrize("name", sorted((set(HUDI) & set(PROCEDURES)) - OTHER_COLUMNS))
def test_columns_are_those_of_hudi(name: str) -> None:
    wanted = [c.rpartition(":") for c in parts(HUDI[name]["columns"])]
    ours = [(f.name, f.type) for f in PROCEDURES[name].columns]
    assert [n for n, _ in ours] == [n for n, _, _ in wanted]
    wider = [
        (n, ours_, ARROW[kind]) for (n, ours_), (_, _, kind) in zip(ours, wanted, strict=True) if ours_ != ARROW[kind]
    ]
    assert all((ours_, theirs) == (pa.int64(), pa.int32()) for _, ours_, theirs in wider), wider


@pytest.fixture(scope="session")
def con(tmp_path_factory: pytest.TempPathFactory) -> Connection:
    return lakesql.connect(warehouse=str(tmp_path_factory.mktemp("warehouse")), read_only=True)


def has_nothing_to_show(name: str, table: lakesql.Table) -> bool:
    """Whether a procedure may refuse, as the table has not what it asks for."""
    if name in OF_METADATA_FILES and not (Path(table.path) / ".hoodie" / "metadata" / "files").is_dir():
        return True
    state = table.state
    if name.startswith("show_logfile"):
        return not any(isinstance(f, LogFile) for f in state.files)
    if name.startswith("show_commit_"):
        return not state.timeline.completed_writes()
    if name == "show_compaction":
        return not state.config.is_mor
    if name in ("show_rollback_detail", "undo_last", "export_ingestion_state"):
        return True
    return name == "repair_deduplicate" and not (state.files and state.config.meta_fields)


def arguments(procedure: Procedure, table: lakesql.Table, folder: Path) -> dict[str, object]:
    """A value for each parameter that must be given."""
    state = table.state
    logs = [f for f in state.files if isinstance(f, LogFile)]
    file = next(iter([*logs, *state.files]), None)
    writes = state.timeline.completed_writes()
    values: dict[str, object] = {
        "path": table.path,
        "instant_time": writes[-1].requested if writes else "20200101000000000",
        "file": file.name if file else "none",
        "log_file_path_pattern": "*/" * (file.path.count("/") if file else 0) + ".*.log.*",
        "local_folder": str(folder),
        "view_name": "copied",
        "duplicated_partition_path": state.slices()[0].partition if file else "",
    }
    if procedure.name == "commits_compare":
        values["table"] = table.path
    if procedure.name == "copy_to_temp_view":
        values["replace"] = True
    names = {p.name for p in procedure.all_parameters}
    return {name: value for name, value in values.items() if name in names}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda p: p.stem)
def test_what_only_reads_gives_rows_of_every_real_table(archive: Path, con: Connection, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path / "table")
    exports = tmp_path / "exports"
    exports.mkdir()
    for properties in sorted((tmp_path / "table").rglob("hoodie.properties")):
        if properties.parent.parent.name == "metadata":
            continue
        table = lakesql.open_table(str(properties.parent.parent))
        for name, procedure in PROCEDURES.items():
            given = arguments(procedure, table, exports)
            if procedure.writes is True or (procedure.writes and "dry_run" not in procedure.signature()):
                continue
            if not procedure.of_table and "path" not in given and procedure.name != "help":
                continue
            sql = ", ".join(f"{key} => {shown(value)}" for key, value in given.items())
            if has_nothing_to_show(name, table):
                with suppress(lakesql.LakeError):
                    found = con.sql(f"CALL {name}({sql})").to_arrow_table()
                    assert found.column_names[: len(procedure.columns)] == procedure.columns.names, name
                continue
            found = con.sql(f"CALL {name}({sql})").to_arrow_table()
            assert found.column_names == procedure.columns.names, name
