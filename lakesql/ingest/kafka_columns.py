"""Messages of the client library to RAW columns.

Here is the only loop over records in Python: one pass of the list for each column, each a method of the message.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakesql.ingest.model import RAW, TIME_MAX_MS

_KINDS = ("create", "log_append")
_HEADERS = RAW.field("_headers").type


def raw_batch(
    messages: Sequence[Any],
    topics: pa.Array,
    codes: npt.NDArray[np.int32],
    partitions: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
) -> pa.RecordBatch:
    """One row for each message. `codes` number the topics; they and the numbers have been taken out already."""
    from confluent_kafka import Message

    count = len(messages)
    times = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count).reshape(count, 2)
    unknown = (times[:, 0] == 0) | (np.abs(times[:, 1] + 0.0) > TIME_MAX_MS)
    return pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(codes), topics),
            pa.array(partitions),
            pa.array(offsets),
            pa.array(np.ascontiguousarray(times[:, 1]), mask=unknown).cast(RAW.field("_timestamp").type),
            pa.DictionaryArray.from_arrays(
                pa.array((times[:, 0] - 1).astype(np.int8), mask=unknown), pa.array(_KINDS, pa.string())
            ),
            pa.array(list(map(Message.key, messages)), pa.binary()),
            _headers(list(map(Message.headers, messages))),
            pa.array(list(map(Message.value, messages)), pa.binary()),
        ],
        schema=RAW,
    )


def empty_batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=RAW)


def _headers(lists: list[Any]) -> pa.Array:
    """A list of (key, value) for each record, NULL where there is none."""
    if not any(lists):
        return pa.nulls(len(lists), _HEADERS)
    lengths = np.fromiter((len(one or ()) for one in lists), np.int32, len(lists))
    pairs = list(chain.from_iterable(filter(None, lists)))
    entries = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in pairs], pa.string()), pa.array([value for _, value in pairs], pa.binary())],
        fields=list(_HEADERS.value_type),
    )
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(ends), entries, type=_HEADERS, mask=pa.array(lengths == 0))
