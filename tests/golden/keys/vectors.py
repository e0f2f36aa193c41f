"""Makes `vectors.json`: record keys, partition paths and bucket numbers as Apache Hudi 1.2.0 on Spark computes them.

Run in the Spark environment; pyspark and the Hudi bundle are all it needs:

    .venv-spark/bin/python tests/golden/keys/vectors.py .venv-spark/jars/hudi-spark3.5-bundle_2.12-1.2.0.jar

`written` are the meta columns of rows that Spark wrote (DataFrame writer, upsert); `computed` are answers of the key
generator classes to one Avro record, an error's first line where they refuse it; `buckets` those of BucketIdentifier.
"""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

COLUMNS = {
    "s": "string", "i": "int", "l": "bigint", "f": "float", "d": "double", "b": "boolean", "day": "date",
    "at": "timestamp", "m": "decimal(10,2)", "t": "decimal(38,10)", "w": "decimal(5,0)", "x": "binary",
}  # fmt: skip
ROWS = [
    ("'plain'", "1", "9007199254740993", "1.5", "1.5", "true", "DATE'2024-02-29'", "TIMESTAMP'2024-01-15 10:30:00'",
     "1.5", "0.5", "7", "X'00FF'"),
    ("'a:b,c'", "-7", "-1", "0.1", "0.1", "false", "DATE'1969-12-31'", "TIMESTAMP'1969-12-31 23:59:59.999999'",
     "-1", "0", "0", "X''"),
    ("'a/b=c d%20'", "0", "0", "1e10", "1e10", "null", "DATE'0001-01-01'", "TIMESTAMP'1970-01-01 00:00:00'",
     "0", "1e-10", "-3", "X'41'"),
    ("'s\u00e3o \u6771\u4eac \U0001f600'", "2147483647", "9223372036854775807", "1e-5", "1e-5", "true",
     "DATE'9999-12-31'", "TIMESTAMP'2262-04-11 23:47:16.854775'", "99999999.99", "-12345678901234567890.5", "99999",
     "X'C3A3'"),
    ("'[]{}^\\\\#?*\"'", "-2147483648", "-9223372036854775808", "3.4028235e38", "1.7976931348623157e308", "false",
     "DATE'1582-10-15'", "TIMESTAMP'0001-01-01 00:00:00'", "-0.01", "-0.0000001234", "1", "X'7F'"),
    ("null", "null", "null", "null", "null", "null", "null", "null", "null", "null", "null", "null"),
    ("''", "5", "5", "1.4e-45", "4.9e-324", "true", "DATE'2000-01-01'", "TIMESTAMP'2000-01-01 00:00:00.5'", "0.10",
     "100", "10", "X'20'"),
    ("' lead'", "6", "6", "16777216", "9999999.5", "true", "DATE'2000-01-02'", "TIMESTAMP'2000-01-01 00:00:00.000001'",
     "12.34", "0.000001", "11", "X'0A'"),
    ("'tail '", "7", "7", "0.001", "0.001", "true", "DATE'2000-01-03'", "TIMESTAMP'2000-01-02 00:00:00'", "0.01",
     "0.0000009999", "12", "X'2F'"),
    ("'__null__'", "8", "8", "9999999", "1e7", "true", "DATE'2000-01-04'", "TIMESTAMP'2000-01-03 00:00:00'", "0.02",
     "1", "13", "X'3A'"),
    ("'-'", "9", "9", "1.17549435e-38", "2.2250738585072014e-308", "true", "DATE'2000-01-05'",
     "TIMESTAMP'2000-01-04 00:00:00'", "0.03", "2", "14", "X'2C'"),
    ("'x'", "10", "10", "double('NaN')", "double('NaN')", "true", "DATE'2000-01-06'", "TIMESTAMP'2000-01-05 00:00:00'",
     "0.04", "3", "15", "X'2E'"),
    ("'y'", "11", "11", "double('-Infinity')", "double('Infinity')", "true", "DATE'2000-01-07'",
     "TIMESTAMP'2000-01-06 00:00:00'", "0.05", "4", "16", "X'3D'"),
    ("'z'", "12", "12", "-0.0", "-0.0", "true", "DATE'2000-01-08'", "TIMESTAMP'2000-01-07 00:00:00'", "0.06", "5",
     "17", "X'25'"),
    ("'dbl'", "13", "13", "2.0e-3", "2.0e-3", "true", "DATE'2000-01-09'", "TIMESTAMP'2000-01-08 00:00:00'", "0.07",
     "6", "18", "X'25'"),
    ("'dbm'", "14", "14", "1.0e23", "1.0e23", "true", "DATE'2000-01-10'", "TIMESTAMP'2000-01-09 00:00:00'", "0.08",
     "7", "19", "X'25'"),
    ("'dbn'", "15", "15", "2.0e-45", "2.2e-322", "true", "DATE'2000-01-11'", "TIMESTAMP'2000-01-10 00:00:00'", "0.09",
     "8", "20", "X'25'"),
    ("'dbo'", "16", "16", "8.41E21", "2.0E-323", "true", "DATE'2000-01-12'", "TIMESTAMP'2000-01-11 00:00:00'", "0.11",
     "9", "21", "X'25'"),
]  # fmt: skip
PREFIX = "hoodie.keygen.timebased."
KEYGEN = "org.apache.hudi.keygen."
WRITES = [
    {"name": "every type in the key", "generator": "COMPLEX", "class": "ComplexKeyGenerator",
     "key": list(COLUMNS), "partition": []},
    {"name": "every type in the path", "generator": "COMPLEX", "class": "ComplexKeyGenerator",
     "key": ["i", "l"], "partition": ["i", "l", "f", "d", "b", "day", "at", "m", "t", "w"]},
    {"name": "binary and text in an encoded path", "generator": "COMPLEX", "class": "ComplexKeyGenerator",
     "key": ["i", "l"], "partition": ["s", "f"], "hive": "true", "encode": "true"},
]  # fmt: skip


