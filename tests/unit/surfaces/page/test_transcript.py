"""Turns as they are shown: calls with their results, cuts, masks, branches that were left."""

from datetime import UTC, datetime, timedelta

from perdure.access.redact import mask
from perdure.index.talk import Place, Spawned, Standing
from perdure.surfaces.page import transcript
from perdure.surfaces.page.transcript import Call, Output, Read, Wish, folded, said
from perdure.types import Part, Turn

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEY = "sk-ant-api03-" + "Zq8vT2xLk9Rb4Wm7" * 5 + "AA"


def read(*turns, left=()):
    found = []
    for n, (role, parts) in enumerate(turns):
        author = {"user": "person", "assistant": "agent", "tool": "tool", "system": "machine"}[role]
        turn = Turn(role, author, ((n, n + 1),), tuple(parts), AT + timedelta(seconds=2 * n))
        found.append(Read(Standing(n, f"t{n}", Place(0, n), "run", n, role, author, turn.stated_at, n in left), turn))
    return found


def call(name="Bash", text='{"command":"ls"}', call_id="c1"):
    return Part("call", text, name, call_id)


def test_a_result_stands_in_its_call_and_its_turn_in_no_place_of_its_own():
    shown = said(read(("assistant", [call()]), ("tool", [Part("result", "a\nb", "Bash", "c1")])), Wish())
    assert [one.turn_id for one in shown] == ["t0"] and shown[0].inside == ("t0", "t1")
    (made,) = shown[0].pieces
    assert isinstance(made, Call) and made.about == "ls"
    assert made.output.turn_id == "t1" and made.output.took_ms == 2000 and made.output.piece.n_lines == 2


def test_results_with_one_id_go_to_calls_in_their_order_and_one_without_a_call_stands_alone():
    """Two calls and three results say c1: the first two answer the calls."""
    shown = said(
        read(
            ("assistant", [call(), call()]), ("tool", [Part("result", "first", "", "c1")]),
            ("tool", [Part("result", "second", "", "c1", is_error=True)]),
            ("tool", [Part("result", "third", "", "c1")]),
        ), Wish(),
    )  # fmt: skip
    assert [one.turn_id for one in shown] == ["t0", "t3"]
    assert [made.output.piece.text for made in shown[0].pieces] == ["first", "second"]
    assert [made.output.is_error for made in shown[0].pieces] == [False, True]
    assert isinstance(shown[1].pieces[0], Output) and shown[1].pieces[0].piece.text == "third"


def test_who_asks_for_a_result_is_led_to_the_call_that_holds_it():
    shown = said(
        read(("assistant", [call()]), ("tool", [Part("result", "x", "", "c1")]), ("user", [])), Wish(here="t1")
    )
    assert [one.is_here for one in shown] == [True, False]


def test_a_call_without_a_result_says_so_and_words_alone_leave_calls_out():
    items = read(("assistant", [Part("thinking", "hm"), Part("text", "I look."), call()]))
    assert said(items, Wish())[0].pieces[2].output is None
    assert [piece.kind for piece in said(items, Wish(is_words=True))[0].pieces] == ["text"]


def test_images_of_a_result_stand_in_its_call_and_only_those_that_a_browser_cannot_run_are_shown():
    parts = [
        Part("result", "", "Read", "c1"),
        Part("image", "[image/png 9 bytes]", "image/png", "c1"),
        Part("image", "[image/svg+xml 9 bytes]", "image/svg+xml", "c1"),
        Part("image", "[image/png https://evil.example/x.png]", "image/png", "c1"),
    ]
    (shown,) = said(read(("assistant", [call()]), ("tool", parts)), Wish())
    assert [one.media for one in shown.pieces[0].output.images] == ["image/png", "", ""]
    assert [one.n for one in shown.pieces[0].output.images] == [1, 2, 3]


