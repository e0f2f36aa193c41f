"""Wall time, CPU time and peak memory of a call in this process. Linux only; the standard library alone."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path


def measure(call: Callable[[], object], calls: int) -> dict[str, float]:
    Path("/proc/self/clear_refs").write_text("5")  # peak memory counts from here
    walls, cpus = [], []
    for _ in range(calls):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    return {
        "first_s": walls[0],
        "wall_s": statistics.median(walls[1:] or walls),
        "cpu_s": statistics.median(cpus[1:] or cpus),
        "peak_mb": int(peak) / 1024,
    }
