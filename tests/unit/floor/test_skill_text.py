"""The text of a skill: what its head may say."""

from __future__ import annotations

import pytest

from perdure.errors import EditRefused
from perdure.floor import pages
from perdure.floor.pages import PageEdit
from perdure.floor.skill_text import SkillRefused, parse_skill

HEAD = "---\nname: deploy\ndescription: How we deploy.\n"


def test_name_description_and_instructions_are_read() -> None:
    head = "\ufeff---\r\nname: deploy\r\ndescription: >\r\n  How we\r\n  deploy.\r\n---\r\n"
    text = f"{head}\r\n# Deploy\r\n---\r\nRun make.\r\n"
    skill = parse_skill(text, "deploy")
    assert (skill.name, skill.description, skill.body) == ("deploy", "How we deploy.", "# Deploy\n---\nRun make.")
    assert skill.notices == ()


@pytest.mark.parametrize("key", ["allowed-tools: Bash(git:*) Read", "hooks: {}", "model: opus", "context: fork"])
def test_what_raises_a_permission_elsewhere_is_ignored_and_told(key: str) -> None:
    (notice,) = parse_skill(f"{HEAD}{key}\n---\nRun make.", "deploy").notices
    assert notice.startswith(f"{key.partition(':')[0]} is ignored")


def test_keys_of_the_open_format_say_nothing_here() -> None:
    head = f"{HEAD}license: MIT\ncompatibility: git\nmetadata: {{author: ada}}\nversion: 2\n---\nRun make."
    assert parse_skill(head, "deploy").notices == ()


@pytest.mark.parametrize(
    "key", ["tools: [deploy]", "tools:\n  - name: deploy", "mcp_servers: {a: {command: b}}", "mcpServers: {a: 1}"]
)
def test_a_skill_that_declares_tools_is_refused(key: str) -> None:
    """J10."""
    with pytest.raises(SkillRefused, match=r"declares tools .* scripts"):
        parse_skill(f"{HEAD}{key}\n---\nRun make.", "deploy")


@pytest.mark.parametrize(("text", "why"), [
    ("Run make.", "does not begin with a head"), ("---\nname: deploy\nRun make.", "does not begin with a head"),
    ("---\nname: [\n---\nx", "not YAML"), ("---\n- a\n---\nx", "not a mapping"),
    (f"---\n{'[' * 5000}\n---\nx", "levels"), ("---\na: &a {k: 1}\nb: [" + "*a, " * 20 + "]\n---\nx", "aliases"),
    ("---\nname: 2026-13-40\n---\nx", "not YAML"), ("---\nname: deploy\n---\nx", "no `description`"),
    ("---\nname: deploy\ndescription: [a]\n---\nx", "no `description`"), (f"{HEAD}---\n \n", "no instructions"),
    ("---\nname: other\ndescription: d\n---\nx", "must be the same"),
    ("---\nname: ../x\ndescription: d\n---\nx", "letters a-z"),
    ("---\nname: De Ploy\ndescription: d\n---\nx", "letters a-z"),
    (f"---\nname: {'a' * 65}\ndescription: d\n---\nx", "letters a-z"),
    ("---\nname: a--b\ndescription: d\n---\nx", "letters a-z"), ("---\nname: 7\ndescription: d\n---\nx", "letters a-z"),
    (f"{HEAD}disable-model-invocation: true\n---\nx", "only a person"),
])  # fmt: skip
def test_what_is_no_skill_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(SkillRefused, match=why):
        parse_skill(text, "deploy")


def test_a_page_of_a_skill_is_checked_before_it_is_written_or_proposed() -> None:
    """P28 and J10: no secret and no tools get into the home by an edit."""
    page = "skills/deploy/SKILL.md"
    pages.check_edit(PageEdit(page, f"{HEAD}---\nRun make.", "owner"))
    for text, why in (
        (f"{HEAD}---\nUse the key AKIAIOSFODNN7EXAMPLE.", "secret"), (f"{HEAD}tools: [a]\n---\nRun.", "declares tools"),
        ("Run make.", "head"),
    ):  # fmt: skip
        with pytest.raises(EditRefused, match=why):
            pages.check_edit(PageEdit(page, text, "agent", is_proposal=True))
        with pytest.raises(EditRefused, match=why):
            pages.check_edit(PageEdit(page, text, "owner"))
