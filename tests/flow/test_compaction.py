"""Sessions that outgrow the window of their model: masks, summaries, recall after them, and what goes wrong."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure.errors import ContextTooLarge, ModelBusy, ModelRefused
from perdure.formats.perdure import AnyEntry, Boundary, ImageEntry, Mask, Message
from perdure.models.chat import ChatMessage, ChatReply, NativeBlocks, ToolCall, ToolSpec
from perdure.session.assemble import assemble_messages, assemble_zones
from perdure.session.bill import make_bill
from perdure.session.calls import Tool, ToolOutput
from perdure.session.catalog import read_overview
from perdure.session.log import read_path
from perdure.session.session import Session, TurnListener, open_session
from perdure.session.summary import parse_summary
from perdure.surfaces.cli import cli
from perdure.testing import Question, ScriptedChat
from perdure.types import ForgetRequest

TOPICS = "harbour lantern ferry quay crane pilot beacon tide anchor winch hull rudder sail mast keel rope".split()
SPEC = ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def chatter(number: int, n_words: int = 60) -> str:
    """A message that decides nothing, and no two are alike."""
    pick = random.Random(number)
    return " ".join(pick.choice(TOPICS) for _ in range(n_words)) + f" nr{number}?"


class StrictChat(ScriptedChat):
    """A model whose endpoint refuses a bad order of roles, as strict templates do, and too long a question."""

    def reply(self, messages: Sequence[ChatMessage], **how: Any) -> ChatReply:
        roles = [message.role for message in messages]
        assert "system" not in roles[1:]
        talk = [role for role in roles if role != "system"]
        assert talk[0] == "user" and talk[-1] in ("user", "tool")
        open_calls: set[str] = set()
        for message, role, before in zip(messages[len(roles) - len(talk) :], talk, ["", *talk], strict=False):
            assert role != before or role == "tool", talk
            assert (role == "tool") == bool(open_calls), talk
            if role == "tool":
                open_calls.remove(message.call_id)
            open_calls |= {call.id for call in message.calls}
        assert sum(len(message.text) for message in messages) / 6 < self.window_tokens
        return super().reply(messages, **how)


class Told(list[str]):
    def listener(self) -> TurnListener:
        return TurnListener(on_compact=self.append)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def strict() -> Callable[..., StrictChat]:
    return lambda answers=(), window=8192, **how: StrictChat(answers, window_tokens=window, **how)


def fill(session: Session, n_rounds: int, told: Told | None = None, *, first: int = 0) -> None:
    for number in range(first, first + n_rounds):
        session.say(chatter(number), listener=(Told() if told is None else told).listener())


def list_boundaries(path: Sequence[AnyEntry]) -> list[Boundary]:
    return [entry for entry in path if isinstance(entry, Boundary)]


def read_file(size: int) -> Tool:
    return Tool(SPEC, lambda call, _: ToolOutput(f"{call['path']} " + "line of output " * (size // 15)))


def calls_file(number: int) -> ChatReply:
    return ChatReply("Reading.", calls=(ToolCall(f"c{number}", "read_file", {"path": f"f{number}.py"}),), stop="tool")


# when ----------------------------------------------------------------------------------------------------------


def test_a_small_window_is_filled_and_the_talk_goes_on(opened_quiet, strict, told) -> None:
    """S02, S11, S23: 200 rounds in 8,192 tokens; every question fits, its roles are in order, and all is answered."""
    chat = strict()
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        fill(session, 200, told)
        path = session.log.find_path()
        assert session.measure().share < 0.85
    assert len(chat.asked) == 200 and len(list_boundaries(path)) >= 3
    assert told[0] == "compressing…" and told[1].startswith("compressed ")
    assert sum(isinstance(entry, Message) for entry in path) == 400


def test_the_step_runs_at_85_percent_and_not_before(opened_quiet, strict) -> None:
    """S10, S11."""
    shares: list[float] = []
    with open_session(opened_quiet(), chat=strict(), mode="keyword") as session:
        for number in range(100):
            before = session.measure()
            session.say(chatter(number))
            if list_boundaries(session.log.find_path()):
                break
            assert before.is_high == (before.share >= 0.7)
            shares.append(before.share)
    assert 0.8 < max(shares) < 0.85 and number < 99


def test_one_long_turn_is_compacted_within_the_turn(opened_quiet, strict) -> None:
    """S22: 40 calls of 2,500 characters in one turn, in a window of 8,192 tokens; the request stays in view."""
    chat = strict([calls_file(n) for n in range(40)] + ["Done."])
    request = "Read all forty files and tell me which of them names the beacon."
    with open_session(opened_quiet(), chat=chat, tools=[read_file(2500)], mode="keyword") as session:
        session.say("Hello there.", listener=TurnListener())
        chat.answers = [calls_file(n) for n in range(40)] + ["Done."]
        answer = session.say(request)
        path = session.log.find_path()
    assert answer.text == "Done." and len(chat.asked) > 40
    assert any(isinstance(entry, Mask) for entry in path)
    assert all(request in "".join(message.text for message in question.messages) for question in chat.asked[-40:])


def test_first_turn_may_be_the_long_one(opened_quiet, strict) -> None:
    chat = strict([calls_file(n) for n in range(60)] + ["Done."], window=6000)
    with open_session(opened_quiet(), chat=chat, tools=[read_file(300)], mode="keyword") as session:
        assert session.say("Look through everything, please.").text == "Done."
        assert list_boundaries(session.log.find_path())


# masks ---------------------------------------------------------------------------------------------------------


def test_old_output_is_masked_first_and_nothing_else_changes(opened_quiet, strict) -> None:
    """S03: the reduction is in the entry, the words of both sides stay, and the original is one call away."""
    home = opened_quiet()
    chat = strict(window=30_000)
    image = ImageEntry(media_type="image/png", data="iVBORw0KGgo=")
    with open_session(home, chat=chat, tools=[read_file(9000)], mode="keyword") as session:
        session.say("Here is a picture.", images=[image])
        for number in range(12):
            chat.answers = [calls_file(number), f"File {number} is fine."]
            session.say(f"Check file {number}.")
        path = session.log.find_path()
        texts = session._read_texts()
        masks = [entry for entry in path if isinstance(entry, Mask)]
        assert masks and not list_boundaries(path)
        assert masks[0].n_after < 0.8 * masks[0].n_before
        shown = assemble_messages(path, texts)
    said = [message for message in path if isinstance(message, Message)]
    talk = [message for message in shown if message.role in ("user", "assistant")]
    assert [message.text for message in talk if message.role == "assistant"] == [
        entry.text for entry in said if entry.role == "assistant"
    ]
    people = [entry.text for entry in said if entry.role == "user"]
    assert all(message.text.startswith(text) for message, text in zip(
        [message for message in talk if message.role == "user"], people, strict=True))  # fmt: skip
    masked = [message for message in shown if message.role == "tool" and "left out" in message.text]
    assert len(masked) >= len(masks[0].entries) - 1
    original = next(entry for entry in said if entry.id == masks[0].entries[-1])
    assert original.id in "".join(message.text for message in masked) and len(original.text) > 8000
    assert home.search("f3.py line of output").hits


# zones ---------------------------------------------------------------------------------------------------------


def test_head_stays_byte_for_byte_through_five_compactions(opened_quiet, strict) -> None:
    """S07, S08."""
    chat = strict()
    heads: list[str] = []
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        session.say("We build a harbour simulator. Keep answers short.")
        number = 0
        while len(heads) < 5:
            session.say(chatter(number))
            number += 1
            path, texts = session.log.find_path(), session._read_texts()
            if len(list_boundaries(path)) > len(heads):
                zones = assemble_zones(path, texts)
                heads.append(repr(zones.head))
                tail = [message for message in path if isinstance(message, Message)][-len(zones.tail) :]
                assert [message.text.startswith(entry.text) for message, entry in zip(zones.tail, tail, strict=True)]
                assert zones.tail[0].role == "user"
    assert len(set(heads)) == 1 and "harbour simulator" in heads[0]


def test_thoughts_stay_only_after_what_they_followed(opened_quiet, strict) -> None:
    def think(number: int) -> ChatReply:
        blocks = ({"type": "thinking", "thinking": f"thought {number}", "signature": "x"},)
        return ChatReply(f"Answer {number}.", native=NativeBlocks("fake:host", blocks))

    chat = strict([think(n) for n in range(80)])
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        fill(session, 80)
        path = session.log.find_path()
        shown = assemble_messages(path, session._read_texts())
    thoughts = [message.native.blocks[0]["thinking"] for message in shown if message.native]
    n_before = sum(
        isinstance(entry, Message) and entry.role == "assistant"
        for entry in path[: path.index(list_boundaries(path)[-1])]
    )
    assert 0 < n_before < 80
    assert thoughts == ["thought 0", *(f"thought {n}" for n in range(n_before, 80))]


@pytest.mark.parametrize("seed", range(4))
def test_each_question_begins_with_the_one_before(opened_quiet, strict, seed: int) -> None:
    """The prefix is byte-equal from call to call, but where an entry says that something was put away."""
    pick = random.Random(seed)
    chat = strict(window=12_000)
    with open_session(opened_quiet(), chat=chat, tools=[read_file(1800)], mode="keyword") as session:
        for number in range(50):
            n_calls = pick.choice((0, 0, 0, 1, 3))
            chat.answers = [calls_file(100 * number + n) for n in range(n_calls)] + [
                chatter(number, pick.randint(5, 200))
            ]
            session.say(chatter(1000 + number, pick.randint(3, 200)))
        path = session.log.find_path()
    questions = [question.messages for question in chat.asked]
    n_changes = sum(old != new[: len(old)] for old, new in itertools.pairwise(questions))
    n_put_away = sum(isinstance(entry, Mask | Boundary) for entry in path)
    assert len(questions) > 60 and 0 < n_changes <= n_put_away < len(questions) / 4


def test_another_model_with_a_smaller_window_goes_on(opened_quiet, strict) -> None:
    """The context is made for whichever model answers: at its first call the larger one's context is compacted."""
    home = opened_quiet()
    with open_session(home, chat=strict(window=64_000), mode="keyword") as session:
        fill(session, 80)
        assert not list_boundaries(session.log.find_path())
        name = session.session
    small = strict(window=8192)
    with open_session(home, name, chat=small, mode="keyword") as session:
        session.say("And now?")
        assert session.measure().share < 0.85
    assert small.asked


