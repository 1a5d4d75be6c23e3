"""The socket of M(I): two recallers keep to the same rules, over written candidates and over a real index."""

import importlib.util
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.plan import RECALL_FILTERS, plan
from perdure.recall.recall import recall
from perdure.recall.recaller import RecallContext
from perdure.testing import WrittenCandidates, check_recaller
from perdure.types import Recalled

NOW = datetime(2026, 3, 10, tzinfo=UTC)
TURNS = {
    "t0": ("user", "We build a tide service for the harbour office."),
    "t1": ("assistant", "Where shall the heights be cached?"),
    "t2": ("user", "The server is called quokka-3 and listens on port 8417."),
    "t3": ("assistant", "Noted."),
    "t4": ("user", "Job TIDE-4711 failed on quokka-3 at night."),
    "t5": ("assistant", "TIDE-4711 reads a file that Skerrow no longer writes."),
    "t6": ("user", "The gauge on Skerrow was replaced in May."),
}
MESSAGE = "What is wrong on the server quokka-3 with TIDE-4711?"


def load_example():
    spec = importlib.util.spec_from_file_location("own_recall", Path(__file__).parents[2] / "examples/own_recall.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.recall_by_names


RECALLERS = {"as it ships": recall, "by names": load_example()}


@pytest.fixture
def home(tmp_path):
    lines = "".join(
        f'{{"role": "{role}", "content": "{words}", "timestamp": "2026-03-0{n + 1}T09:00:00Z"}}\n'
        for n, (role, words) in enumerate(TURNS.values())
    )
    with perdure.open(tmp_path / "home", user="ada") as ada:
        ada.capture(lines.encode(), runtime="messages", session="tides")
    return tmp_path / "home"


@pytest.mark.parametrize("recaller", RECALLERS.values(), ids=RECALLERS)
def test_recaller_keeps_to_the_rules(recaller, home):
    asked = plan(MESSAGE, now=NOW)
    check_recaller(recaller, WrittenCandidates(TURNS), asked)
    with perdure.open(home, user="ada") as ada:
        index = ada.connections.index()
        with index.begin_read():
            check_recaller(recaller, IndexCandidates(index, ada.principal, RECALL_FILTERS), asked)


@pytest.mark.parametrize("recaller", RECALLERS.values(), ids=RECALLERS)
def test_home_recalls_by_the_one_it_was_opened_with(recaller, home):
    with perdure.open(home, user="ada", recaller=recaller) as ada:
        cues = ada.recall(MESSAGE, now=NOW).cues
        assert any("Skerrow" in cue.text for cue in cues)
        with ada.clone_for_thread() as clone:
            assert clone.recall(MESSAGE, now=NOW).cues == cues
    with perdure.open(home, user="bob", recaller=recaller) as bob:
        assert not bob.recall(MESSAGE, now=NOW).cues, "nothing of another owner, whatever recalls"


def test_names_lead_in_two_steps(home):
    """The last turn has no word of the message; Skerrow leads to it."""
    with perdure.open(home, user="ada", recaller=RECALLERS["by names"]) as ada:
        texts = [cue.text for cue in ada.recall("What was wrong with TIDE-4711?", now=NOW).cues]
        assert texts[0] == "TIDE-4711 reads a file that Skerrow no longer writes."
        assert "The gauge on Skerrow was replaced in May." in texts[1:]
        silent = ada.recall("Anything about the weather?", now=NOW)
        assert silent.cues == () and silent.silent == "no name of the message occurs here"


def test_rule_that_is_broken_is_named():
    def forgetful(candidates, asked, context=None) -> Recalled:
        return recall(candidates, asked, RecallContext(scan_text=None))

    with pytest.raises(AssertionError, match="what the session holds is not told"):
        check_recaller(forgetful, WrittenCandidates(TURNS), plan(MESSAGE, now=NOW))
