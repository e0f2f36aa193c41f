"""Which of several versions of a record survives: one table of merge rules, `RULES`, for every reader and writer.

A rule says how a newer version meets an older one, in the four places where versions meet (hudi-format 5.3 to 5.6):

    batch   rows of one batch among themselves, before anything is written
    write   an incoming row and the stored one: what a write means, on both table types (what copy-on-write gives)
    log     log records among themselves, oldest to newest
    base    what the log leaves of a key, and its row in the base file

`log` and `base` are what Apache Hudi 1.2.0 does when it reads unmerged logs; a class it no longer has follows 0.15.0.
Each was fitted to the rows Hudi gives for every sequence of up to three batches of newer, older, equal, partly empty
and deleted versions with a delete statement between them. `table.fold` carries the rules out on columns; for the two
plain modes `winners_sql` does the same faster, as SQL. A person's own merger (`mergers`) takes the place of `fill`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lakesql.errors import Unsupported
from lakesql.format.metadata import TableConfig
from lakesql.table import mergers

UPSERT, DELETE, COMMIT_TIME_DELETE = 0, 1, 2
"""What a version is: a row, a delete with an ordering value, or one without, which removes whatever is older."""

ALWAYS, NOT_OLDER, NEWER, NEVER = "always", "not older", "newer", "never"
"""When the newer version wins: by its ordering value, ties to the newer or to the older one, or whatever that is."""

FROM_OLDER, FROM_EITHER = "older", "either"
"""Absent columns of the winner are filled from the older version only, or from whichever version lost."""

DEFAULTS, UNAVAILABLE = "defaults", "unavailable"
"""What counts as absent: the column's default (NULL mostly), or the marker that a change feed writes for it."""

EVENT_TIME, COMMIT_TIME, CUSTOM = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"


@dataclass(frozen=True, slots=True)
class Step:
    """How a newer version meets an older one. A commit-time delete always wins, and always gives way to a row."""

    row: str = ALWAYS  # row onto row
    delete: str = ALWAYS  # delete onto row
    revive: str = ALWAYS  # row onto delete
    delete_twice: str = ALWAYS  # delete onto delete; with NOT_OLDER a commit-time delete stays
    fill: str = ""  # FROM_OLDER or FROM_EITHER when both are rows
    newer_meta: bool = False  # the meta columns come from the newer version even when it loses


@dataclass(frozen=True, slots=True)
class Rule:
    """The merge rule of a table."""

    name: str
    batch: Step
    write: Step
    log: Step
    base: Step
    absent: str = ""  # DEFAULTS or UNAVAILABLE where a step fills
    unavailable: str = ""  # the marker text
    sequence: bool = False  # ordering values are texts `file.position`, compared as numbers
    merger: mergers.Merger | None = None

    @property
    def by_row(self) -> bool:
        """Whole rows survive: no column is ever taken from another version."""
        return not self.absent and self.merger is None

    @property
    def plain(self) -> bool:
        """`winners_sql` can do it."""
        return self.by_row and (self.log, self.base) in ((_NEWEST, _NEWEST), (_LOG_ORDERED, _ORDERED))

    @property
    def compares(self) -> bool:
        """What a write means depends on ordering values."""
        return self.write.row != ALWAYS


_NEWEST = Step()
_ORDERED = Step(row=NOT_OLDER, delete=NOT_OLDER)
_LOG_ORDERED = Step(row=NOT_OLDER, delete=NOT_OLDER, revive=NOT_OLDER, delete_twice=NOT_OLDER)
_FIRST = Step(row=NEWER, delete=NEWER)
_DELETES_WIN = Step(row=NOT_OLDER)

RULES: Mapping[str, Rule] = {
    COMMIT_TIME: Rule(COMMIT_TIME, _NEWEST, _NEWEST, _NEWEST, _NEWEST),
    EVENT_TIME: Rule(EVENT_TIME, _ORDERED, _ORDERED, _LOG_ORDERED, _ORDERED),
}
"""The merge modes. Version 9 has these two, with or without a partial update mode, and CUSTOM."""


def _filling(rule: Rule, absent: str, fill: str, unavailable: str = "") -> Rule:
    steps = {name: replace(getattr(rule, name), fill=fill) for name in ("batch", "write", "log", "base")}
    return replace(rule, absent=absent, unavailable=unavailable, **steps)


