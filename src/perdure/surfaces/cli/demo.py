"""The command `demo`: run one scene in a temporary home, with the embedded default and no key.

A scene is a file of scenes/: transcripts, and commands with the words that each must print and must not print. The
commands are real: a scene reads and writes a folder of its own, and fails where an answer is not the expected one. In
all texts of a scene, `~/` is that folder, `{2 days ago}` is the date of that day, and `{now}` is the time of the start.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from perdure import environ
from perdure.errors import ClientOnly, UsageError
from perdure.surfaces.cli.common import Shell, command

_SCENES = Path(__file__).parent / "scenes"
_PROJECT = "tidepool"  # the repository, below the folder of a scene, that every command runs in
_SETTINGS = (
    'user = "mira"\nmachine = "laptop"\n\n[hooks]\nlimit_ms = 10000\n'  # no scene fails because a machine is slow
)
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ", "NO_COLOR", "COLUMNS", "PYTHONPATH")
_COMMAND_LIMIT_S = 120.0
_EXTRAS = {"httpcore2": "server", "openai": "openai"}  # package -> the extra that has it
_DATE = re.compile(r"\{(\d+) days ago\}")


@dataclass(frozen=True)
class Step:
    """One command of a scene."""

    run: str  # as a person types it
    say: str = ""  # printed above it
    event: Mapping[str, Any] = field(default_factory=dict)  # for a hook: the client's event, on stdin
    shows: Sequence[str] = ()  # words that the output must hold
    hides: Sequence[str] = ()  # words that it must not hold
    status: int = 0  # the exit status that is expected


@dataclass(frozen=True)
class Scene:
    """A story: files of clients, and commands."""

    line: str  # what it shows, in one line
    steps: tuple[Step, ...]
    files: Mapping[str, str] = field(default_factory=dict)  # path -> text
    needs: str = ""  # a package of an extra, without which it cannot run

    @property
    def can_run(self) -> bool:
        """True if what it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None

    @property
    def demand(self) -> str:
        """What to do before it can run."""
        return f"needs more packages: pip install 'perdure[{_EXTRAS.get(self.needs, self.needs)}]'"


@dataclass(frozen=True)
class StepResult:
    """A command that ran. An empty `fault` means that it did what the scene expects."""

    command: str
    output: str
    fault: str


@command(
    "demo",
    epilog="""\
  perdure demo                        list the scenes
  perdure demo first-day              what one client heard, another knows
  perdure demo --all                  every scene, one after the other
  perdure demo changes --keep /tmp/d  leave the home there: perdure page --home /tmp/d/.perdure""",
)
@click.argument("name", required=False)
@click.option("--all", "is_all", is_flag=True, help="Run every scene.")
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Use this folder, and do not delete it.")
def demo_command(shell: Shell, name: str | None, is_all: bool, keep: Path | None) -> None:
    """Run a scene with sample transcripts: real commands and their output, in a temporary home. It reads and changes no
    file of yours. It exits with 1 if a command does not do what the scene expects. Without NAME, list the scenes.
    """
    scenes = {path.stem: read_scene(path) for path in sorted(_SCENES.glob("*.toml"))}
    if not scenes:
        raise ClientOnly("no scenes are installed here")
    if name and is_all:
        raise UsageError("give a name or --all")
    if name and name not in scenes:
        raise UsageError(f"no scene is called {name!r}; there are {', '.join(scenes)}")
    if not name and not is_all:
        _print_list(shell, scenes)
        return
    if name and not scenes[name].can_run:
        raise UsageError(f"the scene {name!r} {scenes[name].demand}")
    names = [name] if name else [scene_name for scene_name, scene in scenes.items() if scene.can_run]
    for left_out in [] if name or shell.as_json else [key for key in scenes if key not in names]:
        shell.out.print(f"{left_out}: left out, it {scenes[left_out].demand}", markup=False)
    results = {scene_name: _play(shell, scene_name, scenes[scene_name], keep) for scene_name in names}
    faults = [result.fault for steps in results.values() for result in steps if result.fault]
    if shell.as_json:
        outputs = {scene_name: [asdict(result) for result in steps] for scene_name, steps in results.items()}
        shell.print_json({"passed": not faults, "scenes": outputs})
    elif is_all and not faults:
        shell.suggest([("perdure start", "the same with your own transcripts")])
    sys.exit(1 if faults else 0)


