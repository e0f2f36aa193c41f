"""Wall time, CPU time and peak memory of a call in this process, and in those it starts. Linux only; the standard library
alone."""

import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def measure(
    call: Callable[[], object], calls: int, pids: Sequence[int] = (), last: list[object] | None = None
) -> dict[str, float]:
    """Figures of one or several calls. `pids`: processes that work for this one and live on; `last` is given what the
    last call returned. The first call is `first_s`; the others' medians, or its own when it is the only one, the rest."""
    for pid in ("self", *pids):
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # peak memory counts from here
    walls, cpus = [], []
    for _ in range(calls):
        if last is not None:
            last.clear()
        wall, cpu = time.perf_counter(), _cpu(pids)
        value = call()
        walls.append(time.perf_counter() - wall)
        cpus.append(_cpu(pids) - cpu)
        if last is not None:
            last.append(value)
        del value
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # 0 without children
    return {
        "first_s": walls[0],
        "first_cpu_s": cpus[0],
        "wall_s": statistics.median(walls[1:] or walls),
        "cpu_s": statistics.median(cpus[1:] or cpus),
        "peak_mb": max(sum(map(_peak_kb, ("self", *pids))), ended) / 1024,
    }


def _cpu(pids: Sequence[int]) -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + sum(map(_cpu_of, pids))


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_kb(pid: int | str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
