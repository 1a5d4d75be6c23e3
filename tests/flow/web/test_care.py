"""Machines, sharing, jobs, health, growth and quality, as their owner and another user see them."""

import re
import time
from datetime import UTC, datetime, timedelta

import perdure
from perdure import log
from perdure.archive import injections
from perdure.capture import events
from perdure.eval import recall_quality
from perdure.index.memory_rows import to_replay_event
from perdure.jobs import JobLog, JobResult
from perdure.surfaces.web.routes import TABLE

OWNED = 'user = "ada"\n[server]\nhttp = "127.0.0.1:0"\n[models.embedder]\nkind = "off"\n'
HOSTILE = "<script>alert(1)</script>"
FIGURES = {
    "n_docs": 118, "n_questions": 90, "interval": {"R@10": {"at": 0.9, "low": 0.85, "high": 0.95}},
    "systems": {
        name: {"R@5": share, "R@10": share, "Hit@10": share, "MRR": share, "nDCG@10": share, "packed": share,
               "tokens": 357.0, "n": 90}
        for name, share in (("recall", 0.9), ("keyword only", 0.8), ("no memory", 0.0))
    },
    "categories": {
        "fact": {
            name: {"R@5": share, "R@10": share, "MRR": share, "nDCG@10": share, "tokens": 300.0, "n": 55}
            for name, share in (("recall", 0.91), ("keyword only", 0.81), ("no memory", 0.0))
        }
    },
    "silence": {"answerable": 0.022, "unanswerable": None, "elsewhere": 0.887, "auroc": 0.99},
    "took_ms": {"p50": 12.9, "p95": 29.4},
}  # fmt: skip


def opened(visitor, user="ada"):
    return perdure.open(visitor.home, user=user, read_only=True)


# machines -------------------------------------------------------------------------------------------------------


def test_machine_is_registered_and_its_secret_shown_once(house):
    home = house()
    visitor = home.visitor()
    seen = visitor.send("/machines", [("name", "laptop"), ("user", "ada"), ("token", visitor.token())])
    assert (seen.status, seen.headers["cache-control"]) == (201, "no-store")
    secret, joined = seen.texts("pre code")
    assert joined == "perdure join URL" and "only now" in seen.text(".alert")
    stranger = home.stranger()
    assert stranger.send("/enter", [("secret", secret), ("to", "/machines")]).status == 303
    assert "laptop" in stranger.get("/machines").text()
    for path in ("/machines", "/machines?all=1", "/", "/health"):
        assert secret not in visitor.get(path).html
    assert secret not in log.to_log_path(visitor.home).read_text()


def test_wrong_machine_name_is_reported_beside_the_field(visitor):
    visitor.post("/machines", name="laptop")
    seen = visitor.post("/machines", name="laptop")
    assert seen.status == 400 and "already has a machine 'laptop'" in seen.text("#said-name")
    assert seen.fields("main form")["name"] == "laptop"
    assert visitor.post("/machines", name=HOSTILE).status == 400
    assert HOSTILE not in visitor.post("/machines", name=HOSTILE).html


def test_machine_is_listed_with_its_captures_and_last_time(visitor):
    with opened(visitor) as home:
        name = home.config.machine
    seen = visitor.get("/machines")
    (line,) = [text for text in seen.texts(".list > li") if text.startswith(name)]
    assert "this home's own" in line and "5 runs" in line and "last seen" in line
    assert f"/runs?machine={name}" in seen.links()


def test_machine_is_revoked_only_after_a_confirmation(house):
    home = house()
    visitor, bob = home.visitor(), home.let_in()
    (machine,) = home.opened.sharing.machines.list_machines("bob")
    asked = visitor.get(f"/machines/{machine.machine_id}/revoke")
    assert asked.text("h1") == "Revoke phone?" and bob.ask("GET", "/machines").status == 200
    done = visitor.post(f"/machines/{machine.machine_id}/revoke")
    assert done.address == "/machines" and "is revoked" in done.text("[role=status]")
    assert bob.ask("GET", "/machines").status == 303
    assert "its requests are refused" in visitor.get(f"/machines/{machine.machine_id}/revoke").text()
    assert "phone" in visitor.get("/machines?everybody=1&all=1").text(".list")


