"""The definition of an agent: the page `agent.yaml` of its floor. One for every surface.

Only the owner of a home changes that page: by hand, or by approving a proposal. No tool can write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from perdure.agent.mcp_settings import McpServer, parse_servers
from perdure.agent.permission import MODES, Mode, PermissionRules, parse_rule
from perdure.errors import ConfigFault, DefinitionFault
from perdure.floor import pages
from perdure.floor.yaml_text import load_yaml
from perdure.models.chat import Chat
from perdure.models.known_models import EFFORTS
from perdure.session.chat_model import JOB, find_chat
from perdure.session.turn_budget import TurnBudget

if TYPE_CHECKING:
    from perdure.home import Home

TOOLS = (
    "read_file", "write_file", "edit_file", "glob", "grep", "shell", "ask_user", "view_image", "image_generate",
    "remember", "recall", "activate_skill", "propose_change", "queue_agent", "wait_for_agent",
)  # fmt: skip
MAX_TURNS = 100  # answers of the model to one message, where the page says nothing else


@dataclass(frozen=True)
class AgentDefinition:
    """What an agent may use and spend. Each field is a key of `agent.yaml`; all but the first three may be left out."""

    name: str = "default"
    tools: tuple[str, ...] = TOOLS
    max_turns: int = MAX_TURNS  # answers of the model to one message
    model: str = ""  # a role, or a name at the provider of the resident; "": the resident
    effort: str = ""  # the provider's word; "": that of the settings
    max_tokens: int = 0  # of all answers to one message, what the model reads included; 0: no limit
    max_money: float = 0.0  # the same in the currency of `models.prices`; 0: no limit
    max_s: int = 0  # seconds from a message to the last answer; 0: no limit
    mode: Mode = "ask"
    allow: tuple[str, ...] = ()  # rules: TOOL or TOOL(PATTERN), e.g. shell(pytest *)
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # besides the project, files may be read and written in them
    sandbox: bool = True  # run commands in bubblewrap where it is installed
    network: bool = False  # let commands in the sandbox reach the network
    environment: tuple[str, ...] = ()  # variables that commands get although their names look like secrets
    mcp_servers: tuple[McpServer, ...] = ()  # their tools are there beside `tools`

    @property
    def budget(self) -> TurnBudget:
        """The limits of one message."""
        return TurnBudget(self.max_turns, self.max_tokens, self.max_money, self.max_s)

    @property
    def rules(self) -> PermissionRules:
        """The rules of the owner. Raises DefinitionFault."""
        try:
            return PermissionRules(*(tuple(map(parse_rule, rules)) for rules in (self.allow, self.ask, self.deny)))
        except ConfigFault as error:
            raise DefinitionFault(error.detail) from error


def read_definition(home: Home) -> AgentDefinition:
    """Return the definition of a home's agent; the default one where it has no page. Raises DefinitionFault."""
    page = home.floor.read(pages.SETTINGS)
    return parse_definition(page) if page.strip() else AgentDefinition(name=home.config.agent)


def find_model(home: Home, definition: AgentDefinition, *, job: str = JOB) -> Chat:
    """Return the model with which an agent talks. Raises DefinitionFault for one that is not known, ModelMissing."""
    check_model(home, definition)
    return find_chat(home, definition.model, job=job, effort=definition.effort)


def check_model(home: Home, definition: AgentDefinition) -> None:
    """Raise DefinitionFault if the home has no such model."""
    if definition.model and (problem := home.connections.roles().find_model_problem(definition.model)):
        raise DefinitionFault(f"model: {problem}")


def parse_definition(page: str) -> AgentDefinition:
    """Return the definition that a page holds. Raises DefinitionFault, which names the key."""
    try:
        table = load_yaml(page)
    except ValueError as error:
        raise DefinitionFault(str(error)) from error
    if not isinstance(table, Mapping):
        raise DefinitionFault("it is not a mapping of settings")
    known = {field.name: getattr(AgentDefinition, field.name) for field in fields(AgentDefinition)}
    if unknown := sorted(str(key) for key in table if key not in known):
        raise DefinitionFault(f"{unknown[0]} (known: {', '.join(known)})")
    definition = AgentDefinition(**{key: _read_value(key, value, known[key]) for key, value in table.items()})
    if definition.mode not in MODES:
        raise DefinitionFault(f"mode: {definition.mode!r} (known: {', '.join(MODES)})")
    if definition.effort and definition.effort not in EFFORTS:
        raise DefinitionFault(f"effort: {definition.effort!r} (known: {', '.join(EFFORTS)})")
    if unknown := sorted(set(definition.tools) - set(TOOLS)):
        raise DefinitionFault(f"tools: {unknown[0]!r} (known: {', '.join(TOOLS)})")
    _ = definition.rules  # they are checked now, not at the first call
    return definition


def _read_value(key: str, value: Any, default: Any) -> Any:
    """Return a value with the type of its default. Raises DefinitionFault."""
    if key == "mcp_servers":
        return parse_servers(value)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise DefinitionFault(f"{key}: must be a list of texts")
        return tuple(value)
    if isinstance(default, bool):
        is_right = isinstance(value, bool)
    elif isinstance(default, float):
        is_right = type(value) in (int, float) and value >= 0
    elif isinstance(default, int):
        is_right = type(value) is int and value >= (1 if key == "max_turns" else 0)
    else:
        is_right = isinstance(value, str) and bool(value.strip())
    if not is_right:
        raise DefinitionFault(f"{key}: {value!r} is not a {'number from 0' if type(default) in (int, float) else 'word' if isinstance(default, str) else 'true or false'}")  # fmt: skip  # noqa: E501
    return cast(Any, value)
