"""Key generators: the SQL text gives exactly the keys and paths that Hudi on Spark wrote."""

import datetime
import decimal

import duckdb
import pyarrow as pa
import pytest

from lakesql.errors import TableError, Unsupported
from lakesql.format.config import TableConfig, new_table_properties
from lakesql.format.properties import format_properties
from lakesql.table.key_times import strftime_pattern
from lakesql.table.keys import (
    BARE,
    PREFIXED,
    default_style,
    partition_path_sql,
    record_key_sql,
    styled,
    value_text_sql,
)

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("ts", pa.timestamp("us", "UTC")),
     ("n", pa.int32()), ("nested", pa.struct([("id", pa.string())]))]
)  # fmt: skip


def config(keys=("id",), partitions=(), version=9, hive=True, encode=False, **extra):
    properties = new_table_properties(
        name="t", table_type="COPY_ON_WRITE", version=version, record_key_fields=keys, partition_fields=partitions,
        ordering_fields=(), merge_mode="COMMIT_TIME_ORDERING", schema_json="{}", hive_style=hive, url_encode=encode,
        extra={k.replace("__", "."): v for k, v in extra.items()},
    )  # fmt: skip
    return TableConfig.from_text(format_properties(properties, "#test"), "test")


def evaluate(expression, **columns):
    values = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    return duckdb.sql(f"SELECT {expression} FROM (SELECT {values or '1 AS one'})").fetchall()[0][0]


def text_of(sql_value, kind):
    return evaluate(value_text_sql("x", kind, "column x"), x=sql_value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1.5", "1.5"), ("0.1", "0.1"), ("3", "3.0"), ("1e10", "1.0E10"), ("1e-5", "1.0E-5"), ("1.25e10", "1.25E10"),
     ("-1.5e-4", "-1.5E-4"), ("0.001", "0.001"), ("9999999.5", "9999999.5"), ("1e7", "1.0E7"),
     ("123456789.5", "1.234567895E8"),
     ("1e22", "1.0E22"), ("1e-300", "1.0E-300"), ("2.5e-300", "2.5E-300"), ("-0.0", "-0.0"), ("0", "0.0"),
     ("nan", "NaN"),
     ("-inf", "-Infinity"), ("1e16", "1.0E16"), ("-1e100", "-1.0E100"), ("0.00012", "1.2E-4")],
)  # fmt: skip
def test_doubles_are_spelt_as_java_does(value, expected):
    assert text_of(f"'{value}'::DOUBLE", pa.float64()) == expected


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [("1.5", (10, 2), "1.50"), ("-1", (10, 2), "-1.00"), ("0", (10, 2), "0.00"), ("0", (38, 10), "0E-10"),
     ("0.0000000001", (38, 10), "1E-10"), ("-0.0000001234", (20, 10), "-1.234E-7"),
     ("0.000001", (20, 10), "0.0000010000"),
     ("-12345678901234567890.5", (38, 10), "-12345678901234567890.5000000000"), ("7", (5, 0), "7")],
)  # fmt: skip
def test_decimals_are_spelt_as_java_does(value, type_, expected):
    assert text_of(f"'{value}'::DECIMAL{type_}", pa.decimal128(*type_)) == expected


def test_other_key_values_are_spelt_as_hudi_does():
    assert text_of("DATE '1969-12-31'", pa.date32()) == "1969-12-31"
    assert text_of("TIMESTAMPTZ '2024-01-15 10:30:00+00'", pa.timestamp("us", "UTC")) == "1705314600000000"
    assert text_of("TIMESTAMP '1969-12-31 23:59:59.999999'", pa.timestamp("us")) == "-1"
    assert text_of("true", pa.bool_()) == "true"
    assert text_of("from_hex('00ff')", pa.binary()) == "00ff"
    assert text_of("-7", pa.int32()) == "-7"


def test_nested_types_cannot_be_keys():
    with pytest.raises(
        Unsupported, match=r"column x has type list<.*> .*cannot be part of a key|which cannot be part of a key"
    ):
        value_text_sql("x", pa.list_(pa.int32()), "column x")


def test_single_key_is_the_bare_value_and_null_or_empty_is_no_key():
    simple = record_key_sql(config(), SCHEMA)
    assert evaluate(simple, id="3") == "3"
    assert evaluate(simple, id="NULL") is None
    assert evaluate(record_key_sql(config(keys=("name",)), SCHEMA), name="''") is None


