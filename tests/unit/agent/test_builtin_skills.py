"""The skills that come with Perdure: each one is valid, and what it tells the agent to run is right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from perdure.access.scan import scan
from perdure.agent.commands import Risk, judge_line
from perdure.agent.definition import TOOLS
from perdure.agent.folders import ProjectFolders
from perdure.agent.skills import BUILTIN, check_text, read_skill_file
from perdure.floor.skill_text import parse_skill
from perdure.surfaces.cli import cli

NAMES = sorted(path.name for path in BUILTIN.iterdir())
SCRIPT = BUILTIN / "domain-interview/scripts/find_ruled_out_words.py"


def read_text(name: str) -> str:
    return read_skill_file(BUILTIN / name)


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_is_valid(name: str) -> None:
    skill = parse_skill(read_text(name), name)
    assert skill.notices == ()
    assert len(skill.description) < 500
    assert "Use it" in skill.description
    check_text(f"{skill.description}\n{skill.body}", scan)


def find_command(words: list[str]) -> bool:
    """Return True if the command line has this command."""
    group: click.Command | None = cli
    for word in words:
        if not isinstance(group, click.Group) or not re.fullmatch(r"[a-z]+", word):
            break
        group = group.get_command(click.Context(group), word)
    return isinstance(group, click.Command) and group is not cli


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_tool_that_a_skill_names_exists(name: str) -> None:
    text = " ".join(read_text(name).split())
    for line in re.findall(r"perdure ([a-z]+(?: [a-z]+)?)", text):
        assert find_command(line.split()), line
    for tool in re.findall(r"`([a-z]+_[a-z]+|remember|recall|shell)`", text):
        assert tool in TOOLS


def test_what_own_home_reads_with_needs_no_permission(folders: ProjectFolders) -> None:
    section = read_text("own-home").split("## Read it")[1].split("\n## ")[0]
    lines = [line.strip().split("   ")[0] for line in section.splitlines() if line.startswith("    perdure ")]
    assert len(lines) == 9
    for line in lines:
        assert [risk.risk for risk in judge_line(line, folders)] == [Risk.READS], line
    for line in (
        "perdure floor propose system x",
        "perdure floor",
        "perdure skills add x",
        "perdure floor write system x",
    ):
        assert [risk.risk for risk in judge_line(line, folders)] == [Risk.REFUSED], line


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_the_script_finds_words_that_are_ruled_out(tmp_path: Path) -> None:
    """By the table alone, as whole words and parts of names, without case; the glossary itself is left out."""
    glossary = tmp_path / "CONTEXT.md"
    glossary.write_text(
        "| a |\n|---|\n| b |\n\n| word | meaning | not |\n|:--|---|--:|\n"
        "| **run** | x | `job`, task |\n| cart | y | |\n| jar | z | – |\n"
    )
    (tmp_path / "a.py").write_text("def start_job(): ...\nJobs = 1\njobless = taskbar\nTASK\n")
    (tmp_path / "b.bin").write_bytes(b"\xff\x00 ok\n")
    done = run_script(str(glossary), str(tmp_path))
    assert done.returncode == 1
    assert [line.partition(": ")[2] for line in done.stdout.splitlines()[:-1]] == [
        "job (say run): def start_job(): ...", "Jobs (say run): Jobs = 1", "TASK (say run): TASK",
    ]  # fmt: skip
    assert done.stdout.endswith("3 found, of 2 words that are ruled out\n")
    (tmp_path / "a.py").write_text("runs\n")
    assert run_script(str(glossary), str(tmp_path)).returncode == 0
    assert run_script(str(tmp_path / "a.py"), str(tmp_path)).returncode == 2
    assert run_script().returncode == 2
