"""The first bad record of a partition, as people can recognise it: offset, stage, reason and how its value begins."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lakesql.ingest.model import TopicPartition
from lakesql.ingest.secrets import without_secrets

SHOWN = 80
"""Characters of a value."""
REASON = 300
_LOOKED_AT = 4096
"""Bytes of a value in which secrets are looked for, before it is shortened."""


def examples(bad: pa.Table, of: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """A sentence about the first record in `bad` of each of these partitions."""
    found = {}
    for at in of:
        here = pc.and_(pc.equal(bad["_partition"], at.partition), pc.equal(bad["_topic"].cast(pa.string()), at.topic))
        rows = bad.filter(here)
        first = rows.slice(pc.index(rows["_offset"], pc.min(rows["_offset"])).as_py(), 1).to_pylist()[0]
        reason = _plain(without_secrets(str(first["error"])))
        reason = reason if len(reason) <= REASON else reason[:REASON] + "..."
        found[at] = (
            f"The first: offset {first['_offset']}, {first['stage']}: {reason.rstrip('. ')}; {_begin(first['_value'])}."
        )
    return found


def _begin(value: bytes | None) -> str:
    if not value:
        return "it has no value" if value is None else "its value is empty"
    text = _plain(without_secrets(value[:_LOOKED_AT].decode(errors="backslashreplace")))
    if len(text) <= SHOWN and len(value) <= _LOOKED_AT:
        return f"its value is {text}"
    return f"its value begins {text[:SHOWN]}..."


def _plain(text: str) -> str:
    """What cannot be printed as Python writes it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
