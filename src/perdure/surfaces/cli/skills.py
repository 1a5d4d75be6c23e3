"""The commands about skills: which ones Perdure's own agent finds, what they say, and those of the home."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from perdure.errors import FloorMissing
from perdure.surfaces.cli.common import Shell, command
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.text import one_line, printable

if TYPE_CHECKING:
    from perdure.agent.skills import Skill
    from perdure.home import Home

_ORIGINS = {
    "home": "of this home", "user": "of your clients", "perdure": "of Perdure", "project": "of this project",
}  # fmt: skip
_MAX_DESCRIPTION_CHARS = 200
_SKILL_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("skills", "List the skills that Perdure's own agent finds here, and why one cannot be used."),
    "show": ("skills", "Show the text of a skill and the files beside it."),
    "add": ("skills", "Copy a skill from a folder into this home."),
    "remove": ("skills", "Take a skill out of this home."),
}
_agent_option = click.option(
    "--agent", metavar="NAME", default="", help="Whose skills (default: `agent` of config.toml)."
)


@click.group(
    "skills",
    cls=LazyGroup,
    table=_SKILL_COMMANDS,
    default_command="list",
    epilog="""\b
Examples:
  perdure skills
  perdure skills show glossary-interview
  perdure skills add ~/src/skills/release-notes

A skill is a folder with SKILL.md, in the open format of Agent Skills (docs/skills.md).""",
)
def skills_command() -> None:
    """Show the skills of Perdure's own agent: instructions for one kind of work, which it reads when a task needs them.
    It finds those of this home, of your other clients, of Perdure and of the project.
    """


@command("list", epilog="  perdure skills list\n  perdure skills list --json")
@_agent_option
def list_command(shell: Shell, agent: str) -> None:
    """List the skills that an agent finds that works in this folder. Of two with one name the first one counts: this
    home's, then your clients', then Perdure's, then the project's.
    """
    with shell.open_home(create=True, agent=agent) as home:
        skills = _find_checked_skills(home)
    if shell.as_json:
        shell.print_json({"skills": [_to_json(skill) for skill in skills]})
        return
    for skill in sorted(skills, key=lambda skill: list(_ORIGINS).index(skill.origin)):
        shell.out.print(Text(f"{printable(skill.name)}", style="dim" if skill.refused else "bold"), end="  ")
        shell.out.print(f"{_ORIGINS[skill.origin]}, {printable(str(skill.folder))}", style="dim", markup=False)
        if skill.refused:
            shell.out.print(f"    cannot be used: {printable(skill.refused)}", style="yellow", markup=False)
        else:
            shell.out.print(f"    {one_line(skill.description, _MAX_DESCRIPTION_CHARS)}", markup=False)
        for notice in skill.notices:
            shell.out.print(f"    {printable(notice)}", style="dim", markup=False)


def _find_checked_skills(home: Home) -> list[Skill]:
    """Return the skills for the current folder; what is found in the whole text counts, too."""
    from perdure.agent.skills import check_whole_text, find_skills

    return [check_whole_text(skill, home) for skill in find_skills(home, *_find_place())]


def _find_place() -> tuple[Path, Path]:
    """Return the current folder and that of its project."""
    from perdure.agent.folders import find_root

    start = Path.cwd().resolve()
    return start, find_root(start)


def _to_json(skill: Skill) -> dict[str, Any]:
    return asdict(skill) | {"folder": str(skill.folder), "usable": not skill.refused, "refused": skill.refused or None}


@command("show", epilog="  perdure skills show glossary-interview\n  perdure skills show release-notes --json")
@click.argument("name")
@_agent_option
def show_command(shell: Shell, name: str, agent: str) -> None:
    """Show a skill as an agent would read it. Of one that is refused for its text, read it here before you add it."""
    from perdure.agent.skills import show_text
    from perdure.agent.tools.skills import list_files

    with shell.open_home(create=True, agent=agent) as home:
        skills = _find_checked_skills(home)
        skill = next((skill for skill in skills if skill.name == name), None)
        if skill is None:
            names = ", ".join(dict.fromkeys(skill.name for skill in skills))
            raise FloorMissing(f"there is no skill {printable(name)!r} (there are: {printable(names)})")
        text, files = show_text(skill, home), list_files(skill.folder)
    if shell.as_json:
        shell.print_json(_to_json(skill) | {"text": text, "files": files})
        return
    shell.out.print(f"{_ORIGINS[skill.origin]}, {printable(str(skill.folder))}", style="dim", markup=False)
    if skill.refused:
        shell.note(f"It cannot be used: {printable(skill.refused)}")
    shell.out.print(printable(text).rstrip(), markup=False)
    if files:
        shell.out.print(f"\nFiles: {printable(', '.join(files))}", style="dim", markup=False)


@command(
    "add", epilog="  perdure skills add ~/src/skills/release-notes\n  perdure skills add .claude/skills/deploy --json"
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_agent_option
def add_command(shell: Shell, folder: Path, agent: str) -> None:
    """Copy a skill into this home, with its files; one of the same name is replaced, and the history of its text stays.
    Read it first: from then on your agents take it as yours.
    """
    from perdure.agent.own_skills import add_skill

    with shell.open_home(create=True, agent=agent) as home:
        text = add_skill(home, folder)
        findings = home.floor.find_injections(f"{text.description}\n\n{text.body}")
    if shell.as_json:
        shell.print_json({"name": text.name, "description": text.description, "notices": text.notices})
        return
    shell.out.print(f"The skill {text.name} is in this home. Agents have it from the next session on.", markup=False)
    for notice in text.notices:
        shell.note(notice)
    for finding in findings[:1]:
        shell.note(
            f"It reads like an attack on a model ({finding.rule}: {finding.excerpt!r}). Remove it if it is not right."
        )


@command("remove", epilog="  perdure skills remove release-notes")
@click.argument("name")
@_agent_option
def remove_command(shell: Shell, name: str, agent: str) -> None:
    """Take a skill out of this home and delete its files. The history of its text stays: `perdure floor history`."""
    from perdure.agent.own_skills import remove_skill

    with shell.open_home(agent=agent) as home:
        remove_skill(home, name)
    if shell.as_json:
        shell.print_json({"removed": name})
    else:
        shell.out.print(f"The skill {name} is no longer in this home.", markup=False)
