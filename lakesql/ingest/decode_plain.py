"""Messages that are one value: raw bytes or text, as the one column `value`. Text that is not UTF-8 is a bad record."""

import numpy as np
import pyarrow as pa

from lakesql.ingest.decode_json import as_text, not_utf8
from lakesql.ingest.decoded import Bad, Part, finer, whole


class RawValues:
    """The bytes as they are (R5)."""

    def __init__(self, column: str = "value") -> None:
        self._column = column

    def decode(self, values: pa.Array, _headers: pa.Array | None, _topic: str) -> Part:
        return whole(len(values), pa.table({self._column: values}))


class TextValues:
    """The bytes as text."""

    def __init__(self, column: str = "value") -> None:
        self._column = column

    def decode(self, values: pa.Array, _headers: pa.Array | None, _topic: str) -> Part:
        texts, bad = as_text(values), Bad()
        good, wrong = finer(len(texts), lambda low, high: not_utf8(texts.slice(low, high - low)))
        for row, reason in wrong:
            bad.add(row, "decode", reason)
        rows = np.concatenate([np.arange(low, high) for low, high in good]) if good else np.empty(0, np.int64)
        if wrong:
            texts = texts.take(pa.array(rows, pa.int64()))
        return Part(len(values), pa.table({self._column: texts}), rows, bad)
