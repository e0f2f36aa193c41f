"""Indexes: each finds the same keys; global ones in all partitions, bucket indexes by the hash of the key."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakesql.errors import TableError, Unsupported
from lakesql.format import log
from lakesql.table import read
from lakesql.table.state import load
from lakesql.write import prune
from lakesql.write.buckets import bucket_numbers, java_hashes, key_texts_sql
from tests.writing import CON, blocks_of, delete, put, rows_of, rust_rows, stats_of, table, upsert, values

A, B, C = ("a", "x", 1, 10), ("b", "x", 2, 10), ("c", "y", 3, 10)
GLOBAL = {"hoodie.index.type": "GLOBAL_SIMPLE"}
STAYS = GLOBAL | {"hoodie.simple.index.update.partition.path": "false"}
BLOOM = {"hoodie.index.type": "BLOOM"}
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"}
OPEN = {"hoodie.parquet.small.file.limit": "0"}
VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "keys" / "vectors.json").read_text())["buckets"]


def parts_of(state):
    return dict(rows_of(state, "id, _hoodie_partition_path"))


# ---------------------------------------------------------------- global indexes
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "GLOBAL_BLOOM"])
def test_row_whose_partition_changed_moves_under_a_global_index(tmp_path, kind, version, index):
    t = table(tmp_path / "t", kind, version)
    upsert(t, A, B, C)
    result = upsert(t, ("a", "y", 5, 20), ("b", "x", 5, 20), settings={"hoodie.index.type": index})
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (0, 2, 0)
    assert result.notes == ("1 of the updated rows moved to another partition.",)
    assert rows_of(t) == rust_rows(t) == [("a", "y", 5, 20), ("b", "x", 5, 20), C]
    assert parts_of(t) == {"a": "city=y", "b": "city=x", "c": "city=y"}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_late_row_does_not_move(tmp_path, kind):
    t = table(tmp_path / "t", kind)
    upsert(t, A)
    result = upsert(t, ("a", "y", 5, 9), settings=GLOBAL)
    assert (result.instant, result.rows_ignored) == (None, 1)
    assert rows_of(t) == [A]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_row_that_moves_there_and_back_is_there_once(tmp_path, kind):
    t = table(tmp_path / "t", kind)
    upsert(t, A, B, C)
    for number, city in enumerate("yxyx"):
        upsert(t, ("a", city, number, 20 + number), settings=GLOBAL)
        assert rows_of(t) == rust_rows(t) == [("a", city, number, 20 + number), B, C]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_row_stays_where_it_is_when_partition_paths_are_not_updated(tmp_path, kind):
    t = table(tmp_path / "t", kind)
    upsert(t, A, B, C)
    result = upsert(t, ("a", "y", 5, 20), settings=STAYS)
    assert result.rows_updated == 1
    assert rows_of(t) == rust_rows(t) == [("a", "y", 5, 20), B, C]
    assert parts_of(t)["a"] == "city=x"


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_delete_finds_the_key_in_every_partition(tmp_path, kind):
    t = table(tmp_path / "t", kind)
    upsert(t, A, B, C)
    assert delete(t, ("a", "y")).rows_deleted == 0
    assert delete(t, ("a", "y"), settings=GLOBAL).rows_deleted == 1
    assert rows_of(t) == rust_rows(t) == [B, C]


def test_delete_record_of_a_moved_row_names_the_partition_it_left(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B, C)
    upsert(t, ("a", "y", 5, 20), settings=GLOBAL)
    assert {s.partition_path: s.num_deletes for s in stats_of(t)} == {"city=x": 1, "city=y": 0}
    (block,) = [b for b in blocks_of(t) if b.kind == log.DELETE]
    assert log.decode_deletes(block, [pa.int64()])["partition_path"].to_pylist() == ["city=x"]


def test_one_key_in_two_partitions_of_a_batch_is_one_row_under_a_global_index(tmp_path):
    t = table(tmp_path / "t")
    result = upsert(t, ("a", "x", 1, 5), ("a", "y", 2, 4), settings=GLOBAL)
    assert (result.rows_inserted, result.rows_ignored) == (1, 1)
    assert rows_of(t) == [("a", "x", 1, 5)]


def test_key_that_is_in_two_partitions_ends_up_in_its_own(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, ("a", "x", 1, 10), ("a", "y", 1, 10))
    upsert(t, ("a", "y", 2, 20), settings=GLOBAL)
    assert rows_of(t) == [("a", "y", 2, 20)]


def test_duplicate_policy_sees_keys_of_other_partitions(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    fail = GLOBAL | {"hoodie.datasource.insert.dup.policy": "fail"}
    with pytest.raises(TableError, match="have a key that exists, for example 'a'"):
        put(t, values(("a", "y", 1, 20)), "insert", settings=fail)
    assert (
        put(t, values(("a", "y", 1, 20)), "insert", settings=fail | {"hoodie.index.type": "SIMPLE"}).rows_inserted == 1
    )


def test_tombstone_of_another_partition_does_not_keep_a_key_out(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    delete(t, ("a", "x"))
    upsert(t, ("a", "y", 1, 5), settings=GLOBAL)
    assert rows_of(t) == [("a", "y", 1, 5), B]


def test_index_of_the_table_properties_is_used_unless_the_job_names_one(tmp_path):
    t = table(tmp_path / "t", properties={"hoodie.index.type": "GLOBAL_SIMPLE"})
    upsert(t, A)
    upsert(t, ("a", "y", 1, 20))
    assert rows_of(t) == [("a", "y", 1, 20)]
    upsert(t, ("a", "x", 2, 30), settings={"hoodie.index.type": "SIMPLE"})
    assert len(rows_of(t)) == 2


# ---------------------------------------------------------------- BLOOM
def kept(state, *keys, city="x"):
    """Which of the table's file slices may hold the keys."""
    CON.execute("CREATE OR REPLACE TEMP TABLE __lakesql_batch (__lakesql_key VARCHAR, __lakesql_part VARCHAR)")
    CON.executemany("INSERT INTO __lakesql_batch VALUES (?, ?)", [(k, f"city={city}") for k in keys])
    plan = read.plan(load(state.storage))
    found = prune.may_hold(CON, plan, list(range(len(plan.slices))), everywhere=False)
    CON.execute("DROP TABLE __lakesql_batch")
    return found