def test_user_cannot_see_or_revoke_machines_of_another(house):
    home = house()
    home.opened.sharing.machines.register("ada", "laptop")
    bob = home.let_in()
    (laptop,) = home.opened.sharing.machines.list_machines("ada")
    assert "laptop" not in bob.get("/machines?all=1").text(".list")
    unknown = bob.get("/machines/m-0000000000000000/revoke")
    for seen in (bob.get(f"/machines/{laptop.machine_id}/revoke"), bob.post(f"/machines/{laptop.machine_id}/revoke")):
        assert (seen.status, seen.text("main > p")) == (404, unknown.text("main > p"))
    assert bob.get("/machines?everybody=1").status == 404
    assert bob.post("/machines", name="x", user="ada").status == 404
    assert home.opened.sharing.machines.list_machines("ada") == [laptop]


# sharing --------------------------------------------------------------------------------------------------------


def test_a_project_is_shared_counted_and_shared_no_more(house):
    home = house()
    visitor, bob = home.visitor(), home.let_in()
    project = next(path for path in home.opened.runs.projects() if path)
    assert project in [node.attributes["value"] for node in visitor.get("/sharing").tree.css("datalist option")]
    given = visitor.post("/sharing", grantee="bob", scope="project", value=project, until="4w")
    assert re.search(r"bob may read project .*: [1-9]\d* runs? now", given.text("[role=status]"))
    assert re.search(r"[1-9]\d* runs? now until", given.text(".list"))
    assert "ada lets you read" in bob.get("/sharing").text()
    (one,) = home.opened.sharing.grants.list_given()
    done = visitor.post(f"/sharing/{one.grant.grant_id}/revoke")
    assert "no longer" in done.text("[role=status]") and "You have no grants." in done.text()
    assert "There are no grants to you" in bob.get("/sharing").text()
    assert "revoked" in visitor.get("/sharing?all=1").text(".list")


def test_only_the_grantee_can_decline_a_grant(house):
    home = house()
    visitor, bob, eve = home.visitor(), home.let_in(), home.let_in("eve", "tablet")
    visitor.post("/sharing", grantee="bob", scope="tag", value="orchard")
    (one,) = home.opened.sharing.grants.list_given()
    path = f"/sharing/{one.grant.grant_id}"
    assert eve.post(f"{path}/decline").status == 404 and bob.post(f"{path}/revoke").status == 404
    assert "You no longer read tag orchard of ada." in bob.post(f"{path}/decline").text("[role=status]")
    assert "declined" in visitor.get("/sharing?all=1").text(".list")


def test_unknown_grantee_is_asked_about(visitor):
    wanted = {"grantee": "bbo", "scope": "tag", "value": "x"}
    seen = visitor.post("/sharing", wanted)
    assert "This home has no user bbo" in seen.text("[role=alert]") and "You have no grants." in seen.text()
    assert "bbo may read" in visitor.post("/sharing", {**wanted, "sure": "bbo"}).text("[role=status]")


def test_project_without_sessions_is_asked_about(house):
    home = house()
    visitor, _ = home.visitor(), home.let_in()
    path = next(path for path in home.opened.runs.projects() if path and "/" in path.strip("/"))
    wanted = {"grantee": "bob", "scope": "project", "value": path.rpartition("/")[2]}
    seen = visitor.post("/sharing", wanted)
    assert "None of your sessions is in the project" in seen.text("[role=alert]") and path in seen.text("[role=alert]")
    assert seen.fields("main form")["value"] == wanted["value"] and "You have no grants." in seen.text()
    assert "bob may read" in visitor.post("/sharing", {**wanted, "sure_project": wanted["value"]}).text("[role=status]")
    assert "bob may read" in visitor.post("/sharing", {**wanted, "value": f"{path}/"}).text("[role=status]")


