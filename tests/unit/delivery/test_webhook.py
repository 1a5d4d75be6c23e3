"""The signature of a webhook, and the addresses that it may have."""

import base64
import re
import time
from pathlib import Path

import pytest

from perdure.delivery.http_request import is_loopback, parse_url
from perdure.delivery.webhook import read_key, read_secret, sign
from perdure.errors import ConfigFault

PAGE = Path(__file__).parents[3] / "docs" / "delivery.md"


def test_the_snippet_of_the_page_verifies_a_signature() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    exec(block, scope)
    verify = scope["verify"]
    body, key, now_s = b'{"text": "x"}', b"0123456789abcdef", int(time.time())
    headers = sign(body, "a1", now_s, key)
    assert verify(headers, body, key) == "a1"  # type: ignore[operator]
    for bad_headers, bad_body, bad_key in (
        (headers, body + b" ", key), (headers, body, key[:-1] + b"x"), (sign(body, "a1", now_s - 1000, key), body, key),
        ({**headers, "webhook-id": "a2"}, body, key), ({**headers, "webhook-timestamp": str(now_s + 1)}, body, key),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            verify(bad_headers, bad_body, bad_key)  # type: ignore[operator]


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification (github.com/standard-webhooks/standard-webhooks, its libraries' tests)."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = sign(b'{"test": 2432232314}', "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, key)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(("url", "is_right"), [
    ("https://example.org/x?y=1", True), ("http://127.0.0.1:9/x", True), ("http://localhost/x", True),
    ("http://example.org/x", False), ("http://127.0.0.1.example.org/x", False), ("http://127.1.evil/", False),
    ("ftp://example.org", False), ("https://ada:secret@example.org", False), ("https://", False),
    ("https://example.org/a b", False), ("https://example.org:99999/", False), ("http://[::1]:8/x", True),
    ("file:///etc/passwd", False), ("http://2130706433/", False), ("http://0x7f.1/", False),
])  # fmt: skip
def test_only_encrypted_addresses_or_this_machine(url: str, is_right: bool) -> None:
    if is_right:
        parse_url(url, setting="delivery.a", plain=False)
        return
    with pytest.raises(ConfigFault, match=r"delivery\.a\.url"):
        parse_url(url, setting="delivery.a", plain=False)


def test_plain_allows_a_private_network() -> None:
    assert parse_url("http://10.0.0.7/x", setting="delivery.a", plain=True).hostname == "10.0.0.7"
    assert not is_loopback("10.0.0.7")


def test_a_secret_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigFault, match="no PERDURE_X"):
        read_secret("PERDURE_X", "delivery.a.token_env")
    for value in ("two words", "line\nbreak", "ünïcode", "short", "whsec_!!!"):
        monkeypatch.setenv("PERDURE_X", value)
        with pytest.raises(ConfigFault) as caught:
            read_key("PERDURE_X", "delivery.a")
        assert value not in str(caught.value)
    monkeypatch.setenv("PERDURE_X", "whsec_" + base64.b64encode(b"k" * 24).decode())
    assert read_key("PERDURE_X", "delivery.a") == b"k" * 24
