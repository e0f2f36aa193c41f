"""Rows in a log that say of themselves that they are deletes, as a reader takes them."""

import pyarrow as pa
import pytest

import lakesql
from lakesql.write import batch

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("Op", pa.string())])
DMS = "org.apache.hudi.common.model.AWSDmsAvroPayload"


@pytest.mark.parametrize(("version", "left"), [(6, ["c"]), (8, ["c"]), (9, ["a", "c"])])
def test_marker_of_the_dms_class_is_compared_in_any_case_before_version_9(tmp_path, monkeypatch, version, left):
    table = lakesql.create_table(
        str(tmp_path / "t"),
        SCHEMA,
        type="mor",
        primary_key=["id"],
        ordering_fields=["ts"],
        version=version,
        properties={"hoodie.compaction.payload.class": DMS},
    )
    table.upsert([{"id": key, "ts": 1, "Op": "I"} for key in "abc"])
    monkeypatch.setattr(batch, "_marked_sql", lambda *_: None)  # our writer makes delete records of them
    table.upsert([{"id": key, "ts": 2, "Op": op} for key, op in zip("abc", "dDU", strict=True)])
    assert sorted(table.read(columns=["id"]).read_all()["id"].to_pylist()) == left
