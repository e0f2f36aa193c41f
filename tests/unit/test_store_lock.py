"""Hudi's storage-based lock, over the memory of a process and with a clock of the test."""

import json
import threading

import pytest

from lakesql.errors import CommitConflict, FormatError, TableError, Unsupported
from lakesql.storage import MemoryStorage
from lakesql.stores import lock as store_lock
from lakesql.stores.lock import Claim, Times, held

PATH = ".hoodie/.locks/table_lock.json"


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def times(self, valid_s: float = 60, renew_s: float = 6) -> Times:
        return Times(valid_s, renew_s, lambda: self.ms, lambda _: None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(request) -> MemoryStorage:
    return MemoryStorage(request.node.name)


def content(storage: MemoryStorage) -> dict[str, object]:
    found: dict[str, object] = json.loads(storage.read(PATH))
    return found


def put(storage: MemoryStorage, claim: Claim) -> None:
    storage.put(PATH, claim.encode())


def test_the_object_is_what_hudi_reads(storage, clock) -> None:
    with held(storage, "table_lock", 0, clock.times()) as lock:
        assert content(storage) == {"expired": False, "validUntil": clock.ms + 60_000, "owner": lock.claim.owner}
        assert list(content(storage)) == ["expired", "validUntil", "owner"]
        assert len(lock.claim.owner) == 36
    assert content(storage)["expired"] is True


def test_another_writer_is_waited_for_and_named(storage, clock) -> None:
    put(storage, Claim("spark-1", clock.ms + 1000))
    with pytest.raises(CommitConflict, match=r"lock 'table_lock' was not free within 0 s; it is held by spark-1 until"):
        held(storage, "table_lock", 0, clock.times()).__enter__()
    assert content(storage)["owner"] == "spark-1"


def test_a_lock_that_was_given_back_is_free(storage, clock) -> None:
    put(storage, Claim("spark-1", clock.ms + 1000, expired=True))
    with held(storage, "table_lock", 0, clock.times()) as lock:
        assert content(storage)["owner"] == lock.claim.owner


@pytest.mark.parametrize(("late_ms", "free"), [(500, False), (501, True)])
def test_a_dead_holders_lock_is_taken_when_clocks_cannot_differ_so_much(storage, clock, late_ms, free) -> None:
    put(storage, Claim("dead", clock.ms - late_ms))
    if free:
        with held(storage, "table_lock", 0, clock.times()):
            pass
    else:
        with pytest.raises(CommitConflict):
            held(storage, "table_lock", 0, clock.times()).__enter__()


def test_renewing_keeps_the_owner_and_moves_the_time(storage, clock) -> None:
    with held(storage, "table_lock", 0, clock.times()) as lock:
        clock.ms += 20_000
        lock.renew()
        assert content(storage) == {"expired": False, "validUntil": clock.ms + 60_000, "owner": lock.claim.owner}
        store_lock.require(storage.uri)


def test_a_thread_renews_while_the_lock_is_held(storage, clock) -> None:
    renewed = threading.Event()
    real = storage.put_if_match

    def put_if_match(path, data, tag):
        found = real(path, data, tag)
        renewed.set()
        return found

    with held(storage, "table_lock", 0, clock.times(0.2, 0.01)):
        storage.put_if_match = put_if_match
        assert renewed.wait(10)


def test_a_lock_that_somebody_took_is_lost_before_anything_is_published(storage, clock) -> None:
    with held(storage, "table_lock", 0, clock.times()) as lock:
        clock.ms += 40_000
        put(storage, Claim("thief", clock.ms + 60_000))
        with pytest.raises(CommitConflict, match=r"was lost while it was held: thief until .* Nothing was committed"):
            store_lock.require(storage.uri)
        assert lock.lost
    assert content(storage) == {"expired": False, "validUntil": clock.ms + 60_000, "owner": "thief"}


def test_a_process_that_slept_too_long_knows_it(storage, clock) -> None:
    with held(storage, "table_lock", 0, clock.times()):
        clock.ms += 61_000
        with pytest.raises(CommitConflict, match="could not be renewed in time"):
            store_lock.require(storage.uri)


def test_a_store_that_does_not_answer_loses_the_lock_only_when_time_runs_out(storage, clock) -> None:
    def away(*_):
        raise TimeoutError("away")

    real = storage.put_if_match
    with held(storage, "table_lock", 0, clock.times()):
        storage.put_if_match = away
        clock.ms += 35_000
        store_lock.require(storage.uri)  # 25 s are left: enough for the put
        clock.ms += 15_000
        with pytest.raises(CommitConflict, match=r"could not be renewed \(away\)"):
            store_lock.require(storage.uri)
        storage.put_if_match = real


def test_a_lock_that_could_not_be_given_back_ends_no_write_and_is_taken_again_at_once(storage, clock) -> None:
    def away(*_):
        raise TimeoutError("away")

    real = storage.put_if_match
    with held(storage, "table_lock", 0, clock.times()) as first:
        storage.put_if_match = away
    storage.put_if_match = real
    assert content(storage) == {"expired": False, "validUntil": clock.ms + 60_000, "owner": first.claim.owner}
    with held(storage, "table_lock", 0, clock.times()) as second:
        assert content(storage)["owner"] == second.claim.owner
    assert content(storage)["expired"] is True


def test_a_lock_that_somebody_took_after_a_failed_giving_back_is_theirs(storage, clock) -> None:
    def away(*_):
        raise TimeoutError("away")

    real = storage.put_if_match
    with held(storage, "table_lock", 0, clock.times()):
        storage.put_if_match = away
    storage.put_if_match = real
    put(storage, Claim("spark-1", clock.ms + 60_000))
    with pytest.raises(CommitConflict, match="held by spark-1"):
        held(storage, "table_lock", 0, clock.times()).__enter__()


def test_locks_of_other_tables_do_not_count(storage, clock) -> None:
    with held(storage, "table_lock", 0, clock.times()) as lock:
        lock.lost = "gone"
        store_lock.require("memory://another")


def test_threads_of_a_process_take_turns(storage) -> None:
    entered, together = [], []

    def work() -> None:
        with held(storage, "table_lock", 20):
            entered.append(1)
            together.append(len(entered))
            entered.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1] * 8