def test_files_whose_range_or_filter_excludes_the_keys_are_not_read(tmp_path):
    t = table(tmp_path / "t")
    put(t, values(("a1", "x", 1, 1), ("a5", "x", 1, 1)), "insert", settings=OPEN, ids=iter(["f1"]).__next__)
    put(t, values(("m1", "x", 1, 1), ("m5", "x", 1, 1)), "insert", settings=OPEN, ids=iter(["f2"]).__next__)
    assert kept(t, "a5") == [0]
    assert kept(t, "m1", "a1") == [0, 1]
    assert kept(t, "a3") == kept(t, "z") == []
    assert kept(t, "a1", city="y") == []


def test_letters_that_java_orders_otherwise_are_found(tmp_path):
    t = table(tmp_path / "t")
    keys = ["\uff5e", "\U0001f600", "b"]
    put(t, values(*[(k, "x", 1, 1) for k in keys]), "insert", settings=OPEN)
    assert [kept(t, k) for k in keys] == [[0], [0], [0]]


def test_slices_with_logs_are_always_searched(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    upsert(t, ("a", "x", 2, 20))
    assert kept(t, "zz") == [0]


def test_bloom_gives_the_result_of_simple_and_reads_less(tmp_path):
    results = []
    for index in ("SIMPLE", "BLOOM"):
        t = table(tmp_path / index, "mor")
        for first in range(0, 40, 10):
            put(t, values(*[(f"k{first + i:02}", "x", 1, 10) for i in range(10)]), "insert", settings=OPEN)
        upsert(t, ("k05", "x", 2, 20), settings={"hoodie.index.type": index})
        result = upsert(t, ("k05", "x", 3, 15), ("k07", "x", 3, 15), ("k99", "x", 3, 1), ("k31", "x", 3, 1),
                        settings=OPEN | {"hoodie.index.type": index})  # fmt: skip
        results.append(((result.rows_inserted, result.rows_updated, result.rows_ignored), rows_of(t)))
    assert results[0] == results[1]
    assert results[0][0] == (1, 1, 2)


def test_default_index_reads_filters_only_where_that_is_much_cheaper(tmp_path):
    t = table(tmp_path / "t")
    for first in range(3):
        put(t, values(*[(f"{i:02}{first}", "x", 1, 10) for i in range(10)]), "insert", settings=OPEN)
    plan = read.plan(load(t.storage))
    assert not prune.pays(plan, [0, 1, 2], 1)
    CON.execute(
        "CREATE OR REPLACE TEMP TABLE wide AS SELECT uuid()::VARCHAR AS id, 'x' AS city, 1 AS v, 1 AS ts FROM range(60000)"
    )
    big = table(tmp_path / "big")
    small_filters = OPEN | {"hoodie.index.bloom.fpp": "0.01", "hoodie.copyonwrite.insert.split.size": "6000"}
    put(big, "SELECT * FROM wide", "insert", settings=small_filters)
    plan = read.plan(load(big.storage))
    numbers = list(range(len(plan.slices)))
    assert len(numbers) == 10
    assert prune.pays(plan, numbers, 1)
    assert not prune.pays(plan, numbers, 10)
    assert not prune.pays(plan, [], 1)


# ---------------------------------------------------------------- BUCKET
def buckets_of(state):
    """Bucket -> ids of the rows in it."""
    found = {}
    for key, name in rows_of(state, "id, _hoodie_file_name"):
        found.setdefault(int(name.lstrip(".")[:8]), []).append(key)
    return found


def test_bucket_numbers_equal_hudis():
    for fields in {fields for _, fields, _, _ in VECTORS}:
        vectors = [v for v in VECTORS if v[1] == fields]
        given = pa.table({"k": [v[0] for v in vectors]})
        CON.register("given", given)
        texts = CON.sql(f"SELECT {key_texts_sql('k', fields.split(','))} AS texts FROM given").to_arrow_table()["texts"]
        for buckets in (1, 4, 7, 256):
            expected = {v[0]: v[3] for v in vectors if v[2] == buckets}
            found = dict(zip(given["k"].to_pylist(), bucket_numbers(texts, buckets).tolist(), strict=True))
            assert {key: found[key] for key in expected} == expected


def test_java_hashes_count_utf_16_units():
    texts = pa.array(["", "a", "são 東京 😀", "x" * 100]).slice(1)
    assert java_hashes(texts).astype("int32").tolist() == [97, java_hash("são 東京 😀"), java_hash("x" * 100)]


def java_hash(text):
    h = 0
    data = text.encode("utf-16-le")
    for i in range(0, len(data), 2):
        h = (31 * h + data[i] + 256 * data[i + 1]) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_keys_go_to_the_file_group_of_their_bucket(tmp_path, kind, version):
    t = table(tmp_path / "t", kind, version)
    rows = [(f"k{i}", "xy"[i % 2], i, 10) for i in range(20)]
    assert put(t, values(*rows[:12]), "insert", settings=BUCKET).rows_inserted == 12
    more = [(k, c, v + 1, 20) for k, c, v, _ in rows[8:]]
    result = upsert(t, *more, settings=BUCKET)
    assert (result.rows_inserted, result.rows_updated) == (8, 4)
    assert delete(t, ("k0", "x"), settings=BUCKET).rows_deleted == 1
    assert rows_of(t) == rust_rows(t) == sorted([*rows[1:8], *more], key=repr)
    now = load(t.storage)
    groups = [(s.partition, s.file_id[:8]) for s in read.plan(now).slices]
    assert len(groups) == len(set(groups)) <= 8
    assert {group[1] for group in groups} <= {f"{n:08}" for n in range(4)}


def test_insert_into_a_bucket_meets_the_rows_that_are_there(tmp_path):
    t = table(tmp_path / "t", "mor")
    put(t, values(A, A, B), "insert", settings=BUCKET)
    result = put(t, values(("a", "x", 9, 20)), "insert", settings=BUCKET)
    assert (result.rows_inserted, result.rows_updated) == (0, 1)
    assert rows_of(t) == rust_rows(t) == [("a", "x", 9, 20), B]


def test_overwritten_partition_gets_new_file_groups_for_its_buckets(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, B, C, settings=BUCKET)
    put(t, values(("a", "x", 7, 7), ("d", "x", 7, 7)), "insert_overwrite", settings=BUCKET)
    upsert(t, ("d", "x", 8, 8), settings=BUCKET)
    assert rows_of(t) == rust_rows(t) == [("a", "x", 7, 7), C, ("d", "x", 8, 8)]


def test_bucket_table_is_written_when_the_number_of_buckets_is_given(tmp_path):
    t = table(tmp_path / "t", "mor", properties=BUCKET)
    upsert(t, A, B, C)
    upsert(t, ("a", "x", 2, 20))
    assert rows_of(t) == rust_rows(t) == [("a", "x", 2, 20), B, C]
    plain = table(tmp_path / "plain")
    upsert(plain, A, B, C, settings=BUCKET)
    with pytest.raises(Unsupported, match=r"SET hoodie\.index\.type = BUCKET and hoodie\.bucket\.index\.num\.buckets"):
        upsert(plain, A)
    upsert(plain, ("a", "x", 2, 20), settings={"hoodie.bucket.index.num.buckets": "4"})
    assert rows_of(plain) == [("a", "x", 2, 20), B, C]


@pytest.mark.parametrize("number", ["2", "8", "3", "5"])
def test_wrong_number_of_buckets_is_refused(tmp_path, number):
    t = table(tmp_path / "t")
    upsert(t, *[(f"k{i}", "x", i, 10) for i in range(30)], settings=BUCKET)
    with pytest.raises(TableError, match=r"SET hoodie\.bucket\.index\.num\.buckets .* Nothing was written"):
        upsert(t, ("k1", "x", 2, 20), settings=BUCKET | {"hoodie.bucket.index.num.buckets": number})


def test_bucket_index_by_one_of_several_key_fields(tmp_path):
    by_city = BUCKET | {"hoodie.bucket.index.hash.field": "city"}
    t = table(tmp_path / "t", primary_key=["id", "city"], partitioned_by=[])
    upsert(t, *[(f"k{i}", "x", i, 10) for i in range(10)], settings=by_city)
    assert len(buckets_of(t)) == 1
    with pytest.raises(TableError, match=r"buckets by id, city, key 'id:k\d,city:x' belongs into bucket"):
        upsert(t, A, settings=BUCKET)
    with pytest.raises(TableError, match=r"hash\.field names v, which is no record key column \(id, city\)"):
        upsert(t, A, settings=BUCKET | {"hoodie.bucket.index.hash.field": "v"})


def test_bucket_index_is_refused_where_it_cannot_be(tmp_path):
    t = table(tmp_path / "t")
    with pytest.raises(Unsupported, match="the number of buckets is not given"):
        upsert(t, A, settings={"hoodie.index.type": "BUCKET"})
    upsert(t, A)
    with pytest.raises(Unsupported, match="is not a bucket: the table was written with another index"):
        upsert(t, A, settings=BUCKET)
    with pytest.raises(Unsupported, match=r"hoodie\.index\.bucket\.engine = CONSISTENT_HASHING"):
        upsert(t, A, settings=BUCKET | {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"})
    keyless = table(tmp_path / "keyless", primary_key=[], event=False)
    with pytest.raises(TableError, match="a bucket index needs record keys"):
        put(keyless, values(A), "insert", settings=BUCKET)


def test_rows_to_delete_need_no_partition_under_a_global_index(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B, C)
    keys = values(("a",), ("c",), ("zz",), columns="id")
    with pytest.raises(TableError, match="the rows lack the partition column city"):
        put(t, keys, "delete")
    result = put(t, keys, "delete", settings=GLOBAL)
    assert (result.rows_deleted, result.rows_ignored) == (2, 1)
    assert rows_of(t) == rust_rows(t) == [B]


# ---------------------------------------------------------------- the two spellings of a one-field complex key
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_bare_key_that_looks_like_a_prefixed_one_is_continued_bare(tmp_path, kind):
    t = table(tmp_path / "t", kind, 8, partitioned_by=["city", "v"])
    upsert(t, ("id:3", "x", 1, 10))
    upsert(t, ("id:3", "x", 1, 20), ("4", "x", 1, 20))
    assert rows_of(t, "_hoodie_record_key, ts") == [("4", 20), ("id:3", 20)]
