"""Settings of cleaning, under the names of Hudi 1.x; the older spellings are taken as well (hudi-format 10.1)."""

from collections.abc import Mapping
from dataclasses import dataclass

from lakesql.values import Parse, aliased, duration, flag, parsed, size

COMMITS, HOURS, VERSIONS = "KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"
POLICY, RETAINED_COMMITS = "hoodie.clean.policy", "hoodie.clean.commits.retained"
RETAINED_HOURS, RETAINED_VERSIONS = "hoodie.clean.hours.retained", "hoodie.clean.fileversions.retained"
TRIGGER, TRIGGER_COMMITS = "hoodie.clean.trigger.strategy", "hoodie.clean.trigger.max.commits"
GRACE = "lakesql.clean.grace"

ALIASES = {
    "hoodie.cleaner.policy": POLICY,
    "hoodie.cleaner.commits.retained": RETAINED_COMMITS,
    "hoodie.cleaner.hours.retained": RETAINED_HOURS,
    "hoodie.cleaner.fileversions.retained": RETAINED_VERSIONS,
    "hoodie.clean.max.commits": TRIGGER_COMMITS,
    "hoodie.cleaner.incremental.mode": "hoodie.clean.incremental.enabled",
}
"""Older spelling -> name."""


@dataclass(frozen=True, slots=True)
class CleanConfig:
    """What a clean keeps, and when one is due."""

    automatic: bool = True
    policy: str = COMMITS
    commits: int = 10
    hours: int = 24
    versions: int = 3
    trigger: str = "NUM_COMMITS"
    trigger_commits: int = 1
    incremental: bool = True
    grace_ms: int = 0


_HOURS_MAX = 876_000  # a hundred years


def parse_clean(settings: Mapping[str, str]) -> CleanConfig:
    """The typed form of the settings; TableError names a value that a setting cannot have."""
    return parsed(CleanConfig, _BY_FIELD, aliased(settings, ALIASES))


def _policy(text: str) -> str:
    if text.upper() not in (COMMITS, HOURS, VERSIONS):
        raise ValueError(f"must be one of {COMMITS}, {HOURS}, {VERSIONS}")
    return text.upper()


def _trigger(text: str) -> str:
    if text.upper() != "NUM_COMMITS":
        raise ValueError("must be NUM_COMMITS")
    return text.upper()


def _hours(text: str) -> int:
    hours = size(1)(text)
    if hours > _HOURS_MAX:
        raise ValueError(f"must be at most {_HOURS_MAX}")
    return hours


_BY_FIELD: dict[str, tuple[str, Parse]] = {
    "automatic": ("hoodie.clean.automatic", flag),
    "policy": (POLICY, _policy),
    "commits": (RETAINED_COMMITS, size(1)),
    "hours": (RETAINED_HOURS, _hours),
    "versions": (RETAINED_VERSIONS, size(1)),
    "trigger": (TRIGGER, _trigger),
    "trigger_commits": (TRIGGER_COMMITS, size(1)),
    "incremental": ("hoodie.clean.incremental.enabled", flag),
    "grace_ms": (GRACE, duration),
}

SETTINGS: dict[str, Parse] = dict(_BY_FIELD.values())
SETTINGS |= {other: SETTINGS[name] for other, name in ALIASES.items()}
