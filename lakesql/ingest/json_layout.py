"""JSON documents that look alike, decoded side by side with numpy and Arrow.

One program writes its documents with the same keys in the same order, so most of their bytes are the same. A `Layout` is
learned from one document: literal runs of bytes, and between them the slots of scalar values. Where the double quotes of a
document are says where its runs must be; when all of them are there byte by byte, the slots are all that is left.

    {"id":  7  ,"ts":  1700000000  ,"name":"  Ann  "}
    run    slot run    slot         run      slot  run

A document that has no layout, or a value that is anything but plain, is left to the query over all documents
(`decode_json`), so here is nothing about errors: what is taken is exactly what the query would give. Not taken: backslashes
and control characters, numbers with an exponent or of very many digits, lists, maps, times, decimals, bytes.

For 1M documents of 100 bytes: 0.25 s of processor time; the query takes 0.55 s.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.format.words import FRONT, Mask, Positions, Window, window
from lakesql.ingest.decoded import Rows
from lakesql.ingest.json_types import Column, Type

LAYOUTS = 16
"""So many layouts are kept; documents beyond are left to the query."""
PIECE_BYTES = 1 << 20
"""So many bytes of documents are looked at together: what is made of them stays in the cache of a core."""
PIECE_ROWS, PIECE_BYTES_MOST = 1000, 16 << 20
"""But so many documents, for which each column is worth a call, as long as they are not larger than this."""
_TRIES = 4
"""Documents of a piece from which a layout is learned, at most."""
_DOUBTS = 3
"""After so many batches of which less than a half was taken, no more is tried."""

_INTEGERS = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
}
_FLOATS = {"FLOAT": pa.float32(), "DOUBLE": pa.float64()}
_DIGITS_MAX, _FLOAT_MAX = 18, 30  # what is longer is not plain

_SPACE = re.compile(rb" *")
_STRING = re.compile(rb'"([^"\\\x00-\x1f]*)"')
_BARE = re.compile(rb"true|false|null|-?[0-9][0-9.eE+-]*")

U8s = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place of a scalar: the keys that lead to it, and whether it stands between double quotes."""

    path: tuple[str, ...]
    text: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which documents look.

    runs     the literal bytes; one more than slots
    quotes   how many double quotes a document has
    anchors  for each run: (number of the first quote that lies in it, where in it), None: it has none and is the last
    objects  the paths of objects below the document
    """

    runs: tuple[bytes, ...]
    slots: tuple[_Slot, ...]
    quotes: int
    anchors: tuple[tuple[int, int] | None, ...]
    objects: frozenset[tuple[str, ...]]


def plain(columns: Sequence[Column]) -> bool:
    """Whether columns of these types can be had by layouts."""
    return all(_plain_type(c.type) for c in columns)


def _plain_type(t: Type) -> bool:
    if t.kind == "struct":
        return all(_plain_type(c) for c in t.children)
    return t.kind in ("text", "boolean") or t.sql in _INTEGERS or t.sql in _FLOATS


class Alike:
    """The layouts that one decoder has met in the documents of these columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._layouts: list[Layout] = []
        self._doubts = 0

    @property
    def tried(self) -> bool:
        """Whether documents are alike often enough to try."""
        return self._doubts < _DOUBTS

    def decode(self, texts: pa.Array) -> tuple[pa.Table, Rows] | None:
        """The columns of those documents that are taken, and which these are; None: of none. `texts` are UTF-8 and have no
        NULLs."""
        bounds = _offsets(texts) if len(texts) else np.zeros(1, np.int64)
        size = int(bounds[-1] - bounds[0])
        if not size:
            return None
        tables, taken = [], []
        few, many = (max(1, len(texts) * most // size) for most in (PIECE_BYTES, PIECE_BYTES_MOST))
        step = max(few, min(many, PIECE_ROWS))
        for low in range(0, len(texts), step):
            piece = _Piece(texts.buffers()[2], bounds[low : low + step + 1])
            for table, rows in self._piece(piece):
                tables.append(table)
                taken.append(rows + low)
        found = sum(len(rows) for rows in taken)
        self._doubts = 0 if 2 * found >= len(texts) else self._doubts + 1
        if not found:
            return None
        table, rows = pa.concat_tables(tables), np.concatenate(taken)
        if len(taken) > 1 and not bool((rows[1:] > rows[:-1]).all()):
            order = np.argsort(rows, kind="stable")
            table, rows = table.take(pa.array(order)), rows[order]
        return table, rows

    def _piece(self, piece: "_Piece") -> Iterator[tuple[pa.Table, Rows]]:
        tries = 0
        number = 0
        while len(piece.left):
            if number == len(self._layouts):
                if tries == _TRIES or number == LAYOUTS:
                    return
                tries += 1
                layout = learned(piece.document(int(piece.left[0])))
                if layout is None or layout in self._layouts:
                    piece.left = piece.left[1:]
                    continue
                self._layouts.append(layout)
            found = piece.taken(self._layouts[number])
            number += 1
            if found is not None:
                rows, slots = found
                table, fine = self._table(piece, self._layouts[number - 1], slots, len(rows))
                if not fine.all():
                    table, rows = table.filter(pa.array(fine)), rows[fine]
                if len(rows):
                    yield table, rows

    # ------------------------------------------------------------ values
    def _table(
        self, piece: "_Piece", layout: Layout, slots: Sequence[tuple[Positions, Positions]], count: int
    ) -> tuple[pa.Table, Mask]:
        """The columns of documents with these slots, and for which of them every value is plain."""
        places = {slot.path: (slot.text, *where) for slot, where in zip(layout.slots, slots, strict=True)}
        fine, used = np.ones(count, np.bool_), set[tuple[str, ...]]()

        def value(t: Type, path: tuple[str, ...]) -> pa.Array:
            if t.kind == "struct":
                if path in layout.objects:
                    children = [value(c, (*path, n)) for n, c in zip(t.names, t.children, strict=True)]
                    return pa.StructArray.from_arrays(children, list(t.names))
                used.add(path)
                fine[:] = fine & _nothing(piece, places, path)
                return pa.nulls(count, _arrow(t))
            if path in layout.objects:
                fine[:] = False
            if path not in places:
                return pa.nulls(count, _arrow(t))
            text, start, stop = places[path]
            used.add(path)
            texts = piece.texts(start, stop)
            if t.kind == "text":
                if text:
                    return texts
                fine[:] = fine & _is(texts, "null")
                return pa.nulls(count, pa.string())
            if text:
                fine[:] = False
                return pa.nulls(count, _arrow(t))
            array, good = _booleans(texts) if t.kind == "boolean" else _numbers(texts, t)
            fine[:] = fine & good
            return array

        columns = [value(c.type, (c.name,)) for c in self._columns]
        for slot in layout.slots:
            if not slot.text and slot.path in places.keys() - used:
                fine[:] = fine & _scalars(piece.texts(*places[slot.path][1:]))
        return pa.table(columns, names=[c.name for c in self._columns]), fine


class _Piece:
    """Documents next to each other, where their double quotes are, and which of them nobody has taken yet."""

    def __init__(self, data: pa.Buffer, bounds: Positions) -> None:
        self._first = int(bounds[0])
        raw = np.frombuffer(data, np.uint8, int(bounds[-1]) - self._first, self._first)
        self._window: Window = window(raw, "JSON documents")
        self._buffer = pa.py_buffer(self._window.raw)
        self._start = bounds[:-1] - self._first + FRONT
        self._stop = bounds[1:] - self._first + FRONT
        self._quotes = np.flatnonzero(self._window.raw == ord('"'))
        cuts = np.searchsorted(self._quotes, np.append(self._start, self._window.end))
        self._quote, self._count = cuts[:-1], np.diff(cuts)
        self.left = np.arange(len(self._start))
        odd = raw < ord(" ")
        odd |= raw == ord("\\")
        if odd.any():
            where = np.flatnonzero(odd) + FRONT
            clean = np.ones(len(self._start), np.bool_)
            clean[np.searchsorted(self._start, where, "right") - 1] = False
            self.left = np.flatnonzero(clean)

    def document(self, row: int) -> bytes:
        return self._window.raw[self._start[row] : self._stop[row]].tobytes()

    def taken(self, layout: Layout) -> tuple[Rows, list[tuple[Positions, Positions]]] | None:
        """The documents that look like this, which are left no longer, and where their slots begin and end."""
        rows = self.left
        same = self._count[rows] == layout.quotes
        if not same.all():
            rows = rows[same]
        if not len(rows):
            return None
        everything = len(rows) == len(self._start)
        start, stop, quote = (a if everything else a[rows] for a in (self._start, self._stop, self._quote))
        begins = []
        for run, anchor in zip(layout.runs, layout.anchors, strict=True):
            begin = stop - len(run) if anchor is None else self._quotes[quote + anchor[0]] - anchor[1]
            begins.append(begin)
        alike = begins[0] == start
        alike &= begins[-1] + len(layout.runs[-1]) == stop
        for (begin, after), run, slot in zip(pairwise(begins), layout.runs, layout.slots, strict=False):
            alike &= begin + (len(run) if slot.text else len(run) + 1) <= after
        for begin, run in zip(begins, layout.runs, strict=True):
            if not alike.any():
                return None
            alike &= self._has(begin if alike.all() else np.where(alike, begin, FRONT), run)
        if not alike.any():
            return None
        slots = [(begin + len(run), after) for (begin, after), run in zip(pairwise(begins), layout.runs, strict=False)]
        if alike.all():
            self.left = self.left[~same] if len(rows) < len(self.left) else rows[:0]
            return rows, slots
        rows = rows[alike]
        self.left = np.setdiff1d(self.left, rows, assume_unique=True)
        return rows, [(a[alike], b[alike]) for a, b in slots]

    def _has(self, begin: Positions, run: bytes) -> Mask:
        """Where the bytes of a run begin at these positions."""
        same = np.ones(len(begin), np.bool_)
        for at in range(0, len(run), 8):
            part = run[at : at + 8]
            words = self._window.words[begin + at]
            if len(part) < 8:
                words = words & np.uint64((1 << 8 * len(part)) - 1)
            same &= words == np.uint64(int.from_bytes(part, "little"))
        return same

    def texts(self, start: Positions, stop: Positions) -> pa.Array:
        """The bytes between these positions, which ascend, as texts."""
        count = len(start)
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2], offsets[1::2] = start, stop
        between = pa.Array.from_buffers(pa.string(), 2 * count - 1, [None, pa.py_buffer(offsets), self._buffer])
        return pc.take(between, _evens(count), boundscheck=False)


@lru_cache(4)
def _evens(count: int) -> pa.Array:
    return pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))


