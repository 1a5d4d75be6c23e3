"""The chain and the tree: a replay is what was stored, totals are the sum of the turns, any node resumes, an export
does not change with compactions, and a new process goes on where the last one ended.
"""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import perdure
from perdure.errors import SessionMissing, UsageError
from perdure.formats.perdure import Boundary, Message, UsageEntry
from perdure.models.chat import ChatReply, TokenUsage, ToolCall, ToolSpec
from perdure.session.calls import Tool, ToolOutput
from perdure.session.catalog import list_sessions, read_overview, resolve_name
from perdure.session.log import create_log, open_log, read_path, read_tree
from perdure.session.session import open_session
from perdure.session.spending import add_totals, to_totals
from perdure.surfaces.cli import cli
from perdure.testing import ScriptedChat
from perdure.types import ForgetRequest

SETTINGS = """user = "ada"
[memories]
stated = false
[models.roles.resident]
provider = "openai"
model = "m"
[models.prices.m]
input = 2.0
output = 10.0
cache_read = 0.2
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text(SETTINGS)
    return tmp_path / "home"


def run(place, *words, status=0):
    result = CliRunner().invoke(cli, ["sessions", *words, "--home", str(place)], prog_name="perdure")
    assert result.exit_code == status, result.output
    return result.output


def read(place, *words):
    return json.loads(run(place, *words, "--json"))["result"]


def answer(text, n_input=100, n_output=10, n_cache_read=0):
    return ChatReply(text, usage=TokenUsage(n_input, n_output, n_cache_read), model="m")


def hold(home, *texts, resume="", **how):
    """Hold a session with these messages; return its id."""
    with open_session(home, resume, chat=ScriptedChat([answer(f"On {text}") for text in texts]), **how) as session:
        for text in texts:
            session.say(text)
        return session.session


def compact(home, session, kept):
    """Put a boundary at the leaf, as a compaction does: from there on a model reads the summary."""
    log = open_log(home, session)
    log.append(
        Boundary(first_kept=kept, summary="They planned the attic.", n_before=900, n_after=90, **log.make_fields())
    )
    log.close()


def list_texts(path):
    return [entry.text for entry in path if isinstance(entry, Message)]


# replay ---------------------------------------------------------------------------------------------------------


def test_a_resumed_model_reads_the_stored_turns(place):
    """S01: messages, calls, results and what stood beside, as before, byte for byte."""
    call = ChatReply("I look.", calls=(ToolCall("c1", "read", {"path": "a"}),), usage=TokenUsage(5, 5), model="m")
    tool = Tool(ToolSpec("read", "Read a file.", {"type": "object"}), lambda *_: ToolOutput("alpha"))
    before = ScriptedChat([call, answer("It says alpha."), answer("Yes.")])
    after = ScriptedChat([answer("Still.")])
    with perdure.open(place) as home, open_session(home, chat=before, tools=[tool]) as session:
        session.say("What does a say?")
        session.say("Sure?")
    with perdure.open(place) as home, open_session(home, session.session, chat=after, tools=[tool]) as session:
        session.say("And now?")
        stored = [entry for entry in session.log.find_path() if isinstance(entry, Message)]
    replayed = after.asked[0].messages
    assert replayed[: len(before.asked[-1].messages)] == before.asked[-1].messages
    spoken = [message for message in replayed if message.role != "system"]
    assert [message.role for message in spoken] == [entry.role for entry in stored[:-1]]
    assert all(message.text.startswith(entry.text) for message, entry in zip(spoken, stored, strict=False))
    assert [call.call_id for call in spoken if call.role == "tool"] == ["c1"]


# totals ---------------------------------------------------------------------------------------------------------


def test_totals_are_the_sum_of_the_answers_also_after_compactions(place):
    """S21, A19. Two answers of 100 in, 10 out and one of 40 in, 60 cached, 10 out, at 2, 10 and 0.2 a million: 240 in,
    60 cached, 30 out; 480 + 300 + 12 millionths = 0.000792.
    """
    with perdure.open(place) as home:
        session = hold(home, "Plan the attic.", "And the door?", cwd="/w/house")
        kept = read_tree(home, session).leaf
        with open_session(home, session, chat=ScriptedChat([answer("Yes.", 40, 10, 60)])) as held:
            held.say("And the roof?")
        overviews = [read_overview(home, session)]
        for _ in range(3):
            compact(home, session, kept)
            overviews.append(read_overview(home, session))
        totals = overviews[0].totals
        assert (totals.n_input, totals.n_cache_read, totals.n_output, totals.n_unpriced) == (240, 60, 30, 0)
        assert totals.money == pytest.approx(0.000792)
        assert all(overview.totals == totals for overview in overviews)
        entries = read_path(home, session)
        assert add_totals(to_totals(entry.usage) for entry in entries if isinstance(entry, Message)) == totals
        assert len(overviews[3].boundaries) == 3
        fork = hold(home, "Another roof?", resume=session, fork=True)
        log = create_log(home, cwd="/w/house", spawned_by=(session, kept))
        usage = UsageEntry(n_input=7, n_output=3, money=None, is_reported=False)
        log.append(Message(role="assistant", text="Done.", usage=usage, **log.make_fields()))
        log.close()
    rows = {row["session"]: row for row in read(place, "list")["sessions"]}
    assert rows[session]["totals"]["n_input"] == 240
    assert rows[fork]["totals"]["n_input"] == 100
    assert rows[session]["chain_totals"] | {"money": 0} == {
        "n_input": 347, "n_output": 43, "n_cache_read": 60, "n_cache_write": 0, "money": 0, "n_unpriced": 1,
        "n_estimated": 1, "n_model_calls": 5,
    }  # fmt: skip
    assert rows[fork]["chain_totals"] == rows[session]["chain_totals"]
    assert {rows[name]["root"] for name in rows} == {session}


def test_the_list_shows_all_fields_of_a_session(place):
    """A19: id, number, title, provider, model, agent, folder, times, tokens, sub-agent, parent."""
    with perdure.open(place) as home:
        parent = hold(home, "Plan the attic.\nIn detail.", cwd="/w/house")
        entry = read_tree(home, parent).leaf
        log = create_log(home, cwd="/w/house", spawned_by=(parent, entry))
        log.append(Message(role="user", text="Measure it.", is_typed=False, **log.make_fields()))
        log.close()
    (child_row, row) = read(place, "list")["sessions"]
    assert (row["number"], row["title"], row["provider"], row["model"]) == (
        1,
        "Plan the attic. In detail.",
        "scripted",
        "m",
    )
    assert (row["agent"], row["cwd"], row["is_subagent"], row["parent_session"]) == ("default", "/w/house", False, "")
    assert row["created_at"] <= row["updated_at"]
    assert (child_row["is_subagent"], child_row["parent_session"], child_row["parent"]) == (True, parent, entry)
    assert "Plan the attic. In detail." in run(place)
    assert f"sub-agent of {parent[:8]}" in run(place)
    run(place, "title", "1", "The attic")
    assert read(place, "list")["sessions"][1]["title"] == "The attic"
    with perdure.open(place) as home:  # a sub-agent's run is a run below its parent's
        home.upkeep.catch_up()
        (node,) = home.runs.forest()
        assert [child.run.session for child in node.children] == [log.session]


def test_a_list_reads_only_sessions_that_changed(place, monkeypatch):
    from perdure.session import catalog

    with perdure.open(place) as home:
        first, second = hold(home, "One."), hold(home, "Two.")
        titles = {item.overview.session: item.overview.title for item in list_sessions(home)}
        calls = []
        real_read = catalog.read_overview
        monkeypatch.setattr(
            catalog, "read_overview", lambda home, session: calls.append(session) or real_read(home, session)
        )
        assert {item.overview.session: item.overview.title for item in list_sessions(home)} == titles
        assert calls == []
        hold(home, "More.", resume=second)
        assert {item.overview.n_messages for item in list_sessions(home)} == {1, 2}
        assert calls == [second]
        with open_session(home, first, chat=ScriptedChat(["Yes."])) as held:  # an open turn counts, too
            held.log.append(Message(role="user", text="Open.", **held.log.make_fields()))
            assert list_sessions(home)[0].overview.n_messages == 2


def test_forgetting_deletes_a_title(place, grep):
    with perdure.open(place) as home:
        hold(home, "Where is the marmalade?")
        home.captures.drain()
        assert list_sessions(home)[0].overview.title == "Where is the marmalade?"
        targets = [hit.turn_id for hit in home.search("marmalade").hits]
        request = ForgetRequest(ids=tuple(targets))
        home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
        assert grep(place, b"marmalade") == []
        assert list_sessions(home)[0].overview.title == ""


# the chain ------------------------------------------------------------------------------------------------------


def test_one_walks_back_from_a_chain_of_three_to_its_first_messages(place):
    """S16: two compactions make three windows; a fork of a fork leads back to the first session, which is intact."""
    with perdure.open(place) as home:
        first = hold(home, "One.", "Two.")
        kept = read_tree(home, first).leaf
        compact(home, first, kept)
        hold(home, "Three.", resume=first)
        compact(home, first, read_tree(home, first).leaf)
        second = hold(home, "Four.", resume=first, fork=True)
        third = hold(home, "Five.", resume=second, fork=True)
        texts = list_texts(read_path(home, third))
        assert [text for text in texts if not text.startswith("On ")] == ["One.", "Two.", "Three.", "Four.", "Five."]
        assert list_texts(read_path(home, first)) == texts[:6]
    rows = read(place, "tree", third)["sessions"]
    assert [(row["session"], row["depth"], row["parent_session"]) for row in rows] == [
        (first, 0, ""), (second, 1, first), (third, 2, second),
    ]  # fmt: skip
    assert [entry["kind"] for entry in rows[0]["entries"]].count("boundary") == 2
    drawn = run(place, "tree", third)
    assert drawn.count("compaction, 900 → 90 tokens") == 2
    assert f"⤷ {second}" in drawn
    assert "it goes on here" in drawn
    assert run(place, "tree").count("◆") == 2


def test_any_node_resumes_and_its_siblings_stay(place):
    """S18, S19, S26: the ids that the tree shows are enough, by their beginnings; also in the middle of the chain, and
    before a compaction.
    """
    with perdure.open(place) as home:
        session = hold(home, "One.", "Two.", "Three.")
        compact(home, session, read_tree(home, session).leaf)
        hold(home, "Four.", resume=session)
    entries = read(place, "tree", session[:5])["sessions"][0]["entries"]
    middle = next(entry["id"] for entry in entries if entry["text"] == "On Two.")
    with perdure.open(place) as home:
        chat = ScriptedChat([answer("On five")])
        with open_session(home, middle[:7], chat=chat) as held:
            held.say("Five.")
        asked = [message.text.split("\n")[0] for message in chat.asked[0].messages if message.role == "user"]
        assert asked == ["One.", "Two.", "Five."]
        assert list_texts(read_path(home, session)) == ["One.", "On One.", "Two.", "On Two.", "Five.", "On five"]
        old_leaf = next(entry["id"] for entry in entries if entry["text"] == "On Four.")
        assert [e.text for e in read_path(home, session, old_leaf) if isinstance(e, Message)][-1] == "On Four."
        hold(home, "Six.", resume=old_leaf)
        assert list_texts(read_path(home, session))[-2:] == ["Six.", "On Six."]
        drawn = run(place, "tree", session)
        assert all(text in drawn for text in ("Three.", "Four.", "Five.", "Six."))
        hit = next(hit for hit in home.search("Two").hits if hit.role == "user")
        assert resolve_name(home, hit.turn_id, cwd=None)[0] == session
        with pytest.raises(SessionMissing):
            resolve_name(home, "sffffffffff", cwd=None)
        with pytest.raises(UsageError, match="too short"):
            resolve_name(home, "e", cwd=None)


def test_a_branch_is_left_with_a_summary_and_labels(place):
    """S26: the summary of the branch that is left is stored where somebody asks for it, and the model reads it."""
    with perdure.open(place) as home:
        session = hold(home, "Plan it.", "With nginx?")
    entries = read(place, "tree", session)["sessions"][0]["entries"]
    point = next(entry["id"] for entry in entries if entry["text"] == "On Plan it.")
    run(place, "label", point, "the fork in the road")
    result = read(place, "branch", point, "--summary")
    assert "- With nginx?" in result["summary"] and "On With nginx?" in result["summary"]
    assert "[the fork in the road]" in run(place, "tree", session)
    chat = ScriptedChat([answer("On caddy")])
    with perdure.open(place) as home, open_session(home, session, chat=chat) as held:
        held.say("With caddy?")
        texts = list_texts(held.log.find_path())
    assert texts == ["Plan it.", "On Plan it.", "With caddy?", "On caddy"]
    assert "- With nginx?" in chat.asked[0].messages[-1].text
    run(place, "label", point, "")
    assert "the fork in the road" not in run(place, "tree", session)
    assert run(place, "branch", session, status=2)


def test_an_edit_that_may_not_be_kept_is_refused(place):
    with perdure.open(place) as home:
        session = hold(home, "One.", "Two.")
        point = read_tree(home, session).find_path()[2].id
        home.captures.pause()
    for words in (("title", session, "x"), ("label", point, "x"), ("branch", point)):
        assert "capture is paused" in run(place, *words, status=2)
    with perdure.open(place) as home:
        home.captures.resume()
        with open_session(home, session, chat=ScriptedChat()):
            assert "holds this session" in run(place, "title", session, "x", status=5)


def test_a_branch_after_a_call_begins_after_its_results(place):
    """What ran must not pass for interrupted, and no model may read a call without its result."""
    call = ChatReply("I look.", calls=(ToolCall("c1", "read", {}),), model="m")
    tool = Tool(ToolSpec("read", "Read a file.", {"type": "object"}), lambda *_: ToolOutput("alpha"))
    with perdure.open(place) as home:
        with open_session(home, chat=ScriptedChat([call, answer("It says alpha.")]), tools=[tool]) as session:
            session.say("What does a say?")
            caller = next(entry for entry in session.log.find_path() if getattr(entry, "calls", ()))
        with open_session(home, caller.id, chat=ScriptedChat([answer("Beta.")])) as session:
            session.say("And b?")
            assert list_texts(session.log.find_path()) == ["What does a say?", "I look.", "alpha", "And b?", "Beta."]


# exports --------------------------------------------------------------------------------------------------------


def test_an_export_is_the_same_before_and_after_a_compaction(place):
    """S25: byte for byte, as Markdown and as JSON; and nothing of the log is rewritten."""
    with perdure.open(place) as home:
        session = hold(home, "Plan the attic.", "The key is ``` in the drawer.", "And the roof?")
    before = run(place, "export", session), run(place, "export", session, "--json")
    with perdure.open(place) as home:
        path = read_path(home, session)
        compact(home, session, path[-1].id)
        assert read_path(home, session)[:-1] == path
    assert (run(place, "export", session), run(place, "export", session, "--json")) == before
    assert "## You" in before[0] and "The key is ``` in the drawer." in before[0]
    messages = json.loads(before[1])["messages"]
    assert [message["text"] for message in messages if message["role"] == "user"] == [
        "Plan the attic.", "The key is ``` in the drawer.", "And the roof?",
    ]  # fmt: skip
    target = place.parent / "plan.md"
    run(place, "export", session, "--out", str(target))
    assert target.read_text() == before[0]
    assert run(place, "export", session, "--out", str(place.parent / "none" / "x"), status=2)


def test_real_compactions_leave_export_totals_and_search_alone(place):
    """S17, S20, S25 with compactions as they happen: by hand, and when a window of 8,000 tokens fills."""
    pytest.importorskip("perdure.session.compact")
    chat = ScriptedChat([f"Noted, step {n}. " + "We go on with it. " * 40 for n in range(60)], window_tokens=8_000)
    with perdure.open(place) as home, open_session(home, cwd="/w/house", chat=chat) as session:
        session.say("The gargoyle stands in the cellar, and its number is 5512.")
        for n in range(50):
            session.say(f"Step {n}. " + "The plan of the house has a stair. " * 20)
            if n == 40:
                session.compact("the cellar")
    name = session.session
    overview = read(place, "list")["sessions"][0]
    assert len(overview["boundaries"]) >= 2
    with perdure.open(place) as home:
        usages = [entry.usage for entry in read_path(home, name) if isinstance(entry, Message) and entry.usage]
        assert read_overview(home, name).totals == add_totals(map(to_totals, usages)) and len(usages) == 51
    drawn = run(place, "tree", name)
    assert all(boundary in drawn for boundary in overview["boundaries"])
    messages = json.loads(run(place, "export", name, "--json"))["messages"]
    assert len(messages) == 102 and messages[0]["text"].startswith("The gargoyle")
    before = run(place, "export", name)
    with perdure.open(place) as home:
        with open_session(home, name, chat=ScriptedChat(window_tokens=8_000)) as session:
            session.compact()
        assert "cellar" in home.search("gargoyle 5512").hits[0].text
        first = read_path(home, name)[1]
        with open_session(home, first.id, chat=ScriptedChat([answer("Yes.")], window_tokens=8_000)) as session:
            session.say("Where does it stand?")  # before all compactions: the whole of it is read
            assert len(list_texts(session.log.find_path())) == 3
    assert before.startswith("# The gargoyle")
    leaf = overview["leaf"]
    assert run(place, "export", leaf) == before


def test_an_export_masks_secrets_unless_it_is_raw(place):
    key = "AKIA" + "QYLPMN5HHHFPZAM2"
    with perdure.open(place) as home:
        session = hold(home, f"The key is {key}.")
    for words in (("export", session), ("export", session, "--json"), ("show", session), ("tree", session), ()):
        assert key not in run(place, *words), words
    assert key in run(place, "export", session, "--raw")
    assert key not in json.dumps(read(place, "show", session))


def test_one_entry_is_shown_in_full(place):
    """A masked output names the command that shows it."""
    call = ChatReply("I look.", calls=(ToolCall("c1", "read", {}),), model="m")
    tool = Tool(ToolSpec("read", "Read a file.", {"type": "object"}), lambda *_: ToolOutput("alpha " * 1000 + "omega"))
    chat = ScriptedChat([call, answer("Yes.")])
    with perdure.open(place) as home, open_session(home, chat=chat, tools=[tool]) as session:
        session.say("Look at it.")
        session.say("Is it long?")
        output = next(entry for entry in session.log.find_path() if getattr(entry, "call_id", ""))
    assert "omega" not in run(place, "show", session.session)
    assert "omega" in run(place, "show", output.id) and "Is it long?" not in run(place, "show", output.id)
    assert "I look." in run(place, "show", output.id, "--path")


# history is never lost --------------------------------------------------------------------------------------------


def test_two_hundred_sessions_and_ten_compactions_lose_nothing(place):
    """S17, S20: every original message is readable, and search finds what a compaction put away."""
    with perdure.open(place) as home:
        for n in range(200):
            log = create_log(home, cwd=None)
            log.append(Message(role="user", text=f"Session number {n}.", **log.make_fields()))
            log.close()
        session = hold(home, "The gargoyle stands in the cellar.")
        for n in range(10):
            hold(home, f"Step {n}.", resume=session)
            compact(home, session, read_tree(home, session).leaf)
        assert len(list_sessions(home)) == 201
        texts = [list_texts(read_path(home, item.overview.session)) for item in list_sessions(home)]
        assert {text for path in texts for text in path} >= {f"Session number {n}." for n in range(200)}
        assert "The gargoyle stands in the cellar." in list_texts(read_path(home, session))
        (hit, *_) = home.search("gargoyle").hits
        assert "cellar" in hit.text
    assert read(place, "list", "--limit", "5")["n_sessions"] == 201


# going on -------------------------------------------------------------------------------------------------------


def ask(place, cwd, *words):
    """Run `perdure ask` in a process of its own, with a model that says what it read."""
    code = f"""
