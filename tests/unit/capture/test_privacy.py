"""The switches that are asked before a byte is copied. Doubt never captures."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from perdure.capture import policy
from perdure.capture.policy import CapturePause

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_pause_until_and_resume(tmp_path):
    assert policy.read_pause(tmp_path, AT) is None
    policy.pause_capture(tmp_path, CapturePause(AT, AT + timedelta(hours=1), "lunch"))
    assert policy.read_pause(tmp_path, AT) == CapturePause(AT, AT + timedelta(hours=1), "lunch")
    assert policy.read_pause(tmp_path, AT + timedelta(hours=1)) is None
    policy.pause_capture(tmp_path, CapturePause(AT, None))
    assert policy.read_pause(tmp_path, AT + timedelta(days=9999)) is not None
    assert policy.resume_capture(tmp_path) and not policy.resume_capture(tmp_path)
    assert policy.read_pause(tmp_path, AT) is None


@pytest.mark.parametrize(
    "junk",
    [b"", b"\xff", b"null", b"[]", b'"x"', b"{}", b'{"until_at": 5, "since_at": "x"}',
     b'{"since_at": "2026-01-01T00:00:00", "until_at": "2020-01-01T00:00:00"}'],
)  # fmt: skip
def test_a_switch_that_cannot_be_read_is_on(tmp_path, junk):
    (tmp_path / "paused").write_bytes(junk)
    assert policy.read_pause(tmp_path, AT) is not None


@pytest.mark.parametrize(
    ("cwd", "pattern"),
    [
        ("/home/a/secret", "/home/a/secret"),
        ("/home/a/secret/deep/er", "/home/a/secret"),
        ("/home/a/secret", "/home/a/secret/"),
        ("/home/a/secret/x", "/home/a/secret/**"),
        ("/home/a/secret/x", "~/secret"),
        ("/home/a/clients/acme/src", "~/clients/*"),
        ("/home/a/open/../secret/x", "/home/a/secret"),
        ("/home/a//secret/./x", "/home/a/secret"),
    ],
)
def test_excluded(cwd, pattern, tmp_path):
    assert policy.find_excluding_pattern(cwd, None, (pattern,), policy.Path("/home/a")) == pattern
    assert policy.find_excluding_pattern(None, cwd, ("/elsewhere", pattern), policy.Path("/home/a")) == pattern


@pytest.mark.parametrize(
    ("cwd", "pattern"), [("/home/a/secrets", "/home/a/secret"), ("/x/home/a/secret", "/home/a/secret"), ("/", "/x")]
)
def test_not_excluded(cwd, pattern):
    assert policy.find_excluding_pattern(cwd, None, (pattern,), policy.Path("/home/a")) is None


def test_a_link_into_an_excluded_folder_is_excluded(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "door").symlink_to(tmp_path / "secret")
    assert policy.find_excluding_pattern(str(tmp_path / "door" / "x"), None, (str(tmp_path / "secret"),), tmp_path)
    assert policy.find_excluding_pattern(str(tmp_path / "secret" / "x"), None, (str(tmp_path / "door"),), tmp_path)


def test_off_record(tmp_path):
    assert not policy.is_incognito(tmp_path, "ada", "codex", "s1")
    policy.mark_incognito(tmp_path, "ada", "codex", "s1")
    policy.mark_incognito(tmp_path, "ada", "codex", "s1")
    policy.mark_incognito(tmp_path, "ada", "codex", "s2")
    assert policy.is_incognito(tmp_path, "ada", "codex", "s1") and policy.is_incognito(tmp_path, "ada", "codex", "s2")
    assert not policy.is_incognito(tmp_path, "ada", "pi", "s1")
    listed = (tmp_path / "incognito").read_bytes()
    assert len(listed.splitlines()) == 3 and b"s1" not in listed


def test_off_record_is_a_matter_of_one_user(tmp_path):
    policy.mark_incognito(tmp_path, "ada", "codex", "s1")
    policy.mark_incognito(tmp_path, "bob", "codex", "s2")
    assert not policy.is_incognito(tmp_path, "bob", "codex", "s1")
    assert policy.is_incognito(tmp_path, "bob", "codex", "s2")
    key, _, bob = (tmp_path / "incognito").read_bytes().splitlines(keepends=True)
    assert policy.read_incognito_list(tmp_path, "bob", is_own=False) == key + bob
    assert policy.read_incognito_list(tmp_path / "none", "bob", is_own=True) == b""


def test_off_record_of_earlier_versions(tmp_path):
    """Such a line names nobody: it concerns everybody, and goes with the home's own user."""
    key = b"0123456789abcdef0123456789abcdef"
    old = hashlib.blake2b(b"codex\0s1", key=key, digest_size=16).hexdigest().encode()
    (tmp_path / "incognito").write_bytes(key + b"\n" + old + b"\n")
    assert policy.is_incognito(tmp_path, "ada", "codex", "s1") and policy.is_incognito(tmp_path, "bob", "codex", "s1")
    assert old in policy.read_incognito_list(tmp_path, "ada", is_own=True)
    assert old not in policy.read_incognito_list(tmp_path, "bob", is_own=False)


def test_off_record_after_a_torn_write(tmp_path):
    """A crash left half a hash at the end: the next session must not be glued to it."""
    policy.mark_incognito(tmp_path, "ada", "codex", "s1")
    with (tmp_path / "incognito").open("ab") as file:
        file.write(b"0123abc")
    policy.mark_incognito(tmp_path, "ada", "codex", "s2")
    assert policy.is_incognito(tmp_path, "ada", "codex", "s1") and policy.is_incognito(tmp_path, "ada", "codex", "s2")