PARTIAL_MODES: Mapping[str, str] = {"IGNORE_DEFAULTS": DEFAULTS, "FILL_UNAVAILABLE": UNAVAILABLE}
"""`hoodie.table.partial.update.mode` -> what it fills."""

_PARTIAL = Step(row=NOT_OLDER, fill=FROM_EITHER, newer_meta=True)
_OVERLAY = Step(fill=FROM_OLDER)
PAYLOADS: Mapping[str, Rule] = {
    "OverwriteWithLatestAvroPayload": Rule("", _ORDERED, _NEWEST, _NEWEST, _NEWEST),
    "DefaultHoodieRecordPayload": Rule("", _ORDERED, _ORDERED, _LOG_ORDERED, _ORDERED),
    "EventTimeAvroPayload": Rule("", _ORDERED, _DELETES_WIN, _LOG_ORDERED, _ORDERED),
    "HoodieAvroPayload": Rule("", _NEWEST, _NEWEST, _NEWEST, _NEWEST),
    "FirstValueAvroPayload": Rule("", _FIRST, _FIRST, Step(row=NEWER, delete=NOT_OLDER), Step(row=NEWER)),
    "OverwriteNonDefaultsWithLatestAvroPayload": Rule("", _ORDERED, _OVERLAY, _OVERLAY, _OVERLAY, absent=DEFAULTS),
    "PartialUpdateAvroPayload": Rule("", _PARTIAL, _PARTIAL, _PARTIAL, _PARTIAL, absent=DEFAULTS),
    "AWSDmsAvroPayload": Rule("", _ORDERED, _NEWEST, _NEWEST, _NEWEST),
    "MySqlDebeziumAvroPayload": Rule("", _ORDERED, _FIRST, _DELETES_WIN, _DELETES_WIN, sequence=True),
    "PostgresDebeziumAvroPayload": Rule(
        "",
        _ORDERED,
        Step(row=NOT_OLDER, delete=NOT_OLDER, fill=FROM_OLDER),
        _DELETES_WIN,
        _DELETES_WIN,
        absent=UNAVAILABLE,
        unavailable="__debezium_unavailable_value",
    ),
}
"""Payload classes of table versions 6 and 8 (hudi-format 5.5). Version 9 translates them (1.5)."""

_VERSION_8: Mapping[str, Rule] = {
    "EventTimeAvroPayload": replace(
        PAYLOADS["EventTimeAvroPayload"], log=Step(row=NOT_OLDER, delete=NOT_OLDER, delete_twice=NEVER)
    ),
    # As 1.0.2 reads it: no other release knows the class and the version.
    "FirstValueAvroPayload": replace(
        PAYLOADS["FirstValueAvroPayload"],
        log=Step(row=NEWER, delete=NOT_OLDER, revive=NOT_OLDER, delete_twice=NOT_OLDER),
        base=Step(row=NEWER, delete=NOT_OLDER),
    ),
}
"""Classes that version 8 tables, which store them under CUSTOM, read otherwise."""


def rule_of(config: TableConfig, where: str, payload: str | None = None) -> Rule:
    """The merge rule of a table. `payload`: the class to use where the table cannot store one (version 6, CoW).

    Unsupported, by name, for a payload class that is not known, or a merger that nobody registered.
    """
    stored = config.payload_class or payload
    name = stored.rsplit(".", 1)[-1] if stored else ""
    if config.version < 9 and name in PAYLOADS:
        rule = replace((_VERSION_8 if config.version == 8 else {}).get(name, PAYLOADS[name]), name=name)
        if config.merge_mode in RULES:  # a stored mode decides how logs are read, whatever the class
            rule = replace(rule, log=RULES[config.merge_mode].log, base=RULES[config.merge_mode].base)
        return rule
    if config.merge_mode in RULES:
        return _partial(config, where)
    merger = mergers.find(config)
    if merger is None and name in PAYLOADS:  # version 9 keeps only the classes that it cannot translate
        return replace(PAYLOADS[name], name=name)
    if merger is None:
        raise Unsupported(
            f"{where}: rows merge by {stored or config.merge_mode}, which is not known here. Register a merger for it "
            "(lakesql.register_merger), read the table with mode := 'read_optimized', or compact it with Spark first."
        )
    return Rule(CUSTOM, _NEWEST, _NEWEST, _NEWEST, _NEWEST, merger=merger)


