"""The report of a simulation: a table per pattern, and the points and curves as CSV. Pure."""

import csv
import io
from collections.abc import Iterable, Mapping

from benchmarks.compaction.pareto import bytes_at, dominated, reading, staleness
from lakesql.simulation.strategies import ADAPTIVE, FIXED
from lakesql.simulation.world import COMMIT_S, MB, STEPS, Outcome

Outcomes = Mapping[str, Outcome]


def failures(results: Mapping[str, Outcomes]) -> list[str]:
    """Adaptive points that a fixed strategy dominates; the run has failed when there are any."""
    return [
        f"{pattern}: {name} is dominated by {', '.join(by)}"
        for pattern, outcomes in results.items()
        for name, by in dominated(*_parted(outcomes)).items()
    ]


def _parted(outcomes: Outcomes) -> tuple[Outcomes, Outcomes]:
    return {n: outcomes[n] for n in ADAPTIVE}, {n: outcomes[n] for n in FIXED}


def markdown(about: str, results: Mapping[str, Outcomes]) -> str:
    text = ["# Compaction strategies, simulated", "", about, ""]
    for pattern, outcomes in results.items():
        adaptive, fixed = _parted(outcomes)
        beaten = dominated(fixed, adaptive)
        text += [f"## {pattern}", "", *_table(adaptive, fixed, beaten), ""]
    wrong = failures(results)
    verdict = wrong or ["No fixed strategy dominates an adaptive one in any pattern."]
    return "\n".join([*text, *verdict]) + "\n"


def _table(adaptive: Outcomes, fixed: Outcomes, beaten: Mapping[str, list[str]]) -> list[str]:
    by_reading = [o for n, o in adaptive.items() if ADAPTIVE[n].staleness_s is None]
    by_staleness = [o for n, o in adaptive.items() if ADAPTIVE[n].read_amplification is None]
    lines = [
        "| strategy | MB rewritten | reads mean | p95 | max | stale s mean | p95 | max | compactor busy "
        "| adaptive rewrites, reading the same | being as fresh | dominated by |",
        f"|---|{'---:|' * 10}---|",
    ]
    for name, one in {**fixed, **adaptive}.items():
        compared = ["", ""]
        if name in fixed:
            compared = [
                _times(bytes_at(by_reading, reading, reading(one)), one),
                _times(bytes_at(by_staleness, staleness, staleness(one)), one),
            ]
        lines.append(
            f"| {name} | {one.rewritten / MB:,.0f} | {one.read_mean:.3f} | {one.read_p95:.3f} | {one.read_max:.3f} "
            f"| {one.stale_mean:,.0f} | {one.stale_p95:,.0f} | {one.stale_max:,.0f} | {one.compactor_share:.0%} "
            f"| {compared[0]} | {compared[1]} | {', '.join(beaten.get(name, ()))} |"
        )
    return lines


def _times(adaptive_bytes: float | None, one: Outcome) -> str:
    return "" if adaptive_bytes is None else f"{adaptive_bytes / one.rewritten:.2f} x"


def points_csv(results: Mapping[str, Outcomes]) -> str:
    """One row per pattern and strategy."""
    fields = [f for f in Outcome.__slots__ if f != "reads"]
    return _csv(
        ["pattern", "strategy", *fields],
        ([p, n, *(getattr(o, f) for f in fields)] for p, outcomes in results.items() for n, o in outcomes.items()),
    )


def curves_csv(results: Mapping[str, Outcomes]) -> str:
    """Read amplification over time."""
    return _csv(
        ["pattern", "strategy", "seconds", "read_amplification"],
        (
            [pattern, name, step * COMMIT_S / STEPS, round(value, 4)]
            for pattern, outcomes in results.items()
            for name, one in outcomes.items()
            for step, value in enumerate(one.reads)
        ),
    )


def _csv(header: list[str], rows: Iterable[list[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
