"""Forget: gone from every byte of the home, and nothing brings it back; nothing else goes."""

import json
import shutil
from pathlib import Path

import pytest

import perdure
from perdure.archive import forget as forgetting
from perdure.archive.journal import encode_event
from perdure.disk import make_folder
from perdure.errors import NotFound, UsageError
from perdure.types import ForgetRequest

SECRET = "the marmalade is hidden under the third stair"
NEEDLE = b"marmalade"


def session_of(message):
    return [
        message("user", "please note where things are", 0),
        message("assistant", "Tell me.", 1),
        message("user", SECRET, 2),
        message("assistant", "Noted, thank you.", 3),
    ]


@pytest.fixture
def kept(home, message, grep):
    """A home with one session in two deltas, and its lines."""
    lines = session_of(message)
    cut = len(lines[0] + lines[1])
    home.capture(b"".join(lines[:2]), runtime="messages", session="s")
    home.capture(b"".join(lines[2:]), runtime="messages", session="s", from_offset=cut)
    assert grep(home.path, NEEDLE) != []
    return home, lines


def forget(home, query="marmalade"):
    (hit,) = home.search(query).hits
    home.forgetting.apply(home.forgetting.plan([hit.turn_id]))


def test_copy_in_a_compacted_transcript_is_forgotten(opened, claude, grep):
    """A client compacts: the new file begins with a summary of now, and goes on with lines that were said before it."""
    home = opened()
    old = claude("user", "the anchor holds", "u1", 0) + claude("user", "the marmalade is under the stair", "u2", 5)
    home.capture(old, runtime="claude-code", session="s")
    for generation, last in ((1, b""), (2, claude("user", "and on it goes", "u3", 70))):
        new = claude("user", f"a summary {generation}", f"c{generation}", 60) + old + last
        home.capture(new, runtime="claude-code", session="s", generation=generation)
    (hit,) = home.search("marmalade").hits
    home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
    assert grep(home.path, b"marmalade") == [] and home.upkeep.verify().ok


def test_turn_is_forgotten(kept, grep):
    home, _lines = kept
    forget(home)
    assert grep(home.path, NEEDLE) == []
    assert home.search("marmalade").hits == () and home.search("marmalade", scan=True).hits == ()
    assert len(home.search("thank").hits) == 1
    assert home.upkeep.verify().ok


def test_offsets_and_hashes_stay(kept):
    """The second run is bytes [cut, end): it keeps range and original hash, and names the range of its first line."""
    home, lines = kept
    cut, end = len(lines[0] + lines[1]), len(b"".join(lines))
    (hit,) = home.search("marmalade").hits
    before = home.archive.read_run(home.archive.get_entry(hit.run_id))
    forget(home)
    after = home.archive.read_run(home.archive.get_entry(hit.run_id))
    assert (after.from_offset, after.to_offset, after.sha256) == (cut, end, before.sha256)
    assert after.forgotten == ((cut, cut + len(lines[2])),)
    marker = json.dumps({"forgotten": hit.turn_id}, separators=(",", ":")).encode() + b"\n"
    assert home.archive.read(home.archive.get_entry(hit.run_id)) == marker + lines[3]
    assert home.runs.get(hit.run_id).n_forgotten == 1
    assert [turn.offset for turn in home.runs.transcript(hit.run_id).parsed.turns] == [cut + len(lines[2])]


def test_forgotten_source_still_answers_captures(kept, message, grep):
    """Replays of what was forgotten are known; the grown file adds only its end; an altered one shows."""
    home, lines = kept
    forget(home)
    whole = b"".join(lines)
    assert home.capture(whole, runtime="messages", session="s").outcome == "already"
    more = message("user", "one thing more", 4)
    assert home.capture(whole + more, runtime="messages", session="s").to_offset == len(whole)
    assert home.capture(more, runtime="messages", session="s", from_offset=len(whole)).outcome == "stored"
    altered = whole.replace(b"thank you", b"thank thee")
    assert home.capture(altered, runtime="messages", session="s").outcome == "diverged"
    home.capture(altered, runtime="messages", session="s", generation=1)
    assert grep(home.path, NEEDLE) == [] and home.upkeep.verify().ok


