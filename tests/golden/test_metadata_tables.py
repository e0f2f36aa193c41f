"""The metadata tables that Hudi and hudi-rs kept: every HFile reads, and what they know is what lies on storage."""

import re
import zipfile
from pathlib import Path

import pytest

import lakesql
from lakesql.errors import LakeError, TableError
from lakesql.format.hfile import of_bytes
from lakesql.table.metadata_files import FOLDER
from lakesql.table.state import load

ARCHIVES = sorted(Path(__file__).with_name("metadata").glob("*.zip"))
each = pytest.mark.parametrize("archive", ARCHIVES, ids=[p.stem for p in ARCHIVES])


def unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as files:
        files.extractall(folder)
    return next(p.parents[1] for p in folder.rglob("hoodie.properties") if "metadata" not in p.parts)


def test_all_table_versions_and_writers_are_here() -> None:
    assert [p.stem[:4] for p in ARCHIVES] == ["h015", "h102", "h120", "r060"]


@each
def test_every_hfile_reads_whole_and_by_key(archive: Path) -> None:
    found = 0
    with zipfile.ZipFile(archive) as files:
        for name in (n for n in files.namelist() if n.endswith(".hfile")):
            file = of_bytes(files.read(name), name)
            pairs = list(file.scan())
            assert len(pairs) == file.entries
            assert [k for k, _ in pairs] == sorted((k for k, _ in pairs), key=str.encode)
            assert all(file.get(key) == value for key, value in pairs)
            assert file.get("\x01") is None
            assert file.get("zzz") is None
            assert file.get("__all_partitions__x") is None
            found += len(pairs)
    assert found


@each
def test_what_it_knows_is_what_lies_on_storage(archive: Path, tmp_path: Path) -> None:
    root = unpacked(archive, tmp_path)
    there = {
        p.relative_to(root).as_posix(): p.stat().st_size
        for p in root.rglob("*")
        if p.is_file() and ".hoodie" not in p.parts and not p.name.startswith(".hoodie_partition")
    }
    with lakesql.connect() as con:
        partitions = [p for (p,) in con.sql(f"CALL show_metadata_table_partitions(path => '{root}')").fetchall()]
        listed = {
            f"{p}/{name}"
            for p in partitions
            for (name,) in con.sql(f"CALL show_metadata_table_files(path => '{root}', partition => '{p}')").fetchall()
        }
        assert listed == set(there)
        every = con.sql(f"CALL show_metadata_table_files(path => '{root}', limit => -1)").fetchall()
        assert {path for (path,) in every} == set(there)
        every = con.sql(f"CALL validate_metadata_table_files(path => '{root}', verbose => true)").fetchall()
        assert {f"{p}/{name}": size for p, name, _, _, _, size in every} == there
        assert con.sql(f"CALL validate_metadata_table_files(path => '{root}')").fetchall() == []


def test_differences_are_shown(tmp_path: Path) -> None:
    root = unpacked(ARCHIVES[0], tmp_path)
    state = load(lakesql.open_table(root).state.storage)
    lost, grown = sorted((f for f in state.files if f.name.endswith(".parquet")), key=lambda f: f.path)[:2]
    size = (root / lost.path).stat().st_size
    (root / lost.path).unlink()
    with (root / grown.path).open("ab") as file:
        file.write(b"x")
    stray = f"{'0' * 8}-0_0-0-1_{state.timeline.newest_time}.parquet"
    (root / lost.partition / stray).write_bytes(b"xy")
    with lakesql.connect() as con:
        found = con.sql(f"CALL validate_metadata_table_files(path => '{root}')").fetchall()
        assert sorted(found) == sorted(
            [
                (lost.partition, lost.name, False, True, 0, size),
                (grown.partition, grown.name, True, True, grown.size_bytes + 1, grown.size_bytes),
                (lost.partition, stray, True, False, 2, 0),
            ]
        )
        with pytest.raises(TableError, match="knows no partition 'part=zz'; it knows 'part="):
            con.sql(f"CALL show_metadata_table_files(path => '{root}', partition => 'part=zz')")
        con.sql(f"CALL delete_metadata_table(path => '{root}')")
        with pytest.raises(TableError, match="there is no metadata table that knows the files"):
            con.sql(f"CALL validate_metadata_table_files(path => '{root}')")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'{"doc"', b'{,doc"', "the SCHEMA header is not JSON"),
        (b'{"doc"', b'\xff"doc"', "JSON|headers are damaged"),
        (b'"filesystemMetadata"', b'"filesystemMetadatb"', "no column filesystemMetadata of type"),
        (b'"isDeleted"', b'"isDeletee"', "no column filesystemMetadata of type"),
        (b'"name":"size","type":"long"', b'"name":"size","type":"lonh"', "lonh"),
    ],
)
@pytest.mark.parametrize("kind", ["*.hfile", ".*.log.*"])
def test_records_that_are_no_list_of_files_are_refused_with_the_file(
    old: bytes, new: bytes, said: str, kind: str, tmp_path: Path
) -> None:
    refused = []
    for archive in ARCHIVES:
        root = unpacked(archive, tmp_path / archive.stem)
        for file in (root / FOLDER / "files").glob(kind):
            file.write_bytes(file.read_bytes().replace(old, new))
        with lakesql.connect() as con:
            try:
                con.sql(f"CALL show_metadata_table_partitions(path => '{root}')").fetchall()
            except LakeError as error:
                refused.append(str(error))
                assert f"{root}/{FOLDER}/files/" in refused[-1]
    assert any(re.search(said, text) for text in refused)
