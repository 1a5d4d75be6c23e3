"""Open a session of the agent: its definition, its tools and its permissions, the same on every surface."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.access.redact import mask
from perdure.agent import propose_change
from perdure.agent.attachments import Attachments, attach_files, list_mentions
from perdure.agent.definition import AgentDefinition, find_model, read_definition
from perdure.agent.folders import ProjectFolders, find_root
from perdure.agent.mcp_settings import McpServer
from perdure.agent.permission import Mode, OnAsk, PermissionGate
from perdure.agent.sandbox import SWITCHED_OFF, Sandbox, find_sandbox
from perdure.agent.skills import Skill, find_skills, render_list
from perdure.agent.spawner import Spawner, limit_definition, limit_tools
from perdure.agent.tools import files, grep, images, listing, memory, person
from perdure.agent.tools.person import OnQuestion
from perdure.agent.tools.shell import ShellTool
from perdure.agent.tools.skills import SkillTool
from perdure.agent_queue import AgentRun
from perdure.floor.platforms import API
from perdure.formats.perdure import Message
from perdure.models.chat import Chat, takes_tools
from perdure.models.image_endpoint import ImageEndpoint
from perdure.models.known_models import find_token_factor
from perdure.session.budget import count_tools
from perdure.session.calls import Tool
from perdure.session.catalog import resolve_name
from perdure.session.chat_model import JOB
from perdure.session.log import read_start
from perdure.session.session import Session, TurnListener, open_session

if TYPE_CHECKING:
    from perdure.agent.mcp_tools import McpConnections
    from perdure.home import Home

PLAN_INSTRUCTION = (
    "[The person is planning. Answer with a plan: steps, open questions, risks. Only tools that read run until the "
    "person ends this.]"
)

SILENT, NO_ATTACHMENTS = TurnListener(), Attachments()
MAX_TOOLS_SHARE = 0.25  # of a window: beside more, a conversation has no room, and a small model does not use them


@dataclass
class Agent:
    """An open session with tools. Close it."""

    session: Session
    definition: AgentDefinition
    gate: PermissionGate
    folders: ProjectFolders
    sandbox: Sandbox
    shell: ShellTool
    spawner: Spawner
    tools: tuple[Tool, ...]  # that the definition gives; the session has them as far as its model can hold them
    notices: tuple[str, ...]  # for the person: what of the definition is not there, and why
    _servers: McpConnections | None
    _outputs: tempfile.TemporaryDirectory[str]  # full outputs, and /tmp of the commands; gone with the session

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def say(
        self, text: str, attachments: Attachments = NO_ATTACHMENTS, *, listener: TurnListener = SILENT,
        cancel: threading.Event | None = None, instruction: str = "",
    ) -> Message:  # fmt: skip
        """Send a message of a person, and return the last answer, as `Session.say`. In plan mode it asks for a plan."""
        planning = PLAN_INSTRUCTION if self.gate.mode == "plan" else ""
        instruction = "\n\n".join(filter(None, (instruction, planning)))
        return self.session.say(
            text, images=attachments.images, files=attachments.files, listener=listener, cancel=cancel,
            instruction=instruction,
        )  # fmt: skip

    def attach(self, typed: str) -> Attachments:
        """Return the files that the typed words of a message name with `@`."""
        mentions = list_mentions(typed)
        return attach_files(mentions, self.folders, window_tokens=self.session.chat.window_tokens)

    def use_chat(self, chat: Chat) -> None:
        """Let another model answer from here on, with the tools that its window holds."""
        self.session.use_chat(chat)
        self.session.use_tools(fit_tools(self.tools, chat))

    def take_server_tools(self, within_s: float, cancel: threading.Event) -> None:
        """Add the tools and notices of MCP servers that answered since; wait for them until so long after their start.

        For a session that began without waiting for its servers.
        """
        if self._servers is None:
            return
        can_call = bool(self.session.tool_names) or not self.tools  # else its model takes none, or has no room
        n_tools, n_notices = len(self._servers.tools), len(self._servers.notices)
        self._servers.take_tools(within_s, cancel)
        self.notices += tuple(self._servers.notices[n_notices:])
        if tools := self._servers.tools[n_tools:]:
            self.tools += tuple(tools)
            if can_call:
                self.session.use_tools(fit_tools(self.tools, self.session.chat))

    @property
    def tools_problem(self) -> str:
        """Why the model has no tools although the definition gives some; "" if it has them."""
        if not self.tools or self.session.tool_names:
            return ""
        chat = self.session.chat
        if not takes_tools(chat) or fit_tools(self.tools, chat):
            return f"{chat.name} takes no tools"
        return (
            f"the window of {chat.name} ({chat.window_tokens:,} tokens) is too small for the tools "
            f"({count_tools_for(self.tools, chat):,} tokens); name fewer `tools` in agent.yaml"
        )

    def close(self) -> None:
        """Give the session up, end its MCP servers, and delete the full outputs of its commands."""
        try:
            self.spawner.close()
            self.session.close()
        finally:
            if self._servers is not None:
                self._servers.close()
            self._outputs.cleanup()


def open_agent(  # noqa: PLR0913 - what a surface knows; all but the home have defaults
    home: Home,
    resume: str = "",
    *,
    fork: bool = False,
    cwd: str | None = None,
    chat: Chat | None = None,
    mode: Mode | None = None,
    max_turns: int | None = None,
    on_ask: OnAsk | None = None,
    on_question: OnQuestion | None = None,
    job: str = JOB,
    recall_mode: str | None = None,
    mcp_servers: Sequence[McpServer] = (),
    has_tools: bool = True,
    run: AgentRun | None = None,
    platform: str = API,
    waits_for_servers: bool = True,
) -> Agent:
    """Begin a session with the tools of this home's agent, or go on with one.

    resume, fork, job, platform: as in `open_session`. cwd: the folder to work in; of a session that goes on its own; ""
    for none: then the session belongs to no project, and its files are in a folder that is gone with it. chat, mode,
    max_turns: instead of those in agent.yaml. on_ask: asks the person whether a call may run; without it such calls are
    denied. on_question: asks the person what the model wants to know. recall_mode: "keyword" recalls without a model.
    mcp_servers: besides those in agent.yaml, which come first where two have one name. has_tools: False leaves all of
    them out. run: of the queue, which this session carries out: its recipe limits the definition. waits_for_servers:
    False begins before the MCP servers have answered, and `Agent.take_server_tools` adds their tools.

    Raises DefinitionFault for an agent.yaml that is not valid, and what `open_session` raises.
    """
    definition = read_definition(home)
    definition = replace(definition, mode=mode or definition.mode, max_turns=max_turns or definition.max_turns)
    definition = limit_definition(home, definition, run)
    chat = chat or find_model(home, definition, job=job)
    if not has_tools:
        definition, mcp_servers = replace(definition, tools=(), mcp_servers=()), ()
    if resume and cwd is None:
        cwd = read_start(home, resolve_name(home, resume, cwd=str(Path.cwd()))[0]).cwd or None
    notices: list[str] = []
    session: Session  # it is there when a tool runs
    with contextlib.ExitStack() as undo:
        outputs = tempfile.TemporaryDirectory(prefix="perdure-agent-")
        undo.callback(outputs.cleanup)
        workplace = _set_up_workplace(home, cwd, definition, run, Path(outputs.name))
        folders, spawner = workplace.folders, workplace.spawner
        skills = find_skills(home, folders.start, folders.root) if "activate_skill" in definition.tools else []
        own_tools = _build_tools(home, workplace, skills, on_question=on_question, job=job, get_session=lambda: session)
        servers = _start_servers(
            home, [*definition.mcp_servers, *mcp_servers], folders.start, workplace.outputs, notices
        )  # fmt: skip
        if servers is not None:
            undo.callback(servers.close)
            if waits_for_servers:
                servers.take_tools()
                notices += servers.notices
        tools = limit_tools([*select_tools(own_tools, definition), *(servers.tools if servers else ())], run)
        fitting = fit_tools(tools, chat)
        gate = PermissionGate(
            folders, mode=definition.mode, rules=definition.rules, on_ask=on_ask,
            readers=servers.readers if servers else (),
        )  # fmt: skip
        session = open_session(
            home, resume, fork=fork, cwd=workplace.place or None, chat=chat, tools=fitting, mode=recall_mode, job=job,
            decide=gate.decide, budget=definition.budget, floor_end=render_list(skills) if fitting else "",
            platform=platform, spawned_by=run.spawned_by if run and run.spawned_by[0] else None,
        )  # fmt: skip
        undo.pop_all()
    spawner.attach(session, gate)
    return Agent(
        session, definition, gate, folders, workplace.sandbox, workplace.shell, spawner, tuple(tools), tuple(notices),
        servers, outputs,
    )  # fmt: skip


@dataclass(frozen=True)
class _Workplace:
    """Where a session works, and what it works with."""

    place: str  # the folder that the session belongs to; "" for no project
    outputs: Path  # full outputs, and /tmp of the commands
    folders: ProjectFolders
    sandbox: Sandbox
    shell: ShellTool
    spawner: Spawner


def _set_up_workplace(
    home: Home, cwd: str | None, definition: AgentDefinition, run: AgentRun | None, outputs: Path
) -> _Workplace:  # fmt: skip
    """Return the folders, the sandbox and the shell of a session. cwd: as in open_agent."""
    if cwd == "":
        start = outputs / "desk"
        start.mkdir()
    else:
        start = Path(cwd or Path.cwd()).resolve()
    temporary = outputs / "tmp"
    temporary.mkdir()
    folders = build_folders(home.path, start, definition, outputs)
    has_commands = "shell" in definition.tools or bool(run and run.recipe.check)
    sandbox = (
        find_sandbox(folders, temporary, network=definition.network)
        if definition.sandbox and has_commands
        else Sandbox(problem=SWITCHED_OFF)
    )
    return _Workplace(
        "" if cwd == "" else str(start), outputs, folders, sandbox,
        ShellTool(folders, sandbox, outputs, definition.environment), Spawner(home, folders, definition, run),
    )  # fmt: skip


def _build_tools(
    home: Home, workplace: _Workplace, skills: list[Skill], *, on_question: OnQuestion | None, job: str,
    get_session: Callable[[], Session],
) -> list[Tool]:  # fmt: skip
    """Return every tool of Perdure that this home can give, in an order that stays, which keeps a provider's cache."""
    folders, models = workplace.folders, home.config.models
    endpoint = ImageEndpoint(models.images, models.caps, home.connections.roles().meter, mask)
    return [
        *files.build_tools(folders),
        listing.build_tool(folders),
        grep.build_tool(folders),
        workplace.shell.build_tool(),
        person.build_tool(on_question),
        *memory.build_tools(home, workplace.place, get_session),
        SkillTool(home, folders, skills, workplace.outputs / "skills").build_tool(),
        propose_change.build_tool(home, get_session),
        *workplace.spawner.build_tools(),
        *([images.build_tool(folders, endpoint, job)] if models.images.url else []),
    ]