def read_scene(path: Path) -> Scene:
    """Read a scene. Raises TypeError for a field that no scene has."""
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    steps = tuple(Step(**step) for step in table.pop("steps"))
    return Scene(steps=steps, **table)


def _print_list(shell: Shell, scenes: Mapping[str, Scene]) -> None:
    if shell.as_json:
        shell.print_json({"scenes": [{"name": name, "line": scene.line} for name, scene in scenes.items()]})
        return
    for name, scene in scenes.items():
        shell.out.print(f"{name:<12}", style="bold", end="", markup=False)
        shell.out.print(scene.line, markup=False)
    shell.suggest([("perdure demo NAME", "run one"), ("perdure demo --all", "run all, in about half a minute")])


def _play(shell: Shell, name: str, scene: Scene, keep: Path | None) -> list[StepResult]:
    """Run a scene and print each step as soon as it is done; end at the first fault."""
    if not shell.as_json:
        shell.out.print(f"\n{name}: {scene.line}", style="bold", markup=False)
    results = []
    with _make_folder(keep) as folder:
        for step, result in zip(scene.steps, run_scene(scene, folder, is_colored=shell.out.is_terminal), strict=False):
            results.append(result)
            if not shell.as_json:
                _print_step(shell, step, result)
    return results


def _print_step(shell: Shell, step: Step, result: StepResult) -> None:
    if step.say:
        shell.out.print(f"\n{step.say}", markup=False)
    shell.out.print(f"$ {result.command}", style="cyan", markup=False)
    shell.out.file.write(result.output)
    if result.fault:
        shell.err.print(result.fault, style="red", markup=False)


@contextlib.contextmanager
def _make_folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder of a scene; delete it afterwards unless the person named it."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_scene(scene: Scene, folder: Path, *, is_colored: bool = False) -> Iterator[StepResult]:
    """Yield the result of each step, up to the first that has a fault."""
    home = folder / ".perdure"
    if not home.exists():
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(_SETTINGS, encoding="utf-8")
    (folder / _PROJECT / ".git").mkdir(parents=True, exist_ok=True)
    for path, text in scene.files.items():
        target = Path(_fill_in(path, folder))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_fill_in(text, folder), encoding="utf-8")
    env = {name: value for name in _KEPT_VARIABLES if (value := environ.read_variable(name))}
    env |= {"HOME": str(folder), "PERDURE_HOME": str(home), **({"FORCE_COLOR": "1"} if is_colored else {})}
    env["PATH"] = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), env.get("PATH", ""))))
    try:
        for step in scene.steps:
            result = _run_step(step, folder, env)
            yield result
            if result.fault:
                return
    finally:
        if (home / "run" / "serve.json").exists():  # a fault came before the scene stopped what it had started
            _run_step(Step("perdure serve --stop"), folder, env)


def _run_step(step: Step, folder: Path, env: Mapping[str, str]) -> StepResult:
    """Run one command in the project; compare its output with what the scene expects."""
    words = shlex.split(_fill_in(step.run, folder))
    line = [sys.executable, "-m", "perdure.surfaces.cli", *words[1:]] if words[0] == "perdure" else words
    event = _fill_in(json.dumps(step.event), folder) if step.event else ""
    done = subprocess.run(
        line, cwd=folder / _PROJECT, env=env, input=event, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=_COMMAND_LIMIT_S, check=False,
    )  # fmt: skip
    output = (_read_hook_text(done.stdout) if event else done.stdout).replace(str(folder), "~")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    faults = [f"The exit status is {done.returncode} instead of {step.status}."] * (done.returncode != step.status)
    faults += [f"The output lacks: {words}" for words in step.shows if words not in plain]
    faults += [f"The output holds: {words}" for words in step.hides if words in plain]
    return StepResult(_fill_in(step.run, Path("~")), output, "\n".join(faults))


def _fill_in(text: str, folder: Path) -> str:
    """Replace `~/` and times."""

    def to_date(match: re.Match[str]) -> str:
        return (datetime.now(UTC) - timedelta(days=int(match[1]))).date().isoformat()

    now_text = datetime.now(UTC).isoformat(timespec="milliseconds")
    return _DATE.sub(to_date, text).replace("{now}", now_text).replace("~/", f"{folder}/")


def _read_hook_text(output: str) -> str:
    """Return the text that the hook adds to the model's request; "" if it adds none."""
    answer: dict[str, Any] = json.loads(output or "{}")
    text: str = answer.get("hookSpecificOutput", {}).get("additionalContext", "")
    return text and text.rstrip() + "\n"
