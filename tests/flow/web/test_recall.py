"""Recall on the page: what was told, why, what came of it, and why something was not."""

import json
import re
from datetime import datetime, timedelta

import pytest

import perdure
from perdure import turn
from perdure.capture.events import HookEvent
from perdure.config import Config, LiveConfig
from perdure.surfaces import recall_sources

SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
PORT = "Which port does the tide server listen on?"


def line(role, content, at):
    return json.dumps({"role": role, "content": content, "timestamp": at.isoformat()}).encode() + b"\n"


def tell(home, prompt, answer="", *, session="s1", later_s=0, is_written=False):
    """A message as a hook brings it, and its answer captured; returns the block."""
    at = datetime.now().astimezone() + timedelta(seconds=later_s)
    event = HookEvent("messages", "prompt", session, prompt=prompt)
    said = turn.answer_event(home, event, limit_ms=30_000, now=at)
    if answer:
        asked = f"{prompt}\n\n{said.text}" if is_written else prompt
        raw = line("user", asked, at) + line("assistant", answer, at + timedelta(seconds=5))
        end = sum(run.jsonl_bytes for run in home.runs.conversation(session)) if home.index(create=True) else 0
        home.capture(raw, runtime="messages", session=session, from_offset=end)
        home.upkeep.catch_up()
    return said.text


def first(visitor):
    """The newest recall's page."""
    return recalls(visitor.get("/recall"))[0]


def recalls(seen):
    """Where the recalls of a list are."""
    return [href for href in seen.links("#injections a") if re.fullmatch(r"/recall/[0-9a-f]{16}", href)]


@pytest.fixture
def told(house):
    """A visitor of a home in which two messages were answered, and the answers judged."""

    def prepare(home):
        tell(home, PORT, "It listens on port 8642, as you said.")
        tell(home, "On which day do we deploy? <script>alert(1)</script>", "On Thursdays.", later_s=120)
        home.memories.mark_used_cues(now=datetime.now().astimezone() + timedelta(hours=2))

    return house(prepare=prepare).visitor()


def test_list_shows_each_recall_and_its_outcome(told):
    seen = told.get("/recall")
    assert seen.status == 200
    newest, oldest = seen.texts("#injections > li")
    assert "On which day do we deploy? <script>alert(1)</script>" in newest and PORT in oldest
    assert seen.tree.css_first("main script") is None
    for said in ("messages", "cues", "used", "session s1"):
        assert said in oldest
    assert told.get("/recall?session=nobody").texts(".empty strong") == ["There is no such recall."]
    assert len(told.get("/recall?session=s1").texts("#injections > li")) == 2


def test_each_cue_links_its_source_and_names_the_speaker(told):
    """Row R23."""
    where = recalls(told.get("/recall"))
    seen = told.get(where[-1])
    cards = seen.tree.css(".cue")
    assert len(cards) >= 2
    for card in cards:
        href = card.css_first(".said a").attributes["href"]
        assert re.fullmatch(r"/turns/t[0-9a-z]+|/memories/mem-[0-9a-f-]+", href)
        words = " ".join(card.text().split())
        assert "Why:" in words and "tokens" in words and "score" in words
        if href.startswith("/turns/"):
            assert "@" in words and re.search(r"\b(you|the agent)\b", words)
    port = next(card for card in cards if "8642" in card.css_first(".said").text() and "memory" in card.text())
    assert port.css_first(".badge.good").text() == "used"
    assert f"{port.css_first('.said a').attributes['href']}/forget" in seen.links(".cue a")


def test_block_in_a_transcript_is_shown_unchanged(house):
    """A client that writes into its transcript what a hook said: the exact text are there, and only ours count."""
    blocks = []

    def prepare(home):
        tell(home, "Good morning.", session="s1")  # takes the floor
        blocks.append(tell(home, PORT, "8642.", is_written=True, later_s=60))

    visitor = house(prepare=prepare).visitor()
    seen = visitor.get(first(visitor))
    shown = seen.tree.css("pre.code.wrap")[-1].text()
    assert shown.strip() == blocks[0].strip() and "port 8642" in shown
    assert "the exact text" in seen.text("main") and PORT in seen.text("h1")


