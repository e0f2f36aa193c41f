"""hoodie.properties: Java's text both ways, the settings of a table, and the tables that are refused."""

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakesql
from lakesql.errors import FormatError, LakeError, TableError, Unsupported
from lakesql.format.metadata import (
    TableConfig,
    format_properties,
    new_table_properties,
    parse_properties,
    table_checksum,
)
from tests.samples import Kind, create, rows
from tests.zipped import names as golden_names
from tests.zipped import open_zip

MODEL = "org.apache.hudi.common.model."
EVENT, COMMIT = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"
EVENT_ID, COMMIT_ID = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "ce9acb64-bde0-424c-9b91-f6ebba25356d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb: 2\nc 3\nd\t=\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n  ! comment\n\n \t\n  a = 1 ", {"a": "1 "}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ('s={"type"\\:"record"\\,\\=\\#\\!\\\\}', {"s": '{"type":"record",=#!\\}'}),
        ("a=one \\\n   two\\\\\nb=2", {"a": "one two\\", "b": "2"}),
        ("a=\\\n  # no comment", {"a": "# no comment"}),
        ("a\\ b\\:c\\=d=x=y:z", {"a b:c=d": "x=y:z"}),
        ("empty\nalso=", {"empty": "", "also": ""}),
        ("=v", {"": "v"}),
        ("a=\\u00e9\\u20AC\\t\\n\\q", {"a": "é€\t\nq"}),
        ("a=\\ud83d\\ude00 \\ud83d", {"a": "😀 \ufffd"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_java_properties_text_is_understood(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_unicode_escape_is_a_format_error() -> None:
    with pytest.raises(FormatError, match=r"x\.properties: '\\u' without four hexadecimal digits"):
        parse_properties("a=\\u12", "x.properties")


def test_properties_are_written_as_java_escapes_them() -> None:
    text = format_properties({"s": '{"a":1}#!=\\', " k:": "  v é😀\n\x01", "e": ""}, "Updated at x\nMon Nov 30")
    assert text.splitlines() == [
        "#Updated at x",
        "#Mon Nov 30",
        's={"a"\\:1}\\#\\!\\=\\\\',
        "\\ k\\:=\\  v \\u00E9\\uD83D\\uDE00\\n\\u0001",
        "e=",
    ]


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    text = format_properties(properties, "header")
    text.encode("latin-1")
    assert parse_properties(text) == properties


@given(st.text(st.sampled_from("ab=: \t\f\\u0123#!\n\r"), max_size=40))
def test_any_text_is_properties_or_a_format_error(text: str) -> None:
    try:
        assert isinstance(parse_properties(text), dict)
    except FormatError:
        assert "\\u" in text


def config(version: int = 9, **changes: str | None) -> TableConfig:
    """A minimal table; keys in `changes` have '__' for '.', None removes."""
    properties: dict[str, str | None] = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(version),
        "hoodie.timeline.layout.version": "1" if version == 6 else "2",
    }
    properties |= {"hoodie." + key.replace("__", "."): value for key, value in changes.items()}
    kept = {key: value for key, value in properties.items() if value is not None}
    return TableConfig.from_text(format_properties(kept, "x"), "t/.hoodie/hoodie.properties")


def test_a_minimal_table_has_hudis_defaults() -> None:
    found = config()
    assert (found.name, found.database, found.table_type, found.is_mor) == ("t", "", "MERGE_ON_READ", True)
    assert (found.version, found.layout, found.key_generator) == (9, 2, "NON_PARTITION")
    assert (found.record_key_fields, found.partition_fields, found.ordering_fields) == ((), (), ())
    assert (found.hive_style, found.url_encode, found.slash_dates, found.drop_partition_columns) == (False,) * 4
    assert (found.meta_fields, found.cdc_enabled, found.timezone) == (True, False, None)
    assert (found.timeline_folder, found.history_folder) == (".hoodie/timeline", ".hoodie/timeline/history")
    assert (found.payload_class, found.partial_update_mode, found.create_schema) == (None, None, None)
    old = config(6)
    assert (old.layout, old.timeline_folder, old.history_folder) == (1, ".hoodie", ".hoodie/archived")


def test_stored_settings_become_typed_fields() -> None:
    found = config(
        database__name="db",
        table__type="copy_on_write",
        table__recordkey__fields="a, b",
        table__partition__fields="region:SIMPLE,ts:timestamp",
        table__keygenerator__type="CUSTOM",
        table__ordering__fields="x,y",
        datasource__write__hive_style_partitioning="TRUE",
        populate__meta__fields="false",
        table__timeline__timezone="local",
        table__metadata__partitions="column_stats,files",
        table__partial__update__mode="IGNORE_MARKERS",
        record__merge__property__hoodie__payload__delete__field="Op",
        record__merge__property__hoodie__payload__delete__marker="D",
        timeline__path="tl",
        timeline__history__path="old",
        table__create__schema='{"type":"record"}',
        table__cdc__enabled="true",
        something__unknown="kept",
    )
    assert (found.database, found.table_type, found.is_mor) == ("db", "COPY_ON_WRITE", False)
    assert (found.record_key_fields, found.ordering_fields) == (("a", "b"), ("x", "y"))
    assert (found.partition_fields, found.partition_types) == (("region", "ts"), ("SIMPLE", "TIMESTAMP"))
    assert (found.hive_style, found.meta_fields, found.cdc_enabled) == (True, False, True)
    assert (found.timezone, found.metadata_partitions) == ("LOCAL", ("column_stats", "files"))
    assert (found.partial_update_mode, found.delete_field, found.delete_marker) == ("FILL_UNAVAILABLE", "Op", "D")
    assert (found.timeline_folder, found.history_folder) == (".hoodie/tl", ".hoodie/tl/old")
    assert found.create_schema == '{"type":"record"}'
    assert found.properties["hoodie.something.unknown"] == "kept"


@pytest.mark.parametrize(
    ("changes", "generator", "types"),
    [
        ({"table__keygenerator__class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator"}, "TIMESTAMP", "TIMESTAMP"),
        ({"table__keygenerator__class": "org.apache.hudi.keygen.ComplexAvroKeyGenerator"}, "COMPLEX_AVRO", "SIMPLE"),
        ({"table__keygenerator__class": "org.apache.hudi.keygen.CustomKeyGenerator"}, "CUSTOM", ""),
        ({"table__keygenerator__class": "com.acme.Keys"}, "USER_PROVIDED", "SIMPLE"),
        ({"table__keygenerator__type": "user_provided"}, "USER_PROVIDED", "SIMPLE"),
        ({"table__keygenerator__type": "TIMESTAMP_AVRO"}, "TIMESTAMP_AVRO", "TIMESTAMP"),
        ({"table__recordkey__fields": "id"}, "SIMPLE", "SIMPLE"),
        ({"table__recordkey__fields": "id,id2"}, "COMPLEX", "SIMPLE"),
        ({}, "SIMPLE", "SIMPLE"),
    ],
)
def test_the_key_generator_comes_from_type_or_class_or_is_inferred(
    changes: dict[str, str], generator: str, types: str
) -> None:
    found = config(6, table__partition__fields="p", **changes)
    assert (found.key_generator, found.partition_types) == (generator, (types,))


def test_typed_partition_fields_without_a_generator_mean_custom() -> None:
    properties = {"hoodie.table.keygenerator.type": ""}
    assert new_table(partition_fields=["a:SIMPLE", "b:TIMESTAMP"], extra=properties).key_generator == "CUSTOM"


@pytest.mark.parametrize(
    ("version", "changes", "mode"),
    [
        # hudi-format 1.5, rule by rule.
        (9, {"record__merge__mode": "commit_time_ordering", "table__ordering__fields": "ts"}, COMMIT),
        (9, {"record__merge__mode": "CUSTOM"}, "CUSTOM"),
        (6, {}, COMMIT),
        (6, {"table__precombine__field": "ts"}, EVENT),
        (9, {"table__ordering__fields": "ts"}, EVENT),
        # What 0.15 stores in every merge-on-read table: commit time by payload, although the strategy says event.
        (
            6,
            {
                "table__precombine__field": "ts",
                "compaction__payload__class": MODEL + "OverwriteWithLatestAvroPayload",
                "compaction__record__merger__strategy": EVENT_ID,
            },
            COMMIT,
        ),
        (6, {"compaction__payload__class": MODEL + "EventTimeAvroPayload"}, EVENT),
        (6, {"compaction__payload__class": MODEL + "AWSDmsAvroPayload"}, "CUSTOM"),
        (6, {"compaction__record__merger__strategy": EVENT_ID}, EVENT),
        (8, {"record__merge__strategy__id": COMMIT_ID, "compaction__payload__class": "x.Y"}, COMMIT),
        (8, {"record__merge__strategy__id": "00000000-0000-0000-0000-000000000000"}, "CUSTOM"),
        (8, {"compaction__payload__class": MODEL + "DefaultHoodieRecordPayload"}, EVENT),
        (9, {"table__legacy__payload__class": MODEL + "OverwriteWithLatestAvroPayload"}, COMMIT),
    ],
)
def test_the_merge_mode_is_resolved_as_hudi_1_does(version: int, changes: dict[str, str], mode: str) -> None:
    assert config(version, **changes).merge_mode == mode


@pytest.mark.parametrize(
    ("payload", "deletes"),
    [
        ("AWSDmsAvroPayload", ("Op", "D")),
        ("debezium.MySqlDebeziumAvroPayload", ("_change_operation_type", "d")),
        ("debezium.PostgresDebeziumAvroPayload", ("_change_operation_type", "d")),
        ("DefaultHoodieRecordPayload", (None, None)),
    ],
)
def test_a_payload_class_implies_its_delete_marker_only_before_version_9(
    payload: str, deletes: tuple[str | None, str | None]
) -> None:
    old = config(8, compaction__payload__class=MODEL + payload)
    assert (old.delete_field, old.delete_marker) == deletes
    new = config(9, table__legacy__payload__class=MODEL + payload)
    assert (new.payload_class, new.delete_field, new.delete_marker) == (MODEL + payload, None, None)


@pytest.mark.parametrize("key", ["table__name", "table__type", "table__version", "timeline__layout__version"])
def test_a_table_without_a_vital_key_is_a_format_error(key: str) -> None:
    name = "hoodie." + key.replace("__", r"\.")
    with pytest.raises(FormatError, match=rf"t/\.hoodie/hoodie\.properties: {name} is missing"):
        config(**{key: None})
    with pytest.raises(FormatError, match="is missing"):
        config(**{key: " "})


@pytest.mark.parametrize(
    ("version", "changes", "text"),
    [
        (9, {"table__type": "MOR"}, "hoodie.table.type is 'MOR', expected one of COPY_ON_WRITE, MERGE_ON_READ"),
        (9, {"table__version": "nine"}, "hoodie.table.version is 'nine', expected a number"),
        (9, {"timeline__layout__version": "1"}, "layout.version is 1, but table version 9 has layout 2"),
        (9, {"table__checksum": "1"}, f"hoodie.table.checksum is 1, but the database and table names .* give {0}"),
    ],
)
def test_a_damaged_properties_file_is_a_format_error(version: int, changes: dict[str, str], text: str) -> None:
    with pytest.raises(FormatError, match=text.replace("give 0", f"give {zlib.crc32(b'.t')}")):
        config(version, **changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"table__version": "5"}, r"table version 5\. lakesql reads and writes versions 6, 8 and 9"),
        ({"table__version": "10"}, "table version 10"),
        ({"bootstrap__base__path": "/old"}, r"hoodie\.bootstrap\.base\.path=/old"),
        ({"table__base__file__format": "ORC"}, r"hoodie\.table\.base\.file\.format=ORC"),
        ({"table__format": "iceberg"}, r"hoodie\.table\.format=iceberg"),
        ({"table__multiple__base__file__formats__enable": "true"}, "multiple"),
    ],
)
def test_tables_of_another_kind_are_refused_by_name(changes: dict[str, str], text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        config(**changes)


def test_settings_that_only_state_the_default_are_accepted() -> None:
    config(table__base__file__format="parquet", table__format="native", bootstrap__base__path="")


def test_the_checksum_covers_database_and_table_name() -> None:
    assert table_checksum("v8_trips_8i3u1d", "default") == "1197752875"
    assert table_checksum("v9_txns_cow_complex_meta_metadata") == "3347748510"
    config(database__name="d", table__checksum=table_checksum("t", "d"))
    config(table__checksum="")


def new_table(**changes: object) -> TableConfig:
    settings: dict[str, object] = {
        "name": "t",
        "table_type": "MERGE_ON_READ",
        "version": 9,
        "record_key_fields": ["id"],
        "partition_fields": ["part"],
        "ordering_fields": ["ts"],
        "merge_mode": EVENT,
        "schema_json": '{"type":"record"}',
    }
    properties = new_table_properties(**{**settings, **changes})  # type: ignore[arg-type]
    return TableConfig.from_text(format_properties(properties, "x"), "new")


def test_a_new_table_has_the_keys_of_its_version() -> None:
    common = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "part",
        "hoodie.archivelog.folder": "archived",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.table.create.schema": '{"type":"record"}',
        "hoodie.table.checksum": "498511606",
        "hoodie.table.timeline.timezone": "UTC",
    }
    from_8 = {
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.record.merge.mode": EVENT,
    }
    assert new_table(version=9).properties == {
        **common,
        **from_8,
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.format": "native",
    }
    assert new_table(version=8).properties == {
        **common,
        **from_8,
        "hoodie.table.version": "8",
        "hoodie.table.initial.version": "8",
        "hoodie.table.precombine.field": "ts",
        "hoodie.record.merge.strategy.id": EVENT_ID,
        "hoodie.compaction.payload.class": MODEL + "DefaultHoodieRecordPayload",
    }
    assert new_table(version=6).properties == {
        **common,
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.table.precombine.field": "ts",
        "hoodie.compaction.payload.class": MODEL + "DefaultHoodieRecordPayload",
    }


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(("mode", "ordering"), [(EVENT, ["ts"]), (COMMIT, ["ts"]), (COMMIT, [])])
def test_a_new_table_is_read_back_with_the_mode_it_was_made_with(
    version: int, table_type: str, mode: str, ordering: list[str]
) -> None:
    found = new_table(version=version, table_type=table_type, merge_mode=mode, ordering_fields=ordering)
    assert (found.merge_mode, found.ordering_fields) == (mode, tuple(ordering))
    assert (found.version, found.table_type, found.timezone) == (version, table_type, "UTC")