def _partial(config: TableConfig, where: str) -> Rule:
    rule = RULES[config.merge_mode]
    mode = config.partial_update_mode
    if not mode:
        return rule
    if mode not in PARTIAL_MODES:
        raise Unsupported(
            f"{where}: partial update mode {mode} (hoodie.table.partial.update.mode) is none of "
            f"{', '.join(PARTIAL_MODES)}. Read it with mode := 'read_optimized', or compact the table with Spark first."
        )
    return _filling(rule, PARTIAL_MODES[mode], FROM_EITHER, config.unavailable_value)


def marker_in_any_case(config: TableConfig) -> bool:
    """Whether the delete marker of a table is compared without regard to case, as this class does it by itself.

    Version 9 keeps field and marker as properties, which are compared exactly.
    """
    return config.version < 9 and (config.payload_class or "").endswith(".AWSDmsAvroPayload")


def keeping_values(rule: Rule) -> Rule:
    """The rule for logs with IS_PARTIAL blocks: columns that a block leaves out are absent (hudi-format 5.4)."""
    return _filling(rule, rule.absent, FROM_EITHER, rule.unavailable)


def ordering(n: int, alias: str, sequence: bool = False, prefix: str = "ord_") -> str:
    """The `n` ordering values of a relation as one comparable SQL row in which null is the smallest.

    `sequence`: texts `file.position` are compared as numbers; values of another type as they are.
    """
    values = [f"{alias}.{prefix}{i}" for i in range(n)]
    if sequence:
        texts = [f"CASE WHEN typeof({v}) = 'VARCHAR' THEN {v}::VARCHAR END" for v in values]
        parts = [f"split_part({t}, '.', {i})" for t in texts for i in (1, 2)]
        others = [f"CASE WHEN typeof({v}) != 'VARCHAR' THEN {v} END" for v in values]
        compared = [f"{p} IS NOT NULL, TRY_CAST({p} AS HUGEINT)" for p in parts] + [
            f"{o} IS NOT NULL, {o}" for o in others
        ]
        return f"row({', '.join(compared)})"
    return f"row({', '.join(f'{v} IS NOT NULL, {v}' for v in values)})"


@dataclass(frozen=True, slots=True)
class MergeMode:
    """A plain mode as SQL, with `n` ordering fields, over relations of log records with the columns

    slot INTEGER, seq BIGINT (processing order, unique), key VARCHAR, kind TINYINT, ord_0 ..., part INTEGER
    """

    rank: Callable[[int, str], str]  # (n, alias) -> expression; the larger one survives among candidates
    candidates: Callable[[str], str]  # relation -> relation without records that later commit-time deletes made void
    base_survives: Callable[[int, str, str], str]  # (n, base alias, log alias) -> condition: the base row stays


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
    COMMIT_TIME: MergeMode(
        rank=lambda n, alias: f"{alias}.seq",  # noqa: ARG005
        candidates=_everything,
        base_survives=lambda n, base, log: "false",  # noqa: ARG005
    ),
    EVENT_TIME: MergeMode(rank=_event_rank, candidates=_after_commit_time_deletes, base_survives=_event_base),
}


def mode_of(rule: Rule) -> MergeMode:
    """The SQL form of a plain rule."""
    return MODES[COMMIT_TIME if rule.log == _NEWEST else EVENT_TIME]


def winners_sql(mode: MergeMode, n: int, relation: str, commit_time_deletes: bool) -> str:
    """One row per (slot, key) of the log relation: seq, kind, part and ordering values of the record that survives."""
    source = mode.candidates(relation) if commit_time_deletes else _everything(relation)
    rank = mode.rank(n, "c")
    picks = ", ".join(f"arg_max_null({c}, {rank}) AS {c}" for c in ("kind", "part", *(f"ord_{i}" for i in range(n))))
    return f"SELECT slot, key, arg_max(seq, {rank}) AS seq, {picks} FROM ({source}) c GROUP BY slot, key"