def test_block_without_a_transcript_is_rebuilt_as_it_was(house):
    """Its words are the very ones even after the memory in it was corrected once more."""
    blocks = []

    def prepare(home):
        tell(home, "Good morning.", session="s1")  # takes the floor
        home.remember("The heron gate opens at nine.", path="heron/gate")
        home.remember("The heron gate opens at ten.", path="heron/gate")
        blocks.append(tell(home, "When does the heron gate open?", "At ten."))
        home.remember("The heron gate opens at noon.", path="heron/gate")

    visitor = house(prepare=prepare).visitor()
    seen = visitor.get(first(visitor))
    assert "before: “The heron gate opens at nine.”" in blocks[0]
    assert seen.tree.css("pre.code.wrap")[-1].text().strip() == blocks[0].strip()
    assert "the exact text" in seen.text("main")
    assert any("before: “The heron gate opens at nine.”" in words for words in seen.texts(".cue"))


def test_page_of_a_recall_has_its_message_as_title(told):
    seen = told.get(recalls(told.get("/recall"))[-1])
    assert seen.text("h1") == PORT and seen.text("title") == f"{PORT} · Perdure"
    assert seen.texts(".tabs [aria-current]") == ["Recalls"]


def test_correction_from_a_recall_leads_back_to_the_message(told):
    """Told, why, correct, told again: without a script, and without typing the message."""
    page = recalls(told.get("/recall"))[-1]
    nonce = page.rpartition("/")[2]
    (card,) = [one for one in told.get(page).tree.css(".cue") if "memory · fact" in one.text() and "8642" in one.text()]
    (to,) = [node.attributes["href"] for node in card.css("a") if "correct=1" in node.attributes["href"]]
    assert f"told={nonce}" in to and to.endswith("#field-text")
    form = told.get(to)
    assert form.tree.css_first("details.correct[open] textarea#field-text") is not None
    fields = {**form.fields(".correct form"), "text": "The tide server listens on port 9911."}
    assert fields["told"] == nonce
    wrong = told.post(to.partition("?")[0] + "/edit", {**fields, "text": ""})
    assert wrong.status == 400 and wrong.fields(".correct form")["told"] == nonce
    kept = told.post(to.partition("?")[0] + "/edit", fields)
    assert f"Ask again: “{PORT}”" in kept.text("#memory-state")
    (again,) = [href for href in kept.links("#memory-state a") if href.startswith("/recall/try")]
    assert again.startswith("/recall/try?of=t")
    tried = told.get(again)
    assert tried.fields("main form")["message"] == PORT and "port 9911" in tried.text(".cue .said")


def test_corrected_memory_offers_the_last_recalled_message_again(told):
    with perdure.open(told.home, user="ada") as home:
        port = next(m for m in home.memories.list_memories() if m.text == "The tide server listens on port 8642.")
        new = home.memories.edit(port.memory_id, "The tide server listens on port 9911.")
        unasked = home.remember("The sluice opens at six.", path="sluice/hours")
    seen = told.get(f"/memories/{new.memory_id}?now=corrected&told=0123456789abcdef")  # of nobody
    assert seen.status == 200 and f"Ask again: “{PORT}”" in seen.text("#memory-state")
    never = told.get(f"/memories/{unasked.memory_id}?now=kept")
    assert any(href.startswith("/recall/try?message=") for href in never.links("#memory-state a"))


def test_superseded_cue_links_to_the_current_memory(told):
    page = recalls(told.get("/recall"))[-1]
    with perdure.open(told.home, user="ada") as home:
        port = next(m for m in home.memories.list_memories() if m.text == "The tide server listens on port 8642.")
        new = home.memories.edit(port.memory_id, "The tide server listens on port 9911.")
    seen = told.get(page)
    (card,) = [card for card in seen.tree.css(".cue") if "Now replaced by" in card.text()]
    links = [node.attributes["href"] for node in card.css("a")]
    assert any(href.startswith(f"/memories/{new.memory_id}?correct=1&told=") for href in links)
    assert not any(href.startswith(f"/memories/{port.memory_id}?correct") for href in links)
    assert "The tide server listens on port 9911." in card.text()


