"""How often an agent gets what an earlier workflow found, asked in other words, in another process and workflow.

    python -m benchmarks.findings                 # all sets of benchmarks/questions/findings.tsv
    python -m benchmarks.findings --set tuned     # one of them
    python -m benchmarks.findings --misses        # print what was not found

Each workflow is written by a process of its own through `UnifiedMemory`, with four ordinary turns before each finding.
Questions share few words with the findings (the table says how few). A question counts as answered if the turn of the
finding is among the cues of `recall`, or among the first 1 or 5 hits of the search of the agent's own memory.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import perdure
from benchmarks.common import save, table, timed
from perdure.home import Home
from perdure.recall.judge import extract_stems
from perdure.text import STOPWORDS
from perdure.workflow import UnifiedMemory
from perdure.workflow.semantic_home import SemanticHome

QUESTIONS = Path(__file__).parent / "questions" / "findings.tsv"
N_ORDINARY = 4  # turns before each finding
_ORDINARY = (
    ("Read what is known about {workflow} so far.", "read_file", "12 pages"),
    ("Compare the numbers of {workflow} for this month and the last.", "query", "within 3 percent"),
    ("Ask the people who know {workflow} what they saw.", "send_message", "answers tomorrow"),
    ("Look for {workflow} in the log of yesterday.", "log_search", "841 lines, none of them unusual"),
    ("Make a list of open questions about {workflow}.", "write_file", "7 questions"),
    ("Check again whether the data of {workflow} is complete.", "query", "all rows are there"),
    ("Plan the next steps for {workflow}.", "note", "three steps"),
)


class Finding(NamedTuple):
    """A finding, and a question for it in other words."""

    set: str
    agent: str
    workflow: str
    finding: str
    question: str


def read_findings(chosen: str) -> list[Finding]:
    """Return the findings of a set, or of all."""
    with QUESTIONS.open(encoding="utf-8") as file:
        rows = [Finding(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    return [row for row in rows if chosen in ("all", row.set)]


async def write_workflow(path: str, findings: Sequence[Finding]) -> None:
    """Log the turns of one workflow, the findings among ordinary ones."""
    first = findings[0]
    with perdure.open(path) as home:
        async with UnifiedMemory(first.workflow, "collect", first.agent, home=home) as memory:
            for n, finding in enumerate(findings):
                for k in range(N_ORDINARY):
                    thought, action, result = _ORDINARY[(n * N_ORDINARY + k) % len(_ORDINARY)]
                    await memory.log_turn(f"t{n}-{k}", thought.format(workflow=first.workflow), action, result, 40)
                await memory.log_turn(f"t{n}-finding", finding.finding, "note", "", 60)


def measure(home: Home, findings: Sequence[Finding], *, shows_misses: bool) -> dict[str, Any]:
    """Return the share of questions that each way answers."""
    memory = SemanticHome(home)
    ways: dict[str, Callable[[Finding], list[str]]] = {
        "recall, by words and meaning": lambda row: [cue.text for cue in home.recall(row.question).cues],
        "recall, by words alone": lambda row: [cue.text for cue in home.recall(row.question, mode="keyword").cues],
        "search of the agent, first 5": lambda row: [hit.text for hit in memory.search(row.agent, row.question)],
        "search of the agent, first": lambda row: [hit.text for hit in memory.search(row.agent, row.question, limit=1)],
        "search by words, first 5": lambda row: [
            hit.text for hit in home.search(row.question, mode="keyword", limit=5).hits
        ],
    }
    shares: dict[str, Any] = {}
    for name, ask in ways.items():
        with timed() as clock:
            misses = [row for row in findings if row.finding not in ask(row)]
        shares[name] = {
            "n": len(findings),
            "answered": round(100 * (1 - len(misses) / len(findings)), 1),
            "cpu_ms": round(1000 * clock.cpu_s / len(findings), 1),
        }
        if shows_misses:
            for row in misses:
                print(f"{name}: {row.question}  <- {row.finding}")
    return shares


def measure_overlap(findings: Sequence[Finding]) -> float:
    """Return the share of a question's telling words that its finding has, in percent, on average."""
    shares = []
    for row in findings:
        asked = extract_stems(row.question) - STOPWORDS
        shares.append(len(asked & extract_stems(row.finding)) / max(1, len(asked)))
    return round(100 * sum(shares) / len(shares), 1)


def main() -> None:
    """Write the workflows, each in a process of its own, and ask."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="all", choices=["all", "tuned", "held-out"])
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--write", nargs=2, metavar=("HOME", "WORKFLOW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    everything = read_findings("all")
    if options.write:
        path, workflow = options.write
        asyncio.run(write_workflow(path, [row for row in everything if row.workflow == workflow]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/home"
        for workflow, _ in groupby(everything, key=lambda row: row.workflow):
            subprocess.run([sys.executable, "-m", "benchmarks.findings", "--write", path, workflow], check=True)
        with perdure.open(path) as home:
            home.upkeep.catch_up()
            home.upkeep.embed()
            results: dict[str, Any] = {}
            sets = [options.set] if options.set != "all" else sorted({row.set for row in everything}, reverse=True)
            for name in sets:
                findings = read_findings(name)
                results[name] = measure(home, findings, shows_misses=options.misses)
                title = (
                    f"{name}: {len(findings)} questions, {measure_overlap(findings)} % of their words in the finding"
                )
                table(title, [{"way": way, **figures} for way, figures in results[name].items()])
    save("findings", results)
    print(json.dumps({"turns": (N_ORDINARY + 1) * len(everything)}))


if __name__ == "__main__":
    main()
