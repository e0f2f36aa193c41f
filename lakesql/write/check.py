"""What lakesql does not write to, refused by name before the first byte is written (hudi-format 1.9).

Each refusal protects rows: a table written past one of these features reads wrongly afterwards, without an error.
"""

from collections.abc import Sequence

from lakesql.errors import Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.format.config import TableConfig
from lakesql.table.keys import GENERATORS
from lakesql.table.merge import RULES, rule_of
from lakesql.table.state import TableState


def reserved(columns: Sequence[str]) -> list[str]:
    """The columns that are named like Hudi's meta columns or ours, in any case: DuckDB takes them for one another."""
    names = {c.lower() for c in META_COLUMNS} | {"__op"}
    return [c for c in columns if c.lower() in names or c.lower().startswith("__lakesql_")]


def require_writable(state: TableState) -> None:
    """Unsupported, naming the feature and the way out, when a write to this table would not be safe."""
    feature = unwritable(state.config)
    if feature is None and state.extra_as_of(None, "latest_schema"):
        feature = "its schema evolves by column ids (hoodie.schema.on.read.enable=true)"
    if feature is None and (taken := reserved(state.schema.names)):
        feature = f"the column name {taken[0]} is one of those that tell a writer what a row means"
    if feature:
        raise Unsupported(
            f"{state.path}: {feature}; lakesql reads this table and does not write to it. Write with Spark."
        )


def unwritable(config: TableConfig) -> str | None:
    """The feature of a table for which lakesql does not write to it, in words; None when there is none."""
    if config.key_generator.upper() not in GENERATORS:
        return f"keys come from the key generator {config.key_generator}, which lakesql does not know"
    if not config.meta_fields:
        return "rows are stored without their keys (hoodie.populate.meta.fields=false)"
    if config.drop_partition_columns:
        return "partition columns are not stored in the files (hoodie.datasource.write.drop.partition.columns=true)"
    if config.cdc_enabled and not config.is_mor:
        return (
            "change data capture is on (hoodie.table.cdc.enabled=true) and a write without change files leaves a "
            "hole in it"
        )
    try:
        rule_of(config, "")
    except Unsupported:
        if config.merge_mode in RULES:
            return f"partial update mode {config.partial_update_mode} (hoodie.table.partial.update.mode) is unknown"
        return f"rows merge by {config.payload_class or config.merge_mode}, which nobody has registered"
    return None
