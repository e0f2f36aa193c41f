"""What lakesql does not write to, refused by name before the first byte is written (hudi-format 1.9).

Each refusal protects rows: a table written past one of these features reads wrongly afterwards, without an error.
"""

import re
from collections.abc import Sequence

from lakesql.errors import Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.format.files import FileSlice
from lakesql.table.keys import generator
from lakesql.table.state import TableState

PAYLOADS = {
    "EVENT_TIME_ORDERING": ("DefaultHoodieRecordPayload", "EventTimeAvroPayload"),
    "COMMIT_TIME_ORDERING": ("OverwriteWithLatestAvroPayload",),
}
"""Merge mode -> payload classes that do nothing beyond it (hudi-format 1.5)."""

# A bucket index starts the file id with the bucket's number in eight digits (hudi-format 3.1). A random id starts with
# eight digits once in forty; with three zeros before, and on every group, it does not.
_BUCKET_ID = re.compile(r"000\d{5}-")


def reserved(columns: Sequence[str]) -> list[str]:
    """The columns that are named like Hudi's meta columns or ours, in any case: DuckDB takes them for one another."""
    names = {c.lower() for c in META_COLUMNS} | {"__op"}
    return [c for c in columns if c.lower() in names or c.lower().startswith("__lakesql_")]


def require_writable(state: TableState) -> None:
    """Unsupported, naming the feature and the way out, when a write to this table would not be safe."""
    config = state.config

    def refuse(feature: str, advice: str) -> None:
        raise Unsupported(f"{state.path}: {feature}; lakesql reads this table and does not write to it. {advice}")

    generator(config)
    if not config.meta_fields:
        refuse(
            "rows are stored without their keys (hoodie.populate.meta.fields=false)",
            "Write with the engine that created it.",
        )
    if config.drop_partition_columns:
        refuse(
            "partition columns are not stored in the files (hoodie.datasource.write.drop.partition.columns=true)",
            "Write with the engine that created it.",
        )
    if config.cdc_enabled and not config.is_mor:
        refuse(
            "change data capture is on (hoodie.table.cdc.enabled=true) and a write without change files leaves a "
            "hole in it",
            "Write with Spark.",
        )
    if config.partial_update_mode:
        refuse(
            f"updates merge column by column (hoodie.table.partial.update.mode={config.partial_update_mode})",
            "Write with Spark.",
        )
    if taken := reserved(state.schema.names):
        refuse(f"the column name {taken[0]} is one of those that tell a writer what a row means", "Rename the column.")
    if config.merge_mode not in PAYLOADS:
        refuse(f"rows merge by {config.payload_class or config.merge_mode}", "Write with Spark.")
    payload = (config.payload_class or "").rsplit(".", 1)[-1]
    if payload and payload not in PAYLOADS[config.merge_mode]:
        refuse(f"rows merge by the payload class {payload}", "Write with Spark.")
    if state.extra_as_of(None, "latest_schema"):
        refuse("its schema evolves by column ids (hoodie.schema.on.read.enable=true)", "Write with Spark.")


def require_known_index(state: TableState, slices: Sequence[FileSlice]) -> None:
    """Unsupported when the file ids show a bucket index: how many buckets there are is not stored."""
    if slices and all(_BUCKET_ID.match(s.file_id) for s in slices):
        raise Unsupported(
            f"{state.path}: the file groups are buckets of a bucket index (for example {slices[0].file_id}), and the "
            "table does not store how many there are. lakesql reads this table and does not write to it. Write with "
            "Spark."
        )
