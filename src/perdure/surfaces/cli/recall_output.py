"""The lines that `recall` prints on a terminal. `recall` loads them while the resident home answers."""

from __future__ import annotations

from datetime import datetime

from rich.console import Console
from rich.text import Text

from perdure import text
from perdure.placed_turns import label_with_owner
from perdure.surfaces.cli.common import ROLE_STYLES, Shell, format_count, format_time, format_time_and_age
from perdure.types import Cue, Recalled


def print_notices(shell: Shell, recalled: Recalled, mode: str | None) -> None:
    """Print what the person should know about this recall: what it lacked, and what it left out."""
    if "vector" in recalled.degraded:
        shell.note("Vectors were not available: only words were searched. `perdure doctor` shows the reason.")
    elif (
        mode != "keyword"
        and recalled.timings_ms
        and shell.load_thin_rules() is None
        and "compute" not in recalled.timings_ms
    ):
        shell.note("Only words were searched: there are no vectors yet. `perdure embed` makes them.")
    if recalled.held_back:
        names = ", ".join(f"{name} ({finding.rule})" for name, finding in recalled.held_back.items())
        shell.note(
            "Left out, because the text reads like an instruction to a model: "
            f"{names}. `perdure floor alerts` shows it."
        )
    if "helper" in recalled.degraded:
        shell.note("The helper model failed or was late, so rules were used. `perdure models test helper` tests it.")
    if "behind" in recalled.degraded:
        shell.note("Some captures are not indexed yet. Try again in a moment.")


def print_cue(out: Console, cue: Cue, number: int, n_chars: int | None, *, now: datetime, explain: bool) -> None:
    """Print a cue, its source and the reason for the choice; n_chars: most of its text, None for all."""
    header = Text("\n" if number else "")
    header.append(f"{number + 1}. ", style="bold")
    owner = cue.user if cue.is_shared else ""
    time_text = format_time_and_age(cue.stated_at, now)
    if cue.memory is not None:
        header.append(f"memory, {cue.memory.kind}", style="magenta")
        location = f"{label_with_owner(_get_speaker_label(cue.memory.trust), owner, '')}"
    else:
        header.append(label_with_owner(cue.role, owner, ""), style=ROLE_STYLES[cue.role])
        location = f"{cue.runtime} @{cue.machine}" + (f"  {_get_speaker_label('web')}" if cue.is_from_web else "")
        location += f"  {text.PICTURE_LABEL}" if cue.is_in_picture else ""
    if cue.project:
        header.append(f"  {text.shorten_project(cue.project)}", style="bold cyan")
    header.append(text.printable(f"  {time_text}  {location}  {cue.turn_id}"), style="dim")
    out.print(header)
    if cue.before:
        out.print(Text(f"   > {text.one_line(cue.before, 200)}", style="dim"))
    cue_text = text.printable(cue.text) if n_chars is None else text.clip(text.printable(cue.text), n_chars)
    out.print(Text("\n".join(f"   {line}" for line in cue_text.splitlines())))
    if cue.note:
        out.print(Text(f"   ({text.one_line(cue.note, 400)})", style="cyan"))
    out.print(Text(f"   because it {'; '.join(cue.why) or 'matches best'}", style="yellow"))
    if explain:
        legs = ", ".join(f"{name} {value:.3f}" for name, value in cue.legs.items())
        out.print(Text(f"   score {cue.score:.3f} ({legs}), {format_count(cue.n_tokens, 'token')}", style="dim"))


def _get_speaker_label(trust: str) -> str:
    from perdure.recall.pack import SPEAKER_LABELS  # with it, all of recall: 10 ms that most answers do not need

    return SPEAKER_LABELS[trust]


def print_plan(out: Console, recalled: Recalled) -> None:
    """Print what was searched for, and the time that each step took."""
    plan = recalled.plan
    rows = {
        "searched for": " | ".join(plan.queries),
        "names": ", ".join(plan.names),
        "question": plan.intent,
        "relevance": _format_relevance(recalled),
        "times": ", ".join(
            f"{window.words} = {format_time(window.since_at)} to {format_time(window.until_at)}"
            for window in plan.windows
        ),
        "whose words": ", ".join(plan.speakers),
        "took": ", ".join(f"{step} {ms:.1f} ms" for step, ms in recalled.timings_ms.items()),
        "tokens": f"{recalled.n_tokens:,}",
    }
    out.print()
    for name, value in rows.items():
        if value:
            out.print(f"{name + ':':<14}{text.printable(value)}", style="dim", markup=False)


def _format_relevance(recalled: Recalled) -> str:
    if recalled.relevance is None or recalled.threshold is None:
        return ""
    return f"{recalled.relevance:.2f}, recall speaks from {recalled.threshold:.2f} on"
