"""What a grantee sees of captured lines: a line for each line, JSON where JSON was, and no secret."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.access import masked

KEY = "sk-ant-" + "api03-Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk"
SECRETS = [
    {"said": f"use {KEY}"}, {KEY: 1}, {"deep": [{"er": [KEY]}]}, {"password": "hunter2hunter2"},
    {"arguments": json.dumps({"password": "hunter2hunter2"})}, {"half": "\ud800", "said": f"x {KEY}"},
]  # fmt: skip


@pytest.mark.parametrize("line", SECRETS)
@pytest.mark.parametrize("escaped", [True, False])
def test_no_secret_is_left_and_json_stays_json(line, escaped):
    raw = json.dumps(line).replace("sk-ant", "\\u0073k-ant" if escaped else "sk-ant").encode() + b"\n"
    told = masked.lines(raw)
    assert KEY.encode() not in told and b"hunter2hunter2" not in told
    assert json.loads(told) is not None and KEY not in str(json.loads(told))


def test_what_is_no_json_is_masked_as_text():
    assert masked.lines(b"password=hunter2hunter2\n\xff\n") == "password=[secret:password]\n\ufffd\n".encode()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "the tide", "锚 at \U0001f6a5", "a\nb"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "text", "n"]), inner, max_size=3)
    ),
)


@given(st.lists(PLAIN, max_size=4))
def test_what_holds_no_secret_says_the_same(values):
    raw = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    told = masked.lines(raw)
    assert told.count(b"\n") == raw.count(b"\n")
    assert [json.loads(line) for line in told.splitlines()] == values