# ---------------------------------------------------------------- one document
def learned(document: bytes) -> Layout | None:
    """The layout of a document; None when it has lists, keys twice, or is not plain."""
    runs, slots, objects, seen = list[bytes](), list[_Slot](), set[tuple[str, ...]](), set[tuple[str, ...]]()
    path: list[str] = []
    begin = at = 0

    def skip(at: int) -> int:
        return _SPACE.match(document, at).end()  # type: ignore[union-attr]

    if not document.startswith(b"{"):
        return None
    at = skip(1)
    while True:  # at a key
        key = _STRING.match(document, at)
        if key is None:
            return None
        here = (*path, key[1].decode())
        if here in seen:
            return None
        seen.add(here)
        at = skip(key.end())
        if document[at : at + 1] != b":":
            return None
        at = skip(at + 1)
        if document[at : at + 1] == b"{":
            objects.add(here)
            path.append(here[-1])
            at = skip(at + 1)
            continue
        text, bare = _STRING.match(document, at), _BARE.match(document, at)
        if text is not None:
            runs.append(document[begin : at + 1])
            begin, at = text.end() - 1, text.end()
        elif bare is not None:
            runs.append(document[begin:at])
            begin = at = bare.end()
        else:
            return None
        slots.append(_Slot(here, text is not None))
        at = skip(at)
        while document[at : at + 1] == b"}" and path:
            path.pop()
            at = skip(at + 1)
        if document[at : at + 1] == b"}":
            break
        if document[at : at + 1] != b",":
            return None
        at = skip(at + 1)
    if at + 1 != len(document):
        return None
    runs.append(document[begin:])
    anchors, quotes = list[tuple[int, int] | None](), 0
    for run in runs:
        anchors.append((quotes, run.index(b'"')) if b'"' in run else None)
        quotes += run.count(b'"')
    return Layout(tuple(runs), tuple(slots), quotes, tuple(anchors), frozenset(objects))


