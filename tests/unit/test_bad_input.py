"""Bad input of every kind: the class and the whole text of the error, and that nothing of the warehouse changed.

The warehouse has the table `trips` (Copy-on-Write, partitioned by city) and `calls` (Merge-on-Read). The same mistake
is made in SQL and, where it exists there, with `Table`. In the texts {lake} is the warehouse, {instant} an instant and
{file} the name of a data file.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql import FormatError, LakeError, SQLError, TableError, Unsupported
from lakesql.format.metadata import encode_record
from tests.unit.bad_input_messages import MESSAGES

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int64()),
        ("price", pa.decimal128(6, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ts", pa.int64()),
        ("city", pa.string()),
    ]
)
GOOD = {"id": 2, "v": 1, "price": None, "at": None, "ts": 1, "city": "oslo"}
PAYLOAD = "com.acme.LargestWins"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse that no test changes."""
    lake = tmp_path_factory.mktemp("bad") / "lake"
    for name, kind in (("trips", "cow"), ("calls", "mor")):
        table = lakesql.create_table(
            str(lake / name), SCHEMA, type=kind, primary_key=["id"], ordering_fields=["ts"], partitioned_by=["city"]
        )
        table.insert([GOOD | {"id": 1}])
    (lake / "nothing").mkdir()
    return lake


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "lake"))


@pytest.fixture(scope="module")
def con(made: Path) -> Iterator[lakesql.Connection]:
    with lakesql.connect(warehouse=str(made)) as found:
        yield found


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder with its bytes; locks, which belong to no write, left out."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
        if ".locks" not in p.parts
    }


def refused(lake: Path, run: Callable[[], object]) -> tuple[type, str]:
    """The class and text of the LakeError that `run` raises, after a look whether it left the warehouse alone."""
    before = tree(lake)
    with pytest.raises(LakeError) as caught:
        run()
    assert tree(lake) == before
    text = str(caught.value).replace(str(lake), "{lake}")
    text = re.sub(r"[0-9a-f-]{36}-\d+_[0-9-]+_\d{17}\.parquet", "{file}", text)
    return type(caught.value), re.sub(r"\b\d{17}\b", "{instant}", text)


# ---------------------------------------------------------------- tables that are none, or damaged


def edited(old: str, new: str) -> Callable[[Path], None]:
    """Replace a text in hoodie.properties."""

    def edit(table: Path) -> None:
        file = table / ".hoodie/hoodie.properties"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return edit


def whole(text: str) -> Callable[[Path], None]:
    """Replace hoodie.properties."""

    def edit(table: Path) -> None:
        (table / ".hoodie/hoodie.properties").write_text(text)

    return edit


def added(line: str) -> Callable[[Path], None]:
    """A further line of hoodie.properties."""
    return lambda table: whole((table / ".hoodie/hoodie.properties").read_text() + line + "\n")(table)


def lost_data_file(table: Path) -> None:
    next(table.glob("city=oslo/*.parquet")).unlink()