def test_a_secret_is_masked_in_words_inputs_outputs_and_diffs_and_where_the_cut_goes_through_it():
    """The key begins ten characters before the cut, so that what is shown would hold its beginning."""
    long = "x " * (transcript._OUTPUT_CHARS // 2 - 5) + KEY
    edit = f'{{"file_path":"a","old_string":"k={KEY}","new_string":"none"}}'
    shown = said(
        read(
            ("user", [Part("text", f"my key {KEY}"), Part("pasted", long)]),
            ("assistant", [call(text=f'{{"command":"curl -H {KEY}"}}'), call("Edit", edit, "c2")]),
            ("tool", [Part("result", f"it is {KEY}", "", "c1")]),
        ), Wish(),
    )  # fmt: skip
    assert "Zq8v" not in repr(shown) and "[secret:" in repr(shown) and "sk-ant" not in repr(shown)


def test_a_secret_that_escapes_hide_in_the_bytes_of_an_input_is_masked_where_it_is_shown():
    """Each character is written by its number: the bytes hold no key, and what they stand for does."""
    hidden = "".join(f"\\u{ord(character):04x}" for character in KEY)
    assert mask(hidden) == hidden
    made = [
        call(text=f'{{"command":"curl -H {hidden}"}}'),
        call(text=f'{{"deep":[{{"key":"{hidden}"}}]}}', call_id="c2"),
    ]
    shown = repr(said(read(("assistant", made)), Wish()))
    assert "Zq8v" not in shown and shown.count("[secret:") >= 2


def test_a_long_output_is_cut_and_says_of_how_much():
    """5,000 lines of 2 characters and a newline, without the last one: 14,999 characters, of which 40 lines show."""
    (shown,) = said(
        read(("assistant", [call()]), ("tool", [Part("result", "\n".join(["ab"] * 5000), "", "c1")])), Wish()
    )
    piece = shown.pieces[0].output.piece
    assert (piece.is_cut, piece.n_lines, piece.n_chars) == (True, 5000, 14_999) and piece.text.count("\n") == 39


def test_turns_of_a_branch_that_was_left_are_folded_together_and_open_where_one_is_asked_for():
    items = read(("user", []), ("user", []), ("user", []), ("user", []), left=(1, 2))
    folds = folded(said(items, Wish()))
    assert [(fold.is_left, len(fold.turns), fold.is_open) for fold in folds] == [
        (False, 1, False), (True, 2, False), (False, 1, False),
    ]  # fmt: skip
    assert folded(said(items, Wish(here="t2")))[1].is_open


def test_a_day_is_named_where_it_begins():
    first, second = read(("user", []))[0], read(("user", []))[0]
    later = Read(second.standing, second.turn._replace(stated_at=AT + timedelta(days=2)))
    folds = folded(said([first, first, later], Wish()))
    assert [fold.day is not None for fold in folds] == [True, False, True]


def test_a_sub_agent_stands_at_the_call_that_gave_it_its_task_or_else_in_the_turn():
    task, other = Spawned("r1", "Find the datum.", AT, 4), Spawned("r2", "Something else", AT, 2)
    items = read(("assistant", [call("Agent", '{"prompt":"Find the\\ndatum."}'), call(call_id="c2")]))
    (shown,) = said(items, Wish(spawned={"t0": [task, other]}))
    assert shown.pieces[0].spawned == (task,) and shown.pieces[1].spawned == () and shown.spawned == (other,)


def test_an_input_that_is_no_object_and_one_that_is_broken_are_shown_as_they_are():
    for text in ("plain words", "[1, 2]", '{"a": ', "", "null", '{"a":{"b":[1]}}'):
        (shown,) = said(read(("assistant", [call(text=text)])), Wish())
        assert isinstance(shown.pieces[0], Call)
    assert said(read(("assistant", [call(text="plain words")])), Wish())[0].pieces[0].about == "plain words"


def test_what_a_call_is_about_is_its_main_argument():
    cases = {
        '{"path":"/w/a.py","pattern":"def f"}': "def f",
        '{"file_path":"/w/src/a.py"}': "src/a.py",
        '{"command":["git","status"]}': "git status",
        '{"todos":[{"content":"x"},{"content":"y"}]}': "2 todos",
        '{"limit":3}': "",
    }
    for text, about in cases.items():
        (shown,) = said(read(("assistant", [call(text=text)])), Wish(folder="/w"))
        assert shown.pieces[0].about == about


def nested(deep):
    return '{"a":' * deep + f'"{KEY}"' + "}" * deep


def test_an_input_nested_without_end_is_shown_as_masked_text():
    """50 levels are taken apart, 900 are not, and no depth ends in an error."""
    for deep in (49, 50, 51, 900, 100_000):
        (shown,) = said(read(("assistant", [call(text=nested(deep)), call("Edit", nested(deep))])), Wish())
        assert "Zq8v" not in repr(shown) and isinstance(shown.pieces[0], Call)


def test_a_turn_of_very_many_calls_shows_some_and_says_how_many_are_behind():
    """250 calls with their results: 100, 100 and 50; the results of those that are not shown stand nowhere else."""
    items = read(
        ("assistant", [call(call_id=f"c{n}", text=f'{{"command":"{n}"}}') for n in range(250)]),
        ("tool", [Part("result", f"r{n}", "", f"c{n}") for n in range(250)]),
    )
    (first,), (last,) = said(items, Wish()), said(items, Wish(skipped=200))
    assert (len(first.pieces), first.n_before, first.n_behind) == (transcript.PIECES, 0, 150)
    assert (len(last.pieces), last.n_before, last.n_behind) == (50, 200, 0)
    assert (last.pieces[0].about, last.pieces[0].output.piece.text) == ("200", "r200")
    assert last.inside == ("t0", "t1")


def test_a_page_has_room_for_so_many_parts_and_characters():
    """20 turns of 100 parts: 6 are shown as far as a turn goes, and of the others 3 parts each."""
    items = read(*[("assistant", [Part("text", "x" * 20_000)] * 100)] * 20)
    shown = said(items, Wish())
    assert [len(one.pieces) for one in shown] == [100] * 6 + [3] * 14
    assert sum(len(piece.text) for one in shown for piece in one.pieces) < 1_300_000
    assert all(piece.is_cut for one in shown for piece in one.pieces)


def test_an_input_too_long_to_be_taken_apart_is_shown_as_its_masked_beginning():
    text = f'{{"command":"{KEY} ' + "x" * 400_000 + '"}'
    (shown,) = said(read(("assistant", [call(text=text)])), Wish())
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
    items[0] = Read(items[0].standing, items[0].turn._replace(model=long))
    assert len(repr(said(items, Wish()))) < 5_000


def test_an_input_of_very_many_fields_shows_the_first_and_says_so():
    text = "{" + ",".join(f'"f{n}":"x"' for n in range(5000)) + "}"
    (shown,) = said(read(("assistant", [call(text=text)])), Wish())
    assert len(shown.pieces[0].inputs) == 20 and shown.pieces[0].is_cut