def test_unknown_member_of_a_team_is_asked_about(house):
    home = house()
    home.opened.sharing.teams.set_rule("harbour")
    visitor, _ = home.visitor(), home.let_in()
    wanted = {"user": "bbo", "reviewer": "1"}
    seen = visitor.post("/sharing/teams/harbour/members", wanted)
    assert "This home has no user bbo" in seen.text("[role=alert]")
    assert seen.tree.css_first("input[name=reviewer][checked]") is not None
    assert home.opened.sharing.teams.get_team("harbour").find_member("bbo") is None
    for fields in ({**wanted, "sure": "bbo"}, {"user": "bob"}):
        done = visitor.post("/sharing/teams/harbour/members", fields)
        assert f"{fields['user']} is a member of harbour." in done.text("[role=status]")


def test_refused_grant_is_explained_and_the_form_keeps_its_input(visitor):
    with opened(visitor) as home:
        home.sharing.machines.register("bob", "phone")
    for fields, said in (
        ({"grantee": "ada", "scope": "tag", "value": "x"}, "already read your own data"),
        ({"grantee": "bob", "scope": "run", "value": "zzzz"}, "have no run 'zzzz'"),
        ({"grantee": "bob", "scope": "house", "value": "x"}, "cannot be shared"),
        ({"grantee": "bob", "scope": "tag", "value": "x", "until": "soon"}, "is not a time"),
        ({"grantee": "bob", "scope": "tag", "value": "x", "until": "2020-01-01"}, "is in the past"),
    ):
        seen = visitor.post("/sharing", fields)
        assert seen.status == 400 and said in seen.text("[role=alert]"), fields
        assert seen.fields("main form")["value"] == fields["value"]
    assert "You have no grants." in visitor.get("/sharing").text()


def test_names_of_grants_are_shown_as_text(visitor):
    with opened(visitor) as home:
        home.sharing.machines.register("bob", "phone")
    visitor.post("/sharing", grantee="bob", scope="tag", value=HOSTILE)
    seen = visitor.get("/sharing")
    assert HOSTILE in seen.text(".list") and HOSTILE not in seen.html


# jobs -----------------------------------------------------------------------------------------------------------


def test_job_runs_and_its_result_is_shown(house):
    home = house()
    visitor = home.visitor()
    assert "has started" in visitor.post("/jobs/verify/run").text("[role=status]")
    ends_s = time.monotonic() + 20
    while "no damage" not in visitor.get("/jobs").text() and time.monotonic() < ends_s:
        time.sleep(0.05)
    line = next(text for text in visitor.get("/jobs").texts(".list > li") if text.startswith("verify"))
    assert "done" in line and "5 runs checked, no damage" in line
    assert "5 runs checked, no damage" in visitor.get("/jobs/verify").text("tbody")


def test_a_job_is_paused_and_resumed(visitor):
    assert "paused until you resume it" in visitor.post("/jobs/pack/pause").text("[role=status]")
    assert JobLog(visitor.home).list_paused() == {"pack"}
    assert "paused" in next(text for text in visitor.get("/jobs").texts(".list > li") if text.startswith("pack"))
    assert "runs on its schedule again" in visitor.post("/jobs/pack/resume").text("[role=status]")
    assert JobLog(visitor.home).list_paused() == set()


def test_failed_job_shows_its_reason_as_text(visitor):
    def fail():
        raise OSError(f"{HOSTILE} ghp_{'a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8'}")

    JobLog(visitor.home).run("pack", fail, trigger="clock", now=lambda: datetime.now(UTC))
    JobLog(visitor.home).run(
        "sweep", lambda: JobResult("2 runs from 1 files"), trigger="clock", now=lambda: datetime.now(UTC)
    )
    seen = visitor.get("/jobs")
    assert "failed" in seen.text(".badge.bad") and HOSTILE in seen.text(".error") and HOSTILE not in seen.html
    assert "ghp_" not in seen.html and "2 runs from 1 files" in seen.text()