# the summary ---------------------------------------------------------------------------------------------------

PLANTED = {
    "Decision": "We decided to keep the tide tables in Postgres.",
    "Constraint": "A berth must not be longer than 180 metres.",
    "Pending": "It is still to be confirmed who signs for the crane.",
}


def plant(session: Session) -> None:
    session.say("We build a harbour simulator.")
    for number, line in enumerate(PLANTED.values()):
        session.say(line)
        fill(session, 5, first=100 * number)


def test_summary_by_rules_has_the_planted_lines_and_says_so(opened_quiet, strict, told) -> None:
    """S05, S09; without a summariser the rules' quotes stand alone."""
    with open_session(opened_quiet(), chat=strict(), mode="keyword") as session:
        plant(session)
        boundary = session.compact(listener=told.listener())
        assert boundary is not None and boundary.by == "code" and boundary.cause == "asked"
        sections = parse_summary(boundary.summary)
        assert all(any(line in row for row in sections[kind]) for kind, line in PLANTED.items())
        ids = {entry.id for entry in session.log.find_path()}
    assert all(quote.entry in ids for quote in boundary.quotes)
    assert "by rules alone" in told[-1]


@pytest.mark.parametrize("kind", ["minilm", "static", "off"])
def test_a_change_in_other_words_stands_beside_the_old(opened_quiet, strict, kind) -> None:
    """The built-in vectors see that two statements are about one thing; without vectors both are quoted apart."""
    home = opened_quiet()
    (home.path / "config.toml").write_text(f'[models.embedder]\nkind = "{kind}"\n')
    old, new = "The choir sings under Lotte Grauwe.", "Amadi Ferrier conducts the singers of the chapel since June."
    with open_session(opened_quiet(), chat=strict(), mode="keyword") as session:
        session.say("Hello.")
        for number, line in enumerate((old, "My flight lands in Piran.", new, "The rent is 1,250 euros.")):
            session.say(line)
            fill(session, 3, first=100 * number)
        fill(session, 20, first=900)
        boundary = session.compact()
    assert boundary is not None and boundary.by == "code"
    (row,) = [row for row in boundary.summary.splitlines() if old in row]
    assert (f"→ later: {new}" in row) == (kind != "off") and new in boundary.summary


