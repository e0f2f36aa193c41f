"""Where Avro values end: many values of one type in step, one value after another, and the items of arrays and maps.

Strategy: `skip` moves an array of positions over one value each, with numpy. Records without lists can be skipped from
guessed positions too, so a damaged value is not an error here: it ends past the window and stays there. The items of an
array follow each other, so they are found item number by item number for all rows at once, and for the last few rows
(one row with a million items is a million steps) value by value in plain Python. `chain` cuts one long run of values
into lanes, guesses a start in each and proves the guesses by walking. Avro specification, "binary encoding".
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from lakesql.errors import FormatError
from lakesql.format.avro_types import Node, parse_type
from lakesql.format.words import U8, U64, Mask, Positions, Window, signed, varints

FEW = 24  # rows below which one value at a time is faster than numpy
ZERO_BYTE_ITEMS_MAX = 1 << 20  # items that take no bytes (nulls, empty records) cost memory but prove nothing


class DamagedAvro(FormatError):
    """Bytes that do not decode; `what` says it without place and advice."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(
            f"{where}: Avro data is damaged or torn: {what}. The bytes do not fit the schema they are stored with; "
            "restore the file, or roll back the instant that wrote it."
        )
        self.what = what


def damaged(w: Window, what: str) -> DamagedAvro:
    """The error for bytes that do not decode."""
    return DamagedAvro(w.where, what)


# ---------------------------------------------------------------- many values in step
def skip(node: Node, w: Window, pos: Positions, valid: Mask | None = None) -> Positions:
    """Positions behind the value at each position; where `valid` is False there is no value and nothing to skip.

    A value that does not decode ends at w.end + 1, and so does one that starts there. Arrays and maps raise FormatError
    instead.
    """
    if node.exact_bytes is not None:
        end = pos + node.exact_bytes
    elif node.kind in ("int", "long", "enum"):
        end = varints(w, pos)[1]
    elif node.kind in ("string", "bytes"):
        length, start = varints(w, pos)
        end = np.where(length & U64(1), w.end + 1, start + np.minimum(length >> U64(1), U64(w.end)).astype(np.int64))
    elif node.kind == "record":
        end = pos
        for child in node.children:
            end = skip(child, w, end, valid)
    elif node.kind == "union":
        return _skip_union(node, w, pos, valid)
    else:
        return items(node, w, pos, valid)[2]
    end = np.minimum(end, w.end + 1)
    return end if valid is None else np.where(valid, end, pos)


