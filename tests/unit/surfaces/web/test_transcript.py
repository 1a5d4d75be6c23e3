"""Turns as they are shown: calls with their results, cuts, masks, branches that were left."""

from datetime import UTC, datetime, timedelta

from perdure.access.redact import mask
from perdure.index.threads import SpawnedAgent, ThreadPosition, ThreadTurn
from perdure.surfaces.web import transcript
from perdure.surfaces.web.transcript import (
    CallPiece,
    LocatedTurn,
    OutputPiece,
    RenderOptions,
    group_turns,
    render_turns,
)
from perdure.types import Part, Turn

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEY = "sk-ant-api03-" + "Zq8vT2xLk9Rb4Wm7" * 5 + "AA"


def read(*turns, left=()):
    found = []
    for n, (role, parts) in enumerate(turns):
        author = {"user": "person", "assistant": "agent", "tool": "tool", "system": "machine"}[role]
        turn = Turn(role, author, ((n, n + 1),), tuple(parts), AT + timedelta(seconds=2 * n))
        found.append(
            LocatedTurn(
                ThreadTurn(n, f"t{n}", ThreadPosition(0, n), "run", n, role, author, turn.stated_at, n in left), turn
            )
        )
    return found


def call(name="Bash", text='{"command":"ls"}', call_id="c1"):
    return Part("call", text, name, call_id)


def test_result_is_shown_in_its_call_and_its_turn_disappears():
    shown = render_turns(
        read(("assistant", [call()]), ("tool", [Part("result", "a\nb", "Bash", "c1")])), RenderOptions()
    )
    assert [one.turn_id for one in shown] == ["t0"] and shown[0].turn_ids == ("t0", "t1")
    (made,) = shown[0].pieces
    assert isinstance(made, CallPiece) and made.about == "ls"
    assert made.output.turn_id == "t1" and made.output.took_ms == 2000 and made.output.piece.n_lines == 2


def test_results_with_one_id_go_to_calls_in_order():
    """Two calls and three results say c1: the first two answer the calls."""
    shown = render_turns(
        read(
            ("assistant", [call(), call()]), ("tool", [Part("result", "first", "", "c1")]),
            ("tool", [Part("result", "second", "", "c1", is_error=True)]),
            ("tool", [Part("result", "third", "", "c1")]),
        ), RenderOptions(),
    )  # fmt: skip
    assert [one.turn_id for one in shown] == ["t0", "t3"]
    assert [made.output.piece.text for made in shown[0].pieces] == ["first", "second"]
    assert [made.output.is_error for made in shown[0].pieces] == [False, True]
    assert isinstance(shown[1].pieces[0], OutputPiece) and shown[1].pieces[0].piece.text == "third"


def test_target_result_marks_the_call_that_holds_it():
    shown = render_turns(
        read(("assistant", [call()]), ("tool", [Part("result", "x", "", "c1")]), ("user", [])),
        RenderOptions(target_id="t1"),
    )
    assert [one.is_here for one in shown] == [True, False]


def test_missing_result_is_empty_and_words_only_omits_calls():
    items = read(("assistant", [Part("thinking", "hm"), Part("text", "I look."), call()]))
    assert render_turns(items, RenderOptions())[0].pieces[2].output is None
    assert [piece.kind for piece in render_turns(items, RenderOptions(is_words_only=True))[0].pieces] == ["text"]


def test_images_of_a_result_stand_in_its_call_if_safe():
    parts = [
        Part("result", "", "Read", "c1"),
        Part("image", "[image/png 9 bytes]", "image/png", "c1"),
        Part("image", "[image/svg+xml 9 bytes]", "image/svg+xml", "c1"),
        Part("image", "[image/png https://evil.example/x.png]", "image/png", "c1"),
    ]
    (shown,) = render_turns(read(("assistant", [call()]), ("tool", parts)), RenderOptions())
    assert [one.media for one in shown.pieces[0].output.images] == ["image/png", "", ""]
    assert [one.n for one in shown.pieces[0].output.images] == [1, 2, 3]


