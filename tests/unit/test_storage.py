"""Both storages keep the same promises; the local one also keeps them against other threads and processes."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakesql.errors import CommitConflict, TableError, Unsupported
from lakesql.storage import TEMPORARY, FileInfo, LocalStorage, MemoryStorage, Storage, open_storage
from tests.faulty import FaultError, FaultyStorage


@pytest.fixture(params=["local", "memory", "object", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(tmp_path / "t")
    if request.param == "memory":
        return MemoryStorage()
    # Below a prefix, and in a bucket that has nothing else.
    return open_storage(f"memory://{tmp_path.name}-{request.param}" + ("/a/b" if request.param == "object" else ""))


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "t")


def names_in(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_what_was_put_is_read_whole_or_in_ranges(storage: Storage) -> None:
    storage.put("a/b/c.txt", b"0123456789")
    assert storage.read("a/b/c.txt") == b"0123456789"
    assert storage.read("a/b/c.txt", 3) == b"3456789"
    assert storage.read("a/b/c.txt", 3, 4) == b"3456"
    assert storage.read("a/b/c.txt", 8, 100) == b"89"


def test_reading_a_missing_file_raises_file_not_found(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("nothing")


def test_put_replaces(storage: Storage) -> None:
    storage.put("f", b"old")
    storage.put("f", b"new")
    assert storage.read("f") == b"new"


def test_empty_files_are_files(storage: Storage) -> None:
    assert storage.put_if_absent("t.commit.requested", b"")
    storage.put("t.inflight", b"")
    assert [(f.path, f.size_bytes) for f in storage.list("")[0]] == [("t.commit.requested", 0), ("t.inflight", 0)]


def test_put_if_absent_lets_only_the_first_win(storage: Storage) -> None:
    assert storage.put_if_absent("x/f", b"first") is True
    assert storage.put_if_absent("x/f", b"second") is False
    assert storage.read("x/f") == b"first"


def test_stat_tells_size_and_time_of_files_only(storage: Storage) -> None:
    before = time.time_ns() // 1_000_000 - 10_000
    storage.put("folder/f", b"four")
    found = storage.stat("folder/f")
    assert found is not None
    assert (found.path, found.size_bytes) == ("folder/f", 4)
    assert found.modified_ms >= before
    assert storage.stat("folder") is None
    assert storage.stat("folder/g") is None
    assert storage.stat("folder/f/deeper") is None


def test_list_gives_direct_files_and_folders_sorted(storage: Storage) -> None:
    for path in ("p/z", "p/a", "p/s2/x", "p/s1/y/z", "q/n"):
        storage.put(path, b"1")
    files, folders = storage.list("p")
    assert [f.path for f in files] == ["p/a", "p/z"]
    assert folders == ["s1", "s2"]
    assert storage.list("")[1] == ["p", "q"]


def test_a_missing_folder_is_empty(storage: Storage) -> None:
    storage.put("f", b"1")
    assert storage.list("nowhere") == ([], [])
    assert storage.list("f") == ([], [])


def test_listings_leave_out_checksum_files_and_our_own_temporary_files(storage: Storage) -> None:
    for name in ("a", ".a.crc", f".a{TEMPORARY}123", ".hidden"):
        storage.put(name, b"1")
    assert [f.path for f in storage.list("")[0]] == [".hidden", "a"]


@pytest.mark.parametrize("name", ["p=x.crc", f"{TEMPORARY}x", f".p{TEMPORARY}1", ".crc"])
def test_folders_are_listed_whatever_their_name(storage: Storage, name: str) -> None:
    storage.put(f"{name}/f", b"1")
    assert storage.list("")[1] == [name]
    assert [f.path for f in storage.walk("")] == [f"{name}/f"]


def test_walk_prunes_folders(storage: Storage) -> None:
    for path in ("f", "a/g", "a/b/h", ".hoodie/i"):
        storage.put(path, b"1")
    assert [f.path for f in storage.walk("", lambda folder: folder == ".hoodie")] == ["f", "a/g", "a/b/h"]
    assert [f.path for f in storage.walk("a")] == ["a/g", "a/b/h"]


def test_everything_below_a_folder_is_listed_at_once(storage: Storage) -> None:
    for path in ("f", "a/g", "a/b/h", ".hoodie/i", ".a.crc", "b/.hoodie/j"):
        storage.put(path, b"1")
    assert sorted(f.path for f in storage.listed("", lambda folder: folder == ".hoodie")) == [
        "a/b/h",
        "a/g",
        "b/.hoodie/j",
        "f",
    ]
    assert sorted(f.path for f in storage.listed("a")) == ["a/b/h", "a/g"]
    assert list(storage.listed("nowhere")) == []


def test_a_file_is_replaced_only_while_it_is_the_one_that_was_read(storage: Storage) -> None:
    assert storage.tagged("f") is None
    assert storage.put_if_match("f", b"1", "any") is None
    storage.put("f", b"1")
    data, tag = storage.tagged("f") or (b"", "")
    assert data == b"1"
    newer = storage.put_if_match("f", b"2", tag)
    assert newer is not None
    assert storage.put_if_match("f", b"3", tag) is None
    assert storage.read("f") == b"2"
    assert storage.put_if_match("f", b"4", newer) is not None


def test_a_new_file_is_there_when_its_sink_is_closed(storage: Storage) -> None:
    sink = storage.sink("p/f")
    if isinstance(sink.target, str):
        Path(sink.target).write_bytes(b"data")
    else:
        sink.target.write(b"da")
        sink.target.write(b"ta")
        assert storage.stat("p/f") is None
    assert sink.close() == 4
    sink.abort()
    assert storage.read("p/f") == b"data"
    gone = storage.sink("p/g")
    if isinstance(gone.target, str):
        Path(gone.target).write_bytes(b"data")
    else:
        gone.target.write(b"data")
    gone.abort()
    assert storage.stat("p/g") is None


def test_calls_together_answer_in_their_order(storage: Storage) -> None:
    for number in range(40):
        storage.put(f"f{number}", str(number).encode())
    found = storage.together(*(lambda n=n: storage.read(f"f{n}") for n in range(40)))  # type: ignore[misc]
    assert found == [str(n).encode() for n in range(40)]
    with pytest.raises(FileNotFoundError):
        storage.together(lambda: storage.read("f1"), lambda: storage.read("nothing"))


def test_delete_and_delete_tree_accept_missing_files(storage: Storage) -> None:
    storage.put("a/f", b"1")
    storage.put("a/g/h", b"1")
    storage.delete("a/f")
    storage.delete("a/f")
    storage.delete("nowhere/f")
    assert storage.stat("a/f") is None
    storage.delete_tree("a")
    storage.delete_tree("a")
    assert list(storage.walk("")) == []


@pytest.mark.parametrize("change", ["put", "put_if_absent", "delete"])
def test_a_stale_checksum_file_goes_when_its_file_changes(storage: Storage, change: str) -> None:
    # Hadoop refuses to read a file whose side file does not fit. It writes none into object stores.
    if storage.remote:
        return
    storage.put(".f.crc", b"stale")
    if change == "delete":
        storage.put("f", b"1")
        storage.put(".f.crc", b"stale")
        storage.delete("f")
    else:
        getattr(storage, change)("f", b"2")
    with pytest.raises(FileNotFoundError):
        storage.read(".f.crc")


def test_requests_are_counted_by_kind(storage: Storage) -> None:
    storage.put("f", b"1")
    storage.put_if_absent("f", b"1")
    storage.read("f")
    storage.stat("f")
    storage.list("")
    storage.delete("f")
    storage.delete_tree("")
    if storage.remote:
        assert storage.requests == {"put": 2, "get": 1, "head": 1, "list": 2, "delete": 1}
        assert (storage.bytes_read, storage.bytes_written) == (1, 1)
    else:
        assert storage.requests == {"put": 2, "read": 2, "list": 1, "delete": 2}


@pytest.mark.parametrize("path", ["../outside", "a/../../b", "/etc/passwd"])
def test_a_path_that_leaves_the_table_is_refused(storage: Storage, path: str) -> None:
    with pytest.raises(TableError, match="does not stay inside the table"):
        storage.put(path, b"1")


def test_the_lock_is_free_again_after_use_and_after_an_error(storage: Storage) -> None:
    with storage.lock("table", 1):
        pass
    with pytest.raises(ValueError, match="boom"), storage.lock("table", 1):
        raise ValueError("boom")
    with storage.lock("table", 1), storage.lock("other", 1):
        pass


def test_a_held_lock_is_a_conflict_that_names_the_holder(storage: Storage) -> None:
    with storage.lock("table", 1):
        caught: list[str] = []

        def second() -> None:
            try:
                with storage.lock("table", 0.05):
                    raise AssertionError("two holders")
            except CommitConflict as error:
                caught.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    holder = f"process {os.getpid()} on" if isinstance(storage, LocalStorage) else "another thread of this process"
    assert len(caught) == 1
    assert "lock 'table' was not free within 0.05 s" in caught[0]
    assert holder in caught[0]


def test_a_held_lock_without_readable_holder_is_still_explained(local: LocalStorage) -> None:
    with local.lock("table", 1):
        local.put(".hoodie/.locks/table.lock.holder", b"garbage")
        with pytest.raises(CommitConflict, match="held by another writer"), LocalStorage(local.uri).lock("table", 0.01):
            pass


def test_threads_take_turns_under_the_lock(local: LocalStorage) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with LocalStorage(local.uri).lock("table", 30):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.002)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8


def test_of_many_threads_that_create_one_name_exactly_one_wins(local: LocalStorage) -> None:
    won: list[int] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        if local.put_if_absent("t/instant", str(number).encode() * 1000):
            won.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert local.read("t/instant") == str(won[0]).encode() * 1000
    assert names_in(local.data_path("t")) == ["instant"]


def test_a_name_taken_between_look_and_link_is_not_overwritten(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("f", b"theirs")
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert local.put_if_absent("f", b"ours") is False
    assert local.read("f") == b"theirs"


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(Path, "hardlink_to", no_links)


def test_without_hard_links_exclusive_creation_decides(local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_links(monkeypatch)
    assert local.put_if_absent("f", b"first") is True
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert local.put_if_absent("f", b"second") is False
    assert local.read("f") == b"first"
    assert names_in(local.uri) == ["f"]


def fail_on_call(number: int) -> Callable[[int], None]:
    calls: list[int] = []

    def fsync(_: int) -> None:
        calls.append(1)
        if len(calls) == number:
            raise OSError("disk full")

    return fsync


def test_a_full_disk_leaves_no_partial_file(local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    local.put("keep", b"1")
    monkeypatch.setattr(os, "fsync", fail_on_call(1))
    with pytest.raises(OSError, match="disk full"):
        local.put_if_absent("f", b"data")
    monkeypatch.setattr(os, "fsync", fail_on_call(2))
    refuse_links(monkeypatch)
    with pytest.raises(OSError, match="disk full"):
        local.put_if_absent("f", b"data")
    assert names_in(local.uri) == ["keep"]


def test_data_files_are_written_to_a_path_whose_folder_exists(local: LocalStorage) -> None:
    local.put("p/.x.parquet.crc", b"stale")
    sink = local.sink("p/x.parquet")
    path = Path(sink.target)
    path.write_bytes(b"PAR1")
    assert sink.close() == 4
    sink.abort()
    assert local.data_path("p/x.parquet") == str(path)
    assert local.read("p/x.parquet") == b"PAR1"
    assert names_in(path.parent) == ["x.parquet"]


def test_memory_files_cannot_be_handed_to_duckdb() -> None:
    storage = MemoryStorage("m")
    with pytest.raises(Unsupported, match=r"memory://m/f: DuckDB cannot open"):
        storage.data_path("f")


def test_a_file_in_memory_is_there_when_its_sink_is_closed() -> None:
    storage = MemoryStorage("m")
    sink = storage.sink("p/f")
    sink.target.write(b"data")
    assert storage.stat("p/f") is None
    assert sink.close() == 4
    assert storage.source("p/f").read() == b"data"


def test_a_file_that_vanishes_while_listing_is_left_out(local: LocalStorage, tmp_path: Path) -> None:
    local.put("a", b"1")
    (tmp_path / "t" / "b").symlink_to(tmp_path / "nowhere")
    assert [f.path for f in local.list("")[0]] == ["a"]


def test_plain_paths_and_file_addresses_open_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in (f"{tmp_path}/a b", f"{tmp_path}/a b/", f"file://{tmp_path}/a%20b", f"file:{tmp_path}/a b", "a b"):
        assert open_storage(uri).uri == f"{tmp_path}/a b"
    assert repr(open_storage("/t")) == "LocalStorage('/t')"


def test_other_schemes_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="storage scheme 'hdfs' is not supported"):
        open_storage("hdfs://bucket/table")
    with pytest.raises(Unsupported, match="another machine"):
        open_storage("file://server/table")


def test_modified_time_of_memory_files_comes_from_its_clock() -> None:
    storage = MemoryStorage(clock_ms=lambda: 5)
    storage.put("f", b"1")
    assert storage.stat("f") == FileInfo("f", 1, 5)


@pytest.mark.parametrize(("how", "written"), [("before", None), ("after", b"12345678"), ("torn", None)])
def test_faulty_storage_dies_at_the_chosen_call(how: str, written: bytes | None) -> None:
    inner = MemoryStorage()
    faulty = FaultyStorage(inner, 2, how, kinds=("put",))
    faulty.put("a", b"1")
    with pytest.raises(FaultError):
        faulty.put_if_absent("b", b"12345678")
    assert inner.files.get("b", (None, 0))[0] == written
    torn = [data for path, (data, _) in inner.files.items() if TEMPORARY in path]
    assert torn == ([b"1234"] if how == "torn" else [])
    with pytest.raises(FaultError, match="the process is dead"):
        faulty.read("a")
    assert faulty.calls == [("put", "a"), ("put", "b")]


def test_faulty_storage_can_recover_and_tear_data_files(local: LocalStorage) -> None:
    faulty = FaultyStorage(local, 1, "torn", dead=False)
    with pytest.raises(FaultError):
        faulty.sink("p/x.parquet")
    assert faulty.read("p/x.parquet") == b"PAR1"
    assert faulty.stat("p/x.parquet") is not None
    assert faulty.data_path("p") == local.data_path("p")
    assert [f.path for f in faulty.walk("")] == ["p/x.parquet"]
    with faulty.lock("table", 1):
        faulty.delete("p/x.parquet")
        faulty.delete_tree("p")


# ---------------------------------------------------------------- errors of the operating system


def test_link_to_itself_is_no_file(local: LocalStorage) -> None:
    local.put("f", b"1")
    (Path(local.uri) / "loop").symlink_to(Path(local.uri) / "loop")
    assert [f.path for f in local.list("")[0]] == ["f"]
    assert local.stat("loop") is None
    with pytest.raises(
        TableError, match=r"t/loop: cannot be read: Too many levels of symbolic links\. Remove the symbolic"
    ):
        local.read("loop")


def test_folder_where_a_file_should_be_is_named(local: LocalStorage) -> None:
    local.put("f/g", b"1")
    for call in (lambda: local.read("f"), lambda: local.put("f", b"1"), lambda: local.delete("f")):
        with pytest.raises(TableError, match=r"t/f: cannot be (read|written|removed): "):
            call()
    assert local.put_if_absent("f", b"1") is False


def test_file_where_a_folder_should_be_is_named(local: LocalStorage) -> None:
    local.put("f", b"1")
    for call in (lambda: local.put("f/g", b"1"), lambda: local.put_if_absent("f/g", b"1"), lambda: local.sink("f/g")):
        with pytest.raises(TableError, match=r"t/f/g: cannot be written: .*Remove the file that stands where a folder"):
            call()
    with pytest.raises(NotADirectoryError):
        local.read("f/g")


@pytest.mark.parametrize("call", ["put", "put_if_absent"])
def test_full_disk_is_an_error_with_path_and_advice(
    local: LocalStorage, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TableError) as failure:
        getattr(local, call)("a/f", b"1")
    text = f"{local.uri}/a/f: cannot be written: No space left on device. Make room on the disk, then try again."
    assert str(failure.value) == text
    assert names_in(Path(local.uri) / "a") == []


def test_name_too_long_for_the_file_system_is_an_error(local: LocalStorage) -> None:
    with pytest.raises(TableError, match=r"File name too long\. Choose a shorter path or partition value"):
        local.put("z" * 300, b"1")


@pytest.mark.parametrize("path", ["a\0b", "a\udc80"])
def test_character_that_no_file_name_can_have_is_an_error(local: LocalStorage, path: str) -> None:
    for call in (lambda: local.put(path, b"1"), lambda: local.sink(path), lambda: local.read(path)):
        with pytest.raises(TableError, match="character that no file name can have"):
            call()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (None, "found NoneType"),
        (5, "found int"),
        (b"/tmp", "found bytes"),
        ("", "'' is not a path"),
        ("/x\0", "is not a path"),
        ("/\udc80", "is not a path"),
    ],
)
def test_what_is_no_path_is_refused(path: object, text: str) -> None:
    with pytest.raises(TableError, match=text):
        open_storage(path)  # type: ignore[arg-type]


def test_pathlib_paths_are_paths(tmp_path: Path) -> None:
    assert open_storage(tmp_path).uri == str(tmp_path)