def time_cases():
    """(options by suffix, Avro type of the column, values)."""

    def case(type_, output, values, avro="long", **more):
        options = {"timestamp.type": type_, "output.dateformat": output}
        options |= {k.replace("__", "."): v for k, v in more.items()}
        return options, avro, values

    numbers = [0, -1, 1700000000, 1, None]
    yield case("UNIX_TIMESTAMP", "yyyy/MM/dd", numbers)
    yield case("UNIX_TIMESTAMP", "yyyy-MM-dd HH:mm:ss", [1700000000, -1, None], "int")
    yield case("UNIX_TIMESTAMP", "yyyyMMddHH", [1700000000.9, -1.5], "double")
    yield case("UNIX_TIMESTAMP", "yyyyMMddHH", [1700000000.0], "float")
    yield case("EPOCHMILLISECONDS", "yyyy-MM-dd/HH", [1700000000123, -1, 0, None])
    yield case("EPOCHMILLISECONDS", "yyyy-MM-dd'T'HH:mm:ss.SSS", [1700000000123, -1])
    yield case("EPOCHMICROSECONDS", "yyyy-MM-dd HH:mm:ss.SSS", [1700000000123456, -1, -1001, None])
    for unit in ("days", "HOURS", "minutes", "SECONDS", "MILLISECONDS", "microseconds", "nanoseconds"):
        yield case(
            "SCALAR", "yyyy-MM-dd HH:mm:ss.SSS", [19675, -1, -1999999, 0, None], timestamp__scalar__time__unit=unit
        )
    yield case("SCALAR", "yyyy/MM/dd", [1700000000])
    for zone in ("GMT+8:00", "GMT+8", "Asia/Tokyo", "America/New_York", "UTC", "GMT-5:30", "+05:30", "EST", "PST"):
        yield case("UNIX_TIMESTAMP", "yyyy-MM-dd HH:mm", [1700000000, 1720000000], timezone=zone)
        yield case("EPOCHMILLISECONDS", "yyyy-MM-dd HH:mm", [1700000000000], output__timezone=zone)
    for pattern in (
        "yy",
        "yyyy-DDD",
        "MMM d",
        "MMMM",
        "EEE",
        "EEEE",
        "E",
        "hh a",
        "h:m:s",
        "xxxx-'W'ww",
        "YYYY",
        "e",
        "yyyyMMdd'/'HH",
        "yyyy''MM",
        "S",
        "SS",
        "kk",
        "KK",
        "k",
        "Z",
        "ZZ",
        "G",
        "C",
        "y",
        "M",
        "D",
        "yyyy/'month='MM/'day='dd",
        "YYYY-MM-dd",
        "D/H",
        "SSSSSS",
        "uuuu",
        "w",
        "z",
    ):
        yield case("EPOCHMILLISECONDS", pattern, [1704067205007, 1720000000123, -1])
    text = ["2024-01-18T16:30:00.123Z", "2024-01-18T16:30:00.123+0100", "2024-01-18", "yesterday", "", None]
    yield case(
        "DATE_STRING", "yyyy/MM/dd/HH", text, "string", input__dateformat="yyyy-MM-dd'T'HH:mm:ss.SSSZ,yyyy-MM-dd"
    )
    yield case(
        "DATE_STRING",
        "yyyy/MM/dd/HH",
        text[:4],
        "string",
        input__dateformat="yyyy-MM-dd'T'HH:mm:ss.SSSZ|yyyy-MM-dd",
        input__dateformat__list__delimiter__regex="\\|",
        output__timezone="Asia/Tokyo",
    )
    yield case(
        "DATE_STRING",
        "yyyy-MM-dd HH",
        ["2024-01-18 23", "2024-1-8 3", "2024-07-18 02"],
        "string",
        input__dateformat="yyyy-MM-dd HH",
        input__timezone="America/New_York",
        output__timezone="UTC",
    )
    yield case(
        "DATE_STRING",
        "yyyy-MM-dd HH",
        ["2024-01-18 23"],
        "string",
        input__dateformat="yyyy-MM-dd HH",
        timezone="Asia/Tokyo",
    )
    yield case(
        "DATE_STRING",
        "yyyy-MM-dd HH",
        ["2024-01-18 23"],
        "string",
        input__dateformat="yyyy-MM-dd HH",
        input__timezone="Asia/Tokyo",
    )
    yield case(
        "DATE_STRING",
        "yyyy-MM-dd HH",
        ["2024-01-18T23:00:00+02:00", "2024-01-18T23:00:00Z"],
        "string",
        input__dateformat="yyyy-MM-dd'T'HH:mm:ssZZ",
    )
    yield case(
        "DATE_STRING",
        "yyyy-MM-dd HH",
        ["2024-01-18T23:00:00+02:00"],
        "string",
        input__dateformat="yyyy-MM-dd'T'HH:mm:ssZ",
        timezone="Asia/Tokyo",
    )
    yield case(
        "DATE_STRING",
        "yyyyMMdd",
        ["20240118", "2024", "18/01/24", "Jan 5 2024"],
        "string",
        input__dateformat="yyyyMMdd,dd/MM/yy,MMM d yyyy",
    )
    yield case("MIXED", "yyyy-MM-dd HH", ["2024-01-18 23", None], "string", input__dateformat="yyyy-MM-dd HH")
    yield case("MIXED", "yyyy-MM-dd HH", [1700000000123, 5], "long", input__dateformat="yyyy-MM-dd HH")
    yield case("DATE_STRING", "yyyy-MM-dd HH", [1700000000123], "long", input__dateformat="yyyy-MM-dd HH")
    for type_ in ("UNIX_TIMESTAMP", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS"):
        yield case(
            type_, "yyyy-MM-dd HH:mm:ss", [1700000000123456], {"type": "long", "logicalType": "timestamp-micros"}
        )
        yield case(type_, "yyyy-MM-dd HH:mm:ss", [1700000000123], {"type": "long", "logicalType": "timestamp-millis"})
        yield case(type_, "yyyy-MM-dd HH:mm:ss", [19675], {"type": "int", "logicalType": "date"})
    yield case(
        "SCALAR", "yyyy-MM-dd", [19675], {"type": "int", "logicalType": "date"}, timestamp__scalar__time__unit="days"
    )
    both = {"timezone": "Asia/Tokyo", "output__timezone": "America/New_York", "input__timezone": "UTC"}
    yield case("UNIX_TIMESTAMP", "yyyy-MM-dd HH", [1700000000], **both)
    yield case("DATE_STRING", "yyyy-MM-dd HH", ["2024-01-18 23"], "string", input__dateformat="yyyy-MM-dd HH", **both)
    for zones in (
        {},
        {"input__timezone": "Asia/Tokyo"},
        {"output__timezone": "Asia/Tokyo"},
        {"timezone": "Asia/Tokyo"},
        {"input__timezone": "America/New_York", "output__timezone": "Asia/Tokyo"},
    ):
        yield case(
            "DATE_STRING", "yyyy-MM-dd HH", [None, "2024-01-18"], "string", input__dateformat="yyyy-MM-dd", **zones
        )
        yield case(
            "DATE_STRING",
            "yyyy-MM-dd HH",
            [None, "2024-01-18T23:00+0530"],
            "string",
            input__dateformat="yyyy-MM-dd'T'HH:mmZ",
            **zones,
        )
    yield case("UNIX_TIMESTAMP", "yyyy-MM-dd HH", ["1700000000"], "string")
    yield case("UNIX_TIMESTAMP", "yyyy-MM-dd HH", [True], "boolean")


def start(jar):
    builder = SparkSession.builder.master("local[2]").appName("vectors")
    settings = {
        "spark.jars": jar, "spark.driver.extraClassPath": jar, "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseSerialGC",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED", "spark.ui.enabled": "false",
    }  # fmt: skip
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def written(session, write):
    rows = ROWS if write["name"].startswith("every type in the key") else [r for r in ROWS if r[1] != "null"]
    casts = [
        ", ".join(f"CAST({v} AS {t}) AS {c}" for v, (c, t) in zip(row, COLUMNS.items(), strict=True)) for row in rows
    ]
    if write["name"] == "every type in the key":
        casts = [c for c, row in zip(casts, rows, strict=True) if row[0] != "null"] + [
            ", ".join(f"CAST({'1' if c == 'i' else 'null'} AS {t}) AS {c}" for c, t in COLUMNS.items())
        ]
    frame = session.sql(" UNION ALL ".join(f"SELECT {c}" for c in casts))
    path = tempfile.mkdtemp(prefix="vectors-") + "/t"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": ",".join(write["key"]),
        "hoodie.datasource.write.partitionpath.field": ",".join(write["partition"]),
        "hoodie.datasource.write.keygenerator.class": KEYGEN + write["class"] if write["partition"] else KEYGEN + "NonpartitionedKeyGenerator",
        "hoodie.datasource.write.hive_style_partitioning": write.get("hive", "false"),
        "hoodie.datasource.write.partitionpath.urlencode": write.get("encode", "false"),
        "hoodie.datasource.write.operation": "upsert", "hoodie.metadata.enable": "false",
    }  # fmt: skip
    frame.write.format("hudi").options(**options).mode("append").save(path)
    back = Path(path).rglob("*.parquet")
    files = [str(p) for p in back if not p.name.startswith(".")]
    read = session.read.option("basePath", path).parquet(*files)
    special = {"binary": "hex({})", "timestamp": "unix_micros({})", "date": "unix_date({})"}
    texts = ", ".join(f"CAST({special.get(t, '{}').format(c)} AS STRING) AS {c}" for c, t in COLUMNS.items())
    read.createOrReplaceTempView("v")
    found = session.sql(f"SELECT _hoodie_record_key AS k, _hoodie_partition_path AS p, {texts} FROM v").collect()
    stored = dict(
        line.split("=", 1) for line in Path(path, ".hoodie/hoodie.properties").read_text().splitlines() if "=" in line
    )
    return {
        "write": write,
        "properties": {k: stored[k] for k in sorted(stored) if "key" in k or "partition" in k},
        "rows": [row.asDict() for row in found],
    }


