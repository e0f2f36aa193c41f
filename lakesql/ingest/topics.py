"""Which topics a job reads, and the settings that hold for one of them."""

import re
from collections.abc import Mapping, Sequence

from lakesql.ingest.model import Job, Topic

DOTS = "gobblin.kafka.allowPeriodInTopicName"


def selected(topics: Sequence[Topic], job: Job) -> list[Topic]:
    """The topics that the whitelist names and the blacklist does not, by name: whole names, in any case (R15, R16)."""
    white, black = (
        tuple(re.compile(p, re.IGNORECASE) for p in patterns) for patterns in (job.whitelist, job.blacklist)
    )
    dots = job.settings.get(DOTS, "true").lower() != "false"
    found = [
        topic
        for topic in topics
        if (not white or _fits(white, topic.name)) and not _fits(black, topic.name) and (dots or "." not in topic.name)
    ]
    return sorted(found, key=lambda topic: topic.name)


def absent(topics: Sequence[Topic], job: Job) -> list[str]:
    """Names in the whitelist that are plain names, not patterns, and that no topic has."""
    names = {topic.name.lower() for topic in topics}
    plain = [re.sub(r"\\([.\-_])", r"\1", pattern) for pattern in job.whitelist]
    return [name for name in plain if re.fullmatch(r"[\w.\-]+", name) and not _has(names, name.lower())]


def _has(names: set[str], name: str) -> bool:
    """A dot in a name is a pattern as well."""
    return name in names or ("." in name and any(re.fullmatch(name, other) for other in names))


def settings_of(job: Job, topic: str) -> Mapping[str, str]:
    """The settings of dataset.specific.props that hold for a topic: those of all that match it, later ones winning."""
    found: dict[str, str] = {}
    for pattern, settings in job.topic_settings:
        if re.fullmatch(pattern, topic, re.IGNORECASE):
            found |= settings
    return found


def target_options(job: Job, topic: str) -> Mapping[str, str]:
    """The options of the job's target as they hold for a topic."""
    return {**job.target.options, **settings_of(job, topic)}


def _fits(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
