"""How a shell line is judged: tricky lines and the verdict on each (J03)."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.agent.commands import Risk, judge_line
from perdure.agent.folders import ProjectFolders

LINES = [line.split("\t") for line in (Path(__file__).parents[2] / "data/agent/lines.tsv").read_text().splitlines()]


@pytest.fixture(name="folders")
def fixture_folders(tmp_path: Path) -> ProjectFolders:
    project, home = tmp_path / "project", tmp_path / "mind"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "Makefile").write_text("all:\n")
    (project / "link").symlink_to("/etc")
    home.mkdir()
    return ProjectFolders(project, home, project)


def judge(line: str, folders: ProjectFolders) -> Risk:
    line = line.replace("\\n", "\n").replace("HOME_OF_PERDURE", str(folders.home))
    return max((risk.risk for risk in judge_line(line, folders)), default=Risk.READS)


@pytest.mark.parametrize(("expected", "line"), LINES, ids=[line for _, line in LINES])
def test_a_line_gets_its_risk(expected: str, line: str, folders: ProjectFolders) -> None:
    assert judge(line, folders).name == expected


def test_the_list_is_long_and_has_every_risk() -> None:
    assert len(LINES) >= 60
    assert {expected for expected, _ in LINES} == {risk.name for risk in Risk}


@pytest.mark.parametrize("wrap", ["{}", "ls; {}", "ls && {}", "ls || {}", "ls | {}", "ls & {}", "ls\n{}", "({})", "{{ {}; }}",
    "echo $({})", "echo `{}`", 'echo "$({})"', "cat <({})", "tee >({})", "! {}", "if ls; then {}; fi", "while {}; do ls; done",
    "for x in a; do {}; done", "sudo {}", "env {}", "nohup {}", "timeout 9 {}", "nice -n 5 {}", "time {}", "exec {}",
    "command {}", "ls | xargs {}", "find . -exec {} \\;", "bash -c '{}'", "sh -c \"{}\"", "eval '{}'", "env -u A {}",
    "A=1 {}", "LC_ALL=C {}", "bash -c \"bash -c '{}'\"", "ls >/dev/null 2>&1; {} >/dev/null"])  # fmt: skip
def test_nothing_around_a_command_hides_it(wrap: str, folders: ProjectFolders) -> None:
    assert judge(wrap.format("rm -rf src"), folders) >= Risk.HARD


@pytest.mark.parametrize("spelling", ["rm", "r\\m", "'rm'", '"rm"', "r''m", "/bin/rm", "/usr/bin/rm", "\\rm", "r\\\nm"])
def test_no_spelling_hides_a_program(spelling: str, folders: ProjectFolders) -> None:
    assert judge(f"{spelling} -rf src", folders) == Risk.HARD


def test_a_link_out_of_the_project_is_no_way_out(folders: ProjectFolders) -> None:
    assert judge("cat link/passwd", folders) == Risk.UNKNOWN
    assert judge("cat lin*/passwd", folders) == Risk.UNKNOWN
    assert judge("cd link && cat passwd", folders) == Risk.UNKNOWN
    assert judge("echo x > link/passwd", folders) == Risk.HARD


def test_a_later_command_is_judged_in_the_folder_of_an_earlier_cd(folders: ProjectFolders) -> None:
    parent, name = folders.home.parent, folders.home.name
    assert judge(f"cd {parent} && rm -r {name}/archive", folders) == Risk.REFUSED
    assert judge(f"cd .. && rm -r {name}/archive", folders) == Risk.REFUSED
