"""The definition of a job: a page `jobs/NAME.yaml` of the owner's floor, which says when something runs, and what.

Only the owner changes such a page: by a command, by hand, over HTTP, or by approving an agent's proposal. A page that
is not valid starts nothing, and its reason is shown wherever jobs are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perdure import jobs
from perdure.agent.definition import TOOLS
from perdure.agent.permission import MCP_SEPARATOR, MODES, Mode
from perdure.agent_queue import MAX_RETRIES
from perdure.config import JobsConfig
from perdure.environ import find_user_home
from perdure.errors import ConfigFault, FloorMissing, JobFault, JobMissing, UsageError
from perdure.floor import pages, working_copy
from perdure.floor.yaml_text import load_yaml
from perdure.jobs import MissedRuns
from perdure.models.known_models import EFFORTS

if TYPE_CHECKING:
    from perdure.home import Home

Overlap = Literal["forbid", "allow", "queue"]
KNOWN_WORDS: Mapping[str, tuple[str, ...]] = {
    "mode": MODES, "missed": ("once", "skip"), "overlap": ("forbid", "allow", "queue"), "each": ("new-error",),
    "effort": tuple(EFFORTS),
}  # fmt: skip
_REFUSED = ".yaml.refused-"  # in the name of the copy that the floor keeps of a file that it cannot use
_KINDS = ("instruction", "prompts", "command")
_FOR_COMMANDS = {"does", "cron", "missed", "machine", "command", "cwd", "max_s", "deliver"}
_METERED = {"agent", "shell", "chat", "compact", "recall", "models", "eval"}  # other work is metered by these names


@dataclass(frozen=True)
class JobDefinition:
    """When a job runs, and what it does. Each field but `name` is a key of its page; most may be left out."""

    name: str
    does: str = ""  # in words, for the list
    cron: str = ""  # five fields, in this machine's time zone; "": only when somebody triggers it
    missed: MissedRuns = "once"  # for missed runs: no run, or one run for all of them
    machine: str = ""  # only a home on the machine of this name runs it; "": every home that has the page
    instruction: str = ""  # of an agent
    prompts: tuple[str, ...] = ()  # of an agent instead: messages of one session, each after the answer to the last
    command: str = ""  # a shell line instead of an agent
    context: str = ""  # what the agent must know and cannot find
    seen_days: int = 0  # the conversations of so many days go with it; without one there is no run
    each: str = ""  # "new-error": one run for each error that the home sees for the first time
    tools: tuple[str, ...] | None = None  # None: all of agent.yaml
    mode: Mode = "ask"  # of its permissions; nobody can be asked
    model: str = ""  # a role, or a name at the provider of the resident
    effort: str = ""  # the provider's word
    max_turns: int = 0  # answers of the model to each message; 0: as agent.yaml says
    max_tokens: int = 0  # of all answers to a message, what the model reads included; 0: as agent.yaml says
    max_money: float = 0.0  # the same in the currency of `models.prices`
    max_s: int = 0  # seconds; 0: `agents.max_s`
    check: str = ""  # a shell line that must succeed at its end
    cwd: str = ""  # the folder to work in; "": the person's own folder
    deliver: tuple[str, ...] = ()  # targets of config.toml, to which the result goes
    overlap: Overlap = "forbid"  # while its last run has not ended: no run, a second one at once, or one after it
    retry: int = 0  # how often it is begun again after its process was killed

    @property
    def summary(self) -> str:
        """What it does, in words."""
        return self.does or (self.command or self.instruction or self.prompts[0]).strip().splitlines()[0]


_FIELDS = {field.name: field for field in fields(JobDefinition) if field.name != "name"}


def list_definitions(home: Home) -> tuple[list[JobDefinition], dict[str, str]]:
    """Return the owner's jobs by name, and of each page that is not valid the reason."""
    definitions, faults = [], {}
    for page in home.floor.list_pages():
        if pages.is_job(page) and (text := home.floor.read(page)).strip():
            try:
                definitions.append(parse_job(to_job_name(page), text))
            except JobFault as error:
                faults[to_job_name(page)] = error.detail
    names = {definition.name for definition in definitions}
    unread = {name: why for name, why in _find_unread_files(home.floor.folder / pages.JOBS) if name not in names}
    return definitions, unread | faults


