"""What an address or a form may cost, and what must not stand on a page: secrets, characters that turn text."""

import json
from datetime import UTC, datetime
from urllib.parse import quote

import perdure

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECRET = "hunter2hunter2"
PLACE = f"/work/password={SECRET}"
OWNED = 'user = "ada"\nmachine = "desk"\n[server]\nhttp = "127.0.0.1:0"\n[models.embedder]\nkind = "off"\n'


def line(role, words, **more):
    return json.dumps({"role": role, "content": words, "timestamp": AT.isoformat(), **more}).encode() + b"\n"


def captured(home, words="zyzzyva", **more):
    data = line("user", words) + line("assistant", f"{words} it is", model=f"password={SECRET}")
    home.capture(data, runtime="messages", session=words, cwd=PLACE, tags=(f"password={SECRET}", "open"), **more)
    home.upkeep.catch_up()


# what an address may cost ---------------------------------------------------------------------------------------------


def test_form_refuses_too_many_filters_or_words(visitor):
    many = visitor.get("/search?q=tide&" + "&".join(f"tag=t{n}" for n in range(2000)))
    assert many.status == 400 and len(many.body) < 100_000
    assert "Tag: at most 20 at once." in many.text("[role=alert]") and many.fields(".searching")["q"] == "tide"
    long = visitor.get(f"/search?q={'x' * 5000}")
    assert long.status == 400 and "Words: at most 1,000 characters." in long.text("[role=alert]")
    assert visitor.get("/search?" + "&".join(f"tag=t{n}" for n in range(20))).status == 200


def test_a_subject_longer_than_a_path_may_be_is_refused(visitor):
    assert visitor.get(f"/memories?prefix={'a/' * 2000}a").status == 400
    assert visitor.get(f"/memories?prefix={'a/' * 129}a").status == 400
    seen = visitor.get(f"/memories?prefix={'deploy/' * 30}a")
    assert seen.status == 200 and "0 memories" in seen.text(".belief-leaf .grow")
    assert "1 memory about deploy/day" in visitor.get("/memories?prefix=deploy/day").text(".belief-leaf .grow")
    for path in ("/memories", "/runs", "/sharing"):
        assert visitor.get(f"{path}?project={'x' * 1001}").status == 400, path


def test_no_number_of_an_address_breaks_a_page(visitor):
    nines = "9" * 5000
    for path in (f"/search?cursor={nines}", "/search?since=999999w", f"/search?since={nines}d", "/runs?since=999999w",
                 f"/runs?cursor={nines}", "/recall/try?message=x&as_of=999999w"):  # fmt: skip
        assert visitor.get(path).status == 400, path
    for path in (f"/floor/notes/history?from={nines}", "/memories?from=99999999"):
        assert visitor.get(path).status == 200, path


def test_a_project_longer_than_a_path_may_be_is_not_kept(visitor):
    seen = visitor.post("/memories/new", text="Tides turn.", project="x" * 300_000)
    assert seen.status == 400 and "longer than 256 bytes" in seen.text("[role=alert]")
    assert visitor.post("/floor/cards", text="Tides turn.", project="x" * 300_000).status == 400
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        one = next(m for m in home.memories.list_memories() if m.path == "deploy/day")
    fields = {"text": one.text, "kind": one.kind, "path": one.path, "project": "x" * 257}
    assert visitor.post(f"/memories/{one.memory_id}/edit", fields).status == 400


# what must not stand on a page ----------------------------------------------------------------------------------------


