"""Answers to events, with a home whose recall is scripted."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import log
from perdure.access import fence
from perdure.archive import injections as injected
from perdure.archive.journal import Journal
from perdure.capture.events import HookEvent
from perdure.config import Config, LiveConfig
from perdure.errors import IndexDamaged
from perdure.floor.layers import Layer, Layers
from perdure.text import tokens
from perdure.turn import (
    MAX_BLOCK_CHARS,
    REMINDER,
    ReplyDeadline,
    answer_alone,
    answer_event,
    count_js_chars,
    find_skip_reason,
    read_failure,
    render_block,
)
from perdure.types import Cue, Plan, Recalled

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROMPT = HookEvent("claude-code", "prompt", "s1", prompt="which port does staging use?")
VERDICT = {"relevance": 0.41, "threshold": 0.33, "coverage": 0.5, "spoke_by": "relevance", "judged_for": "minilm"}


def cue(turn: str, words: str = "Port 8642.") -> Cue:
    at = datetime(2026, 1, 15, 9, tzinfo=UTC)
    return Cue(turn, "run", "c", "user", at, "laptop", "pi", words, 0.9, {"keyword": 0.9}, ("its words match",))


class Home:
    """A home whose recall gives these cues, but for those that the session holds; an exception is raised."""

    def __init__(self, path: Path, cues: tuple[Cue, ...] = (), *, live: LiveConfig | None = None) -> None:
        self.path = path
        self.user = "ada"
        self.config = Config(user="ada", live=live or LiveConfig())
        self.cues = cues
        self.error: Exception | None = None
        self.asked: list[dict[str, Any]] = []
        self.refused: str | None = None
        self.pages: dict[str, str] = {}
        self.unknown: tuple[str, ...] = ()
        self.platforms: list[str] = []
        self.notices: dict[str, str] = {}
        self.captures = self.floor = self  # its rooms

    def journal(self) -> Journal:
        return Journal(self.path / "archive" / "journal" / "ada", home=self.path)

    def refusal(self, origin: Any) -> str | None:
        return self.refused

    def layers(self, *, cwd: str | None, platform: str, now: datetime) -> Layers:
        self.platforms.append(platform)
        found = [Layer(name, "", f"{name}.md", said) for name, said in self.pages.items()]
        return Layers((*found, Layer("system", "", "system.md", "", unknown_variables=self.unknown)))

    def find_notices(self, now: datetime) -> dict[str, str]:
        return self.notices

    def location_line(self, *, cwd: str | None, now: datetime, lead: str) -> str:
        return f"{lead}: {now:%Y-%m-%d}."

    def recall(self, message: str, **how: Any) -> Recalled:
        self.asked.append({"message": message, **how})
        if self.error:
            raise self.error
        fresh = tuple(c for c in self.cues if c.turn_id not in how["already"])
        plan, silent = Plan(message, how["now"], ("q",)), "" if fresh else "nothing"
        return Recalled(fresh, plan, silent, timings_ms={"cues": 1.5}, **VERDICT)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, (cue("t1"), cue("t2")))


def ask(home: Home, event: HookEvent = PROMPT, **how: Any):
    return answer_event(home, event, limit_ms=5_000, now=how.pop("now", NOW), **how)


def injections(home: Home) -> list[dict[str, Any]]:
    return [event.data for event in home.journal().read(type_=injected.EVENT_TYPE) if not injected.is_floor(event)]


def floors(home: Home) -> list[dict[str, Any]]:
    return [event.data for event in home.journal().read(type_=injected.EVENT_TYPE) if injected.is_floor(event)]


def test_person_is_told_of_recall_unless_switched_off(home: Home) -> None:
    assert ask(home).notice
    silent = Home(home.path, (cue("t1"),), live=LiveConfig(notice=False))
    said = ask(silent, PROMPT._replace(session="s2"))
    assert said.text and said.notice == ""
    said = ask(Home(home.path, (cue("t1"),), live=LiveConfig(subagents=True)), PROMPT._replace(agent="a1"))
    assert said.text and said.notice == ""
    assert ask(Home(home.path), PROMPT._replace(session="s3")).notice == ""


def test_shadow_records_recall_and_gives_nothing(home: Home) -> None:
    settings = LiveConfig(shadow=True, remind_every=1)
    shadow = Home(home.path, home.cues, live=settings)
    shadow.pages = {"profile": "Ada."}
    for event in (START, PROMPT, PROMPT):
        reply = ask(shadow, event)
        assert (reply.text, reply.notice) == ("", "")
    (recorded,) = shadow.journal().read(type_=injected.SHADOW)  # once, as a block that is told
    assert recorded.data["turns"] == ["t1", "t2"] and "Port" not in str(recorded.data)
    assert {name: recorded.data[name] for name in VERDICT} == VERDICT
    assert injections(shadow) == floors(shadow) == []
    assert injected.list_unjudged(shadow.journal(), since_at=NOW - timedelta(days=1)) == []
    answered = log.read_entries(home.path, entry_type="answered")
    assert [entry["outcome"] for entry in answered] == ["nothing", "shadow", "silent"]


def test_cue_recorded_in_shadow_is_told_later(home: Home) -> None:
    ask(Home(home.path, home.cues, live=LiveConfig(shadow=True)))
    reply = ask(home)
    assert "turn t1" in reply.text and "turn t2" in reply.text and reply.notice
    (told,) = injections(home)
    assert told["turns"] == ["t1", "t2"] and "relevance" not in told
    assert ask(home).text == ""


def test_prompt_gets_fenced_cues_and_the_journal_holds_no_words(home: Home) -> None:
    said = ask(home)
    assert said.notice.startswith("Perdure remembered 2: `perdure why`") and "remembered" not in said.text
    assert "[2026-01-15 09:00 · user · pi @laptop · turn t1]\nPort 8642." in said.text
    (event,) = injections(home)
    assert event["turns"] == ["t1", "t2"]
    assert (event["runtime"], event["session"]) == ("claude-code", "s1")
    assert event["digest"] == fence.hash_block(said.text)
    assert event["nonce"] in said.text
    raw = b"".join(path.read_bytes() for path in home.journal().list_files())
    assert b"8642" not in raw and b"staging" not in raw
    assert b"8642" not in log.to_log_path(home.path).read_bytes()


def test_cue_is_injected_once_per_session_across_processes(home: Home) -> None:
    ask(home)
    restarted = Home(home.path, (cue("t1"), cue("t3")))
    assert "turn t3" in ask(restarted).text
    assert restarted.asked[0]["already"] == {"t1", "t2"}
    assert ask(Home(home.path, (cue("t1"),))).text == ""
    other = Home(home.path, (cue("t1"),))
    assert "turn t1" in ask(other, PROMPT._replace(session="s2")).text
    agent = Home(home.path, (cue("t1"),), live=LiveConfig(subagents=True))
    assert "turn t1" in ask(agent, PROMPT._replace(agent="a1", is_human=False)).text


def test_session_may_be_set_to_repeat_cues(tmp_path: Path) -> None:
    home = Home(tmp_path, (cue("t1"),), live=LiveConfig(repeat="turn"))
    assert ask(home).text and ask(home).text


@pytest.mark.parametrize(
    "emptied",
    [
        HookEvent("claude-code", "start", "s1", cause="compact"),
        HookEvent("claude-code", "start", "s1", cause="clear"),
        HookEvent("pi", "after-compact", "s1", cause="manual"),
    ],
)
def test_cues_may_return_after_a_compaction_or_a_clear(home: Home, emptied: HookEvent) -> None:
    prompt = PROMPT._replace(client=emptied.client)
    ask(home, prompt)
    later = NOW + timedelta(minutes=5)
    ask(home, emptied, now=later)
    assert "turn t1" in ask(home, prompt, now=later).text
    assert home.asked[-1]["already"] == frozenset()
    assert home.asked[-1]["session"].since_at == later


def test_resumed_session_still_holds_its_cues(home: Home) -> None:
    ask(home)
    ask(home, HookEvent("claude-code", "start", "s1", cause="resume"))
    assert ask(home).text == ""
    assert home.asked[-1]["session"].since_at is None


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (PROMPT._replace(is_human=False), "machine turn"),
        (PROMPT._replace(prompt="<task-notification>done</task-notification>"), "machine turn"),
        (PROMPT._replace(agent="a1", is_human=False), "sub-agent"),
        (PROMPT._replace(prompt="/help"), "slash command"),
        (PROMPT._replace(prompt="/gsd:plan the port"), "slash command"),
        (PROMPT._replace(prompt="  \n"), "empty"),
        (PROMPT._replace(prompt="/etc/hosts says what of staging?"), ""),
        (PROMPT, ""),
    ],
)
def test_only_messages_of_a_person_are_answered(home: Home, event: HookEvent, reason: str) -> None:
    assert find_skip_reason(event, home.config) == reason
    assert bool(ask(home, event).text) == (not reason)
    assert len(home.asked) == (not reason)


def test_incognito_session_gets_nothing_and_leaves_no_record(home: Home) -> None:
    home.refused = "incognito session"
    assert ask(home).text == ""
    ask(home, HookEvent("claude-code", "start", "s1", cause="compact"))
    assert home.journal().list_files() == []


def test_failure_is_told_once_and_counted_until_it_passes(home: Home) -> None:
    home.error = IndexDamaged("index.db")
    first, second = ask(home), ask(home)
    assert (first.text, second.text, second.notice) == ("", "", "")
    assert "index-damaged" in first.notice and "\n" not in first.notice
    assert read_failure(home.path) == "index-damaged"
    assert [line["code"] for line in log.read_entries(home.path, entry_type="failed")] == ["index-damaged"] * 2
    home.error = None
    assert ask(home).text and read_failure(home.path) == ""
    home.error = IndexDamaged("index.db")
    assert ask(home).notice


def test_late_answer_is_neither_given_nor_recorded(home: Home) -> None:
    slot = ReplyDeadline(5_000)
    assert slot.give_up()
    assert ask(home, deadline=slot).text == ""
    assert injections(home) == []
    assert [line["outcome"] for line in log.read_entries(home.path, entry_type="answered")] == ["late"]


def test_a_block_stays_below_both_limits_and_keeps_the_best(home: Home) -> None:
    wide = [cue(f"t{n}", "😀" * 600) for n in range(12)]
    text, kept = render_block(wide, "0123456789abcdef")
    assert count_js_chars(text) < MAX_BLOCK_CHARS and tokens(text) <= 2000
    assert [c.turn_id for c in kept] == [f"t{n}" for n in range(len(kept))] and 0 < len(kept) < 12
    assert render_block([cue("t", "x" * 20_000)], "0123456789abcdef") == ("", ())


def test_missing_home_gives_no_answer_and_is_not_created(tmp_path: Path) -> None:
    assert answer_alone(tmp_path / "none", PROMPT, limit_ms=2_000) == {"text": "", "notice": ""}
    assert not (tmp_path / "none").exists()


def test_answer_without_a_resident_keeps_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, ended = threading.Event(), []
    monkeypatch.setattr("perdure.turn._answer_in_thread", lambda *_: ended.append(released.wait(30)))
    assert answer_alone(tmp_path, PROMPT, limit_ms=100) == {"text": "", "notice": ""}
    assert ended == []  # it came while the work went on
    released.set()


# the reminder ---------------------------------------------------------------------------------------------------


@pytest.fixture
def reminding(tmp_path: Path) -> Home:
    return Home(tmp_path, live=LiveConfig(remind_every=3))


def reminded(home: Home, **event) -> bool:
    return REMINDER in ask(home, PROMPT._replace(**event)).text


def test_nine_messages_give_three_reminders(reminding: Home) -> None:
    said = [reminded(reminding) for _ in range(9)]
    assert [n for n, is_said in enumerate(said, start=1) if is_said] == [1, 4, 7]


def test_only_a_persons_messages_count(reminding: Home) -> None:
    assert reminded(reminding)
    reminding.config = type(reminding.config)(live=LiveConfig(remind_every=3, machine_turns=True, subagents=True))
    assert not any(reminded(reminding, is_human=False) for _ in range(3))
    assert not any(reminded(reminding, agent="a1") for _ in range(3))
    assert not any(reminded(reminding, prompt="/clear") for _ in range(3))
    assert [reminded(reminding) for _ in range(3)] == [False, False, True]


def test_each_session_counts_alone_and_a_new_process_continues(reminding: Home) -> None:
    assert reminded(reminding)
    assert reminded(reminding, session="other")
    again = Home(reminding.path, live=LiveConfig(remind_every=3))
    assert [reminded(again) for _ in range(3)] == [False, False, True]


def test_reminder_follows_the_cues_in_one_removable_block(reminding: Home) -> None:
    reminding.cues = (cue("t1"),)
    text = ask(reminding).text
    assert text.index("Port 8642.") < text.index(REMINDER)
    (event,) = injections(reminding)
    assert event["digest"] == fence.hash_block(text)
    assert fence.remove_blocks(f"before {text}", {event["nonce"]: event["digest"]}) == "before"


def test_reminder_is_off_by_default(tmp_path: Path) -> None:
    home = Home(tmp_path, live=LiveConfig(floor=False))
    assert [ask(home).text for _ in range(3)] == ["", "", ""]
    assert home.journal().list_files() == []


# the floor ------------------------------------------------------------------------------------------------------

START = HookEvent("claude-code", "start", "s1", cwd="/w", cause="startup")


@pytest.fixture
def floored(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.pages = {"profile": "Ada likes tea.", "core": "Never push to main."}
    return home


def test_session_start_gets_a_fenced_floor_and_journals_no_words(floored: Home) -> None:
    said = ask(floored, START)
    assert said.text.count("begins]") == 1 and fence.FLOOR_WARNING in said.text
    assert "As of: 2026-03-01.\n\n# profile\n\nAda likes tea.\n\n# core\n\nNever push" in said.text
    (event,) = floors(floored)
    assert (event["digest"], event["turns"]) == (fence.hash_block(said.text), [])
    assert fence.remove_blocks(f"x {said.text}", {event["nonce"]: event["digest"]}) == "x"
    assert b"tea" not in b"".join(path.read_bytes() for path in floored.journal().list_files())
    assert floored.platforms == ["claude-code"]


def test_proposed_change_is_told_once(floored: Home) -> None:
    floored.notices = {"edit-1": "a change of system.md is proposed"}
    assert "Perdure: a change of system.md is proposed." in ask(floored, START).notice
    assert "proposed" not in ask(floored, START._replace(session="s2")).notice


@pytest.mark.parametrize(
    ("then", "is_given"),
    [
        (START._replace(cause="resume"), False),
        (START._replace(cause="startup"), False),
        (START._replace(cause="compact"), True),
        (START._replace(cause="clear"), True),
        (PROMPT, False),
        (START._replace(session="s2"), True),
        (START._replace(session="s2", cause="fork"), False),  # the client replays what it copied
    ],
)
def test_session_gets_its_floor_once_until_its_context_is_empty(floored: Home, then: HookEvent, is_given: bool) -> None:
    assert ask(floored, START).text
    restarted = Home(floored.path)
    restarted.pages = {"core": "Other words."}
    assert ("Other words." in ask(restarted, then).text) == is_given


def test_forked_session_gets_its_floor_when_it_is_emptied(floored: Home) -> None:
    assert not ask(floored, START._replace(cause="fork")).text
    assert not ask(floored, START._replace(cause="resume")).text
    assert ask(floored, START._replace(cause="compact")).text


def test_pi_gets_the_whole_floor_after_a_compaction(floored: Home) -> None:
    floored.pages["core"] = "\n".join(f"Rule {n}: {'word ' * 20}" for n in range(200))
    pi = START._replace(client="pi")
    assert "Rule 199:" in ask(floored, pi).text
    assert not ask(floored, pi._replace(cause="resume")).text
    assert "Rule 199:" in ask(floored, pi._replace(kind="after-compact")).text
    short = ask(floored, START).text
    assert count_js_chars(short) < MAX_BLOCK_CHARS and "the rest of core" in short and "Ada likes tea." in short


def test_missed_floor_comes_before_the_recalled_cues(floored: Home) -> None:
    floored.cues = (cue("t1"),)
    text = ask(floored).text
    assert text.index("Ada likes tea.") < text.index("Port 8642.")
    assert len(floors(floored)) == len(injections(floored)) == 1
    assert "Ada" not in ask(floored, PROMPT._replace(prompt="and the other port?")).text


def test_both_have_room_where_a_client_cuts(floored: Home) -> None:
    floored.pages = {"core": "\n".join(f"Rule {n}: {'word ' * 20}" for n in range(200))}
    floored.cues = tuple(cue(f"t{n}", "x" * 900) for n in range(12))
    text = ask(floored).text
    assert count_js_chars(text) < MAX_BLOCK_CHARS + 10 and "Rule 0" in text and "turn t0" in text


def test_empty_floor_is_silent_until_the_next_session(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert ask(home, START).text == ""
    home.pages = {"core": "New."}
    assert ask(home).text == "" and ask(home, START._replace(cause="resume")).text == ""
    assert "New." in ask(home, START._replace(session="s2")).text


@pytest.mark.parametrize(
    ("event", "live"),
    [
        (START._replace(agent="a1"), LiveConfig()),
        (START, LiveConfig(floor=False)),
        (PROMPT, LiveConfig(floor=False)),
        (PROMPT._replace(is_human=False), LiveConfig()),
        (START._replace(kind="turn-end"), LiveConfig()),
    ],
)
def test_sub_agents_and_disabled_sessions_get_no_floor(floored: Home, event: HookEvent, live: LiveConfig) -> None:
    floored.config = Config(live=live)
    assert ask(floored, event).text == "" and floors(floored) == []


def test_sub_agent_gets_a_floor_if_set(floored: Home) -> None:
    floored.config = Config(live=LiveConfig(subagents=True))
    assert ask(floored, START._replace(agent="a1")).text and ask(floored, START).text
    assert not ask(floored, START._replace(agent="a1")).text


def test_missed_floor_is_given_with_recall_off(floored: Home) -> None:
    floored.config, floored.cues = Config(live=LiveConfig(recall=False)), (cue("t1"),)
    assert "Ada likes tea." in ask(floored).text
    assert ask(floored).text == "" and floored.asked == []


def test_a_session_off_the_record_gets_no_floor(floored: Home) -> None:
    floored.refused = "incognito session"
    assert ask(floored, START).text == "" and floored.journal().list_files() == []


def test_late_floor_counts_as_not_given(floored: Home) -> None:
    slot = ReplyDeadline(5_000)
    assert slot.give_up()
    assert ask(floored, START, deadline=slot).text == "" and floors(floored) == []
    assert ask(floored).text


def test_left_out_text_is_reported_once(floored: Home) -> None:
    floored.unknown = ("mood",)
    told = ask(floored, START).notice
    assert (
        "system.md: there is no value for {{mood}}" in told and "perdure floor alerts" not in told and "\n" not in told
    )
    assert ask(floored, START._replace(session="s2")).notice == ""
    floored.unknown = ("weather",)
    assert "{{weather}}" in ask(floored, START._replace(session="s3")).notice
