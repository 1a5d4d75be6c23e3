"""A store of three memories through a real home: what is retired answers nothing, and everything comes back."""

import json

import pytest
from click.testing import CliRunner

from perdure.eval import store_size
from perdure.eval.datasets import load_dataset
from perdure.surfaces.cli import cli

DOCS = (
    ("a", "2026-01-01", "The staging server listens on port 8443."),
    ("b", "2026-01-02", "The invoices are sent by Marta on Fridays."),
    ("c", "2026-01-03", "The staging server listens on port 8443."),
    ("d", "2026-01-04", "Our backups stay in Kestrel for ninety days."),
)
QUESTIONS = (
    ("q1", "Which port does the staging server listen on?", ["a"]),
    ("q2", "Who sends the invoices on Fridays?", ["b"]),
    ("q3", "Where do our backups stay for ninety days?", ["d"]),
    ("q4", "On which port does staging listen?", ["c"]),
)


@pytest.fixture
def small_set(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    docs = [{"id": doc, "group": "g", "session": "s", "ts": f"{day}T09:00:00+00:00", "speaker": "user", "text": text}
            for doc, day, text in DOCS]  # fmt: skip
    questions = [{"qid": qid, "group": "g", "query": query, "gold": gold, "category": "fact", "answer": ""}
                 for qid, query, gold in QUESTIONS]  # fmt: skip
    (folder / "docs.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    (folder / "queries.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    return folder


def test_every_store_is_measured_and_restored(small_set, tmp_path):
    report = store_size.run(small_set, vectors=False, home=tmp_path / "homes")
    rows = {(row.way, row.share): row for row in report.rows}
    whole = rows[store_size.WHOLE, 1.0]
    assert len(rows) == store_size.N_STORES and whole.n_memories == 3  # two documents say the same
    assert whole.told.at == whole.found.at == 1.0
    assert all(row.n_tokens <= share * whole.n_tokens for (_, share), row in rows.items())
    assert (
        whole.useful.at > 0 and rows[store_size.TIDIED, 1.0].told.at == 1.0
    )  # nothing that answers is retired unasked
    unused = rows[store_size.RETIRED[8], 1.0]
    assert unused.over_random and unused.n_memories <= whole.n_memories
    assert all(rows[way, 0.5].told.at < 1.0 for way in (store_size.RANDOM, store_size.NEWEST, store_size.USED))
    groups, folder = load_dataset(small_set).group_docs(), tmp_path / "homes/half-0"
    with store_size.open_stores(groups, folder, None, vectors=False) as stores:
        assert not any(memory.retired for memory in stores["g"].home.memories.list_memories(every=True))


def test_the_past_counts_as_use(small_set, tmp_path):
    data = load_dataset(small_set)
    with store_size.open_stores(data.group_docs(), tmp_path / "home", None, vectors=False) as stores:
        store_size.live_past(stores, data.questions[1:2])
        (used,) = [m for m in stores["g"].home.memories.list_memories() if m.n_used]
        assert "Marta" in used.text and used.n_used == used.n_injected == store_size.PAST_ROUNDS


def test_command_prints_the_curve(small_set, tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(cli, ["eval", "--store-size", "--keyword", "--json", str(small_set)])
    rows = json.loads(result.stdout)["result"]["rows"]
    assert rows[0]["way"] == "all" and rows[0]["told"]["at"] == 1.0
    refused = CliRunner().invoke(cli, ["eval", "--store-size", "--use"])
    assert refused.exit_code == 2 and "--use, --store-size" in refused.stderr
