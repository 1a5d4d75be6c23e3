"""Explicit forms are found whole and in their language, everything else is left alone; spans are exact, time linear."""

from __future__ import annotations

import doctest
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.memories import explicit, language, sentences
from perdure.memories.explicit import find_statements, guess_kind
from perdure.memories.language import load_languages
from perdure.memories.sentences import MAX_CHARS, MAX_TYPED_CHARS

EXPLICIT = """
procedure en | Always run the formatter before you commit.
procedure en | Never push directly to main.
procedure en | From now on, answer me in German.
procedure en | commit after each step from now on
procedure en | don't ever force-push
procedure en | Make sure to run the migrations every time you touch a model
preference en | I prefer short answers without bullet points.
preference en | My favourite test runner is pytest.
decision en | We decided to drop support for Python 3.9.
decision en | We've agreed on two-week sprints.
decision en | decision: the importer will be written in Rust
decision en | We use pnpm, not npm.
decision en | we use uv instead of pip for installs
decision en | We moved the auth service to port 8081.
decision en | I switched from vim to Helix.
decision en | we no longer use Jenkins
procedure de | Antworte mir bitte immer auf Deutsch.
procedure de | Ab jetzt keine Emojis mehr.
preference de | Ich bevorzuge kurze Antworten.
decision de | Wir haben uns für Postgres entschieden.
decision de | Wir haben billing auf Port 4100 umgestellt.
decision de | Ich trinke keinen Kaffee mehr.
procedure fr | Désormais, réponds en français.
preference fr | Je préfère les réponses courtes.
decision fr | On a décidé d'utiliser Redis.
decision fr | Nous sommes passés de Jenkins à GitLab CI.
procedure es | A partir de ahora responde en español.
preference es | Prefiero las respuestas cortas.
decision es | Hemos decidido usar Postgres.
decision es | Hemos migrado la base de Postgres a MySQL.
procedure it | D'ora in poi rispondi in italiano.
decision it | Abbiamo deciso di usare Redis.
procedure pt | De agora em diante use pnpm.
procedure zh | 以后请用中文回答。
preference zh | 我更喜欢简短的回答。
decision zh | 我们决定用Postgres。
decision zh | 我们从Jenkins换成了GitLab CI。
decision de | wir haben uns gegen GraphQL entschieden, der Ordner kann weg
procedure en | Starting today all times in logs are UTC.
preference en | I'd rather have explicit types than inference
decision en | we use conventional commits, no free-form messages
procedure es | Desde hoy las fechas van en formato ISO.
procedure zh | 从今天起每个新接口都要写单元测试。
procedure ja | 今後は日本語で答えてください。
preference ja | タブの方が好きです。
decision ja | Postgresを使うことに決めました。
decision ja | npmではなくpnpmを使います。
"""
KEPT_PART = """
remember that the staging API listens on 8081 | the staging API listens on 8081
Remember: I'm allergic to nuts | I'm allergic to nuts
please note that releases go out on Thursdays | releases go out on Thursdays
keep in mind: the importer only reads UTF-8 | the importer only reads UTF-8
btw I prefer tabs over spaces. Can you fix the test? | I prefer tabs over spaces.
ok so we use uv, not pip, can you update the docs | we use uv, not pip
Thanks! We moved billing to port 4100. Now fix the parser bug. | We moved billing to port 4100.
we switched from npm to pnpm, just so you know | we switched from npm to pnpm
- Always use tabs in Go code.\\n- never log secrets | Always use tabs in Go code.
merk dir, dass der Build nur unter Linux läuft | der Build nur unter Linux läuft
记住：测试服务器的端口是8080。 | 测试服务器的端口是8080。
覚えておいて：ステージングは8080番です。 | ステージングは8080番です。
"""
NOT_EXPLICIT = r"""
I have changed my mind about the port.
The build is red.
the test always fails on CI
always fails on the second run
never mind
never seen that before
My name is Bob and I work at Acme.
the button is blue now, not green
Use flexbox for this component.
I like this approach.
I prefer option 2
I prefer the first one
I prefer that
remember when we fixed the parser?
remember the bug from last week
We moved it to the other folder.
we switched to main
I think we decided to use Kafka
Should we always run the linter?
Could you always use tabs here?
From now on? Really?
For now, always use the mock.
We use Kafka.
Maybe we decided on Redis, I don't know
call me when it is done
can you remember to run the tests
if we switched from Jenkins to Buildkite, would it be faster?
> Always use tabs in Go code.
```\nalways use tabs\n```
    always use tabs in Go code
He wrote: "We decided to move everything to Hetzner by the summer".
for example, always use tabs
from now on the graph shows zeros, why?
ab jetzt kommt nur noch ein Timeout, warum?
we moved on from that topic, next question
I switched the branch, go on
merk dir kurz die Zahl 17
nie gesehen
immer noch rot
toujours le même problème
siempre el mismo error
总是报错
Wir haben das geändert.
on a changé ça
"""


