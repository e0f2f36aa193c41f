"""The strategies that the simulation compares: Hudi's by `compaction_plan`, ours by `adaptive`. No decision is made here."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from lakesql.services import compaction_plan
from lakesql.services.adaptive import decide
from lakesql.services.adaptive_model import Target
from lakesql.simulation.world import MB, Choose, World

FULL_FILE = 120 * MB


def hudi(**settings: str) -> Choose:
    """A trigger and a strategy of Hudi by their settings."""
    config = compaction_plan.parse_config(settings)

    def choose(world: World) -> Sequence[int]:
        if not compaction_plan.is_due(config, world.timeline(), world.now_ms(), UTC):
            return ()
        slices = world.slices()
        numbers = {s.group: n for n, s in enumerate(slices)}
        operations = [compaction_plan.operation_of(s, FULL_FILE) for s in slices if s.logs]
        today = datetime.fromtimestamp(world.now_ms() / 1000, UTC).date()
        return [numbers[o.slice.group] for o in compaction_plan.choose(operations, config, today, "simulated")]

    return choose


def adaptive(target: Target) -> Choose:
    """Our controller with these targets."""

    def choose(world: World) -> Sequence[int]:
        facts = world.facts()
        numbers = {g.key: n for n, g in enumerate(facts.groups)}
        return [numbers[g.key] for g in decide(facts, target).compact]

    return choose


_TRIGGER, _COMMITS = "hoodie.compact.inline.trigger.strategy", "hoodie.compact.inline.max.delta.commits"
_SECONDS, _LOG_SIZE = "hoodie.compact.inline.max.delta.seconds", "hoodie.compaction.logfile.size.threshold"

FIXED: Mapping[str, Choose] = {
    **{f"every {n} commits": hudi(**{_COMMITS: str(n)}) for n in (2, 5, 10)},
    **{
        f"every {minutes} min": hudi(**{_TRIGGER: "TIME_ELAPSED", _SECONDS: str(60 * minutes)})
        for minutes in (3, 8, 20)
    },
    **{f"logs of {mb} MB": hudi(**{_COMMITS: "1", _LOG_SIZE: str(mb * MB)}) for mb in (1, 4, 16)},
}
AMPLIFICATIONS = (1.05, 1.1, 1.2, 1.4, 1.8)
SPANS_MIN = (3, 6, 12, 25)
ADAPTIVE: Mapping[str, Target] = {
    **{f"adaptive, reads {a:g}": Target(read_amplification=a) for a in AMPLIFICATIONS},
    **{f"adaptive, {m} min": Target(staleness_s=60.0 * m) for m in SPANS_MIN},
    **{
        f"adaptive, reads {a:g}, {m} min": Target(read_amplification=a, staleness_s=60.0 * m)
        for a, m in ((1.1, 12), (1.2, 25), (1.4, 25))
    },
}

NEVER = "never"


def never(world: World) -> Sequence[int]:  # noqa: ARG001
    """No compaction at all."""
    return ()


def named(name: str) -> Choose:
    """A strategy by its name: as above, with any number in it. ValueError for other names."""
    if name == NEVER:
        return never
    if found := re.fullmatch(r"every (\d+) commits", name):
        return hudi(**{_COMMITS: found[1]})
    if found := re.fullmatch(r"every (\d+) min", name):
        return hudi(**{_TRIGGER: "TIME_ELAPSED", _SECONDS: str(60 * int(found[1]))})
    if found := re.fullmatch(r"logs of (\d+) MB", name):
        return hudi(**{_COMMITS: "1", _LOG_SIZE: str(int(found[1]) * MB)})
    if found := re.fullmatch(r"adaptive(?:, reads (\d+(?:\.\d+)?))?(?:, (\d+) min)?", name):
        reads = None if found[1] is None else float(found[1])
        if reads is None or reads > 1:
            return adaptive(Target(reads, None if found[2] is None else 60.0 * int(found[2])))
    raise ValueError(
        f"{name!r} is no strategy; there are 'never', 'every 5 commits', 'every 20 min', 'logs of 4 MB', "
        "'adaptive, reads 1.2' (more than 1), 'adaptive, 12 min' and 'adaptive, reads 1.2, 12 min', with any number"
    )
