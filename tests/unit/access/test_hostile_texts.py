"""No text is slow: ten times the text takes at most some twelve times as long, in every function that reads strangers'
words.

A pattern is repeated to 20 kB and to 200 kB. What a loaded machine does to short times is kept out by a floor, by the
best of several runs and by asking again: a core may be shared just while the long text is read. A quadratic function
takes a hundred times as long, each time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from perdure import text as text_module
from perdure.access.fence import defuse_item
from perdure.access.redact import mask
from perdure.access.scan import scan
from perdure.capture.lines import Line
from perdure.formats import messages
from perdure.memories.explicit import find_statements
from perdure.recall.plan import plan
from perdure.surfaces.web.render import render_markdown

SHORT_CHARS, LONG_CHARS = 20_000, 200_000
MAX_RATIO = 12
FLOOR_S = 0.3  # what the long text may take in any case
N_RUNS = 3
N_TRIES = 6
NOW = datetime(2026, 1, 15, tzinfo=UTC)

REPEATED = """
password= token: api_key:_ password="aaaaaaaaaa secret=" key\\ ://a: ://a:b@ [secret:jwt] Authorization:_Bearer_
sk- sk-sk- ghp_ glpat- xoxb- AKIA eyJ eyJabcdefgh1. LS0tLS1CRUdJTi -----BEGIN_PRIVATE_KEY----- 1234567890: aB3xY9.
curl_-u_a: mysql_-p sshpass_-p_ cookie:a= cookie: Cookie:_a=b;_ password_is_ password_for_ PIN_is_ private_key:_0x
mot_de_passe_ contraseña_es_ Passwort_für_ пароль_ 密码是 login_a_password_ machine_a_login_ *:*: "auth":" --password_
[ ] [[ []( ![]( ** *a_ __ ` ``` > - 1._ a)_ # | |- <a <!-- &amp; &# [a]: [perdure-recall perdure-recall_ perdure_ [2026-
0123456789abcdef [a_0123456789abcdef_ begins] undated <system> </ {{ }} {"a": \\u \\" ' " “ « 「 ( ) ; , . .._ ? !
… a.b. a/b/ 2024-01- 2024-01-01_ yesterday_ next_week_ at_5_ in_3_days_ I_ I_am_ I_like_ my_name_is_ we_use_ ignore_
ignore_all_
ignore_the_previous_instructions_ you_are_now_ A Aa aA A_ A.B. Ada_Lovelace_ @a @a.b #1 ABC-1 aB_ é é ﬁ 数 数据。 ก
ที่ 한 ア ｱ 🏴 👨‍ а б-
""".split()
LITERAL = (
    "\n",
    "\t\n",
    "\r\n",
    "\u2028",
    "\x85",
    " ",
    "\u200b",
    "p\u200b",
    "\u0301",
    "\x1b[",
    "\x1b]",
    "\ud800",
    "\0",
    "\\",
)
PATTERNS = [word.replace("_", " ") if "_" in word[1:] else word for word in REPEATED] + list(LITERAL)


def parse_messages(text: str) -> object:
    raw = json.dumps({"role": "user", "content": text}).encode()
    return messages.parse([Line(0, raw)])


READERS: dict[str, Callable[[str], object]] = {
    "redact": mask,
    "fence": lambda text: defuse_item("head\n" + text),
    "scan": scan,
    "statements": find_statements,
    "parse": parse_messages,
    "index terms": text_module.index_terms,
    "names": text_module.entities,
    "chunks": text_module.split,
    "query": text_module.query_terms,
    "plan": lambda text: plan(text, now=NOW),
    "markdown": render_markdown,
}


def measure(read: Callable[[str], object], text: str, enough_s: float) -> float:
    """Return the processor time of the best run, in seconds; one run is enough when it is as short as that."""
    best_s = float("inf")
    for _ in range(N_RUNS):
        started_s = time.process_time()
        read(text)
        best_s = min(best_s, time.process_time() - started_s)
        if best_s <= enough_s:
            break
    return best_s


def test_the_corpus_is_large() -> None:
    assert len(set(PATTERNS)) >= 100


def is_slow(read: Callable[[str], object], pattern: str) -> bool:
    short, long = (pattern * (n_chars // len(pattern)) for n_chars in (SHORT_CHARS, LONG_CHARS))

    def exceeds() -> bool:
        limit_s = max(MAX_RATIO * measure(read, short, FLOOR_S / MAX_RATIO), FLOOR_S)
        return measure(read, long, limit_s) > limit_s

    return all(exceeds() for _ in range(N_TRIES))


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_ten_times_the_text_takes_ten_times_as_long(reader: str) -> None:
    read = READERS[reader]
    assert [pattern for pattern in PATTERNS if is_slow(read, pattern)] == []
