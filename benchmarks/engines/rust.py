"""hudi-rs, the Python package `hudi`: a reader of the same Hudi tables. Its Python interface of this version writes nothing."""

from functools import partial
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from benchmarks.engines import ours
from benchmarks.engines.common import check_query, check_rows, plain
from benchmarks.ready import Ready

_CALLS = 3
TABLES: dict[str, Any] = {}


def version() -> str:
    return version_of("hudi")


def _rows(path: Path, options: HudiReadOptions | None = None) -> pa.Table:
    found = HudiTableBuilder.from_base_uri(str(path)).build().read(options or HudiReadOptions())
    return pa.Table.from_batches([pa.record_batch(b) for b in found])


def read(data: Path, work: Path, table: str, query: str) -> Ready:  # noqa: ARG001
    path, change = ours.at(data, table), table.partition("-")[2] or "base"

    def call() -> Any:
        if query == "full":
            return _rows(path)
        found = _rows(path, HudiReadOptions().with_projection(["amount"]))
        return pa.table({"sum(amount)": [pc.sum(found["amount"]).as_py()]})

    def check(value: Any, thorough: bool) -> None:
        check_query(value.num_rows if query == "full" else value, data, change, query)
        if query == "full" and thorough:
            con = plain()
            con.register("found", value)
            check_rows(con, "found", data, change, thorough)

    return Ready(call, check, calls=_CALLS)


def incremental(data: Path, work: Path) -> Ready:  # noqa: ARG001
    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
    options = options.with_start_timestamp(ours.before_last(data))
    return Ready(lambda: _rows(ours.at(data, "commits"), options), partial(ours.check_incremental, data), calls=_CALLS)


def planning(data: Path, work: Path, groups: int) -> Ready:  # noqa: ARG001
    """The rows of one partition, by a filter."""
    options = HudiReadOptions().with_filters([("day", "=", ours.PARTITION)])

    def call() -> pa.Table:
        return pa.table({"rows": [_rows(ours.at(data, f"wide-{groups}"), options).num_rows]})

    return Ready(call, partial(ours.check_partition, groups), calls=_CALLS)
