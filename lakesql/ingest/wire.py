"""Frames of messages: which schema wrote each record, and where its payload lies; all records of a batch at once.

    confluent   00 | id, 4 bytes big-endian | payload (v0);  01 | GUID, 16 bytes | payload (v1), or either of them in a
                header `__value_schema_id` and the bare payload as value (R39, R40)
    linkedin    00 | id, 16 bytes, an MD5 | payload (R38)
    none        payload (R41)

The first byte cannot tell the two registries apart, so the wire format comes from the job. What has no frame is a bad
record of stage 'frame'. Nothing is decoded here, and no registry is asked.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.counted import counted
from lakesql.errors import JobError
from lakesql.format.words import U8, Bytes, Positions, at

WIRES = ("confluent", "linkedin", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Payloads of one binary column.

    data          bytes of the column's buffer
    start, stop   where the payload of each row lies in `data`; of a bad row anything
    schema        number of each row's schema in `ids`; -1: a bad row
    ids           ids as texts: '7', a GUID with dashes, 32 hexadecimal digits; '' without a frame
    bad, reasons  rows without a frame, ascending, and why
    """

    data: Bytes
    start: Positions
    stop: Positions
    schema: npt.NDArray[np.int64]
    ids: tuple[str, ...]
    bad: Positions
    reasons: tuple[str, ...]

    def groups(self) -> Iterator[tuple[str, Positions]]:
        """(schema id, its rows, ascending)."""
        if not len(self.bad) and len(self.ids) == 1:
            yield self.ids[0], np.arange(len(self.start))
            return
        for number, one in enumerate(self.ids):
            rows = np.flatnonzero(self.schema == number)
            if len(rows):
                yield one, rows

    def payloads(self, rows: Positions) -> pa.Array:
        """The payloads of these rows as a binary column."""
        slots = np.empty(2 * len(rows) + 1, np.int32)
        slots[0:-1:2], slots[1::2] = self.start[rows], self.stop[rows]
        slots[-1] = slots[-2] if len(rows) else 0
        whole = pa.Array.from_buffers(pa.binary(), 2 * len(rows), [None, pa.py_buffer(slots), pa.py_buffer(self.data)])
        return whole.take(pa.array(np.arange(0, 2 * len(rows), 2)))


def spans(values: pa.Array) -> tuple[Bytes, Positions, Positions]:
    """(bytes, starts, stops) of a binary or string column; a NULL is empty."""
    _, offsets, data = values.buffers()
    first = values.offset
    edges = np.zeros(1, np.int64)
    if offsets is not None:
        edges = np.frombuffer(offsets, np.int32)[first : first + len(values) + 1].astype(np.int64)
    raw = np.frombuffer(data, U8) if data is not None and data.size else np.empty(0, U8)
    return raw, edges[:-1], edges[1:]


def frames(values: pa.Array, headers: pa.Array | None, wire: str, part: str = "value") -> Frames:
    """The frames of a binary column without NULLs; `part` is 'value' or 'key'."""
    if wire not in WIRES:
        raise JobError(f"wire format {wire!r}: use one of {', '.join(WIRES)}.")
    raw, start, stop = spans(values)
    n = len(start)
    if wire == "none":
        return Frames(raw, start, stop, np.zeros(n, np.int64), ("",), np.empty(0, np.int64), ())
    if n and int(start.max()) + 17 > len(raw):
        raw = np.concatenate([raw, np.zeros(17, U8)])  # room to look at the frame of the last record
    magic, size = raw[start], stop - start
    md5 = wire == "linkedin"
    zero = (magic == 0) & (size >= 1)
    one = (magic == 1) & (size >= 17) & (not md5)
    v0 = zero & (size >= (17 if md5 else 5))
    width = np.where(one, 17, 17 if md5 else 5)
    source: Bytes = raw
    where = start + 1
    in_header = np.zeros(n, np.bool_)
    if not md5 and headers is not None:
        source, where, in_header, v0, one = _from_headers(raw, where, v0, one, headers, part)
    good = v0 | one
    schema, ids = _ids(source, where, v0, one, md5)
    bad = np.flatnonzero(~good)
    reasons = tuple(_reason(wire, int(magic[r]), int(size[r]), bool(in_header[r]), part) for r in bad.tolist())
    return Frames(raw, np.where(in_header | ~good, start, start + width), stop, schema, ids, bad, reasons)


def _from_headers(
    raw: Bytes, where: Positions, v0: npt.NDArray[np.bool_], one: npt.NDArray[np.bool_], headers: pa.Array, part: str
) -> tuple[Bytes, Positions, npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Ids that come in a header; the last header of the name counts."""
    n = len(where)
    entries = headers.flatten()
    named = pc.fill_null(pc.equal(entries.field("key"), f"__{part}_schema_id"), False)
    found = np.flatnonzero(named.to_numpy(zero_copy_only=False))
    in_header = np.zeros(n, np.bool_)
    if not len(found):
        return raw, where, in_header, v0, one
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(n), counts)[found]
    last = np.append(rows[1:] != rows[:-1], True)
    found, rows = found[last], rows[last]
    ids = pc.fill_null(entries.field("value").take(pa.array(found)), b"")
    data, start, stop = spans(ids)
    source = np.concatenate([raw, data, np.zeros(32, U8)])
    start = start + len(raw)
    kind, size = source[start], stop - (start - len(raw))
    in_header[rows] = True
    v0, one, where = v0.copy(), one.copy(), where.copy()
    v0[rows] = (kind == 0) & (size == 5)
    one[rows] = (kind == 1) & (size == 17)
    where[rows] = start + 1
    return source, where, in_header, v0, one


def _ids(
    source: Bytes, where: Positions, v0: npt.NDArray[np.bool_], one: npt.NDArray[np.bool_], md5: bool
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The number of each row's id, and the ids as texts."""
    schema = np.full(len(where), -1, np.int64)
    ids: list[str] = []
    for rows, width in ((np.flatnonzero(v0), 16 if md5 else 4), (np.flatnonzero(one), 16)):
        if not len(rows):
            continue
        found = at(source, width)[where[rows]]
        if (found == found[0]).all():
            kinds, inverse = found[:1], np.zeros(len(rows), np.int64)
        else:
            kind = ">u4" if width == 4 else [("high", ">u8"), ("low", ">u8")]
            numbers = np.ascontiguousarray(found).view(kind)
            _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
            kinds = found[first]
        schema[rows] = inverse + len(ids)
        ids += [_text(k.tobytes(), md5) for k in kinds]
    return schema, tuple(ids)


def _text(data: bytes, md5: bool) -> str:
    if len(data) == 4:
        return str(int.from_bytes(data, "big"))
    return data.hex() if md5 else str(uuid.UUID(bytes=data))


def _reason(wire: str, magic: int, size: int, in_header: bool, part: str) -> str:
    if in_header:
        return f"header __{part}_schema_id is neither 00 and 4 bytes of id nor 01 and 16 bytes of GUID"
    expected = "00 and 16 bytes of id" if wire == "linkedin" else "00 and 4 bytes of id"
    if not size:
        return f"an empty {part}; expected {expected}"
    if magic != 0 and not (magic == 1 and wire == "confluent"):
        return f"first byte {magic:02x}; expected {expected}. Is the wire format {wire}?"
    return f"a {part} of {counted(size, 'byte')}; expected {expected} and the record"