def test_the_error_of_the_work_is_not_hidden_by_that_of_giving_back(storage, clock) -> None:
    def away(*_):
        raise TimeoutError("away")

    def work():
        with held(storage, "table_lock", 0, clock.times()):
            storage.put_if_match = away
            raise ValueError("the work")

    with pytest.raises(ValueError, match="the work"):
        work()


def test_a_store_that_overlooks_conditions_is_found_out(storage, clock) -> None:
    def put_if_absent(path, data):
        storage.put(path, data)
        return True

    storage.put_if_absent = put_if_absent
    with pytest.raises(Unsupported, match="overwrites all the same"):
        held(storage, "table_lock", 0, clock.times()).__enter__()
    assert content(storage)["expired"] is True


def test_what_is_no_lock_is_refused(storage, clock) -> None:
    storage.put(PATH, b"{}")
    with pytest.raises(FormatError, match=r"table_lock\.json: not a lock of Hudi"):
        held(storage, "table_lock", 0, clock.times()).__enter__()


def test_times_come_from_the_settings() -> None:
    assert (store_lock.times_of({}).valid_s, store_lock.times_of({}).renew_s) == (60, 6)
    given = {store_lock.VALID_SETTING: "300", store_lock.RENEW_SETTING: "30"}
    assert (store_lock.times_of(given).valid_s, store_lock.times_of(given).renew_s) == (300, 30)
    with pytest.raises(TableError, match="at least ten times"):
        store_lock.times_of({store_lock.VALID_SETTING: "20", store_lock.RENEW_SETTING: "5"})
    with pytest.raises(TableError, match="a number of seconds"):
        store_lock.times_of({store_lock.VALID_SETTING: "soon"})


def test_names_have_files_of_their_own() -> None:
    assert store_lock.path_of("clustering") == ".hoodie/.locks/clustering.json"
    assert store_lock.path_of(".lakesql/jobs/a/load") == ".lakesql/jobs/a/load.lock.json"
