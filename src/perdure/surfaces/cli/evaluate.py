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

SUITES = (
    "block",
    "contradictions",
    "changes",
    "stated",
    "attacks",
    "use",
    "scanner",
    "store_size",
    "compaction",
    "mining",
)
_HALVED_SUITES = ("block", "changes", "stated", "compaction", "mining")


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
    summariser: Path | None = None  # file of a model, for --compaction
    answers: Path | None = None  # file of recorded answers, for --mining


_DEFAULT_REQUEST = _EvalRequest((), vectors=True, scratch_home=None, half=None, errors=False, stated=True)


@command(
    "eval",
    epilog="""\
  perdure eval                             the 106 questions of Perdure (about 10 s)
  perdure eval path/to/locomo10.json       the original file of LoCoMo
  perdure eval path/to/set --keep /tmp/h   a folder with docs.jsonl and queries.jsonl; keep the vectors
  perdure eval --keyword --json
  perdure eval --block path/to/set         what a model would read: answer told, first, silence, tokens
  perdure eval --block questions.jsonl transcripts/ --half dev --errors
  perdure eval --contradictions            statements that were later withdrawn
  perdure eval --changes --half third      facts that changed, from turns and from memories (about 2 min)
  perdure eval --stated                    statements found in the messages of Perdure, against labels by hand
  perdure eval --stated transcripts/       and in the messages there that have labels
  perdure eval --stated transcripts/ --half dev --errors
  perdure eval --attacks passages.jsonl    how often a false memory reaches the pack, with trust on and off
  perdure eval --use                       how well the rules notice that an answer used a cue
  perdure eval --store-size                what smaller stores of memories still answer (about 1 min)
  perdure eval --compaction                what a session knows after 1, 3 and 5 compactions (about 20 s)
  perdure eval --compaction transcripts/ --half held-out --keyword
  perdure eval --mining                    precision and recall of the rules on 160 messages, against labels by hand
  perdure eval --mining --answers FILE     and of the answers of a model that were recorded there
  perdure eval --mining --ask --answers FILE   first ask the miner of your settings, and record its answers
  perdure eval --scanner                   attacks found and false alarms, on the 153 texts of Perdure
  perdure eval --scanner texts.jsonl       on your texts; fields: text, label (1 = attack), kind, lang""",
)
@click.argument("sources", metavar="[SOURCE]...", type=click.Path(exists=True, path_type=Path), nargs=-1)
@click.option("--keyword", is_flag=True, help="Search only words, without vectors.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the scratch home in this folder.")
@click.option("--block", is_flag=True, help="Measure what a model would read, beside grep, keyword search and chance.")
@click.option("--contradictions", is_flag=True, help="Measure recall of statements that contradict each other.")
@click.option("--changes", is_flag=True, help="Measure recall of facts that changed, without and with memories.")
@click.option("--stated", is_flag=True, help="Compare the statements found in messages with labels made by hand.")
@click.option("--attacks", is_flag=True, help="Measure recall of false memories, from the passages in SOURCE.")
@click.option("--use", is_flag=True, help="Measure how well the rules notice that an answer used a cue.")
@click.option("--scanner", is_flag=True, help="Measure the injection scan: attacks found, and false alarms.")
@click.option("--store-size", is_flag=True, help="Measure what a smaller store of memories still answers.")
@click.option("--compaction", is_flag=True, help="Measure what a session still knows after compactions.")
@click.option(
    "--summariser",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --compaction: a GGUF file that also writes summaries.",
)
@click.option("--mining", is_flag=True, help="Measure the memories that a miner makes, against labels made by hand.")
@click.option(
    "--answers",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --mining: the recorded answers of a model.",
)
@click.option("--ask", is_flag=True, help="With --answers: ask your miner what has no answer there, and record it.")
@click.option(
    "--half",
    type=click.Choice(("dev", "held-out", "third", "fourth")),
    help="The half of the questions, for --changes and --compaction (default: dev), --stated, --mining or --block "
    "(default: both). Only --changes and --compaction have a third, only --compaction a fourth.",
)
@click.option("--turns-alone", is_flag=True, help="Do not make memories from the statements of people.")
@click.option("--errors", is_flag=True, help="With --half dev: list missed and wrong answers.")
def eval_command(
    shell: Shell, sources: tuple[Path, ...], keyword: bool, keep: Path | None, half: str | None, errors: bool,
    turns_alone: bool, summariser: Path | None, answers: Path | None, **suites: bool,
) -> None:  # fmt: skip
    """Measure recall on questions with known answers: hits found, hits in the pack, silence, time. The report compares
    recall with no memory, grep, keyword search, vectors alone, and the whole history. It uses a scratch home and reads
    none of your data. The result for the questions of Perdure is stored in your home, and the web page shows the
    changes over time.
    """
    request = _EvalRequest(
        sources, not keyword, keep, half.replace("-", "_") if half else None, errors, not turns_alone, summariser,
        answers,
    )  # fmt: skip
    has_to_ask = suites.pop("ask")
    suite = _choose_suite(suites, request)
    with show_progress(shell, "measuring", None) as step:
        if has_to_ask:
            _ask_miner(shell, request, step)
        report = _run_suite(suite, request, step)
    is_stored = request == _DEFAULT_REQUEST and not any(suites.values()) and _store_measurement(shell, report)
    if shell.as_json:
        shell.print_json({**report.figures, **({} if any(suites.values()) else {"kept": is_stored})})
        return
    shell.out.print(report.text(), markup=False)
    if is_stored:
        shell.suggest([("perdure page", "compare with earlier measurements, under Quality")])


