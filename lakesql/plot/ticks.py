"""Where an axis has its ticks, and what they say. Pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

Tick = tuple[float, str]

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_000
"""The years 1 to 9999, which moments have."""
_SECOND, _MINUTE, _HOUR, _DAY = 1e3, 60e3, 3_600e3, 86_400e3
_STEPS = (
    *(n for e in (1, 10, 100) for n in (e, 2 * e, 5 * e)),
    *(_SECOND * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 5, 10)),
)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)


@dataclass(frozen=True, slots=True)
class Axis:
    """The range of an axis and its ticks. `label` is written below or above it."""

    low: float
    high: float
    ticks: Sequence[Tick] = ()
    label: str = ""
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(high: float, text: Callable[[float], str], label: str = "", low: float = 0.0, most: int = 5) -> Axis:
    """From `low` to a little above `high`, with `low` and round numbers."""
    if not high > low:
        high = low + 1.0
    step = round_step((high - low) / most)
    first = math.ceil((low + 0.6 * step) / step)
    values = [low, *(n * step for n in range(first, math.floor(high / step + 1e-9) + 1))]
    return Axis(low, low + 1.03 * (high - low), [(v, text(v)) for v in values], label)


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 and ten times that, which is not below a number."""
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(n * unit for n in (1, 2, 2.5, 5, 10) if n * unit >= rough * 0.999)


def counted(high: int, label: str = "", most: int = 8) -> Axis:
    """Numbers from 1 to `high`, with half a step of room at both ends."""
    step = next(n * 10**e for e in range(12) for n in (1, 2, 5) if n * 10**e * most >= high)
    values = sorted({1, *range(step, high + 1, step)}) if high else []
    return Axis(0.5, max(high, 1) + 0.5, [(float(v), f"{v:,}") for v in values], label)


def logarithmic(low: float, high: float, text: Callable[[float], str], label: str = "", most: int = 8) -> Axis:
    """Round numbers between two positive ones."""
    if high < low * 10:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    values = [n * 10.0**e for e in range(first, last + 1) for n in steps if low * 0.999 <= n * 10.0**e <= high * 1.001]
    values = values[:: max(1, math.ceil(len(values) / most))]
    return Axis(low, high, [(v, text(v)) for v in values], label, log=True)


def time_axis(low: float, high: float, label: str = "", most: int = 6) -> Axis:
    """Moments in UTC (epoch milliseconds) at round times; the label says the days where the ticks do not."""
    if high - low < 1:
        low, high = low - 500, high + 500
    first, last = (f"{_moment(t):%Y-%m-%d}" for t in (low, high))
    room = (high - low) * 0.02
    low, high = low - room, high + room
    ticks, with_days = _times(low, high, most)
    days = "" if with_days else f", {first}" if first == last else f", {first} to {last}"
    return Axis(low, high, ticks, f"{label or 'time'} (UTC){days}")


def _times(low: float, high: float, most: int) -> tuple[list[Tick], bool]:
    for step in _STEPS:
        if (high - low) / step <= most:
            first = math.ceil(low / step)
            values = [n * step for n in range(first, math.floor(high / step) + 1)]
            return [(v, _time_text(v, step)) for v in values], step >= _DAY
    for months in _MONTHS:
        values = list(_month_starts(low, high, months))
        if len(values) <= most:
            return [(v, f"{_moment(v):{'%Y-%m' if months < 12 else '%Y'}}") for v in values], True
    return [], False


def _month_starts(low: float, high: float, months: int) -> Iterator[float]:
    start = _moment(low)
    number = (start.year * 12 + start.month - 1) // months * months
    while number < 10_000 * 12:
        moment = datetime(max(1, number // 12), number % 12 + 1, 1, tzinfo=UTC).timestamp() * 1000
        if moment > high:
            return
        if moment >= low:
            yield moment
        number += months


def _moment(millis: float) -> datetime:
    return datetime.fromtimestamp(min(max(millis, FIRST_MS), LAST_MS) / 1000, UTC)


def _time_text(millis: float, step: float) -> str:
    moment = _moment(millis)
    if step >= _DAY:
        return f"{moment:%Y-%m-%d}"
    if step >= _MINUTE:
        return f"{moment:%H:%M}"
    if step >= _SECOND:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%H:%M:%S}.{round(millis) % 1000:03d}"


_SPANS = (1, 2, 5, 10, 15, 30, *(60 * n for n in (1, 2, 5, 10, 15, 30)), *(3600 * n for n in (1, 2, 3, 6, 12)))


def spans(high: float, text: Callable[[float], str], label: str = "", most: int = 4) -> Axis:
    """Seconds from 0 to at least `high`, in steps that people count in: seconds, minutes, hours, days."""
    if high < most:
        return linear(high, text, label, most=most)
    step = next((s for s in _SPANS if high / s <= most), None) or 86_400 * max(1.0, round_step(high / 86_400 / most))
    values = [step * n for n in range(math.floor(high / step + 1e-9) + 1)]
    return Axis(0.0, 1.03 * high, [(v, text(v)) for v in values], label)
