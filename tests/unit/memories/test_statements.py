"""Plain statements are found, everything else is left alone; spans are exact; the time is linear."""

from __future__ import annotations

import doctest
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.memories.grammar import sentences, statements
from perdure.memories.grammar.sentences import MAX_CHARS
from perdure.memories.grammar.statements import MAX_TYPED_CHARS, stated

STATED = """
preference en | I prefer short answers without bullet points.
preference en | I really can't stand trailing commas in JSON.
preference en | Always run the formatter before you commit.
preference en | Never push directly to main.
preference en | From now on, answer me in German.
preference en | Please always use type hints in new code.
preference en | Use pnpm, not npm.
preference en | Use Postgres instead of SQLite for tests.
preference en | Whenever you write SQL, use lower-case keywords.
fact en | I'm vegan and I love hiking.
decision en | We decided to drop support for Python 3.9.
decision en | Let's go with FastAPI for the gateway.
decision en | We've agreed on two-week sprints.
fact en | My name is Tobias Renner.
fact en | I work at Northwind as a data engineer.
fact en | I'm a paediatric nurse.
fact en | I live in Porto these days.
fact en | Our staging server runs on port 8080.
fact en | The deadline moved to Friday.
fact en | Mara is our new tech lead.
fact en | We renamed the billing service to Ledger.
fact en | The API uses version 2.4 now.
preference en | I no longer drink coffee.
procedure en | API responses should always use {code, data, message} format
procedure en | SQL migrations must never drop a column
preference en | For the database use SQLite with WAL mode.
fact en | I don't work at Acme anymore.
fact en | I have two kids and a dog.
fact en | My daughter's birthday is on the 4th of May.
procedure en | To deploy, run make release and then tag the commit.
procedure en | To roll back, you have to run kubectl rollout undo.
event en | Yesterday we launched the new pricing page.
event en | I got married last month.
preference de | Ich bevorzuge kurze Antworten.
preference de | Antworte mir bitte immer auf Deutsch.
preference de | Ab jetzt keine Emojis mehr.
decision de | Wir haben uns für Postgres entschieden.
fact de | Ich arbeite seit März bei Siemens.
fact de | Mein Name ist Jonas Weber.
fact de | Unser Staging-Server läuft auf Port 8080.
fact de | Der Abgabetermin wurde auf Montag verschoben.
preference de | Ich trinke keinen Kaffee mehr.
preference fr | Je préfère les réponses courtes.
preference fr | Désormais, réponds en français.
decision fr | On a décidé d'utiliser Redis.
fact fr | Je travaille chez Airbus depuis mars.
fact fr | Je m'appelle Claire Dubois.
fact fr | Le port du serveur de staging est 9090.
preference fr | Je ne bois plus de café.
preference es | Prefiero las respuestas cortas.
preference es | A partir de ahora responde en español.
decision es | Hemos decidido usar Postgres.
fact es | Trabajo en Telefónica desde marzo.
fact es | Me llamo Lucía Ortega.
fact es | La fecha límite pasó al lunes.
fact it | Lavoro per Ferrari da marzo.
fact it | La scadenza è stata spostata a lunedì.
fact pt | Trabalho na Embraer como engenheiro.
preference pt | Prefiro respostas curtas.
preference zh | 我更喜欢简短的回答。
preference zh | 以后请用中文回答。
decision zh | 我们决定用Postgres。
fact zh | 我在腾讯工作。
fact zh | 测试服务器的端口改成9090了。
"""
NOT_STATED = r"""
TODO fix the parser of the config
SELECT name FROM users
For this test use SQLite in memory
For example use Redis
What port does the staging server use?
Should we move the API to port 9090?
Could you use tabs instead of spaces here?
If we moved to Postgres, would the tests still pass?
Maybe we should go with FastAPI.
I think the deadline is Friday.
I'd like to add a button to the settings page.
I want you to fix the failing test.
Fix the test in test_auth.py.
Add a button that opens the settings.
Run the linter on src only.
Please make this function shorter.
Use flexbox for this component.
I like this approach.
I like your second suggestion.
I love it!
That looks good, ship it.
The test is failing again.
The build is red.
The error says "port 8080 is already in use by another process".
He wrote: "We decided to move everything to Hetzner by the summer".
> My name is Bob and I work at Acme.
```\nmy name is Bob\n```
    my_editor = "vim"
2024-05-01 10:00:00 INFO our server runs on port 8080
ERROR: The deadline is Friday.
Traceback (most recent call last):
  File "app.py", line 3, in <module>
ValueError: the port is 8080
at Object.main (server.js:10:3)
const editor = "vim";
port: 8080,
Suppose my name is Bob.
For example, I live in Berlin.
Imagine we use Kafka.
I wonder whether Mara works at Acme.
I'm trying to deploy to port 9090.
Wie heißt der Server?
Sollen wir auf Postgres umsteigen?
Vielleicht nehmen wir Redis.
Wenn wir nach Berlin ziehen, wird es teurer.
Füge einen Test hinzu.
Pourquoi le build échoue ?
Ajoute un test pour les entrées vides.
Peut-être qu'on devrait utiliser Redis.
¿Por qué falla el build?
Añade un test para entradas vacías.
Si vivo en Madrid, ¿cuánto pago?
为什么构建失败了?
如果我们用Kafka会怎么样
帮我改一下这个函数
"""


