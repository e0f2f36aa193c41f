"""A rate and a distribution in bounded memory. Neither has a lock or a clock: `metrics` gives both."""

import math

import numpy as np

TICK_S = 5.0
WINDOWS_S = {"rate_1m": 60.0, "rate_5m": 300.0, "rate_15m": 900.0}
STEPS = 32
"""Buckets for each doubling: a quantile is right to about two percent."""

_LOWEST, _HIGHEST = -20, 44  # powers of two; values outside fall into the first or last bucket
_BUCKETS = (_HIGHEST - _LOWEST) * STEPS
QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class Meter:
    """A count with exponentially weighted rates per second over 1, 5 and 15 minutes, ticking every five seconds."""

    def __init__(self, now: float) -> None:
        self.count = 0.0
        self._since = self._ticked = now
        self._waiting = 0.0
        self._rates: dict[str, float] | None = None

    def mark(self, by: float, now: float) -> None:
        self._tick(now)
        self.count += by
        self._waiting += by

    def add(self, other: "Meter", now: float) -> None:
        """Sum with a meter of another scope: counts and rates add up."""
        mine, theirs = self._now(now), other._now(now)
        self._since = min(self._since, other._since)
        self.count += other.count
        self._waiting = 0.0
        self._rates = {name: mine[name] + theirs[name] for name in WINDOWS_S}

    def measures(self, now: float) -> dict[str, float]:
        lived = max(now - self._since, 1e-9)
        return {"count": self.count, "rate_mean": self.count / lived, **self._now(now)}

    def _now(self, now: float) -> dict[str, float]:
        self._tick(now)
        if self._rates is not None:
            return self._rates
        rate = self._waiting / max(now - self._since, 1.0)  # before the first tick: what is known
        return dict.fromkeys(WINDOWS_S, rate)

    def _tick(self, now: float) -> None:
        ticks = int((now - self._ticked) // TICK_S)
        if ticks <= 0:
            return
        self._ticked += ticks * TICK_S
        rate = self._waiting / TICK_S
        self._waiting = 0.0
        fresh = {}
        for name, window in WINDOWS_S.items():
            keep = math.exp(-TICK_S / window)
            after = rate if self._rates is None else self._rates[name] * keep + rate * (1 - keep)
            fresh[name] = after * keep ** (ticks - 1)
        self._rates = fresh


class Histogram:
    """Counts in buckets whose width grows with the value; sum, smallest and largest are exact."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.low, self.high = math.inf, -math.inf
        self._buckets = np.zeros(_BUCKETS, dtype=np.int64)

    def observe(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Numbers below zero count as the smallest; those that are no number are left out."""
        known = values[np.isfinite(values)]
        if not len(known):
            return
        self.count += len(known)
        self.sum += float(known.sum())
        self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))
        fraction, power = np.frexp(np.maximum(known, 2.0**_LOWEST))
        steps = (power - 1 - _LOWEST) * STEPS + ((fraction - 0.5) * 2 * STEPS).astype(np.int64)
        self._buckets += np.bincount(np.clip(steps, 0, _BUCKETS - 1), minlength=_BUCKETS)

    def add(self, other: "Histogram") -> None:
        self.count += other.count
        self.sum += other.sum
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self._buckets += other._buckets

    def quantile(self, share: float) -> float:
        """The value that this share of the numbers is not above; the middle of its bucket."""
        if not self.count:
            return math.nan
        at = int(np.searchsorted(np.cumsum(self._buckets), max(math.ceil(share * self.count), 1)))
        power, step = divmod(at, STEPS)
        middle = math.ldexp(0.5 + (step + 0.5) / (2 * STEPS), power + 1 + _LOWEST)
        return min(max(middle, self.low), self.high)

    def measures(self) -> dict[str, float]:
        if not self.count:
            return {"count": 0.0}
        return {
            "count": float(self.count),
            "sum": self.sum,
            "mean": self.sum / self.count,
            "min": self.low,
            "max": self.high,
            **{name: self.quantile(share) for name, share in QUANTILES.items()},
        }
