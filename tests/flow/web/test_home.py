"""The first page: what was learnt today, what was recalled, what waits, what clients delete; and the settings."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.datastructures import QueryParams

import perdure
from perdure.capture.events import HookEvent
from perdure.memories.store import MemoryDraft
from perdure.surfaces.web import render
from perdure.surfaces.web.routes import NAVIGATION
from perdure.surfaces.web.views.home import show_home
from perdure.surfaces.web.visits import Visit
from perdure.turn import answer_event
from perdure.types import Identity

QUESTION = "Which port does the tide server listen on?"
KEPT = "How long clients keep their sessions"


def told(home, *, used):
    """A message with a recall, its answer, and whether that was checked."""
    now = datetime.now(UTC).replace(microsecond=0)
    event = HookEvent("messages", "prompt", "s1", cwd="/w/harbour", prompt=QUESTION)
    assert answer_event(home, event, limit_ms=20_000, now=now).text
    turns = [("user", QUESTION, now), ("assistant", "It listens on port 8642.", now + timedelta(seconds=5))]
    data = b"".join(json.dumps({"role": role, "content": words, "timestamp": at.isoformat()}).encode() + b"\n"
                    for role, words, at in turns)  # fmt: skip
    home.capture(data, runtime="messages", session="s1", cwd="/w/harbour")
    home.upkeep.catch_up()
    if used:
        home.memories.mark_used_cues(now=now + timedelta(hours=2))


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    """A folder of the user with settings of Claude Code, which the page reads."""
    (tmp_path / "user" / ".claude").mkdir(parents=True)
    (tmp_path / "user" / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 400}')
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


def section(seen, heading):
    return next(
        " ".join(node.text().split()) for node in seen.tree.css("section") if node.css_first("h2").text() == heading
    )


def test_six_entries_and_the_settings(visitor):
    links = visitor.get("/").links(".side a")
    assert links == [one.href for one in NAVIGATION]
    assert links == ["/", "/chat", "/search", "/runs", "/memories", "/recall", "/settings"]
    settings = visitor.get("/settings")
    assert {"/floor", "/diary", "/machines", "/sharing", "/health", "/jobs", "/growth", "/quality"} == set(
        settings.links()
    )
    floor = visitor.get("/floor")
    assert floor.links(".crumbs a") == ["/settings"] and floor.texts(".side [aria-current]") == ["Settings"]
    assert visitor.get("/proposals").texts(".side [aria-current]") == ["Memory"]


def test_other_user_sees_no_page_for_admins(house):
    bob = house().let_in()
    assert "/jobs" not in bob.get("/settings").links()
    assert KEPT not in bob.get("/").texts("h2")


def test_home_shows_what_was_learnt_today_and_what_it_replaced(house):
    def prepare(home):
        home.remember("The tide server listens on port 9090.", kind="fact", path="tide-server/port")

    seen = house(prepare=prepare).visitor().get("/")
    learnt = section(seen, "Learnt today")
    assert "port 9090" in learnt and "instead of “The tide server listens on port 8642.”" in learnt
    assert "We deploy on Thursdays." in learnt and "Nothing yet today" not in learnt


def test_home_says_whether_recalls_helped(house):
    visitor = house(prepare=lambda home: told(home, used=True)).visitor()
    recalled = section(visitor.get("/"), "Recalled today")
    assert "1 message got" in recalled and "The answers used 1 of" in recalled and QUESTION in recalled
    assert "harbour" in recalled and "marked" not in recalled


def test_home_shows_what_waits(house):
    def prepare(home):
        home.floor.propose("system", "Answer briefly. " * 10, why="shorter")

    home = house(prepare=prepare)
    seen = home.visitor().get("/")
    assert "1 proposed edit of the floor: you decide" in section(seen, "Waiting")
    assert "/floor/proposals" in seen.links() and "/proposals" in seen.links()


def drawn_home(place, user):
    """The first page as the server draws it while two runs of some users wait for the index."""
    with perdure.open(place, user=user, read_only=True) as home:
        server, now = SimpleNamespace(read_health=lambda: {"behind": 2}), datetime.now(UTC)
        identity = Identity(user, "laptop", "", is_admin=user == "ada")
        page = show_home(Visit(server, identity, home, {}, QueryParams(), {}, now, None))
        rest = {"visitor": None, "csrf": "", "notice": "", "here": "/", "nav": "home", "setting": None, "now": now}
        return render.render_page(page.template, {**rest, "navigation": [], **page.values}).decode()


@pytest.mark.index_file("it deletes the file")
def test_home_that_is_being_indexed_is_not_called_empty(tmp_path):
    data = json.dumps({"role": "user", "content": "hello there"}).encode() + b"\n"
    with perdure.open(tmp_path, user="ada") as home:
        home.capture(data, runtime="messages", session="s1")
        home.capture(data, runtime="messages", session="s2")
    (tmp_path / "index.db").unlink()
    seen = drawn_home(tmp_path, "ada")
    assert "2 captured runs are not indexed yet." in seen and "This home is empty." not in seen
    assert "This home is empty." in drawn_home(tmp_path, "bob")


def test_home_counts_no_runs_of_another_user(tmp_path):
    with perdure.open(tmp_path, user="bob") as home:
        home.upkeep.catch_up()
        home.remember("The quay is closed on Mondays.")
    assert "to be indexed" not in drawn_home(tmp_path, "bob")


def test_home_counts_what_waits_for_a_decision(house):
    """A memory that rules drafted and that is held, and two memories that say nearly the same."""

    def prepare(home):
        reviewed = replace(home.memories, is_reviewed=True)
        reviewed.keep_all([MemoryDraft("The quay crane is checked in May.", how="stated")], by="rules")
        for words in ("The harbour office opens at nine.", "The harbour office opens at nine sharp."):
            home.memories.keep(MemoryDraft(words, path=f"office/{len(words)}"))

    visitor = house(prepare=prepare).visitor()
    seen = visitor.get("/")
    assert "1 drafted memory for your review" in section(seen, "Waiting") and "/proposals" in seen.links()
    assert [node.attributes.get("hx-get") for node in seen.tree.css("#waiting ~ p")] == ["/proposals/count"]
    counted = visitor.get("/proposals/count").text("#n-found")
    assert counted.startswith("1 clean-up proposal:")


def test_chunks_without_a_vector_are_counted(tmp_path):
    """Without a model nothing waits; with one, everything that it has not read yet."""
    data = json.dumps({"role": "user", "content": "hello there"}).encode() + b"\n"
    (tmp_path / "config.toml").write_text('[models.embedder]\nkind = "off"\n')
    with perdure.open(tmp_path, user="ada") as home:
        home.capture(data, runtime="messages", session="s")
        home.upkeep.catch_up()
        assert home.upkeep.count_unembedded() == 0
    (tmp_path / "config.toml").write_text('[models.embedder]\nkind = "static"\n')
    with perdure.open(tmp_path, user="ada") as home:
        assert home.upkeep.count_unembedded() in (0, 1) and home.upkeep.vector_status().model
        home.upkeep.embed()
        assert home.upkeep.count_unembedded() == 0


def test_home_says_how_long_clients_keep_sessions(own_home, house):
    kept = section(house().visitor().get("/"), KEPT)
    assert "Claude Code deletes a session 400 days after its last use (cleanupPeriodDays, set by you)" in kept
    assert "Codex keeps its sessions until you delete them" in kept


def test_one_click_retires_a_memory_and_another_restores_it(visitor):
    seen = visitor.get("/")
    (form, *_) = [node for node in seen.tree.css("form") if "/retire" in (node.attributes.get("action") or "")]
    path = form.attributes["action"]
    assert form.css_first("button").text().startswith("Wrong: ")
    after = visitor.post(path)
    assert "never recalled" in after.text("#memory-state") and "Restore" in after.texts("button")
    assert "Restored" in visitor.post(path.replace("/retire", "/restore")).text("[role=status]")


def test_cue_is_marked_as_wrong_and_that_is_taken_back(house):
    visitor = house(prepare=lambda home: told(home, used=True)).visitor()
    path = next(link for link in visitor.get("/recall").links(".list a") if link.count("/") == 2)
    form = visitor.get(path).tree.css_first(".cue form")
    cue = form.css_first("[name=cue]").attributes["value"]
    marked = visitor.post(f"{path}/label", cue=cue, label="wrong")
    assert "marked wrong" in marked.text(".cue") and len(marked.texts(".cue .badge.warn")) == 1
    assert "1 marked wrong" in visitor.get("/recall").text(".list")
    assert "You marked 1 as wrong." in section(visitor.get("/"), "Recalled today")
    undone = visitor.post(f"{path}/label", cue=cue)
    assert "marked wrong" not in undone.text("ol.cues") and "1 marked wrong" not in visitor.get("/recall").text(".list")
    assert visitor.post(f"{path}/label", cue="mem-nothing", label="wrong").status == 400
    assert visitor.post(f"{path}/label", cue=cue, label="right").status == 400
    assert visitor.post("/recall/00000000/label", cue=cue, label="wrong").status == 404


def test_labels_of_another_user_are_not_mine(house):
    home = house(prepare=lambda home: told(home, used=False))
    path = next(link for link in home.visitor().get("/recall").links(".list a") if link.count("/") == 2)
    assert home.let_in().post(f"{path}/label", cue="x", label="wrong").status == 404


def test_home_opens_with_sessions_of_clients_that_are_only_imported(house):
    """How long these clients keep their sessions is not known, and not said."""
    hosts = Path(__file__).parents[2] / "data" / "hosts"

    def prepare(home):
        home.import_files([hosts / "home" / ".cline", hosts / "tidepool" / ".aider.chat.history.md"])
        assert {"cline", "aider"} <= set(home.runs.names("runtime"))

    assert house(prepare=prepare).visitor().get("/").status == 200