class Oracle:
    def __init__(self, session):
        self.jvm = session._jvm
        self.loader = session.sparkContext._jsc.sc().getClass().getClassLoader()

    def record(self, avro, value):
        schema = json.dumps(
            {
                "type": "record",
                "name": "r",
                "fields": [{"name": "c", "type": ["null", avro]}, {"name": "id", "type": "string"}],
            }
        )
        parsed = self.jvm.org.apache.avro.Schema.Parser().parse(schema)
        name = avro if isinstance(avro, str) else avro["type"]
        text = json.dumps({"c": None if value is None else {name: value}, "id": "1"})
        decoder = self.jvm.org.apache.avro.io.DecoderFactory.get().jsonDecoder(parsed, text)
        return self.jvm.org.apache.avro.generic.GenericDatumReader(parsed).read(None, decoder)

    def properties(self, options):
        properties = self.jvm.org.apache.hudi.common.config.TypedProperties()
        for key, value in options.items():
            properties.put(key, value)
        return properties

    def path(self, options, avro, value):
        try:
            generator = self.jvm.org.apache.hudi.keygen.TimestampBasedAvroKeyGenerator(self.properties(options))
            return {"path": generator.getKey(self.record(avro, value)).getPartitionPath()}
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            return {"error": next((line.strip()[:160] for line in lines if "Exception" in line), lines[0][:160])}


