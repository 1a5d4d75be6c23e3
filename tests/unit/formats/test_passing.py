"""Paragraphs of notes that say nothing that lasts, by their form; and those that look like it and last."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.passing import find_passing_sign, is_task_name, lacks_rule


@pytest.mark.parametrize(
    ("headings", "paragraph", "sign"),
    [
        (["Tides", "Original Prompt"], "Paint the buoy red.", "request"),
        (["Tides", "Proposed Solution: Radar", "This enables"], "- Faster docking.", "proposal"),
        (["Tides", "2. Next Steps (2026-05-01)"], "Paint the buoy.", "state"),
        (["Nächste Schritte"], "Die Boje streichen.", "state"),
        (["下一步"], "粉刷浮标", "state"),
        (["Harbour state (as of 2026-03-15)"], "Two berths are free.", "state"),
        (["Profile (pending)"], "Ask for the photo.", "state"),
        (["project session 2026 03 31 s44"], "The gauge was moved.", "state"),
        (["What Would Have Helped"], "- A map of the harbour.", "hindsight"),
        ([], "> Paint the buoy\n> and the pier", "quote"),
        ([], "---\nname: tides\ntype: project\n---", "markup"),
        ([], "<!-- generated -->\n---", "markup"),
        ([], "- [Tides](tides.md)", "markup"),
        ([], "**Date:** 2026-02-08\n**Branch:** main", "label"),
        ([], "- [ ] Paint the buoy", "task"),
        ([], "- ~~Paint the buoy~~", "task"),
        ([], "- **Status:** the pier is half built", "label"),
        ([], "- Radar plan — DONE & merged", "state"),
        ([], "- 142 tests passed, 3 skipped", "state"),
        ([], "6/6 e2e tests pass", "state"),
        ([], "- `9eb6941` paint the buoy", "change"),
        ([], "- #53 paints the buoy", "change"),
        ([], "- Size: 43,749 → 27,580 chars", "change"),
        ([], "- Should the buoy be red?", "guess"),
        ([], "- This created two wrong entries.", "pronoun"),
        ([], "**It is on pier 3, not on pier 4.** The chart shows another.", "pronoun"),
        ([], "The same holds for buoys. A second relay is there.", "pronoun"),
        ([], "- `docs/lamps.md`", "markup"),
        ([], "https://lamps.example/24-v", "markup"),
        ([], "相關：[[lamps]]", "markup"),
        ([], "每個燈都要：", "fragment"),
        (["Log", "2026-05-08 - The lamp went out"], "- **Scope**: the whole pier", "log"),
        (["Radar BUILT 2026-05-08 (12 tests)"], "The radar turns at 12 rpm.", "log"),
        (["Round 32: the third buoy"], "The buoy is red.", "log"),
        (["Both lamps are now done; what remains is the pier"], "The lamp takes 24 V.", "log"),
        (["Recent harbour work (2026-03-10)"], "The lamp takes 24 V.", "state"),
        (["Measured 2026-08-05, all lamps"], "They take 24 V.", "log"),
        (["Corrections log", "In short"], "- The lamp takes 24 V.", "log"),
        ([], "- **First light (done before the pier)**: it takes 24 V. It is red.", "state"),
        ([], "Why it was left alone: the lamp takes 24 V. It is red.", "state"),
        (["Fix candidates"], "1. Take 24 V.", "proposal"),
        ([], "The lamp takes 24 V since `9eb6941`. It is red.", "state"),
        ([], "The lamp takes 24 V. The relay came with the pier, 2026-08-05.", "state"),
        ([], "**Next lamps:** pier 3 is wired. It takes 24 V.", "state"),
        (["Related"], "- [[lamps]] — their cables", "links"),
        (["Plan"], "1. Paint the buoy.", "proposal"),
        ([], "**Lamp A — BUILT 2026-05-08**, one cable. It takes 24 V.", "state"),
        ([], "The lamp takes 24 V. All the lamps were replaced 2026-05-08.", "state"),
        ([], "**First instance:** 2026-05-08. The lamp takes 24 V.", "state"),
        ([], "The lamp takes 24 V. The cable is still unverified.", "state"),
        ([], "**Berth 3 (2026-05-08)** has a depth of 4 m. It is dry at low tide.", "state"),
        ([], "The lamp went out at night. We found a loose wire, and the relay was burnt.", "story"),
        ([], "A ceiling is better here. I nearly filed it as too low.", "story"),
        ([], "- [Lamps](lamps.md) — they take 24 V", "markup"),
        ([], "See also: [[lamps]], [[piers]]. They are older.", "markup"),
        ([], "This file provides guidance for those who mend lamps.", "markup"),
        ([], "_Patterns for lamps and piers._", "fragment"),
        ([], "The lamps of the pier are of three kinds, and each\nkind takes another voltage:", "fragment"),
    ],
)
def test_a_paragraph_passes(headings, paragraph, sign):
    assert find_passing_sign(headings, paragraph) == sign


@pytest.mark.parametrize(
    ("headings", "paragraph"),
    [
        (["Tides", "HTTP status codes"], "A missing buoy is 404."),
        (["Prompt caching"], "The system prompt is cached."),
        (["Session management"], "Sessions end after an hour."),
        (["Code Generation", "Do not suggest"], "- Team accounts"),
        ([], "> **Note:** the pier is closed at high tide."),
        ([], "> [!WARNING]\n> Never moor at pier 3."),
        ([], "- `src/buoy.py` — draws the lamp"),
        ([], "- `src/buoy.py` — draws the lamp (new)"),
        ([], "- Created on demand by the harbour master"),
        ([], "- Built with Vite"),
        ([], "- Run the tests before each push"),
        ([], "- Fixed the lamp twice. A relay of 12 V burns out: use 24 V."),
        ([], "- This project uses pnpm"),
        ([], "- This pattern holds for any harbour"),
        ([], "- `lamps.toml`: the voltages"),
        ([], "- `make lamps`"),
        ([], "| berth | depth |\n|---|---|\n| 3 | 4 m |"),
        ([], "- `feat/` - New features"),
        (["Lamps since 2026-05-08"], "Lamps take 24 V."),
        (["Decision log"], "Lamps take 24 V."),
        (["✅ Do"], "- Take 24 V."),
        ([], "- ✅ Take 24 V, ❌ never 12 V"),
        ([], "**Never take 12 V.** The lamp went out at night: we found a burnt relay, and it was our third."),
        (
            [],
            "Take 24 V.\n\n**Why:** it was dark, and we found a burnt relay.\n\n**How to apply:** read the label.",
        ),
        ([], "**The person pays for no lamp.** They said so on 2026-05-08, and it holds for all piers."),
        ([], "- HTTP status: 404 means that no berth is free"),
        ([], "- [`lamps.toml`](../lamps.toml) holds the voltages"),
        ([], "See `lamps.toml` for the voltages."),
        ([], "A lamp is `DONE` when the relay has clicked."),
    ],
)
def test_a_paragraph_lasts(headings, paragraph):
    assert find_passing_sign(headings, paragraph) == ""


@pytest.mark.parametrize(
    ("name", "is_task"),
    [
        ("project lamp flake", True),
        ("harbour audit 2026 03 17", True),
        ("lamp endgame plan", True),
        ("feedback never defer bugs", False),
        ("reference lamp audit", False),
        ("lamps", False),
        ("planning lamps", False),
    ],
)
def test_a_note_of_one_task_is_known_by_its_name(name, is_task):
    assert is_task_name(name) == is_task


def test_instructions_may_ask_and_doubt():
    assert find_passing_sign([], "- Does every page have a title?", is_note=False) == ""
    assert find_passing_sign(["TODO"], "- Paint the buoy", is_note=False) == "state"
    for words in (
        "- [Lamps](lamps.md) — 24 V",
        "- Size: 43,749 → 27,580 chars",
        "**Berth 3 (2026-05-08)** is 4 m deep.",
    ):
        assert find_passing_sign(["2026-05-08: lamps"], words, is_note=False) == ""


@pytest.mark.parametrize("is_note", [True, False])
def test_a_story_passes_unless_it_gives_a_rule(is_note):
    story = "The lamp went out. We found a loose wire."
    assert find_passing_sign([], story, is_note=is_note) == "story"
    assert find_passing_sign([], f"Always check the wire. {story}", is_note=is_note) == ""


@pytest.mark.parametrize(
    ("note_type", "paragraph", "is_lacking"),
    [
        ("project", "The lamp takes 24 V.", True),
        ("project", "- The lamp takes 24 V.", True),
        ("", "The lamp takes 24 V.", True),
        ("feedback", "The lamp takes 24 V.", True),
        ("feedback", "- The lamp takes 24 V.", False),
        ("feedback", "The lamp takes 24 V.\n\n**Why:** relays burn.", False),
        ("user", "The lamp is hers.", False),
        ("reference", "The lamp takes 24 V.", False),
        ("project", "Use 24 V.", False),
        ("project", "- **Lamps**: never take 12 V.", True),
        ("project", "- **Lamps**: Never take 12 V.", False),
        ("project", "The lamp takes 24 V. Do not take 12 V.", False),
        ("project", "A lamp must take 24 V.", False),
        ("project", "The lamp takes 24 V.\n\n**How to apply:** read the label.", False),
        ("project", "The lamp takes 24 V. " * 20 + "Never take 12 V.", True),
        ("project", "- Immer 24 V nehmen.", False),
        ("project", "La lampe doit avoir 24 V.", False),
        ("project", "Nunca 12 V.", False),
        ("project", "灯不得用12伏。", False),
        ("project", "ランプは24Vを使用すること。", False),
    ],
)
def test_a_note_of_a_project_needs_a_rule(note_type, paragraph, is_lacking):
    assert lacks_rule(note_type, paragraph) == is_lacking


@given(st.text(alphabet="a-`#>[]x \n.:—0→*<!", max_size=80))
def test_any_text_gets_an_answer(paragraph):
    assert isinstance(find_passing_sign([paragraph], paragraph), str)


@pytest.mark.parametrize(
    "piece",
    [
        "<!-- -->",
        "- a: b\n",
        "![x](y)",
        "` — ",
        "1/2 ",
        "-",
        "[![a](b)](c)",
        "1 -> ",
        "\n",
        "** ",
        "was (",
        "related ",
        "it was ",
    ],
)
def test_long_hostile_text_takes_no_time(piece):
    paragraph = "---\n" + piece * 20_000 + "x"
    start_s = time.process_time()
    find_passing_sign([paragraph], paragraph)
    lacks_rule("feedback", paragraph)
    assert time.process_time() - start_s < 1


@pytest.mark.parametrize("paragraph", ["0" * 2000, "[" * 50_000], ids=["digits", "brackets"])
def test_a_line_of_one_sign_takes_no_time(paragraph):
    start_s = time.process_time()
    for _ in range(5):
        find_passing_sign([], paragraph)
    assert time.process_time() - start_s < 1