def test_complex_key_names_its_fields_and_marks_null_and_empty():
    key = record_key_sql(config(keys=("name", "day")), SCHEMA)
    assert evaluate(key, name="'a:b,c'", day="DATE '2024-01-01'") == "name:a:b,c,day:2024-01-01"
    assert evaluate(key, name="''", day="DATE '2024-01-01'") == "name:__empty__,day:2024-01-01"
    assert evaluate(key, name="'x'", day="NULL::DATE") == "name:x,day:__null__"
    assert evaluate(key, name="''", day="NULL::DATE") is None


def test_single_field_complex_key_is_spelt_in_either_style():
    table = config(partitions=("name", "n"))
    assert styled(table)
    assert evaluate(record_key_sql(table, SCHEMA, BARE), id="3") == "3"
    assert evaluate(record_key_sql(table, SCHEMA, PREFIXED), id="3") == "id:3"


def test_first_key_of_a_single_field_complex_table_follows_the_releases_of_its_version():
    assert default_style(config(partitions=("name", "n"), version=9)) == PREFIXED
    assert default_style(config(partitions=("name", "n"), version=6)) == BARE
    stored = config(partitions=("name", "n"), hoodie__table__complex__keygen__encoding="VALUE_ONLY")
    assert default_style(stored) == BARE


def test_key_inside_a_struct():
    assert evaluate(record_key_sql(config(keys=("nested.id",)), SCHEMA), nested="{'id': 'x'}") == "x"


def test_missing_key_column_is_named():
    with pytest.raises(TableError, match="record key column gone is not in the table schema"):
        record_key_sql(config(keys=("gone",)), SCHEMA)
    with pytest.raises(TableError, match=r"record key column nested\.gone"):
        record_key_sql(config(keys=("nested.gone",)), SCHEMA)


def test_table_without_key_columns_has_no_computed_key():
    with pytest.raises(TableError, match="its keys are generated"):
        record_key_sql(config(keys=()), SCHEMA)


def test_unknown_key_generator_is_refused_by_name():
    with pytest.raises(Unsupported, match="key generator SPARK_SQL_UUID is not supported"):
        partition_path_sql(config(partitions=("n",), hoodie__table__keygenerator__type="SPARK_SQL_UUID"), SCHEMA)


def test_unpartitioned_table_has_the_empty_path():
    assert evaluate(partition_path_sql(config(), SCHEMA)) == ""


def test_partition_path_with_and_without_hive_style():
    assert (
        evaluate(partition_path_sql(config(partitions=("name", "n")), SCHEMA), name="'ünï'", n="-7") == "name=ünï/n=-7"
    )
    assert evaluate(partition_path_sql(config(partitions=("n",), hive=False), SCHEMA), n="10") == "10"


def test_null_and_empty_partition_values_share_the_hive_default():
    path = partition_path_sql(config(partitions=("name",)), SCHEMA)
    assert evaluate(path, name="NULL::VARCHAR") == "name=__HIVE_DEFAULT_PARTITION__"
    assert evaluate(path, name="''") == "name=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("são paulo/x", "são paulo%2Fx"), ("new york: ny", "new york%3A ny"), ("a=b%20c", "a%3Db%2520c"),
     ("x,;&+ y", "x,;&+ y"), ("[]{}^\\", "%5B%5D%7B}%5E%5C"), ("\t\x7f", "%09%7F")],
)  # fmt: skip
def test_url_encoding_is_hives_and_not_rfc_3986(value, expected):
    path = partition_path_sql(config(partitions=("name",), encode=True), SCHEMA)
    assert evaluate(path, name=f"'{value}'") == f"name={expected}"


def test_date_partitions_separated_by_slashes():
    table = config(
        partitions=("day",), hive=False, hoodie__datasource__write__slash__separated__date__partitioning="true"
    )
    assert evaluate(partition_path_sql(table, SCHEMA), day="DATE '2026-06-28'") == "2026/06/28"


def timestamp_table(kind, output, partitions=("ts",), hive=False, **more):
    options = {
        "hoodie__keygen__timebased__timestamp__type": kind,
        "hoodie__keygen__timebased__output__dateformat": output,
    }
    options |= {f"hoodie__keygen__timebased__{k}": v for k, v in more.items()}
    return config(partitions=partitions, hive=hive, hoodie__table__keygenerator__type="TIMESTAMP", **options)


