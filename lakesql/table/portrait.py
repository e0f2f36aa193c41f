"""A table as HTML for a notebook: what it is, how far it has come, its columns. One look at the timeline, no data is read."""

from lakesql import markup
from lakesql.counted import counted
from lakesql.table import inspect
from lakesql.table.state import TableState

_NONE = "none"


def html(state: TableState) -> str:
    """The portrait of a table."""
    config, writes = state.config, state.timeline.completed_writes()
    kind = "Merge-on-Read" if config.is_mor else "Copy-on-Write"
    newest = max(writes, key=lambda i: i.requested, default=None)
    pending = ", ".join(f"{i.action} {i.requested}" for i in state.timeline.pending())
    facts = [
        ("path", state.path),
        ("record key", ", ".join(config.record_key_fields) or "generated"),
        ("ordering", ", ".join(config.ordering_fields) or _NONE),
        ("partitioned by", ", ".join(config.partition_fields) or _NONE),
        ("merge mode", config.merge_mode),
        ("commits", f"{len(writes):,} on the active timeline" if writes else "no commit yet"),
    ]
    facts += [("latest", f"{newest.completed_action} {newest.requested}")] if newest else []
    facts += [("pending", pending)] if pending else []
    return markup.page(
        markup.title(config.name, f"{kind}, table version {config.version}"),
        markup.facts(facts),
        markup.details(f"{counted(len(state.schema), 'column')}", _columns(state)),
    )


def _columns(state: TableState) -> str:
    rows = []
    for column in inspect.schema(state).to_pylist():
        marks = [word for name, word in _MARKS.items() if column[name]]
        marks += [] if column["nullable"] else ["not null"]
        rows.append((column["column_name"], column["type"], ", ".join(marks)))
    return markup.table(("column", "type", ""), rows)


_MARKS = {"record_key": "record key", "partition": "partition", "ordering": "ordering"}