def computed(session):
    oracle = Oracle(session)
    for options, avro, values in time_cases():
        full = {PREFIX + k: v for k, v in options.items()}
        given = full | {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "c",
        }
        yield {"options": full, "avro": avro, "values": [[v, oracle.path(given, avro, v)] for v in values]}


def slashes(session):
    oracle = Oracle(session)
    for encode in ("false", "true"):
        for hive in ("false", "true"):
            options = {
                "hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "c",
                "hoodie.datasource.write.slash.separated.date.partitioning": "true",
                "hoodie.datasource.write.hive_style_partitioning": hive,
                "hoodie.datasource.write.partitionpath.urlencode": encode,
            }  # fmt: skip
            for value in ("2024-01-18", "a-b", "", None, "2024/01/18", "2024-1-8", "2024-01-18 10:00:00"):
                try:
                    generator = oracle.jvm.org.apache.hudi.keygen.SimpleAvroKeyGenerator(oracle.properties(options))
                    answer = {"path": generator.getKey(oracle.record("string", value)).getPartitionPath()}
                except Exception as error:
                    answer = {"error": str(error).splitlines()[-1][:160]}
                yield {"hive": hive, "encode": encode, "value": value, **answer}


FIELDS = {"a": "string", "b": "string", "n": "long", "p": "string", "t": "long"}
RECORDS = [("x", "y", 1, "p/1 =", 1700000000), ("", "y", 0, "", 0), (None, None, 5, None, None), (None, "", 5, "q", 1),
           ("", "", None, "q", 1), (None, "z", None, "q", 1)]  # fmt: skip
