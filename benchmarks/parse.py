"""Reading and parsing transcripts, beside reading the file alone and beside json.loads of every line.

python -m benchmarks.parse                       # sessions that the script makes
python -m benchmarks.parse --data DIR            # real transcripts below a folder
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.common import median_of, save, scratch, table
from perdure import formats
from perdure.capture.lines import split_lines
from perdure.capture.transcripts import find_files_below

N_RUNS = 5
SHARED = Path(__file__).parents[2] / "shared" / "data" / "transcripts"


def sources(folder: Path) -> list[tuple[str, Path]]:
    """(runtime, file) of everything below a folder that is captured as it is."""
    found = []
    for path in find_files_below(folder):
        head = path.read_bytes()[: 1 << 16]
        runtime = formats.detect(head, path.name)
        if runtime and formats.is_append_only(runtime, head):
            found.append((runtime, path))
    return found


def measure(files: list[tuple[str, Path]]) -> dict[str, Any]:
    n_bytes = sum(path.stat().st_size for _, path in files)
    n_turns = 0

    def parse() -> None:
        nonlocal n_turns
        n_turns = 0
        for runtime, path in files:
            n_turns += len(formats.parse(runtime, split_lines(path.read_bytes())).turns)

    def read() -> None:
        for _, path in files:
            path.read_bytes()

    def load() -> None:
        for _, path in files:
            for line in path.read_bytes().split(b"\n"):
                if line:
                    try:
                        json.loads(line)
                    except ValueError:
                        continue

    row: dict[str, Any] = {"files": len(files), "MB": round(n_bytes / 1e6, 1)}
    for name, work in (("read", read), ("json.loads", load), ("read + parse", parse)):
        row[f"{name} MB/s (CPU)"] = round(n_bytes / 1e6 / max(1e-9, median_of(N_RUNS, work).cpu_s))
    return {**row, "turns": n_turns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.exists() else None)
    parser.add_argument("--mb", type=int, default=20, help="of transcripts to make")
    options = parser.parse_args()
    rows = []
    with scratch() as place:
        corpus.write_transcripts(place, n_bytes=options.mb * 1_000_000)
        rows.append({"input": "generated", **measure(sources(place))})
    if options.data:
        found = sources(options.data)
        rows.append({"input": str(options.data.name), **measure(found)})
        for runtime in sorted({runtime for runtime, _ in found}):
            rows.append({"input": f"  {runtime}", **measure([item for item in found if item[0] == runtime])})
    table("reading and parsing (median of 5; target 200 MB/s on real transcripts)", rows)
    save("parse", {"rows": rows})


if __name__ == "__main__":
    main()
