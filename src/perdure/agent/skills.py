"""The skills that an agent finds: its own, the person's, those of this package and those of the project, in this order.

Of two with one name the first one counts, so that a project cannot put its own text in the place of one that the person
trusts. Only names and descriptions are read into a session (`render_list`); a text is read when it is used, and a text
of the project, or of the person's folders, only if it does not read like an attack. Nothing here grants anything.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from perdure.access.redact import mask
from perdure.access.scan import Finding
from perdure.environ import find_user_home, read_variable
from perdure.floor import pages
from perdure.floor.skill_text import FILE, SkillRefused, SkillText, parse_skill
from perdure.text import ELLIPSIS, one_line, tokens

if TYPE_CHECKING:
    from perdure.home import Home

Origin = Literal["home", "user", "perdure", "project"]
FindInjections = Callable[[str], Sequence[Finding]]

BUILTIN = Path(__file__).with_name("builtin_skills")
CHECKED: tuple[Origin, ...] = ("user", "project")  # their texts are looked at by the scanner
MIN_SUSPICION = 0.5  # the chance that one of the findings is right, from which on a text is refused
_ORDERS = {  # rules of the scanner about what every skill does: it tells an agent what to do
    "unasked deed", "false memory", "false answer", "another aim", "addressed to agents", "addressed", "tool",
    "lasting", "authority", "claimed",
}  # fmt: skip
MAX_FOLDERS = 500  # that are looked at in one folder of skills
MAX_LIST_TOKENS = 2_000  # of the list in a session's floor
MAX_DESCRIPTION_CHARS = 1_024  # of one, as the open format has it; then as short as the list needs
_SHORTER_CHARS = (500, 250, 120, 60)
_USER_FOLDERS = (  # below the person's folder, or where a variable moves it
    (".claude/skills", "CLAUDE_CONFIG_DIR"), (".agents/skills", ""), (".codex/skills", "CODEX_HOME"),
    (".pi/agent/skills", "PI_CODING_AGENT_DIR"),
)  # fmt: skip
_PROJECT_FOLDERS = (".claude/skills", ".agents/skills", ".codex/skills", ".pi/skills")
SUSPICIOUS = (
    "its text reads like an attack on a model ({rule}: {excerpt!r}). Read it; if it is right, `perdure skills add` "
    "makes it yours"
)
LIST_OPENING = (
    "# skills\n\nA skill is a set of instructions for one kind of work, some with scripts. When a task fits one, call "
    "activate_skill with its name before you begin. (project): it came with the project, not from the person."
)


class SkillFolder(NamedTuple):
    """A folder that may hold a skill."""

    origin: Origin
    path: Path  # as it was found; its name is the name of the skill
    inside: Path | None = None  # the folder that it may not lead out of


@dataclass(frozen=True)
class Skill:
    """A skill that was found."""

    name: str
    origin: Origin
    folder: Path  # resolved
    description: str = ""
    notices: tuple[str, ...] = ()  # what stands in its head and has no effect
    refused: str = ""  # why it cannot be used; "" if it can

    @property
    def label(self) -> str:
        """The name as a session's floor has it."""
        return f"{self.name} (project)" if self.origin == "project" else self.name


def find_skills(home: Home, start: Path, root: Path) -> list[Skill]:
    """Return the skills for an agent that works in a folder, by name; of one name the one that counts is first.

    start: where it works. root: of its project. Those that cannot be used are among them, with the reason.
    """
    skills = [_read_skill(folder, home) for folder in _list_folders(home, start, root)]
    return list(_choose(skills))


def _choose(skills: Iterable[Skill]) -> Iterator[Skill]:
    """Yield the skills by name; a second one of a name is refused."""
    chosen: dict[str, Skill] = {}
    for skill in sorted(skills, key=lambda skill: skill.name):  # stable: the order of the origins stays
        first = chosen.get(skill.name)
        if first is not None and not skill.refused:
            yield replace(skill, refused=f"another one of this name counts: {first.folder}")
            continue
        if not skill.refused:
            chosen[skill.name] = skill
        yield skill


def _list_folders(home: Home, start: Path, root: Path) -> Iterator[SkillFolder]:
    """Yield every folder that may hold a skill, each once, in the order in which they count."""
    seen: set[Path] = set()
    for folder in _list_all_folders(home, start, root):
        resolved = _resolve(folder.path)
        if resolved not in seen:
            seen.add(resolved)
            yield folder


def _list_all_folders(home: Home, start: Path, root: Path) -> Iterator[SkillFolder]:
    for name in home.floor.list_pages():
        if pages.is_skill(name):
            yield SkillFolder("home", home.floor.folder / Path(name).parent)
    user_home = find_user_home()
    for relative, variable in _USER_FOLDERS:
        moved = read_variable(variable) if variable else None
        parent = Path(moved).expanduser() / "skills" if moved else user_home / relative
        yield from (SkillFolder("user", path) for path in _list_below(parent))
    yield from (SkillFolder("perdure", path) for path in _list_below(BUILTIN))
    for folder in (start, *start.parents):
        if not folder.is_relative_to(root):
            break
        for relative in _PROJECT_FOLDERS:
            yield from (SkillFolder("project", path, root) for path in _list_below(folder / relative))


