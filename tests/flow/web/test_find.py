"""Searching and the forest, as somebody with a browser meets them."""

import json
import re
from datetime import timedelta

import perdure

HOSTILE = '<script>alert("tide")</script> </textarea><img src=https://evil.example/x.png onerror=alert(1)>'


def line(role, words, at):
    return json.dumps({"role": role, "content": words, "timestamp": at.isoformat()}).encode() + b"\n"


def ids(seen, css="#hits a"):
    return [link.rpartition("/")[2] for link in seen.links(css) if link.startswith("/turns/")]


def facet(seen, label):
    """The address behind a value of a facet."""
    links = seen.tree.css(".facets a")
    return next(node.attributes["href"] for node in links if " ".join(node.text().split()).startswith(label))


# search -----------------------------------------------------------------------------------------------------------


def test_search_shows_turns_by_session_and_memories_beside_them(visitor):
    seen = visitor.get("/search?q=spring+tide+port")
    assert seen.status == 200 and seen.text("title").startswith("Search: spring tide port")
    assert {"tide", "port"} <= {word.lower() for word in seen.texts("#hits mark")}
    assert "The tide server listens on port 8642." in seen.texts(".remembered a")
    assert seen.links(".remembered a")[0].startswith("/memories/mem-")
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        assert ids(seen) and all(home.resolve(name) == ("turn", name) for name in ids(seen))
        runs = [link.rpartition("/")[2] for link in seen.links(".session .title")]
        assert runs and all(home.runs.get(name) for name in runs)
    assert visitor.get(f"/turns/{ids(seen)[0]}").status == visitor.get(seen.links(".session .title")[0]).status == 200
    assert re.match(r"\d+ turns · best first · [\d.]+ m?s", seen.text(".told"))
    assert seen.fields(".searching")["q"] == "spring tide port"


def test_list_continues_and_repeats_no_turn(visitor):
    seen, found, sizes = visitor.get("/search?q=tide&tools=1"), [], []
    while True:
        found += ids(seen)
        sizes.append(len(ids(seen)))
        following = seen.links(".more a")
        if not following:
            break
        seen = visitor.get(following[0])
        assert not seen.texts(".remembered"), "memories stand on the first page"
    assert len(found) == len(set(found)) and len(sizes) > 1 and sizes[0] == 20
    assert int(visitor.get("/search?q=tide&tools=1").text(".told").split()[0]) == len(found)


def test_memories_beside_the_hits_match_the_query_and_filters(visitor):
    def remembered(asked):
        return visitor.get(f"/search?{asked}").texts(".remembered a")

    assert remembered("q=thursday") == remembered("q=thursday&mode=keyword") == ["We deploy on Thursdays."]
    assert remembered("q=thursday&project=-&since=1d") == remembered("q=thursday")
    assert not any(map(remembered, ("q=ostrich", "q=ostrich&mode=keyword", "q=we+on+the")))
    for limit in ("runtime=codex", "role=user", "kind=text", "machine=vm", "agent=default", "tag=x", "project=/x",
                  "until=2020-01-01"):  # fmt: skip
        assert not remembered(f"q=thursday&{limit}"), limit


def test_address_holds_the_position_in_the_list(visitor):
    """Two pages at once are what the first and the second show, and what follows is the third."""
    first = visitor.get("/search?q=tide&tools=1")
    second = visitor.get(first.links(".more a")[0])
    both = visitor.get("/search?q=tide&tools=1&pages=2")
    assert set(ids(both)) == set(ids(first)) | set(ids(second)) and len(ids(both)) == len(ids(first) + ids(second))
    assert both.links(".more a") == second.links(".more a")
    groups = [node.attributes["data-group"] for node in both.tree.css(".session")]
    assert len(groups) == len(set(groups)), "a session has one heading"


def test_facet_narrows_and_a_chip_removes_the_filter(visitor):
    seen = visitor.get("/search?q=tide")
    narrow = visitor.get(facet(seen, "codex"))
    assert set(narrow.texts(".session .badge.runtime")) == {"codex"} and len(seen.texts(".session .badge.runtime")) > 1
    assert narrow.texts(".chip")[0].startswith("Client: codex")
    assert narrow.links(".chip") == ["/search?q=tide"]
    assert narrow.texts(".facets a[aria-current]")[0].startswith("codex")
    tools = visitor.get(facet(visitor.get("/search?q=tide&tools=1"), "tool result"))
    assert set(tools.texts(".hits .badge")) == {"tool result"}


def test_search_leads_with_what_was_said_and_a_switch_adds_tools(visitor):
    said = visitor.get("/search?q=tide")
    assert ids(said) and set(said.texts(".hits .badge")) <= {"summary"} and "Tool" not in said.texts(".hits .by")
    (switch,) = said.links(".switch a")
    assert switch == "/search?q=tide&tools=1" and re.search(r"\(\d+\)", said.text(".switch"))
    both = visitor.get(switch)
    assert {"tool call", "tool result"} <= set(both.texts(".hits .badge")) and not both.links(".switch a")
    assert both.texts(".chip")[0].startswith("Tools and programs too") and both.links(".chip") == ["/search?q=tide"]
    assert both.fields(".searching")["tools"] == "1"