def test_only_an_admin_sees_jobs_and_the_disk(house):
    bob = house().let_in()
    assert not {"/jobs"} & set(bob.get("/").links("nav a"))
    for view in TABLE:
        if view.is_admin and view.method == "GET":
            assert bob.get(view.path.replace("{name}", "sweep")).status == 403, view.path
    assert bob.post("/jobs/sweep/run").status == 403 and bob.post("/quality/measure").status == 403


def test_unknown_job_is_not_found(visitor):
    assert visitor.get("/jobs/dance").status == 404 and visitor.post("/jobs/dance/run").status == 404


# health ---------------------------------------------------------------------------------------------------------


def test_health_begins_with_one_sentence(visitor):
    seen = visitor.get("/health")
    assert seen.text(".verdict") == "It works: no problems."
    for said in ("archiving and indexing", "runs behind the archive", "memory", "free", "process"):
        assert said in seen.text()


def test_problems_come_first_with_advice(house):
    def break_it(home):
        (home.path / "outbox").mkdir(exist_ok=True)
        (home.path / "outbox" / "x.unreadable").write_bytes(b"?")

    seen = house(prepare=break_it).visitor().get("/health")
    assert seen.text(".verdict") == "One check fails."
    assert "outbox" in seen.text(".checks > li") and "see " in seen.text(".checks > li")


def test_health_tells_how_the_proxy_does(house):
    served = house()
    ends_at = time.monotonic() + 20
    while not events.to_socket_path(served.place).exists():
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    report = {"address": "http://127.0.0.1:8788", "pid": 7, "since_at": "2026-11-25T09:00:00+00:00",
              "n_requests": 4, "n_edited": 2, "n_failed_open": 3, "n_slow": 1}  # fmt: skip
    assert events.ask_resident(served.place, {"op": "proxy", "report": report}, timeout_s=5) == {"ok": True}
    assert "error" in events.ask_resident(served.place, {"op": "proxy", "report": {"pid": 7}}, timeout_s=5)
    (line,) = [text for text in served.visitor().get("/health").texts(".checks > li") if text.startswith("proxy")]
    assert "4 requests, 2 edited, 3 without the block they should have (1 because recall was slow)" in line


def test_data_path_is_proven_on_request(visitor):
    assert "Tested: write, archive, index, search and forget work" in visitor.post("/health/probe").text(
        "[role=status]"
    )
    disk = visitor.get("/health/disk")
    assert {"runs", "index", "journal"} <= set(disk.texts("tbody th"))


def test_other_user_sees_health_and_their_own_numbers(house):
    def ask(home):
        log.append_entry(home.path, "answered", user="ada", kind="prompt", outcome="silent", took_ms=4)
        log.append_entry(home.path, "answered", user="bob", kind="prompt", outcome="injected", took_ms=61)

    bob = house(prepare=ask).let_in()
    seen = bob.get("/health")
    assert seen.text(".verdict") == "This home works."
    told = dict(
        zip(seen.texts("[aria-labelledby=answers] dt"), seen.texts("[aria-labelledby=answers] dd"), strict=True)
    )
    assert told == {
        "told": "1",
        "silent, of those it looked at": "0 %",
        "median": "61 ms",
        "95th percentile": "61 ms",
    }
    assert "process" not in seen.text() and str(bob.home) not in seen.html


# growth ---------------------------------------------------------------------------------------------------------


