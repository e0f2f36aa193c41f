"""The changes of one base file, made while the file is read: rows come by their place in it, then those without one.

A file of a million rows, of which 400,000 change, took 300 MB where its changes were collected first; so they are held
no longer than the piece of the old file that they belong to. Where the slice has a log, which comes on top, all are needed
at once (`slices`).
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.write.basefile import Edit
from lakesql.write.stream import ROW_NO

_NOWHERE = np.iinfo(np.int64).max


class StreamedEdit:
    """`within` is asked for one range of rows after the other, `added` after the last one.

    `make`: an Edit and rows on top from rows of the stream.
    """

    def __init__(self, rows: Iterator[pa.Table], make: Callable[[list[pa.Table]], tuple[Edit, list[pa.Table]]]) -> None:
        self._rows = rows
        self._make = make
        self._held: pa.Table | None = None

    def within(self, first: int, last: int) -> Edit | None:
        """The changes to the old rows [first, last); None for none."""
        pieces = list(self._before(last))
        if not pieces:
            return None
        edit, added = self._make(pieces)
        assert not any(rows.num_rows for rows in added), "rows with a place are changes"
        assert not len(edit.replaced) or edit.replaced[0] >= first, "rows must come sorted by place"
        return edit

    def added(self) -> Iterator[pa.Table]:
        """The rows that have no place in the old file."""
        while (piece := self._next()) is not None:
            edit, added = self._make([piece])
            assert not len(edit.replaced) + len(edit.removed), "a change must have a place in the base file"
            yield from added

    def _before(self, last: int) -> Iterator[pa.Table]:
        while (piece := self._next()) is not None:
            places = pc.fill_null(piece[ROW_NO], _NOWHERE).to_numpy()
            cut = int(np.searchsorted(places, last))
            if cut:
                yield piece.slice(0, cut)
            if cut < piece.num_rows:
                self._held = piece.slice(cut)
                return

    def _next(self) -> pa.Table | None:
        piece, self._held = self._held, None
        return next(self._rows, None) if piece is None else piece
