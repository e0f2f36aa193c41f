"""Creating a table: what is stored, and what is refused."""

import pyarrow as pa
import pytest

from lakesql.errors import LakeError, TableError, Unsupported
from lakesql.storage import LocalStorage
from lakesql.table.state import load
from lakesql.write.create import create
from tests.writing import SCHEMA, listing, rows_of, rust_rows, table, upsert


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize(
    ("type_", "stored"), [("cow", "COPY_ON_WRITE"), ("MOR", "MERGE_ON_READ"), ("merge_on_read", "MERGE_ON_READ")]
)
def test_new_table_is_one_properties_file_that_says_everything(tmp_path, type_, stored, version):
    t = table(tmp_path / "t", type_, version)
    assert {f for f in listing(tmp_path / "t") if "lock" not in f} == {".hoodie/hoodie.properties"}
    assert (t.config.table_type, t.config.version, t.config.timezone) == (stored, version, "UTC")
    assert (t.config.record_key_fields, t.config.partition_fields, t.config.ordering_fields) == (
        ("id",),
        ("city",),
        ("ts",),
    )
    assert t.config.merge_mode == "EVENT_TIME_ORDERING"
    assert t.schema.equals(SCHEMA)
    assert rows_of(t) == rust_rows(t) == []
    assert (tmp_path / "t/.hoodie/timeline/history").is_dir() == (version > 6)


def test_without_ordering_fields_the_last_commit_wins(tmp_path):
    assert table(tmp_path / "t", event=False).config.merge_mode == "COMMIT_TIME_ORDERING"
    chosen = table(tmp_path / "u", properties={"hoodie.record.merge.mode": "commit_time_ordering"})
    assert chosen.config.merge_mode == "COMMIT_TIME_ORDERING"


def test_further_properties_are_stored(tmp_path):
    properties = {
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.x": "1: ü",
        "hoodie.database.name": "db",
    }
    t = table(tmp_path / "t", properties=properties)
    assert (t.config.hive_style, t.config.database) == (False, "db")
    assert load(t.storage).config.properties["hoodie.x"] == "1: ü"
    upsert(t, ("a", "x", 1, 1))
    assert rows_of(t, "_hoodie_partition_path") == [("x",)]


def test_existing_table_is_not_overwritten(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, ("a", "x", 1, 1))
    before = listing(tmp_path)
    with pytest.raises(TableError, match="there is a Hudi table already"):
        table(tmp_path / "t", "mor")
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", ["__op", "__OP", "_HOODIE_commit_time", "_hoodie_FILE_name", "__LakeSQL_row_no"])
def test_reserved_names_are_refused_in_any_case(tmp_path, name):
    schema = pa.schema([("id", pa.string()), (name, pa.string())])
    with pytest.raises(TableError, match=f"the column name {name} is reserved"):
        create(LocalStorage(tmp_path / "t"), schema, name="t", primary_key=["id"])
    assert not (tmp_path / "t").exists()


def test_a_table_of_another_engine_with_a_reserved_name_is_read_and_not_written(tmp_path):
    t = table(tmp_path / "t", schema=pa.schema([*SCHEMA, ("renamed", pa.string())]))
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("renamed", "__OP"))
    assert load(t.storage).schema.names[-1] == "__OP"
    assert rows_of(t, "id") == []
    with pytest.raises(Unsupported, match=r"column name __OP is one of those"):
        upsert(t, ("a", "x", 1, 1))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"type": "delta"}, TableError, r"type 'delta' is unknown\. Use cow or mor"),
        ({"primary_key": ["nope"]}, TableError, r"there is no column nope; the columns are id, city, v, ts"),
        ({"partitioned_by": ["nope"]}, TableError, r"there is no column nope"),
        ({"ordering_fields": ["nope"]}, TableError, r"there is no column nope"),
        ({"version": 7}, Unsupported, r"table version 7"),
        ({"schema": pa.schema([])}, TableError, r"it has no columns"),
        ({"schema": pa.schema([("id", pa.string()), ("ID", pa.string())])}, TableError, r"column id is there twice"),
        (
            {"schema": pa.schema([("id", pa.string()), ("_hoodie_record_key", pa.string())])},
            TableError,
            r"_hoodie_record_key is reserved",
        ),
        ({"schema": pa.schema([("id", pa.list_(pa.string()))])}, Unsupported, r"record key column id has type list"),
        (
            {"schema": pa.schema([("id", pa.string()), ("_hoodie_is_deleted", pa.string())])},
            TableError,
            r"must be boolean",
        ),
        ({"primary_key": [], "ordering_fields": ["ts"]}, TableError, r"without a primary key rows never meet"),
        ({"properties": {"hoodie.table.keygenerator.type": "SPARK_SQL"}}, Unsupported, r"key generator SPARK_SQL"),
        ({"properties": {"hoodie.record.merge.mode": "CUSTOM"}}, LakeError, r"CUSTOM"),
        (
            {"partitioned_by": ["ts"], "properties": {"hoodie.table.keygenerator.type": "TIMESTAMP"}},
            Unsupported,
            r"output\.dateformat",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, options, error, message):
    given = {"schema": SCHEMA, "name": "t", "primary_key": ["id"]} | options
    schema = given.pop("schema")
    with pytest.raises(error, match=message):
        create(LocalStorage(tmp_path / "t"), schema, **given)
    assert not (tmp_path / "t").exists()


def test_timestamp_partitions_are_written_in_their_format(tmp_path):
    properties = {
        "hoodie.table.keygenerator.type": "TIMESTAMP",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        "hoodie.datasource.write.hive_style_partitioning": "false",
    }
    t = table(tmp_path / "t", partitioned_by=["ts"], properties=properties)
    upsert(t, ("a", "x", 1, 1700000000), ("b", "x", 1, None))
    assert rows_of(t, "_hoodie_partition_path") == [("1970/01/01",), ("2023/11/14",)]
    assert "partitionDepth=3" in t.storage.read("2023/11/14/.hoodie_partition_metadata").decode()
    assert len(rust_rows(t)) == 2
