"""The settings that a hook reads, and the switches before a byte is copied. Doubt never captures."""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.capture import policy
from perdure.capture.policy import CapturePause
from perdure.errors import ConfigFault


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def test_defaults_without_a_file(home: Path) -> None:
    found = policy.read_rules(home)
    assert (found.exclude, found.limit_ms, found.recall_for) == ((), 1000, ("person",))
    assert policy.read_rules(home) == found


def test_cached_rules_are_used_without_reading_the_settings(home: Path) -> None:
    policy.read_rules(home)
    kept = home / "cache" / "hooks.json"
    body = json.loads(kept.read_bytes())
    kept.write_text(json.dumps({**body, "limit_ms": 7}))
    assert policy.read_rules(home).limit_ms == 7


def test_changed_settings_count_at_once(home: Path) -> None:
    policy.read_rules(home)
    settings = home / "config.toml"
    settings.write_text('[capture]\nexclude = ["/a"]\n')
    assert policy.read_rules(home).exclude == ("/a",)
    settings.write_text('[capture]\nexclude = ["/b"]\n[live]\nsubagents = true\nmachine_turns = true\n')
    assert (policy.read_rules(home).exclude, policy.read_rules(home).recall_for) == (
        ("/b",),
        ("person", "agent", "machine"),
    )
    settings.write_text("[live]\nrecall = false\n[hooks]\nlimit_ms = 200\n")
    assert (policy.read_rules(home).recall_for, policy.read_rules(home).limit_ms) == (
        ("person",),
        200,
    )  # a floor may be missing
    settings.write_text("[live]\nrecall = false\nfloor = false\n[hooks]\nlimit_ms = 250\n")
    assert (policy.read_rules(home).recall_for, policy.read_rules(home).limit_ms) == ((), 250)
    settings.unlink()
    assert policy.read_rules(home).limit_ms == 1000


def test_another_user_name_is_another_rule(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert policy.read_rules(home).user == "ada"
    monkeypatch.setenv("LOGNAME", "tom")
    assert policy.read_rules(home).user == "tom"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'{"marks": 1}', b"\xff"])
def test_damaged_copy_is_rebuilt(raw: bytes, home: Path) -> None:
    found = policy.read_rules(home)
    (home / "cache" / "hooks.json").write_bytes(raw)
    assert policy.read_rules(home) == found
    assert json.loads((home / "cache" / "hooks.json").read_bytes())["user"] == found.user


def test_invalid_settings_raise_and_are_not_cached(home: Path) -> None:
    (home / "config.toml").write_text("[hooks]\nlimit = 5\n")
    for _ in range(2):
        with pytest.raises(ConfigFault):
            policy.read_rules(home)


def test_a_command_reads_the_same_rules_and_makes_no_home(home: Path, tmp_path: Path) -> None:
    assert policy.load_rules(home) == policy.read_rules(home)
    missing = tmp_path / "nowhere"
    assert policy.load_rules(missing).remote.url == "" and not missing.exists()
    (home / "cache" / "hooks.json").unlink()
    (home / "cache").rmdir()
    (home / "cache").write_text("no folder: the copy cannot be written")
    assert policy.load_rules(home).limit_ms == 1000


def test_hook_imports_only_the_standard_library() -> None:
    """U20: every module of the hook's way stands in `capture` or below it, and imports nothing that is installed."""
    import subprocess

    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import perdure.capture.hook as _;"
        "print(*sorted(n for n in sys.modules if n.startswith('perdure')), sep='\\n');"
        "assert not any('site-packages' in str(getattr(m, '__file__', '')) for m in sys.modules.values())"
    )
    src = str(Path(policy.__file__).parents[2])
    done = subprocess.run([sys.executable, "-IS", "-c", code, src], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert {name for name in names if not name.startswith("perdure.capture")} == {
        "perdure", "perdure.disk", "perdure.environ", "perdure.errors",
    }  # fmt: skip


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