def test_words_of_tools_alone_are_one_click_away(house, ago):
    def prepare(home):
        call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "zyzzyva --all"}}
        home.capture(line("assistant", [call], ago(hours=1)), runtime="messages", session="s")

    seen = house(prepare=prepare).visitor().get("/search?q=zyzzyva")
    assert "Nobody said this" in seen.text(".empty") and seen.links(".more a") == ["/search?q=zyzzyva&tools=1"]


def test_outputs_that_say_nearly_the_same_are_one_hit(house, ago):
    log = "commit 1 zyzzyva first\ncommit 2 second\ncommit 3 third\ncommit 4 fourth\n"

    def prepare(home):
        for n in range(3):
            call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": "git log"}}
            output = {"type": "tool_result", "tool_use_id": f"c{n}", "content": log + f"commit {n + 5} more"}
            data = line("assistant", [call], ago(hours=n + 1)) + line("user", [output], ago(hours=n + 1))
            home.capture(data, runtime="messages", session=f"s{n}")

    seen = house(prepare=prepare).visitor().get("/search?q=zyzzyva&tools=1")
    assert len(seen.tree.css(".session > .hits > li")) == 1 and seen.texts(".hits details summary") == [
        "2 more like this"
    ]
    assert len(set(ids(seen))) == 3


def test_filters_without_words_list_the_newest_first(visitor):
    seen = visitor.get("/search?role=user")
    at = [node.attributes["datetime"] for node in seen.tree.css(".hits time")]
    assert len(at) > 5 and at == sorted(at, reverse=True)
    assert "newest first" in seen.text(".told") and set(seen.texts(".hits .by")) <= {"You", "A program"}
    assert not seen.texts(".remembered")


def test_wrong_time_is_reported_at_its_field_and_input_is_kept(visitor):
    seen = visitor.get("/search?q=tide&since=yesterdayish&tag=a")
    assert seen.status == 400 and "yesterdayish" in seen.text("#said-since") and not ids(seen)
    assert seen.tree.css_first("#field-since").attributes["aria-invalid"] == "true"
    assert seen.fields(".searching") == {
        "q": "tide", "since": "yesterdayish", "until": "", "mode": "", "tag": "a",
    }  # fmt: skip
    assert visitor.get("/search?q=tide&cursor=x").status == 400


def test_projects_of_the_same_name_can_be_told_apart(house, ago):
    def prepare(home):
        for folder in ("/home/ada/orchard", "/srv/orchard"):
            data = line("user", "Which quince is ripe?", ago(days=1))
            home.capture(data, runtime="messages", session=folder.replace("/", "-"), cwd=folder)

    visitor = house(prepare=prepare).visitor()
    options = visitor.get("/runs").texts("select[name=project] option")
    assert {"/home/ada/orchard", "/srv/orchard"} <= set(options) and "orchard" not in options
    values = " ".join(visitor.get("/search?q=quince&mode=keyword").texts(".facets .grow"))
    assert "/home/ada/orchard" in values and "/srv/orchard" in values


def test_empty_search_page_gives_advice(visitor):
    seen = visitor.get("/search")
    assert "Newest sessions" in seen.texts("h2") and seen.links(".list a")[0].startswith("/runs/")
    assert "Nothing found" in visitor.get("/search?q=quokkaquokka").text(".empty")
    assert "Remove a filter" in visitor.get("/search?q=tide&tag=nobody").text(".empty")


def test_hostile_words_are_escaped_and_secrets_masked(house, ago):
    secret = "ghp_" + "a1b2c3d4e5f6" * 3

    def prepare(home):
        at = ago(hours=1)
        data = line("user", f"{HOSTILE} zyzzyva {secret}", at) + line("assistant", "zyzzyva " + "A" * 1_000_000, at)
        home.capture(data, runtime="messages", session='s"><script>', cwd="/w/<b>p</b>", tags=("<i>x", "night"))

    visitor = house(prepare=prepare).visitor()
    for address in (
        "/search?q=zyzzyva",
        "/search?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E+zyzzyva",
        "/runs",
        "/runs?flat=1",
    ):
        seen = visitor.get(address)
        assert seen.status == 200 and len(seen.body) < 100_000
        assert all(node.attributes.get("src", "").startswith("/static/") for node in seen.tree.css("script"))
        assert not seen.tree.css("main img, main i, main b, main textarea, [onerror]")
        assert not [link for link in seen.links() if not link.startswith(("/", "#"))]
        assert 'alert("tide")' in seen.text("main") and secret not in seen.html
    assert visitor.get("/search?q=zyzzyva&tag=night").texts(".chip")[0].startswith("Tag: night")