def test_extra_properties_come_on_top_and_the_checksum_fits() -> None:
    extra = {"hoodie.database.name": "db", "hoodie.table.cdc.enabled": "true"}
    found = new_table(extra=extra)
    assert (found.database, found.cdc_enabled) == ("db", True)
    timestamp = {"hoodie.table.keygenerator.type": "TIMESTAMP"}
    assert new_table(version=6, extra=timestamp).key_generator == "TIMESTAMP"
    assert new_table(version=9, extra=timestamp).key_generator == "TIMESTAMP"
    assert new_table(record_key_fields=[], partition_fields=[]).key_generator == "NON_PARTITION"


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"version": 7}, Unsupported, "table version 7"),
        ({"table_type": "MOR"}, TableError, "table type 'MOR'"),
        ({"version": 6, "merge_mode": "CUSTOM"}, Unsupported, "merge mode CUSTOM in table version 6"),
        ({"ordering_fields": []}, TableError, "compares an ordering field and none is given"),
        ({"version": 8, "ordering_fields": ["a", "b"]}, Unsupported, "several ordering fields in table version 8"),
        ({"version": 6, "extra": {"hoodie.table.keygenerator.type": "MINE"}}, Unsupported, "key generator 'MINE'"),
    ],
)
def test_settings_that_a_new_table_cannot_have_are_refused(
    changes: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        new_table(**changes)


@pytest.mark.parametrize("name", golden_names())
def test_the_properties_of_a_real_table_are_written_as_they_were(name: str) -> None:
    text = open_zip(name).read(".hoodie/hoodie.properties").decode("latin-1")
    table = TableConfig.from_text(text, name)
    assert {line for line in text.splitlines() if not line.startswith("#")} == set(
        format_properties(table.properties, "").splitlines()
    )


# ---------------------------------------------------------------- a file that lost its end


def test_every_cut_of_a_properties_file_of_ours_is_noticed(tmp_path: Path) -> None:
    table = create(tmp_path / "t", Kind("mor", 9))
    table.upsert(rows(("a", "x", 1, 1)))
    path = tmp_path / "t/.hoodie/hoodie.properties"
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(LakeError, match=r"[Rr]estore"):
            lakesql.open_table(tmp_path / "t")


def test_cut_off_file_is_an_error_that_says_where_and_what_to_do() -> None:
    def file(text: str) -> str:
        with pytest.raises(FormatError) as failure:
            TableConfig.from_file(text, "t/.hoodie/hoodie.properties")
        return str(failure.value)

    begin = "#x\nhoodie.table.name=t\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=9\n"
    begin += "hoodie.timeline.layout.version=2\n"
    assert file(begin + "hoodie.table.recordkey.fi") == (
        "t/.hoodie/hoodie.properties: the last line has no end, so the file seems cut off after "
        "'hoodie.table.recordkey.fi'. Restore the file; if it is complete, end its last line."
    )
    assert file(begin) == (
        "t/.hoodie/hoodie.properties: hoodie.table.checksum is missing; every table has one, so the file seems cut off "
        "and other settings may be missing as well. Restore the file; if it is complete, add "
        f"hoodie.table.checksum={table_checksum('t')}."
    )
    assert TableConfig.from_file(f"{begin}hoodie.table.checksum={table_checksum('t')}\r\n", "x").name == "t"


@pytest.mark.parametrize("damage", [b"", b"hoodie.table.name=t\n", None])
def test_backup_counts_while_the_properties_are_damaged_or_gone(tmp_path: Path, damage: bytes | None) -> None:
    create(tmp_path / "t", Kind("cow", 9))
    path = tmp_path / "t/.hoodie/hoodie.properties"
    path.with_name("hoodie.properties.backup").write_bytes(path.read_bytes())
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert lakesql.open_table(tmp_path / "t").properties["hoodie.table.recordkey.fields"] == "id"


@pytest.mark.parametrize("version", [9, 8, 6])
def test_data_files_without_a_timeline_are_an_error(tmp_path: Path, version: int) -> None:
    table = create(tmp_path / "t", Kind("cow", version))
    table.upsert(rows(("a", "x", 1, 1)))
    path = tmp_path / "t/.hoodie/hoodie.properties"
    if version == 6:
        for file in path.parent.glob("2*"):
            file.unlink()
    else:
        path.write_text(path.read_text().replace("timeline.path=timeline", "timeline.path=time"))
    with pytest.raises(
        FormatError, match=r"there are data files, for example city=x/.*parquet, and no instant in \.hoodie"
    ):
        table.read()


def test_new_table_without_files_needs_no_instant(tmp_path: Path) -> None:
    assert create(tmp_path / "t", Kind("cow", 9)).read().read_all().num_rows == 0
