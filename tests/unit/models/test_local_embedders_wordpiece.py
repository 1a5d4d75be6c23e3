"""Our tokenizer gives the reference's ids: tests/data/wordpiece.json was made with it (make_wordpiece_golden.py)."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models import local_embedders
from perdure.models.local_embedders import UNKNOWN, WordPiece

DATA = Path(__file__).parents[2] / "data"
SHARED = Path(os.environ.get("PERDURE_SHARED", Path(__file__).parents[4] / "shared")) / "data/retrieval"
_SMALL = WordPiece([UNKNOWN, "per", "##dure", "!", "数", "[CLS]"])


@pytest.fixture(scope="module")
def golden():
    return json.loads((DATA / "wordpiece.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cutter(built):
    return WordPiece(local_embedders.read_vocabulary("minilm-vocab.txt"))


@pytest.fixture(scope="module")
def maker():
    """The script that made the golden file, without the reference that it imports."""
    source = (DATA / "make_wordpiece_golden.py").read_text(encoding="utf-8")
    names = {"__name__": "golden", "__file__": str(DATA / "make_wordpiece_golden.py")}
    exec(source.replace("from tokenizers import Tokenizer", ""), names)
    return names


def test_probe_texts_give_the_golden_ids(golden, cutter):
    assert [[text, cutter.to_token_ids(text)] for text, _ in golden["probes"]] == golden["probes"]
    assert len(golden["probes"]) > 50


def test_every_character_of_unicode_3_2(golden, cutter, maker):
    assert {name: maker["digest"]([cutter.to_token_ids(text)]) for name, text in maker["blocks"]().items()} == golden[
        "blocks"
    ]


@pytest.mark.shared
def test_real_conversations_give_the_golden_ids(golden, cutter, maker):
    for name, expected in golden["shared"].items():
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"{path} is not here")
        assert (
            maker["digest"](
                [cutter.to_token_ids(json.loads(line)["text"]) for line in path.read_text().split("\n")[:-1]]
            )
            == expected
        ), name


def test_longest_piece_first_worked_by_hand():
    """'perdure' is 'per' + '##dure'; 'perdu' has no piece for 'du', so the whole word is unknown; signs stand alone."""
    assert _SMALL.to_token_ids("Perdure perdu!") == [1, 2, 0, 3]


def test_control_tokens_in_a_text_are_text():
    assert 5 not in _SMALL.to_token_ids("[CLS]")


def test_the_limit_is_on_pieces():
    assert _SMALL.to_token_ids("perdure " * 1000, max_pieces=3) == [1, 2, 1]
    assert _SMALL.to_token_ids("perdure", max_pieces=0) == []


@given(st.text())
def test_any_text_has_ids(text):
    ids = _SMALL.to_token_ids(text)
    assert all(0 <= n < 6 for n in ids) and _SMALL.to_token_ids(text) == ids


@given(st.text(alphabet=st.sampled_from("per du! 数")), st.integers(0, 5))
def test_limit_cuts_and_changes_nothing_else(text, most):
    assert _SMALL.to_token_ids(text, max_pieces=most) == _SMALL.to_token_ids(text)[:most]