def test_summariser_writes_and_the_main_model_is_not_asked(opened, strict, told) -> None:
    """S12, S14, J26; what the narrative lost stands behind it."""
    summariser = ScriptedChat(["- Decision: the tide tables stay in Postgres"], name="scripted:cheap")
    home = opened(chats={"summariser": summariser})
    chat = strict()
    with open_session(home, chat=chat, mode="keyword") as session:
        plant(session)
        n_asked = len(chat.asked)
        boundary = session.compact("the crane", listener=told.listener())
        assert len(chat.asked) == n_asked and len(summariser.asked) == 1
    assert boundary is not None and boundary.by == "scripted:cheap" and boundary.focus == "the crane"
    assert "the crane" in summariser.asked[0].messages[0].text
    assert "tide tables stay in Postgres" in boundary.summary and PLANTED["Constraint"] in boundary.summary
    assert PLANTED["Decision"] not in boundary.summary  # the narrative has it


def test_second_summary_carries_the_first_on(opened, strict) -> None:
    """Generations merge: the first narrative goes into the second question, and the decisions stay."""
    summariser = ScriptedChat([f"- Fact: part {n} of the talk" for n in range(1, 9)])
    with open_session(opened(chats={"summariser": summariser}), chat=strict(), mode="keyword") as session:
        plant(session)
        for number in range(5):
            fill(session, 12, first=1000 * number)
            assert session.compact() is not None
        boundary = list_boundaries(session.log.find_path())[-1]
    assert "part 1 of the talk" in summariser.asked[1].messages[1].text
    assert len(summariser.asked) >= 5 and all(line in boundary.summary for line in PLANTED.values())


