"""Measure every system on every set that is here, and write the table.

    python -m benchmarks.table                                    # none, placebo, grep, FTS5, host file, Perdure
    python -m benchmarks.table --with txtai mem0 mempalace deja-vu     # others beside them; installs the first three
    python -m benchmarks.table --adapter "mine=python my_adapter.py"   # a system of yours: docs/evaluation/table.md
    python -m benchmarks.table --sets conditions-seen --out /tmp/table
    python -m benchmarks.table --write                            # keeps the results, and the tables of the page

The homes with their vectors, and all answers of the other systems, stay in the folder of `--out`: a run that ended goes
on; a home of another commit is made anew. Where the system allows it, everything runs without a network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import OUT, describe_run, disk_use_of, spread, timed
from benchmarks.conditions import CONDITIONS, make_host_lines, write_set
from benchmarks.peers.__main__ import DATA, ENVIRONMENT
from benchmarks.peers.install import ROOT
from benchmarks.peers.serve import watch_network
from benchmarks.table.report import PAGE, RESULTS, render_set, write_page
from benchmarks.table.systems import (
    PEER_NAMES,
    Blocks,
    Outside,
    OutsideRun,
    OwnSystems,
    find_peer,
    open_homes,
    read_adapter,
)  # fmt: skip
from perdure.eval import measures
from perdure.eval.block_quality import measure_blocks
from perdure.eval.block_sets import Block, find_half
from perdure.eval.recall_quality import SHIPPED

QUESTIONS = ROOT / "benchmarks" / "questions"
CARRIED = ("conditions-seen", "conditions-unseen", "shipped", "amended")  # by this repository
SETS = (*CARRIED, "sde_dev", "coding")
MORE_SETS = ("locomo_dev", "realtalk_dev", "beam_dev", "memdaily_zh_dev")  # dialogues, only where they are named
_OFFLINE = "PERDURE_TABLE_OFFLINE"
Parts = dict[str, dict[str, list[Block]]]  # part of the set -> system -> its blocks


def list_sources(name: str, options: argparse.Namespace) -> list[Path]:
    """Return the files of a set, made where they are made from others."""
    made = options.out / "sets" / name
    if name.startswith("conditions-"):
        write_set(name.removeprefix("conditions-"), made)
        return [made]
    if name in ("shipped", "amended"):
        return [SHIPPED if name == "shipped" else QUESTIONS / "amended"]
    if name != "coding":
        return [options.data / name]
    made.parent.mkdir(parents=True, exist_ok=True)
    joined = made.with_suffix(".jsonl")
    files = [path for path in options.questions if path.exists()]
    joined.write_text("".join(path.read_text(encoding="utf-8") for path in files), encoding="utf-8")
    return [joined, options.transcripts]


def measure_set(name: str, sources: Sequence[Path], options: argparse.Namespace) -> dict[str, Any]:
    """Return the result of one set: part -> system -> figures, and the costs."""
    home = options.out / "homes" / name
    with open_homes(sources, home) as (block_set, cpu_s):
        half = name.removeprefix("conditions-")
        own = OwnSystems(block_set, make_host_lines(half) if half != name else {})
        asked: dict[str, Blocks | str] = dict(own.ask_all())
        costs = own.cost(cpu_s, options.hosts)
        for system in options.outside:
            answer = OutsideRun(system, block_set, options.out / f"{name}-{system.name}").ask_all()
            asked[system.name], costs[system.name] = (answer, {}) if isinstance(answer, str) else answer
    costs["Perdure"]["mb"] = disk_use_of(home) / 1e6  # once it is closed, so without its write-ahead log
    blocks_by_system = {system: blocks for system, blocks in asked.items() if not isinstance(blocks, str)}
    write_blocks(options.out / f"{name}.blocks.jsonl", blocks_by_system)
    parts: dict[str, dict[str, Any]] = {
        part: {system: measure_part(blocks, rows["Perdure"]) for system, blocks in rows.items()}
        for part, rows in split_parts(name, blocks_by_system).items()
    }
    problems = {system: reason for system, reason in asked.items() if isinstance(reason, str)}
    return {"set": name, "parts": parts, "costs": costs, "problems": problems}


def split_parts(name: str, blocks_by_system: Mapping[str, Blocks]) -> Parts:
    """Split the questions of a set: by condition, or by scope and half."""
    parts: Parts = {}
    for system, blocks_by_scope in blocks_by_system.items():
        for scope, blocks in blocks_by_scope.items():
            for block in blocks:
                part = scope
                if block.question.kind in CONDITIONS:
                    part = block.question.kind
                elif name == "coding":
                    part = f"{scope}, {'seen' if find_half(block.question.text) == 'dev' else 'unseen'}"
                parts.setdefault(part, {}).setdefault(system, []).append(block)
    return parts


def measure_part(blocks: Sequence[Block], ours: Sequence[Block]) -> dict[str, Any]:
    """Return the figures of some blocks, with what they cost on average; milliseconds are processor time.

    ours: the blocks of Perdure for the same questions, which are told or not told more often.
    """
    pairs = [(block, our) for block, our in zip(blocks, ours, strict=True) if not block.question.deserves_silence]
    told, told_by_us = ([float(row[n].find_answer() is not None) for row in pairs] for n in (0, 1))
    told_as_long = [float(block.find_answer(our.n_tokens) is not None) for block, our in pairs]
    tokens = measures.bootstrap([float(block.n_tokens) for block in blocks])
    return measure_blocks(blocks) | {
        "n": len(blocks),
        "n_answerable": sum(not block.question.deserves_silence for block in blocks),
        "all tokens": asdict(tokens),
        "told as long": asdict(measures.bootstrap(told_as_long)) if pairs else None,
        "Perdure over it": asdict(measures.bootstrap_differences(told_by_us, told)) if pairs else None,
        "p95 ms": spread([block.took_ms for block in blocks])["p95"],
    }


def write_blocks(path: Path, blocks_by_system: Mapping[str, Blocks]) -> None:
    """Keep what each system told for each question."""
    with path.open("w", encoding="utf-8") as lines:
        for row in _iterate_block_rows(blocks_by_system):
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def _iterate_block_rows(blocks_by_system: Mapping[str, Blocks]) -> Iterator[dict[str, Any]]:
    for system, blocks_by_scope in blocks_by_system.items():
        for scope, blocks in blocks_by_scope.items():
            for block in blocks:
                question = block.question
                yield {
                    "system": system, "scope": scope, "user": question.user, "kind": question.kind,
                    "question": question.text, "answer_at": block.find_answer(), "order": block.order_rules(),
                    "tells_wrong": block.tells_wrong(), "ms": round(block.took_ms, 2),
                    "items": [[item.turn_id, item.n_tokens, item.text] for item in block.items],
                }  # fmt: skip


def keep_rows(result: Mapping[str, Any], outside: Sequence[str], results: Path = RESULTS) -> None:
    """Keep the own rows of a set in one result and each outside system in one of its own, so that others stay."""
    run = {name: value for name, value in result.items() if name not in ("parts", "costs", "problems")}
    own = [name for name in result["costs"] if name not in outside]
    measured = [name for name in outside if name not in result["problems"]]
    for file, systems in (
        (f"{result['set']}.json", own),
        *((f"{result['set']}/{name}.json", [name]) for name in measured),
    ):
        parts = {part: {name: rows[name] for name in systems} for part, rows in result["parts"].items()}
        write_result(
            results / file, {**run, "parts": parts, "costs": {name: result["costs"][name] for name in systems}}
        )


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def list_outside(options: argparse.Namespace) -> list[Outside]:
    """Return the systems with a process of their own, in the order in which they were named."""
    return [*(find_peer(name, options.cache) for name in options.peers), *options.adapter]


def leave_network() -> bool:
    """Start this program again where there is no network, if the system allows it; True in the program so started."""
    if os.environ.get(_OFFLINE):
        return True
    allowed = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
    if allowed:
        command = ["unshare", "-rn", sys.executable, "-m", "benchmarks.table", *sys.argv[1:]]
        os.execvpe("unshare", command, {**os.environ, _OFFLINE: "1"})
    return False


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=(*SETS, *MORE_SETS))
    parser.add_argument("--with", nargs="*", default=[], choices=PEER_NAMES, dest="peers")
    parser.add_argument(
        "--adapter", action="append", default=[], type=read_adapter, metavar="NAME=COMMAND", help="a system of yours"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder with sde_dev and the dialogues")
    parser.add_argument("--transcripts", type=Path, default=DATA.parent / "transcripts")
    parser.add_argument(
        "--questions", type=Path, nargs="*", help="files of questions about the transcripts",
        default=[QUESTIONS / "coding.jsonl", QUESTIONS / "silence.jsonl", DATA.parent / "coding/questions_dev.jsonl"],
    )  # fmt: skip
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "peers", help="where the peers are installed")
    parser.add_argument("--out", type=Path, default=OUT / "table", help="answers, homes, blocks and results")
    parser.add_argument("--write", action="store_true", help="keep the results, and write the tables into the page")
    options = parser.parse_args()
    options.cache, options.out = options.cache.resolve(), options.out.resolve()
    for folder in (options.cache, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = parse_options()
    options.outside = list_outside(options)  # installs what is missing, so before the network is left
    is_offline = leave_network()
    options.hosts = watch_network()
    ENVIRONMENT["PERDURE_PEER_VECTORS"] = os.environ.get("PERDURE_PEER_VECTORS", str(options.out / "vectors.db"))
    ENVIRONMENT["PYTHONPATH"] = str(ROOT / "benchmarks" / "peers")
    for name in options.sets:
        sources = list_sources(name, options)
        if missing := [str(source) for source in sources if not source.exists()]:
            print(f"{name}: skipped, there is no {missing[0]}")
            continue
        run = {**describe_run(), "network": not is_offline}
        with timed() as clock:
            measured = measure_set(name, sources, options)
        result = {**run, "took_s": round(clock.wall_s), "cpu_s": round(clock.cpu_s), **measured}
        write_result(options.out / f"{name}.json", result)
        if options.write:
            keep_rows(result, [system.name for system in options.outside])
        print(render_set(result), flush=True)
    if options.write:
        write_page(PAGE)


if __name__ == "__main__":
    main()