def test_growth_is_drawn_with_every_number_in_a_table(house):
    def use(home):
        for n in range(4):
            data = {"runtime": "pi", "session": "s", "agent": "", "nonce": f"n{n}", "digest": "d", "turns": ["t"]}
            home.journal().append(injections.EVENT_TYPE, data, now=datetime.now(UTC))
        home.journal().append(injections.USED, {"nonce": "n0", "cues": ["t"], "by": "answer"}, now=datetime.now(UTC))
        log.append_entry(home.path, "answered", user="ada", kind="prompt", outcome="silent", took_ms=4)

    seen = house(prepare=use).visitor().get("/growth")
    assert seen.text("main > p").startswith("84 turns in 5 runs since")
    titles = seen.texts("figcaption")
    assert len(titles) == 7 and "Turns per month" in titles
    assert len(seen.tree.css("svg[role=img][aria-label]")) == len(seen.tree.css("figure table")) == 7
    assert "100% of 1 cues were used" in seen.text()
    assert seen.texts("figure[aria-labelledby=chart-use] tbody tr:first-child td") == ["1", "1"]
    assert [len(seen.tree.css(f"figure.{kind}.pair")) for kind in ("bars", "lines")] == [2, 1]  # told apart by form
    assert not seen.tree.css("[style]")


def test_growth_is_the_visitors_own(house):
    bob = house().let_in()
    seen = bob.get("/growth")
    assert "There are no figures yet." in seen.text() and not seen.tree.css("figure")


# quality --------------------------------------------------------------------------------------------------------


def measured(home, share, *, days_ago=0, questions="q1"):
    """Note a time at which the first ten held so much."""
    figures = {**FIGURES, "interval": {"R@10": {"at": share, "low": share - 0.03, "high": share + 0.03}}}
    data = {"version": "0.1.0", "model": HOSTILE, "machine": "desk", "questions": questions, "figures": figures}
    home.journal().append(recall_quality.MEASURED_TYPE, data, now=datetime.now(UTC) - timedelta(days=days_ago))


def test_empty_quality_page_says_how_to_measure(visitor):
    seen = visitor.get("/quality")
    assert seen.text(".empty pre") == "perdure eval" and not seen.tree.css("main table")


def test_quality_shows_measurements_and_changes(house):
    def measure(home):
        measured(home, 0.8, days_ago=2)
        measured(home, 0.9)

    home = house(OWNED, prepare=measure)
    seen = home.visitor().get("/quality")
    assert seen.text(".verdict") == (
        "The first ten results of recall contain 90.0% of the evidence; better than the last measurement."
    )
    assert seen.texts(".scroll[aria-label='Results of each method'] tbody th") == [
        "recall",
        "keyword only",
        "no memory",
    ]
    kinds = seen.texts(".scroll[aria-label='By kind of question'] tbody td")
    assert kinds == ["55", "91.0", "91.0", "91.0", "91.0", "81.0", "0.0", "300"]
    assert len(seen.texts(".scroll[aria-label='All measurements'] tbody tr")) == 2
    assert HOSTILE not in seen.html and seen.tree.css("svg")
    bob = home.let_in()
    assert bob.get("/quality").text(".verdict") == seen.text(".verdict")
    assert "Measure now" not in bob.get("/quality").text()


def test_page_measures_quality_in_a_separate_process(house):
    visitor = house(OWNED).visitor()
    assert "The measurement has started" in visitor.post("/quality/measure").text("[role=status]")
    ends_s = time.monotonic() + 120
    while not (seen := visitor.get("/quality")).tree.css("main table") and time.monotonic() < ends_s:
        time.sleep(0.3)
    assert "90 questions about 118 turns" in seen.text()
    with opened(visitor) as home:
        (time_,) = recall_quality.read_measurements(
            map(to_replay_event, home.journal().read(type_=recall_quality.MEASURED_TYPE))
        )
    assert time_.figures["systems"]["recall"]["R@10"] > time_.figures["systems"]["keyword only"]["R@10"]


def test_failed_measurement_is_reported(house):
    def fail(home):
        def broken():
            raise OSError("no room")

        JobLog(home.path).run("eval", broken, trigger="person", now=lambda: datetime.now(UTC))

    assert "The last measurement failed: OSError: no room" in house(OWNED, prepare=fail).visitor().get("/quality").text(
        "[role=alert]"
    )