def test_the_block_of_a_transcript_is_masked(house, monkeypatch):
    """A block that was given before its words were known for a secret stands as it was given in the transcript."""
    monkeypatch.setattr(recall_sources, "_find_block", lambda *_: f"The quokka deploy token is {SECRET}")
    visitor = house(prepare=lambda home: tell(home, PORT, "8642.")).visitor()
    seen = visitor.get(first(visitor))
    assert "The quokka deploy token is [secret:" in seen.tree.css("pre.code.wrap")[-1].text()
    assert SECRET not in seen.html


def test_many_memories_are_asked_for_at_once(house):
    home = house()
    with perdure.open(home.place, user="ada", read_only=True) as opened:
        names = [memory.memory_id for memory in opened.memories.list_memories()]
        assert len(names) > 2 and list(recall_sources.read_sources(opened, names)) == names
        asked = []
        opened.index().db.exec_trace = lambda _, query, __: asked.append(query) or True
        recall_sources.read_sources(opened, names[:1])
        n_of_one = len(asked)
        recall_sources.read_sources(opened, names)
        assert len(asked) == 2 * n_of_one


def test_forgotten_cue_is_marked_as_gone(house):
    def prepare(home):
        tell(home, PORT, "8642.")
        home.forgetting.apply([], memories=[m.memory_id for m in home.memories.list_memories() if "8642" in m.text])

    visitor = house(prepare=prepare).visitor()
    seen = visitor.get(first(visitor))
    assert any("no longer exists" in words for words in seen.texts(".cue"))
    assert not any("The tide server listens" in words for words in seen.texts(".cue"))
    assert "built again" in seen.text("main")


def test_secrets_in_a_message_and_in_a_cue_are_masked(house):
    def prepare(home):
        home.remember(f"The quokka deploy token is {SECRET}", path="quokka/token")
        tell(home, f"What is the quokka deploy token? Not {SECRET}?", "I will not say.")

    visitor = house(prepare=prepare).visitor()
    for path in ("/recall", first(visitor), "/recall/try?message=quokka+token", "/context?message=quokka"):
        seen = visitor.get(path)
        assert seen.status == 200 and "quokka" in seen.html
        assert SECRET not in seen.html and "[secret:" in seen.html


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("8642", "It was recalled here"),
        ("mem-20200101-000000-ffffff", "Nothing with this id"),
        ("xylophonequartet", "Nothing with these words"),
    ],
)
def test_omission_of_a_memory_is_explained(told, asked, said):
    where = recalls(told.get("/recall"))
    assert any(said in words for words in told.get(f"{where[-1]}?why_not={asked}").texts("#lacked li"))


def test_repeated_recall_lists_passed_over_candidates(told):
    seen = told.get(f"{first(told)}?again=1")
    reasons = [words for words in seen.texts("main .list li") if "It matched, in place" in words]
    assert reasons and "run recall again now" in seen.text("main")


def test_retired_and_foreign_project_memories_are_marked(house):
    kept = {}

    def prepare(home):
        kept["retired"] = home.remember("The heron gate opens at nine.", path="heron/gate").memory_id
        kept["elsewhere"] = home.remember("The heron lamp is blue.", path="heron/lamp", cwd="/w/heronry").memory_id
        home.memories.change([kept["retired"]], retired=True)

    visitor = house(prepare=prepare).visitor()
    asked = "/recall/try?message=when+does+the+heron+gate+open&project=/w/tide&why_not="
    assert "retired" in visitor.get(asked + kept["retired"]).text("#lacked")
    assert "another project (/w/heronry)" in visitor.get(asked + kept["elsewhere"]).text("#lacked")


def test_repeated_recall_says_that_the_session_holds_the_cue(house):
    def prepare(home):
        tell(home, PORT, "8642.")
        tell(home, "And on which port does the tide server listen, the tide gauge?", "See above.", later_s=120)

    visitor = house(prepare=prepare).visitor()
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        newest, oldest = home.memories.injections.list_newest()
    memory = next(reason.cue for reason in oldest.reasons if reason.is_memory)
    assert memory not in [reason.cue for reason in newest.reasons]
    seen = visitor.get(f"/recall/{newest.nonce}?why_not={memory}")
    assert "The session already has it" in seen.text("#lacked")
    assert len(visitor.get(f"/recall?cue={memory}").texts("#injections > li")) == 1


