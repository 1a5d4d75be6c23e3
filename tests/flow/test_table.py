"""The table: outside systems and their files, the set of conditions, and the page against the kept results."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from perdure.eval.block_sets import Block, BlockItem, BlockQuestion, open_set

conditions = pytest.importorskip("benchmarks.conditions", reason="the benchmarks are not here (run from the checkout)")
systems = pytest.importorskip("benchmarks.table.systems")
report = pytest.importorskip("benchmarks.table.report")
table = pytest.importorskip("benchmarks.table.__main__")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evaluation" / "table.md"
QUESTION = BlockQuestion("which port?", "ada", accepted=("8443",))


def write_set(folder: Path) -> Path:
    folder.mkdir()
    texts = ("staging is slow today", "staging listens on 8443 now", "lunch was good")
    docs = [
        {"id": f"d{n}", "group": "g", "session": "s", "ts": f"2026-03-01T09:0{n}:00", "speaker": "user", "text": text}
        for n, text in enumerate(texts)
    ]
    query = {"qid": "q", "group": "g", "query": "staging listens where", "gold": ["d1"], "category": "fact"}
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs))
    (folder / "queries.jsonl").write_text(json.dumps(query) + "\n")
    return folder


def test_adapter_of_the_page_answers_and_is_not_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (adapter,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sum(1 for line in adapter.splitlines() if line.strip()) <= 10
    script = tmp_path / "mine.py"
    script.write_text(adapter)
    monkeypatch.setitem(
        systems.Driven.__init__.__globals__["ENVIRONMENT"], "PYTHONPATH", str(ROOT / "benchmarks/peers")
    )
    source = write_set(tmp_path / "set")
    with open_set([source], tmp_path / "homes", vectors=False) as block_set:
        system = systems.Outside("mine", [sys.executable, str(script)])
        blocks, cost = systems.OutsideRun(system, block_set, tmp_path / "set-mine").ask_all()
        assert blocks["whole memory"][0].find_answer() == 1
        assert cost["tokens_written"] is None and cost["hosts"] == []
        gone = systems.Outside("mine", [], "not installed: no such package")
        again, _ = systems.OutsideRun(gone, block_set, tmp_path / "set-mine").ask_all()
        assert [item.turn_id for item in again["whole memory"][0].items] == [
            item.turn_id for item in blocks["whole memory"][0].items
        ]
        assert systems.OutsideRun(gone, block_set, tmp_path / "other").ask_all() == "not installed: no such package"


def test_adapter_may_be_one_program_and_is_refused_without_a_command(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    assert systems.read_adapter(f"mine={program}") == systems.Outside("mine", [str(program)])
    for words in ("mine", "mine=", "=python mine.py"):
        with pytest.raises(argparse.ArgumentTypeError, match="NAME=COMMAND"):
            systems.read_adapter(words)


def test_own_words_are_told_as_they_are_and_count_as_the_turn_that_they_quote(tmp_path: Path) -> None:
    source = write_set(tmp_path / "set")
    with open_set([source], tmp_path / "homes", vectors=False) as block_set:
        (question,) = block_set.questions
        (gold,) = question.gold
        run = systems.OutsideRun(systems.Outside("mine", []), block_set, tmp_path / "set-mine")
        told = [{"text": "somebody said a port"}, {"text": "It is on 8443.", "id": f"{gold}#0"}]
        run._file.add(("whole memory", question.user, question.text), told, 3.0)
        block = run._to_block("whole memory", question)
    assert [item.text for item in block.items] == ["somebody said a port", "It is on 8443."]
    assert (block.find_answer(), block.took_ms) == (2, 3.0)


def test_system_that_ends_early_says_why(tmp_path: Path) -> None:
    with open_set([write_set(tmp_path / "set")], tmp_path / "homes", vectors=False) as block_set:
        system = systems.Outside("mine", [sys.executable, "-c", "raise SystemExit('no such model')"])
        assert "no such model" in systems.OutsideRun(system, block_set, tmp_path / "set-mine").ask_all()


def test_placebo_is_as_long_as_it_should_be() -> None:
    """Of 100 + 100 tokens 150 are left: the first item whole, half of the second."""
    block = Block(QUESTION, (BlockItem("t0", "a" * 400, 100), BlockItem("t1", "b" * 400, 100)))
    cut = systems.cut_block(block, 150)
    assert (cut.n_tokens, [len(item.text) for item in cut.items]) == (150, [400, 200])
    assert systems.cut_block(block, 0).items == ()


@pytest.mark.parametrize("half", conditions.HALVES)
def test_conditions_are_those_that_were_frozen(half: str, tmp_path: Path) -> None:
    assert conditions.write_set(half, tmp_path) == conditions.DIGESTS[half]


@pytest.mark.parametrize("half", conditions.HALVES)
def test_each_condition_holds_what_it_says_and_nothing_more(half: str) -> None:
    docs, questions = conditions.make_set(half)
    texts = defaultdict(list)
    for doc in docs:
        texts[doc["group"]].append(doc["text"])
    subjects = {subject["ask"]: subject for subject in conditions.read_subjects(half)}
    held = {
        "present": {"v"}, "absent": set(), "adjacent": {"a"}, "contradictory": {"v", "w"},
        "superseded": {"v", "old"}, "poisoned": {"v", "p"},
    }  # fmt: skip
    for question in questions:
        subject = subjects[question["query"]]
        counts = {
            value: sum(subject[value].lower() in text.lower() for text in texts[question["group"]])
            for value in ("v", "old", "w", "p", "a")
        }
        assert {value for value, n in counts.items() if n} == held[question["category"]], question["qid"]
        assert max(counts.values()) <= 1, question["qid"]
    assert len(questions) == 144 and len({question["query"] for question in questions}) == 24


def test_questions_are_split_by_condition_and_by_half() -> None:
    kinds = [BlockQuestion("a", "g", kind=kind) for kind in ("present", "absent")]
    blocks = {"none": {"whole memory": [Block(question, ()) for question in kinds]}}
    assert set(table.split_parts("conditions-seen", blocks)) == {"present", "absent"}
    coding = {"none": {"all projects": [Block(BlockQuestion(f"q{n}", ""), ()) for n in range(20)]}}
    assert set(table.split_parts("coding", coding)) == {"all projects, seen", "all projects, unseen"}


def test_page_holds_the_tables_of_the_kept_results() -> None:
    body = PAGE.read_text(encoding="utf-8").partition(report.BEGIN)[2].partition(report.END)[0]
    assert body.strip() == report.render_all().strip()
