"""The road from rows to a commit: what each operation does to a table, on both table types and all versions."""

import itertools

import pyarrow as pa
import pytest

from lakesql.errors import CommitConflict, TableError, Unsupported
from lakesql.format import log
from lakesql.format.files import LogFile
from lakesql.table.state import load
from lakesql.write import write
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

BOTH = pytest.mark.parametrize("type_", ["cow", "mor"])
EVERY = pytest.mark.parametrize(("type_", "version"), list(itertools.product(("cow", "mor"), (9, 8, 6))))
A, B, C = ("a", "x", 1, 10), ("b", "x", 2, 10), ("c", "y", 3, 10)


def counts(result):
    return result.rows_inserted, result.rows_updated, result.rows_deleted, result.rows_ignored


# ---------------------------------------------------------------- upsert and delete


@EVERY
@pytest.mark.parametrize("event", [True, False])
@pytest.mark.parametrize("partitioned", [True, False])
def test_writes_of_every_kind_read_back_and_hudi_rs_agrees(tmp_path, type_, version, event, partitioned):
    t = table(tmp_path / "t", type_, version, event=event, partitioned_by=["city"] if partitioned else [])
    assert counts(upsert(t, A, B, C)) == (3, 0, 0, 0)
    assert counts(upsert(t, ("a", "x", 11, 20), ("d", "y", 4, 10))) == (1, 1, 0, 0)
    assert counts(delete(t, ("b", "x"), ("nobody", "y"))) == (0, 0, 1, 1)
    assert counts(upsert(t, ("b", "x", 22, 30), ("c", "y", 33, 30))) == (1, 1, 0, 0)
    expected = [("a", "x", 11, 20), ("b", "x", 22, 30), ("c", "y", 33, 30), ("d", "y", 4, 10)]
    assert rows_of(t) == expected
    assert rust_rows(t) == expected


@BOTH
def test_late_event_does_not_replace_newer_record(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A, B)
    result = upsert(t, ("a", "x", 99, 9), ("b", "x", 22, 10), ("c", "x", 3, 1))
    assert counts(result) == (1, 1, 0, 1)
    assert rows_of(t) == [A, ("b", "x", 22, 10), ("c", "x", 3, 1)]


@BOTH
def test_late_rows_alone_write_nothing(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A)
    before = listing(tmp_path)
    result = upsert(t, ("a", "x", 99, 9))
    assert (result.instant, result.action, counts(result)) == (None, None, (0, 0, 0, 1))
    assert listing(tmp_path) == before


@BOTH
def test_null_ordering_value_is_the_smallest(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A, ("b", "x", 2, None))
    assert counts(upsert(t, ("a", "x", 99, None), ("b", "x", 22, None))) == (0, 1, 0, 1)
    assert rows_of(t) == [A, ("b", "x", 22, None)]


@BOTH
def test_commit_time_table_takes_whatever_comes_last(tmp_path, type_):
    t = table(tmp_path / "t", type_, event=False)
    upsert(t, A)
    upsert(t, ("a", "x", 99, 1))
    assert rows_of(t) == [("a", "x", 99, 1)]


