"""How peers are driven, with a peer of three lines in this Python; no peer is installed."""

import sys

import pytest

from perdure.eval.datasets import Dataset, EvalDoc, EvalQuestion, parse_stamp

peers = pytest.importorskip("benchmarks.peers.__main__", reason="the benchmarks are not here (run from the checkout)")

DATA = Dataset(
    "two",
    (
        EvalDoc("a/1", "a", "", parse_stamp("2026-02-03"), "user", "user: boats"),
        EvalDoc("a/2", "a", "", None, "user", "user: quays"),
        EvalDoc("b/1", "b", "", None, "user", "user: tides"),
    ),
    (EvalQuestion("q1", "a", "boats", ("a/1",), "fact"), EvalQuestion("q2", "b", "tides", ("b/1",), "fact")),
)
PEER = """
import sys
sys.path.insert(0, sys.argv[1])
from serve import serve
held = {}
def take(group, texts):
    print("a peer that chats on stdout")
    held[group] = {row["id"]: row["text"] for row in texts}
def ask(group, text, k, project):
    return sorted(held[group], key=lambda name: text not in held[group][name])[:k]
serve(take, ask)
"""


def line(script):
    return lambda folder: [sys.executable, "-c", script, str(peers.HERE)]


def test_each_question_searches_its_own_group():
    asked = peers.of_peer(DATA, line(PEER), dates=False)
    assert asked.ranked == {"q1": ["a/1", "a/2"], "q2": ["b/1"]}
    assert len(asked.took_ms) == 2
    assert asked.taken_s >= 0


def test_peer_that_exits_is_reported_with_its_last_words():
    with pytest.raises(EOFError, match="no such model"):
        peers.of_peer(DATA, line("raise SystemExit('no such model')"), dates=False)


def test_known_dates_are_put_before_the_text():
    assert [peers.text_of(doc, dates=True) for doc in DATA.docs[:2]] == [
        "[03 February 2026] user: boats",
        "user: quays",
    ]
    assert peers.text_of(DATA.docs[0], dates=False) == "user: boats"


def test_tables_replace_those_of_the_last_run(tmp_path):
    page = tmp_path / "peers.md"
    page.write_text(f"before\n{peers.BEGIN}\nold\n{peers.END}\nafter\n")
    peers.written(["new", "row"], page)
    peers.written(["newer", "row"], page)
    assert page.read_text() == f"before\n{peers.BEGIN}\n\nnewer\nrow\n\n{peers.END}\nafter\n"
