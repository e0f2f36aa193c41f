"""hudi-rs (the PyPI package `hudi`) as a reader: a table's rows as Arrow."""

from pathlib import Path

import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder


def read(path: Path | str, *, as_of: str | None = None, begin: str | None = None) -> pa.Table:
    """The snapshot, now or as of an instant, or with `begin` what changed after that time."""
    options = HudiReadOptions()
    if as_of is not None:
        options = options.with_as_of_timestamp(as_of)
    if begin is not None:
        options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(begin)
    batches = HudiTableBuilder.from_base_uri(str(path)).build().read(options)
    return pa.Table.from_batches([pa.record_batch(batch) for batch in batches]) if batches else pa.table({})