def test_the_same_text_in_another_source_at_that_time(kept, grep):
    home, lines = kept
    forget(home)
    home.capture(b"".join(lines), runtime="messages", session="copy")
    assert grep(home.path, NEEDLE) == []
    assert len(home.search("thank").hits) >= 1 and home.upkeep.verify().ok


def test_earlier_copies_are_forgotten(kept, grep):
    home, lines = kept
    home.capture(b"".join(lines), runtime="messages", session="copy")
    home.capture(b"".join(lines), runtime="other", session="copy2")
    hit = home.search("marmalade").hits[0]
    home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
    assert grep(home.path, NEEDLE) == [] and home.search("marmalade").hits == ()


def test_a_copy_that_waits_in_the_outbox(kept, grep):
    from perdure.types import Origin

    home, lines = kept
    home.captures.enqueue(Origin("messages", "waiting", "waiting"), b"".join(lines), from_offset=0, path=None)
    home.captures.enqueue(Origin("messages", "gap", "gap"), b"".join(lines), from_offset=5000, path="/gone")
    home.forgetting.apply(home.forgetting.plan([home.search("marmalade").hits[0].turn_id]))
    assert grep(home.path, NEEDLE) == []


def test_run_is_forgotten_with_its_sub_agents(kept, message, grep):
    """The first run of the tree goes with everything below it, lines that are no turns included."""
    home, _ = kept
    hit = home.search("please note where").hits[0]
    home.capture(b'{"title":"about marmalade and jam"}\n' + message("user", "marmalade for the child", 5),
                 runtime="messages", session="child", parent_session="s")  # fmt: skip
    home.capture(message("user", "unrelated"), runtime="messages", session="t")
    doomed = home.forgetting.plan([hit.run_id])
    assert all(item.preview for item in doomed)
    home.forgetting.apply(doomed)
    assert grep(home.path, NEEDLE) == []
    assert len(home.search("unrelated").hits) == 1
    assert home.upkeep.verify().ok


def test_only_the_run_when_asked(kept):
    home, _ = kept
    hit = home.search("please note where").hits[0]
    home.forgetting.apply(home.forgetting.plan([hit.run_id], cascade=False))
    assert home.search("please").hits == () and len(home.search("marmalade").hits) == 1


def test_conversation_is_forgotten(kept, message, grep):
    home, lines = kept
    home.capture(b"".join(lines), runtime="messages", session="a", conversation="session-one")
    home.capture(message("user", "kept apart"), runtime="messages", session="t")
    home.forgetting.apply(home.forgetting.plan(["session-one"]))
    assert grep(home.path, NEEDLE) == [] and len(home.search("kept apart").hits) == 1


def test_turns_are_forgotten_by_query(kept, message, grep):
    """Every turn that holds both words; the one that holds only one of them stays."""
    home, _ = kept
    home.capture(message("user", "stair marmalade, again", 200), runtime="messages", session="t")
    home.capture(message("user", "a stair to the attic", 300), runtime="messages", session="u")
    doomed = home.forgetting.plan_by_query("marmalade stair")
    assert len(doomed) == 2
    home.forgetting.apply(doomed)
    assert grep(home.path, NEEDLE) == [] and len(home.search("attic").hits) == 1


def test_sidechain_is_forgotten_alone(home, claude, grep):
    """An inline sub-agent goes alone; the main line around it stays."""
    lines = [
        claude("user", "look for the jam", "u1", 0),
        claude("user", "find marmalade somewhere", "u2", 1, isSidechain=True, agentId="a1"),
        claude("assistant", [{"type": "text", "text": "marmalade is found"}], "u3", 2, isSidechain=True, agentId="a1",
               parentUuid="u2"),
        claude("assistant", [{"type": "text", "text": "The jam is found"}], "u4", 3),
    ]  # fmt: skip
    home.capture(b"".join(lines), runtime="claude-code", session="s")
    hit = home.search("marmalade").hits[0]
    assert home.runs.get(hit.run_id).sidechain
    home.forgetting.apply(home.forgetting.plan([hit.run_id]))
    assert grep(home.path, NEEDLE) == [] and len(home.search("jam").hits) == 2 and home.upkeep.verify().ok