def test_timestamp_generator_formats_epoch_numbers():
    numbers = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    seconds = timestamp_table("SCALAR", "yyyy/MM/dd", timestamp__scalar__time__unit="seconds")
    assert evaluate(partition_path_sql(seconds, numbers), ts="1700000000") == "2023/11/14"
    millis = timestamp_table("EPOCHMILLISECONDS", "yyyy-MM-dd/HH", hive=True)
    assert evaluate(partition_path_sql(millis, numbers), ts="1700000000000") == "ts=2023-11-14/22"
    assert evaluate(partition_path_sql(millis, numbers), ts="NULL::BIGINT") == "ts=1970-01-01/00"
    micros = timestamp_table("EPOCHMICROSECONDS", "yyyy", output__timezone="Asia/Tokyo")
    assert evaluate(partition_path_sql(micros, SCHEMA), ts="TIMESTAMPTZ '2023-12-31 23:00:00+00'") == "2024"


def test_timestamp_generator_without_stored_type_is_scalar_when_it_has_a_unit():
    table = config(
        partitions=("n",), hive=False, hoodie__table__keygenerator__type="TIMESTAMP",
        hoodie__keygen__timebased__timestamp__scalar__time__unit="days",
        hoodie__keygen__timebased__output__dateformat="yyyy/MM/dd",
    )  # fmt: skip
    assert evaluate(partition_path_sql(table, SCHEMA), n="19675") == "2023/11/14"


def test_timestamp_generator_parses_texts_by_the_first_pattern_that_fits():
    options = {"input__dateformat": "yyyy-MM-dd'T'HH:mm:ss.SSSZ,yyyy-MM-dd"}
    table = timestamp_table("DATE_STRING", "yyyy/MM/dd/HH", partitions=("name",), **options)
    path = partition_path_sql(table, SCHEMA)
    assert evaluate(path, name="'2024-01-18T16:30:00.123Z'") == "2024/01/18/16"
    assert evaluate(path, name="'2024-01-18T16:30:00.123+0100'") == "2024/01/18/16"
    assert evaluate(path, name="'2024-01-18'") == "2024/01/18/00"
    assert evaluate(path, name="NULL::VARCHAR") == "1970/01/01/00"
    with pytest.raises(duckdb.Error, match=r"no input pattern of .* fits yesterday"):
        evaluate(path, name="'yesterday'")


def test_timestamp_generator_without_its_options_is_refused():
    table = config(partitions=("n",), hoodie__table__keygenerator__type="TIMESTAMP")
    with pytest.raises(Unsupported, match=r"needs hoodie\.keygen\.timebased\.output\.dateformat"):
        partition_path_sql(table, SCHEMA)


def test_time_patterns_translate_or_are_refused():
    assert strftime_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS'%'", "x") == "%Y-%m-%dT%H:%M:%S.%g%%"
    with pytest.raises(Unsupported, match="token 'Q'"):
        strftime_pattern("yyyy-Q", "column x")


def test_custom_generator_mixes_simple_and_timestamp_parts():
    table = config(keys=("id",), partitions=("name:SIMPLE", "n:TIMESTAMP"))
    options = {
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd/HH",
    }
    path = partition_path_sql(table, SCHEMA, options)
    assert evaluate(path, name="'a/b=c'", n="-3600") == "name=a/b=c/n=1969-12-31/23"
    assert evaluate(record_key_sql(table, SCHEMA), id="5") == "5"


def test_custom_generator_of_version_6_needs_the_types_from_the_job():
    table = config(partitions=("name", "n"), version=6, hoodie__table__keygenerator__type="CUSTOM")
    with pytest.raises(Unsupported, match=r"Set hoodie\.datasource\.write\.partitionpath\.field"):
        partition_path_sql(table, SCHEMA)
    options = {"hoodie.datasource.write.partitionpath.field": "name:SIMPLE,n:SIMPLE"}
    assert evaluate(partition_path_sql(table, SCHEMA, options), name="'x'", n="1") == "name=x/n=1"


def test_logical_timestamp_keys_are_refused():
    options = {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}
    with pytest.raises(Unsupported, match="lakesql writes timestamps as numbers only"):
        record_key_sql(config(keys=("ts",)), SCHEMA, None, options)


def test_keys_of_a_column_are_computed_for_a_whole_batch():
    days = pa.table({"name": ["a", None], "day": [datetime.date(2024, 1, 1)] * 2, "d": [decimal.Decimal("1.50")] * 2})
    con = duckdb.connect()
    con.register("days", days)
    rows = con.sql(f"SELECT {record_key_sql(config(keys=('name', 'day')), SCHEMA)} FROM days").fetchall()
    assert rows == [("name:a,day:2024-01-01",), ("name:__null__,day:2024-01-01",)]
