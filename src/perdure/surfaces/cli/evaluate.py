"""The command `eval`: measure what memory finds, keeps and answers, on sets whose answers are known."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from perdure.errors import HomeMissing, ReadOnlyHome, ThinHome, UsageError
from perdure.surfaces.cli.common import Shell, command, show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SUITES = ("contradictions", "changes", "stated", "poison", "use", "scanner")


class _SuiteReport(Protocol):
    @property
    def figures(self) -> Mapping[str, Any]: ...
    def text(self) -> str: ...


class _EvalRequest(NamedTuple):
    """The options of one `perdure eval`."""

    sources: tuple[Path, ...]
    vectors: bool
    scratch_home: Path | None
    half: str | None  # half of the set, for --changes and --stated
    errors: bool
    stated: bool  # True: statements of people become memories


_DEFAULT_REQUEST = _EvalRequest((), vectors=True, scratch_home=None, half=None, errors=False, stated=True)


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
    """Measure recall on questions whose answers are known: what it finds, what reaches the pack, when it is
    silent, how long it takes. It is compared with no memory, grep, keyword search, vectors alone and everything
    there is. Uses a scratch home and reads nothing of yours. The result of the questions that come with Perdure
    is stored in your home, and the page shows how it changes.
    """
    request = _EvalRequest(
        sources, not keyword, keep, half.replace("-", "_") if half else None, errors, not turns_alone
    )
    with show_progress(shell, "measuring", None) as step:
        report = _run_suite(_choose_suite(suites, request), request, step)
    is_stored = request == _DEFAULT_REQUEST and not any(suites.values()) and _store_measurement(shell, report)
    if shell.as_json:
        shell.print_json({**report.figures, **({} if any(suites.values()) else {"kept": is_stored})})
        return
    shell.out.print(report.text(), markup=False)
    if is_stored:
        shell.suggest([("perdure page", "see under Quality how it changed since it was measured before")])


def _store_measurement(shell: Shell, suite_report: _SuiteReport) -> bool:
    """Store the measurement in the home; return False if there is no home that can keep it. Measuring needs none."""
    from perdure.eval import recall_quality

    assert isinstance(suite_report, recall_quality.RecallReport)
    try:
        with shell.open_home() as home:
            recall_quality.store_measurement(
                home.journal(), suite_report, machine=home.config.machine, now=datetime.now(UTC)
            )
    except (HomeMissing, ThinHome, ReadOnlyHome):
        return False
    return True


def _choose_suite(suites: Mapping[str, bool], request: _EvalRequest) -> str:
    """Return the suite that the options name, "" for recall itself. Raises UsageError for options that do not go
    together.
    """
    named_suites = [name for name in SUITES if suites[name]]
    if len(named_suites) > 1:
        raise UsageError(f"one at a time: {', '.join(f'--{name}' for name in named_suites)}")
    suite = named_suites[0] if named_suites else ""
    if request.half and suite not in ("changes", "stated"):
        raise UsageError("--half goes with --changes or --stated")
    if request.errors and (suite not in ("changes", "stated") or request.half != "dev"):
        raise UsageError("--errors goes with --half dev: of the other half only figures are shown")
    if suite == "changes" and request.sources:
        raise UsageError("--changes makes its own messages: it takes no SOURCE")
    if suite in ("stated", "poison") and not request.sources:
        raise UsageError(f"--{suite} needs a SOURCE")
    if suite != "stated" and len(request.sources) > 1:
        raise UsageError("one SOURCE at a time")
    return suite


def _run_suite(suite: str, request: _EvalRequest, step: Callable[..., None]) -> _SuiteReport:
    """Run a suite; return its report. Suites import numpy and the models, which no other command needs."""
    if suite == "stated":
        from perdure.eval import statement_quality

        return _add_errors(statement_quality.run(request.sources, half=request.half), request)
    if suite == "poison":
        from perdure.eval import attacks

        return attacks.run_poison(request.sources[0], vectors=request.vectors, progress=step)
    if suite == "use":
        from perdure.eval import cue_use_quality

        return cue_use_quality.run(request.sources[0] if request.sources else cue_use_quality.SHIPPED, progress=step)
    if suite == "scanner":
        from perdure.eval import attacks

        return attacks.run_scanner(request.sources[0] if request.sources else attacks.SHIPPED_TEXTS, progress=step)
    if suite == "changes":
        from perdure.eval import supersession

        suite_report = supersession.run(
            request.half or "dev", vectors=request.vectors, home=request.scratch_home, progress=step
        )
        return _add_errors(suite_report, request)
    from perdure.eval import contradictions, recall_quality

    source = request.sources[0] if request.sources else None
    if suite == "contradictions":
        return contradictions.run(
            source or contradictions.SHIPPED,
            vectors=request.vectors,
            home=request.scratch_home,
            stated=request.stated,
            progress=step,
        )
    return recall_quality.run(
        source or recall_quality.SHIPPED,
        vectors=request.vectors,
        home=request.scratch_home,
        stated=request.stated,
        progress=step,
    )


class _ReportWithMistakes(_SuiteReport, Protocol):
    def errors(self) -> str: ...


def _add_errors(suite_report: _ReportWithMistakes, request: _EvalRequest) -> _SuiteReport:
    return _VerboseReport(suite_report) if request.errors else suite_report


class _VerboseReport(NamedTuple):
    """A report that also lists what was missed or wrong."""

    report: _ReportWithMistakes

    @property
    def figures(self) -> Mapping[str, Any]:
        return {**self.report.figures, "errors": self.report.errors().splitlines()}

    def text(self) -> str:
        return f"{self.report.text()}\n\n{self.report.errors()}"
