"""Which of several versions of a record survives: the merge modes, as SQL over relations of log records.

One table, `MODES`, used by every reader and writer. Input is a relation of log records with the columns

    slot INTEGER    number of the file slice          seq BIGINT    position in processing order (4.9), unique
    key VARCHAR     record key                        kind TINYINT  UPSERT, DELETE or COMMIT_TIME_DELETE
    ord_0 ...       ordering values                   part INTEGER  the block it came from

Log records are merged among themselves first, oldest to newest; only the result meets the base row (hudi-format
5.1, 5.3). Ties go to the newer record. A null ordering value loses against every value and ties with null.
Payload classes and partial-update modes other than IS_PARTIAL blocks are refused by name (`require_supported`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from lakesql.errors import Unsupported
from lakesql.format.metadata import TableConfig

UPSERT, DELETE, COMMIT_TIME_DELETE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class MergeMode:
    """How one merge mode decides, with `n` ordering fields."""

    rank: Callable[[int, str], str]  # (n, alias) -> expression; the larger one survives among candidates
    candidates: Callable[[str], str]  # relation -> relation without records that later commit-time deletes made void
    base_survives: Callable[[int, str, str], str]  # (n, base alias, log alias) -> condition: the base row stays


def ordering(n: int, alias: str) -> str:
    """The ordering values as one comparable row in which null is the smallest."""
    values = ", ".join(f"{alias}.ord_{i} IS NOT NULL, {alias}.ord_{i}" for i in range(n))
    return f"row({values})"


def _everything(relation: str) -> str:
    return f"SELECT * FROM {relation}"


def _after_commit_time_deletes(relation: str) -> str:
    """A commit-time delete voids what came before it, and is voided by the next upsert; deletes between are absorbed."""
    return f"""
        SELECT * EXCLUDE (last_delete, revived) FROM (
          SELECT *, min(CASE WHEN kind = {UPSERT} AND seq > last_delete THEN seq END) OVER (PARTITION BY slot, key) AS revived
          FROM (
            SELECT *, max(CASE WHEN kind = {COMMIT_TIME_DELETE} THEN seq END) OVER (PARTITION BY slot, key) AS last_delete
            FROM {relation}))
        WHERE last_delete IS NULL OR seq >= coalesce(revived, last_delete) AND (revived IS NOT NULL OR seq = last_delete)"""


def _event_rank(n: int, alias: str) -> str:
    values = ", ".join(f"{alias}.ord_{i} IS NOT NULL, {alias}.ord_{i}" for i in range(n))
    return f"row({values}, {alias}.seq)" if n else f"{alias}.seq"


def _event_base(n: int, base: str, log: str) -> str:
    if not n:
        return "false"
    return f"({log}.kind <> {COMMIT_TIME_DELETE} AND {ordering(n, base)} > {ordering(n, log)})"


MODES: dict[str, MergeMode] = {
    "COMMIT_TIME_ORDERING": MergeMode(
        rank=lambda n, alias: f"{alias}.seq",  # noqa: ARG005
        candidates=_everything,
        base_survives=lambda n, base, log: "false",  # noqa: ARG005
    ),
    "EVENT_TIME_ORDERING": MergeMode(
        rank=_event_rank, candidates=_after_commit_time_deletes, base_survives=_event_base
    ),
}


def require_supported(config: TableConfig, where: str) -> MergeMode:
    """The merge mode of a table, or Unsupported naming the payload class, merger or partial-update mode."""
    if config.partial_update_mode:
        raise Unsupported(
            f"{where}: partial update mode {config.partial_update_mode} (hoodie.table.partial.update.mode) is not "
            "supported yet. Read it with mode := 'read_optimized', or compact the table with Spark first."
        )
    if config.merge_mode not in MODES:
        raise Unsupported(
            f"{where}: merging by {config.payload_class or config.merge_mode} is not supported yet; lakesql merges by "
            f"{' and '.join(MODES)}. Read it with mode := 'read_optimized', or compact the table with Spark first."
        )
    return MODES[config.merge_mode]


def winners_sql(mode: MergeMode, n: int, relation: str, commit_time_deletes: bool) -> str:
    """One row per (slot, key) of the log relation: seq, kind, part and ordering values of the record that survives."""
    source = mode.candidates(relation) if commit_time_deletes else _everything(relation)
    rank = mode.rank(n, "c")
    picks = ", ".join(f"arg_max_null({c}, {rank}) AS {c}" for c in ("kind", "part", *(f"ord_{i}" for i in range(n))))
    return f"SELECT slot, key, arg_max(seq, {rank}) AS seq, {picks} FROM ({source}) c GROUP BY slot, key"
