"""A newer statement of the same thing meets the older one, in whatever language; of another thing it never does."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.memories import claim, path_for, same_subject, says_same
from perdure.memories.claims import MAX_CHARS
from perdure.memories.paths import checked

MODULES = ("chinese", "claims", "clauses", "division", "grammar", "relations", "values", "words")
REPLACES = """
My editor is vim. | I switched from vim to Helix.
I use vim. | I use Helix now.
I work at Acme. | I started a new job at Initech last week.
I work at Acme as a designer | I no longer work at Acme
My name is Bob Smith. | My name is now Bob Jones.
Our staging server runs on port 8080. | The staging server's port is 9090 now, not 8080.
The deadline is Friday. | The deadline moved to Monday.
The project deadline is March 3. | We pushed the deadline to March 10.
I live in Berlin. | I moved to Munich in May.
I drink coffee every morning. | I no longer drink coffee.
We use Postgres for orders. | We migrated the orders from Postgres to MySQL.
We use Postgres. | We've switched to MySQL.
We switched from Postgres to MySQL. | We moved back to Postgres.
The API runs on Python 3.11. | We upgraded the API to Python 3.13.
Mara told me her port is 8080. | Mara's port is 9090 now.
My dentist is Doctor Weller in Mill Lane. | My new dentist is Dr. Achterberg.
The billing service is called Ledger. | We renamed the billing service to Tally.
I'm a vegetarian. | I'm vegan now.
Bob is the tech lead. | Alice took over as tech lead from Bob.
Bob owns the payments module. | Alice now owns the payments module.
The standup is at 9:30. | The standup moved to 10:00.
I prefer tabs. | I prefer spaces over tabs.
Always use npm. | Use pnpm instead of npm from now on.
Always answer in English. | From now on answer in German.
We decided to go with React. | Let's go with Svelte instead of React.
The rent is 900 euros. | The rent went up to 1015 euros.
The API key rotates every 30 days | The API key rotates every 60 days.
My sister lives in Rome. | My sister moved to Paris.
My phone number is 555-1234. | My new phone number is 555-9876.
The default branch is master. | We renamed the default branch from master to main.
Our minimum Android version is 9. | We raised the minimum Android version to 11.
The timeout is 30 seconds. | We lowered the timeout to 12 seconds.
My favourite color is blue. | My favourite colour is green now.
I drive a Golf. | I sold the Golf, I drive a Tesla now.
Deploys go through Jenkins. | Deploys are done by Buildkite.
Ich arbeite bei Siemens. | Ich habe bei Bosch angefangen.
Ich wohne in Berlin. | Ich bin nach Hamburg gezogen.
Unser Staging-Server läuft auf Port 8080. | Der Port des Staging-Servers ist jetzt 9090.
Der Abgabetermin ist Freitag. | Der Abgabetermin wurde auf Montag verschoben.
Ich trinke Kaffee. | Ich trinke keinen Kaffee mehr.
Mein Editor ist vim. | Ich bin von vim zu Helix gewechselt.
Wir nutzen Postgres. | Wir sind von Postgres auf MySQL umgestiegen.
Je travaille chez Renault. | Je travaille maintenant chez Airbus.
J'habite à Lyon. | J'ai déménagé à Paris.
Le port du serveur de staging est 8080. | Le serveur de staging écoute désormais sur le port 9090.
La date limite est vendredi. | La date limite a été repoussée à lundi.
Je bois du café. | Je ne bois plus de café.
Mon éditeur est vim. | Je suis passé de vim à Helix.
Nous utilisons Jenkins. | Nous sommes passés de Jenkins à GitLab CI.
Trabajo en Telefónica. | Ahora trabajo en Repsol.
Vivo en Madrid. | Me mudé a Valencia.
El puerto del servidor de staging es 8080. | El servidor de staging ahora escucha en el puerto 9090.
La fecha límite es el viernes. | La fecha límite pasó al lunes.
Bebo café. | Ya no bebo café.
Mi editor es vim. | Cambié de vim a Helix.
Usamos Postgres. | Hemos migrado de Postgres a MySQL.
测试服务器的端口是8080。 | 测试服务器的端口改成9090了。
我住在北京。 | 我搬到上海了。
我在腾讯工作。 | 我现在在阿里工作。
我喝咖啡。 | 我不喝咖啡了。
我们用Jenkins。 | 我们从Jenkins换成了GitLab CI。
截止日期是周五。 | 截止日期推迟到周一了。
Lavoro per Fiat. | Ora lavoro per Ferrari.
La scadenza è venerdì. | La scadenza è stata spostata a lunedì.
Moro em Lisboa. | Me mudei para o Porto.
O prazo é sexta-feira. | O prazo mudou para segunda-feira.
Mein Arbeitgeber ist Siemens. | I work at Bosch now.
The staging server listens on port 8417. | Der Port des Staging-Servers ist jetzt 9090.
"""
STANDS_BESIDE = """
The staging server listens on port 8080. | The production server listens on port 9090.
The staging db runs on MySQL. | The staging server runs on Postgres.
Mara works at Acme. | Mona works at Initech.
Mara's port is 8080. | Mona's port is 9090.
I drink coffee. | I no longer drink tea.
I like hiking. | I like chess.
I like hiking. | I also like chess.
We use Kafka. | We also use RabbitMQ.
We use Postgres for orders. | We use MySQL for reports.
My sister lives in Rome. | My brother lives in Paris.
My sister lives in Rome. | I moved to Paris.
I work at Acme. | Mara started at Initech.
The deadline for the audit is Friday. | The deadline for the demo is Monday.
The request timeout of the gateway is 30 seconds. | The nightly export job has a timeout of 45 minutes.
The metrics exporter listens on port 9102. | Staging moved to port 8642.
Backups are kept for 14 days. | Log files are kept for 7 days.
My favourite colour is blue. | My favourite food is ramen.
I'm allergic to nuts. | I'm allergic to pollen.
My phone number is 555-1234. | Mara's phone number is 555-9876.
My editor is vim. | My browser is Firefox.
Ich wohne in Berlin. | Mara wohnt in Hamburg.
Ich mag Tee. | Ich mag keinen Kaffee.
Je travaille chez Renault. | Mara travaille chez Airbus.
Vivo en Madrid. | Mara vive en Sevilla.
测试服务器的端口是8080。 | 生产服务器的端口是9090。
我喝咖啡。 | 我不喝茶了。
"""
PATHS = """
Our staging server runs on port 8080. | staging-server/port
The port of the staging server is 8080. | staging-server/port
The staging server's port is 9090 now. | staging-server/port
Der Port unseres Staging-Servers ist 8080. | staging-server/port
Le port du serveur de staging est 8080. | staging-server/port
My editor is Helix. | user/preferences/editor
I prefer dark mode. | user/preferences/theme
Answer in German. | user/preferences/language
I work at Acme. | user/employer
Trabajo en Acme. | user/employer
我在腾讯工作。 | user/employer
My name is Ada. | user/name
Call me Ada. | user/name
I live in Leeds. | user/home
I drink coffee. | user/likes/coffee
I no longer drink coffee. | user/likes/coffee
Ich trinke keinen Kaffee mehr. | user/likes/coffee
Ya no bebo café. | user/likes/coffee
我不喝咖啡了。 | user/likes/coffee
Mara is a nurse. | mara/job
I learned that Mara works at Initech. | mara/employer
Mara told me her port is 8080. | mara/port
The user prefers dark mode. | user/preferences/theme
The deadline moved to Friday. | project/deadline
"""
NO_CLAIM = """
What port does staging use?
Is my name Ada?
If I moved to Leeds, it would be quieter.
It is on port 80.
This is fine.
Thanks!
The invoices endpoint may be called.
"""


def _pairs(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.strip().split("\n")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(import_module(f"perdure.memories.{name}")).failed == 0


@pytest.mark.parametrize(("before", "after"), _pairs(REPLACES))
def test_a_newer_statement_takes_the_place_of_the_older(before: str, after: str) -> None:
    old, new = claim(before), claim(after)
    assert old and new and same_subject(new, old), (old, new)


@pytest.mark.parametrize(("one", "other"), _pairs(STANDS_BESIDE))
def test_what_is_about_something_else_stands_beside_it(one: str, other: str) -> None:
    a, b = claim(one), claim(other)
    assert not (a and b) or not (same_subject(a, b) or same_subject(b, a)), (a, b)
    assert path_for(one, "fact") != path_for(other, "fact")


@pytest.mark.parametrize(("text", "path"), _pairs(PATHS))
def test_a_path_says_of_what_and_which(text: str, path: str) -> None:
    read = claim(text)
    assert read and read.path == path == path_for(text, "fact")


@pytest.mark.parametrize("text", NO_CLAIM.strip().split("\n"))
def test_where_the_rules_cannot_tell_there_is_no_claim(text: str) -> None:
    assert claim(text) is None


def test_a_claim_holds_what_was_said() -> None:
    read = claim("The port of the staging server is 9090, not 8080.")
    assert read and (read.value, read.old_value, read.negated, read.single) == ("9090", "8080", False, True)
    gone = claim("I no longer drink coffee.")
    assert gone and (gone.value, gone.negated, gone.single) == ("coffee", True, False)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("My editor is Helix.", "I use Helix as my editor.", True),
        ("I work at Acme.", "Ich arbeite bei Acme.", True),
        ("The port is 8080.", "The port is 8081.", False),
        ("I drink coffee.", "I don't drink coffee.", False),
        ("Mara lives in Rome.", "Mona lives in Rome.", False),
        ("What a day!", "what a day", True),
        ("Deploy on Mondays", "Deploy on Fridays", False),
    ],
)
def test_a_restatement_is_told_from_a_change(one: str, other: str, same: bool) -> None:
    assert says_same(one, other) is same is says_same(other, one)


def test_without_a_claim_the_path_is_its_own_and_stable() -> None:
    one = path_for("Quite a day, all in all!", "event")
    assert one == path_for("quite  a day, all in all!", "event") != path_for("Quite a night, all in all!", "event")
    assert one.startswith("stated/event/quite-a-day-")


@given(st.text(max_size=MAX_CHARS + 50))
@settings(deadline=None)
def test_any_text_has_a_path_that_may_be_one(text: str) -> None:
    assert checked(path_for(text, "fact"))
    assert says_same(text, text) or claim(text) is None


WORDS = st.sampled_from([w for line in (REPLACES + STANDS_BESIDE).split("\n") for w in line.split()] or ["x"])


@given(st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=25).map(" ".join))
@settings(deadline=None)
def test_shuffled_words_break_nothing(one: str, other: str) -> None:
    a, b = claim(one), claim(other)
    assert checked(path_for(one, "fact")) and isinstance(says_same(one, other), bool)
    assert a is None or b is None or isinstance(same_subject(a, b), bool)
    assert a is None or (a.entity and a.attribute and a.value)
