"""Numbers of a batch by partition, and batches cut by work unit."""

import pyarrow as pa
import pytest

from lakesql.ingest.model import RAW, TopicPartition
from lakesql.ingest.tally import Tally, counts, joined, split, tally

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def batch(*rows):
    """Rows of topic, partition, offset, timestamp, key, value."""
    names = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_value")
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) | {"_timestamp_type": None, "_headers": None} for row in rows], schema=RAW
    )


MIXED = batch(
    ("a", 0, 5, 100, b"k", b"12345"),
    ("b", 0, 1, None, None, None),
    ("a", 1, 9, 30, None, b"1"),
    ("a", 0, 7, 90, b"kk", b""),
    ("a", 1, 8, 40, None, b"22"),
)


def test_each_partition_has_its_rows_bytes_offsets_and_times():
    assert {one.at: one for one in tally(MIXED, late_before_ms=95)} == {
        A0: Tally(A0, 2, 8, 5, 7, True, 100, 90, 90, 1),
        A1: Tally(A1, 2, 3, 9, 8, False, 40, 40, 30, 2),
        B0: Tally(B0, 1, 0, 1, 1, True, None, None),
    }


def test_an_empty_batch_has_no_partitions():
    assert tally(MIXED.slice(0, 0)) == []
    assert counts(pa.Table.from_batches([MIXED.slice(0, 0)])) == {}


@pytest.mark.parametrize("start", [0, 1, 3])
def test_a_slice_of_a_batch_counts_its_own_rows(start):
    assert sum(one.rows for one in tally(MIXED.slice(start))) == 5 - start


def test_rows_of_a_table_are_counted_whatever_the_chunks_and_dictionaries():
    other = batch(("b", 0, 2, 1, None, None), ("c", 3, 2, 1, None, None))
    table = pa.Table.from_batches([MIXED, other])
    expected = {A0: 2, A1: 2, B0: 2, TopicPartition("c", 3): 1}
    assert counts(table) == expected
    plain = table.set_column(0, "_topic", table["_topic"].cast(pa.string()))
    assert counts(plain) == expected


def test_a_batch_is_cut_by_unit_with_rows_in_their_order():
    parts = split(MIXED, {A0: 1, A1: 1, B0: 2})
    assert {number: part["_offset"].to_pylist() for number, part in parts.items()} == {1: [5, 9, 7, 8], 2: [1]}
    assert split(MIXED, {A0: 3, A1: 3, B0: 3})[3] is MIXED


def test_batches_become_one_with_one_dictionary():
    other = batch(("c", 0, 1, 1, None, b"x"))
    whole = joined([MIXED, other, MIXED.slice(0, 0)])
    assert whole.num_rows == 6
    assert whole["_topic"].to_pylist() == ["a", "b", "a", "a", "a", "c"]
    assert joined([MIXED.slice(0, 0)]).num_rows == 0
