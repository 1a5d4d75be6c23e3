"""The three worked examples of CONTRIBUTING.md run as they are printed."""

import inspect
import json
import re
import sys
import types
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from perdure import formats
from perdure.formats import detection, run_turns
from perdure.recall import rank
from perdure.recall.plan import plan
from perdure.recall.tuning import DEFAULT

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
MAX_LINES = 40


def blocks(title: str) -> list[str]:
    section = PAGE.split(f"### {title}")[1].split("\n### ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.S)


@pytest.mark.parametrize("title", ["A client's transcript format", "A ranking signal", "An HTTP route"])
def test_example_is_short(title: str) -> None:
    assert 0 < sum(block.count("\n") for block in blocks(title)) <= MAX_LINES


def test_format_example_captures_a_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, row = blocks("A client's transcript format")
    module = types.ModuleType("perdure.formats.logbook")
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(formats._MODULES, "logbook", "logbook")
    monkeypatch.setattr(run_turns, "RUNTIMES", (*run_turns.RUNTIMES, "logbook"))
    monkeypatch.setattr(detection, "_LINE_FILES", detection._LINE_FILES | {"logbook"})
    monkeypatch.setattr(detection, "_LINES", (eval(row), *detection._LINES))
    said = [("human", "Which port does the harbour server use?"), ("bot", "It listens on port 7070.")]
    lines = [
        json.dumps({"who": who, "say": say, "at": f"2026-11-20T10:0{n}:00+00:00", "session": "s1"})
        for n, (who, say) in enumerate(said)
    ]
    transcript = tmp_path / "log.jsonl"
    transcript.write_text("\n".join(lines) + "\n")
    with perdure.open(tmp_path / "home") as home:
        assert home.import_files([transcript]).n_runs == 1
        hit = home.search("harbour server").hits[0]
        assert (hit.runtime, hit.role, hit.conversation) == ("logbook", "user", "s1")


def test_ranking_example_adds_its_signal() -> None:
    """Typed turns get 0.1, the agent's nothing; the other signals stay as they are."""
    source, line = blocks("A ranking signal")
    original = inspect.getsource(rank.compute_bonuses)
    marker = '"recent":'
    assert original.count(marker) == 1
    namespace = dict(vars(rank))
    exec(source, namespace)
    exec(original.replace(marker, f"{line.strip()}\n        {marker}"), namespace)
    facts = {
        "a": types.SimpleNamespace(role="user", speaker="", stated_at=None, is_said=True, is_from_program=False),
        "b": types.SimpleNamespace(role="assistant", speaker="", stated_at=None, is_said=True, is_from_program=False),
    }
    question = plan("Which port does the harbour server use?", now=datetime(2026, 11, 21, tzinfo=UTC))
    before = rank.compute_bonuses(question, facts, DEFAULT)
    assert namespace["compute_bonuses"](question, facts, DEFAULT) == {**before, "typed": {"a": 0.1}}


def test_route_example_answers(served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn")
    from perdure.surfaces.http import admin, app, routes

    source, row = blocks("An HTTP route")
    namespace = {**vars(admin), "ApiOperation": routes.ApiOperation}
    exec(source, namespace)
    monkeypatch.setattr(app, "OPERATIONS", (*app.OPERATIONS, eval(row, namespace)))
    with perdure.open(tmp_path / "home", user="ada") as home:
        home.capture_messages(
            [{"role": "user", "content": "Which port?"}], session="s1", now=datetime(2026, 11, 20, tzinfo=UTC)
        )
    server = served()
    status, body, _ = server.ada_laptop("GET", "/api/messages")
    assert (status, body["2026-11"]) == (200, 1)
