"""A newer statement takes the place of an older one where it says so, or differs in one value; else both stand."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.archive.memory_events import check_path
from perdure.memories import subject
from perdure.memories.subject import MAX_CHARS, path_for, replaces, says_same

REPLACES = """
My editor is vim. | My editor is Helix.
My manager is Raj | my new manager is Mei
I prefer tabs. | I prefer spaces over tabs.
We use npm. | We use pnpm instead of npm.
Always use npm. | From now on use pnpm instead of npm.
we use npm as the package manager here | the package manager is pnpm, not npm
The staging server listens on port 8080. | The staging server listens on port 9090 now.
auth-service listens on port 8080 | we moved auth-service to port 8081
The timeout of the mailer is 30 seconds. | The timeout of the mailer is 12 seconds.
Mara works at Acme. | Mara works at Initech, not Acme
I drink coffee every morning. | I no longer drink coffee.
please always use yarn to install packages | from now on use pnpm to install packages
We use Postgres for orders. | We migrated the orders from Postgres to MySQL.
The deadline is Friday. | The deadline moved to Monday.
Mein Editor ist vim. | Mein Editor ist jetzt Helix.
Ich trinke Kaffee. | Ich trinke keinen Kaffee mehr.
wir benutzen npm | wir benutzen pnpm statt npm
Mon éditeur est vim. | Mon éditeur est maintenant Helix.
Je bois du café. | Je ne bois plus de café.
Mi editor es vim. | Mi editor ahora es Helix.
Usamos Jenkins. | Usamos Buildkite en vez de Jenkins.
我的编辑器是 vim | 我的编辑器是 Helix，不是 vim
我喝咖啡。 | 我不喝咖啡了。
"""
STANDS_BESIDE = """
I like hiking. | I like chess.
I like hiking. | I also like chess.
I prefer tabs. | I prefer short answers.
We use Kafka. | We also use RabbitMQ.
use vitest for unit tests | use playwright for end-to-end tests
The docs are hosted on Fly | the demo is hosted on Render
Mara is on my team | Jonas is on my team
my colleague Mara knows kubernetes | my colleague Jonas knows kubernetes too
The staging server listens on port 8080. | The production server listens on port 9090.
The production server is on port 8080. | The staging server is on port 9001, not 8080.
I drink coffee. | I no longer drink tea.
My sister lives in Berlin. | I moved from Berlin to Munich.
My editor is vim. | Our editor is Helix.
My editor is vim. | My browser is Firefox.
The build is red. | The build is in Jenkins.
Ticket 12 is blocked. | Ticket 13 is blocked.
always write tests | from now on write docs
The request timeout of the gateway is 30 seconds. | The nightly export job has a timeout of 45 minutes.
The metrics exporter listens on port 9102. | Staging moved to port 8642.
I'm allergic to nuts. | I'm allergic to pollen.
Ich mag Tee. | Ich mag keinen Kaffee.
我喝咖啡。 | 我不喝茶了。
"""


def pairs(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.strip().split("\n")]


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(subject).failed == 0


@pytest.mark.parametrize(("older", "newer"), pairs(REPLACES))
def test_newer_statement_takes_the_place_of_the_older(older: str, newer: str) -> None:
    assert replaces(newer, older) or path_for(newer, "fact") == path_for(older, "fact")
    assert not says_same(newer, older)


@pytest.mark.parametrize(("older", "newer"), pairs(STANDS_BESIDE))
def test_statements_of_two_things_stand_beside_each_other(older: str, newer: str) -> None:
    assert not replaces(newer, older)
    assert path_for(newer, "fact") != path_for(older, "fact")


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        ("I prefer dark mode.", "i prefer  dark mode", True),
        ("The releases go out on Thursdays", "releases go out on Thursdays.", True),
        ("Before you push, run the tests", "Run the tests before you push", True),
        ("Port is 80", "Port is 81", False),
        ("pnpm, not npm", "npm, not pnpm", False),
        ("Tom reports to Mara", "Mara reports to Tom", False),
        ("My editor is vim", "Our editor is vim", False),
        ("Always squash commits", "Never squash commits", False),
        ("!!", "!!", True),
        ("!!", "??", False),
    ],
)
def test_same_words_in_the_same_order_say_the_same(a: str, b: str, is_same: bool) -> None:
    assert says_same(a, b) == says_same(b, a) == is_same


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("My editor is Helix.", "user/editor"),
        ("Mein Editor ist Helix", "user/editor"),
        ("Our staging database is Postgres", "project/staging-database"),
        ("I prefer tabs over spaces", "user/prefer-tabs-over-spaces"),
        ("We use uv, not pip", "project/use-uv-not-pip"),
        ("Quite a day!", "event/quite-day"),
        ("!!", "event/text-233d26"),
    ],
)
def test_path_is_readable(text: str, path: str) -> None:
    assert path_for(text, "event") == path


@given(st.text(max_size=MAX_CHARS), st.text(max_size=80))
def test_any_text_has_a_path_that_can_be_kept(text: str, other: str) -> None:
    path = path_for(text, "fact")
    assert check_path(path) == path == path_for(text, "fact")
    assert says_same(text, text)
    replaces(text, other)


def test_long_statement_with_the_same_beginning_has_its_own_path() -> None:
    texts = [f"always run the linter and the type checker before you {verb} to main" for verb in ("push", "commit")]
    assert path_for(texts[0], "procedure") != path_for(texts[1], "procedure")
