"""The settings of adaptive compaction, from text to values."""

from collections.abc import Mapping
from dataclasses import dataclass

from lakesql.services.adaptive_model import Target
from lakesql.services.freshness import parse_span
from lakesql.values import Parse, flag, parsed

OFF, NOTE = "off", "note"
PREFIX = "lakesql.compaction."
READ_AMPLIFICATION = f"{PREFIX}target.read_amplification"
STALENESS = f"{PREFIX}target.staleness"
BUDGET = f"{PREFIX}budget"
PERIOD = f"{PREFIX}period"
BACKPRESSURE = f"{PREFIX}backpressure"
OBSERVE_READS = f"{PREFIX}observe_reads"


@dataclass(frozen=True, slots=True)
class AdaptiveConfig:
    """The settings as typed values."""

    read_amplification: float | None = None
    staleness_s: float | None = None
    budget: float = 1.0
    period_s: float = 0.0
    log_read_cost: float = 1.0
    observe_reads: bool = False
    backpressure: str | float = OFF
    """Off, a note, or the seconds that a write waits at most."""

    @property
    def target(self) -> Target:
        return Target(self.read_amplification, self.staleness_s, self.budget)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _at_least_one(text: str) -> float:
    value = _number(text)
    if not 1 < value < float("inf"):
        raise ValueError("must be a number above 1, such as 1.5: what a snapshot may read, in units of the base files")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise ValueError("must be a number above 0")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1:
        raise ValueError("must be a share of time above 0 and at most 1, such as 0.3")
    return value


def _backpressure(text: str) -> str | float:
    if text.lower() in (OFF, NOTE):
        return text.lower()
    value = _number(text)
    if not 0 < value < float("inf"):
        raise ValueError(f"must be {OFF}, {NOTE}, or the seconds that a write waits at most")
    return value


def _span(text: str) -> float:
    seconds = parse_span(text)
    if seconds <= 0:
        raise ValueError("must be a span of time such as '15 minutes'")
    return seconds


_BY_FIELD: dict[str, tuple[str, Parse]] = {
    "read_amplification": (READ_AMPLIFICATION, _at_least_one),
    "staleness_s": (STALENESS, _span),
    "budget": (BUDGET, _share),
    "period_s": (PERIOD, _span),
    "log_read_cost": (f"{PREFIX}log_read_cost", _positive),
    "observe_reads": (OBSERVE_READS, flag),
    "backpressure": (BACKPRESSURE, _backpressure),
}
SETTINGS: dict[str, Parse] = dict(_BY_FIELD.values())


def parse_config(settings: Mapping[str, str]) -> AdaptiveConfig:
    """The typed settings. TableError names a setting and its wrong value."""
    return parsed(AdaptiveConfig, _BY_FIELD, settings)