@pytest.mark.parametrize("failure", [ModelBusy("down"), "", ChatReply("- Decision: half", stop="length")])
def test_a_failed_summariser_leaves_all_as_it_was(opened, strict, told, failure) -> None:
    """S24: nothing lost, told once, tried again later, and then it works."""
    summariser = ScriptedChat([failure, failure, "- Fact: talk about a harbour"])
    with open_session(opened(chats={"summariser": summariser}), chat=strict(window=16_000), mode="keyword") as session:
        number = 0
        while len(summariser.asked) < 2:
            before = assemble_messages(session.log.find_path(), session._read_texts())
            session.say(chatter(number), listener=told.listener())
            after = assemble_messages(session.log.find_path(), session._read_texts())
            assert after[: len(before)] == before
            number += 1
        assert not list_boundaries(session.log.find_path())
        assert sum("failed" in line for line in told) == 1
        while len(summariser.asked) < 3:
            session.say(chatter(number), listener=told.listener())
            number += 1
        assert len(list_boundaries(session.log.find_path())) == 1
    assert len(summariser.asked) == 3


def test_what_summaries_cost_is_counted_with_the_session(opened, strict) -> None:
    """S21: as the meter counts it, also of an answer that is of no use; `show` and `context` tell the same."""
    summariser = ScriptedChat(["", "- Fact: talk about a harbour"])
    home = opened(chats={"summariser": summariser})
    (home.path / "config.toml").write_text('user = "ada"\n')
    with open_session(home, chat=strict(window=16_000), mode="keyword") as session:
        fill(session, 20)
        assert session.compact() is None and session.compact() is not None
        name = session.session
    by_job = read_overview(home, name).totals_by_job
    assert by_job["compact"].n_model_calls == len(summariser.asked) == 2
    assert by_job["answers"].n_model_calls == 20
    metered = home.connections.roles().meter.read_spending("compact")["job"]
    assert metered.n_tokens == by_job["compact"].n_read + by_job["compact"].n_output > 0
    words = ["--home", str(home.path), name]
    shown = json.loads(CliRunner().invoke(cli, ["sessions", "show", "--json", *words]).stdout)["result"]["session"]
    billed = json.loads(
        CliRunner().invoke(cli, ["context", "--json", "--home", str(home.path), "--session", name]).stdout
    )["result"]
    assert shown["totals_by_job"] == billed["totals_by_job"]
    assert shown["totals"]["n_input"] == by_job["compact"].n_input + by_job["answers"].n_input
    line = "  of it for compact: "
    assert line in CliRunner().invoke(cli, ["sessions", "show", *words]).stdout
    assert line in CliRunner().invoke(cli, ["context", "--home", str(home.path), "--session", name]).stdout


def test_a_summariser_that_is_down_for_good_is_not_waited_for(opened, strict) -> None:
    """Before the window is full, the rules' summary is better than none."""
    summariser = ScriptedChat([ModelBusy("down")] * 999)
    chat = strict(window=8192)
    with open_session(opened(chats={"summariser": summariser}), chat=chat, mode="keyword") as session:
        fill(session, 120)
        assert {boundary.by for boundary in list_boundaries(session.log.find_path())} == {"code"}
    assert len(chat.asked) == 120


