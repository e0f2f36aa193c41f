"""The record of a calibration: prices of this machine, where they come from, and the file that keeps them.

`lakesql advise --calibrate` writes the person's own record into their configuration folder; without one the record shipped
with the package counts, measured on a machine with two cores. Advice always says which of the two it used.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from lakesql.advice.costs import STEPS, Price
from lakesql.errors import FormatError

FORMAT = 3
SHIPPED = Path(__file__).with_name("shipped_calibration.json")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Snapshot reads of one table with more and more unmerged logs."""

    base_bytes: int
    log_bytes: int
    log_rows: int
    first_s: float
    warm_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Prices by step, and how they were found.

    log_row     bytes that a row takes in a log file: for its meta columns, and per byte of its values in memory
    base_ratio  bytes in a base file per byte of values in memory; a table's own files say it better
    error       median relative error of the prices on the measurements they were made from
    clock       'wall', or 'cpu' for the CPU time of all threads
    """

    prices: dict[str, Price]
    log_row: tuple[float, float]
    base_ratio: float
    curve: tuple[CurvePoint, ...]
    error: float
    measured: str
    machine: str
    clock: str = "wall"
    shipped: bool = False

    def log_bytes(self, value_bytes: float) -> float:
        """What a row takes in a log file."""
        return self.log_row[0] + self.log_row[1] * value_bytes

    def value_bytes(self, log_bytes: float) -> float:
        """Bytes of a row's values in memory, from what it takes in a log file."""
        return max(1.0, (log_bytes - self.log_row[0]) / max(self.log_row[1], 1e-9))

    @property
    def text(self) -> str:
        """Where the prices come from, for people."""
        if self.shipped:
            return f"prices shipped with lakesql ({self.machine}); `lakesql advise --calibrate` measures this machine"
        return f"prices measured here on {self.measured[:10]} ({self.machine})"


def own_path() -> Path:
    """Where the person's own record is kept."""
    return Path(platformdirs.user_config_path("lakesql")) / "calibration.json"


def load() -> Calibration:
    """The person's own record, else the shipped one. FormatError when the own one is damaged."""
    path = own_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return shipped()
    return from_json(text, str(path))


@cache
def shipped() -> Calibration:
    """The record that comes with the package."""
    return from_json(SHIPPED.read_text(encoding="utf-8"), str(SHIPPED), shipped=True)


def save(record: Calibration, path: Path | None = None) -> Path:
    """Keep a record; by default as the person's own."""
    target = path or own_path()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".new")
    fresh.write_text(to_json(record), encoding="utf-8")
    fresh.replace(target)
    return target


def to_json(record: Calibration) -> str:
    fields = asdict(record)
    del fields["shipped"]
    return json.dumps({"format": FORMAT, **fields}, indent=2) + "\n"


def from_json(text: str, where: str, shipped: bool = False) -> Calibration:
    """A record from its text. FormatError for another shape, or a price that is missing or negative."""
    try:
        found: dict[str, Any] = json.loads(text)
        if found.pop("format") != FORMAT:
            raise ValueError("it was written by another release")  # noqa: TRY301  one message for all that is wrong
        prices = {step: Price(**found["prices"][step]) for step in STEPS}
        curve = tuple(CurvePoint(**point) for point in found["curve"])
        record = Calibration(
            **{**found, "prices": prices, "log_row": tuple(found["log_row"]), "curve": curve, "shipped": shipped}
        )
        if any(value < 0 for price in prices.values() for value in asdict(price).values()):
            raise ValueError("a price is negative")  # noqa: TRY301
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{where}: this is no calibration record that lakesql can use ({error}). Measure it anew with `lakesql advise "
            "--calibrate`, or remove the file to use the shipped prices."
        ) from error
    return record