def _list_below(parent: Path) -> list[Path]:
    """Return the folders of a folder of skills that hold SKILL.md; none if it is not there or cannot be read."""
    try:
        paths = sorted(islice(parent.iterdir(), MAX_FOLDERS))
    except OSError:
        return []
    return [path for path in paths if not path.name.startswith(".") and os.path.lexists(path / FILE)]


def _resolve(path: Path) -> Path:
    """Return a path without symlinks; one that leads in a circle stays, and cannot be opened."""
    return Path(os.path.realpath(path))


def _read_skill(folder: SkillFolder, home: Home) -> Skill:
    """Return the skill of a folder, with the reason if it cannot be used."""
    skill = Skill(folder.path.name, folder.origin, _resolve(folder.path))
    try:
        if folder.inside is not None and not skill.folder.is_relative_to(folder.inside):
            raise SkillRefused("its folder leads out of the project")
        if folder.origin != "home" and skill.folder.is_relative_to(home.path.resolve()):
            raise SkillRefused("its folder leads into the home of Perdure")
        text = read_text(skill, home)
        if folder.origin in CHECKED:
            check_text(text.description, home.floor.find_injections)
    except SkillRefused as error:
        return replace(skill, refused=str(error))
    return replace(skill, description=text.description, notices=text.notices)


def read_text(skill: Skill, home: Home) -> SkillText:
    """Return the text of a skill as it is now. Raises SkillRefused."""
    return parse_skill(read_raw_text(skill, home), skill.name)


def read_raw_text(skill: Skill, home: Home) -> str:
    """Return SKILL.md as it is written. Raises SkillRefused if it cannot be read."""
    if skill.origin == "home":
        return home.floor.read(f"{pages.SKILLS}/{skill.name}/{FILE}")
    return read_skill_file(skill.folder)


def show_text(skill: Skill, home: Home) -> str:
    """Return SKILL.md for a person, masked; "" if it cannot be read."""
    with suppress(SkillRefused):
        return mask(read_raw_text(skill, home))
    return ""


def check_whole_text(skill: Skill, home: Home) -> Skill:
    """Return a skill that was found, refused if it cannot be used as it is now."""
    if skill.refused:
        return skill
    try:
        text = read_text(skill, home)
        if skill.origin in CHECKED:
            check_text(text.body, home.floor.find_injections)
    except SkillRefused as error:
        return replace(skill, refused=str(error))
    return skill


def check_text(text: str, find_injections: FindInjections) -> None:
    """Raise SkillRefused for a text that reads like an attack.

    Rules about orders to an agent do not count: a skill is nothing else. With them 19 of 137 public skills were
    refused, without them 3, and 45 instead of 49 of 100 attacks are found (decision 048).
    """
    findings = [finding for finding in find_injections(text) if finding.rule not in _ORDERS]
    if 1 - math.prod(1 - finding.score for finding in findings) >= MIN_SUSPICION:
        raise SkillRefused(SUSPICIOUS.format(rule=findings[0].rule, excerpt=findings[0].excerpt))


def read_skill_file(folder: Path) -> str:
    """Return SKILL.md of a resolved folder. Raises SkillRefused for what is no plain text in it."""
    path = _resolve(folder / FILE)
    if not path.is_relative_to(folder):
        raise SkillRefused(f"{FILE} leads out of its folder")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SkillRefused(f"{FILE} is no plain file")
            raw = file.read(pages.MAX_BYTES + 1)
        if len(raw) > pages.MAX_BYTES:
            raise SkillRefused(f"{FILE} has more than {pages.MAX_BYTES:,} bytes")
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SkillRefused(f"{FILE} is not UTF-8") from error
    except OSError as error:
        raise SkillRefused(f"{FILE} cannot be read: {error.strerror or error}") from error


def list_usable(skills: Sequence[Skill]) -> Mapping[str, Skill]:
    """Return the skills that can be used, by name."""
    return {skill.name: skill for skill in skills if not skill.refused}


def render_list(skills: Sequence[Skill], max_tokens: int = MAX_LIST_TOKENS) -> str:
    """Return the list for a session's floor: names and descriptions, no text of a skill; "" if there is none.

    Where there are many, descriptions are cut, all to the same length; then skills are left out, and the list says so.
    """
    usable = list(list_usable(skills).values())
    if not usable:
        return ""
    for n_chars in (MAX_DESCRIPTION_CHARS, *_SHORTER_CHARS):
        lines = [f"- {skill.label}: {one_line(mask(skill.description), n_chars)}" for skill in usable]
        text = "\n".join([LIST_OPENING, "", *lines])
        if tokens(text) <= max_tokens:
            return text
    n_shown = 0
    room = max_tokens - tokens(LIST_OPENING) - 40  # for the last line
    while n_shown < len(lines) and (room := room - tokens(lines[n_shown] + "\n")) >= 0:
        n_shown += 1
    n_left = len(lines) - n_shown
    return "\n".join(
        [LIST_OPENING, "", *lines[:n_shown], f"- {ELLIPSIS} {n_left} more: an unknown name lists them all"]
    )
