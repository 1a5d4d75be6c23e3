"""What a hook knows of the settings: kept, and made anew when they change."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from perdure.capture import policy
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