FILE = "{lake}/trips/.hoodie/hoodie.properties"
VERSIONS = (
    "lakesql reads and writes versions 6, 8 and 9. Bring the table to one of them with Hudi's upgrade_table or "
    "downgrade_table procedure on Spark."
)
LOST = (
    "{lake}/trips/city=oslo/{file}: commit {instant} names this file, and it is not there; its rows would be missing. "
    "Restore the file, or roll the commit back."
)
DAMAGED = {
    "version_5": (edited("version=9", "version=5"), Unsupported, f"{FILE}: table version 5. {VERSIONS}"),
    "version_7": (edited("version=9", "version=7"), Unsupported, f"{FILE}: table version 7. {VERSIONS}"),
    "version_10": (edited("version=9", "version=10"), Unsupported, f"{FILE}: table version 10. {VERSIONS}"),
    "no_number_as_version": (
        edited("table.version=9", "table.version=nine"),
        FormatError,
        f"{FILE}: hoodie.table.version is 'nine', expected a number. Restore the file.",
    ),
    "properties_missing": (
        lambda table: (table / ".hoodie/hoodie.properties").unlink(),
        TableError,
        "{lake}/trips: .hoodie/hoodie.properties is missing, and without it the table cannot be read safely. Restore "
        "the file.",
    ),
    "properties_garbage": (
        whole("\x01\x02 \\u12 garbage"),
        FormatError,
        f"{FILE}: '\\u' without four hexadecimal digits in '\\u12 garbage'. Restore the file.",
    ),
    "properties_empty": (
        whole(""),
        FormatError,
        f"{FILE}: hoodie.table.name is missing, so the table cannot be read safely. Restore the file or add the key.",
    ),
    "checksum_wrong": (
        edited("hoodie.table.name=trips", "hoodie.table.name=tripz"),
        FormatError,
        f"{FILE}: hoodie.table.checksum is 3761586722, but the database and table names in the file give 2582248070. "
        "The file was edited or damaged; restore it, or correct the names or the checksum.",
    ),
    "name_missing": (
        edited("hoodie.table.name=", "hoodie.table.nome="),
        FormatError,
        f"{FILE}: hoodie.table.name is missing, so the table cannot be read safely. Restore the file or add the key.",
    ),
    "type_missing": (
        edited("hoodie.table.type=", "hoodie.table.tipo="),
        FormatError,
        f"{FILE}: hoodie.table.type is missing, so the table cannot be read safely. Restore the file or add the key.",
    ),
    "type_unknown": (
        edited("COPY_ON_WRITE", "COPY"),
        FormatError,
        f"{FILE}: hoodie.table.type is 'COPY', expected one of COPY_ON_WRITE, MERGE_ON_READ. Restore the file.",
    ),
    "data_file_lost": (lost_data_file, TableError, LOST),
}
SQL_USES = (
    "SELECT * FROM trips",
    "SELECT * FROM hudi_scan('{lake}/trips')",
    "SELECT * FROM hudi_read_optimized('{lake}/trips')",
    "SELECT * FROM hudi_incremental('{lake}/trips', 'earliest')",
    "INSERT INTO trips VALUES (2, 1, NULL, NULL, 1, 'oslo')",
    "DELETE FROM trips WHERE id = 1",
    "UPDATE trips SET v = 2",
)
TABLE_USES: dict[str, Callable[[lakesql.Table], object]] = {
    "read": lambda t: t.read().read_all(),
    "read_optimized": lambda t: t.read(mode="read_optimized").read_all(),
    "changes": lambda t: t.changes("earliest").read_all(),
    "upsert": lambda t: t.upsert([GOOD]),
    "delete": lambda t: t.delete("id = 1"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_table_is_refused_in_sql(lake: Path, case: str) -> None:
    damage, kind, message = DAMAGED[case]
    damage(lake / "trips")
    with lakesql.connect(warehouse=str(lake)) as con:
        for sql in SQL_USES:
            assert refused(lake, lambda sql=sql: con.sql(sql.format(lake=lake)).fetchall()) == (kind, message), sql


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_table_is_refused_by_table(lake: Path, case: str) -> None:
    damage, kind, message = DAMAGED[case]
    table = lakesql.open_table(str(lake / "trips"))
    damage(lake / "trips")
    for name, use in TABLE_USES.items():
        assert refused(lake, lambda use=use: use(table)) == (kind, message), name
    if case != "data_file_lost":
        assert refused(lake, lambda: lakesql.open_table(table.path)) == (kind, message)


@pytest.mark.parametrize("folder", ["nothing", "absent"])
def test_path_without_a_table_is_refused(made: Path, con: lakesql.Connection, folder: str) -> None:
    message = (
        f"{{lake}}/{folder}: not a Hudi table, there is no .hoodie/hoodie.properties. "
        "Check the path, or create the table with CREATE TABLE ... USING hudi."
    )
    for sql in ("SELECT * FROM hudi_scan('{}')", "DELETE FROM hudi.`{}`", "SELECT * FROM hudi_timeline('{}')"):
        assert refused(made, lambda sql=sql: con.sql(sql.format(made / folder))) == (TableError, message)
    assert refused(made, lambda: lakesql.open_table(str(made / folder))) == (TableError, message)


UNWRITABLE = {
    "payload_class": (
        edited("EVENT_TIME_ORDERING", f"CUSTOM\nhoodie.compaction.payload.class={PAYLOAD}"),
        "rows merge by com.acme.LargestWins, which nobody has registered",
    ),
    "merge_mode": (edited("EVENT_TIME_ORDERING", "CUSTOM"), "rows merge by CUSTOM, which nobody has registered"),
    "partial_update": (
        added("hoodie.table.partial.update.mode=KEEP_VALUES"),
        "partial update mode KEEP_VALUES (hoodie.table.partial.update.mode) is unknown",
    ),
    "no_meta_columns": (
        added("hoodie.populate.meta.fields=false"),
        "rows are stored without their keys (hoodie.populate.meta.fields=false)",
    ),
    "change_data_capture": (
        added("hoodie.table.cdc.enabled=true"),
        "change data capture is on (hoodie.table.cdc.enabled=true) and a write without change files leaves a hole in it",
    ),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_table_that_merges_otherwise_is_not_written(lake: Path, case: str) -> None:
    damage, feature = UNWRITABLE[case]
    damage(lake / "trips")
    message = f"{{lake}}/trips: {feature}; lakesql reads this table and does not write to it. Write with Spark."
    with lakesql.connect(warehouse=str(lake)) as con:
        for sql in ("INSERT INTO trips VALUES (2, 1, NULL, NULL, 1, 'oslo')", "DELETE FROM trips"):
            assert refused(lake, lambda sql=sql: con.sql(sql)) == (Unsupported, message)
        assert con.execute("SELECT count(*) FROM trips").fetchall() == [(1,)]
    assert refused(lake, lambda: lakesql.open_table(str(lake / "trips")).upsert([GOOD])) == (Unsupported, message)


# ---------------------------------------------------------------- rows, with Table


TABLE = {
    "key_null": lambda t: t.upsert([GOOD | {"id": None}]),
    "key_missing": lambda t: t.upsert([{"v": 1, "city": "oslo"}]),
    "partition_missing": lambda t: t.upsert([{"id": 1, "v": 1}]),
    "text_in_bigint": lambda t: t.upsert([GOOD | {"v": "twelve"}]),
    "overflow": lambda t: t.upsert(
        pa.table({"id": [2], "city": ["oslo"], "v": pa.array([2**63], pa.uint64())}),
        **{"hoodie.datasource.write.reconcile.schema": "true"},
    ),
    "overflow_in_python": lambda t: t.upsert([GOOD | {"v": 2**64}]),
    "decimal": lambda t: t.upsert([GOOD | {"price": "123456.78"}]),
    "text_in_timestamp": lambda t: t.upsert([GOOD | {"at": "yesterday"}]),
    "struct_in_bigint": lambda t: t.upsert([GOOD | {"v": {"x": 1}}]),
    "column_unknown": lambda t: t.upsert([GOOD | {"colour": "red"}]),
    "mixed_types": lambda t: t.upsert([GOOD, GOOD | {"v": "twelve"}]),
    "no_rows_at_all": lambda t: t.upsert(7),
    "where_unknown_column": lambda t: t.delete("colour = 1"),
    "where_no_condition": lambda t: t.delete("id = = 1"),
    "read_where": lambda t: t.read(where="colour = 1"),
    "read_column": lambda t: t.read(columns=["colour"]),
    "read_mode": lambda t: t.read(mode="fast"),
    "as_of_no_time": lambda t: t.read(as_of="someday"),
    "changes_backwards": lambda t: t.changes("2025-01-01", "2024-01-01"),
    "changes_cdc": lambda t: t.changes("earliest", kind="cdc"),
    "changes_kind": lambda t: t.changes("earliest", kind="odd"),
}
SQL = {
    "key_null": "INSERT INTO trips VALUES (NULL, 1, NULL, NULL, 1, 'oslo')",
    "key_missing": "INSERT INTO trips (v, city) VALUES (1, 'oslo')",
    "partition_missing": "INSERT INTO trips (id, v) VALUES (1, 1)",
    "text_in_bigint": "INSERT INTO trips VALUES (2, 'twelve', NULL, NULL, 1, 'oslo')",
    "overflow": "INSERT INTO trips VALUES (2, 9223372036854775808, NULL, NULL, 1, 'oslo')",
    "decimal": "INSERT INTO trips VALUES (2, 1, 123456.78, NULL, 1, 'oslo')",
    "text_in_timestamp": "INSERT INTO trips VALUES (2, 1, NULL, 'yesterday', 1, 'oslo')",
    "column_unknown": "INSERT INTO trips (id, colour) VALUES (2, 'red')",
    "column_unknown_by_name": "INSERT INTO trips BY NAME SELECT 2 AS id, 'oslo' AS city, 'red' AS colour",
    "columns_too_few": "INSERT INTO trips VALUES (2, 1)",
    "static_partition_unknown": "INSERT OVERWRITE trips PARTITION (v = 1) SELECT 1",
    "update_text": "UPDATE trips SET v = 'twelve'",
    "update_overflow": "UPDATE trips SET v = 9223372036854775807 + v",
    "update_decimal": "UPDATE trips SET price = 123456.78",
    "update_timestamp": "UPDATE trips SET at = 'yesterday'",
    "update_unknown": "UPDATE trips SET colour = 1",
    "update_where": "UPDATE trips SET v = 1 WHERE colour = 1",
    "update_key": "UPDATE trips SET id = 3",
    "update_from": "UPDATE trips SET v = s.v FROM (SELECT 1 AS id, 2 AS v) s WHERE trips.id = s.id",
    "delete_unknown": "DELETE FROM trips WHERE colour = 1",
    "delete_using": "DELETE FROM trips USING (SELECT 1 AS id) s WHERE trips.id = s.id",
    "merge_two_for_one": "MERGE INTO trips t USING (VALUES (1, 5), (1, 6)) s(id, v) ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v",
    "merge_two_for_one_on_mor": "MERGE INTO calls t USING (VALUES (1, 5), (1, 6)) s(id, v) ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v",
    "merge_one_key_twice": "MERGE INTO trips t USING (VALUES (7, 'oslo'), (7, 'oslo')) s(id, city) ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT (id, city, ts) VALUES (s.id, s.city, 1)",
    "merge_key_null": "MERGE INTO trips t USING (VALUES (NULL, 'oslo')) s(id, city) ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT (id, city, ts) VALUES (s.id, s.city, 1)",
    "merge_without_key": "MERGE INTO trips t USING (VALUES (1, 5)) s(id, v) ON t.v = s.v WHEN MATCHED THEN DELETE",
    "merge_text": "MERGE INTO trips t USING (VALUES (1, 'twelve')) s(id, v) ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v",
    "merge_column_unknown": "MERGE INTO trips t USING (VALUES (1, 5)) s(id, v) ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET colour = s.v",
    "merge_source_column": "MERGE INTO trips t USING (VALUES (1, 5)) s(id, v) ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.colour",
    "merge_star": "MERGE INTO trips t USING (VALUES (1, 5)) s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
    "merge_source_absent": "MERGE INTO trips t USING nowhere s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "merge_odd_clause": "MERGE INTO trips t USING (VALUES (1)) s(id) ON t.id = s.id WHEN SOMETIMES THEN DELETE",
    "merge_without_clause": "MERGE INTO trips t USING (VALUES (1)) s(id) ON t.id = s.id",
    "on_conflict": "INSERT INTO trips VALUES (2, 1, NULL, NULL, 1, 'oslo') ON CONFLICT DO NOTHING",
    "alter": "ALTER TABLE trips ADD COLUMN x INT",
    "call": "CALL run_compaction(op => 'now', table => 'trips')",
    "as_of_no_time": "SELECT * FROM trips TIMESTAMP AS OF 'someday'",
    "version_no_instant": "SELECT * FROM trips VERSION AS OF 'abc'",
    "mode": "SELECT * FROM hudi_scan('trips', mode := 'fast')",
    "changes_no_begin": "SELECT * FROM hudi_incremental('trips')",
    "changes_backwards": "SELECT * FROM hudi_incremental('trips', '2025-01-01', '2024-01-01')",
    "changes_no_time": "SELECT * FROM hudi_incremental('trips', 'soon')",
    "changes_cdc": "SELECT * FROM hudi_table_changes('trips', 'cdc', 'earliest')",
    "changes_kind": "SELECT * FROM hudi_table_changes('trips', 'odd', 'earliest')",
    "staleness": "SELECT * FROM hudi_read_optimized('trips', max_staleness := 'soon')",
    "staleness_as_of": "SELECT * FROM hudi_read_optimized('trips', as_of := '2024-01-01', max_staleness := '1 hour')",
    "on_stale": "SELECT * FROM hudi_read_optimized('trips', on_stale := 'never')",
    "advice_reads": "SELECT * FROM hudi_advice('trips', reads_per_write := 'many')",
    "metadata": "SELECT * FROM hudi_metadata('trips')",
    "table_null": "SELECT * FROM hudi_scan(NULL)",
}
CREATE = {
    "payload_class": f"payloadClass = '{PAYLOAD}'",
    "merge_mode": "recordMergeMode = 'CUSTOM'",
    "merge_mode_unknown": "recordMergeMode = 'odd'",
    "merge_strategy": "recordMergeStrategyId = 'x'",
    "partial_update": "hoodie.table.partial.update.mode = 'KEEP_VALUES'",
    "event_time_without_field": "recordMergeMode = 'EVENT_TIME_ORDERING'",
    "type": "type = 'fast'",
    "property": "colour = 'red'",
    "key_column": "primaryKey = 'nope'",
    "ordering_column": "orderingFields = 'nope'",
    "cdc": "hoodie.table.cdc.enabled = 'true'",
    "version": "hoodie.write.table.version = '7'",
    "key_generator": "hoodie.table.keygenerator.type = 'ODD'",
    "table_format": "hoodie.table.format = 'iceberg'",
}
SETTINGS = {
    "hoodie.parquet.compression.codec": "brotli",
    "hoodie.parquet.max.file.size": "big",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.write.lock.wait_time_ms": "-1",
    "hoodie.datasource.insert.dup.policy": "maybe",
    "hoodie.table.timeline.timezone": "mars",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.index.bloom.fpp": "tiny",
    "hoodie.combine.before.insert": "yes",
}
SQL_SETTINGS = {
    "hoodie.spark.sql.insert.into.operation": "merge",
    "lakesql.merge.duplicates": "all",
    "lakesql.nope": "1",
    "hoodie.sql.insert.mode": "upsert",
}


@pytest.mark.parametrize("case", TABLE)
def test_table_method_refuses_bad_input(made: Path, case: str) -> None:
    table = lakesql.open_table(str(made / "trips"))
    assert refused(made, lambda: TABLE[case](table)) == MESSAGES[f"table {case}"]


@pytest.mark.parametrize("case", SQL)
def test_statement_refuses_bad_input(made: Path, con: lakesql.Connection, case: str) -> None:
    assert refused(made, lambda: con.sql(SQL[case]).fetchall()) == MESSAGES[f"sql {case}"]


@pytest.mark.parametrize("case", CREATE)
def test_refused_create_table_leaves_nothing(made: Path, con: lakesql.Connection, case: str) -> None:
    key = "" if "primaryKey" in CREATE[case] else ", primaryKey = 'id'"
    sql = f"CREATE TABLE fresh (id BIGINT, ts BIGINT) USING hudi TBLPROPERTIES ({CREATE[case]}{key})"
    assert refused(made, lambda: con.sql(sql)) == MESSAGES[f"create {case}"]


def test_refused_create_table_in_python_leaves_nothing(made: Path) -> None:
    def create(**options: object) -> None:
        lakesql.create_table(str(made / "fresh"), SCHEMA, primary_key=["id"], **options)

    payload = {"hoodie.compaction.payload.class": PAYLOAD}
    assert refused(made, lambda: create(properties=payload)) == MESSAGES["create payload_class"]
    assert refused(made, lambda: create(version=7)) == MESSAGES["create version"]


def test_create_table_refuses_what_is_left_of_a_table(lake: Path) -> None:
    (lake / "trips/.hoodie/hoodie.properties").unlink()
    assert refused(lake, lambda: lakesql.create_table(str(lake / "trips"), SCHEMA, primary_key=["id"])) == (
        TableError,
        "{lake}/trips: there is a folder .hoodie without hoodie.properties, what is left of a Hudi table. Restore the "
        "file, remove the folder, or choose another path.",
    )


@pytest.mark.parametrize("key", [*SETTINGS, *SQL_SETTINGS])
def test_set_refuses_a_value_it_does_not_know(made: Path, con: lakesql.Connection, key: str) -> None:
    def run() -> None:
        con.sql(f"SET {key} = '{(SETTINGS | SQL_SETTINGS)[key]}'")
        con.sql("INSERT INTO trips VALUES (2, 1, NULL, NULL, 1, 'oslo')")

    assert refused(made, run) == MESSAGES[f"setting {key}"]
    con.sql(f"RESET {key}")


@pytest.mark.parametrize("key", SETTINGS)
def test_table_method_refuses_a_setting_it_does_not_know(made: Path, key: str) -> None:
    table = lakesql.open_table(str(made / "trips"))
    assert refused(made, lambda: table.upsert([GOOD], **{key: SETTINGS[key]})) == MESSAGES[f"setting {key}"]


# ---------------------------------------------------------------- transactions and time


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("INSERT INTO trips VALUES (2, 1, NULL, NULL, 1, 'oslo')", "INSERT on a Hudi table"),
        ("DELETE FROM trips", "DELETE on a Hudi table"),
        ("TRUNCATE TABLE trips", "TRUNCATE on a Hudi table"),
        ("CREATE TABLE fresh (id BIGINT) USING hudi", "CREATE TABLE ... USING hudi"),
        ("DROP TABLE trips", "DROP TABLE of a Hudi table"),
    ],
)
def test_transaction_refuses_a_write_of_a_hudi_table(made: Path, con: lakesql.Connection, sql: str, what: str) -> None:
    con.begin()
    message = (
        f"{what} inside a transaction: each statement on a Hudi table is a commit of its own and ROLLBACK could not "
        "take it back. COMMIT or ROLLBACK first, then run the statement."
    )
    assert refused(made, lambda: con.sql(sql)) == (SQLError, message)
    con.rollback()


def test_time_before_the_first_commit_has_no_rows(made: Path, con: lakesql.Connection) -> None:
    assert con.sql("SELECT * FROM trips TIMESTAMP AS OF '2001-01-01'").fetchall() == []
    assert lakesql.open_table(str(made / "trips")).read(as_of="2001-01-01").read_all().num_rows == 0


def test_time_before_the_first_commit_of_a_table_that_stores_no_schema_is_refused(lake: Path) -> None:
    file = lake / "trips/.hoodie/hoodie.properties"
    file.write_text("".join(x for x in file.read_text().splitlines(True) if "create.schema" not in x))
    message = (
        "{lake}/trips: there was no table yet as of 20010101000000000; its first commit is {instant}. Give that "
        "instant or a later time."
    ).replace("20010101000000000", "{instant}")
    table = lakesql.open_table(str(lake / "trips"))
    assert refused(lake, lambda: table.read(as_of="2001-01-01")) == (TableError, message)
    with lakesql.connect(warehouse=str(lake)) as con:
        assert refused(lake, lambda: con.sql("FROM trips TIMESTAMP AS OF '2001-01-01'")) == (TableError, message)


def cleaned(lake: Path) -> tuple[str, str]:
    """Let `trips` look as if cleaning kept nothing older than its second commit; the instants of both commits."""
    table = lakesql.open_table(str(lake / "trips"))
    table.upsert([GOOD | {"id": 1, "v": 5, "ts": 5}])
    first, second = (i.requested for i in table.state.timeline.completed_writes())
    record = {
        "startCleanTime": second,
        "earliestCommitToRetain": second,
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 0,
        "lastCompletedCommitTimestamp": second,
        "partitionMetadata": {},
    }
    later = f"{int(second) + 1}"
    name = f".hoodie/timeline/{later}_{int(later) + 1}.clean"
    (lake / "trips" / name).write_bytes(encode_record("HoodieCleanMetadata", record))
    return first, second


def test_state_that_was_cleaned_away_is_refused_with_the_earliest_one_there_is(lake: Path) -> None:
    first, second = cleaned(lake)
    message = (
        "{lake}/trips: the state as of {instant} has been cleaned away. The earliest instant that can still be read is "
        "{instant}."
    )
    table = lakesql.open_table(str(lake / "trips"))
    assert refused(lake, lambda: table.read(as_of=first)) == (TableError, message)
    with lakesql.connect(warehouse=str(lake)) as con:
        assert refused(lake, lambda: con.sql(f"FROM trips VERSION AS OF {first}")) == (TableError, message)
        assert len(con.sql(f"FROM trips VERSION AS OF {second}").fetchall()) == 1
    completed = table.state.timeline.completion_of(first)
    message = (
        "{lake}/trips: the rows as of the end of the range have been cleaned away. The earliest end that can still be "
        "read is {instant}."
    )
    assert refused(lake, lambda: table.changes("earliest", completed)) == (TableError, message)


def test_range_that_begins_before_what_is_known_names_the_earliest_safe_start(lake: Path) -> None:
    table = lakesql.open_table(str(lake / "trips"))
    (first,) = table.state.timeline.completed_writes()
    table.upsert([GOOD | {"city": "rome"}])
    for file in (lake / "trips/.hoodie/timeline").glob(f"{first.requested}*"):
        file.unlink()
    safe = table.state.timeline.completion_of(table.state.timeline.completed_writes()[0].requested)
    message = (
        "{lake}/trips: commits after {instant} have left the timeline and its archive, so the changes since then are "
        "not known. The earliest safe start is {instant}; 'earliest' reads everything."
    )
    begin = "2001-01-01"
    assert refused(lake, lambda: table.changes(begin)) == (TableError, message)
    with lakesql.connect(warehouse=str(lake)) as con, pytest.raises(TableError, match=f"safe start is {safe};"):
        con.sql(f"FROM hudi_incremental('trips', '{begin}')")
    assert table.changes(safe).read_all().num_rows == 0
