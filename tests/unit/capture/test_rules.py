"""What a hook knows of the settings: kept, and made anew when they change."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from perdure.capture import rules
from perdure.errors import ConfigFault


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def test_defaults_without_a_file(home: Path) -> None:
    found = rules.read(home)
    assert (found.exclude, found.limit_ms, found.asked_for) == ((), 1000, ("person",))
    assert rules.read(home) == found


def test_what_was_kept_is_used_without_reading_the_settings(home: Path) -> None:
    rules.read(home)
    kept = home / "cache" / "hooks.json"
    body = json.loads(kept.read_bytes())
    kept.write_text(json.dumps({**body, "limit_ms": 7}))
    assert rules.read(home).limit_ms == 7


def test_a_change_of_the_settings_counts_at_once(home: Path) -> None:
    rules.read(home)
    settings = home / "config.toml"
    settings.write_text('[capture]\nexclude = ["/a"]\n')
    assert rules.read(home).exclude == ("/a",)
    settings.write_text('[capture]\nexclude = ["/b"]\n[live]\nsubagents = true\nmachine_turns = true\n')
    assert (rules.read(home).exclude, rules.read(home).asked_for) == (("/b",), ("person", "agent", "machine"))
    settings.write_text("[live]\nrecall = false\n[hooks]\nlimit_ms = 200\n")
    assert (rules.read(home).asked_for, rules.read(home).limit_ms) == (("person",), 200)  # a floor may be missing
    settings.write_text("[live]\nrecall = false\nfloor = false\n[hooks]\nlimit_ms = 250\n")
    assert (rules.read(home).asked_for, rules.read(home).limit_ms) == ((), 250)
    settings.unlink()
    assert rules.read(home).limit_ms == 1000


def test_another_user_name_is_another_rule(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert rules.read(home).user == "ada"
    monkeypatch.setenv("LOGNAME", "tom")
    assert rules.read(home).user == "tom"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'{"marks": 1}', b"\xff"])
def test_a_damaged_copy_is_made_anew(raw: bytes, home: Path) -> None:
    found = rules.read(home)
    (home / "cache" / "hooks.json").write_bytes(raw)
    assert rules.read(home) == found
    assert json.loads((home / "cache" / "hooks.json").read_bytes())["user"] == found.user


def test_settings_that_cannot_be_meant_are_an_error_and_nothing_is_kept(home: Path) -> None:
    (home / "config.toml").write_text("[hooks]\nlimit = 5\n")
    for _ in range(2):
        with pytest.raises(ConfigFault):
            rules.read(home)


def test_a_hook_needs_the_standard_library_alone() -> None:
    """U20: every module of the hook's way stands in `capture` or below it, and imports nothing that is installed."""
    import subprocess

    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import perdure.capture.hook as _;"
        "print(*sorted(n for n in sys.modules if n.startswith('perdure')), sep='\\n');"
        "assert not any('site-packages' in str(getattr(m, '__file__', '')) for m in sys.modules.values())"
    )
    src = str(Path(rules.__file__).parents[2])
    done = subprocess.run([sys.executable, "-IS", "-c", code, src], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert {name for name in names if not name.startswith("perdure.capture")} == {
        "perdure", "perdure.environ", "perdure.errors",
    }  # fmt: skip