# ---------------------------------------------------------------- values
def _arrow(t: Type) -> pa.DataType:
    if t.kind == "struct":
        return pa.struct([pa.field(n, _arrow(c)) for n, c in zip(t.names, t.children, strict=True)])
    if t.kind == "text":
        return pa.string()
    return pa.bool_() if t.kind == "boolean" else _INTEGERS.get(t.sql) or _FLOATS[t.sql]


def _offsets(texts: pa.Array) -> Positions:
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)


def _is(texts: pa.Array, word: str) -> Mask:
    return np.asarray(pc.equal(texts, word).to_numpy(zero_copy_only=False))


def _nothing(
    piece: _Piece, places: dict[tuple[str, ...], tuple[bool, Positions, Positions]], path: tuple[str, ...]
) -> Mask | bool:
    """Which documents have null, or no such key, where an object is wanted."""
    if path not in places:
        return True
    text, start, stop = places[path]
    return False if text else _is(piece.texts(start, stop), "null")


def _scalars(texts: pa.Array) -> Mask:
    """Which texts are plain scalars, whatever they are."""
    good = _plain_numbers(texts, False)
    return good if good.all() else good | _booleans(texts)[1]


def _booleans(texts: pa.Array) -> tuple[pa.Array, Mask]:
    yes, no, null = (_is(texts, word) for word in ("true", "false", "null"))
    return pa.array(yes, mask=null), yes | no | null