@BOTH
def test_of_equal_keys_in_a_batch_the_largest_ordering_value_wins_and_a_tie_goes_to_the_later_row(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    result = upsert(
        t, ("a", "x", 1, 10), ("a", "x", 2, 30), ("a", "x", 3, 20), ("b", "x", 1, 5), ("b", "x", 2, 5), ("a", "y", 7, 1)
    )
    assert counts(result) == (3, 0, 0, 3)
    assert rows_of(t) == [("a", "x", 2, 30), ("a", "y", 7, 1), ("b", "x", 2, 5)]


def test_of_equal_keys_in_a_commit_time_batch_the_last_row_wins(tmp_path):
    t = table(tmp_path / "t", event=False)
    upsert(t, ("a", "x", 1, 30), ("a", "x", 2, 10))
    assert rows_of(t) == [("a", "x", 2, 10)]


@BOTH
def test_unconditional_delete_in_a_batch_voids_earlier_rows_and_gives_way_to_later_ones(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A, B)
    ops = values(
        ("a", "x", 5, 90, "upsert"), ("a", "x", 6, 80, "delete"), ("a", "x", 7, 20, "upsert"),
        ("b", "x", 8, 90, "upsert"), ("b", "x", None, None, "delete"), columns="id, city, v, ts, __op",
    )  # fmt: skip
    assert counts(put(t, ops)) == (0, 1, 1, 3)
    assert rows_of(t) == [("a", "x", 7, 20)]


@EVERY
def test_delete_removes_the_row_whatever_its_ordering_value(tmp_path, type_, version):
    t = table(tmp_path / "t", type_, version)
    upsert(t, A, B, ("n", "x", 1, None))
    delete(t, ("a", "x"), ("n", "x"))
    assert rows_of(t) == [B]
    assert rust_rows(t) == [B]


@BOTH
def test_deleting_what_is_not_there_is_ignored(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    assert counts(delete(t, ("a", "x"))) == (0, 0, 0, 1)
    upsert(t, A)
    assert counts(delete(t, ("a", "y"), ("b", "x"))) == (0, 0, 0, 2)
    assert rows_of(t) == [A]


def test_copy_on_write_group_without_rows_left_becomes_a_file_without_rows(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    delete(t, ("a", "x"))
    assert rows_of(t) == []
    (base,) = base_tables(t)
    assert base.num_rows == 0
    assert base.column_names[5:] == SCHEMA.names
    upsert(t, ("z", "x", 1, 1))
    assert rust_rows(t) == [("z", "x", 1, 1)]


MARKED = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])


@BOTH
def test_marked_delete_is_compared_by_ordering_value_and_never_stored(tmp_path, type_):
    t = table(tmp_path / "t", type_, schema=MARKED)
    columns = "id, city, v, ts, _hoodie_is_deleted"
    put(t, values((*A, False), (*B, None), ("c", "x", 3, 10, False), columns=columns))
    result = put(
        t,
        values(
            ("a", "x", 0, 9, True),
            ("b", "x", 0, 10, True),
            ("c", "x", 0, None, True),
            ("new", "x", 0, 10, True),
            columns=columns,
        ),
    )
    assert counts(result) == (0, 0, 2, 2)
    assert rows_of(t) == [A]
    assert rust_rows(t) == [A]


def test_marked_delete_is_remembered_with_its_own_ordering_value(tmp_path):
    t = table(tmp_path / "t", "mor", schema=MARKED)
    put(t, values(A, B))
    put(t, values(("a", "x", 0, 15, True), columns="id, city, v, ts, _hoodie_is_deleted"))
    assert counts(upsert(t, ("a", "x", 7, 12))) == (0, 0, 0, 1)
    assert counts(upsert(t, ("a", "x", 8, 15))) == (1, 0, 0, 0)
    assert rows_of(t) == rust_rows(t) == [("a", "x", 8, 15), B]


@BOTH
def test_older_row_after_a_delete_is_inserted_and_the_deleted_row_stays_away(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A, B)
    delete(t, ("a", "x"))
    result = upsert(t, ("a", "x", 5, 5))
    assert counts(result) == (1, 0, 0, 0)
    assert rows_of(t) == rust_rows(t) == [("a", "x", 5, 5), B]
    rewritten = ["1 file slice rewritten" in note for note in result.notes]
    assert rewritten == ([True] if type_ == "mor" else [])  # appended to its log the row would lose to the old one
    upsert(t, ("a", "x", 6, 60))
    assert rows_of(t) == rust_rows(t) == [("a", "x", 6, 60), B]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_log_delete_carries_the_ordering_value_of_the_row_it_removes(tmp_path, version):
    t = table(tmp_path / "t", "mor", version)
    upsert(t, A, ("n", "x", 1, None))
    delete(t, ("a", "x"), ("n", "x"))
    deletes = [log.decode_deletes(b, [pa.int64()], "log") for b in blocks_of(t) if b.kind == log.DELETE]
    assert len(deletes) == 2, "one kind of wrapper per block"
    found = {r["record_key"]: (r["ord_0"], r["commit_time_delete"]) for d in deletes for r in d.to_pylist()}
    assert found == {"a": (10, False), "n": (None, True)}


def test_commit_time_log_delete_carries_no_ordering_value(tmp_path):
    t = table(tmp_path / "t", "mor", event=False)
    upsert(t, A)
    delete(t, ("a", "x"))
    (block,) = [b for b in blocks_of(t) if b.kind == log.DELETE]
    assert log.decode_deletes(block, [], "log")["commit_time_delete"].to_pylist() == [True]


def test_version_6_numbers_the_log_files_of_a_slice(tmp_path):
    t = table(tmp_path / "t", "mor", 6)
    first = upsert(t, A, B)
    for i in range(3):
        upsert(t, ("a", "x", i, 20 + i))
    logs = sorted((f.version, f.instant) for f in load(t.storage).files if isinstance(f, LogFile))
    assert logs == [(1, first.instant), (2, first.instant), (3, first.instant)]
    (stat,) = stats_of(t)
    assert (stat.log_version, stat.prev_commit, len(stat.log_files)) == (3, first.instant, 3)
    assert rows_of(t) == [("a", "x", 2, 22), B]


def test_version_8_names_a_log_file_after_its_own_delta_commit(tmp_path):
    t = table(tmp_path / "t", "mor", 8)
    upsert(t, A)
    second = upsert(t, ("a", "x", 5, 20))
    (stat,) = stats_of(t)
    assert (stat.log_version, stat.prev_commit, stat.base_file) == (1, second.instant, "")
    assert stat.log_files == (stat.path.split("/")[-1],)


def test_merge_on_read_packs_inserts_by_rewriting_the_base_together_with_the_changes(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    upsert(t, ("a", "x", 11, 20), ("new", "x", 4, 1))
    assert not [f for f in load(t.storage).files if isinstance(f, LogFile)]
    (stat,) = stats_of(t)
    assert (stat.num_writes, stat.num_update_writes, stat.num_inserts) == (3, 1, 1)
    assert rows_of(t) == [("a", "x", 11, 20), B, ("new", "x", 4, 1)]


@BOTH
def test_key_is_not_found_in_another_partition_even_when_only_that_one_exists(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, ("a", "x", 1, 10))
    assert counts(upsert(t, ("a", "y", 2, 1))) == (1, 0, 0, 0)
    assert rows_of(t) == [("a", "x", 1, 10), ("a", "y", 2, 1)]


@BOTH
def test_key_in_another_partition_is_another_record(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, ("a", "x", 1, 1), ("a", "y", 2, 1))
    delete(t, ("a", "x"))
    upsert(t, ("a", "y", 3, 2))
    assert rows_of(t) == [("a", "y", 3, 2)]


# ---------------------------------------------------------------- inserts


@BOTH
def test_insert_does_not_look_keys_up(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    put(t, values(A, A), "insert")
    assert counts(put(t, values(A), "insert")) == (1, 0, 0, 0)
    assert rows_of(t) == [A, A, A]


@BOTH
def test_upsert_of_a_key_that_is_there_twice_changes_every_copy(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    put(t, values(A), "bulk_insert")
    put(t, values(A), "bulk_insert")
    assert counts(upsert(t, ("a", "x", 2, 20))) == (0, 1, 0, 0)
    assert rows_of(t) == [("a", "x", 2, 20)] * 2
    assert counts(delete(t, ("a", "x"))) == (0, 0, 1, 0)
    assert rows_of(t) == []


def test_duplicate_policy_drop_ignores_existing_keys(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    result = put(t, values(("a", "x", 9, 99), B), "insert", settings={"hoodie.datasource.insert.dup.policy": "drop"})
    assert counts(result) == (1, 0, 0, 1)
    assert rows_of(t) == [A, B]


def test_duplicate_policy_fail_names_the_keys(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    before = listing(tmp_path)
    with pytest.raises(TableError, match=r"1 of the rows to insert have a key that exists, for example 'a'"):
        put(t, values(("a", "x", 9, 99), B), "insert", settings={"hoodie.datasource.insert.dup.policy": "fail"})
    assert listing(tmp_path) == before


def test_bulk_insert_cuts_files_at_the_size_limit_and_keeps_the_input_order(tmp_path):
    t = table(tmp_path / "t", partitioned_by=[])
    rows = "SELECT 'k' || i AS id, 'x' AS city, i AS v, i AS ts FROM range(1000) r(i)"
    settings = {"hoodie.parquet.max.file.size": "40000", "hoodie.copyonwrite.record.size.estimate": "100"}
    result = put(t, rows, "bulk_insert", settings=settings)
    assert (result.files_written, result.rows_inserted) == (3, 1000)
    assert sorted(f.num_rows for f in base_tables(t)) == [333, 333, 334]
    assert all(f["v"].to_pylist() == sorted(f["v"].to_pylist()) for f in base_tables(t))


def test_bulk_insert_sorts_by_partition_and_writes_one_group_each(tmp_path):
    t = table(tmp_path / "t")
    rows = "SELECT 'k' || i AS id, 'c' || (i % 7) AS city, i AS v, i AS ts FROM range(700) r(i)"
    result = put(t, rows, "bulk_insert")
    assert (result.files_written, result.partitions_touched) == (7, 7)
    assert [f["v"].to_pylist() for f in base_tables(t)] == [list(range(c, 700, 7)) for c in range(7)]
    assert len(rust_rows(t)) == 700


def test_later_inserts_fill_the_small_file(tmp_path):
    t = table(tmp_path / "t")
    put(t, values(A), "insert")
    result = put(t, values(B), "insert")
    assert result.files_written == 1
    assert len(base_tables(t)) == 1
    assert rows_of(t) == [A, B]


def test_table_without_key_columns_generates_keys(tmp_path):
    t = table(tmp_path / "t", primary_key=[], event=False)
    first = put(t, values(A, A), "insert")
    assert rows_of(t, "_hoodie_record_key") == [(f"{first.instant}_0_0",), (f"{first.instant}_0_1",)]
    keyed = f"SELECT '{first.instant}_0_1' AS _hoodie_record_key, * FROM ({values(('a', 'x', 7, 7))})"
    assert counts(put(t, keyed)) == (0, 1, 0, 0)
    assert rows_of(t) == [A, ("a", "x", 7, 7)]
    with pytest.raises(TableError, match="rows to delete must name them in a column _hoodie_record_key"):
        put(t, "SELECT 'x' AS city", "delete")


# ---------------------------------------------------------------- overwrites


@EVERY
def test_insert_overwrite_replaces_the_partitions_of_the_rows(tmp_path, type_, version):
    t = table(tmp_path / "t", type_, version)
    upsert(t, A, B, C)
    upsert(t, ("a", "x", 5, 50))
    result = put(t, values(("z", "x", 9, 9)), "insert_overwrite")
    assert (result.action, counts(result)) == ("replacecommit", (1, 0, 2, 0))
    assert rows_of(t) == rust_rows(t) == [C, ("z", "x", 9, 9)]
    upsert(t, ("z", "x", 10, 10))
    assert rows_of(t) == rust_rows(t) == [C, ("z", "x", 10, 10)]


@BOTH
def test_insert_overwrite_table_replaces_everything(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A, C)
    assert counts(put(t, values(("z", "x", 9, 9)), "insert_overwrite_table")) == (1, 0, 2, 0)
    assert rows_of(t) == rust_rows(t) == [("z", "x", 9, 9)]


@BOTH
def test_delete_partition_needs_the_partition_columns_only(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A, B, C)
    result = put(t, "SELECT 'x' AS city", "delete_partition")
    assert (result.action, counts(result), result.files_written) == ("replacecommit", (0, 0, 2, 0), 0)
    assert rows_of(t) == rust_rows(t) == [C]


def test_named_partitions_are_overwritten_even_without_rows(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, C)
    result = put(t, values(A) + " WHERE false", "insert_overwrite", partitions=["city=x"])
    assert counts(result) == (0, 0, 1, 0)
    assert rows_of(t) == [C]


def test_overwriting_nothing_with_nothing_writes_nothing(tmp_path):
    t = table(tmp_path / "t")
    assert put(t, values(A) + " WHERE false", "insert_overwrite_table").instant is None


@BOTH
def test_columns_may_be_called_anything(tmp_path, type_):
    names = [
        "id",
        "city",
        "ts",
        "key",
        "part",
        "fate",
        "row_no",
        "target",
        "place",
        "ord_0",
        "slice_no",
        "n",
        "op",
        "select",
    ]
    schema = pa.schema([(n, pa.int64() if n == "ts" else pa.string()) for n in names])
    t = table(tmp_path / "t", type_, schema=schema)
    quoted = ", ".join('"' + n.replace('"', '""') + '"' for n in names)
    for ts in (1, 2):
        put(t, values(*[(i, "x", ts, *[f"{n}{i}{ts}" for n in names[3:]]) for i in "abc"], columns=quoted))
    delete(t, ("b", "x"))
    assert rows_of(t, quoted) == [(i, "x", 2, *[f"{n}{i}2" for n in names[3:]]) for i in "ac"]


# ---------------------------------------------------------------- rows that do not fit


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("SELECT 'a' AS id, 'x' AS city, 1 AS w", r"the rows have the column w, the table has id, city, v, ts"),
        ("SELECT 'a' AS id, 1 AS v", r"the rows lack the partition column city"),
        ("SELECT 'x' AS city, 1 AS v", r"the rows lack the record key column id"),
        (
            values(("a", "x", 1, 1), (None, "x", 2, 1)),
            r"record key is NULL or empty \(columns: id\), in 1 of 2 rows; the first is row 2",
        ),
        (values(("", "x", 2, 1)), r"record key is NULL or empty"),
        (
            values(("a", "x", "seven", 1)),
            r"column v is BIGINT, the rows give VARCHAR; for example 'seven' does not fit",
        ),
        (
            "SELECT 'a' AS id, 'x' AS city, [1] AS v",
            r"column v is BIGINT, the rows give INTEGER\[\]; for example '\[1\]'",
        ),
        ("SELECT 'a' AS id, 'x' AS city, 1e30 AS v", r"column v is BIGINT, the rows give DOUBLE; for example '1e\+30'"),
        (values(("a", "../../etc", 1, 1)), r"the partition path is not a path inside the table"),
        (
            values(("a", "x", 1, 1, "replace"), columns="id, city, v, ts, __op"),
            r"__op is none of upsert, insert, delete",
        ),
        ("SELECT 'a' AS id, 'x' AS city, 1 AS v, 2 AS \"V\"", r"column V twice|V_1"),
    ],
)
def test_rows_that_do_not_fit_are_named_and_nothing_is_written(tmp_path, rows, message):
    t = table(
        tmp_path / "t", partitioned_by=["city"], properties={"hoodie.datasource.write.hive_style_partitioning": "false"}
    )
    before = listing(tmp_path)
    with pytest.raises(TableError, match=message) as error:
        put(t, rows)
    assert t.path in str(error.value)
    assert listing(tmp_path) == before


def test_null_in_a_required_column_is_refused(tmp_path):
    schema = pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            ("city", pa.string()),
            pa.field("v", pa.int64(), nullable=False),
            ("ts", pa.int64()),
        ]
    )
    t = table(tmp_path / "t", "mor", schema=schema)
    upsert(t, A)
    with pytest.raises(
        TableError, match=r"column v must not be NULL, in 1 of 1 rows; the first is row 1 \(path 'city=x'\): id='b'"
    ):
        upsert(t, ("b", "x", None, 1))
    delete(t, ("a", "x"))
    assert rows_of(t) == []


def test_missing_columns_are_null_and_case_does_not_matter(tmp_path):
    t = table(tmp_path / "t")
    put(t, "SELECT 'x' AS CITY, 'a' AS Id")
    assert rows_of(t) == [("a", "x", None, None)]


def test_meta_columns_of_another_table_are_not_written(tmp_path):
    t = table(tmp_path / "t")
    put(t, f"SELECT 'old' AS _hoodie_commit_time, NULL AS _hoodie_record_key, * FROM ({values(A)})")
    ((time,),) = rows_of(t, "_hoodie_commit_time")
    assert time != "old"


def test_unknown_operation_is_refused(tmp_path):
    with pytest.raises(TableError, match=r"operation 'merge' is unknown\. Use one of upsert, insert"):
        put(table(tmp_path / "t"), values(A), "merge")


def test_settings_that_do_not_parse_are_named(tmp_path):
    t = table(tmp_path / "t")
    with pytest.raises(TableError, match=r"setting hoodie.parquet.max.file.size = 'big'"):
        upsert(t, A, settings={"hoodie.parquet.max.file.size": "big"})
    with pytest.raises(Unsupported, match=r"hoodie.index.type = RECORD_INDEX"):
        upsert(t, A, settings={"hoodie.index.type": "RECORD_INDEX"})


# ---------------------------------------------------------------- tables that are not written to


@pytest.mark.parametrize(
    ("type_", "extra", "feature"),
    [
        ("cow", {"hoodie.populate.meta.fields": "false"}, "hoodie.populate.meta.fields=false"),
        ("cow", {"hoodie.table.cdc.enabled": "true"}, "hoodie.table.cdc.enabled=true"),
        ("cow", {"hoodie.datasource.write.drop.partition.columns": "true"}, "drop.partition.columns=true"),
        (
            "mor",
            {"hoodie.table.partial.update.mode": "KEEP_VALUES"},
            "partial update mode KEEP_VALUES",
        ),
        (
            "mor",
            {"hoodie.record.merge.mode": "CUSTOM", "hoodie.compaction.payload.class": "com.acme.Mine"},
            "com.acme.Mine",
        ),
        (
            "mor",
            {"hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": "mine"},
            "rows merge by CUSTOM, which nobody has registered",
        ),
        ("cow", {"hoodie.table.keygenerator.type": "USER_PROVIDED"}, "key generator USER_PROVIDED"),
    ],
)
def test_unsupported_tables_are_refused_by_name_before_anything_is_written(tmp_path, type_, extra, feature):
    t = table(tmp_path / "t", type_)
    text = t.storage.read(".hoodie/hoodie.properties").decode()
    t.storage.put(".hoodie/hoodie.properties", (text + "".join(f"{k}={v}\n" for k, v in extra.items())).encode())
    before = listing(tmp_path)
    with pytest.raises(Unsupported) as error:
        upsert(t, A)
    assert feature in str(error.value)
    assert listing(tmp_path) == before


def test_bucket_index_tables_are_refused(tmp_path):
    t = table(tmp_path / "t")
    put(t, values(A), ids=lambda: "00000003-f12c-40cd-befd-193540093b5e")
    with pytest.raises(Unsupported, match=r"buckets of a bucket index \(for example 00000003-"):
        upsert(t, B)


def test_cdc_on_merge_on_read_needs_nothing_from_the_writer(tmp_path):
    t = table(tmp_path / "t", "mor", properties={"hoodie.table.cdc.enabled": "true"})
    upsert(t, A)
    assert rows_of(t) == [A]


# ---------------------------------------------------------------- keys


def test_style_of_complex_keys_is_copied_from_the_table(tmp_path):
    t = table(tmp_path / "t", version=8, partitioned_by=["city", "v"])
    upsert(t, A)
    assert rows_of(t, "_hoodie_record_key, _hoodie_partition_path") == [("a", "city=x/v=1")]
    other = table(tmp_path / "u", version=9, partitioned_by=["city", "v"])
    bare = f"SELECT id AS _hoodie_record_key, * FROM ({values(A)})"
    put(other, bare)
    upsert(other, ("a", "x", 1, 20), B)
    assert rows_of(other, "_hoodie_record_key") == [("a",), ("b",)]


def test_given_keys_and_paths_are_used_where_they_are_not_null(tmp_path):
    t = table(tmp_path / "t")
    own = "CASE WHEN id = 'a' THEN 'own' END AS _hoodie_record_key, 'city=q' AS _hoodie_partition_path"
    given = f"SELECT {own}, * FROM ({values(A, B)})"
    put(t, given)
    assert rows_of(t, "_hoodie_record_key, _hoodie_partition_path, city") == [
        ("b", "city=q", "x"),
        ("own", "city=q", "x"),
    ]


# ---------------------------------------------------------------- conflicts with what the rows were read from


def test_statement_that_read_the_table_conflicts_with_a_commit_to_the_same_group(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, C)
    seen = load(t.storage)
    second = upsert(t, ("a", "x", 2, 20))
    with pytest.raises(CommitConflict) as error:
        write(CON, seen, values(("a", "x", 3, 30)), operation="upsert", reads_table=True)
    assert f"was changed by commit {second.instant} after this write read it" in str(error.value)
    assert rows_of(t) == [("a", "x", 2, 20), C]


def test_statement_that_read_the_table_does_not_conflict_with_other_groups(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, C)
    seen = load(t.storage)
    upsert(t, ("a", "x", 2, 20))
    write(CON, seen, values(("c", "y", 9, 90)), operation="upsert", reads_table=True)
    assert rows_of(t) == [("a", "x", 2, 20), ("c", "y", 9, 90)]


def test_two_statements_that_insert_one_new_key_do_not_both_commit(tmp_path):
    t = table(tmp_path / "t")
    seen = load(t.storage)
    upsert(t, A)
    with pytest.raises(CommitConflict):
        write(CON, seen, values(("a", "x", 3, 30)), operation="upsert", reads_table=True)
    assert rows_of(t) == [A]


def test_rows_from_elsewhere_are_written_on_top_of_what_came_in_between(tmp_path):
    t = table(tmp_path / "t")
    seen = load(t.storage)
    upsert(t, A)
    assert counts(write(CON, seen, values(("a", "x", 3, 30)), operation="upsert")) == (0, 1, 0, 0)
    assert rows_of(t) == [("a", "x", 3, 30)]


def test_result_prints_on_one_line(tmp_path):
    t = table(tmp_path / "t")
    text = str(upsert(t, A))
    assert "\n" not in text
    assert text.startswith("upsert: commit 2")
    assert "1 inserted; 1 file, " in text
    assert str(delete(t, ("q", "x"))).startswith("delete: nothing written: 1 ignored")


def test_temporary_tables_are_gone_after_a_write_and_after_a_failure(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    with pytest.raises(TableError):
        upsert(t, (None, "x", 1, 1))
    names = CON.execute(
        "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE '\\_\\_lakesql%' ESCAPE '\\'"
    ).fetchall()
    assert names == []
