"""Reading a transcript: from any turn on, with what belongs to it, and nothing of it as markup."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta

import perdure
from perdure.formats.perdure import Boundary
from perdure.session.session import open_session
from perdure.testing import ScriptedChat

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 40
KEY = "sk-ant-api03-" + "Zq8vT2xLk9Rb4Wm7" * 5 + "AA"
HOSTILE = (
    "<script>alert(1)</script> </textarea></pre><img src=x onerror=alert(1)> [a](javascript:alert(2)) \x1b[31m \x00"
)
START = datetime(2026, 3, 1, 9, tzinfo=UTC)


def claude(n, role, content, session="long", **more):
    message = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": f"msg_{session}{n}", "model": "m-1", "usage": {"input_tokens": 1, "output_tokens": 2}}
    head = {
        "type": role, "uuid": f"{session}-{n}", "sessionId": session, "isSidechain": False,
        "timestamp": (START + timedelta(seconds=10 * n)).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
    }  # fmt: skip
    return json.dumps({**head, "message": message, **more}).encode() + b"\n"


def talk(n, session="long"):
    """So many turns: a person asks, the agent calls, the tool answers, the agent says."""
    kinds = [
        lambda i: claude(i, "user", f"Question {i:04}.", session),
        lambda i: claude(i, "assistant", [{"type": "tool_use", "id": f"c{i}", "name": "Bash",
                                           "input": {"command": f"make {i}"}}], session),
        lambda i: claude(i, "user", [{"type": "tool_result", "tool_use_id": f"c{i - 1}", "content": f"Made {i:04}."}],
                         session),
        lambda i: claude(i, "assistant", [{"type": "text", "text": f"Answer **{i:04}**."}], session),
    ]  # fmt: skip
    return b"".join(kinds[i % 4](i) for i in range(n))


def captured(data, session="long", **more):
    return lambda home: home.capture(data, runtime="claude-code", session=session, **more)


def a_run(place, session="long"):
    with perdure.open(place, user="ada", read_only=True) as home:
        return home.runs.conversation(session)[0]


def turns_of(place, run_id):
    with perdure.open(place, user="ada", read_only=True) as home:
        found = home.runs.thread(run_id)
        return found.list_from(found.start, 10_000)


def shown(seen):
    return [node.attributes["id"] for node in seen.tree.css(".turns > .turn, .turns .output[id]")]


def test_long_conversation_is_paged_and_shows_every_turn_once(house):
    home = house(prepare=captured(talk(210)))
    visitor, run = home.visitor(), a_run(home.place)
    seen, found = visitor.get(f"/runs/{run.run_id}"), []
    while True:
        found += shown(seen)
        following = seen.links(".turns > .later a")
        if not following:
            break
        seen = visitor.get(following[0])
    assert sorted(found) == sorted(turn.turn_id for turn in turns_of(home.place, run.run_id))
    assert len(found) == 210 and not seen.texts(".turns > .later")
    back = []
    while True:
        back = shown(seen) + back
        earlier = seen.links(".turns > .earlier a")
        if not earlier:
            break
        seen = visitor.get(earlier[0])
    assert back == found


def test_turn_link_leads_to_its_marked_place(house):
    home = house(prepare=captured(talk(210)))
    visitor, run = home.visitor(), a_run(home.place)
    turns = turns_of(home.place, run.run_id)
    asked, result = turns[100].turn_id, turns[102].turn_id
    answer = visitor.ask("GET", f"/turns/{asked}")
    assert answer.status == 303 and answer.headers["location"] == f"/runs/{run.run_id}?at={asked}#{asked}"
    seen = visitor.get(f"/turns/{asked}")
    assert seen.tree.css_first(".turn.here").attributes["id"] == asked
    assert seen.links(".turns > .earlier a") and seen.links(".turns > .later a")
    seen = visitor.get(f"/turns/{result}")
    assert seen.tree.css_first(".output.here").attributes["id"] == result
    assert "open" in seen.tree.css_first(".turn.here .call").attributes
    gone = visitor.get(f"/runs/{run.run_id}?at=t0000000000000000")
    assert gone.status == 200 and "not in this session (any more)" in gone.text(".alert")
    assert visitor.get("/turns/t0000000000000000").status == 404


def test_filters_leave_calls_out_or_all_but_the_person(house):
    home = house(prepare=captured(talk(40)))
    visitor, run = home.visitor(), a_run(home.place)
    person = visitor.get(f"/runs/{run.run_id}?show=person")
    assert len(shown(person)) == 10 and set(person.texts(".turn .speaker")) == {"You"}
    words = visitor.get(f"/runs/{run.run_id}?show=words")
    assert len(shown(words)) == 20 and not words.texts(".call")
    assert words.text(".tabs [aria-current]") == "No tool calls"


def test_a_search_within_finds_only_in_this_conversation(house):
    home = house(prepare=lambda home: (captured(talk(40))(home), captured(talk(40, "other"), "other")(home)))
    visitor, run = home.visitor(), a_run(home.place)
    seen = visitor.get(f"/runs/{run.run_id}?q=question+0004")
    hits = [link.rpartition("/")[2] for link in seen.links("section .list a")]
    own = {turn.turn_id for turn in turns_of(home.place, run.run_id)}
    assert hits and set(hits) <= own and "Question" in seen.text("section mark")
    assert "Try fewer" in visitor.get(f"/runs/{run.run_id}?q=xylophone").text("section")


def test_hostile_content_is_text(house):
    call = {"type": "tool_use", "id": "c1", "name": HOSTILE, "input": {"command": HOSTILE, HOSTILE: HOSTILE}}
    edit = {"type": "tool_use", "id": "c2", "name": "Edit",
            "input": {"file_path": HOSTILE, "old_string": HOSTILE, "new_string": "x"}}  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": "c1", "content": HOSTILE}
    lines = [
        claude(0, "user", HOSTILE),
        claude(
            1, "assistant", [{"type": "thinking", "thinking": HOSTILE}, {"type": "text", "text": HOSTILE}, call, edit]
        ),
        claude(2, "user", [result]),
        json.dumps({"type": "custom-title", "customTitle": HOSTILE, "sessionId": "long"}).encode() + b"\n",
    ]
    home = house(prepare=captured(b"".join(lines), tags=[HOSTILE]))
    visitor, run = home.visitor(), a_run(home.place)
    for path in (f"/runs/{run.run_id}", f"/runs/{run.run_id}/forget", f"/runs/{run.run_id}?q=alert"):
        seen = visitor.get(path)
        assert seen.status == 200 and "<script>alert" not in seen.html and "onerror=alert(1)>" not in seen.html
        assert not seen.tree.css("main script, main img, main textarea, [onerror], [style]")
        assert not [link for link in seen.links("a") if link.startswith("javascript")]
        assert "\x1b" not in seen.html and "\x00" not in seen.html
    assert "<script>alert(1)</script>" in visitor.get(f"/runs/{run.run_id}").text(".typed")


def test_output_of_a_megabyte_is_cut_and_has_a_full_page(house):
    big = "word " * 250_000
    lines = [
        claude(0, "assistant", [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "cat big"}}]),
        claude(1, "user", [{"type": "tool_result", "tool_use_id": "c1", "content": f"{big}\n{KEY}"}]),
        claude(2, "user", "x" * 900_000 + " " + KEY),
    ]
    home = house(prepare=captured(b"".join(lines)))
    visitor, run = home.visitor(), a_run(home.place)
    seen = visitor.get(f"/runs/{run.run_id}")
    assert len(seen.body) < 80_000 and "Show all 2 lines" in seen.text(".output")
    assert "Zq8v" not in seen.html
    full = [link for link in seen.links("main a") if f"/runs/{run.run_id}/turns/" in link]
    whole = visitor.get(full[0])
    assert len(whole.text("pre").replace(" ", "")) == 800_000 and "Back to its turn" in whole.text()
    typed = visitor.get(full[1])
    assert "x" * 900_000 in typed.text("pre") and "[secret:" in typed.text("pre") and "Zq8v" not in typed.html
    assert visitor.get(full[0][:-1] + "99").status == 404 and visitor.get(full[0][:-1] + "x").status == 404


def test_a_turn_of_very_many_calls_is_read_piece_by_piece(house):
    calls = [
        {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"make {n:04}"}} for n in range(250)
    ]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"Made {n:04}."} for n in range(250)]
    home = house(prepare=captured(claude(0, "assistant", calls) + claude(1, "user", results)))
    visitor, run = home.visitor(), a_run(home.place)
    seen, found = visitor.get(f"/runs/{run.run_id}"), []
    while True:
        found += [text.removeprefix("make ") for text in seen.texts(".call .about")]
        behind = seen.links(".turn .body > p a.button")
        if not behind:
            break
        assert len(seen.texts(".call")) == 100
        seen = visitor.get(behind[0])
    assert found == [f"{n:04}" for n in range(250)] and "Made 0249." in seen.text(".turns")
    assert "200 parts of it before these" in seen.text(".turns")
    address = behind_of(visitor, run).partition("?")[0]
    assert len(visitor.get(f"{address}?from=nonsense").texts(".call")) == 100
    assert "250 parts of it before these" in visitor.get(f"{address}?from=999999").text(".turns")
    assert visitor.get(f"/runs/{run.run_id}/turns/t0000000000000000").status == 404


def behind_of(visitor, run):
    return visitor.get(f"/runs/{run.run_id}").links(".turn .body > p a.button")[0]


def test_deeply_nested_input_and_huge_names_are_cut(house):
    inner = "deep"
    for _ in range(900):
        inner = {"a": inner}
    long = "n" * 1_000_000
    blocks = [
        {"type": "tool_use", "id": "c1", "name": "Bash", "input": inner},
        {"type": "tool_use", "id": "c2", "name": long, "input": {"path": long, long: "x"}},
    ]
    line = json.loads(claude(0, "assistant", blocks))
    line["message"]["model"] = long
    home = house(prepare=captured(json.dumps(line).encode() + b"\n"))
    seen = home.visitor().get(f"/runs/{a_run(home.place).run_id}")
    assert seen.status == 200 and len(seen.texts(".call")) == 2 and len(seen.body) < 60_000


def test_images_are_shown_when_they_are_images(house):
    data, svg = (base64.b64encode(raw).decode() for raw in (PNG, b"<svg onload=alert(1)>" + b" " * 27))
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": svg}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": svg}},
    ]
    home = house(prepare=captured(claude(0, "user", [{"type": "text", "text": "See"}, *blocks])))
    visitor, run = home.visitor(), a_run(home.place)
    shots = [node.attributes["src"] for node in visitor.get(f"/runs/{run.run_id}").tree.css(".shot img")]
    assert len(shots) == 2
    good, bad = visitor.get(shots[0]), visitor.get(shots[1])
    assert good.body == PNG and good.headers["content-type"] == "image/png"
    assert good.headers["x-content-type-options"] == "nosniff" and "sandbox" in good.headers["content-security-policy"]
    assert bad.status == 404
    assert visitor.get(shots[0][:-1] + "0").status == 404  # its words


def test_sub_agent_is_shown_at_its_call_and_links_back(visitor):
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        agent = next(node.run for node in tree(home) if "/" in node.run.session)
        parent = home.runs.get(agent.parent_run_id)
    seen = visitor.get(f"/runs/{parent.run_id}")
    (fold,) = seen.tree.css("details.agent")
    assert fold.attributes["hx-get"] == f"/runs/{agent.run_id}" and "open" not in fold.attributes
    turn = fold.parent.parent
    assert "sub-agent" in turn.css_first(".call .about").text() or turn.css_first(".call .tool").text() == "Agent"
    assert f"/runs/{parent.run_id}" in visitor.get(f"/runs/{agent.run_id}").links(".talk a")


def tree(home):
    todo = list(home.runs.forest())
    while todo:
        node = todo.pop()
        todo += node.children
        yield node


def test_branches_that_were_left_are_folded(visitor):
    lines = [{"type": "session", "id": "pi-1", "timestamp": START.isoformat(), "cwd": "/w"}]
    for name, parent, words in (("a", None, "Begin"), ("b", "a", "The left way"), ("c", "a", "The way on")):
        message = {"role": "user", "content": words}
        entry = {"type": "message", "id": name, "parentId": parent, "timestamp": START.isoformat(), "message": message}
        lines.append(entry)
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    with perdure.open(visitor.home, user="ada") as home:
        home.capture(data, runtime="pi", session="pi-1")
        home.upkeep.catch_up()
    run = a_run(visitor.home, "pi-1")
    seen = visitor.get(f"/runs/{run.run_id}")
    assert seen.texts(".left summary") == ["1 turn on an abandoned branch"] and "The left way" in seen.text(".left")
    assert "open" not in seen.tree.css_first(".left details").attributes
    assert "open" in visitor.get(f"/runs/{run.run_id}?all=1").tree.css_first(".left details").attributes


def test_a_session_of_our_own_shows_its_compaction_branch_and_fork(visitor):
    with perdure.open(visitor.home, user="ada") as home:
        with open_session(home, chat=ScriptedChat(["One.", "Two.", "Three."])) as session:
            session.say("Plan the attic.")
            point = session.log.tree.leaf
            session.say("With nginx?")
            session.log.move_leaf(point)
            boundary = Boundary(first_kept=point, summary="They **plan** the attic.", **session.log.make_fields())
            session.log.append(boundary)
            session.say("With caddy?")
        with open_session(home, session.session, fork=True, chat=ScriptedChat(["Four."])) as fork:
            fork.say("Forked.")
        home.upkeep.catch_up()
    run = a_run(visitor.home, session.session)
    seen = visitor.get(f"/runs/{run.run_id}")
    assert seen.texts(".left summary") == ["2 turns on an abandoned branch"] and "With nginx?" in seen.text(".left")
    assert "They plan the attic." in seen.text(".turn.summary") and "summary" in seen.text(".turn.summary .badge")
    assert f"perdure chat --resume {session.session}" in seen.text("header.talk")
    forked = visitor.get(f"/runs/{a_run(visitor.home, fork.session).run_id}")
    assert "what it was forked from" in forked.text("header.talk") and "Forked." in forked.text(".turns")


def test_memories_and_injections_are_shown_beside_their_turn(house):
    said = "Decision: the cache is SQLite in WAL mode, not Postgres."

    def prepare(home):
        now = datetime.now(UTC)
        captured(claude(0, "user", said, timestamp=now.isoformat()))(home)
        home.upkeep.catch_up()
        data = {"runtime": "claude-code", "session": "long", "agent": "", "nonce": "abc123", "digest": "d",
                "turns": ["t1", "t2"], "n_chars": 9, "n_tokens": 41, "took_ms": 12.0}  # fmt: skip
        home.journal().append("injected", data, now=now)
        (turn,) = turns(home)
        sources = [perdure.types.Span(turn.captured_in, turn.offset, turn.offset + 1)]
        home.memories.keep(perdure.memories.store.MemoryDraft("The cache is SQLite.", "decision", "cache", None,
                                                       sources=tuple(sources)), by="owner")  # fmt: skip

    def turns(home):
        found = home.runs.thread(home.runs.conversation("long")[0].run_id)
        return found.list_from(found.start, 9)

    home = house(prepare=prepare)
    seen = home.visitor().get(f"/runs/{a_run(home.place).run_id}")
    assert "from this turn" in seen.text(".turn details.noted summary") and "The cache is SQLite." in seen.text(
        ".noted ul"
    )
    assert "/recall/abc123" in seen.links(".turn .noted a") and "2 things recalled for it 41 tokens" in seen.text(
        ".turn"
    )


def test_the_raw_file_is_the_captured_bytes(house):
    data = talk(8)
    home = house(prepare=captured(data))
    visitor, run = home.visitor(), a_run(home.place)
    seen = visitor.get(f"/runs/{run.run_id}/raw")
    assert seen.body == data and seen.headers["content-disposition"].startswith("attachment")


def test_skipped_lines_are_counted_at_the_end(house):
    data = talk(4) + b"{broken\n" + b'{"type":"queue-operation","operation":"enqueue"}\n'
    home = house(prepare=captured(data))
    seen = home.visitor().get(f"/runs/{a_run(home.place).run_id}")
    assert "1 line could not be read" in seen.text(".talk-end") and "queue-operation 1" in seen.text(
        ".talk-end details"
    )


def test_every_time_of_a_transcript_names_its_zone(house):
    home = house(prepare=captured(talk(8)))
    visitor, run = home.visitor(), a_run(home.place)
    for path in (f"/runs/{run.run_id}", f"/runs/{run.run_id}/forget", "/runs"):
        times = [node for node in visitor.get(path).tree.css("main time") if "T" in node.attributes["datetime"]]
        titles = [node.attributes.get("title") or "" for node in times]
        assert times and all(re.search(r"\d\d:\d\d(?: \S+|:\d\d\+00:00)$", title) for title in titles), titles


def test_forgetting_a_run_counts_the_turns_that_the_reader_counts(house):
    """The lines that are no turns were counted as one more turn."""
    data = talk(12) + b'{"type":"queue-operation","operation":"enqueue"}\n'
    home = house(prepare=captured(data))
    visitor, run = home.visitor(), a_run(home.place)
    asked = visitor.get(f"/runs/{run.run_id}/forget")
    assert asked.text("form.cluster .danger") == "Forget 12 turns, with the lines that are no turns"
    assert asked.fields("main form")["n"] == "13"
    assert run.n_turns == 12


def test_forgetting_a_turn_shows_its_plan_and_applies_it(house):
    home = house(prepare=captured(talk(12)))
    visitor, run = home.visitor(), a_run(home.place)
    turns = turns_of(home.place, run.run_id)
    asked = visitor.get(f"/runs/{run.run_id}/forget?turn={turns[0].turn_id}")
    assert "Question 0000." in asked.text() and "1 turn" in asked.text("form.cluster button")
    assert visitor.get(f"/runs/{run.run_id}/forget").fields("main form")["n"] == "12"
    stale = visitor.post(f"/runs/{run.run_id}/forget", turn=turns[0].turn_id, n="2")
    assert stale.status == 409 and "changed since you opened this page" in stale.text(".alert")
    visitor.post(f"/runs/{run.run_id}/forget", turn=turns[0].turn_id, n="1")
    seen = visitor.get(f"/runs/{run.run_id}")
    assert "Question 0000." not in seen.html and "1 line of this transcript was forgotten" in seen.text(".talk-end")
    assert visitor.get(f"/turns/{turns[0].turn_id}").status == 404
    assert visitor.ask("GET", f"/runs/{run.run_id}/forget?turn=t0000000000000000").status == 404


def test_run_of_another_user_is_not_found(house):
    home = house(prepare=captured(talk(8)))
    run = a_run(home.place)
    turn = turns_of(home.place, run.run_id)[0].turn_id
    home.opened.sharing.machines.register("bob", "phone")
    bob = home.let_in(name="laptop")
    for path in (f"/runs/{run.run_id}", f"/turns/{turn}", f"/runs/{run.run_id}/raw", f"/runs/{run.run_id}/forget",
                 f"/runs/{run.run_id}/turns/{turn}/0", f"/runs/{run.run_id}/turns/{turn}",
                 f"/runs/{run.run_id}/images/{turn}/0"):  # fmt: skip
        assert bob.ask("GET", path).status == 404, path


def test_a_shared_run_is_read_masked_and_cannot_be_forgotten(house):
    lines = [claude(0, "user", f"My key is {KEY}"), claude(1, "assistant", [{"type": "text", "text": "Noted."}])]

    def prepare(home):
        captured(b"".join(lines))(home)
        home.upkeep.catch_up()
        home.sharing.share("bob", "run", home.runs.conversation("long")[0].run_id)

    home = house(prepare=prepare)
    run = a_run(home.place)
    bob = home.let_in(name="laptop")
    seen = bob.get(f"/runs/{run.run_id}")
    assert seen.status == 200 and "shared by ada" in seen.text(".talk") and seen.texts(".turn .speaker")[0] == "ada"
    assert "Zq8v" not in seen.html and "Zq8v" not in bob.get(f"/runs/{run.run_id}/raw").html
    assert bob.get(f"/runs/{run.run_id}/forget").status == 404 and "Forget" not in seen.text(".talk")


def test_copied_session_links_to_the_original(house):
    data = talk(8)
    fork = data.replace(b'"sessionId": "long"', b'"sessionId": "then"') + claude(8, "user", "Only here.", "then")
    home = house(prepare=lambda home: (captured(data)(home), captured(fork, "then")(home)))
    visitor, run = home.visitor(), a_run(home.place, "then")
    seen = visitor.get(f"/runs/{run.run_id}")
    assert seen.texts(".turn .typed") == ["Only here."]
    (link,) = [link for link in seen.links("main .alert a") if link.startswith("/turns/")]
    assert a_run(home.place).run_id in visitor.get(link).links(".talk a[download]")[0]


def test_new_turns_are_announced_at_the_end(house):
    data = talk(8)
    home = house(prepare=captured(data))
    visitor, run = home.visitor(), a_run(home.place)
    region = visitor.get(f"/runs/{run.run_id}").tree.css_first("#newer")
    assert region.attributes["data-live-region"] == "captured" and not region.text().strip()
    with perdure.open(home.place, user="ada") as opened:
        more = claude(8, "user", "One more.") + claude(9, "assistant", [{"type": "text", "text": "Yes."}])
        opened.capture(more, runtime="claude-code", session="long", from_offset=len(data))
    again = visitor.get(region.attributes["data-from"])
    assert again.text("#newer") == "2 newer turns"
    assert again.tree.css_first("#newer").attributes["data-from"] == region.attributes["data-from"]
    assert visitor.get(again.links("#newer a")[0]).texts(".turn .body")[-2:] == ["One more.", "Yes."]