def test_claude_forks_prompts_and_growth(home, claude, grep, tmp_path):
    """A fork with the same uuids, a `last-prompt` line and a summary line that repeat the words, and the grown file:
    imported before or after, none of them keeps or brings back what was forgotten.
    """
    one, two = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
    lines = [
        claude("user", "where are things kept?", "u1", 0, session=one),
        claude("user", SECRET, "u2", 1, session=one),
        claude("assistant", [{"type": "text", "text": "Noted."}], "u3", 2, session=one),
    ]
    prompt = json.dumps({"type": "last-prompt", "sessionId": one, "lastPrompt": SECRET}).encode() + b"\n"
    (tmp_path / f"{one}.jsonl").write_bytes(b"".join(lines) + prompt)
    home.import_files([tmp_path / f"{one}.jsonl"])
    fork = b"".join(lines).replace(one.encode(), two.encode()) + claude("user", "in the fork", "u9", 9, session=two)
    (hit,) = home.search("marmalade").hits
    home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
    assert grep(home.path, NEEDLE) == []
    (tmp_path / f"{two}.jsonl").write_bytes(fork)
    grown = b"".join(lines) + prompt + claude("user", "and then", "u4", 5, session=one)
    (tmp_path / f"{one}.jsonl").write_bytes(grown)
    home.import_files([tmp_path])
    assert grep(home.path, NEEDLE) == []
    assert home.search("marmalade").hits == ()
    assert len(home.search("in the fork").hits) == 1 and len(home.search("and then").hits) == 1
    assert len(home.search("where are things").hits) == 1
    rewritten = grown.replace(b"where are", b"where were")
    (tmp_path / f"{one}.jsonl").write_bytes(rewritten)
    assert home.import_files([tmp_path]).n_rewritten == 1
    assert grep(home.path, NEEDLE) == [] and home.upkeep.verify().ok


def test_both_forms_of_a_codex_message_are_forgotten(home, grep):
    """A rollout holds a message as an event and as an item; both go, before and at the import."""

    def line(second, kind, payload):
        at = f"2026-01-15T09:00:{second:02d}.000Z"
        return json.dumps({"timestamp": at, "type": kind, "payload": payload}).encode() + b"\n"

    def said(second, text):
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        return line(second, "event_msg", {"type": "user_message", "message": text}) + line(
            second, "response_item", item
        )

    data = line(0, "session_meta", {"id": "abc", "cwd": "/w"}) + said(1, SECRET) + said(5, "something else entirely")
    home.capture(data, runtime="codex", session="abc")
    hits = home.search("marmalade").hits
    assert len(hits) == 1
    home.forgetting.apply(home.forgetting.plan([hits[0].turn_id]))
    assert grep(home.path, NEEDLE) == [] and len(home.search("entirely").hits) == 1
    home.capture(data.replace(b'"abc"', b'"fork"'), runtime="codex", session="fork")
    assert grep(home.path, NEEDLE) == []


def test_short_texts_of_others_stay(home, message):
    """ "yes" was forgotten in one place: every other "yes", at the same minute too, stays."""
    home.capture(
        message("user", "shall we paint the boat?", 0) + message("user", "yes", 1), runtime="messages", session="s"
    )
    home.capture(
        message("user", "shall we eat now then?", 0) + message("user", "yes", 1), runtime="messages", session="t"
    )
    first = home.search("yes").hits[0]
    home.forgetting.apply(home.forgetting.plan([first.turn_id]))
    assert len(home.search("yes").hits) == 1 and home.upkeep.verify().ok


def test_the_same_words_on_another_day_stay(home, message):
    """1,440 minutes later the same words are said again: that is no copy."""
    for n, session in ((0, "s"), (1440, "t")):
        home.capture(message("user", "run the whole test suite again", n), runtime="messages", session=session)
    first = home.search("suite").hits[0]
    home.forgetting.apply(home.forgetting.plan([first.turn_id]))
    assert len(home.search("suite").hits) == 1


