"""Damage to the files of completed commits is an error that names file and commit; torn writes of the dead are skipped."""

import errno

import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.errors import FormatError, LakeError, TableError
from lakesql.format import log
from lakesql.format.files import LogFile
from lakesql.table import inspect, read
from lakesql.table.state import load
from tests.writing import CON, delete, listing, rows_of, table, upsert

A, B = ("a", "x", 1, 10), ("b", "x", 2, 10)
NEWER = ("a", "x", 3, 20)
VERSIONS = pytest.mark.parametrize("version", [9, 8, 6])


def logs_of(t):
    """The log files, in the order they were written."""
    now = load(t.storage)
    return sorted((f for f in now.files if isinstance(f, LogFile)), key=lambda f: (f.instant, f.version))


def with_logs(path, version):
    """A table with one base file and the logs of an upsert and of a delete."""
    t = table(path, "mor", version)
    upsert(t, A, B)
    upsert(t, NEWER)
    delete(t, ("b", "x"))
    return t


def change(t, file, data):
    t.storage.put(file.path, data)


@VERSIONS
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:-1],
        lambda d: d[:0],
        lambda d: d[: len(d) // 2],
        lambda d: d + b"\0garbage",
        lambda d: bytes(len(d)),
    ],
)
def test_damaged_log_of_a_complete_commit_is_an_error(tmp_path, version, number, damage):
    t = with_logs(tmp_path / "t", version)
    file = logs_of(t)[number]
    change(t, file, damage(t.storage.read(file.path)))
    with pytest.raises(FormatError, match=r"\.log\..*commit \d{17}.*rows would be missing\. Restore the file"):
        rows_of(t)
    with pytest.raises(FormatError):
        inspect.log_blocks(load(t.storage))
    with pytest.raises(FormatError):
        upsert(t, ("a", "x", 4, 30))


@VERSIONS
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_base_file_shorter_than_its_commit_says_is_an_error(tmp_path, version, size):
    t = with_logs(tmp_path / "t", version)
    (base,) = load(t.storage).base_files()
    change(t, base, t.storage.read(base.path)[:size])
    for look in (lambda s: s.slices(), lambda s: s.base_files()):
        with pytest.raises(
            FormatError,
            match=rf"{base.name}: commit {base.instant} left this file with {base.size_bytes} bytes, it has {size}",
        ):
            look(load(t.storage))


def test_read_optimized_names_a_base_file_that_is_gone(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, B)
    upsert(t, NEWER)
    (base,) = load(t.storage).base_files()
    t.storage.delete(base.path)
    with pytest.raises(TableError, match="names this file, and it is not there"):
        read.plan(load(t.storage), mode="read_optimized")


@VERSIONS
def test_read_optimized_does_not_need_the_logs(tmp_path, version):
    t = with_logs(tmp_path / "t", version)
    change(t, logs_of(t)[1], b"")
    now = load(t.storage)
    assert len(read.plan(now, mode="read_optimized").slices) == 1


