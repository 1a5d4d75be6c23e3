"""Perdure beside txtai, mem0 and plain BM25: the same documents, the same questions, one run on one machine.

Every group of a set is a memory of its own in every system. Peers get each document's text as the set has it, the
speaker in front (`--dates` puts its date in front as well); they run offline, each in an environment of its own.

    python -m benchmarks.peers                      # installs them first: 4 GB under .cache/peers
    python -m benchmarks.peers --only txtai bm25s   # some; --sets shipped for a quick look
    python -m benchmarks.peers --write              # and put the tables into docs/evaluation/peers.md
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import machine
from benchmarks.peers.install import PEERS, ROOT, Peer, model, python_of
from perdure import __version__
from perdure.eval import bench, measures
from perdure.eval.bench import BenchSetup, K, open_group_memories
from perdure.eval.datasets import Dataset, EvalDoc, load_dataset
from perdure.eval.recall_quality import SHIPPED, is_answerable

HERE = Path(__file__).parent
DATA = ROOT.parent / "shared" / "data" / "retrieval"
PAGE = ROOT / "docs" / "evaluation" / "peers.md"
SETS = ("locomo_dev", "beam_dev", "shipped")
SHOWN = ("R@5", "R@10", "MRR", "nDCG@10", "All@10")
MODES = {
    "txtai": ("hybrid", "dense"), "mem0": ("hybrid", "dense"), "mempalace": ("as it comes",),
    "bm25s": ("with stemming",),
}  # fmt: skip
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
# one thread: where the machine has anything else to do two of torch's wait for each other, half a second a question
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass
class Asked:
    """What one system made of one set."""

    ranked: dict[str, Sequence[str]]  # question id -> documents, best first
    took_ms: list[float]  # of each question
    taken_s: float  # to take all documents in


class Driven:
    """A peer's process: a line in, a line out."""

    def __init__(self, command: Sequence[str], complaints: Path) -> None:
        self._stderr = complaints.open("w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True, env=ENVIRONMENT
        )

    def say(self, **message: Any) -> dict[str, Any]:
        """The answer to one message. Raises EOFError when the process has ended."""
        assert self._process.stdin and self._process.stdout
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
        except BrokenPipeError as ended:
            raise EOFError("the process ended") from ended
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("the process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._stderr.close()


def command(peer: Peer, mode: str, python: Path, weights: Path, folder: Path) -> list[str]:
    arguments = {
        "txtai": [str(weights), mode],
        "mem0": [str(weights), str(folder), mode, "everything"],
        "mempalace": [str(weights), str(folder)],
        "bm25s": [],
    }[peer.name]
    return [str(python), str(HERE / f"drive_{peer.name}.py"), *arguments]


def text_of(doc: EvalDoc, *, dates: bool) -> str:
    return f"[{doc.stated_at:%d %B %Y}] {doc.text}" if dates and doc.stated_at else doc.text


def to_text(doc: EvalDoc, *, dates: bool) -> dict[str, str]:
    """A document as a peer gets it."""
    at = doc.stated_at.isoformat() if doc.stated_at else ""
    return {
        "id": doc.doc_id, "text": text_of(doc, dates=dates), "project": "", "session": doc.session,
        "role": doc.speaker, "at": at,
    }  # fmt: skip


def of_peer(data: Dataset, line: Callable[[Path], list[str]], *, dates: bool) -> Asked:
    """All questions asked of a peer's process. Raises EOFError with the last thing that it said when it ends early."""
    with tempfile.TemporaryDirectory(prefix="perdure-peer-") as name:
        complaints = Path(name) / "stderr"
        driven = Driven(line(Path(name)), complaints)
        try:
            taken_s = sum(
                driven.say(take=group, texts=[to_text(doc, dates=dates) for doc in docs])["took_s"]
                for group, docs in data.group_docs().items()
            )
            answers = {q.qid: driven.say(ask=q.text, group=q.group, k=K) for q in data.questions}
        except EOFError as ended:
            said = complaints.read_text().strip().splitlines() or ["nothing"]
            raise EOFError(f"it ended early; it last said: {said[-1]}") from ended
        finally:
            driven.close()
    ranked = {qid: answer["told"] for qid, answer in answers.items()}
    return Asked(ranked, [answer["took_ms"] for answer in answers.values()], taken_s)


@contextmanager
def perdure(data: Dataset) -> Iterator[dict[str, Callable[[], Asked]]]:
    """Perdure's rows. Documents are captured, indexed and embedded once for all of them: that time is each row's."""
    with tempfile.TemporaryDirectory(prefix="perdure-peer-") as name, ExitStack() as stack:
        started = time.perf_counter()
        held = stack.enter_context(open_group_memories(data, Path(name)))
        taken_s = time.perf_counter() - started

        def asked(row: bench.BenchSystem) -> Asked:
            ranked, took_ms = {}, []
            for question in data.questions:
                began = time.perf_counter()
                ranked[question.qid] = row(held[question.group], question).ranked
                took_ms.append((time.perf_counter() - began) * 1000)
            return Asked(ranked, took_ms, taken_s)

        yield {
            "Perdure recall": lambda: asked(
                lambda memory, question: bench.recall_question(memory, question, BenchSetup())
            ),
            "Perdure keyword only": lambda: asked(bench.search_keywords),
            "Perdure vectors only": lambda: asked(bench.search_vectors),
        }


def rows(data: Dataset, options: argparse.Namespace) -> Iterator[tuple[str, Asked | str]]:
    """(system, what it made of the set, or why it could not)."""
    with perdure(data) as ours:
        for name, ask in ours.items():
            yield name, ask()
    weights = model(options.cache)
    for peer in (peer for peer in PEERS if peer.name in options.only):
        python = python_of(peer, options.cache)
        for mode in MODES[peer.name]:
            name = f"{peer.name} {mode}"
            missing = next((f"skipped: {what}" for what in (python, weights) if isinstance(what, str)), "")
            yield name, missing or _tried(data, peer, mode, options.dates, python, weights)


def _tried(data: Dataset, peer: Peer, mode: str, dates: bool, python: Any, weights: Any) -> Asked | str:
    try:
        return of_peer(data, lambda folder: command(peer, mode, python, weights, folder), dates=dates)
    except EOFError as ended:
        return f"failed: {ended}"


def measured(data: Dataset, options: argparse.Namespace) -> list[str]:
    """The table of a set, as lines of Markdown; each row is printed as it comes."""
    size = f"{len(data.docs)} documents in {len(data.group_docs())} memories, {len(data.questions)} questions"
    lines = [
        f"### {data.name}: {size}",
        "",
        f"| system | {' | '.join(SHOWN)} | R@10 against recall | ms a question (p50) | s to take in |",
        "|---" * (len(SHOWN) + 4) + "|",
    ]
    print("\n".join(lines), flush=True)
    base: list[float] = []
    for name, asked in rows(data, options):
        if isinstance(asked, str):
            lines.append(f"| {name} | {asked} |" + " |" * (len(SHOWN) + 2))
        else:
            each = [measures.measure_ranking(asked.ranked[q.qid], q.gold) for q in data.questions]
            base = base or [row["R@10"] for row in each]
            lines.append(_row(name, asked, each, base))
        print(lines[-1], flush=True)
    return lines


def _row(name: str, asked: Asked, each: Sequence[dict[str, float]], base: Sequence[float]) -> str:
    mean = measures.mean(each)
    change = measures.bootstrap_differences([row["R@10"] for row in each], base)
    against = f"{100 * change.at:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    cells = [f"{100 * mean[measure]:.1f}" for measure in SHOWN]
    p50 = sorted(asked.took_ms)[len(asked.took_ms) // 2]
    return f"| {name} | {' | '.join(cells)} | {against} | {p50:.1f} | {asked.taken_s:.1f} |"


def answerable(place: Path) -> Dataset:
    data = load_dataset(place)
    return replace(data, questions=tuple(q for q in data.questions if is_answerable(q)))


def written(parts: Sequence[str], page: Path) -> None:
    """Put the tables between the marks of the page."""
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    tail = rest.partition(END)[2]
    page.write_text(f"{head}{BEGIN}\n\n" + "\n".join(parts) + f"\n\n{END}{tail}", encoding="utf-8")


def heading(options: argparse.Namespace) -> list[str]:
    """What was run, when, on what."""
    on = machine()
    line = f"`python -m benchmarks.peers{' --dates' if options.dates else ''}`"
    versions = ", ".join((f"perdure {__version__}", *(peer.version.replace("==", " ") for peer in PEERS)))
    return [
        f"{line}, {on['at']}: {versions}; {on['cpu']}, {on['n_cpus']} cores, load {on['load'][0]} before the run, "
        f"Python {on['python']}.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "peers", help="where the peers are installed")
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--only", nargs="*", default=[p.name for p in PEERS], choices=[p.name for p in PEERS])
    parser.add_argument("--dates", action="store_true", help="put the date in front of each text that the peers get")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    options.cache = options.cache.resolve()
    options.cache.mkdir(parents=True, exist_ok=True)
    parts = heading(options)
    for name in options.sets:
        place = SHIPPED if name == "shipped" else options.data / name
        if not place.exists():
            print(f"{name}: skipped, there is no {place}")
            continue
        parts += [*measured(answerable(place), options), ""]
    if options.write:
        written(parts[:-1], PAGE)


if __name__ == "__main__":
    sys.exit(main())