def test_document_does_not_restore_forgotten_messages(home, grep, tmp_path):
    """A document is emitted again and again: its messages and its title stay forgotten, and nothing grows."""
    document = {"id": "d1", "title": "A talk about marmalade and toast", "messages": [
        {"role": "user", "content": SECRET}, {"role": "assistant", "content": "ok"}]}  # fmt: skip
    path = tmp_path / "d.json"
    path.write_text(json.dumps(document, indent=1))
    home.import_files([path])
    (hit,) = home.search("marmalade").hits
    home.forgetting.apply(home.forgetting.plan([hit.run_id]))
    assert grep(home.path, NEEDLE) == []
    counts = home.archive.ledger.count_all()
    path.write_text(json.dumps(document, indent=2))
    home.import_files([path])
    assert grep(home.path, NEEDLE) == []
    assert home.archive.ledger.count_all() == counts
    document["messages"].append({"role": "user", "content": "and jam?"})
    path.write_text(json.dumps(document))
    home.import_files([path])
    assert grep(home.path, NEEDLE) == [] and len(home.search("jam").hits) == 1


def test_user_cannot_forget_turns_of_another(opened, message, grep):
    """D10, P01: Bob finds nothing to forget, and Ada's forgetting leaves Bob's own words alone."""
    ada, bob = opened(user="ada"), opened(user="bob")
    for who in (ada, bob):
        who.capture(message("user", SECRET, 0), runtime="messages", session="s")
    (hers,) = ada.search("marmalade").hits
    with pytest.raises(NotFound):
        bob.forgetting.plan([hers.turn_id])
    with pytest.raises(NotFound):
        bob.forgetting.plan([hers.run_id])
    ada.forgetting.apply(ada.forgetting.plan([hers.turn_id]))
    assert ada.search("marmalade").hits == () and len(bob.search("marmalade").hits) == 1
    assert all("/bob/" in path or path.startswith("index") for path in grep(ada.path, NEEDLE))


def test_forgetting_cut_after_the_tombstone_is_finished(kept, opened, grep):
    """The journal says forgotten, and the process dies there: the next opening finishes it."""
    home, _ = kept
    (hit,) = home.search("marmalade").hits
    forgetting.record_tombstones(home.journal(), home.forgetting.plan([hit.turn_id]), now=hit.stated_at)
    home.close()
    again = opened()
    assert grep(again.path, NEEDLE) == [] and again.search("marmalade").hits == () and again.upkeep.verify().ok


def test_cut_between_metadata_and_bytes(kept, opened, grep):
    """Metadata was written and the bytes were not: `verify` says so, and the next opening finishes it."""
    home, _ = kept
    (hit,) = home.search("marmalade").hits
    held = home.archive.get_entry(hit.run_id)
    blob = home.path / "archive" / "runs" / "ada" / "2026-01" / f"{held.run_id}.jsonl"
    before = blob.read_bytes()
    home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
    home.archive.ledger.db.execute("DELETE FROM applied")
    blob.write_bytes(before)
    (finding,) = home.upkeep.verify().findings
    assert "interrupted" in finding.what and "import" in finding.advice
    home.close()
    again = opened()
    assert grep(again.path, NEEDLE) == [] and again.upkeep.verify().ok
    assert again.archive.read_run(held).sha256 == held.sha256


def test_forgetting_cut_before_the_index_is_finished(kept, opened, grep):
    """The archive is clean and the index is not: the next opening cleans it."""
    home, _ = kept
    (hit,) = home.search("marmalade").hits
    forgetting.record_tombstones(home.journal(), home.forgetting.plan([hit.turn_id]), now=hit.stated_at)
    forgetting.apply_to_archive(
        home.archive, home.journal(), "ada", forgetting.list_unapplied(home.archive, home.journal())
    )
    home.close()
    again = opened()
    again.search("thank")
    assert grep(again.path, NEEDLE) == []


def test_lost_cache_restores_nothing(kept, opened, grep):
    home, lines = kept
    forget(home)
    home.close()
    shutil.rmtree(home.path / "cache")
    again = opened()
    assert again.capture(b"".join(lines), runtime="messages", session="s").outcome == "already"
    assert grep(again.path, NEEDLE) == []