def test_recalls_of_another_user_are_not_found(house):
    nonces = []

    def prepare(home):
        with perdure.open(home.path, user="bob") as other:
            other.remember("The otter den is at pier nine.", path="otter/den")
            tell(other, "Where is the otter den?", "Pier nine.", session="bobs")
            tell(other, "zzz?", session="bobs-silence")
            nonces.extend(one.nonce for one in other.memories.injections.list_newest())

    visitor = house(prepare=prepare).visitor()
    assert nonces
    assert visitor.get(f"/recall/{nonces[0]}").status == visitor.get("/recall/0123456789abcdef").status == 404
    assert "otter" not in visitor.get("/recall").html and "bobs" not in visitor.get("/recall/silent").html
    assert visitor.get(f"/recall?before={nonces[0]}").status == 404


def test_silent_recall_has_a_reason(house):
    def prepare(home):
        tell(home, "Who conducts the xylophone quartet in Ulaanbaatar?", "I do not know.")
        tell(home, "/compact", session="s2")

    visitor = house(prepare=prepare).visitor()
    words = visitor.get("/recall/silent").texts("#silences li")
    assert any("xylophone" in one and "silent" in one and "none of its words" in one for one in words)
    assert any("slash command" in one and "skipped" in one for one in words)
    (again,) = [href for href in visitor.get("/recall/silent").links("#silences a") if "?of=" in href]
    assert "Nothing would be recalled." in visitor.get(again).text(".empty")
    assert visitor.get(again).fields("main form")["message"].startswith("Who conducts")


def test_pages_of_a_long_list_follow_each_other(house):
    def prepare(home):
        for n in range(45):
            tell(home, f"{PORT} ({n})", session=f"s{n}")

    visitor = house(prepare=prepare).visitor()
    found, where = [], "/recall"
    while where:
        seen = visitor.get(where)
        found += recalls(seen)
        where = next(iter(seen.links(".more a")), "")
    assert len(found) == len(set(found)) == 45


# try and context ------------------------------------------------------------------------------------------------


def test_recall_can_be_tried_as_for_a_model(visitor):
    """Row R19: a block ready for a prompt, with provenance and budget."""
    seen = visitor.get("/recall/try?message=Which+port+does+the+tide+server+listen+on")
    block = seen.tree.css("pre.code.wrap")[-1].text()
    assert re.search(r"\[perdure-recall [0-9a-f]{16} begins\]", block) and "port 8642" in block
    assert re.search(r"\[\d{4}-\d\d-\d\d \d\d:\d\d \([\w ]+\) · memory, fact · the user said · (\w+ · )?mem-", block)
    assert "of at most 2,000 tokens" in seen.text("main") and seen.texts(".cue")
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        assert home.memories.injections.list_newest() == []


def test_a_correction_is_recalled(visitor):
    ask = "/recall/try?message=Which+port+does+the+tide+server+listen+on"
    assert "port 9911" not in visitor.get(ask).html
    with perdure.open(visitor.home, user="ada") as home:
        port = next(m for m in home.memories.list_memories() if m.text == "The tide server listens on port 8642.")
        home.memories.edit(port.memory_id, "The tide server listens on port 9911.")
    block = visitor.get(ask).tree.css("pre.code.wrap")[-1].text()
    new, old = block.index("\nThe tide server listens on port 9911."), block.index("listens on port 8642.")
    assert new < old and "\nThe tide server listens on port 8642." not in block, "the old words are history only"


def test_empty_message_and_invalid_time_are_handled(visitor):
    assert visitor.get("/recall/try").texts(".empty strong") == ["Try recall."]
    silent = visitor.get("/recall/try?message=xylophone+quartet+ulaanbaatar")
    assert "Recall is silent" in silent.text(".empty")
    wrong = visitor.get("/recall/try?message=port&as_of=soonish")
    assert wrong.status == 400 and "is not a time" in wrong.text("#said-as_of")
    assert wrong.fields("main form")["message"] == "port"
    assert visitor.get("/recall/try?of=t0000000000000000").status == 404