def test_the_real_small_model_is_asked_and_may_fail(small_model, strict, told) -> None:
    """S14, S24: a model of 135 million parameters seldom stops in time; then nothing changes, and it is told."""
    place, _ = small_model("summariser", "compact", "max_output_tokens = 48")
    with perdure.open(place, user="ada") as home, open_session(home, chat=strict(), mode="keyword") as session:
        plant(session)
        before = assemble_messages(session.log.find_path(), session._read_texts())
        boundary = session.compact(listener=told.listener())
        after = assemble_messages(session.log.find_path(), session._read_texts())
    assert boundary is None or boundary.by.startswith("gguf:")
    assert (after == before and "failed" in told[-1]) or boundary


# recall --------------------------------------------------------------------------------------------------------


def test_a_clue_of_turn_three_survives_turn_forty(opened_quiet, strict) -> None:
    """S04: it is in no words of the summary, and yet the model reads it: recall found it."""
    clue = "The spare key of the lighthouse hangs behind the barometer."
    chat = strict()
    home = opened_quiet()
    (home.path / "config.toml").write_text("[memories]\nstated = false\n[session]\nsummary_tokens = 1\n")
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        for number in range(40):
            session.say(clue if number == 3 else chatter(number))
        assert session.compact() is not None
        boundary = list_boundaries(session.log.find_path())[-1]
        session.say("Where does the spare key of the lighthouse hang?")
        assert clue in "".join(message.text for message in chat.asked[-1].messages)
    assert clue not in boundary.summary


def test_compaction_recalls_for_what_is_talked_about(opened_quiet, strict) -> None:
    """A part of the room that was won holds what the newest messages need of the middle."""
    home = opened_quiet()
    (home.path / "config.toml").write_text("[memories]\nstated = false\n[session]\nsummary_tokens = 1\n")
    chat = strict()
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        session.say("Hello.")
        session.say("The spare key of the lighthouse hangs behind the barometer.")
        fill(session, 30)
        session.say("Where does the spare key of the lighthouse hang?")
        boundary = session.compact()
        assert boundary is not None
        session.say("Tell me again.")
        summary = assemble_zones(session.log.find_path(), session._read_texts()).summary
    assert "behind the barometer" in "".join(message.text for message in summary)


@pytest.mark.index_file("it deletes the file")
def test_recall_that_fails_does_not_stop_the_talk(opened_quiet, strict) -> None:
    """R13: the index is no index any more; the answer comes, and the log has the failure."""
    home = opened_quiet()
    with open_session(home, chat=strict(), mode="keyword") as session:
        fill(session, 3)
        for path in home.path.glob("index.db*"):
            path.unlink()
        (home.path / "index.db").symlink_to(home.path / "nowhere" / "index.db")
        assert session.say("Does it still answer?").text == "OK."
        assert session.compact() is not None or session.measure().n_tokens
    from perdure.turn import read_failure

    assert read_failure(home.path)


# what cannot be helped -----------------------------------------------------------------------------------------


def test_a_window_smaller_than_the_floor_names_what_to_cut(opened_quiet, strict) -> None:
    home = opened_quiet()
    home.floor.write("profile", "Ada likes short answers. " * 900)
    chat = strict(window=4000)
    with open_session(home, chat=chat, mode="keyword") as session, pytest.raises(ContextTooLarge) as caught:
        session.say("Hello.")
    assert "floor: profile" in str(caught.value) and "4,000" in str(caught.value) and not chat.asked


def test_a_forgotten_message_takes_the_summary_with_it(opened_quiet, strict) -> None:
    home = opened_quiet()
    with open_session(home, chat=strict(window=32_000), mode="keyword") as session:
        plant(session)
        fill(session, 10, first=500)
        assert session.compact() is not None
        name = session.session
    hit = next(hit for hit in home.search("tide tables in Postgres").hits if hit.role == "user")
    request = ForgetRequest(ids=(hit.turn_id,))
    home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
    shown = assemble_messages(read_path(home, name), {})
    assert "tide tables in Postgres" not in "".join(message.text for message in shown)


# the bill ------------------------------------------------------------------------------------------------------


