"""The numbers of a run as OpenMetrics text, by the library of the Prometheus project."""

import re
from collections.abc import Iterator
from typing import Any

from lakesql.errors import IngestError
from lakesql.ingest.metrics import Metrics

_GAUGES = ("mean", "min", "max", "rate_mean", "rate_1m", "rate_5m", "rate_15m")


def openmetrics(metrics: Metrics, job: str) -> str:
    """Counters as counters, meters as a counter and gauges of rates, histograms as summaries; a label for the scope."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.openmetrics.exposition import generate_latest
    except ImportError as error:
        raise IngestError(
            "Metrics as OpenMetrics text need the package prometheus-client. Install it: pip install 'lakesql[kafka]'."
        ) from error
    registry = CollectorRegistry()
    registry.register(_Collector(metrics, job))  # type: ignore[arg-type, unused-ignore]
    text: str = generate_latest(registry).decode()  # type: ignore[no-untyped-call, unused-ignore]
    return text


class _Collector:
    """What the library asks for the families when it writes."""

    def __init__(self, metrics: Metrics, job: str) -> None:
        self._metrics, self._job = metrics, job

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        families: dict[str, Any] = {}

        def family(kind: Any, name: str, text: str) -> Any:
            return families.setdefault(name, kind(name, text, labels=["job", "scope"]))

        grouped: dict[tuple[str, str, str], dict[str, float]] = {}
        for row in self._metrics.table().to_pylist():
            grouped.setdefault((row["scope"], row["name"], row["kind"]), {})[row["measure"]] = row["value"]
        for (scope, name, kind), measures in grouped.items():
            labels, safe = [self._job, scope], "lakesql_ingest_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
            if kind == "histogram":
                if measures["count"]:
                    summary = family(SummaryMetricFamily, f"{safe}_histogram", name)
                    summary.add_metric(labels, count_value=measures["count"], sum_value=measures["sum"])
            else:
                family(CounterMetricFamily, safe, name).add_metric(labels, measures["count"])
            for measure in _GAUGES:
                if measure in measures:
                    family(GaugeMetricFamily, f"{safe}_{measure}", f"{name}, {measure}").add_metric(
                        labels, measures[measure]
                    )
        yield from families.values()

    def describe(self) -> list[Any]:
        return []