def test_time_travel_asks_only_for_what_was_there(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    first = upsert(t, NEWER).instant
    delete(t, ("b", "x"))
    change(t, logs_of(t)[1], b"")
    now = load(t.storage)
    sql = read.to_sql(CON, read.plan(now, first))
    assert sorted(CON.execute(f"SELECT id, v FROM ({sql})").fetchall()) == [("a", 3), ("b", 2)]


def test_bytes_that_no_commit_wrote_may_be_torn(tmp_path):
    """Version 6: a writer that died while it appended to a log file, before and after a commit's own bytes."""
    t = with_logs(tmp_path / "t", 6)
    file = logs_of(t)[1]
    data = t.storage.read(file.path)
    change(t, file, data + log.MAGIC + b"\0\0\0")
    assert rows_of(t) == [NEWER]
    change(t, file, data + log.MAGIC + b"\0\0\0" + log.encode_rollback("29990101000000000", "29980101000000000"))
    assert rows_of(t) == [NEWER]


def test_block_of_a_complete_commit_that_names_another_instant_is_an_error(tmp_path):
    t = with_logs(tmp_path / "t", 6)
    file = logs_of(t)[1]
    newest = max(i.requested for i in load(t.storage).timeline.completed_writes())
    change(t, file, t.storage.read(file.path).replace(newest.encode(), b"2" * 17))
    with pytest.raises(FormatError, match=f"should be a log block of commit {newest}"):
        rows_of(t)


def test_every_cut_of_a_log_file_is_noticed(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    upsert(t, NEWER)
    (file,) = logs_of(t)
    data = t.storage.read(file.path)
    for end in range(0, len(data), 37):
        change(t, file, data[:end])
        with pytest.raises(LakeError):
            rows_of(t)


def test_folder_in_place_of_the_properties_is_an_error(tmp_path):
    (tmp_path / "t/.hoodie/hoodie.properties").mkdir(parents=True)
    with pytest.raises(TableError, match=r"hoodie\.properties: cannot be read: Is a directory\. Remove the folder"):
        lakesql.open_table(tmp_path / "t")


def test_links_that_lead_nowhere_do_not_hide_the_other_tables(tmp_path):
    table(tmp_path / "t")
    for name in ("loop", "lost"):
        (tmp_path / name).symlink_to(tmp_path / name if name == "loop" else tmp_path / "nothing")
    (tmp_path / "u/.hoodie").mkdir(parents=True)
    (tmp_path / "u/.hoodie/hoodie.properties").symlink_to(tmp_path / "u/.hoodie/hoodie.properties")
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        assert list(con.tables) == ["t"]
        assert con.sql("SELECT * FROM t").fetchall() == []


@VERSIONS
def test_full_disk_leaves_the_table_as_it_was(tmp_path, version, monkeypatch):
    t = with_logs(tmp_path / "t", version)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = listing(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", full)
        patch.setattr(pq.ParquetWriter, "write_batch", full)
        with pytest.raises(TableError, match=r"\.parquet: cannot be written: No space left on device\. Make room"):
            upsert(t, ("c", "new", 1, 1))
    assert {f for f in listing(tmp_path) if ".parquet" in f or "commit" in f} == {
        f for f in before if ".parquet" in f or "commit" in f
    }
    assert rows_of(t) == [NEWER]


# ---------------------------------------------------------------- base files that are no Parquet


def with_broken_base(path):
    t = table(path, "cow")
    upsert(t, *((f"k{i}", "x", i, 1) for i in range(200)))
    (base,) = load(t.storage).base_files()
    return t, base, t.storage.read(base.path)


@pytest.mark.parametrize("damage", [lambda d: bytes(len(d)), lambda d: d + b"xx", lambda d: d[:-4] + b"PARE"])
def test_base_file_that_is_no_parquet_is_named(tmp_path, damage):
    t, base, data = with_broken_base(tmp_path / "t")
    change(t, base, damage(data))
    text = rf"{base.name}: the base file cannot be read: .*Restore it, or roll back its commit\."
    opened = lakesql.open_table(t.path)
    with pytest.raises(FormatError, match=text):
        opened.read().read_all()
    with pytest.raises(FormatError, match=text):
        opened.upsert([{"id": "k1", "city": "x", "v": 1, "ts": 9}])
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        with pytest.raises(FormatError, match=text):
            con.execute("SELECT * FROM t").fetchall()
        with pytest.raises(FormatError, match=text):
            con.execute("UPDATE t SET v = 1")


def test_base_file_whose_footer_is_damaged_is_named_though_duckdb_does_not_name_it(tmp_path):
    t, base, data = with_broken_base(tmp_path / "t")
    size = int.from_bytes(data[-8:-4], "little")
    change(t, base, data[: -8 - size] + b"\xff" * size + data[-8:])
    with pytest.raises(FormatError, match=rf"{base.name}: the base file cannot be read"):
        lakesql.open_table(t.path).read().read_all()
