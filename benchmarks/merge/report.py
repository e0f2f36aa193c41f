"""The report of a run: what MERGE cost every engine, and where lakesql's time went. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.merge.phases import PHASES, shares
from benchmarks.merge.workload import CASES

REFERENCE = "duckdb"


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of one engine and case: the figures by name, and seconds by step where the engine tells."""

    engine: str
    case: str
    figures: Mapping[str, float]
    steps: Mapping[str, float]


def markdown(
    about: Mapping[str, object],
    results: Sequence[Measured],
    versions: Mapping[str, str],
    unavailable: Mapping[str, str],
) -> str:
    rows = int(str(about["rows"]))
    text = [
        f"MERGE into {rows:,} rows, median of {about['runs']} runs, {about['cores']} cores, load average "
        f"{about['load_before']} before and {about['load_after']} after, {about['time']}.",
        "",
        *_versions(versions),
    ]
    for case in CASES.values():
        chosen = [r for r in results if r.case == case.name]
        if not chosen:
            continue
        text += ["", f"### {case.name}: {case.rows(rows):,} rows, {case.text}", "", *_costs(chosen, unavailable)]
        if told := [r for r in chosen if r.steps]:
            text += ["", *_shares(told), "", *_steps(told)]
    return "\n".join(text) + "\n"


def _versions(versions: Mapping[str, str]) -> list[str]:
    """One line; the engines of one package have one version."""
    packages = {name.split("-")[0]: version for name, version in versions.items()}
    return [", ".join(f"{name} {version}" for name, version in packages.items()) + "."]


def _costs(results: Sequence[Measured], unavailable: Mapping[str, str]) -> list[str]:
    reference = next((r.figures["wall_s"] for r in results if r.engine == REFERENCE), None)
    lines = [
        f"| engine | wall s | / {REFERENCE} | CPU s | peak MB | new files | written MB | then read all s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for r in results:
        f = r.figures
        ratio = f"{f['wall_s'] / reference:.2f}" if reference else ""
        files = f"{f['files']:.0f}" if r.engine != REFERENCE else "in place"
        lines.append(
            f"| {r.engine} | {f['wall_s']:.3f} | {ratio} | {f['cpu_s']:.3f} | {f['peak_mb']:.0f} | {files} "
            f"| {f['written_mb']:.1f} | {f['read_s']:.3f} |"
        )
    lines += [f"| {name} | not available here: {reason} | | | | | | |" for name, reason in unavailable.items()]
    return lines


def _shares(results: Sequence[Measured]) -> list[str]:
    lines = [f"| share of the wall time | {' | '.join(PHASES)} |", f"|---|{'---:|' * len(PHASES)}"]
    for r in results:
        found = shares(r.steps)
        lines.append(f"| {r.engine} | {' | '.join(f'{found[phase]:.0%}' for phase in PHASES)} |")
    return lines


def _steps(results: Sequence[Measured]) -> list[str]:
    names = [step for steps in PHASES.values() for step in steps]
    lines = [f"| seconds by step | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    lines += [f"| {r.engine} | {' | '.join(f'{r.steps[name]:.3f}' for name in names)} |" for r in results]
    return lines
