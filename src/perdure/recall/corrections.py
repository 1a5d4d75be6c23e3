"""A later turn that states the same as an earlier one may correct it: it is told too, and before it.

Pure. Two turns may be alike without stating the same: in a conversation about one thing nearly all are. A turn that
restates another shares its words, and holds what the question asks about as far as the other does
(docs/evaluation/block.md, newer first).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from perdure.recall.diversify import Likeness

TimesByTurn: TypeAlias = "Mapping[str, datetime | None]"  # turn id -> when it was said
MIN_SHARED = 0.4  # of the words of the shorter of two turns, from which they may state the same
MIN_SESSION_TURNS = 2  # cues from which on a session is about what is asked
MIN_ASKED = 0.5  # of the question's words in the earlier turn that the later one holds


def restates(later_words: Collection[str], earlier_words: Collection[str], asked_words: Collection[str]) -> bool:
    """Return True if a later turn states what an earlier one states of the thing that is asked about.

    >>> restates({"staging", "moved", "port", "9090"}, {"staging", "listens", "port", "8080"}, {"staging", "port"})
    True
    >>> restates({"print", "server", "port", "9102"}, {"staging", "listens", "port", "8080"}, {"staging", "server"})
    False
    """
    later, earlier = set(later_words), set(earlier_words)
    n_shared, n_shorter = len(later & earlier), min(len(later), len(earlier))
    asked = earlier.intersection(asked_words)
    return bool(asked) and n_shared >= MIN_SHARED * n_shorter and len(asked & later) >= MIN_ASKED * len(asked)


def find_corrections(
    chosen: Sequence[str],
    turn_ids: Sequence[str],
    measure_likeness: Likeness,
    corrects: Callable[[str, str], bool],
    *,
    n_first: int,
) -> list[str]:
    """Return for each of the first chosen turns the turn most like it that corrects it and is not chosen yet.

    corrects: (later turn, earlier turn) -> whether the first may correct the second. Diversity leaves such turns out,
    because they are alike.
    """
    corrections: list[str] = []
    for chosen_id in chosen[:n_first]:
        later_ids = [
            turn_id for turn_id in turn_ids if turn_id not in {*chosen, *corrections} and corrects(turn_id, chosen_id)
        ]
        if later_ids:
            corrections.append(max(later_ids, key=lambda turn_id: measure_likeness(chosen_id, turn_id)))
    return corrections


def order_newer_first(chosen: Sequence[str], corrects: Callable[[str, str], bool]) -> list[str]:
    """Return the same turns, each moved before the first one that it corrects; otherwise in their order."""
    ordered: list[str] = []
    for turn_id in chosen:
        corrected_positions = (n for n, ordered_id in enumerate(ordered) if corrects(turn_id, ordered_id))
        ordered.insert(next(corrected_positions, len(ordered)), turn_id)
    return ordered


def put_latest_before(
    chosen: Sequence[str],
    turn_ids: Sequence[str],
    measure_likeness: Likeness,
    follows: Callable[[str, str], bool],
    *,
    n_first: int,
) -> list[str]:
    """Return the chosen turns; before each of the first ones stands the turn most like it that follows it.

    follows: (later turn, earlier turn) -> whether the first continues the second in a later session. A task is done by
    the rule in force, and a later session about the same may have changed the rule.
    """
    ordered = list(chosen)
    for chosen_id in chosen[:n_first]:
        later_ids = [turn_id for turn_id in turn_ids if turn_id != chosen_id and follows(turn_id, chosen_id)]
        if not later_ids:
            continue
        latest_id = max(later_ids, key=lambda turn_id: measure_likeness(chosen_id, turn_id))
        if latest_id not in ordered[: ordered.index(chosen_id)]:
            ordered = [turn_id for turn_id in ordered if turn_id != latest_id]
            ordered.insert(ordered.index(chosen_id), latest_id)
    return ordered


def put_later_sessions_first(
    chosen: Sequence[str], sessions: Mapping[str, str], times: TimesByTurn, is_strong: Callable[[str], bool]
) -> list[str]:
    """Return the chosen turns; those of sessions with several of them come first, the latest session before the others.

    sessions: turn id -> session, of turns that have one. is_strong: whether a turn answers well; a session counts only
    with such a turn. Two sessions about one thing are two states of it, and the later state is in force.
    """
    turns_by_session: dict[str, list[str]] = {}
    for turn_id in chosen:
        if turn_id in sessions and times.get(turn_id) is not None:
            turns_by_session.setdefault(sessions[turn_id], []).append(turn_id)
    told_at = {
        session: max(filter(None, map(times.get, turn_ids)))
        for session, turn_ids in turns_by_session.items()
        if len(turn_ids) >= MIN_SESSION_TURNS and any(map(is_strong, turn_ids))
    }
    latest_first = sorted(told_at, key=lambda session: told_at[session], reverse=True)
    first_ids = [turn_id for session in latest_first for turn_id in turns_by_session[session]]
    return first_ids + [turn_id for turn_id in chosen if turn_id not in first_ids] if len(told_at) > 1 else list(chosen)


def is_later(turn_id: str, other_id: str, times: TimesByTurn) -> bool:
    """Return True if a turn was said after another; False if one of them is undated."""
    said_at, other_said_at = times.get(turn_id), times.get(other_id)
    return said_at is not None and other_said_at is not None and said_at > other_said_at
