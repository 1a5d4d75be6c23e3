"""A skill: SKILL.md in the open format of Agent Skills (agentskills.io), a head in YAML and instructions. Pure.

Only `name` and `description` of the head count here. A skill that declares tools is refused: the list of tools stands
before the conversation, and a provider's cache of it ends with the first byte that changes. Keys by which other clients
let a skill raise its permissions, run hooks or change the model are ignored, and the reader is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.floor.yaml_text import load_yaml
from perdure.regex import lazy_re

FILE = "SKILL.md"
MAX_NAME_CHARS = 64
_NAME = lazy_re(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HEAD = lazy_re(r"(?s)---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)(.*)\Z")
_DECLARING_KEYS = ("tools", "mcp", "mcp_servers", "mcp-servers", "mcpServers")
_IGNORED_KEYS = {
    "allowed-tools": "no skill raises a permission", "allowed_tools": "no skill raises a permission",
    "disallowed-tools": "`deny` in agent.yaml does this", "hooks": "no skill runs a command by itself",
    "model": "the model stays", "context": "it runs in this session", "agent": "it runs in this session",
}  # fmt: skip
DECLARES_TOOLS = (
    "it declares tools ({key}). The list of tools stays the same in a session, because a provider's cache depends on "
    "it: let the skill ship scripts, and run them with shell"
)
FOR_PERSONS = "only a person starts it (disable-model-invocation)"


class SkillRefused(ValueError):
    """A text that cannot be used as a skill; the message is the reason."""


@dataclass(frozen=True)
class SkillText:
    """A skill as it is written."""

    name: str
    description: str
    body: str
    notices: tuple[str, ...] = ()  # what stands in its head and has no effect


def parse_skill(text: str, folder_name: str) -> SkillText:
    """Return the skill of a text. folder_name: of its folder, which has the same name. Raises SkillRefused.

    >>> parse_skill("---\\nname: deploy\\ndescription: How we deploy.\\n---\\nRun make.", "deploy").description
    'How we deploy.'
    """
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    match = _HEAD.match(plain)
    if not match:
        raise SkillRefused("it does not begin with a head: a line `---`, name and description, a line `---`")
    try:
        head = load_yaml(match[1])
    except ValueError as error:
        raise SkillRefused(f"its head cannot be read: {error}") from error
    if not isinstance(head, Mapping):
        raise SkillRefused("its head is not a mapping of `name`, `description` and others")
    for key in _DECLARING_KEYS:
        if head.get(key):
            raise SkillRefused(DECLARES_TOOLS.format(key=key))
    if head.get("disable-model-invocation") is True:
        raise SkillRefused(FOR_PERSONS)
    name, description = head.get("name", folder_name), head.get("description")
    _check_name(name, folder_name)
    if not isinstance(description, str) or not description.strip():
        raise SkillRefused("it has no `description`: what it is for, and when to use it")
    if not match[2].strip():
        raise SkillRefused("it has no instructions below its head")
    notices = tuple(f"{key} is ignored: {why}" for key, why in _IGNORED_KEYS.items() if key in head)
    return SkillText(name, " ".join(description.split()), match[2].strip(), notices)


def _check_name(name: Any, folder_name: str) -> None:
    """Raise SkillRefused for a name that the format does not allow."""
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise SkillRefused(f"its name {name!r} is not of the letters a-z, digits and single hyphens, at most 64")
    if name != folder_name:
        raise SkillRefused(f"its name is {name!r}, and its folder {folder_name!r}: they must be the same")
