"""The report of a run: the targets, where a peer is faster and why, the plot, and everything that was measured."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plot
from benchmarks.phases import PHASES, shares
from benchmarks.targets import Judged, Results, faster, judged

_FIGURES = {"wall_s": "following calls", "first_s": "first call"}


def written(output: Path, about: Mapping[str, Any], results: Results, others: Path) -> str:
    """Write report.json, report.svg (where the library that draws is installed) and report.md; the latter's text.

    `others`: the folder of the reports of compaction and ingestion.
    """
    verdicts = judged(results)
    everything = {
        "about": about,
        "targets": [
            {
                "target": j.target.name,
                "wanted": j.target.wanted,
                "value": j.value,
                "low": j.low,
                "high": j.high,
                "met": j.met,
            }
            for j in verdicts
        ],
        "results": results,
    }
    (output / "report.json").write_text(json.dumps(everything, indent=1) + "\n")
    drawn = plot.drawn(output / "report.svg", results, verdicts)
    text = markdown(about, results, verdicts, drawn, others)
    (output / "report.md").write_text(text)
    return text


def markdown(about: Mapping[str, Any], results: Results, verdicts: Sequence[Judged], drawn: bool, others: Path) -> str:
    parts = [
        ["# lakesql beside its peers", "", *_about(about)],
        ["## Targets", "", *_targets(verdicts)],
        ["## Where a peer is faster", "", *_faster(results)],
        ["![Wall time by engine, and the targets](report.svg)"] if drawn else [],
        ["## Everything measured", "", *_measured(results)],
        _steps(results),
        _compaction(others / "compaction-speed.json"),
        _ingestion(others / "ingest.json"),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _about(about: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    lines = [
        f"{about['rows']:,} rows, {about['runs']} rounds, {about['cores']} cores, load average {about['load_before']} "
        f"before and {about['load_after']} after, {about['time']}. How: [README.md](README.md).",
        "",
        f"{versions}.",
    ]
    for engine, why in about["unavailable"].items():
        lines += ["", f"Not measured: {engine}: {why}."]
    for name, why in about["failed"].items():
        lines += ["", f"Failed: {name}: {why[:300]}"]
    return lines


def _targets(verdicts: Sequence[Judged]) -> list[str]:
    lines = [
        "Medians compared; in brackets the smallest and largest of the rounds. Without a target: for information.",
        "",
        "| work | compared | measured | target | met |",
        "|---|---|---:|---:|---|",
    ]
    for j in verdicts:
        met = {True: "yes", False: "**no**", None: ""}[j.met]
        lines.append(
            f"| {j.target.work} | {j.target.text} | {_number(j.value)} ({_number(j.low)}-{_number(j.high)}) "
            f"| {j.target.wanted} | {met} |"
        )
    return lines


def _faster(results: Results) -> list[str]:
    found = faster(results)
    if not found:
        return ["Nowhere by more than a twentieth."]
    lines = ["By a twentieth or more.", "", "| work | peer | | lakesql takes | reason |", "|---|---|---|---:|---|"]
    lines += [f"| {f.work} | {f.engine} | {_FIGURES[f.figure]} | {f.times:.2f}x | {f.reason} |" for f in found]
    return lines


def _measured(results: Results) -> list[str]:
    lines = [
        "| work | engine | rounds | first call s | wall s (smallest-largest) | CPU s | peak MB | written MB |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in sorted(results, key=_place(results)):
        rounds = results[name]
        work, engine = name.split("/")
        walls = [r["wall_s"] for r in rounds]
        lines.append(
            f"| {work} | {engine} | {len(rounds)} | {_middle(rounds, 'first_s'):.3f} | {statistics.median(walls):.3f} "
            f"({min(walls):.3f}-{max(walls):.3f}) | {_middle(rounds, 'cpu_s'):.3f} | {_middle(rounds, 'peak_mb'):.0f} "
            f"| {_middle(rounds, 'written_mb'):.1f} |"
        )
    return lines


def _place(results: Results) -> Any:
    """Works in the order they came, lakesql first."""
    works = list(dict.fromkeys(name.split("/")[0] for name in results))
    return lambda name: (works.index(name.split("/")[0]), not name.endswith("/lakesql"))


def _steps(results: Results) -> list[str]:
    told = {name: rounds for name, rounds in results.items() if rounds and rounds[0].get("steps")}
    if not told:
        return []
    names = [step for steps in PHASES.values() for step in steps]
    lines = [
        "## Where the time of a MERGE goes",
        "",
        f"| share of the wall time, then seconds by step | {' | '.join([*PHASES, *names])} |",
        f"|---|{'---:|' * (len(PHASES) + len(names))}",
    ]
    for name, rounds in told.items():
        seconds = {step: statistics.median(r["steps"][step] for r in rounds) for step in names}  # type: ignore[index]
        part = shares(seconds)
        figures = [*(f"{part[phase]:.0%}" for phase in PHASES), *(f"{seconds[step]:.3f}" for step in names)]
        lines.append(f"| {name.split('/')[0]} | {' | '.join(figures)} |")
    return lines


def _compaction(file: Path) -> list[str]:
    """What `python -m benchmarks.compaction --speed` found, where it ran."""
    if not file.exists():
        return []
    found = json.loads(file.read_text())
    lines = [
        "## Compaction against the Copy-on-Write upsert of the same rows",
        "",
        f"By `python -m benchmarks.compaction --speed`, {found['about']}",
        "",
        "| shape | updated | upsert s | compaction s | ratio | target | met | peak MB, memory_limit 512MB |",
        "|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    for row in found["rows"]:
        met = "yes" if row["ratio"] <= row["limit"] else "**no**"
        lines.append(
            f"| {row['shape']} | {row['share']} % | {row['upsert_s']:.3f} | {row['compact_s']:.3f} | {row['ratio']:.2f} "
            f"| <= {row['limit']}x | {met} | {row['low_memory_peak_mb']:.0f} |"
        )
    return lines


def _ingestion(file: Path) -> list[str]:
    """What `python -m benchmarks.ingest.run` found, where it ran."""
    if not file.exists():
        return []
    found: dict[str, list[dict[str, float]]] = json.loads(file.read_text())
    lines = [
        "## Ingestion from Kafka",
        "",
        "By `python -m benchmarks.ingest.run`; the target is 70 % of what the Kafka client alone reads.",
        "",
        "| case | records/s | of the client | CPU s | peak MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, rounds in found.items():
        form = name.rsplit("-", 1)[-1]
        client = _middle(found[f"client-{form}"], "wall_s")
        wall = _middle(rounds, "wall_s")
        lines.append(
            f"| {name} | {_middle(rounds, 'records') / wall:,.0f} | {client / wall:.0%} | {_middle(rounds, 'cpu_s'):.2f} "
            f"| {_middle(rounds, 'peak_mb'):.0f} |"
        )
    return lines


def _middle(rounds: Sequence[Mapping[str, float]], figure: str) -> float:
    return statistics.median(r[figure] for r in rounds)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"
