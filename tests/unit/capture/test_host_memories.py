"""Files in which hosts keep memories and instructions: which they are, their paragraphs, and what changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.capture import enqueue, host_memories, policy
from perdure.config import CaptureConfig, Config

MEMORY = """# Tide

The port is 8443.

- Deploy on Friday.
- Never on Monday.

```sh
# not a heading

make
```
"""


def read(lines: list[bytes]) -> list[dict]:
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        ("/h/.claude/projects/-w/memory/topic.md", "host-memory"),
        ("/h/.codex/memories/a/b.md", "host-memory"),
        ("/w/CLAUDE.local.md", "instructions"),
        ("/w/.github/copilot-instructions.md", "instructions"),
        ("/w/.cursor/rules/style.mdc", "instructions"),
        ("/w/notes/README.md", ""),
        ("/w/style.mdc", ""),
    ],
)
def test_a_path_tells_the_kind_of_file(path, runtime):
    assert host_memories.find_runtime(path) == runtime


def test_paragraphs_and_items_get_lines_and_the_version_names_them():
    header, *paragraphs, version = read(host_memories.make_lines(MEMORY.encode(), "/h/MEMORY.md", None))
    assert header == {"file": "/h/MEMORY.md"}
    assert [(row["headings"], row["text"].strip().split("\n")[0]) for row in paragraphs] == [
        (["Tide"], "# Tide"),
        (["Tide"], "The port is 8443."),
        (["Tide"], "- Deploy on Friday."),
        (["Tide"], "- Never on Monday."),
        (["Tide"], "```sh"),
    ]
    assert version["paragraphs"] == [row["id"] for row in paragraphs]


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        ("1. Pull.\n2. Build.\n\n3. Push.\n", ["1. Pull.\n2. Build.\n\n3. Push.\n"]),
        ("Run it so:\n\n```sh\nmake\n```\n\nDone.\n", ["Run it so:\n\n```sh\nmake\n```\n\n", "Done.\n"]),
        ("Run it.\n\n```sh\nmake\n```\n\nThis builds it.\n", ["Run it.\n\n```sh\nmake\n```\n\nThis builds it.\n"]),
        ("- Moor.\n\n  At pier 3.\n\n- Leave.\n", ["- Moor.\n\n  At pier 3.\n\n", "- Leave.\n"]),
        ("- Moor.\n- Leave.\n", ["- Moor.\n", "- Leave.\n"]),
        ("One.\n\nThis rule holds.\n", ["One.\n\n", "This rule holds.\n"]),
        ("Take 24 V.\n\n**Why:** Relays burn.\n\nPay.\n", ["Take 24 V.\n\n**Why:** Relays burn.\n\n", "Pay.\n"]),
        ("Relays burn at 12 V.\n\nSo take 24 V.\n", ["Relays burn at 12 V.\n\nSo take 24 V.\n"]),
        (
            "- Purpose: light\n- Location: pier\n- Purpose: sound\n",
            ["- Purpose: light\n- Location: pier\n", "- Purpose: sound\n"],
        ),
        ("# Tide\n\n```sh\nmake\n```\n", ["# Tide\n\n", "```sh\nmake\n```\n"]),
    ],
)
def test_steps_and_code_stay_with_their_sentence(text, paragraphs):
    assert [paragraph for _, paragraph in host_memories.split_paragraphs(text)] == paragraphs


NOTE = """---
name: lamps
description: "Lamps take 24 V"
metadata:
  type: feedback
---

Read the label.

# Relays

They burn.
"""


def test_the_description_of_a_note_stands_above_its_paragraphs():
    parts = list(host_memories.split_paragraphs(NOTE))
    above = [headings for headings, _ in parts]
    assert above == [[], ["Lamps take 24 V"], ["Lamps take 24 V", "Relays"], ["Lamps take 24 V", "Relays"]]
    assert "".join(paragraph for _, paragraph in parts) == NOTE
    assert [headings for headings, _ in host_memories.split_paragraphs(NOTE.replace("\n", "\r\n"))] == above


def test_a_long_description_is_clipped_and_a_folded_one_left_out():
    long_note, folded_note = ("---\ndescription: " + words + "\n---\nPay.\n" for words in ("tide " * 90, ">-\n  tide"))
    (heading,), _ = list(host_memories.split_paragraphs(long_note))[1]
    assert len(heading) <= 202 and heading.endswith("tide …")
    assert list(host_memories.split_paragraphs(folded_note))[1] == ([], "Pay.\n")


def test_a_very_long_numbered_list_is_cut():
    text = "".join(f"{n}. {'step ' * 20}\n" for n in range(1, 60))
    parts = [paragraph for _, paragraph in host_memories.split_paragraphs(text)]
    assert len(parts) > 3 and "".join(parts) == text


@given(st.text(alphabet="a# \n-`\t1.", max_size=60))
def test_the_paragraphs_of_a_version_are_the_whole_file(text):
    _, *paragraphs, version = read(host_memories.make_lines(text.encode(), "/m.md", None))
    texts = {row["id"]: row["text"] for row in paragraphs}
    same = "".join(texts[name] for name in version["paragraphs"])
    assert same.split() == text.split()
    if len(set(version["paragraphs"])) == len(version["paragraphs"]):
        assert same == text


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".claude/projects/-w/memory/MEMORY.md", ".claude/CLAUDE.md", "w/CLAUDE.md", "w/.cursor/rules/a.mdc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("- one\n")
    return tmp_path


def test_files_of_the_user_and_of_a_project_are_found(user_home: Path):
    found = [str(path.relative_to(user_home)) for path in host_memories.find_files([str(user_home / "w")])]
    memory = ".claude/projects/-w/memory/MEMORY.md"
    assert found == [".claude/CLAUDE.md", memory, "w/CLAUDE.md", "w/.cursor/rules/a.mdc"]


def test_a_file_belongs_to_its_project(user_home: Path):
    find = host_memories.find_project_folder
    assert find(user_home / ".claude/CLAUDE.md") is None
    assert find(user_home / "w/.cursor/rules/a.mdc") == find(user_home / "w/CLAUDE.md") == str(user_home / "w")
    assert find(user_home / "w/.perdure/notes/team.md") == str(user_home / "w")
    memory = user_home / ".claude/projects/-w/memory/MEMORY.md"
    assert find(memory) == "-w"
    line = {"type": "user", "sessionId": "s", "cwd": "/work/w", "message": {"role": "user", "content": "x"}}
    (memory.parents[1] / "s.jsonl").write_text(json.dumps(line) + "\n")
    assert find(memory) == "/work/w"


def test_a_client_loads_its_own_instructions(user_home: Path):
    loaded = host_memories.list_loaded_files("claude-code", "/w/sub")
    assert {"/w/sub/CLAUDE.md", "/w/CLAUDE.md", str(user_home / ".claude/CLAUDE.md")} <= set(loaded)
    assert not any(path.endswith("AGENTS.md") for path in loaded)


def test_only_changed_files_are_enqueued(user_home: Path):
    home = user_home / "home"
    home.mkdir()
    config = Config(capture=CaptureConfig(exclude=(str(user_home / "w"),)))
    rules = policy.make_rules(home, config, user="ada", user_home=user_home)
    assert host_memories.enqueue_changed(rules, str(user_home / "w")) == 2, "those of the excluded folder stay outside"
    assert host_memories.enqueue_changed(rules, str(user_home / "w")) == 0
    (user_home / ".claude/CLAUDE.md").write_text("- two\n- three\n")
    assert host_memories.enqueue_changed(rules, "") == 1
    assert len(enqueue.list_deltas(home / "outbox")) == 3