def test_shared_results_name_their_owner_and_hide_private_data(house, ago):
    def prepare(home):
        with perdure.open(home.path, user="bob") as bob:
            at = ago(hours=1)
            bob.capture(line("user", "zyzzyva shared", at), runtime="messages", session="open", tags=("harbour",))
            bob.capture(line("user", "zyzzyva private", at), runtime="messages", session="closed")
            bob.upkeep.catch_up()
            bob.sharing.share("ada", "tag", "harbour")

    visitor = house(prepare=prepare).visitor()
    seen = visitor.get("/search?q=zyzzyva")
    assert len(ids(seen)) == 1 and "shared by bob" in seen.texts(".session .badge") and seen.texts(".by") == ["bob"]
    runs = visitor.get("/runs")
    assert "shared by bob" in runs.texts(".badge")
    assert "private" not in seen.text() + runs.text()


def test_other_user_finds_nothing_of_the_owner(house):
    home = house()
    bob = home.let_in()
    assert "Nothing found" in bob.get("/search?q=tide").text(".empty")
    assert "This home is empty" in bob.get("/search").text(".empty")
    seen = bob.get("/runs")
    assert "No sessions yet" in seen.text(".empty") and seen.texts("#field-project option") == ["any"]
    owned = home.opened.runs.forest()[0].run.run_id
    assert bob.get(f"/runs?root={owned}").status == 404 == bob.get("/runs?root=01zzzz").status


# the forest ---------------------------------------------------------------------------------------------------------


def test_forest_shows_each_run_with_its_badges_and_sub_agents(visitor):
    seen = visitor.get("/runs")
    assert len(seen.tree.css(".day > .list > .entry")) == 4
    below = seen.texts(".entry .tree > .entry")
    assert len(below) == 1 and below[0].startswith("sub-agent") and "4 turns" in below[0]
    words = seen.text("main")
    for said in ("claude-code", "39 turns", "1 session below", "6 turns abandoned", "tidepool"):
        assert said in words
    region = seen.tree.css_first("[data-live-region]")
    assert region.attributes["data-live-region"] == "captured" and region.attributes["data-from"] == "/runs"
    assert all(node.attributes.get("id") for node in seen.tree.css(".entry details"))


def test_filtered_forest_shows_its_filters(visitor):
    seen = visitor.get("/runs?runtime=codex&since=")
    assert set(seen.texts("main .badge.runtime")) == {"codex"} and seen.links(".chip") == ["/runs"]
    assert seen.fields(".filters")["runtime"] == "codex"
    assert "No session matches" in visitor.get("/runs?tag=nobody").text(".empty")
    wrong = visitor.get("/runs?since=yesterdayish")
    assert wrong.status == 400 and "yesterdayish" in wrong.text("[role=alert]")
    flat = visitor.get("/runs?flat=1")
    assert len(flat.texts(".list > li")) == 5 and not flat.texts(".tree")


def test_the_tree_below_one_run(visitor):
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        (top,) = [node.run.run_id for node in home.runs.forest() if node.children]
    seen = visitor.get(f"/runs?root={top[:12]}")
    assert len(seen.texts(".entry")) == 2 and seen.links(".chip") == ["/runs"]


def test_forest_pages_hold_each_tree_once_and_continue_a_day(house, ago):
    noon = ago(days=400).replace(hour=12)  # all on one day, at whatever time this test runs

    def prepare(home):
        for n in range(70):
            data = line("user", f"session {n}", noon - timedelta(minutes=n))
            home.capture(data, runtime="messages", session=f"many{n}")

    visitor = house(prepare=prepare).visitor()
    first = visitor.get("/runs")
    second = visitor.get(first.links(".more a")[0])
    names = [node.attributes["id"] for seen in (first, second) for node in seen.tree.css(".day > .list > .entry")]
    assert len(names) == len(set(names)) == 74 and not second.links(".more a")
    assert second.tree.css("#older .day") and "continued" in second.texts(".day h2")[0]
    assert not second.tree.css("[data-live-region]"), "older pages do not move under who reads them"


def test_session_in_many_parts_is_one_entry(house, ago):
    def prepare(home):
        at = 0
        for n in range(9):
            data = line("user", f"part {n}", ago(minutes=60 - n))
            home.capture(data, runtime="messages", session="long", from_offset=at)
            at += len(data)

    visitor = house(prepare=prepare).visitor()
    (entry,) = [words for words in visitor.get("/runs").texts(".entry") if words.startswith("part 0")]
    assert "captured in 9 parts" in entry and "9 turns" in entry and "3 older" in entry
    (older,) = [link for link in visitor.get("/runs").links(".parts a") if "flat" in link]
    assert len(visitor.get(older).texts(".list > li")) == 9
