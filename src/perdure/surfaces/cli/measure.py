"""`perdure eval`: what memory finds, keeps and answers, measured on sets whose answers are known."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from perdure.errors import HomeMissing, ReadOnlyHome, ThinHome, UsageError
from perdure.surfaces.cli.common import Shell, command, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SUITES = ("contradictions", "changes", "stated", "poison", "use", "scanner")


class _Report(Protocol):
    @property
    def figures(self) -> Mapping[str, Any]: ...
    def text(self) -> str: ...


class _Asked(NamedTuple):
    """What the command line says."""

    sources: tuple[Path, ...]
    vectors: bool
    keep: Path | None
    half: str | None  # of --changes and --stated
    errors: bool
    stated: bool  # whether what people state becomes memories


_AS_IT_COMES = _Asked((), vectors=True, keep=None, half=None, errors=False, stated=True)


@command(
    "eval",
    epilog="""\
  perdure eval                             106 questions that come with Perdure (about 10 s)
  perdure eval path/to/locomo10.json       LoCoMo's own file
  perdure eval path/to/set --keep /tmp/h   a folder with docs.jsonl and queries.jsonl; keep what was embedded
  perdure eval --keyword --json
  perdure eval --contradictions            what recall makes of statements that were later taken back
  perdure eval --changes --half held-out   facts that changed: by turns alone, and by memories (about 2 min)
  perdure eval --stated transcripts/       statements found in what a person typed, against labels by hand
  perdure eval --stated transcripts/ --half dev --errors
  perdure eval --poison passages.jsonl     how often a poisoned memory reaches the pack, with trust on and off
  perdure eval --use                       whether an answer rests on a cue, by the rules that notice it
  perdure eval --scanner                   attacks found and false alarms, on 153 texts that come with Perdure
  perdure eval --scanner texts.jsonl       on texts of yours: text, label (1 an attack), kind, lang""",
)
@click.argument("sources", metavar="[SOURCE]...", type=click.Path(exists=True, path_type=Path), nargs=-1)
@click.option("--keyword", is_flag=True, help="Without vectors: what words alone find.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the scratch home there.")
@click.option("--contradictions", is_flag=True, help="Ask what is true where two things were said.")
@click.option("--changes", is_flag=True, help="Ask for facts that changed, before and after memories are kept.")
@click.option("--stated", is_flag=True, help="Score the statements found under SOURCE against labels by hand.")
@click.option("--poison", is_flag=True, help="Ask for what poisoned passages among the memories falsify.")
@click.option("--use", is_flag=True, help="Ask whether answers rest on the cues that they were given.")
@click.option("--scanner", is_flag=True, help="Scan texts for orders to the model: what is found, and false alarms.")
@click.option("--half", type=click.Choice(("dev", "held-out")), help="Of --changes (dev unless named) or --stated.")
@click.option("--turns-alone", is_flag=True, help="Without the memories that are made of what people state.")
@click.option("--errors", is_flag=True, help="With --half dev: list what was missed or wrong.")
def eval_command(
    shell: Shell, sources: tuple[Path, ...], keyword: bool, keep: Path | None, half: str | None, errors: bool,
    turns_alone: bool, **suites: bool,
) -> None:  # fmt: skip
    """Measure recall on questions whose answers are known: what it finds, what reaches the pack, when it is silent,
    how long it takes; beside no memory, grep, keyword search, vectors alone and everything there is. Uses a scratch
    home and reads nothing of yours. What the questions that come with Perdure give is noted in your home, and the page
    shows how it changed.
    """
    asked = _Asked(sources, not keyword, keep, half.replace("-", "_") if half else None, errors, not turns_alone)
    with progress(shell, "measuring", None) as step:
        found = _measured(_suite(suites, asked), asked, step)
    is_kept = asked == _AS_IT_COMES and not any(suites.values()) and _kept(shell, found)
    if shell.as_json:
        shell.answer({**found.figures, **({} if any(suites.values()) else {"kept": is_kept})})
        return
    shell.out.print(found.text(), markup=False)
    if is_kept:
        shell.suggest([("perdure page", "see under Quality how it changed since it was measured before")])


def _kept(shell: Shell, found: _Report) -> bool:
    """Whether there is a home here that could keep what was measured; measuring needs none."""
    from perdure.eval import kept, report

    assert isinstance(found, report.Report)
    try:
        with shell.open() as home:
            kept.keep(home.journal(), found, machine=home.config.machine, now=datetime.now(UTC))
    except (HomeMissing, ThinHome, ReadOnlyHome):
        return False
    return True


def _suite(suites: Mapping[str, bool], asked: _Asked) -> str:
    """Which suite is asked for, "" for recall itself. Raises UsageError for what does not go together."""
    chosen = [name for name in SUITES if suites[name]]
    if len(chosen) > 1:
        raise UsageError(f"one at a time: {', '.join(f'--{name}' for name in chosen)}")
    suite = chosen[0] if chosen else ""
    if asked.half and suite not in ("changes", "stated"):
        raise UsageError("--half goes with --changes or --stated")
    if asked.errors and (suite not in ("changes", "stated") or asked.half != "dev"):
        raise UsageError("--errors goes with --half dev: of the other half only figures are shown")
    if suite == "changes" and asked.sources:
        raise UsageError("--changes makes its own messages: it takes no SOURCE")
    if suite in ("stated", "poison") and not asked.sources:
        raise UsageError(f"--{suite} needs a SOURCE")
    if suite != "stated" and len(asked.sources) > 1:
        raise UsageError("one SOURCE at a time")
    return suite


def _measured(suite: str, asked: _Asked, step: Callable[..., None]) -> _Report:
    """The report of a suite. They bring numpy and the models, which no other command needs."""
    if suite == "stated":
        from perdure.eval.stated import score

        return _with_errors(score.run(asked.sources, half=asked.half), asked)
    if suite == "poison":
        from perdure.eval import poison

        return poison.run(asked.sources[0], vectors=asked.vectors, progress=step)
    if suite == "use":
        from perdure.eval import use

        return use.run(asked.sources[0] if asked.sources else use.SHIPPED, progress=step)
    if suite == "scanner":
        from perdure.eval import scanner

        return scanner.run(asked.sources[0] if asked.sources else scanner.SHIPPED, progress=step)
    if suite == "changes":
        from perdure.eval import supersession

        found = supersession.run(asked.half or "dev", vectors=asked.vectors, home=asked.keep, progress=step)
        return _with_errors(found, asked)
    from perdure.eval import contradictions, report

    place = asked.sources[0] if asked.sources else None
    if suite == "contradictions":
        return contradictions.run(
            place or contradictions.SHIPPED, vectors=asked.vectors, home=asked.keep, stated=asked.stated,
            progress=step,
        )  # fmt: skip
    return report.run(
        place or report.SHIPPED, vectors=asked.vectors, home=asked.keep, stated=asked.stated, progress=step
    )


class _Checked(_Report, Protocol):
    def errors(self) -> str: ...


def _with_errors(found: _Checked, asked: _Asked) -> _Report:
    return _Errors(found) if asked.errors else found


class _Errors(NamedTuple):
    """A report that also lists what was missed or wrong."""

    found: _Checked

    @property
    def figures(self) -> Mapping[str, Any]:
        return {**self.found.figures, "errors": self.found.errors().splitlines()}

    def text(self) -> str:
        return f"{self.found.text()}\n\n{self.found.errors()}"