def test_secret_is_masked_everywhere_and_across_a_cut():
    """The key begins ten characters before the cut, so that what is shown would hold its beginning."""
    long = "x " * (transcript._OUTPUT_CHARS // 2 - 5) + KEY
    edit = f'{{"file_path":"a","old_string":"k={KEY}","new_string":"none"}}'
    shown = render_turns(
        read(
            ("user", [Part("text", f"my key {KEY}"), Part("pasted", long)]),
            ("assistant", [call(text=f'{{"command":"curl -H {KEY}"}}'), call("Edit", edit, "c2")]),
            ("tool", [Part("result", f"it is {KEY}", "", "c1")]),
        ), RenderOptions(),
    )  # fmt: skip
    assert "Zq8v" not in repr(shown) and "[secret:" in repr(shown) and "sk-ant" not in repr(shown)


def test_secret_hidden_by_escapes_in_an_input_is_masked():
    """Each character is written by its number: the bytes hold no key, and what they stand for does."""
    hidden = "".join(f"\\u{ord(character):04x}" for character in KEY)
    assert mask(hidden) == hidden
    made = [
        call(text=f'{{"command":"curl -H {hidden}"}}'),
        call(text=f'{{"deep":[{{"key":"{hidden}"}}]}}', call_id="c2"),
    ]
    shown = repr(render_turns(read(("assistant", made)), RenderOptions()))
    assert "Zq8v" not in shown and shown.count("[secret:") >= 2


def test_long_output_is_cut_and_gives_its_full_size():
    """5,000 lines of 2 characters and a newline, without the last one: 14,999 characters, of which 40 lines show."""
    (shown,) = render_turns(
        read(("assistant", [call()]), ("tool", [Part("result", "\n".join(["ab"] * 5000), "", "c1")])), RenderOptions()
    )
    piece = shown.pieces[0].output.piece
    assert (piece.is_cut, piece.n_lines, piece.n_chars) == (True, 5000, 14_999) and piece.text.count("\n") == 39


def test_abandoned_turns_are_folded_and_open_at_the_target():
    items = read(("user", []), ("user", []), ("user", []), ("user", []), left=(1, 2))
    folds = group_turns(render_turns(items, RenderOptions()))
    assert [(fold.is_left, len(fold.turns), fold.is_open) for fold in folds] == [
        (False, 1, False), (True, 2, False), (False, 1, False),
    ]  # fmt: skip
    assert group_turns(render_turns(items, RenderOptions(target_id="t2")))[1].is_open


def test_day_is_named_at_its_first_turn():
    first, second = read(("user", []))[0], read(("user", []))[0]
    later = LocatedTurn(second.location, second.turn._replace(stated_at=AT + timedelta(days=2)))
    folds = group_turns(render_turns([first, first, later], RenderOptions()))
    assert [fold.day is not None for fold in folds] == [True, False, True]


def test_sub_agent_stands_at_its_call_or_else_in_the_turn():
    task, other = SpawnedAgent("r1", "Find the datum.", AT, 4), SpawnedAgent("r2", "Something else", AT, 2)
    items = read(("assistant", [call("Agent", '{"prompt":"Find the\\ndatum."}'), call(call_id="c2")]))
    (shown,) = render_turns(items, RenderOptions(spawned={"t0": [task, other]}))
    assert shown.pieces[0].spawned == (task,) and shown.pieces[1].spawned == () and shown.spawned == (other,)


def test_invalid_inputs_are_shown_as_they_are():
    for text in ("plain words", "[1, 2]", '{"a": ', "", "null", '{"a":{"b":[1]}}'):
        (shown,) = render_turns(read(("assistant", [call(text=text)])), RenderOptions())
        assert isinstance(shown.pieces[0], CallPiece)
    assert (
        render_turns(read(("assistant", [call(text="plain words")])), RenderOptions())[0].pieces[0].about
        == "plain words"
    )


def test_call_is_described_by_its_main_argument():
    cases = {
        '{"path":"/w/a.py","pattern":"def f"}': "def f",
        '{"file_path":"/w/src/a.py"}': "src/a.py",
        '{"command":["git","status"]}': "git status",
        '{"todos":[{"content":"x"},{"content":"y"}]}': "2 todos",
        '{"limit":3}': "",
    }
    for text, about in cases.items():
        (shown,) = render_turns(read(("assistant", [call(text=text)])), RenderOptions(folder="/w"))
        assert shown.pieces[0].about == about


def nested(deep):
    return '{"a":' * deep + f'"{KEY}"' + "}" * deep


def test_an_input_nested_without_end_is_shown_as_masked_text():
    """50 levels are taken apart, 900 are not, and no depth ends in an error."""
    for deep in (49, 50, 51, 900, 100_000):
        (shown,) = render_turns(
            read(("assistant", [call(text=nested(deep)), call("Edit", nested(deep))])), RenderOptions()
        )
        assert "Zq8v" not in repr(shown) and isinstance(shown.pieces[0], CallPiece)


def test_turn_with_many_calls_is_paged_and_counts_the_rest():
    """250 calls with their results: 100, 100 and 50; the results of those that are not shown stand nowhere else."""
    items = read(
        ("assistant", [call(call_id=f"c{n}", text=f'{{"command":"{n}"}}') for n in range(250)]),
        ("tool", [Part("result", f"r{n}", "", f"c{n}") for n in range(250)]),
    )
    (first,), (last,) = render_turns(items, RenderOptions()), render_turns(items, RenderOptions(n_skipped=200))
    assert (len(first.pieces), first.n_before, first.n_behind) == (transcript.PIECES_PER_TURN, 0, 150)
    assert (len(last.pieces), last.n_before, last.n_behind) == (50, 200, 0)
    assert (last.pieces[0].about, last.pieces[0].output.piece.text) == ("200", "r200")
    assert last.turn_ids == ("t0", "t1")


def test_page_has_a_limit_of_parts_and_characters():
    """20 turns of 100 parts: 6 are shown as far as a turn goes, and of the others 3 parts each."""
    items = read(*[("assistant", [Part("text", "x" * 20_000)] * 100)] * 20)
    shown = render_turns(items, RenderOptions())
    assert [len(one.pieces) for one in shown] == [100] * 6 + [3] * 14
    assert sum(len(piece.text) for one in shown for piece in one.pieces) < 1_300_000
    assert all(piece.is_cut for one in shown for piece in one.pieces)


def test_very_long_input_is_shown_as_its_masked_beginning():
    text = f'{{"command":"{KEY} ' + "x" * 400_000 + '"}'
    (shown,) = render_turns(read(("assistant", [call(text=text)])), RenderOptions())
    (piece,) = shown.pieces[0].inputs
    assert piece.is_cut and piece.text.startswith('{"command":"[secret:') and len(piece.text) < 6_000


def test_names_of_any_length_are_cut():
    """Of a model, a tool, a path, a field and an image: none takes more than 200 characters."""
    long = "n" * 1_000_000
    parts = [
        call(long[:200_000], f'{{"{long[:200_000]}":"x"}}'),
        call("Write", f'{{"path":"{long[:200_000]}","content":"x"}}'),
    ]
    items = read(("assistant", [*parts, Part("image", f"[{long}]", "image/png")]))
    items[0] = LocatedTurn(items[0].location, items[0].turn._replace(model=long))
    assert len(repr(render_turns(items, RenderOptions()))) < 5_000


def test_input_of_many_fields_shows_the_first_and_is_cut():
    text = "{" + ",".join(f'"f{n}":"x"' for n in range(5000)) + "}"
    (shown,) = render_turns(read(("assistant", [call(text=text)])), RenderOptions())
    assert len(shown.pieces[0].inputs) == 20 and shown.pieces[0].is_cut