def _start_servers(
    home: Home, servers: Sequence[McpServer], start: Path, outputs: Path, notices: list[str]
) -> McpConnections | None:
    """Start the MCP servers of a session; None if there are none, or if they cannot be, which a notice says."""
    by_name = {server.name: server for server in reversed(servers)}
    if not by_name:
        return None
    try:
        from perdure.agent.mcp_tools import McpConnections  # takes a second
    except ModuleNotFoundError:
        notices.append("MCP servers are left out: pip install 'perdure[mcp]'")
        return None
    chosen = [server for server in servers if by_name[server.name] is server]
    return McpConnections(chosen, cwd=start, outputs=outputs, find_injections=home.floor.find_injections)


def select_tools(tools: list[Tool], definition: AgentDefinition) -> list[Tool]:
    """Return the tools that a definition names, in the order of the code, which keeps a provider's cache."""
    return [tool for tool in tools if tool.spec.name in definition.tools]


def count_tools_for(tools: Sequence[Tool], chat: Chat) -> int:
    """Estimate the tokens that the descriptions of tools take in a model's window."""
    return round(find_token_factor(chat.name) * count_tools([tool.spec for tool in tools]))


def fit_tools(tools: Sequence[Tool], chat: Chat) -> Sequence[Tool]:
    """Return the tools, or none for a model that reads none, or if their descriptions take more than MAX_TOOLS_SHARE of
    its window.
    """
    has_room = count_tools_for(tools, chat) <= MAX_TOOLS_SHARE * chat.window_tokens
    return tools if has_room and takes_tools(chat) else ()


def build_folders(home: Path, start: Path, definition: AgentDefinition, outputs: Path) -> ProjectFolders:
    """Return the folders that an agent may touch. start: where it works; its project is the repository around it."""
    return ProjectFolders(
        root=find_root(start),
        home=home.resolve(),
        start=start,
        more=tuple(Path(folder).expanduser().resolve() for folder in definition.folders),
        readable=(outputs.resolve(),),
    )
