"""What clients install by their own commands is what `perdure install` would set up."""

import json
from pathlib import Path

import perdure
from perdure.capture import quiet
from perdure.capture.events import HookEvent
from perdure.clients import entries

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "perdure"
FOR_THE_MODEL = {"settle"}  # commands that the hook leaves to the client's model


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_plugin_answers_the_events_that_both_clients_know() -> None:
    known_to_one = {
        "PostToolUse",
        "PostToolUseFailure",
    }  # Codex reports failures with the one, Claude Code with the other
    assert set(read(PLUGIN / "hooks" / "hooks.json")["hooks"]) == set(entries.EVENTS["codex"])
    assert {*entries.EVENTS["codex"], *known_to_one} == {*entries.EVENTS["claude-code"], *known_to_one}


def test_skill_has_the_form_that_clients_find() -> None:
    """Its name is that of its folder, and its description, by which a model chooses it, is one line of at most 1,024
    characters, as the format asks.
    """
    (path,) = (PLUGIN / "skills").glob("*/SKILL.md")
    _, head, _ = path.read_text(encoding="utf-8").split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == path.parent.name and 0 < len(fields["description"]) <= 1024


def test_the_skill_has_agents_say_that_they_are_agents() -> None:
    (path,) = (PLUGIN / "skills").glob("*/SKILL.md")
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("$ perdure ")]
    writing = ("remember", "floor note", "floor card", "floor write")
    found = [line for line in lines if line.removeprefix("$ perdure ").startswith(writing)]
    assert len(found) == 4 and all(line.endswith("--by-agent") for line in found)


def test_plugin_has_each_command_that_the_hook_follows(tmp_path: Path) -> None:
    names = sorted(path.stem for path in (PLUGIN / "commands").glob("*.md") if path.stem not in FOR_THE_MODEL)
    event = HookEvent("claude-code", "prompt", "s1")
    notices = [quiet.follow_command(tmp_path, event._replace(prompt=f"/perdure:{name}")) for name in names]
    assert names == ["quiet", "speak"] and all(notices)


def test_a_command_for_the_model_may_run_what_it_names() -> None:
    for name in FOR_THE_MODEL:
        _, head, body = (PLUGIN / "commands" / f"{name}.md").read_text(encoding="utf-8").split("---\n", 2)
        (allowed,) = [line for line in head.splitlines() if line.startswith("allowed-tools: ")]
        (command,) = [line.removesuffix(":*)") for line in allowed.split("Bash(")[1:]]
        assert body.count(f"`{command}") == body.count("`perdure") == 3
        assert command.split()[1:] == ["memories", "settle"]


def test_the_marketplace_leads_to_the_plugin() -> None:
    (entry,) = read(ROOT / ".claude-plugin" / "marketplace.json")["plugins"]
    assert read(ROOT / entry["source"] / ".claude-plugin" / "plugin.json")["name"] == entry["name"]


def test_versions_equal_that_of_the_package() -> None:
    for path in (PLUGIN / ".claude-plugin" / "plugin.json", ROOT / "plugins" / "pi" / "package.json"):
        assert read(path)["version"] == perdure.__version__


def test_pi_package_equals_the_installed_extension() -> None:
    extension = Path(perdure.__file__).parent / "clients" / "pi.ts"
    assert (ROOT / "plugins" / "pi" / "index.ts").read_bytes() == extension.read_bytes()
