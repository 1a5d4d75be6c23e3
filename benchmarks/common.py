"""What every measurement needs: clocks, percentiles, a description of the machine, tables and a JSON file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

OUT = Path(__file__).parent / "out"
RESULTS = Path(__file__).parent / "results"
SCRATCH = os.environ.get("PERDURE_BENCH_DIR")  # where homes are made; the system's temporary folder unless set


class Clock:
    """Wall and CPU seconds of a block."""

    wall_s = 0.0
    cpu_s = 0.0


@contextlib.contextmanager
def timed() -> Iterator[Clock]:
    clock = Clock()
    wall, cpu = time.perf_counter(), time.process_time()
    yield clock
    clock.wall_s, clock.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def median_of(n_runs: int, work: Callable[[], object]) -> Clock:
    """The median wall and CPU time of several runs of the same work."""
    walls, cpus = [], []
    for _ in range(n_runs):
        with timed() as clock:
            work()
        walls.append(clock.wall_s)
        cpus.append(clock.cpu_s)
    result = Clock()
    result.wall_s, result.cpu_s = statistics.median(walls), statistics.median(cpus)
    return result


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and max; p95 is the value that 95 % do not exceed (nearest rank)."""
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p95": round(ordered[max(0, -(-95 * len(ordered) // 100) - 1)], 2),
        "max": round(ordered[-1], 2),
    }


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="perdure-bench-", dir=SCRATCH))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def machine() -> dict[str, Any]:
    """What the figures were measured on, and how busy it was."""
    return {
        "cpu": _cpu(),
        "n_cpus": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.release()}",
        "load": [round(value, 1) for value in os.getloadavg()],
        "at": time.strftime("%Y-%m-%d %H:%M"),
    }


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table; the first row's keys are the columns."""
    print(f"\n{title}")
    if not rows:
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[str(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)]
    print("  " + "  ".join(column.rjust(width) for column, width in zip(columns, widths, strict=True)))
    for line in cells:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def describe_run() -> dict[str, Any]:
    """What a result file says of the run that made it: commit, command, machine and load."""
    return {"commit": find_commit(), "command": _find_command(), "machine": machine()}


def find_commit() -> str:
    """The last commit that changed the package or a benchmark, with a + for changes since; "" outside of git."""
    measured = ("--", "src", "benchmarks", ":!benchmarks/results")
    commit = _ask_git("log", "-1", "--format=%h", "--abbrev=12", *measured)
    is_changed = _ask_git("status", "--porcelain", *measured)
    return f"{commit}+" if commit and is_changed else commit


def _ask_git(*words: str) -> str:
    line = ["git", "-C", str(OUT.parent.parent), *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _find_command() -> str:
    """This program's command; of a path on this machine only its name."""
    parts = Path(sys.argv[0]).with_suffix("").parts
    module = ".".join(parts[parts.index("benchmarks") :] if "benchmarks" in parts else parts[-1:])
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return " ".join(["python -m", module.removesuffix(".__main__"), *words])


def keep_result(name: str, result: dict[str, Any]) -> None:
    """Write a result into benchmarks/results/<name>.json, from where the documents take their figures."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"  ({path.relative_to(OUT.parent.parent)})")


def save(name: str, result: dict[str, Any]) -> None:
    """Write a result beside the run that made it into benchmarks/out/<name>.json."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({**describe_run(), **result}, indent=1, ensure_ascii=False) + "\n")
    print(f"  ({path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}; load {machine()['load']})")


def size_of(folder: Path) -> int:
    """Bytes of all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def disk_use_of(folder: Path) -> int:
    """Bytes that the files under a folder take on the disk: of a file with holes, without them."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def drop_from_cache(path: Path) -> bool:
    """Ask the system to forget a file's pages; False where that cannot be asked for."""
    if not hasattr(os, "posix_fadvise"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return True


COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c")


def plot(title: str, ticks: Sequence[str], series: dict[str, Sequence[float]], *, from_zero: bool = False) -> str:
    """A line for each series over the same ticks, as SVG; the scale is that of the values, or begins at zero."""
    values = [value for line in series.values() for value in line]
    step = _choose_step(max(values) - (0 if from_zero else min(values)))
    low, high = 0 if from_zero else int(min(values) // step), int(max(values) // step) + 1
    width, height, left, top = 560, 300, 48, 34
    across = (width - left - 130) / max(1, len(ticks) - 1)

    def y(value: float) -> float:
        return top + (height - top - 40) * (1 - (value / step - low) / max(1, high - low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/><text x="{left}" y="18" font-size="13">{title}</text>',
    ]
    for mark in range(low, high + 1):
        at = y(mark * step)
        parts.append(f'<line x1="{left}" x2="{width - 130}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{mark * step:g}</text>')
    for n, tick in enumerate(ticks):
        parts.append(f'<text x="{left + n * across:.1f}" y="{height - 22}" text-anchor="middle">{tick}</text>')
    for colour, (name, line) in zip(COLOURS, series.items(), strict=False):
        path = " ".join(f"{left + n * across:.1f},{y(value):.1f}" for n, value in enumerate(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 124}" y="{y(line[-1]) + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _choose_step(range_of_values: float) -> float:
    """The distance of the marks of a scale: 1, 2 or 5 times a power of ten, so that there are 4 to 10 of them."""
    power = 10 ** math.floor(math.log10(max(range_of_values, 1e-9) / 4))
    return next(factor * power for factor in (5, 2, 1) if range_of_values / (factor * power) >= 4)