def test_shared_project_is_masked_and_not_offered_as_own(house):
    def prepare(_):
        with perdure.open(_.path, user="bob") as bob:
            captured(bob)
            bob.sharing.share("ada", "tag", "open")

    visitor = house(prepare=prepare).visitor()
    runs = visitor.get("/runs")
    assert "[secret:password]" in " ".join(runs.texts(".entry .badge"))
    (key,) = {node.attributes["value"] for node in runs.tree.css("[name=project] option")
              if (node.attributes["value"] or "").startswith("~")}  # fmt: skip
    narrowed = visitor.get(f"/runs?project={quote(key)}")
    assert len(narrowed.texts(".entry")) == 1 and "[secret:password]" in narrowed.text(".chips")
    talk = next(link for link in narrowed.links(".entry a") if link.startswith("/runs/") and "?" not in link)
    found = visitor.get("/search?q=zyzzyva")
    by_project = visitor.get(f"/search?q=zyzzyva&project={quote(key)}")
    assert len(by_project.texts("#hits .hits li")) == 2
    for seen in (runs, narrowed, found, by_project, visitor.get(talk)):
        assert seen.status == 200 and SECRET not in seen.html, seen.address
    for path in ("/floor", "/floor/notes", "/floor/cards", "/floor/held", "/context", "/recall/try",
                 "/memories/new", "/sharing"):  # fmt: skip
        seen = visitor.get(path)
        assert seen.status == 200 and key not in seen.html and "secret:password" not in seen.html, path


def test_own_project_with_a_secret_is_chosen_by_a_key(house):
    def prepare(home):
        captured(home)
        home.remember("The quay is closed on Mondays.", path=f"quay/password={SECRET}/day", cwd=None)

    home = house(prepare=prepare)
    visitor = home.visitor()
    with perdure.open(home.place, user="ada", read_only=True) as opened:
        (project,) = [one for one in opened.runs.projects() if SECRET in one]
        (one,) = [m for m in opened.memories.list_memories() if SECRET in m.path]
    key = next(node.attributes["value"] for node in visitor.get("/memories/new").tree.css("[name=project] option")
               if "[secret:password]" in node.text())  # fmt: skip
    kept = visitor.post("/memories/new", text="The lock opens at nine.", project=key)
    assert kept.status == 200 and "[secret:password]" in kept.text("main")
    with perdure.open(home.place, user="ada", read_only=True) as opened:
        assert [m.project for m in opened.memories.list_memories() if "lock opens" in m.text] == [project]
    assert "The lock opens at nine." in visitor.get(f"/memories?project={quote(key)}").text("#shelves")
    told = visitor.get(f"/recall/try?message=when+does+the+lock+open&project={quote(key)}")
    assert "The lock opens at nine." in told.text("main")
    given = visitor.post("/sharing", grantee="bob", sure="bob", scope="project", value=key)
    assert "may read project" in given.text("[role=status]")
    for path in ("/memories", "/memories/new", "/sharing", "/floor", f"/floor/cards?project={quote(key)}", "/context",
                 f"/floor/held?project={quote(key)}", "/search?q=zyzzyva", "/runs"):  # fmt: skip
        seen = visitor.get(path)
        assert seen.status == 200 and SECRET not in seen.html, path
    crumbs = visitor.get(f"/memories/{one.memory_id}").tree.css_first(".crumbs")
    assert SECRET not in (crumbs.html or "") and "secret:password" in crumbs.text()


def test_characters_that_turn_text_reach_no_page(visitor):
    turned = quote("\u202e")
    for path in (f"/search?q=tide{turned}x", f"/search?since={turned}7d", f"/search?project={turned}x",
                 f"/floor?project=x{turned}y", f"/runs?project={turned}x&root={turned}", f"/sharing?value={turned}x",
                 f"/memories?project={turned}x&q={turned}", f"/context?message={turned}x&project={turned}x",
                 f"/recall/try?message=x{turned}&project={turned}&why_not={turned}x"):  # fmt: skip
        seen = visitor.get(path)
        assert "\u202e" not in seen.html, path
    visitor.cookies[f"{next(iter(visitor.cookies))}-notice"] = quote("turned \u202e text")
    assert "turned \ufffd text" in visitor.get("/").text("[role=status]")


def test_machine_of_a_visitor_is_not_marked_as_the_homes_own(house):
    home = house(OWNED)
    bob = home.let_in()
    assert "phone" in bob.get("/machines").text(".list") and "this home's own" not in bob.get("/machines").text()
