"""Instants, the names of their files in both timeline layouts, and the questions one asks a timeline.

Layout 1 (table version 6) keeps the files in `.hoodie`, layout 2 (versions 8 and 9) in `.hoodie/timeline`, where the
name of a completed file also carries its completion time. A `Timeline` is made from the names of one listing, since
a second listing could already show another state (hudi-format 2.11). It is a value: whoever wants a newer one lists
again. Identity is the requested time; order is requested time in layout 1 and completion time in layout 2
(hudi-format 2.2, 2.3, 2.6). All times are digit strings and compare as strings.
Not here: what the files contain (`metadata`), the archived part (`table.archive`), drawing a time from a clock.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from lakesql.errors import FormatError, SQLError

REQUESTED, INFLIGHT, COMPLETED = "REQUESTED", "INFLIGHT", "COMPLETED"
STATES = (REQUESTED, INFLIGHT, COMPLETED)

WRITE_ACTIONS = ("commit", "deltacommit", "replacecommit")
SERVICE_ACTIONS = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
"""Table services that complete under another action word (hudi-format 2.3)."""
OTHER_ACTIONS = ("clean", "rollback", "restore", "savepoint", "indexing")
ACTIONS = frozenset((*WRITE_ACTIONS, *SERVICE_ACTIONS, *OTHER_ACTIONS))

_FILE_NAME = re.compile(r"(\d{14,20})(?:_(\d{14,20}))?\.([a-z]+)(?:\.(requested|inflight))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Instant:
    """One action of the timeline. `action` is the logical one, so a finished compaction is 'compaction'."""

    requested: str
    action: str
    state: str
    completed: str | None
    """Completion time; None in layout 1 and before completion."""
    file_name: str
    """The file of the highest state."""

    @property
    def completed_action(self) -> str:
        """The action word of the completed file."""
        return SERVICE_ACTIONS.get(self.action, self.action)

    @property
    def is_completed(self) -> bool:
        return self.state == COMPLETED


def parse_instant_file(name: str, layout: int) -> tuple[str, str | None, str, str] | None:
    """(requested time, completion time, action word, state) of a file name; None for anything that is no instant.

    The action word is the one in the name: `t.inflight` is 'commit', a finished compaction is 'commit'.
    A completed layout-2 file without completion time is accepted, as Java does; its completion time is None.
    """
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    requested, completed, word, suffix = match.groups()
    if word == "inflight" and suffix is None:
        word, suffix = "commit", "inflight"
    if word not in ACTIONS or (completed and (layout == 1 or suffix)):
        return None
    if suffix is None and word in SERVICE_ACTIONS:
        return None
    return requested, completed, word, suffix.upper() if suffix else COMPLETED


def instant_file_name(requested: str, action: str, state: str, layout: int, completed: str | None = None) -> str:
    """The file name of hudi-format 2.3 for a logical action."""
    word = "replacecommit" if action == "clustering" and layout == 1 else action
    if state == REQUESTED:
        assert action != "savepoint", "a savepoint has no requested file"
        return f"{requested}.{word}.requested"
    if state == INFLIGHT:
        return f"{requested}.inflight" if word == "commit" else f"{requested}.{word}.inflight"
    assert (layout == 1) == (completed is None), "only layout 2 has completion times, and there each instant has one"
    prefix = requested if completed is None else f"{requested}_{completed}"
    return f"{prefix}.{SERVICE_ACTIONS.get(action, action)}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """The instants of a table as of one listing."""

    layout: int
    instants: tuple[Instant, ...]
    """The active timeline, sorted by requested time."""
    archived: tuple[Instant, ...] = ()
    start: str | None = field(init=False, repr=False, compare=False)
    """Smallest requested time among the completed write instants of the active timeline that are not savepointed (S of
    hudi-format 2.6): archiving may go past a savepoint, which keeps its instant and leaves a hole behind it."""
    newest_time: str = field(init=False, repr=False, compare=False)
    """The largest time anywhere, requested or completed; '' when there is none."""
    _writes: Mapping[str, Instant] = field(init=False, repr=False, compare=False)
    _active: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        done = [i for i in (*self.archived, *self.instants) if _is_completed_write(i)]
        saved = {i.requested for i in self.instants if i.action == "savepoint"}
        active = [i.requested for i in self.instants if _is_completed_write(i)]
        active = [t for t in active if t not in saved] or active
        times = [time for i in (*self.archived, *self.instants) for time in (i.requested, i.completed or "")]
        object.__setattr__(self, "_writes", {i.requested: i for i in done})
        object.__setattr__(self, "_active", frozenset(i.requested for i in self.instants))
        object.__setattr__(self, "start", min(active, default=None))
        object.__setattr__(self, "newest_time", max(times, default=""))

    @classmethod
    def from_file_names(
        cls, names: Iterable[str], layout: int, modified: Mapping[str, int] | None = None, zone: tzinfo = UTC
    ) -> "Timeline":
        """The active timeline from the names of one listing; names that are no instant files are skipped.

        `modified` (name to epoch ms) gives the completion time of layout-2 files that an upgrade left without one;
        `zone` is the timeline's zone.
        """
        groups: dict[tuple[str, str], list[tuple[str, str | None, str, str, str]]] = {}
        for name in names:
            parsed = parse_instant_file(name, layout)
            if parsed is None:
                continue
            requested, completed, word, state = parsed
            if layout != 1 and state == COMPLETED and completed is None and modified and name in modified:
                completed = new_instant_time(modified[name], zone)
            # A savepoint carries the time of the instant it saves, and the metadata table has rollbacks of that
            # kind: only the words of one write belong together.
            kind = word if word in OTHER_ACTIONS else "write"
            groups.setdefault((requested, kind), []).append((requested, completed, word, state, name))
        instants = [_instant(group) for group in groups.values()]
        return cls(layout, tuple(sorted(instants, key=lambda i: (i.requested, i.action))))

    def with_archived(self, archived: Iterable[Instant]) -> "Timeline":
        """This timeline with the archived instants known; those still active are not repeated."""
        active = {(i.requested, i.completed_action) for i in self.instants if i.is_completed}
        kept = [i for i in archived if (i.requested, i.completed_action) not in active]
        return replace(self, archived=tuple(sorted(kept, key=lambda i: (i.requested, i.action))))

    def completed_writes(self) -> list[Instant]:
        """Completed commit, deltacommit and replacecommit instants, archived ones first, in the order of `time_of`."""
        return sorted(self._writes.values(), key=lambda i: (self.time_of(i), i.requested))

    def is_committed(self, t: str) -> bool:
        """Whether files of instant `t` count: it completed, or it is older than the active timeline.

        An instant that is listed as pending is not committed, even when it is older than the first completed one.
        """
        if t in self._writes:
            return True
        return self.start is not None and t < self.start and t not in self._active

    def completion_of(self, t: str) -> str | None:
        """Layout 2: completion time of write instant `t` if it is known; layout 1: `t`."""
        if self.layout == 1:
            return t
        found = self._writes.get(t)
        return found.completed if found else None

    def time_of(self, instant: Instant) -> str:
        """The time that orders instants: requested in layout 1, completion (requested if unknown) in layout 2."""
        return instant.requested if self.layout == 1 else instant.completed or instant.requested

    def pending(self, *actions: str) -> list[Instant]:
        """Instants that are not completed, by logical action; of all actions when none is named."""
        return [i for i in self.instants if not i.is_completed and (not actions or i.action in actions)]


def _is_completed_write(instant: Instant) -> bool:
    return instant.state == COMPLETED and instant.completed_action in WRITE_ACTIONS


def _instant(group: list[tuple[str, str | None, str, str, str]]) -> Instant:
    """One instant from the parsed files of its states."""
    # Of two completed files of one instant (two processes completed it) the earlier one made it visible.
    requested, completed, word, state, name = min(group, key=lambda f: (-STATES.index(f[3]), f[1] or "", f[4]))
    service = next((f[2] for f in group if f[2] in SERVICE_ACTIONS), None)
    return Instant(requested, service or word, state, completed, name)


def new_instant_time(now_ms: int, zone: tzinfo = UTC) -> str:
    """17 digits for an epoch time in milliseconds."""
    now = datetime.fromtimestamp(now_ms // 1000, zone)
    return f"{now:%Y%m%d%H%M%S}{now_ms % 1000:03d}"


def instant_millis(t: str, zone: tzinfo = UTC) -> int:
    """Epoch milliseconds of an instant; 14 digits mean the end of that second, digits after the 17th are dropped."""
    digits = t + "999" if len(t) == 14 else t[:17]
    try:
        moment = datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
        return int(moment.timestamp()) * 1000 + int(digits[14:17])
    except ValueError:
        raise FormatError(
            f"'{t}' is not an instant time: expected yyyyMMddHHmmssSSS. "
            "Look at the name of the instant file that it comes from."
        ) from None


_USER_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


def normalise_instant(text: str, zone: tzinfo = UTC) -> str:
    """The instant a user means, as digits that compare with the timeline's (hudi-format 8.2).

    Digits stay as they are. A date, and a time without seconds, mean their first moment; a time with seconds and without
    fraction means the whole second.
    `zone` is the timeline's; a text with an offset is converted to it. SQLError when it is no time at all.
    """
    cleaned = text.strip()
    if re.fullmatch(r"\d{14}|\d{17}", cleaned, re.ASCII):
        return cleaned
    match = _USER_TIME.fullmatch(cleaned)
    if match is None:
        raise SQLError(_not_a_time(text))
    *parts, fraction, offset = match.groups()
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    millis = (fraction + "00")[:3] if fraction else ("000" if parts[5] is None else "999")
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=_offset(offset) if offset else zone)
        return f"{moment.astimezone(zone):%Y%m%d%H%M%S}{millis}"
    except ValueError:
        raise SQLError(_not_a_time(text)) from None


def _offset(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def _not_a_time(text: str) -> str:
    return (
        f"'{text}' is not a point in time. Give an instant (17 or 14 digits), a date such as 2026-11-30, "
        "or a timestamp such as 2026-11-30 01:52:21.364."
    )
