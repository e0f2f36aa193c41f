"""A decision of adaptive compaction in words: what, why, what it leaves, and what would be enough. Pure."""

from lakesql.counted import counted
from lakesql.services.adaptive import Decision
from lakesql.services.adaptive_limits import Shortfall
from lakesql.services.adaptive_model import Facts, Target
from lakesql.services.adaptive_settings import BUDGET, READ_AMPLIFICATION, STALENESS
from lakesql.services.freshness import lag_text

_SAID_MAX = 100


def decision_text(decision: Decision, facts: Facts, target: Target) -> str:
    """One line or two."""
    target = target.or_default(facts.reads_per_s is not None)
    parts = [
        f"adaptive: {_what(decision, facts)}, since {'; '.join(_why(decision, facts, target))}. {_leaves(decision)}"
    ]
    if decision.shortfall is not None:
        parts.append(shortfall_text(decision.shortfall, target))
    return " ".join(parts)


def _what(decision: Decision, facts: Facts) -> str:
    if not decision.compact and not decision.fold:
        return "compact nothing"
    size = sum(g.moved for g in decision.compact) + sum(g.log_bytes for g in decision.fold)
    said = []
    if decision.compact:
        said.append(f"compact {len(decision.compact)} of {counted(len(facts.groups), 'file group')}")
    if decision.fold:
        said.append(f"merge the logs of {len(decision.fold)} with each other")
    return (
        f"{' and '.join(said)} ({size:,} bytes to move, about {decision.seconds:.3g} s of {decision.allowed_s:.3g} s)"
    )


def _why(decision: Decision, facts: Facts, target: Target) -> list[str]:
    said = []
    if target.read_amplification is not None:
        reads = f"a snapshot reads {decision.before:.2f} times the base files, target {target.read_amplification:g}"
        ahead = f", and writes go on until the next round in {facts.period_s:g} s" if facts.period_s else ""
        said.append(reads + (ahead if decision.before <= target.read_amplification and decision.amplified else ""))
    if target.staleness_s is not None:
        oldest = f"the oldest change that the read-optimized view lacks is {lag_text(decision.lag_s)} old"
        said.append(f"{oldest}, target {lag_text(target.staleness_s)}")
    if facts.reads_per_s is not None and (decision.paid or not said):
        groups = counted(decision.paid, "file group") if decision.paid else "no file group yet"
        said.append(f"{facts.reads_per_s:.3g} reads per second have paid for the compaction of {groups}")
    return said


def _leaves(decision: Decision) -> str:
    said = []
    if decision.late:
        said.append(f"{counted(decision.late, 'group')} that would be due, for lack of time")
    quiet = decision.left - decision.late + len(decision.fold)
    if quiet > 0:
        said.append(f"{counted(quiet, 'group')} with logs that need no compaction yet")
    if decision.taken:
        said.append(f"{counted(decision.taken, 'group')} to plans that are pending")
    left = f"Leaves {', '.join(said)}" if said else "Leaves no logs"
    return f"{left}: {decision.after:.2f} times, oldest {lag_text(decision.lag_after_s)}."


def shortfall_text(found: Shortfall, target: Target) -> str:
    """Why the targets cannot be met, and what is enough."""
    needed = f"{found.needed:.3g}" if found.needed < _SAID_MAX else f"more than {_SAID_MAX}"
    targets = " and ".join(_settings(found.targets)) if found.targets is not None else ""
    budget = f"{BUDGET} = {found.budget:g}" if found.budget is not None else ""
    if found.together:
        enough = f"{budget} together with {targets}"
    else:
        enough = "; or ".join(part for part in (budget, targets and f"with the present budget {targets}") if part)
    cure = f"Enough would be {enough}" if enough else "Only fewer writes or a faster machine would help"
    return (
        f"The target cannot be met: compaction needs {needed} of the time of one runner, the budget is "
        f"{target.budget:g}. {cure}."
    )


def _settings(targets: Target) -> list[str]:
    said = []
    if targets.read_amplification is not None:
        said.append(f"{READ_AMPLIFICATION} = {targets.read_amplification:g}")
    if targets.staleness_s is not None:
        said.append(f"{STALENESS} = '{targets.staleness_s:.0f} seconds'")
    return said
