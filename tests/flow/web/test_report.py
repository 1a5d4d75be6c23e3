"""The report on the page: one look says whether the memory earns its place, and each row leads to its turn."""

from datetime import UTC, datetime, timedelta

import pytest

from perdure.archive import memory_events
from perdure.memories.consolidate import CONSOLIDATION_AUTHOR
from perdure.report import probe_runs
from rig.lived import LivedHome


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


def test_empty_home_says_how_to_begin(house):
    assert house(prepare=lambda home: None).visitor().get("/report").status == 200
