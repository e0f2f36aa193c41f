"""Instant times for a table: in the zone of its writers, larger than every time on the timeline, never in the future.

Spark draws its instants from its own clock without looking at the timeline: what it writes after an instant that lies
ahead of its clock, or that is written in another zone, stays invisible (hudi-format 2.2). So the clock is waited for
when it lags a little, and a larger gap, or a zone that cannot be told, is an error before anything is written.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING

from lakesql.errors import FormatError, TableError
from lakesql.format.timeline import Instant, instant_millis, new_instant_time

if TYPE_CHECKING:
    from lakesql.table.state import TableState

Clock = Callable[[], int]
"""Epoch milliseconds."""

WAIT_MS_MAX = 5_000
_STEP_MS = 15 * 60_000  # zones differ by quarters of an hour
_EARLY_MS, _LATE_MS = 2_000, 120_000  # a requested file is made when, or a little after, its time was drawn
_LOOKED_AT = 5


def system_clock() -> int:
    return time.time_ns() // 1_000_000


def draw(clock: Clock, newest: str, zone: tzinfo, where: str) -> str:
    """A new time, 17 digits, larger than `newest`. TableError when `newest` is more than WAIT_MS_MAX ahead."""
    last = instant_millis(newest, zone) if newest else 0
    waited = 0
    while (now := clock()) <= last:
        ahead = last - now
        if ahead > WAIT_MS_MAX or waited > WAIT_MS_MAX:
            raise TableError(
                f"{where}: the newest time on the timeline, {newest}, is {ahead / 1000:.1f} s ahead of this machine's "
                f"clock ({new_instant_time(now, zone)}). Writing now would hide the other writer's next commits. "
                "Synchronise the clocks of all writers (NTP), or wait, then write again."
            )
        time.sleep((ahead + 1) / 1000)
        waited += ahead + 1
    return new_instant_time(now, zone)


def timeline_zone(state: "TableState", setting: str) -> tzinfo:
    """The zone in which the instants of a table are written.

    `setting` (utc, local or '') is hoodie.table.timeline.timezone of the job; the table's own property UTC goes first.
    Without either, the newest instants are compared with the times of their files. TableError when that does not tell.
    """
    if state.config.timezone == "UTC":
        return UTC
    if setting:
        return UTC if setting == "utc" else local_zone()
    instants = [i for i in state.timeline.instants if i.completed_action in ("commit", "deltacommit", "replacecommit")]
    if not instants:
        return local_zone()
    offsets = {_offset_ms(state, i) for i in instants[-_LOOKED_AT:]}
    found = offsets.pop()
    if offsets or found is None:
        raise TableError(
            f"{state.path}: hoodie.properties does not say hoodie.table.timeline.timezone=UTC, and the files' times "
            f"do not tell the zone of the instants (newest: {instants[-1].requested}; the table was copied or "
            "restored). An instant in the wrong zone hides other writers' commits. Set "
            "hoodie.table.timeline.timezone = UTC or LOCAL, as the table's other writers run."
        )
    if found == 0:
        return UTC
    local = datetime.now().astimezone().utcoffset() or timedelta()
    return local_zone() if local == timedelta(milliseconds=found) else timezone(timedelta(milliseconds=found))


def local_zone() -> tzinfo:
    """The zone of this machine, with its daylight saving rules."""
    return _Local()


class _Local(tzinfo):
    """What the operating system thinks, for each moment anew."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None, "a zone is asked about a moment"
        return moment.replace(tzinfo=None).astimezone().utcoffset() or timedelta()

    def dst(self, moment: datetime | None) -> timedelta:  # noqa: ARG002
        return timedelta()

    def tzname(self, moment: datetime | None) -> str:  # noqa: ARG002
        return "LOCAL"

    def fromutc(self, moment: datetime) -> datetime:
        return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def _offset_ms(state: "TableState", instant: Instant) -> int | None:
    """How far an instant's zone is ahead of UTC, by the time of its first file; None when it does not fit any zone."""
    names = [n for n in state.instant_files if n.startswith(f"{instant.requested}.") and n.endswith(".requested")]
    if not names:
        return None
    modified = state.instant_files[names[0]].modified_ms
    try:
        drawn = instant_millis(instant.requested, UTC)
    except FormatError:
        return None
    offset = round((drawn - modified) / _STEP_MS) * _STEP_MS
    late = modified - (drawn - offset)
    plausible = -12 * 3_600_000 <= offset <= 14 * 3_600_000
    return offset if plausible and -_EARLY_MS <= late <= _LATE_MS else None