def rows(table: str) -> list[list[str]]:
    return [line.replace("\\n", "\n").split(" | ") for line in table.strip("\n").split("\n")]


@pytest.mark.parametrize("module", [explicit, language, sentences])
def test_the_examples_in_docstrings_are_true(module) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(("label", "text"), rows(EXPLICIT))
def test_a_form_is_found_whole(label: str, text: str) -> None:
    assert [(f"{s.kind} {s.language}", s.text) for s in find_statements(text)] == [(label, text)]


@pytest.mark.parametrize(("message", "text"), rows(KEPT_PART))
def test_only_the_words_to_keep_are_taken(message: str, text: str) -> None:
    assert [statement.text for statement in find_statements(message)] == [text]


@pytest.mark.parametrize("text", [row[0] for row in rows(NOT_EXPLICIT)])
def test_other_sentences_are_left_alone(text: str) -> None:
    assert find_statements(text) == []


def test_kind_follows_from_the_form() -> None:
    texts = ("I prefer Helix", "always use tabs", "We decided on SQLite", "Run the tests first", "Mira answers by mail")
    assert [guess_kind(text) for text in texts] == ["preference", "procedure", "decision", "procedure", "fact"]


def test_each_language_has_the_sections_that_forms_and_subjects_need() -> None:
    needed = "remember rule preference decision choice except passing doubt ask I we change old ended is filler".split()
    for one in load_languages():
        assert [section for section in needed if not one.lines(section)] == [], one.name
        for section in needed:
            assert one.pattern(section)  # each line is a form that can be compiled
    assert {"en", "de", "fr", "es", "zh", "ja"} <= {one.name for one in load_languages()}


PASTED = {
    "letter": "summarise this mail for me:\n\nHi Bob,\n{}\nBest, Eve",
    "letter with empty lines": "what should I answer?\n\nDear Bob,\n\n{}\n\nBest, Eve",
    "letter with a head": "From: Eve\nTo: Bob\nSubject: News\n\n{}\n\nEve",
    "diff": "review this\n\ndiff --git a/notes b/notes\n@@ -1 +1 @@\n+{}\n",
    "diff without a head": "is this right?\n\n+{}\n",
    "role play": "Let's play a game: you are Bob and I am Eve. {}",
    "role play in lines": "Pretend that you are my bank.\n\n{}",
    "file": "@notes.txt contains: {}",
    "document": "<document>\n\n{}\n\n</document>",
    "issue": "Fix this issue\n\n## Staging is away\n\n{}\n\n### Steps",
    "introduced": "My colleague wrote this:\n\n{}",
    "three quotes": 'translate """{}""" to German',
    "quoted by words": "my boss said: {}",
    "German letter": "Was antworte ich darauf?\n\nHallo Bob,\n\n{}\n\nGrüße",
    "rule": "see this\n\n---\n\n{}",
    "log": "2026-01-01 10:00 eve: {}\n2026-01-01 10:01 bob: ok",
    "table": "| rule |\n| --- |\n| {} |",
    "fence": "```\n{}\n```",
    "more lines": "see the notes\n{}\nand more",
}


