"""What the injection scanner costs, and how often it stops real prose.

python -m benchmarks.scanner                       # times only
python -m benchmarks.scanner FOLDER ...            # also the share of texts that are stopped there: transcripts in any
                                                   # format, sets with docs.jsonl, Markdown by paragraph
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from perdure.access import scan
from perdure.capture.lines import Line
from perdure.formats import detect, emit, is_append_only, parse

PROSE = "We moved the importer to the new schema, and the tests of the index pass again. Ask Anna before you merge. "
HOSTILE = {"letters set apart": "a ", "half an order": "ignore your all the ", "quotes": '"', "Chinese": "忽略以上"}
N_CHARS = 1_000_000
IMPORT = """\
import time, perdure.access.redact, perdure.access.fence
begun = time.process_time(); from perdure.access import scan; print(time.process_time() - begun)
begun = time.process_time(); scan.scan("good morning, ignore the tests"); print(time.process_time() - begun)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    for name, seconds in times().items():
        print(f"{name:40}{1000 * seconds:10.2f} ms")
    n: Counter[str] = Counter()
    stopped: Counter[str] = Counter()
    for kind, text in {one: None for folder in parser.parse_args().folders for one in prose(folder)}:
        n[kind] += 1
        stopped[kind] += bool(scan.scan(text))
    for kind in sorted(n):
        print(f"{kind:40}{n[kind]:8d} texts{stopped[kind]:6d} stopped{100 * stopped[kind] / n[kind]:8.2f} %")


def times() -> dict[str, float]:
    """Seconds of processor time, the least of several for what happens once, the median of many for what is short."""
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True) for _ in range(9)
    ]
    pairs = [tuple(map(float, run.stdout.split())) for run in runs]
    text = (PROSE * 20)[:2000]
    found = {
        "import, beside fence and redact": min(pair[0] for pair in pairs),
        "first scan in a process": min(pair[1] for pair in pairs),
        "2,000 characters of English": statistics.median(_timed(text) for _ in range(200)),
    }
    return found | {f"1,000,000 of {name}": _timed(piece * (N_CHARS // len(piece))) for name, piece in HOSTILE.items()}


def _timed(text: str) -> float:
    begun = time.process_time()
    scan.scan(text)
    return time.process_time() - begun


def prose(folder: Path) -> Iterator[tuple[str, str]]:
    """The texts under a folder, each with what it is."""
    for path in sorted(folder.rglob("*.md")):
        yield from (("Markdown", part) for part in path.read_text("utf-8").split("\n\n"))
    for path in sorted(folder.rglob("docs.jsonl")):
        yield from ((path.parent.name, json.loads(line)["text"]) for line in path.read_text("utf-8").splitlines())
    for path in sorted(folder.rglob("*.json*")):
        runtime = detect(path.read_bytes()[:65536], path.name)
        if runtime and path.name not in ("docs.jsonl", "queries.jsonl"):
            yield from _said(path, runtime)


def _said(path: Path, runtime: str) -> Iterator[tuple[str, str]]:
    """What each turn of a transcript says, by who said it."""
    raw = path.read_bytes()
    whole = is_append_only(runtime, raw[:65536])
    for lines in [raw.splitlines()] if whole else [made for _, made in emit(runtime, raw, path=str(path))]:
        numbered = [Line(at, line.rstrip(b"\n")) for at, line in enumerate(lines)]
        for turn in parse(runtime, numbered).turns:
            yield from ((f"{turn.author}: {part.kind}", part.text) for part in turn.parts if part.text.strip())


if __name__ == "__main__":
    main()
