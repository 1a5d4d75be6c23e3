"""What a grantee sees of captured lines: a line for each line, JSON where JSON was, and no secret."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.access import grantee_view

KEY = "sk-ant-" + "api03-Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk"
SECRETS = [
    {"said": f"use {KEY}"}, {KEY: 1}, {"deep": [{"er": [KEY]}]}, {"password": "hunter2hunter2"},
    {"arguments": json.dumps({"password": "hunter2hunter2"})}, {"half": "\ud800", "said": f"x {KEY}"},
]  # fmt: skip


@pytest.mark.parametrize("line", SECRETS)
@pytest.mark.parametrize("escaped", [True, False])
def test_masked_json_holds_no_secret_and_stays_json(line, escaped):
    raw = json.dumps(line).replace("sk-ant", "\\u0073k-ant" if escaped else "sk-ant").encode() + b"\n"
    told = grantee_view.mask_lines(raw)
    assert KEY.encode() not in told and b"hunter2hunter2" not in told
    assert json.loads(told) is not None and KEY not in str(json.loads(told))


def test_invalid_json_is_masked_as_text():
    assert (
        grantee_view.mask_lines(b"password=hunter2hunter2\n\xff\n") == "password=[secret:password]\n\ufffd\n".encode()
    )


WORDS = 'my "dog"\\Rex'
NAMED = [
    {"password": [WORDS]}, {"db": {"passwd": {"value": WORDS, "n": [{"x": WORDS}]}}}, {"password": WORDS},
    {"name": "DB_PASSWORD", "value": WORDS}, {"argv": ["psql", "--password", WORDS]},
    {"h": [["x-api-key", WORDS + "1"]]},
    {"arguments": json.dumps({"arguments": json.dumps({"client_secret": [WORDS]})})}, {"accessToken": WORDS},
    [json.dumps({"said": KEY}).replace("sk-ant", "\\u0073k-ant")],
]  # fmt: skip


@pytest.mark.parametrize("line", NAMED)
def test_all_below_a_name_that_means_a_secret_is_withheld(line):
    told = grantee_view.mask_lines(json.dumps(line).encode())
    assert b"Rex" not in told and b"Zx8Qw3Er5Ty7Ui9" not in told and b"[secret:" in told
    assert grantee_view.mask_lines(told) == told


def test_other_fields_are_not_masked():
    line = {"compass": "north 1", "usage": {"max_tokens": 7}, "token_type": "x", "password": "", "l": ["--key", "a b1"]}
    assert json.loads(grantee_view.mask_lines(json.dumps(line).encode())) == line


ESCAPED = "".join(f"\\u{ord(char):04x}" for char in KEY)
UNREAD = [
    f'\ufeff{{"said":"{ESCAPED}"}}', f'{{"said":"{ESCAPED}",}}', f'{{"n":{"9" * 5000},"said":"{ESCAPED}"}}',
    f'{{"said":"{ESCAPED}","deep":{"[" * 5000}{"]" * 5000}}}', f'{{}}\r{{"said":"{ESCAPED}"}}',
    f'x "{ESCAPED}'.replace("\\", "\\\\"), f'{{"n":{"9" * 5000},"password":["{WORDS[:3]}"]}}',
]  # fmt: skip


@pytest.mark.parametrize("line", UNREAD, ids=range(len(UNREAD)))
def test_secret_behind_escapes_in_invalid_json_is_masked(line):
    told = grantee_view.mask_lines(line.encode())
    assert b"0073" not in told and b"my " not in told and KEY.encode() not in told
    assert b"masked" in told or b"[secret:" in told


def test_invalid_json_without_a_secret_is_unchanged():
    raw = b"caf\\u00e9 \\\\u \\ux {"
    assert grantee_view.mask_lines(raw) == raw
    assert grantee_view.mask_lines(b"\\u005c" + b"u005c" * 100_000) == grantee_view.WITHHELD_LINE


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "the tide", "锚 at \U0001f6a5", "a\nb"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "text", "n"]), inner, max_size=3)
    ),
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(st.lists(PLAIN, max_size=4))
def test_json_without_a_secret_is_unchanged(values):
    raw = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    told = grantee_view.mask_lines(raw)
    assert told.count(b"\n") == raw.count(b"\n")
    assert [json.loads(line) for line in told.splitlines()] == values