@pytest.mark.parametrize(
    "said", ["Always use tabs in Evilville.", "We moved staging to port 6664.", "I prefer evil tabs."]
)
@pytest.mark.parametrize("shape", PASTED)
def test_pasted_words_are_no_statement_of_the_person(shape: str, said: str) -> None:
    assert find_statements(said), "by itself it is one"
    assert find_statements(PASTED[shape].format(said)) == []


def test_own_words_before_pasted_ones_count() -> None:
    message = "We moved staging to port 7000.\n\nHere is the mail:\n\nWe moved staging to port 6664."
    assert [statement.text for statement in find_statements(message)] == ["We moved staging to port 7000."]


def test_a_document_is_not_something_typed() -> None:
    plan = "# Plan\n\nWe decided to use Kafka.\n\n## Steps\n\nAlways run tests.\n\n## Risks\n\nI prefer tabs.\n"
    assert find_statements(plan) == []
    assert find_statements("I prefer tabs over spaces.\n" * (MAX_TYPED_CHARS // 16 + 1)) == []


PIECES = st.sampled_from(
    "I|we|my|our|always|never|use|not|instead of|prefer|from|to|port|8080|is|remember|that|decided|moved|from now on|"
    'now|no longer|and|but|, |. |? |! |: |\n|> |```|`|"|“|”|- |if|ich|wir|immer|nicht|je|ne|toujours|siempre|我|不|'
    "以后|了|端口|。|，|ください|必ず|'s|'m|don't|can't|\u202e|\x00|\ud800|🇩🇪|e\u0301|(|)|—|…|%|$5|3.|Dr.|2024-01-01".split(
        "|"
    )
)
MESSAGES = st.one_of(st.text(max_size=400), st.lists(PIECES, max_size=60).map(" ".join), st.lists(PIECES).map("".join))


@given(MESSAGES)
@settings(deadline=None)
def test_spans_lie_in_the_text_in_order_and_hold_the_statement(message: str) -> None:
    position = 0
    for statement in find_statements(message):
        assert position <= statement.start < statement.end <= len(message)
        assert message[statement.start : statement.end] == statement.text == statement.text.strip()
        assert 1 < len(statement.text) <= MAX_CHARS
        position = statement.end


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "I prefer ",
        "always ",
        "from to ",
        "“",
        '"x',
        "`",
        "if ",
        "，",
        "我",
        "以后",
        "not ",
        "we use a, ",
        "x.",
        "> ",
        "必ず",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """A message that is not refused for its length alone, of one piece over and over: at most 2 seconds."""
    message = piece * (MAX_TYPED_CHARS // len(piece))
    started = time.process_time()
    find_statements(message)
    assert time.process_time() - started < 2


def test_a_report_that_something_should_never_happen_is_no_rule():
    crash = "hm, i selected the theme while you were working and got a crash, that should never happen."
    assert find_statements(crash) == [] and find_statements("This should never happen.") == []
    assert [found.text for found in find_statements("Migrations should always be reversible.")] == [
        "Migrations should always be reversible."
    ]


@pytest.mark.parametrize("message, words", [
    ("Remember no force pushes on main.", "no force pushes on main."),
    ("Remember only Anna may approve releases", "only Anna may approve releases"),
    ("Keep in mind we deploy only on Mondays.", "we deploy only on Mondays."),
    ("记住我们用 pnpm", "我们用 pnpm"),
])  # fmt: skip
def test_what_is_remembered_keeps_the_words_that_turn_it(message, words):
    assert [statement.text for statement in find_statements(message)] == [words]


@pytest.mark.parametrize("message", [
    "never mind, it works now", "Never do that again", "whenever you are ready", "I prefer not to say",
    "we dropped the users table by accident", "note that this does not work yet", "This test must never have worked",
    "the build should always pass but it doesn't", "requests must always time out here for some reason",
])  # fmt: skip
def test_words_for_the_moment_are_no_rule(message):
    assert find_statements(message) == []