def test_bill_of_a_session_names_its_parts(opened_quiet, strict) -> None:
    home = opened_quiet()
    home.floor.write("profile", "Ada likes short answers.")
    with open_session(home, chat=strict(), mode="keyword") as session:
        plant(session)
        fill(session, 30, first=500)
        assert session.compact() is not None
        n_tokens, name = session.measure().n_tokens, session.session
    bill = make_bill(home, name[:5])
    parts = {part.name: part for part in bill.parts}
    assert {"floor: profile", "head", "summary", "tail"} <= set(parts) and bill.window_tokens == 0
    assert parts["head"].n_messages == 2 and abs(bill.n_tokens - n_tokens) < 0.05 * n_tokens


def test_context_command_shows_the_bill(opened_quiet, strict) -> None:
    home = opened_quiet()
    (home.path / "config.toml").write_text('user = "ada"\n')
    with open_session(home, chat=strict(), mode="keyword") as session:
        fill(session, 3)
        name = session.session
    options = ["context", "--session", name, "--home", str(home.path)]
    shown = CliRunner().invoke(cli, options)
    assert shown.exit_code == 0, shown.output
    assert "tail" in shown.output and "6 messages" in shown.output
    bill = json.loads(CliRunner().invoke(cli, [*options, "--json"]).output)["result"]
    assert bill["n_tokens"] == sum(part["n_tokens"] for part in bill["parts"]) > 0


def test_a_provider_that_counts_more_is_asked_again_with_less(opened_quiet) -> None:
    """Its window is smaller than we believe: it refuses, room is made, and the message gets its answer."""
    n_refused = []

    def answer(question: Question) -> str:
        n_chars = sum(len(message.text) for message in question.messages)
        if n_chars > 12_000:
            n_refused.append(n_chars)
            raise ModelRefused("request (4103 tokens) exceeds the available context size (3000 tokens)")
        return "Noted."

    chat = ScriptedChat([answer] * 200, window_tokens=8000)
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        for number in range(30):
            assert session.say(chatter(number, 150)).text == "Noted."
        assert list_boundaries(session.log.find_path())
    assert 1 <= len(n_refused) <= 4


def test_a_message_that_never_fits_is_refused_with_all_kept(opened_quiet) -> None:
    def refuse(_: Question) -> str:
        raise ModelRefused("prompt is too long: 9000 tokens > 8000 maximum")

    chat = ScriptedChat([refuse] * 9, window_tokens=8000)
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        with pytest.raises((ModelRefused, ContextTooLarge)):
            session.say("Hello there.")
        assert [m.text for m in session.log.find_path() if isinstance(m, Message)] == ["Hello there."]
    assert len(chat.asked) <= 3


def test_a_small_window_drops_what_recall_put_beside_messages(opened_quiet) -> None:
    chat = ScriptedChat([ChatReply("Noted.", is_usage_reported=False)] * 9, window_tokens=500)
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session:
        session.say("Hello there.")
        first = next(m for m in session.log.find_path() if isinstance(m, Message))
        session._blocks.write(first.id, "recalled " * 600)
        assert session.say("Still there?").text == "Noted."
    shown = [message.text for message in chat.asked[-1].messages if message.role == "user"]
    assert shown[0] == "Hello there."
    assert shown[-1].startswith("Still there?")


@pytest.mark.parametrize(
    "refusal",
    [
        "request (1871 tokens) exceeds the available context size (1792 tokens), try increasing it",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130114 tokens.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ],
)
def test_a_refusal_for_length_is_known_in_each_provider_s_words(opened_quiet, refusal: str) -> None:
    answers = [ModelRefused(refusal), "Noted."]
    with open_session(opened_quiet(), chat=ScriptedChat(answers), mode="keyword") as session:
        assert session.say("Hello there.").text == "Noted."


def test_another_model_has_its_whole_window(opened_quiet) -> None:
    first = ScriptedChat([ModelRefused("prompt is too long"), "Noted."], name="scripted:one", window_tokens=8000)
    with open_session(opened_quiet(), chat=first, mode="keyword") as session:
        session.say("Hello there.")
        assert session.measure().window_tokens < 8000
        session.use_chat(ScriptedChat(name="scripted:two", window_tokens=8000))
        assert session.measure().window_tokens == 8000


def test_any_other_refusal_is_not_asked_again(opened_quiet) -> None:
    chat = ScriptedChat([ModelRefused("the key is not valid"), "Noted."])
    with open_session(opened_quiet(), chat=chat, mode="keyword") as session, pytest.raises(ModelRefused):
        session.say("Hello there.")
    assert len(chat.asked) == 1
