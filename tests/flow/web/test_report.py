"""The report on the page: one look says whether the memory earns its place, and each row leads to its turn."""

from datetime import UTC, datetime, timedelta

import pytest

from perdure.archive import memory_events
from perdure.memories.consolidate import CONSOLIDATION_AUTHOR
from perdure.report import probe_runs
from rig.lived import LivedHome

HOSTILE = '</code></a><script>alert(1)</script><img src=x onerror=alert(1)><b class="evil">"q"</b>'


def live(home) -> None:
    """Twelve services, of which eleven are asked about; then a tidying-up takes eight of them away."""
    now = datetime.now(UTC)
    lived, ids = LivedHome(home, clock=now - timedelta(days=2)), []
    for n in range(12):
        text = f"The service numbered x{n}y of the harbour listens on port 91{n:02}."
        ids.append(lived.remember(text, path=f"x{n}/port").memory_id)
    for n in range(11):
        lived.tell(f"Connect me to service x{n}y", [ids[n]], "Connected <b>now</b>.", session=f"s{n}")
    nonce = lived.tell("Connect me to the last", [ids[11]], "Which one?", session="last")
    home.memories.mark_used_cues(now=now + timedelta(hours=1))
    home.memories.label_cue(nonce, ids[11], memory_events.WRONG)
    probe_runs.run_probes(home, now=now, limit_s=60)
    ops = [memory_events.build_change_op(memory_id, retired=True) for memory_id in ids[:8]]
    data = memory_events.build_event_data(ops, by=CONSOLIDATION_AUTHOR)
    home.journal().append(memory_events.EVENT_TYPE, data, now=now)
    probe_runs.run_probes(home, now=now, limit_s=60)


@pytest.fixture
def lived(house):
    return house(prepare=live).visitor()


def test_page_says_what_came_of_each_text_and_links_it(lived):
    seen = lived.get("/report")
    assert seen.status == 200 and "not known yet" in seen.text(".verdict")
    links = seen.links()
    for start in ("/memories/mem-", "/recall/"):
        assert any(href.startswith(start) for href in links)
    assert any("wrong" in part for part in seen.texts("details summary"))
    for href in {href for href in links if href.startswith(("/memories/", "/recall/", "/turns/"))}:
        assert lived.get(href).status in (200, 303), href


def test_page_warns_of_answers_that_were_lost_and_names_the_cause(lived):
    seen = lived.get("/report")
    alert = seen.text(".alert.bad")
    assert "8 fewer of" in alert and "retired since" in alert
    assert lived.get("/report?days=30").status == 200 and lived.get("/report?days=<b>").status == 200


def test_hostile_text_is_escaped_in_every_part(house):
    def live_with_it(home) -> None:
        lived = LivedHome(home, clock=datetime.now(UTC) - timedelta(days=2))
        note = lived.remember(f"The tide server says {HOSTILE}.", path="tide/greeting").memory_id
        nonce = lived.tell(f"What does the tide server say to us? {HOSTILE}", [note], f"It says {HOSTILE}.")
        for session in ("first", "second"):
            lived.run(f"pytest '{HOSTILE}'", "bash: pytest: command not found", session, has_failed=True)
        lived.leave_silent(f"Open the ledger of the tide {HOSTILE}", "Let me look.", "silent")
        lived.run(f"perdure search '{HOSTILE}'", f"2026-01-01 user: {HOSTILE}", "silent")
        home.memories.label_cue(nonce, note, memory_events.WRONG)

    seen = house(prepare=live_with_it).visitor().get("/report")
    assert "<script>alert" not in seen.html and not seen.tree.css("main script, main img, main b.evil")
    for part in ("#told ~ details", "section[aria-labelledby=errors] li", "section[aria-labelledby=missed] li"):
        assert any("<script>alert(1)</script>" in words for words in seen.texts(part)), part
    assert "<script>alert(1)</script>" in seen.text("#retire + ul")


def test_empty_home_says_how_to_begin(house):
    assert house(prepare=lambda home: None).visitor().get("/report").status == 200