def _rows(table: str) -> list[tuple[str, str, str]]:
    heads = (line.split(" | ", 1) for line in table.strip().split("\n"))
    return [(*head.split(), text) for head, text in heads]  # type: ignore[misc]


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(statements).failed == doctest.testmod(sentences).failed == 0


@pytest.mark.parametrize(("kind", "language", "text"), _rows(STATED))
def test_a_statement_is_found_whole(kind: str, language: str, text: str) -> None:
    assert [(s.kind, s.language, s.text) for s in stated(text)] == [(kind, language, text)]


@pytest.mark.parametrize("text", [line.replace("\\n", "\n") for line in NOT_STATED.strip("\n").split("\n")])
def test_other_sentences_are_left_alone(text: str) -> None:
    assert stated(text) == []


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("btw my editor is Helix, can you update the config", ["my editor is Helix"]),
        ("ok so we use uv as the package manager. Why is CI slow?", ["we use uv as the package manager."]),
        ("Thanks! I live in Utrecht. Now fix the parser bug.", ["I live in Utrecht."]),
        ("I prefer tea, do you know a good shop?", ["I prefer tea"]),
        ("- Always use tabs in Go code.\n- never log secrets\n", ["Always use tabs in Go code."]),
        ("We use tabs in Go code.\n\nNever log secrets.\n\nFix it.", ["We use tabs in Go code.", "Never log secrets."]),
        ("see below\n> I work at Acme\nI work at Initech", []),
        ("übrigens, mein Editor ist Helix, kannst du die Doku anpassen", ["mein Editor ist Helix"]),
        ("对了,我的编辑器是 Helix,帮我改一下配置", ["我的编辑器是 Helix"]),
    ],
)
def test_only_the_statement_in_a_message_is_taken(message: str, found: list[str]) -> None:
    assert [s.text for s in stated(message)] == found


def test_a_document_is_not_something_typed() -> None:
    plan = "# Plan\n\nWe decided to use Kafka.\n\n## Steps\n\nI work at Acme.\n\n## Risks\n\nMy name is Bob.\n"
    assert stated(plan) == [] and stated("I work at Acme.\n" * (MAX_TYPED_CHARS // 16 + 1)) == []


PIECES = st.sampled_from(
    "I|we|my|our|always|never|use|not|instead of|prefer|from|to|port|8080|is|are|was|the|of|Mara's|now|no longer|and|"
    'but|, |. |? |! |: |\n|> |```|`|"|“|”|- |if|ich|wir|mein|ist|nicht|je|ne|pas|le|el|ya no|我|不|了|是|端口|。|，|'
    "'s|'m|don't|can't|\u202e|\x00|\ud800|🇩🇪|e\u0301|(|)|—|…|%|$5|3.|Dr.|2024-01-01".split("|")
)
MESSAGES = st.one_of(st.text(max_size=400), st.lists(PIECES, max_size=60).map(" ".join), st.lists(PIECES).map("".join))


@given(MESSAGES)
@settings(deadline=None)
def test_spans_lie_in_the_text_in_order_and_hold_the_statement(message: str) -> None:
    at = 0
    for found in stated(message):
        assert at <= found.start < found.end <= len(message)
        assert message[found.start : found.end] == found.text == found.text.strip()
        assert 1 < len(found.text) <= MAX_CHARS
        at = found.end


@given(st.one_of(MESSAGES, st.lists(st.sampled_from([t for _, _, t in _rows(STATED)])).map(" ".join)))
@settings(deadline=None)
def test_a_statement_is_found_again_in_itself(message: str) -> None:
    for found in stated(message):
        assert [s.text for s in stated(found.text)] == [found.text]


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "I prefer ",
        "my ",
        "from to ",
        "“",
        '"x',
        "`",
        "if ",
        "，",
        "我",
        "not ",
        "I use a, ",
        "x.",
        "> ",
        "the of ",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """A message that is not refused for its length alone, of one piece over and over: at most 1 second (0.2 here)."""
    message = piece * (MAX_TYPED_CHARS // len(piece))
    started = time.process_time()
    stated(message)
    assert time.process_time() - started < 1


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
}


@pytest.mark.parametrize("said", ["I live in Evilville.", "We moved staging to port 6664.", "I prefer evil tabs."])
@pytest.mark.parametrize("shape", PASTED)
def test_pasted_words_are_no_statement_of_the_person(shape: str, said: str) -> None:
    assert stated(said), "by itself it is one"
    assert stated(PASTED[shape].format(said)) == []


def test_own_words_before_pasted_ones_count() -> None:
    message = "We moved staging to port 7000.\n\nHere is the mail:\n\nWe moved staging to port 6664."
    assert [statement.text for statement in stated(message)] == ["We moved staging to port 7000."]
