"""Writers, editors and readers of the floor's pages, all killed with SIGKILL at random moments, again and again.

A driver forks them anew for each round and kills every one at a moment of its own. Each notes what it is about to do
and, after the call returned, that it was done. After every round the home is opened and held against these notes.
"""

import json
import os
import subprocess
import sys

import pytest

DRIVER = '''
import hashlib, json, os, random, re, signal, sys, time, traceback
from pathlib import Path
import perdure
from perdure.errors import EditRefused, NotFound
from perdure.floor import state
import perdure.floor.floor, perdure.floor.layers, perdure.context

root, n_rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
PAGES = ["notes.md", "core.md", "recent.md", "system.md", "profile.md", "diary/2026-11-21.md"]
BY_RENAME, IN_PLACE = ("notes.md", "profile.md"), ("core.md", "diary/2026-11-21.md")


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text_of(who, number, dice):
    body = f"{who}-{number} " + " ".join(f"w{dice.randrange(10**6)}" for _ in range(dice.choice((20, 60, 3000))))
    return f"{body}\\nend {sha(body)}\\n"


def is_whole(text):
    body, _, end = text.rstrip("\\n").rpartition("\\nend ")
    return end == sha(body)


class Notes:
    """What a worker was about to do and what it did; a line each, so that a kill tears none."""

    def __init__(self, slot):
        self.file = os.open(root / f"notes-{slot}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, *words):
        os.write(self.file, (json.dumps(words) + "\\n").encode())


def write(floor, notes, dice, number):
    name, said = dice.choice(PAGES), text_of("write", number, dice)
    notes.say("writes", name, sha(said))
    floor.write(name, said)
    notes.say("wrote", name, sha(said))


def card(floor, notes, dice, number):
    mine = [card for card in floor.list_cards() if card.text.startswith("card")]
    chance = dice.random()
    if chance < 0.5 or not mine:
        made = floor.add_card(f"card {number}")
        notes.say("card", made.id, made.text)
    elif chance < 0.8:
        chosen = dice.choice(mine).id
        notes.say("changes", chosen, f"card {number}")
        floor.change_card(chosen, f"card {number}")
        notes.say("card", chosen, f"card {number}")
    else:
        chosen = dice.choice(mine).id
        notes.say("removes", chosen)
        floor.remove_card(chosen)
        notes.say("removed", chosen)


def propose(floor, notes, dice, number):
    if dice.random() < 0.5 or not floor.list_proposals():
        made = floor.propose("system", text_of("proposal", number, random.Random(1)))
        notes.say("proposed", made.id)
        return
    chosen = dice.choice(floor.list_proposals())
    decide, word = (floor.approve, "approved") if dice.random() < 0.7 else (floor.reject, "rejected")
    decide(chosen.id)
    notes.say("decided", chosen.id, word)


def edit_by_rename(floor, notes, dice, number):
    name, said = dice.choice(BY_RENAME), text_of("rename", number, dice)
    aside = floor.folder / f"editor~{number}"
    aside.write_text(said)
    notes.say("edits", name, sha(said))
    aside.rename(floor.folder / name)
    notes.say("edited", name, sha(said))
    time.sleep(dice.uniform(0.02, 0.4))


def edit_in_place(floor, notes, dice, number):
    name, said = dice.choice(IN_PLACE), text_of("inplace", number, dice)
    notes.say("edits", name, sha(said), said)
    with open(floor.folder / name, "wb", buffering=0) as file:
        cut = len(said) if dice.random() < 0.6 else len(said) // 2
        file.write(said[:cut].encode())
        file.write(said[cut:].encode())
    notes.say("edited", name, sha(said))
    time.sleep(dice.uniform(0.02, 0.4))


def read(floor, notes, dice, number):
    name = dice.choice(PAGES)
    said = floor.read(name)
    assert said, f"{name} is empty"
    if not is_whole(said):
        notes.say("torn", name, said)
    if name not in IN_PLACE:
        said = (floor.folder / name).read_text()
        assert is_whole(said), (name, said[:80], len(said))


WORK = [write, write, card, propose, edit_by_rename, edit_in_place, read, read]


def run(slot, number):
    try:
        dice, notes = random.Random(f"{seed} {number} {slot}"), Notes(slot)
        with perdure.open(root / "home", user="ada") as home:
            count = 0
            while True:
                count += 1
                try:
                    WORK[slot](home.floor, notes, dice, f"{slot}-{number}-{count}")
                except (EditRefused, NotFound) as error:  # another was quicker
                    assert "changed after" in str(error) or "already" in str(error) or "card-" in str(error), error
    except BaseException:
        (root / "errors").open("a").write(f"round {number} {WORK[slot].__name__}: {traceback.format_exc()}\\n")
        os._exit(1)


def spawn(slot, number):
    child = os.fork()
    if child == 0:
        run(slot, number)
    return child


def strike(number, dice):
    running = {slot: spawn(slot, number) for slot in range(len(WORK))}
    time.sleep(0.1)
    for slot in dice.sample(sorted(running), len(running)):
        time.sleep(dice.uniform(0, 0.09))
        os.kill(running[slot], signal.SIGKILL)
        os.waitpid(running[slot], 0)


def noted():
    found = []
    for slot in range(len(WORK)):
        path = root / f"notes-{slot}"
        if path.exists():
            found += [[slot, *json.loads(line)] for line in path.read_text().splitlines()]
    return found


def check(home, totals):
    floor = home.floor
    for name in PAGES:
        if not (floor.folder / name).read_text():  # an editor was killed before it wrote; let that be a while ago
            os.utime(floor.folder / name, (1e9, 1e9))
        said = floor.read(name)
        assert said and said == (floor.folder / name).read_text() == floor.load_state().pages[name].text, name
    floor.write("recent", text_of("check", totals["rounds"], random.Random(totals["rounds"])))
    assert list(home.journal().find_damage()) == []
    found = home.journal().read(type_="floor")
    assert floor.load_state() == state.replay(found).agents["default"], "what is kept is not what the journal says"
    texts = {(e.data["name"], sha(e.data["text"])) for e in found if e.data["op"] == "write"}
    lines = noted()
    check_pages(texts, lines)
    check_cards(floor, lines)
    check_proposals(floor, found, lines)
    check_torn(lines)
    hand = sum(e.data["op"] == "write" and e.data["by"] == "hand" for e in found)
    totals.update(
        events=len(found), wrote=sum(line[1] == "wrote" for line in lines),
        edited=sum(line[1] == "edited" for line in lines), edits_in_history=hand,
        torn_read=sum(line[1] == "torn" for line in lines),
    )


def check_pages(texts, lines):
    last = {}
    for slot, what, *rest in lines:
        if what == "wrote":
            assert tuple(rest) in texts, ("an acknowledged write is lost", rest)
        if what == "edits":
            last.pop(rest[0], None)  # whatever it becomes, it is a later edit by hand
        if what == "edited":
            last[rest[0]] = rest[1]
    for edit in last.items():
        assert edit in texts, ("an edit by hand is lost", edit)


def check_cards(floor, lines):
    now = {card.id: card.text for card in floor.list_cards()}
    for slot, what, *rest in lines:
        if what == "card":
            pending = [n for n in lines if n[1] in ("changes", "removes") and n[2] == rest[0]]
            later = [n[3] for n in pending if n[1] == "changes"]
            gone = any(n[1] == "removes" for n in pending)
            assert gone or now.get(rest[0]) in (rest[1], *later), ("an acknowledged card is lost", rest)
        if what == "removed":
            assert rest[0] not in now


def check_proposals(floor, found, lines):
    known = {one.id: one for one in floor.list_proposals(with_decided=True)}
    made = [e.data["approves"] for e in found if "approves" in e.data]
    assert sorted(made) == sorted(one.id for one in known.values() if one.outcome == "approved")
    for slot, what, *rest in lines:
        if what == "proposed":
            assert rest[0] in known
        if what == "decided":
            assert known[rest[0]].outcome == rest[1], rest


def check_torn(lines):
    """What a reader saw in part is what an editor was killed over."""
    begun = {n[3]: n[4] for n in lines if n[1] == "edits" and len(n) > 4}
    done = {n[3] for n in lines if n[1] == "edited"}
    for slot, what, *rest in lines:
        if what == "torn":
            whole = [key for key, text in begun.items() if text.startswith(rest[1].rstrip("\\n"))]
            assert whole and not set(whole) & done, ("a reader saw half a page", rest[0], rest[1][:60])


dice = random.Random(seed)
with perdure.open(root / "home", user="ada") as home:
    for name in PAGES:
        home.floor.write(name, text_of("first", 0, random.Random(1)))
totals = {"rounds": 0}
for number in range(n_rounds):
    strike(number, dice)
    assert not (root / "errors").exists(), (root / "errors").read_text()
    totals["rounds"] += 1
    with perdure.open(root / "home", user="ada") as home:
        check(home, totals)
print(json.dumps(totals))
'''


ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS", "8"))  # about two seconds each


@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_kill_9_among_writers_editors_and_readers(tmp_path):
    command = [sys.executable, "-c", DRIVER, str(tmp_path), str(ROUNDS), "7"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    totals = json.loads(ran.stdout)
    print(totals)
    assert totals["rounds"] == ROUNDS and totals["wrote"] > 0 and totals["edited"] > 0