GENERATORS = [
    ("SimpleAvroKeyGenerator", "a", "p"), ("ComplexAvroKeyGenerator", "a", "p"), ("ComplexAvroKeyGenerator", "a", "p,n"),
    ("ComplexAvroKeyGenerator", "a,b", "p"), ("ComplexAvroKeyGenerator", "b,a,n", "n,p"), ("NonpartitionedAvroKeyGenerator", "a", ""),
    ("NonpartitionedAvroKeyGenerator", "a,b", ""), ("GlobalAvroDeleteKeyGenerator", "a", ""), ("GlobalAvroDeleteKeyGenerator", "a,b", ""),
    ("CustomAvroKeyGenerator", "a", "p:SIMPLE,t:TIMESTAMP"), ("CustomAvroKeyGenerator", "a,b", "t:TIMESTAMP"), ("CustomAvroKeyGenerator", "a,b", ""),
    ("CustomAvroKeyGenerator", "n", "p:simple"), ("TimestampBasedAvroKeyGenerator", "a", "t"), ("SimpleAvroKeyGenerator", "n", "n"),
]  # fmt: skip


def generators(session):
    oracle = Oracle(session)
    fields = [{"name": n, "type": ["null", t]} for n, t in FIELDS.items()]
    schema = oracle.jvm.org.apache.avro.Schema.Parser().parse(
        json.dumps({"type": "record", "name": "r", "fields": fields})
    )
    for name, key, partition in GENERATORS:
        for hive, encode, new in (("false", "false", "false"), ("true", "true", "false"), ("false", "false", "true")):
            options = {
                "hoodie.datasource.write.recordkey.field": key, "hoodie.datasource.write.partitionpath.field": partition,
                "hoodie.datasource.write.hive_style_partitioning": hive,
                "hoodie.datasource.write.partitionpath.urlencode": encode,
                "hoodie.write.complex.keygen.new.encoding": new,
                PREFIX + "timestamp.type": "UNIX_TIMESTAMP", PREFIX + "output.dateformat": "yyyy/MM/dd",
            }  # fmt: skip
            rows = []
            for row in RECORDS:
                text = json.dumps(
                    {n: None if v is None else {t: v} for (n, t), v in zip(FIELDS.items(), row, strict=True)}
                )
                decoder = oracle.jvm.org.apache.avro.io.DecoderFactory.get().jsonDecoder(schema, text)
                record = oracle.jvm.org.apache.avro.generic.GenericDatumReader(schema).read(None, decoder)
                try:
                    found = getattr(oracle.jvm.org.apache.hudi.keygen, name)(oracle.properties(options)).getKey(record)
                    rows.append([row, found.getRecordKey(), found.getPartitionPath()])
                except Exception as error:
                    rows.append([row, {"error": str(error).splitlines()[1][:120]}, None])
            yield {
                "generator": name,
                "key": key,
                "partition": partition,
                "hive": hive,
                "encode": encode,
                "new": new,
                "rows": rows,
            }


