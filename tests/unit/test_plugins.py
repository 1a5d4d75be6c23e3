"""What clients install by their own commands is what `perdure install` would set up."""

import json
from pathlib import Path

import perdure
from perdure.clients import hooks

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "perdure"


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_plugin_answers_the_events_that_both_clients_know() -> None:
    assert set(read(PLUGIN / "hooks" / "hooks.json")["hooks"]) == set(hooks.EVENTS["codex"])
    assert hooks.EVENTS["codex"] == hooks.EVENTS["claude-code"]


def test_the_marketplace_leads_to_the_plugin() -> None:
    (entry,) = read(ROOT / ".claude-plugin" / "marketplace.json")["plugins"]
    assert read(ROOT / entry["source"] / ".claude-plugin" / "plugin.json")["name"] == entry["name"]


def test_versions_are_that_of_the_package() -> None:
    for path in (PLUGIN / ".claude-plugin" / "plugin.json", ROOT / "plugins" / "pi" / "package.json"):
        assert read(path)["version"] == perdure.__version__


def test_the_pi_package_is_the_extension_that_is_installed() -> None:
    extension = Path(perdure.__file__).parent / "clients" / "pi.ts"
    assert (ROOT / "plugins" / "pi" / "index.ts").read_bytes() == extension.read_bytes()
