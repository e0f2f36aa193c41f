"""Base files and log files as they come out: meta columns, footers, encodings, order of rows."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesql.errors import FormatError, TableError
from lakesql.format import log
from lakesql.format.avro import META_COLUMNS, avro_schema, with_meta_fields
from lakesql.format.bloom import from_text
from lakesql.format.files import BaseFile
from lakesql.storage import LocalStorage
from lakesql.table import read
from lakesql.table.state import load
from lakesql.write import basefile, slices, write
from lakesql.write.basefile import BaseSpec, Edit, rewrite, write_new
from lakesql.write.logfile import LogContent, Records, encode_groups
from lakesql.write.settings import WriteConfig
from tests.writing import (
    CON,
    SCHEMA,
    base_tables,
    blocks_of,
    delete,
    listing,
    put,
    rows_of,
    rust_rows,
    stats_of,
    table,
    upsert,
    values,
)

A, B, C = ("a", "x", 1, 10), ("b", "x", 2, 10), ("c", "y", 3, 10)


def footer_of(t):
    state = load(t.storage)
    (base,) = state.base_files()
    stored = pq.read_metadata(state.storage.data_path(base.path)).metadata
    return {k.decode(): v.decode() for k, v in stored.items() if k != b"ARROW:schema"}


def filter_of(footer):
    return from_text(footer["org.apache.hudi.bloomfilter"], footer["hoodie_bloom_filter_type_code"])


def test_copied_rows_keep_their_commit_time_and_number_and_get_the_new_file_name(tmp_path):
    t = table(tmp_path / "t")
    first = upsert(t, A, B)
    second = upsert(t, ("b", "x", 5, 50), ("n", "x", 1, 1))
    (base,) = base_tables(t)
    (file,) = load(t.storage).base_files()
    meta = base.select(META_COLUMNS).to_pylist()
    assert [m["_hoodie_commit_time"] for m in meta] == [first.instant, second.instant, second.instant]
    assert [m["_hoodie_commit_seqno"] for m in meta] == [
        f"{first.instant}_0_0",
        f"{second.instant}_0_0",
        f"{second.instant}_0_1",
    ]
    assert {m["_hoodie_file_name"] for m in meta} == {file.name}
    assert {m["_hoodie_partition_path"] for m in meta} == {"city=x"}
    assert base.schema.names == [*META_COLUMNS, *SCHEMA.names]


def test_rewrite_keeps_the_order_of_rows_and_appends_inserts(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, *[(f"k{i}", "x", i, 1) for i in (5, 3, 9, 1)])
    put(
        t,
        values(
            ("k3", "x", 33, 2, "upsert"),
            ("k5", "x", None, None, "delete"),
            ("k0", "x", 0, 1, "upsert"),
            columns="id, city, v, ts, __op",
        ),
    )
    (base,) = base_tables(t)
    assert base["id"].to_pylist() == ["k3", "k9", "k1", "k0"]


def test_footer_has_what_the_bloom_index_of_other_engines_needs(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, ("m", "x", 1, 1))
    footer = footer_of(t)
    assert (footer["hoodie_min_record_key"], footer["hoodie_max_record_key"]) == ("a", "m")
    assert footer["hoodie_bloom_filter_type_code"] == "DYNAMIC_V0"
    assert footer["writer.model.name"] == "avro"
    assert '"_hoodie_commit_time"' in footer["parquet.avro.schema"]
    assert len(footer["org.apache.hudi.bloomfilter"]) < 2000, "a small file gets a small filter"
    assert filter_of(footer).might_contain(pa.array(["a", "m"])).all()


def test_update_keeps_the_filter_text_and_insert_adds_its_keys(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, B)
    first = footer_of(t)["org.apache.hudi.bloomfilter"]
    upsert(t, ("a", "x", 5, 50))
    assert footer_of(t)["org.apache.hudi.bloomfilter"] == first
    upsert(t, ("zz", "x", 5, 50))
    footer = footer_of(t)
    assert filter_of(footer).might_contain(pa.array(["a", "b", "zz"])).all()
    assert footer["hoodie_max_record_key"] == "zz"


def test_filter_that_has_been_outgrown_is_made_anew_from_all_keys(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    assert filter_of(footer_of(t)).entries == 100
    put(t, "SELECT 'k' || i AS id, 'x' AS city, i AS v, i AS ts FROM range(2000) r(i)")
    grown = filter_of(footer_of(t))
    assert grown.entries == 2001
    assert grown.might_contain(pa.array(["a", *(f"k{i}" for i in range(2000))])).all()


def test_file_without_a_filter_gets_one_with_all_its_keys(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, B)
    (base,) = load(t.storage).base_files()
    path = t.storage.data_path(base.path)
    pq.write_table(pq.read_table(path, partitioning=None), path)
    upsert(t, ("a", "x", 5, 50))
    assert filter_of(footer_of(t)).might_contain(pa.array(["a", "b"])).all()


def test_codec_is_zstd_unless_set(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)

    def codecs():
        (base,) = load(t.storage).base_files()
        return pq.read_metadata(t.storage.data_path(base.path)).row_group(0).column(5).compression

    assert codecs() == "ZSTD"
    for word, name in (("gzip", "GZIP"), ("snappy", "SNAPPY"), ("UNCOMPRESSED", "UNCOMPRESSED")):
        upsert(t, ("a", "x", 5, 50), settings={"hoodie.parquet.compression.codec": word})
        assert codecs() == name
    with pytest.raises(TableError, match="must be one of zstd, snappy, gzip"):
        upsert(t, A, settings={"hoodie.parquet.compression.codec": "brotli9"})


TYPES = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("i", pa.int32()), ("f", pa.float32()),
     ("d", pa.float64()), ("b", pa.bool_()),
     ("bin", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
     ("dec", pa.decimal128(10, 2)), ("big", pa.decimal128(38, 10)), ("list", pa.list_(pa.int64())),
     ("map", pa.map_(pa.string(), pa.float64())), ("st", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]))]
)  # fmt: skip
FULL = {
    "id": "full", "city": "x", "ts": 1, "i": -(2**31), "f": 1.5, "d": -0.1, "b": True, "bin": b"\x00\xff",
    "day": datetime.date(1900, 1, 1),
    "at": datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
    "local": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "dec": decimal.Decimal("-12.30"), "big": decimal.Decimal("12345678901234567890.5"), "list": [1, None, 3],
    "map": [("k", 1.0), ("n", None)], "st": {"x": None, "y": ["a", None]},
}  # fmt: skip


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_every_type_survives_base_and_log_files_in_any_session_zone(tmp_path, type_, version):
    t = table(tmp_path / "t", type_, version, schema=TYPES)
    con = CON.cursor()
    con.execute("SET TimeZone = 'America/New_York'")
    empty = dict.fromkeys(TYPES.names) | {"id": "empty", "city": "x", "ts": 1}
    for step in (1, 2, 3):
        con.register("full_rows", pa.Table.from_pylist([FULL | {"ts": step}, empty | {"ts": step}], TYPES))
        assert write(con, load(t.storage), "SELECT * FROM full_rows", operation="upsert").instant
    names = ", ".join(f'"{name}"' for name in TYPES.names)
    sql = f"SELECT {names} FROM ({read.to_sql(CON, read.plan(load(t.storage)))}) ORDER BY id DESC"
    found = CON.cursor().sql(sql).to_arrow_table()
    expected = [FULL | {"ts": 3}, empty | {"ts": 3}]
    rows = found.to_pylist()
    for row in rows:
        row["at"] = row["at"] and row["at"].astimezone(datetime.UTC)
    assert rows == expected


def spec(path, rows=0, **settings):
    schema = pa.schema([*(pa.field(n, pa.string()) for n in META_COLUMNS), *SCHEMA])
    avro = with_meta_fields(avro_schema(SCHEMA, "t"))
    name = "f-0_0-0-1_20260102000000000.parquet"
    return LocalStorage(path), BaseSpec(
        "p", "f-0", "20260102000000000", "0-0-1", name, schema, avro, rows, WriteConfig(**settings)
    )


def pieces(count, first=0, step=1000):
    for low in range(0, count, step):
        n = min(step, count - low)
        ids = [f"k{i:07d}" for i in range(first + low, first + low + n)]
        yield pa.table({
            "_hoodie_commit_time": ["20260101000000000"] * n, "_hoodie_commit_seqno": ids, "_hoodie_record_key": ids,
            "id": ids, "city": ["x"] * n, "v": list(range(first + low, first + low + n)), "ts": [1] * n,
        }, schema=spec_schema())  # fmt: skip


def spec_schema():
    return pa.schema([*(pa.field(n, pa.string()) for n in META_COLUMNS[:3]), *SCHEMA])


def no_edit():
    return Edit(np.array([], np.int64), spec_schema().empty_table(), np.array([], np.int64))


def test_new_rows_stream_into_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(basefile, "ROW_GROUP_ROWS", 2500)
    storage, one = spec(tmp_path, 6000)
    written = write_new(storage, one, pieces(6000))
    stored = pq.ParquetFile(tmp_path / "p" / one.name)
    assert (written.rows, written.size_bytes) == (6000, (tmp_path / "p" / one.name).stat().st_size)
    assert [stored.metadata.row_group(i).num_rows for i in range(stored.num_row_groups)] == [2500, 2500, 1000]
    assert stored.read()["v"].to_pylist() == list(range(6000))


@pytest.mark.parametrize("seed", range(4))
def test_edits_hit_the_right_rows_across_row_groups(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(basefile, "ROW_GROUP_ROWS", 700)
    storage, one = spec(tmp_path, 3000)
    write_new(storage, one, pieces(3000))
    old = BaseFile("p", one.name, "f-0", "0-0-1", one.instant, 0)
    random = np.random.default_rng(seed)
    chosen = random.permutation(3000)[:900]
    replaced, removed = np.sort(chosen[:500]), np.sort(chosen[500:])
    replacements = pa.concat_tables(pieces(3000)).take(pa.array(replaced))
    replacements = replacements.set_column(5, "v", pa.array(-replaced - 1))
    new = BaseSpec(
        "p",
        "f-0",
        "20260103000000000",
        "0-0-1",
        "f-0_0-0-1_20260103000000000.parquet",
        one.schema,
        one.avro,
        50,
        one.settings,
    )
    rewrite(storage, new, old, Edit(replaced, replacements, removed), list(pieces(50, 9000)), use_threads=False)
    expected = {i: i for i in range(3000)} | {int(i): -int(i) - 1 for i in replaced}
    values_left = [v for i, v in expected.items() if i not in set(removed.tolist())] + list(range(9000, 9050))
    assert pq.read_table(tmp_path / "p" / new.name, partitioning=None)["v"].to_pylist() == values_left


def test_old_file_with_an_older_schema_is_brought_to_the_table_schema(tmp_path):
    storage, one = spec(tmp_path)
    ids = ["a", "b"]
    old_rows = pa.table(
        {**dict.fromkeys(META_COLUMNS, ids), "v": pa.array([1, 2], pa.int32()), "id": ids, "dropped": [1, 2]}
    )
    (tmp_path / "p").mkdir()
    pq.write_table(old_rows, tmp_path / "p" / "old.parquet")
    rewrite(storage, one, BaseFile("p", "old.parquet", "f-0", "0-0-1", "1", 0), no_edit(), [], use_threads=True)
    new = pq.read_table(tmp_path / "p" / one.name, partitioning=None)
    assert new.select(["id", "city", "v", "ts"]).to_pylist() == [
        {"id": "a", "city": None, "v": 1, "ts": None},
        {"id": "b", "city": None, "v": 2, "ts": None},
    ]
    assert new.schema.field("v").type == pa.int64()


def test_unreadable_base_file_is_named(tmp_path):
    storage, one = spec(tmp_path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "old.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(FormatError, match=r"the base file cannot be read: .*Restore it, or roll back its commit"):
        rewrite(storage, one, BaseFile("p", "old.parquet", "f-0", "0-0-1", "1", 0), no_edit(), [], use_threads=False)


def test_columns_of_all_different_values_get_no_dictionary(tmp_path):
    storage, one = spec(tmp_path, 5000)
    write_new(storage, one, pieces(5000))
    group = pq.read_metadata(tmp_path / "p" / one.name).row_group(0)
    encodings = {group.column(i).path_in_schema: set(group.column(i).encodings) for i in range(group.num_columns)}
    assert "RLE_DICTIONARY" not in encodings["_hoodie_record_key"]
    assert "RLE_DICTIONARY" in encodings["city"]
    assert "RLE_DICTIONARY" in encodings["_hoodie_file_name"]


def test_failure_of_a_worker_is_the_error_and_leaves_no_thread_behind(tmp_path, monkeypatch):
    t = table(tmp_path / "t")
    upsert(t, A, C)
    clean = listing(t.path)

    def fail(*_args, **_kwargs):
        raise OSError("disk on fire")

    monkeypatch.setattr(slices, "write_new", fail)
    rows = "SELECT 'k' || i AS id, 'z' || (i % 5) AS city, i AS v, i AS ts FROM range(500000) r(i)"
    with pytest.raises(OSError, match="disk on fire"):
        put(t, rows, "bulk_insert")
    assert {f for f in listing(t.path) - clean if not f.endswith(".hoodie_partition_metadata")} == set()
    assert CON.execute("SELECT 1").fetchall() == [(1,)]


# ---------------------------------------------------------------- log files


def test_log_records_name_the_group_and_deletes_follow_the_data(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B, C)
    rows = values(
        (*A[:2], 5, 50, "upsert"),
        ("b", "x", None, None, "delete"),
        ("c", "y", 6, 60, "upsert"),
        columns="id, city, v, ts, __op",
    )
    result = put(t, rows)
    found = {}
    for block in blocks_of(t):
        assert block.headers[log.INSTANT_TIME] == result.instant
        assert '"_hoodie_record_key"' in block.headers[log.SCHEMA]
        if block.kind == log.AVRO:
            for row in log.decode_data(block, None, "log").to_pylist():
                found[row["_hoodie_record_key"]] = (
                    row["_hoodie_partition_path"],
                    row["_hoodie_commit_time"],
                    row["v"],
                    row["_hoodie_file_name"],
                )
    groups = {s.partition: s.file_id for s in load(t.storage).slices()}
    assert found == {
        "a": ("city=x", result.instant, 5, groups["city=x"]),
        "c": ("city=y", result.instant, 6, groups["city=y"]),
    }
    assert sorted(b.kind for b in blocks_of(t)) == [log.DELETE, log.AVRO, log.AVRO]


def test_data_blocks_are_cut_at_the_size_limit(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, *[(f"k{i}", "x", i, 1) for i in range(50)])
    upsert(t, *[(f"k{i}", "x", i, 2) for i in range(50)], settings={"hoodie.logfile.data.block.max.size": "1500"})
    sizes = [log.decode_data(b, None, "log").num_rows for b in blocks_of(t)]
    assert len(sizes) > 3
    assert sum(sizes) == 50
    assert rows_of(t) == rust_rows(t) == sorted((f"k{i}", "x", i, 2) for i in range(50))


def test_rows_larger_than_a_block_get_a_block_of_their_own():
    avro = with_meta_fields(avro_schema(SCHEMA, "t"))
    rows = pa.table(
        {n: ["x" * 100] * 3 for n in META_COLUMNS} | {"id": ["a"] * 3, "city": ["x"] * 3, "v": [1] * 3, "ts": [1] * 3}
    )
    none = pa.table({"key": pa.array([], pa.string()), "part": pa.array([], pa.string())})
    (data,) = encode_groups([Records(rows, avro)], [LogContent(((0, 3),), none)], "20260101000000000", 10, ordered=True)
    assert [log.decode_data(b, None, "x").num_rows for b in log.scan_blocks(data, "x")] == [1, 1, 1]


def test_logs_of_many_groups_are_encoded_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(slices, "LOG_ROWS", 7)
    t = table(tmp_path / "t", "mor")
    rows = [(f"k{i}", f"c{i % 9}", i, 1) for i in range(60)]
    upsert(t, *rows)
    result = upsert(t, *[(a, b, v + 1, 2) for a, b, v, _ in rows])
    assert (result.rows_updated, result.files_written) == (60, 9)
    assert rows_of(t) == rust_rows(t) == sorted(((a, b, v + 1, 2) for a, b, v, _ in rows), key=repr)
    delete(t, *[(a, b) for a, b, _, _ in rows])
    assert rows_of(t) == []


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_changes_of_a_large_file_come_in_pieces(tmp_path, monkeypatch, type_):
    """Rows change, go and come all over the file, while pieces of the stream end anywhere in its row groups."""
    monkeypatch.setattr(slices, "BATCH_ROWS", 2048)  # DuckDB gives no fewer
    monkeypatch.setattr(slices, "PART_ROWS", 1000)
    monkeypatch.setattr(basefile, "ROW_GROUP_ROWS", 1700)
    t, end = table(tmp_path / "t", type_), 15000 if type_ == "cow" else 12000  # new keys would go to a base file
    put(t, "SELECT 'k' || i AS id, 'x' AS city, i AS v, 1 AS ts FROM range(12000) r(i)")
    changes = (
        "SELECT 'k' || i AS id, 'x' AS city, -i AS v, 2 AS ts, CASE WHEN i % 7 = 0 THEN 'delete' ELSE 'upsert' END AS __op "
        f"FROM range({end}) r(i) WHERE i % 3 > 0 OR i >= 12000 ORDER BY hash(i)"
    )
    result = put(t, changes, settings={"hoodie.parquet.small.file.limit": "104857600"})
    gone = {i for i in range(12000) if i % 3 and not i % 7}
    new = {i: i if not i % 3 else -i for i in range(12000) if i not in gone}
    new |= {i: -i for i in range(12000, end) if i % 7}
    assert (result.rows_inserted, result.rows_updated) == (len([i for i in new if i >= 12000]), 8000 - len(gone))
    assert (
        rows_of(t)
        == rust_rows(t)
        == sorted(((f"k{i}", "x", v, 2 if i % 3 or i >= 12000 else 1) for i, v in new.items()), key=repr)
    )
    numbers = rows_of(t, "_hoodie_commit_seqno")
    assert len(set(numbers)) == len(numbers)
    if type_ == "mor":
        (stat,) = [s for s in stats_of(t) if s.log_files]
        assert len(blocks_of(t)) > 4
        assert (stat.num_update_writes, stat.num_deletes) == (8000 - len(gone), len(gone))


def test_key_range_of_unchanged_keys_is_that_of_the_old_file(tmp_path, monkeypatch):
    t = table(tmp_path / "t")
    upsert(t, *[(f"k{i}", "x", i, 1) for i in range(10)])
    before = footer_of(t)
    ranged = []
    real = basefile._key_range
    monkeypatch.setattr(basefile, "_key_range", lambda keys: ranged.append(len(keys)) or real(keys))
    upsert(t, ("k3", "x", 5, 2))
    names = ["hoodie_min_record_key", "hoodie_max_record_key"]
    assert [footer_of(t)[n] for n in names] == [before[n] for n in names] == ["k0", "k9"]
    assert not ranged
    delete(t, ("k9", "x"))
    assert [footer_of(t)[n] for n in names] == ["k0", "k8"]
    upsert(t, ("k5", "x", 5, 2), ("z", "x", 5, 2))
    assert [footer_of(t)[n] for n in names] == ["k0", "z"]