def test_forgetting_twice_or_nothing_is_harmless(kept):
    home, _ = kept
    (hit,) = home.search("marmalade").hits
    doomed = home.forgetting.plan([hit.turn_id])
    assert (
        home.forgetting.apply(doomed) != [] and home.forgetting.apply(doomed) == [] and home.forgetting.apply([]) == []
    )
    assert home.upkeep.verify().ok


def test_thousands_of_turns_at_once(home, message, grep):
    """2,500 turns are more than one event names (2,000): two events, and all of it is gone."""
    home.capture(
        b"".join(message("user", f"marmalade jar {n}", n) for n in range(2500)), runtime="messages", session="s"
    )
    (run,) = home.runs.conversation("s")
    home.forgetting.apply(home.forgetting.plan([run.run_id]))
    assert grep(home.path, NEEDLE) == [] and len(home.journal().read(type_="forgotten")) == 2


def test_short_ids_number_messages_and_do_not_join_conversations(tmp_path: Path) -> None:
    """Two conversations both number their first message 1: they are two turns, and forgetting one leaves the other."""
    with perdure.open(tmp_path / "home") as home:
        for session in "ab":
            line = json.dumps({"role": "user", "content": f"anchor of {session}", "id": "1"}).encode() + b"\n"
            home.capture(line, runtime="messages", session=session)
        hits = home.search("anchor").hits
        assert sorted(hit.text for hit in hits) == ["anchor of a", "anchor of b"]
        home.forgetting.apply(home.forgetting.plan([hit.turn_id for hit in hits if hit.text.endswith("a")]))
        assert [hit.text for hit in home.search("anchor").hits] == ["anchor of b"]


def test_long_journal_is_scanned_once_and_again_after_a_merge(kept, opened, grep):
    """Where an opening found nothing to apply, the next reads on from there; what a merge brings is read."""
    home, _lines = kept
    other = opened("other")
    other.upkeep.merge(home.path)
    writer = home.journal().root / "wlong"
    make_folder(writer)
    stamp = "2026-01-01T00:00:00.000Z#{:04d}"
    lines = [encode_event(stamp.format(n), "wlong", n + 1, "injected", {"cues": ["x" * 900]}) for n in range(1300)]
    (writer / "2026-01.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (writer / "2026-01.jsonl").chmod(0o600)
    again = opened("home")
    noted = again.archive.ledger.get_meta("looked-through ada")
    assert noted and "wlong/2026-01.jsonl" in noted
    forget(other)
    again.upkeep.merge(other.path)
    assert grep(again.path, NEEDLE) == [] and again.search("marmalade").hits == ()
    assert len(again.search("thank").hits) == 1
    assert not [found for found in again.upkeep.verify().findings if found.severity == "problem"]


def test_waiting_floor_text_is_forgotten_too(opened, message, grep):
    """A client's floor may wait for its next message, outside of journal and archive."""
    from perdure.capture import transcripts

    home = opened()
    home.capture(message("user", "our codeword is amaranth-numbat"), runtime="messages", session="s")
    transcripts.store_pending_text(home.path, "gemini-cli", "g", "- our codeword is amaranth-numbat")
    assert home.forgetting.apply(home.forgetting.plan_by_query("amaranth"))
    assert transcripts.take_pending_text(home.path, "gemini-cli", "g") == "" and not grep(home.path, b"amaranth")


def test_only_what_was_shown_is_deleted(kept, message, grep):
    """Another match that comes after the preview makes the deletion refuse, and nothing goes."""
    home, _ = kept
    request = ForgetRequest(query="marmalade")
    preview = home.forgetting.preview(request)
    assert [item.role for item in preview.items] == ["user"] and preview.rewritten_runs == ()
    home.capture(message("user", "more marmalade arrived", 9), runtime="messages", session="t")
    with pytest.raises(UsageError, match="something else matches by now"):
        home.forgetting.delete(request, digest=preview.digest)
    assert len(home.search("marmalade").hits) == 2
    report = home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
    assert len(report.items) == len(report.rewritten_runs) == 2
    assert grep(home.path, NEEDLE) == []