def _find_unread_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, why) of each file in the folder of the jobs that is no page, though somebody meant one."""
    for path in sorted(folder.glob("[!.]*")):
        if _REFUSED in path.name:
            yield path.name.partition(_REFUSED)[0], f"its file was no text of a page; a copy is {path.name}"
        elif path.suffix not in (".yaml", ".yml"):
            continue
        elif not pages.is_page(f"{pages.JOBS}/{path.name}"):
            yield path.stem, f"{path.name}: the file of a job is NAME.yaml, with a-z, 0-9 and - in NAME, at most 40"
        elif (copy := working_copy.read_copy(path)) is not None and copy.text is None:
            yield path.stem, f"its file {copy.why}"


def read_job(home: Home, name: str) -> JobDefinition:
    """Return a job of the owner. Raises JobMissing, JobFault."""
    return parse_job(name, read_job_page(home, name))


def read_job_page(home: Home, name: str) -> str:
    """Return the page of a job of the owner. Raises JobMissing."""
    if name in JobsConfig._fields:
        raise JobMissing(f"{name!r} comes with Perdure; its schedule is the setting jobs.{name} in config.toml")
    text = home.floor.read(to_page(name))
    if not text.strip():
        raise JobMissing(f"no job {name!r}")
    return text


def to_page(name: str) -> str:
    """Return the name of a job's page. Raises JobMissing for what cannot be a job's name."""
    try:
        return pages.resolve_name(f"{pages.JOBS}/{name}.yaml")
    except FloorMissing as error:
        raise JobMissing(f"{name!r} is no name of a job: use a-z, 0-9 and -, at most 40 characters") from error


def to_job_name(page: str) -> str:
    """Return the name of the job that a page defines.

    >>> to_job_name("jobs/nightly.yaml")
    'nightly'
    """
    return page.removeprefix(f"{pages.JOBS}/").removesuffix(".yaml")


def parse_job(name: str, page: str) -> JobDefinition:
    """Return the job that a page defines. Raises JobFault, which names the key."""
    try:
        table = load_yaml(page)
    except ValueError as error:
        raise JobFault(str(error)) from error
    if not isinstance(table, Mapping):
        raise JobFault("it is not a mapping of settings")
    if unknown := sorted(str(key) for key in table if key not in _FIELDS):
        raise JobFault(f"{unknown[0]}: nothing reads it (known: {', '.join(_FIELDS)})")
    definition = JobDefinition(name, **{key: _read_value(key, value) for key, value in table.items()})
    if problem := _find_problem(definition, set(table)):
        raise JobFault(problem)
    return definition


def _read_value(key: str, value: Any) -> Any:
    """Return a value with the type of its default. Raises JobFault."""
    default = _FIELDS[key].default
    if key in ("tools", "prompts", "deliver"):
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise JobFault(f"{key}: it must be a list of texts")
        return tuple(value)
    if isinstance(default, str):
        if not isinstance(value, str) or not value.strip():
            raise JobFault(f"{key}: it must be a text")
        if "\0" in value:
            raise JobFault(f"{key}: it has a NUL, which no command and no folder can have")
        return value.strip()
    allowed = (int, float) if isinstance(default, float) else (int,)
    if type(value) not in allowed or value < 0:
        raise JobFault(f"{key}: it must be a number from 0")
    return value


def _find_problem(definition: JobDefinition, keys: set[str]) -> str:
    """Say what is wrong with a job; "" if nothing is. keys: that its page has."""
    name = definition.name
    if name in {*JobsConfig._fields, *_METERED}:
        return f"{name!r} is the name of work that Perdure does itself"
    if len(kinds := [kind for kind in _KINDS if kind in keys]) != 1:
        return f"give one of {', '.join(_KINDS)}" + (f", not {' and '.join(kinds)}" if kinds else "")
    if definition.command and (unread := sorted(keys - _FOR_COMMANDS)):
        return f"{unread[0]}: nothing reads it beside a command (known: {', '.join(sorted(_FOR_COMMANDS))})"
    try:
        jobs.check_expression(definition.cron, name="cron")
    except ConfigFault as error:
        return error.detail
    for key, known in KNOWN_WORDS.items():
        if key in keys and getattr(definition, key) not in known:
            return f"{key}: {getattr(definition, key)!r} (known: {', '.join(known)})"
    for tool in definition.tools or ():
        if tool not in TOOLS and MCP_SEPARATOR not in tool:
            return f"tools: {tool!r} (known: {', '.join(TOOLS)}, and tools of MCP servers)"
    return f"retry: at most {MAX_RETRIES}" if definition.retry > MAX_RETRIES else ""


def find_folder(definition: JobDefinition) -> str:
    """Return the folder in which a job works. Raises JobFault for that of a user whom this machine does not have."""
    try:
        return str(Path(definition.cwd).expanduser() if definition.cwd else find_user_home())
    except RuntimeError as error:
        raise JobFault(f"cwd: {definition.cwd!r} begins with a user whom this machine does not have") from error


def check_job(home: Home, definition: JobDefinition) -> None:
    """Raise JobFault if a job names a model, a target, a tool or a folder that this home cannot have."""
    if definition.machine in ("", home.config.machine):
        find_folder(definition)
    if definition.model and (problem := home.connections.roles().find_model_problem(definition.model)):
        raise JobFault(f"model: {problem}")
    targets = home.config.delivery
    if unknown := [name for name in definition.deliver if name not in targets]:
        known = ", ".join(targets) or "none yet: docs/delivery.md"
        raise JobFault(f"deliver: there is no target {unknown[0]!r} (config.toml has: {known})")


def list_examples() -> dict[str, str]:
    """Return the pages of the jobs that come with Perdure, by name."""
    folder = resources.files("perdure.agent") / "job_examples"
    pages_by_name = {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".yaml")}
    return {name.removesuffix(".yaml"): pages_by_name[name] for name in sorted(pages_by_name)}


def find_example(name: str) -> str:
    """Return the page of a job that comes with Perdure. Raises JobMissing."""
    examples = list_examples()
    if name not in examples:
        raise JobMissing(f"no example {name!r} (there are {', '.join(examples)})")
    return examples[name]


def save_job(home: Home, name: str, page: str, *, why: str = "") -> JobDefinition:
    """Write the page of a job for the owner, after every check. Raises JobFault, JobMissing, EditRefused."""
    definition = parse_job(name, page)
    check_job(home, definition)
    home.floor.write(to_page(name), page, why=why)
    return definition


def make_page(given: Mapping[str, Any]) -> str:
    """Return the page of these keys, in the order of the definition; keys without a value are left out.

    >>> make_page({"instruction": "Say hello.", "cron": "0 9 * * *", "tools": None})
    'cron: 0 9 * * *\\ninstruction: Say hello.\\n'
    """
    import yaml

    known = {key: given[key] for key in _FIELDS if given.get(key) not in (None, "", (), [])}
    known |= {key: value for key, value in given.items() if key not in _FIELDS}  # the parser refuses them by name
    known = {key: list(value) if isinstance(value, tuple) else value for key, value in known.items()}
    return str(yaml.safe_dump(known, sort_keys=False, allow_unicode=True, width=100))


def change_page(page: str, given: Mapping[str, Any], unset: Collection[str] = ()) -> str:
    """Return a page with other values of some keys, and without some; comments are lost.

    Raises JobFault, and UsageError for a key to leave out that is not there.
    """
    try:
        table = load_yaml(page) if page.strip() else {}
    except ValueError as error:
        raise JobFault(str(error)) from error
    if not isinstance(table, dict):
        raise JobFault("it is not a mapping of settings")
    if unknown := [key for key in unset if key not in table]:
        raise UsageError(f"the page has no key {unknown[0]!r} (it has: {', '.join(map(str, table))})")
    changed = {key: value for key, value in given.items() if value not in (None, (), [])}
    return make_page({key: value for key, value in (table | changed).items() if key not in unset})
