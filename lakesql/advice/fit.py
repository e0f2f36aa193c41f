"""Prices from measurements: each measurement is work (steps with amounts) and the seconds it took.

The sum of amounts times prices is to equal the seconds; no price is negative. Solved as non-negative least squares of
the relative errors (Lawson and Hanson's active set), so that short operations count as much as long ones; measurements
that something else on the machine has disturbed count less (Huber's weights). Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from lakesql.advice import costs
from lakesql.advice.costs import Price, Prices, Work

_PARTS = {"time": "times", "file": "files", "chunk": "chunks", "row": "rows", "cell": "cells", "byte": "bytes"}
"""Field of a Price to the field of an Amount that it multiplies."""

_ALL = tuple(_PARTS)
_BY_ROW = ("row", "cell", "byte")
_PRICED = {
    costs.COMMIT: ("time",),
    costs.LOOK_UP: ("file", "row"),
    costs.LOOK_THROUGH: ("file", "row"),
    costs.REWRITE: _ALL,
    costs.EDIT: _BY_ROW,
    costs.APPEND: _ALL,
    costs.SCAN: _ALL,
    costs.OPEN: _ALL,
    costs.PATCH: _ALL,
    costs.OVERLAY: _BY_ROW,
    costs.MERGE: _ALL,
    costs.MATCH: ("row",),
    costs.KEEP: _BY_ROW,
    costs.GROUP: ("time", "row"),
    costs.PICK: _BY_ROW,
    costs.COMPACT: _ALL,
    costs.FOLD: _BY_ROW,
}
"""What each step can cost; the rest is zero, since another step has the same amount."""


_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Measurement:
    """Work that was done, and the seconds it took.

    The seconds of some work are the difference of two operations that were timed; `scale` then says against what their
    error counts. 0: against the seconds themselves.
    """

    name: str
    work: Work
    seconds: float
    scale: float = 0.0

    @property
    def unit(self) -> float:
        return self.scale or self.seconds


def prices_of(measurements: Sequence[Measurement]) -> dict[str, Price]:
    """The prices that explain the measurements best. Steps that none of them takes are left out."""
    taken = {step for m in measurements for step, _ in m.work}
    columns = [(step, part) for step, parts in _PRICED.items() if step in taken for part in parts]
    matrix = np.zeros((len(measurements), len(columns)))
    for row, one in enumerate(measurements):
        for step, amount in one.work:
            for part in _PRICED[step]:
                matrix[row, columns.index((step, part))] += getattr(amount, _PARTS[part]) / one.unit
    scale = np.maximum(matrix.max(axis=0), 1e-300)
    target = np.array([m.seconds / m.unit for m in measurements])
    weights = np.ones(len(measurements))
    for _ in range(_ROUNDS):
        found = nonnegative_least_squares(matrix / scale * weights[:, None], target * weights) / scale
        errors = np.abs(matrix @ found - target)
        limit = max(2 * float(np.median(errors)), 1e-9)
        weights = np.sqrt(limit / np.maximum(errors, limit))
    values = dict(zip(columns, found.tolist(), strict=True))
    return {step: Price(**{f.name: values.get((step, f.name), 0.0) for f in fields(Price)}) for step in taken}


def relative_errors(measurements: Sequence[Measurement], prices: Prices) -> np.ndarray:
    """(predicted - measured) / unit of each measurement."""
    return np.array([(costs.seconds(prices, m.work) - m.seconds) / m.unit for m in measurements])


def nonnegative_least_squares(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """x >= 0 that makes |matrix x - target| smallest."""
    count = matrix.shape[1]
    x = np.zeros(count)
    free = np.zeros(count, bool)
    tolerance = 1e-10 * max(1.0, float(np.abs(matrix.T @ target).max()))
    for _ in range(10 * count):
        gradient = matrix.T @ (target - matrix @ x)
        candidates = ~free & (gradient > tolerance)
        if not candidates.any():
            break
        free[int(np.argmax(np.where(candidates, gradient, -np.inf)))] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
            if (trial[free] > 0).all():
                x = trial
                break
            blocked = free & (trial <= 0)
            step = float((x[blocked] / np.maximum(x[blocked] - trial[blocked], 1e-300)).min())
            x = x + step * (trial - x)
            free &= x > 1e-14
            x[~free] = 0
    return x
