"""Put a skill into the home, and take one out.

Its text is a page of the floor, with a history; its files lie beside it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.access.redact import find_secrets
from perdure.agent.skills import read_skill_file
from perdure.agent.tools.skills import MAX_FILES, copy_files, list_files
from perdure.errors import EditRefused, FloorMissing, ToolError
from perdure.floor import pages
from perdure.floor.skill_text import FILE, SkillRefused, SkillText, parse_skill

if TYPE_CHECKING:
    from perdure.home import Home


def add_skill(home: Home, folder: Path) -> SkillText:
    """Copy a skill into the home, in the place of one with its name; it is the owner's from then on.

    folder: has SKILL.md, and the name of the skill. Raises EditRefused; then nothing changes.
    """
    home.floor.check_writable()
    source = folder.expanduser().resolve()
    try:
        raw = read_skill_file(source)
        text = parse_skill(raw, source.name)
    except SkillRefused as error:
        raise EditRefused(f"{folder}: {error}") from error
    if source.is_relative_to(home.path.resolve()):
        raise EditRefused(f"{folder} lies in the home of Perdure already")
    _refuse_secrets(source)
    page, target = f"{pages.SKILLS}/{text.name}/{FILE}", home.floor.folder / pages.SKILLS / text.name
    pages.check_edit(pages.PageEdit(page, raw, "owner", home.floor.read(page)))
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        copy_files(source, fresh, without=FILE)
    except ToolError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise EditRefused(error.detail) from error
    _replace_files(target, fresh)
    if home.floor.read(page) != raw:
        home.floor.write(page, raw, by="owner", why=f"added from {source}")
    return text


def _refuse_secrets(folder: Path) -> None:
    """Raise EditRefused for a file that holds a secret: what is in the home is backed up and synced."""
    for name in list_files(folder)[:MAX_FILES]:
        text = (folder / name).read_bytes()[: pages.MAX_BYTES].decode("utf-8", "replace")
        for secret in find_secrets(text):
            raise EditRefused(f"{folder / name} contains text that looks like a secret ({secret.kind}); remove it")


def _replace_files(target: Path, fresh: Path) -> None:
    """Put the new files of a skill in the place of the old ones; its page stays."""
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if path.name == FILE or path.name.startswith("."):
            continue  # the page, and what the floor keeps about it
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in fresh.iterdir() if fresh.is_dir() else ():
        path.rename(target / path.name)
    shutil.rmtree(fresh, ignore_errors=True)


def remove_skill(home: Home, name: str) -> None:
    """Take a skill out of the home; the history of its text stays, its files are deleted. Raises FloorMissing."""
    page = f"{pages.SKILLS}/{name}/{FILE}"
    if not pages.is_page(page) or not home.floor.read(page):
        raise FloorMissing(f"there is no skill {name!r} in this home: `perdure skills` lists where each one is")
    home.floor.remove(page)
    shutil.rmtree(home.floor.folder / pages.SKILLS / name, ignore_errors=True)