def _ask_miner(shell: Shell, request: _EvalRequest, step: Callable[..., None]) -> None:
    """Ask the miner of the home about each batch without an answer, and record its answers."""
    from perdure.eval import mining_quality

    if request.answers is None:
        raise UsageError("--ask needs --mining --answers FILE, where the answers are recorded")
    with shell.open_home() as home:
        chat = home.chat("miner", job="eval")
        if chat is None:
            raise UsageError("models.roles.miner names no model to ask")
        mining_quality.record_answers(mining_quality.make_batches(), chat, request.answers, progress=step)


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
        raise UsageError(f"give only one of these options: {', '.join(map(_name_option, named_suites))}")
    suite = named_suites[0] if named_suites else ""
    if request.half and suite not in _HALVED_SUITES:
        raise UsageError("--half needs --block, --changes, --stated, --mining or --compaction")
    if request.half == "third" and suite not in ("changes", "compaction"):
        raise UsageError("--half third needs --changes or --compaction: the other suites have two halves")
    if request.half == "fourth" and suite != "compaction":
        raise UsageError("--half fourth needs --compaction: the other suites have no fourth part")
    if request.errors and (suite not in _HALVED_SUITES or request.half != "dev"):
        raise UsageError("--errors needs --half dev: the other half shows only figures")
    if suite == "changes" and request.sources:
        raise UsageError("--changes makes its own messages: it takes no SOURCE")
    if suite in ("block", "attacks") and not request.sources:
        raise UsageError(f"{_name_option(suite)} needs a SOURCE")
    if request.summariser and suite != "compaction":
        raise UsageError("--summariser needs --compaction")
    if request.answers and suite != "mining":
        raise UsageError("--answers needs --mining")
    if suite not in ("block", "stated", "compaction") and len(request.sources) > 1:
        raise UsageError("give only one SOURCE")
    return suite


def _name_option(suite: str) -> str:
    return f"--{suite.replace('_', '-')}"


def _run_suite(suite: str, request: _EvalRequest, step: Callable[..., None]) -> _SuiteReport:
    """Run a suite; return its report. Suites import numpy and the models, which no other command needs."""
    if suite in _HALVED_SUITES:
        return _add_errors(_run_halved_suite(suite, request, step), request)
    if suite in ("attacks", "scanner"):
        from perdure.eval import attacks

        return (
            attacks.run_poison(request.sources[0], vectors=request.vectors, progress=step)
            if suite == "attacks"
            else attacks.run_scanner(request.sources[0] if request.sources else attacks.SHIPPED_TEXTS, progress=step)
        )
    if suite == "use":
        from perdure.eval import cue_use_quality

        return cue_use_quality.run(request.sources[0] if request.sources else cue_use_quality.SHIPPED, progress=step)
    if suite == "store_size":
        from perdure.eval import store_size

        return store_size.run(*request.sources, vectors=request.vectors, home=request.scratch_home, progress=step)
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


def _run_halved_suite(suite: str, request: _EvalRequest, step: Callable[..., None]) -> _ReportWithMistakes:
    """Run a suite with a half that nobody looks at."""
    options: dict[str, Any] = {"vectors": request.vectors, "home": request.scratch_home, "progress": step}
    if suite == "stated":
        from perdure.eval import statement_quality

        return statement_quality.run(request.sources, half=request.half)
    if suite == "mining":
        from perdure.eval import mining_quality

        return mining_quality.run(request.answers, half=request.half)
    if suite == "block":
        from perdure.eval import block_quality

        return block_quality.run(request.sources, half=request.half, **options)
    if suite == "changes":
        from perdure.eval import supersession

        return supersession.run(request.half or "dev", **options)
    from perdure.eval import compaction

    summariser = compaction.open_summariser(request.summariser) if request.summariser else None
    return compaction.run(request.sources, half=request.half or "dev", model=summariser, **options)


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
