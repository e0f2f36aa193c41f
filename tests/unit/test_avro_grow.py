"""The Avro schema of a table with the fields that rows have more inside its columns."""

import pyarrow as pa
import pytest

from lakesql.errors import TableError, Unsupported
from lakesql.format.avro import arrow_schema
from lakesql.format.avro_grow import grown, lacking

POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int", "doc": "across"}]}


def table(**columns: object) -> dict[str, object]:
    return {
        "type": "record",
        "name": "r",
        "namespace": "n",
        "fields": [{"name": n, "type": t} for n, t in columns.items()],
    }


def point(**more: pa.DataType) -> pa.DataType:
    return pa.struct([("x", pa.int32()), *more.items()])


def test_a_record_that_is_used_twice_grows_in_both_places():
    before = table(a=POINT, b=["null", {"type": "array", "items": "n.Point"}], c="string")
    after = grown(before, pa.schema([("b", pa.list_(point(y=pa.int64())))]))
    kinds = arrow_schema(after)
    assert [f.name for f in kinds.field("a").type] == [f.name for f in kinds.field("b").type.value_type] == ["x", "y"]
    assert after["fields"][0]["type"]["fields"] == [
        *POINT["fields"],
        {"name": "y", "type": ["null", "long"], "default": None},
    ]
    assert len(POINT["fields"]) == 1


def test_new_records_are_named_after_their_place():
    after = grown(table(a=POINT), pa.schema([("A", point(in_=point()))]))
    new = after["fields"][0]["type"]["fields"][1]["type"][1]
    assert (new["name"], new["namespace"]) == ("in_", "n.Point")
    assert [f["type"] for f in new["fields"]] == [["null", "int"]]


@pytest.mark.parametrize(
    "kind",
    [point(), pa.string(), point(nothing=pa.null()), pa.list_(point(y=pa.int32())), pa.struct([("X", pa.int64())])],
)
def test_what_has_nothing_more_leaves_the_schema_alone(kind):
    assert grown(table(a=POINT), pa.schema([("a", kind)])) is None
    assert not list(lacking(kind, point(), "a"))


def test_a_union_of_several_types_does_not_grow_and_lacks_the_field():
    avro = table(a=["null", "string", POINT])
    assert grown(avro, pa.schema([("a", pa.struct([("member0", pa.string()), ("member2", pa.int32())]))])) is None
    kind = arrow_schema(avro).field("a").type
    assert list(lacking(pa.struct([("member2", pa.int32())]), kind, "a")) == ["a.member2"]


def test_names_and_types_that_avro_does_not_have_are_refused():
    with pytest.raises(TableError, match=r"'a\.1y'"):
        grown(table(a=POINT), pa.schema([("a", point(**{"1y": pa.int32()}))]))
    with pytest.raises(Unsupported, match=r"'a\.y'"):
        grown(table(a=POINT), pa.schema([("a", point(y=pa.uint64()))]))