import sys
from perdure.home import Home
from perdure.testing import ScriptedChat
from perdure.surfaces.cli import cli
Home.chat = lambda self, role, **_: ScriptedChat([lambda question: "\\n".join(m.text for m in question.messages)])
cli.main(["ask", *{list(words)!r}, "--home", {str(place)!r}], prog_name="perdure")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_new_process_answers_with_yesterdays_constraints(place, tmp_path):
    """S30: by recall in a new session, and by the chain where one goes on with the last one."""
    (tmp_path / "house").mkdir()
    (tmp_path / "other").mkdir()
    yesterday = "The design of the attic stair must stay below 900 euros, and no oak."
    with perdure.open(place) as home:
        hold(home, yesterday, cwd=str(tmp_path / "house"))
        hold(home, "Which day is it?", cwd=str(tmp_path / "other"))
    recalled = ask(place, tmp_path / "house", "Continue yesterday's design of the attic stair.")
    assert "900 euros" in recalled and "no oak" in recalled
    with perdure.open(place) as home:
        hold(home, "An oak table.", cwd=str(tmp_path / "other"))
    went_on = ask(place, tmp_path / "house", "--resume", "last", "Go on.")
    assert yesterday in went_on and "oak table" not in went_on
    with perdure.open(place) as home, pytest.raises(SessionMissing, match="no session in /nowhere"):
        resolve_name(home, "last", cwd="/nowhere")


def test_a_new_window_goes_on_without_replay(place, tmp_path):
    """S28: a new session's context has the topic by recall, and none of the old messages as messages."""
    (tmp_path / "house").mkdir()
    cwd = str(tmp_path / "house")
    with perdure.open(place) as home:
        hold(home, "The attic stair gets 14 steps of ash.", "Good.", cwd=cwd)
        chat = ScriptedChat([answer("Yes.")])
        with open_session(home, cwd=cwd, chat=chat) as session:
            session.say("How many steps does the attic stair get?")
    messages = chat.asked[0].messages
    assert [message.role for message in messages if message.role != "system"] == ["user"]
    assert "14 steps of ash" in messages[-1].text


def test_a_session_of_a_home_elsewhere_says_where(place):
    (place / "config.toml").write_text('[remote]\nurl = "https://attic.example"\n')
    for words in ((), ("tree",), ("show", "last")):
        output = run(place, *words, status=3)
        assert "attic.example" in output and "on the machine of that home" in output
