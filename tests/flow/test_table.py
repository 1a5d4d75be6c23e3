"""The table: outside systems and their files, the set of conditions, and the page against the kept results."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
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


@pytest.mark.slow
def test_command_goes_on_after_a_kill_and_skips_sets_that_are_not_here(tmp_path: Path) -> None:
    """The adapter of the page is killed with the run while it answers; then it is asked only for the rest."""
    (adapter,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script = tmp_path / "my_adapter.py"
    script.write_text(
        adapter.replace("def ask(", "import time\n\n\ndef ask(").replace(
            "    words =", "    time.sleep(0.1)\n    words ="
        )
    )
    command = [
        sys.executable, "-m", "benchmarks.table", "--sets", "amended", "sde_dev", "coding", "--out", str(tmp_path),
        "--data", str(tmp_path / "none"), "--transcripts", str(tmp_path / "none"),
        "--adapter", f"mine={sys.executable} {script}",
    ]  # fmt: skip
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while first.poll() is None and count_lines(tmp_path) < 3:
        time.sleep(0.02)
    first.kill()
    first.wait()
    n_before = count_lines(tmp_path)
    assert 3 <= n_before < 24
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"^(\w+): skipped, there is no", second.stdout, re.MULTILINE) == ["sde_dev", "coding"]
    assert "| mine |" in second.stdout
    assert count_lines(tmp_path) == 24
    result = json.loads((tmp_path / "amended.json").read_text())
    assert result["parts"]["whole memory"]["mine"]["n"] == 24
    assert result["costs"]["Perdure"]["cpu_s"] > 0


def count_lines(out: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in out.glob("amended-mine-*.jsonl"))


def test_homes_of_another_commit_are_made_anew(tmp_path: Path) -> None:
    source, folder, note = write_set(tmp_path / "set"), tmp_path / "homes" / "set", tmp_path / "homes" / "set.json"
    with systems.open_homes([source], folder) as (_, cpu_s):
        assert cpu_s > 0
    (folder / "mark").touch()
    with systems.open_homes([source], folder) as (_, again_s):
        assert again_s == cpu_s
    note.write_text(json.dumps({"commit": systems.find_commit(), "cpu_s": None}))
    with systems.open_homes([source], folder) as (_, unknown_s):
        assert unknown_s is None and (folder / "mark").exists()
    note.write_text(json.dumps({"commit": "0123456789ab", "cpu_s": 1.0}))
    with systems.open_homes([source], folder):
        assert not (folder / "mark").exists()


def test_each_outside_system_is_a_result_of_its_own(tmp_path: Path) -> None:
    """Own rows are measured again without the peer: its row stays, with the run that made it."""
    figures = json.loads((ROOT / "benchmarks/results/table/amended.json").read_text())
    rows = figures["parts"]["whole memory"]
    result = {
        **figures,
        "parts": {"whole memory": {**rows, "peer": rows["FTS5"]}},
        "costs": {**figures["costs"], "peer": figures["costs"]["FTS5"]},
        "problems": {"gone": "no program"},
    }
    table.keep_rows({**result, "commit": "0123456789ab"}, ["peer", "gone"], tmp_path)
    table.keep_rows(figures | {"problems": {}}, [], tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")) == [
        "amended.json",
        "amended/peer.json",
    ]
    page = report.render_all(tmp_path)
    assert "Rows of peer: " in page and "commit 0123456789ab" in page
    assert len(re.findall(r"^\| peer \|", page, re.MULTILINE)) == 2
    assert len(re.findall(r"^\| FTS5 \|", page, re.MULTILINE)) == 2


def test_share_that_no_resample_changes_gets_the_exact_bound() -> None:
    """0 of 24: 1 - 0.05 ** (1 / 24) = 0.117. 3 of 3: 0.05 ** (1 / 3) = 0.368. Two that never differ: both ways."""
    none, every = (dict.fromkeys(("at", "low", "high"), value) for value in (0.0, 1.0))
    assert report.widen(none, 24) == {"at": 0.0, "low": 0.0, "high": pytest.approx(0.117, abs=0.001)}
    assert report.widen(every, 3) == {"at": 1.0, "low": pytest.approx(0.368, abs=0.001), "high": 1.0}
    assert report.widen(none, 24, is_difference=True)["low"] == pytest.approx(-0.117, abs=0.001)
    some = {"at": 0.5, "low": 0.3, "high": 0.7}
    assert report.widen(some, 24) == some


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