def _skip_union(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Positions:
    branch, end = branches(node, w, pos, valid)
    for number, child in enumerate(node.children):
        if child.exact_bytes == 0:
            continue
        chosen = branch == number
        if chosen.all():
            return skip(child, w, end, None)
        if chosen.any():
            end = skip(child, w, end, chosen)
    return end


def branches(node: Node, w: Window, pos: Positions, valid: Mask | None) -> tuple[Positions, Positions]:
    """Branch number of the union at each position (-1: no value) and the positions behind it."""
    count = len(node.children)
    byte = w.raw[pos]
    if byte.size and (int(byte.max()) >= 2 * count or bool((byte & U8(1)).any())):
        number, end = varints(w, pos)
        bad = (number >= U64(2 * count)) | ((number & U64(1)) != 0)
        branch = np.where(bad, 0, number >> U64(1)).astype(np.int64)
        end = np.minimum(np.where(bad, w.end + 1, end), w.end + 1)
        branch[end > w.end] = -1
    else:
        branch = (byte >> U8(1)).astype(np.int64)
        end = np.minimum(pos + 1, w.end + 1)
    if valid is None:
        return branch, end
    return np.where(valid, branch, -1), np.where(valid, end, pos)


# ---------------------------------------------------------------- items of arrays and maps
_STRING = parse_type("string")


@cache
def entry(node: Node) -> Node:
    """The type of one item of an array, or of one entry of a map as a record of key and value."""
    if node.kind == "array":
        return node.children[0]
    return Node("record", None, ("key", "value"), (_STRING, *node.children), size_bytes=1 + node.children[0].size_bytes)


def items(node: Node, w: Window, pos: Positions, valid: Mask | None = None) -> tuple[Positions, Positions, Positions]:
    """(positions of all items in row order, number of items per row, positions behind each array or map).

    Positions must ascend. Any number of blocks per row, with or without their size in bytes. FormatError when damaged.
    """
    item = entry(node)
    counts = np.zeros(len(pos), np.int64)
    end = pos.copy()
    rows = np.arange(len(pos)) if valid is None else np.flatnonzero(valid)
    cur = pos[rows]
    found: list[Positions] = []
    total = 0
    while len(rows) > FEW:
        count, cur = _block_counts(w, cur)
        total = _claimed(item, w, total, count)
        last = count == 0
        end[rows[last]] = cur[last]
        rows, cur, count = rows[~last], cur[~last], count[~last]
        counts[rows] += count
        cur = _block_items(item, w, cur, count, found)
    for row, p in zip(rows.tolist(), cur.tolist(), strict=True):
        many, p = _block_count(w.raw.data, p, w)
        while many:
            total = _claimed(item, w, total, np.array([many]))
            counts[row] += many
            starts, p = _run(item, p, many, w)
            found.append(starts)
            many, p = _block_count(w.raw.data, p, w)
        end[row] = p
    starts = np.concatenate(found) if found else np.empty(0, np.int64)
    starts.sort()
    return starts, counts, end


def _block_counts(w: Window, cur: Positions) -> tuple[Positions, Positions]:
    """Item counts of the blocks at the positions and where their items begin; a byte size is read and not used."""
    number, cur = varints(w, cur)
    count = signed(number)
    sized = count < 0
    if sized.any():
        count = np.abs(count)
        cur = np.where(sized, varints(w, np.minimum(cur, w.end + 1))[1], cur)
    if int(cur.max()) > w.end or int(count.min()) < 0:
        raise damaged(w, "the item count of an array or map")
    return count, cur


def _claimed(item: Node, w: Window, total: int, count: Positions) -> int:
    """Items claimed so far. They cannot overlap, so more items than bytes are damage; this bounds time and memory."""
    room = w.end // item.size_bytes if item.size_bytes else ZERO_BYTE_ITEMS_MAX
    if int(count.max()) <= room:
        total += int(count.sum())
        if total <= room:
            return total
    raise damaged(w, f"an array or map claims {int(count.max())} items of at least {item.size_bytes} bytes")


def _block_items(item: Node, w: Window, cur: Positions, count: Positions, found: list[Positions]) -> Positions:
    """Append the positions of the items of one block per row; returns where the blocks end."""
    if item.exact_bytes is not None:
        first = np.repeat(cur - item.exact_bytes * (np.cumsum(count) - count), count)
        found.append(first + item.exact_bytes * np.arange(len(first)))
        cur = cur + item.exact_bytes * count
        if int(cur.max(initial=0)) > w.end:
            raise damaged(w, "an array or map goes on past the end")
        return cur
    cur = cur.copy()
    number = 0
    more = np.arange(len(cur))
    while len(more) > FEW:
        here = cur[more]
        found.append(here)
        after = skip(item, w, here)
        if int(after.max()) > w.end:
            raise damaged(w, "an item of an array or map goes on past the end")
        cur[more] = after
        number += 1
        more = more[count[more] > number]
    for row in more.tolist():
        starts, cur[row] = _run(item, int(cur[row]), int(count[row]) - number, w)
        found.append(starts)
    return cur


# ---------------------------------------------------------------- one value after another
Step = Callable[[memoryview, int, Window], int]


def _run(item: Node, p: int, count: int, w: Window) -> tuple[Positions, int]:
    """Positions of `count` values that follow each other, and the position behind them."""
    if item.exact_bytes is not None:
        end = _inside(p + item.exact_bytes * count, w)
        return p + item.exact_bytes * np.arange(count, dtype=np.int64), end
    step = _stepper(item)
    view = w.raw.data
    starts = np.empty(count, np.int64)
    for i in range(count):
        starts[i] = p
        p = step(view, p, w)
    return starts, p


def _block_count(view: memoryview, p: int, w: Window) -> tuple[int, int]:
    """Item count of a block and where its items begin."""
    count, p = _number(view, p, w)
    if count < 0:
        return -count, _number(view, p, w)[1]
    return count, p


def _number(view: memoryview, p: int, w: Window) -> tuple[int, int]:
    """A signed varint of at most ten bytes."""
    z = shift = 0
    while True:
        byte = view[p]
        p += 1
        z |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise damaged(w, "a number of more than ten bytes")
    if p > w.end or z >> 64:
        raise damaged(w, "a number goes on past the end or past 64 bits")
    return (z >> 1) ^ -(z & 1), p


@cache
def _stepper(node: Node) -> Step:
    """A function that returns the position behind one value of this type, or raises FormatError."""
    if node.exact_bytes is not None:
        size = node.exact_bytes
        return lambda _view, p, w: _inside(p + size, w)
    if node.kind in ("int", "long", "enum"):
        return lambda view, p, w: _number(view, p, w)[1]
    if node.kind in ("string", "bytes"):
        return _step_text
    if node.kind == "record":
        steps = [_stepper(child) for child in node.children]

        def step_record(view: memoryview, p: int, w: Window) -> int:
            for step in steps:
                p = step(view, p, w)
            return p

        return step_record
    if node.kind == "union":
        steps = [_stepper(child) for child in node.children]

        def step_union(view: memoryview, p: int, w: Window) -> int:
            branch, p = _number(view, p, w)
            if not 0 <= branch < len(steps):
                raise damaged(w, f"branch {branch} of a union of {len(steps)}")
            return steps[branch](view, p, w)

        return step_union
    return _list_stepper(entry(node))


def _list_stepper(item: Node) -> Step:
    step = _stepper(item)

    def step_list(view: memoryview, p: int, w: Window) -> int:
        count, p = _block_count(view, p, w)
        while count:
            if item.exact_bytes is not None:
                p = _inside(p + item.exact_bytes * count, w)
            else:  # each item takes a byte or more, so a wrong count soon runs past the end
                for _ in range(count):
                    p = step(view, p, w)
            count, p = _block_count(view, p, w)
        return p

    return step_list


def _step_text(view: memoryview, p: int, w: Window) -> int:
    length, p = _number(view, p, w)
    if length < 0:
        raise damaged(w, f"a string of {length} bytes")
    return _inside(p + length, w)


def _inside(p: int, w: Window) -> int:
    if p > w.end:
        raise damaged(w, "a value goes on past the end")
    return p


# ---------------------------------------------------------------- one long run of values, in lanes
LANES_MAX = 512
LANE_VALUES = 128  # fewer values per lane do not pay for the guessing
HOPS = 5  # values that must follow each other from a guessed start
REACH_VALUES = 2  # how far behind the cut a start is looked for, in values of average size
REACH_BYTES_MAX = 4096


def chain(step: Callable[[Positions], Positions], start: int, end: int, count: int) -> Positions | None:
    """Positions of `count` values that fill [start, end) exactly, or None when this method does not find them.

    `step` moves positions over one value each; it must return something > end for a value that does not fit and must
    accept any position in [start, end]. Lane i is walked from a guessed start; because lane 0 starts at a true value
    and every lane must end exactly where the next one begins, a result is certain.
    """
    reach = min(max(REACH_VALUES * (end - start) // max(count, 1), 16), REACH_BYTES_MAX)
    lanes = min(LANES_MAX, count // LANE_VALUES, 2 * count // reach)
    if lanes < 2:
        return None
    cuts = start + np.arange(1, lanes) * ((end - start) // lanes)
    begin = np.unique(np.append(_guess(step, cuts, reach, end), start))
    stop = np.append(begin[1:], end)
    cur = begin.copy()
    columns: list[Positions] = []
    total = 0
    lane = np.arange(len(begin))
    while len(lane):
        here = cur[lane]
        columns.append(here)
        total += len(here)
        if total > count:
            return None
        after = step(here)
        cur[lane] = after
        running = after < stop[lane]
        if not running.all():
            lane = lane[running]
    if total != count or not (cur == stop).all():
        return None
    starts = np.concatenate(columns)
    starts.sort()
    return starts


def _guess(step: Callable[[Positions], Positions], cuts: Positions, reach: int, end: int) -> Positions:
    """A likely start of a value behind each cut: where most chains of HOPS values that begin within reach meet."""
    pos = np.minimum(cuts[:, None] + np.arange(reach), end).reshape(-1)
    lane = np.repeat(np.arange(len(cuts)), reach)
    for _ in range(HOPS):
        pos = step(pos)
        good = np.flatnonzero(pos < end)
        pos, lane = pos[good], lane[good]
    meet, votes = np.unique(lane * (end + 1) + pos, return_counts=True)
    meet = meet[np.lexsort((meet, -votes, meet // (end + 1)))]
    best = np.unique(meet // (end + 1), return_index=True)[1]
    return np.asarray(meet[best] % (end + 1), np.int64)