def _numbers(texts: pa.Array, t: Type) -> tuple[pa.Array, Mask]:
    """The numbers that these texts are in JSON, and which of them are plain."""
    whole = t.sql in _INTEGERS
    good = _plain_numbers(texts, whole)
    if not good.all():
        null = _is(texts, "null")
        texts = pc.if_else(pa.array(good), texts, pa.scalar(None, pa.string()))
        good |= null
    if not whole:
        array = texts.cast(pa.float64())
        if t.sql == "FLOAT":
            array = array.cast(pa.float32(), safe=False)
        return array, good & np.asarray(pc.fill_null(pc.is_finite(array), True).to_numpy(zero_copy_only=False))
    array, kind = texts.cast(pa.int64()), _INTEGERS[t.sql]
    if kind != pa.int64():
        limits = np.iinfo(kind.to_pandas_dtype())
        fits = pc.and_(
            pc.greater_equal(array, max(int(limits.min), -(2**63))),
            pc.less_equal(array, min(int(limits.max), 2**63 - 1)),
        )
        good &= np.asarray(pc.fill_null(fits, True).to_numpy(zero_copy_only=False))
        array = pc.if_else(fits, array, pa.scalar(None, pa.int64())).cast(kind)
    return array, good


def _plain_numbers(texts: pa.Array, whole: bool) -> Mask:
    """Which texts are numbers as JSON writes them: a sign, digits without a leading zero, unless `whole` a point and
    digits. Not -0, which is no integer to everyone."""
    bounds = _offsets(texts)
    raw = np.frombuffer(texts.buffers()[2], np.uint8, int(bounds[-1]))
    start, stop = bounds[:-1], bounds[1:]
    size = stop - start
    good = size <= (_DIGITS_MAX if whole else _FLOAT_MAX)
    digit = (raw - np.uint8(48)) < 10
    minus = raw[start] == ord("-")
    at = np.minimum(start + minus, stop - 1)
    good &= digit[at] & digit[stop - 1]
    zero = raw[at] == ord("0")
    if zero.any():
        after = np.minimum(at + 1, stop - 1)
        alone = (at + 1 == stop) & ~minus
        good &= ~zero | alone | ((raw[after] == ord(".")) if not whole else False)
    others = np.flatnonzero(~digit)
    if len(others):
        rows = np.searchsorted(start, others, "right") - 1
        signs = (others == start[rows]) & minus[rows]
        points = (raw[others] == ord(".")) & (not whole)
        good[rows[~(signs | points)]] = False
        twice = rows[points]
        good[twice[1:][twice[1:] == twice[:-1]]] = False
    return good