KEYS = [
    "a",
    "",
    "plain",
    "s\u00e3o \u6771\u4eac \U0001f600",
    "id:3",
    "id:3,name:x",
    "name:a:b,c,day:2024-01-01",
    "-7",
    "2147483648",
    "k1:a,k2:__null__",
    "k1:__empty__,k2:x",
    "abc" * 40,
    *[f"key{i}" for i in range(40)],
]


def buckets(session):
    jvm = session._jvm
    identifier = jvm.org.apache.hudi.index.bucket.BucketIdentifier
    fields = ["id", "name", "id,name", "k1,k2", "k2", "name,day", "day", "k2,k1"]
    for key in KEYS:
        for field in fields:
            if ":" not in key and field != "id":
                continue
            for n in (1, 4, 7, 256):
                try:
                    answer = identifier.getBucketId(key, field, n)
                except Exception as error:
                    answer = str(error).splitlines()[-1][:100]
                yield [key, field, n, answer]


def attempt(name, work):
    try:
        return work()
    except Exception as error:  # one part that fails must not lose the others
        print(name, "failed:", error, file=sys.stderr)
        return None


def main(jar):
    session = start(jar)
    result = {
        "buckets": attempt("buckets", lambda: list(buckets(session))),
        "computed": attempt("computed", lambda: list(computed(session))),
        "generators": attempt("generators", lambda: list(generators(session))),
        "slashes": attempt("slashes", lambda: list(slashes(session))),
        "written": [attempt(w["name"], lambda w=w: written(session, w)) for w in WRITES],
    }
    text = json.dumps(result, ensure_ascii=False, indent=None)
    Path(__file__).with_name("vectors.json").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
