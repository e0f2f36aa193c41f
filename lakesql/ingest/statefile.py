"""Offsets and states as files that people keep, edit and bring from elsewhere.

`export_state` writes JSON that `import_state` reads back whole. `import_state` also takes plain offsets, as CSV with the
columns topic, partition, offset, or as a JSON list of such objects. A state folder of Apache Gobblin cannot be read: its
`.jst` files are Hadoop sequence files of serialised Java objects. That is said, with what to do instead.
"""

import csv
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lakesql.errors import FormatError, JobError
from lakesql.ingest.model import PartitionState, State, TopicPartition
from lakesql.ingest.state import decode, encode

_SEQUENCE_FILE = b"SEQ"
_COLUMNS = ("topic", "partition", "offset")


def export_state(state: State) -> str:
    """A state as JSON text."""
    return json.dumps({"ingestion": state.ingestion, **encode(state)}, indent=2) + "\n"


def import_state(text: str, ingestion: str, where: str = "the given state") -> State:
    """The state that a text says, under the name `ingestion`. JobError, FormatError when it does not say one clearly."""
    if not text.strip():
        raise JobError(f"{where} is empty. Give JSON or CSV with the columns {', '.join(_COLUMNS)}.")
    if text.lstrip()[0] not in "[{":
        return _of_offsets(_csv_rows(text, where), ingestion, where)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JobError(f"{where} is not JSON: {error}. Correct it; nothing was changed.") from error
    if isinstance(value, list):
        return _of_offsets(dict(enumerate(value, 1)), ingestion, where)
    try:
        return decode(ingestion, value, where)
    except FormatError as error:
        raise JobError(str(error)) from error


def read_state_file(path: str | os.PathLike[str], ingestion: str) -> State:
    """The state in a file: see `import_state`. JobError for what cannot be read, Gobblin's state among it."""
    file = Path(path)
    if file.suffix == ".jst" or (file.is_dir() and any(file.rglob("*.jst"))):
        raise _gobblin(file)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise JobError(f"{file}: the state cannot be read ({error.strerror}). Correct the path.") from error
    if data.startswith(_SEQUENCE_FILE):
        raise _gobblin(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobError(
            f"{file}: this is no text ({error.reason} at byte {error.start}). Give JSON or CSV in UTF-8."
        ) from error
    return import_state(text, ingestion, str(file))


def _gobblin(file: Path) -> JobError:
    return JobError(
        f"{file}: a state store of Apache Gobblin. Its .jst files are Hadoop sequence files of serialised Java objects, "
        "which cannot be read without Gobblin. Take the offsets from the end of the last Gobblin log ('Actual high "
        "watermark for partition t:0=2') and give them as CSV with the columns topic, partition, offset, or set them with "
        "ALTER INGESTION ... SET OFFSETS. Nothing was changed."
    )


def _csv_rows(text: str, where: str) -> Mapping[int, Any]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        names = [(name or "").strip().lower() for name in reader.fieldnames or ()]
        rows = list(reader)
    except csv.Error as error:
        raise JobError(f"{where}, line {reader.line_num}: this is not CSV ({error}). Correct it.") from error
    if set(names) != set(_COLUMNS):
        raise JobError(f"{where}: the columns are {', '.join(names)}; give {', '.join(_COLUMNS)}.")
    return {
        number: {(k or "").strip().lower(): v.strip() if isinstance(v, str) else v for k, v in r.items()}
        for number, r in enumerate(rows, 2)
    }


def _of_offsets(rows: Mapping[int, Any], ingestion: str, where: str) -> State:
    partitions: dict[TopicPartition, PartitionState] = {}
    for number, row in rows.items():
        try:
            at = TopicPartition(str(row["topic"]), _whole(row["partition"], 2**31))
            offset = _whole(row["offset"], 2**63)
        except (KeyError, TypeError, ValueError) as error:
            raise JobError(
                f"{where}: row {number} is {row!r:.120}; give a topic, a partition and an offset of at least 0."
            ) from error
        if at in partitions:
            raise JobError(f"{where}: row {number} names {at} a second time. Give each partition once.")
        if not at.topic:
            raise JobError(f"{where}: row {number} has no topic.")
        partitions[at] = PartitionState(offset, offset)
    if not partitions:
        raise JobError(f"{where} names no partition. Give rows of {', '.join(_COLUMNS)}.")
    return State(ingestion, partitions=partitions)


def _whole(value: object, below: int) -> int:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < below:
        raise ValueError(value)
    return number