def test_as_of_recalls_only_earlier_knowledge(visitor):
    ask = "/recall/try?message=Which+port+does+the+tide+server+listen+on&as_of=2020-01-01"
    assert "Nothing would be recalled." in visitor.get(ask).text(".empty")


def test_the_context_is_shown_part_by_part(visitor):
    seen = visitor.get("/context?message=Which+port+does+the+tide+server+listen+on")
    parts = seen.texts(".part summary b")
    assert parts[-3:] == ["message", "recall", "here"]
    assert "the same during a session" in seen.text(".boundary")
    assert "port 8642" in " ".join(seen.texts(".part pre"))
    assert visitor.get("/context").texts(".empty strong") == ["See the whole context."]


# use ------------------------------------------------------------------------------------------------------------


def test_use_page_lists_used_and_unused_memories(house):
    def prepare(home):
        home.remember("The tide server and its port belong to the harbour.", path="tide-server/owner")
        tell(home, PORT, "It listens on port 8642, as you said.")
        home.memories.mark_used_cues(now=datetime.now().astimezone() + timedelta(hours=2))

    told = house(prepare=prepare).visitor()
    seen = told.get("/use")
    with perdure.open(told.home, user="ada", read_only=True) as home:
        weeks = home.memories.injections.count_by_week(since_at=datetime.now().astimezone() - timedelta(weeks=5))
    n_cues, n_used = sum(week.n_cues for week in weeks), sum(week.n_used for week in weeks)
    assert n_used and f"({n_used} of {n_cues} cues)" in seen.text(".cards")
    assert any("used 1 time of 1" in words for words in seen.texts("main .list li"))
    vain = seen.tree.css("main form[action$='/retire']")
    assert vain and all(node.css_first("input[name=token]") is not None for node in vain)


def test_use_page_of_a_home_without_recalls_is_empty(visitor):
    assert "There were no recalls" in visitor.get("/use").text(".empty")


def test_message_and_recorded_block_stand_side_by_side(house):
    """Both in one row of two halves; the answers are kept as labels, can change, and can be taken back."""

    def prepare(home):
        home.config = Config(user=home.user, live=LiveConfig(shadow=True))
        assert tell(home, PORT, "It listens on port 8642.") == ""
        assert tell(home, "On which day do we deploy? <script>alert(1)</script>", later_s=300) == ""

    visitor = house(prepare=prepare).visitor()
    seen = visitor.get("/recall/shadow")
    assert seen.text("#counts") == "2 of 20 messages recorded: 0 yes, 0 no, 2 without an answer."
    newest, oldest = seen.tree.css("#recorded > li")
    assert PORT in oldest.css_first(".halves > .asked-for").text()
    assert "8642" in oldest.css_first(".halves > .recorded-block").text()
    assert "not captured" in newest.css_first(".asked-for").text() and seen.tree.css_first("main script") is None
    action = oldest.css_first("form").attributes["action"]
    fields = {"token": seen.fields("#recorded form")["token"]}
    kept = visitor.post(action, {**fields, "answer": "no"})
    assert "0 yes, 1 no, 1 without" in kept.text("#counts") and "answered: no" in kept.texts("#recorded > li")[1]
    assert "1 yes, 0 no" in visitor.post(action, {**fields, "answer": "yes"}).text("#counts")
    assert "0 yes, 0 no" in visitor.post(action, {**fields, "answer": ""}).text("#counts")
    assert visitor.post(action, {**fields, "answer": "maybe"}).status == 400
    assert visitor.post("/recall/shadow/0000000000000000", {**fields, "answer": "yes"}).status == 404
    assert recalls(visitor.get("/recall")) == []


def test_page_without_a_record_says_how_to_begin(told):
    seen = told.get("/recall/shadow")
    assert seen.texts(".empty strong") == ["Nothing is recorded."] and "perdure start --shadow" in seen.text()
