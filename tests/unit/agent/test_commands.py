"""How a shell line is judged: tricky lines and the verdict on each (J03)."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from perdure.agent.commands import Risk, judge_line
from perdure.agent.folders import ProjectFolders

LINES = [line.split("\t") for line in (Path(__file__).parents[2] / "data/agent/lines.tsv").read_text().splitlines()]


def judge(line: str, folders: ProjectFolders) -> Risk:
    line = line.replace("\\n", "\n").replace("HOME_OF_PERDURE", str(folders.home))
    return judge_worst(line, folders)


@pytest.mark.parametrize(("expected", "line"), LINES, ids=[line for _, line in LINES])
def test_a_line_gets_its_risk(expected: str, line: str, folders: ProjectFolders) -> None:
    assert judge(line, folders).name == expected


def test_the_list_is_long_and_has_every_risk() -> None:
    assert len(LINES) >= 60
    assert {expected for expected, _ in LINES} == {risk.name for risk in Risk}


@pytest.mark.parametrize("wrap", [
    "{}", "ls; {}", "ls && {}", "ls || {}", "ls | {}", "ls & {}", "ls\n{}", "({})", "{{ {}; }}", "echo $({})",
    "echo `{}`", 'echo "$({})"', "cat <({})", "tee >({})", "! {}", "if ls; then {}; fi", "while {}; do ls; done",
    "for x in a; do {}; done", "sudo {}", "env {}", "nohup {}", "timeout 9 {}", "nice -n 5 {}", "time {}",
    "exec {}", "command {}", "ls | xargs {}", "find . -exec {} \\;", "bash -c '{}'", "sh -c \"{}\"", "eval '{}'",
    "env -u A {}", "A=1 {}", "LC_ALL=C {}", "bash -c \"bash -c '{}'\"", "ls >/dev/null 2>&1; {} >/dev/null",
])  # fmt: skip
def test_nothing_around_a_command_hides_it(wrap: str, folders: ProjectFolders) -> None:
    assert judge(wrap.format("rm -rf src"), folders) >= Risk.HARD


@pytest.mark.parametrize("spelling", ["rm", "r\\m", "'rm'", '"rm"', "r''m", "/bin/rm", "/usr/bin/rm", "\\rm", "r\\\nm"])
def test_no_spelling_hides_a_program(spelling: str, folders: ProjectFolders) -> None:
    assert judge(f"{spelling} -rf src", folders) == Risk.HARD


@pytest.mark.parametrize("line", ["cp {} b", "mv {} b", "cd {} && ls", "git -C {} status", "git checkout {}"])
@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000], ids=["name", "path"])
def test_a_name_that_no_disk_takes_is_asked_about(line: str, name: str, folders: ProjectFolders) -> None:
    assert judge(line.format(name), folders) >= Risk.UNKNOWN


def test_a_link_out_of_the_project_is_no_way_out(folders: ProjectFolders) -> None:
    assert judge("cat link/passwd", folders) == Risk.UNKNOWN
    assert judge("cat lin*/passwd", folders) == Risk.UNKNOWN
    assert judge("cd link && cat passwd", folders) == Risk.UNKNOWN
    assert judge("echo x > link/passwd", folders) == Risk.HARD


def test_a_later_command_is_judged_in_the_folder_of_an_earlier_cd(folders: ProjectFolders) -> None:
    parent, name = folders.home.parent, folders.home.name
    assert judge(f"cd {parent} && rm -r {name}/archive", folders) == Risk.REFUSED
    assert judge(f"cd .. && rm -r {name}/archive", folders) == Risk.REFUSED


@pytest.mark.parametrize(("line", "reason"), [
    ("; ".join(["ls"] * 5000), "it has more than 200 commands; split it into several calls"),
    ("; ".join(f"x{i}" for i in range(201)), "it has more than 200 commands; split it into several calls"),
    ("env A=1 " * 2400 + "ls", "it has more than 200 commands; split it into several calls"),
    ("find . " + "-exec ls ';' " * 201, "it has more than 200 commands; split it into several calls"),
    ("eval '" + "ls; " * 4000 + "'", "it has more than 200 commands; split it into several calls"),
    ("ls " + "file* " * 400, "it names too many files; split it into several calls"),
    ("; ".join([*(f"mkdir d{i}" for i in range(190)), "ls " + "file* " * 400]),
     "it names too many files; split it into several calls"),
], ids=["ls", "names", "env", "find", "eval", "pattern", "both"])  # fmt: skip
def test_a_line_that_takes_too_long_to_judge_is_refused(line: str, reason: str, folders: ProjectFolders) -> None:
    for i in range(100):
        (folders.start / f"file{i}").touch()
    assert [(risk.risk, risk.reason) for risk in judge_line(line, folders)] == [(Risk.REFUSED, reason)]


def test_a_line_of_open_braces_is_read_once(folders: ProjectFolders) -> None:
    """Each brace looked for a comma to the end of the line: 20,000 of them took 12 seconds."""
    started_at = time.process_time()
    assert judge("echo " + "{" * 19_000, folders) == Risk.READS
    assert time.process_time() - started_at < 2


def test_a_line_of_many_commands_gets_the_risk_of_each(folders: ProjectFolders) -> None:
    assert judge("cd src; " * 2 + "ls; " * 190 + "rm x", folders) == Risk.HARD
    assert judge("cd src; " * 2 + "ls; " * 190, folders) == Risk.READS


WORDS = [
    "rm", "x", "echo", "ls", "'a b'", '"$(rm x)"', "$(rm x)", "`rm x`", "-n", "#", ";", "&&", "|", "&", "\n", "(",
    ")", "{", "}", "<(rm x)", ">", "a.txt", "2>&1", "\\\n", "'", '"', "if", "then", "fi", "do", "done", "for", "in",
    "!", "time", "env", "A=1", "\\;", "$x", "$'rm'", "eval", "'rm x'", "xargs", "find", "-exec", "command", "bash",
    "-c", "cat", "<<<", "case", "<<E", "E", "{rm,x}", "r\\m", "true", "timeout", "5", "exec", "\\", "$", "cd", ".",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_what_goes_ahead_never_reaches_a_program_that_deletes(folders: ProjectFolders, tmp_path: Path) -> None:
    """Random lines, run by the real bash with an `rm` that only leaves a mark: if it ran, the line had to ask."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("echo", "ls", "cat", "env", "xargs", "find", "timeout", "true", "bash"):
        (programs / name).symlink_to(str(shutil.which(name)))
    mark = tmp_path / "mark"
    (programs / "rm").write_text(f"#!{shutil.which('bash')}\necho ran > {mark}\n")
    (programs / "rm").chmod(0o755)
    chooser, n_ran = random.Random(24), 0
    for _ in range(300):
        line = " ".join(chooser.choices(WORDS, k=chooser.randint(2, 9)))
        worst = judge_worst(line, folders)
        if worst > Risk.EDITS and chooser.random() > 0.1:
            continue  # it asks anyhow; a few are run to see that the mark works
        subprocess.run(
            [str(shutil.which("bash")), "-c", line], cwd=folders.start, env={"PATH": str(programs), "x": "rm"},
            stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False,
        )  # fmt: skip
        n_ran += mark.exists()
        assert worst > Risk.EDITS or not mark.exists(), line
        mark.unlink(missing_ok=True)
    assert n_ran > 0


def judge_worst(line: str, folders: ProjectFolders) -> Risk:
    return max((risk.risk for risk in judge_line(line, folders)), default=Risk.READS)
