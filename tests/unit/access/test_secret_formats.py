"""Random keys of every known format are masked: with a known seed, twenty of each, so that none rests on chance.

secret_formats.tsv holds the formats. `<b62:24>` stands for 24 random letters and digits. Between two `!`, or from one
`!` to the end, stands the secret part; without any, the whole text is the secret.
"""

from __future__ import annotations

import json
import os
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.access.redact import find_secrets, mask

N_KEYS = 20
MAX_FALSE_ALARMS = 1 / 10_000
ALPHABETS = {
    "b62": string.ascii_letters + string.digits,
    "web": string.ascii_letters + string.digits + "-_",
    "letters": string.ascii_letters,
    "caps": string.ascii_uppercase,
    "low": string.ascii_lowercase + string.digits,
    "b32": string.ascii_uppercase + "234567",
    "hex": "0123456789abcdef",
    "dig": string.digits,
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}
LINES = (Path(__file__).parent / "secret_formats.tsv").read_text().splitlines()[1:]
FORMATS = dict(line.split("\t") for line in LINES)
WORDS = ("Sommer", "harbour", "Kestrel", "tulipan", "Granit", "velvet")


def fill(template: str, choose: random.Random) -> str:
    """Return the template with random letters in place of `<alphabet:length>`, `<word>` and `<lowerword>`."""

    def draw(match: re.Match[str]) -> str:
        if match[1] == "word":
            return choose.choice(WORDS) + str(choose.randrange(1000, 9999)) + choose.choice(("", "x", "Q", "z7"))
        if match[1] == "lowerword":
            return "".join(choose.choices(string.ascii_lowercase, k=9))
        letters = choose.choices(ALPHABETS[match[1]], k=int(match[2]))
        return "".join(letters)

    return re.sub(r"<(\w+)(?::(\d+))?>", draw, template)


def generate(name: str) -> Iterator[tuple[str, str]]:
    """Yield twenty pairs of (text, the secret in it)."""
    choose = random.Random(name)
    for _ in range(N_KEYS):
        before, _, rest = fill("!" + FORMATS[name] if "!" not in FORMATS[name] else FORMATS[name], choose).partition(
            "!"
        )
        secret, _, after = rest.partition("!")
        yield before + secret + after, secret


def test_the_corpus_is_large_and_its_formats_differ() -> None:
    assert len(FORMATS) == len(LINES) >= 120


@pytest.mark.parametrize("name", FORMATS)
def test_every_random_key_of_a_format_is_masked(name: str) -> None:
    left = []
    for text, secret in generate(name):
        for around in ("{}", "before it\n{}\nafter it"):
            masked = mask(around.format(text))
            if secret in masked or "[secret:" not in masked or mask(masked) is not masked:
                left.append((text, masked))
    assert left == []


@pytest.mark.parametrize("name", ["gitlab without a digit", "english", "russian", "mysql", "docker login"])
def test_a_secret_is_masked_inside_json(name: str) -> None:
    for text, secret in generate(name):
        assert secret not in mask(json.dumps({"content": f"first\n{text}\nlast"}, ensure_ascii=False))


HARMLESS = [
    "The password is wrong, try again.",
    "the password is at least 8 characters",
    "the password is 12-16 characters long",
    "The password is stored in config/settings2.py",
    "password is hashed with sha256 and bcrypt-12",
    "the password is required2()",
    "Das Passwort ist falsch.",
    "Le mot de passe est obligatoire.",
    "La contraseña es incorrecta.",
    "Пароль неверный, повторите",
    "密码是必填项",
    "PIN 8080 is a port and GPIO PIN is high",
    "docker run -u 1000:1000 -p 8080:80 app",
    "mkdir -p build/output && ssh -p 2222 host",
    "psql -p 5432 and mysql -p",
    "curl -u $USER:$PASS https://host and curl -u ada: https://host",
    "src/main.py:5432:function:name and 10.0.0.1:5432",
    "Cookie: theme=dark; lang=de; session=",
    '"auth": "none" and "auth": true',
    "login with your password here, login first password later",
    "the private key is 0x",
    "TestPasswordIsWrongWithVeryLongNameAndNoDigits",
    "glpat-your-token-goes-here",
    "sk_live_xxxxxxxxxxxxxxxxxxxxxxxx",
    "client-certificate-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1J",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_talk_about_secrets_is_left_alone(text: str) -> None:
    assert mask(text) is text


def test_real_transcripts_raise_almost_no_false_alarm() -> None:
    """PERDURE_TRANSCRIPTS names a folder of real transcripts without secrets; they do not come with this repository."""
    folder = os.environ.get("PERDURE_TRANSCRIPTS")
    if not folder:
        pytest.skip("PERDURE_TRANSCRIPTS is not set: no real transcripts to read")
    lines = (line for path in Path(folder).rglob("*.jsonl") for line in path.read_text(errors="replace").splitlines())
    texts = {text for line in lines for text in list_texts(line)}
    alarms = [text for text in texts if find_secrets(text)]
    assert len(texts) > 10_000
    assert len(alarms) <= MAX_FALSE_ALARMS * len(texts)


def list_texts(line: str) -> Iterator[str]:
    """Yield the texts in a line of JSON; nothing of a line that is none."""
    try:
        waiting = [json.loads(line)]
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
