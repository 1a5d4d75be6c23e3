"""What mining costs and what becomes of a model's answers: with the real small model, and with a scripted one.

python -m benchmarks.mining                     # both, on the transcripts that come with Perdure
python -m benchmarks.mining --scripted          # without the small model
python -m benchmarks.mining --transcripts DIR   # what your own transcripts would cost; sends nothing

The small model (`make model`) is there to exercise the path; its memories are no measure of a good model's.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import machine, save, scratch, table, timed
from perdure.errors import ModelFault
from perdure.home import Home
from perdure.index import memory_rows, session_turns
from perdure.memories import mining_answer
from perdure.memories.mine import MiningRequest, MiningResult
from perdure.models.chat import TokenUsage
from perdure.testing import Question, ScriptedChat
from rig import local_model

SAMPLES = Path(perdure.__file__).parent / "samples"
CONFIG = """
[models.roles.miner]
provider = "gguf"
model = "{model}"
max_output_tokens = {most}
timeout_s = 600

[mining]
question_tokens = 1500
"""
EVERY = MiningRequest(include_active=True)
MOST_OF_SMALL = 2


class Heard:
    """A model on the way to which every answer is counted.

    most: operations that its grammar allows, fewer and with shorter texts than the real schema: a model of 135 million
    parameters does not know when to stop, and writes as much as it may.
    """

    def __init__(self, chat: Any, most: int | None = None) -> None:
        self._chat, self.name, self._most = chat, chat.name, most
        self.operations = 0
        self.took_s: list[float] = []
        self.bad: Counter[str] = Counter()
        self.usage: list[TokenUsage] = []

    def reply(self, messages: Any, **how: Any) -> Any:
        began_s = time.perf_counter()
        if self._most:
            how["schema"] = local_model.narrowed(how["schema"], operations=self._most)
        try:
            found = self._chat.reply(messages, **how)
        except ModelFault as error:
            print(f"  {error.code}: {error.detail}, {time.perf_counter() - began_s:.0f} s", flush=True)
            self.bad[str(error)[:60] if error.code != "bad-answer" else error.detail.partition(": ")[2][:60]] += 1
            if isinstance(error.usage, TokenUsage):
                self.usage.append(error.usage)
            raise
        finally:
            self.took_s.append(time.perf_counter() - began_s)
        self.usage.append(found.usage)
        self.operations += len(found.value["operations"])
        print(f"  an answer of {len(found.value['operations'])} operations, {self.took_s[-1]:.0f} s", flush=True)
        return found


def supported(home: Home) -> tuple[int, int, int]:
    """(memories, those whose sources are turns, those whose sources hold at least half of their words)."""
    n_found = n_held = 0
    memories = [memory for memory in home.memories.list_memories(every=True) if memory.how == "mined"]
    for memory in memories:
        turns = [turn for _, turn in home.memories.sources(memory.memory_id)]
        n_found += all(turns) and bool(turns)
        wanted, held = mining_answer.extract_terms(memory.text), set()
        for turn in filter(None, turns):
            run_id, offset = home.runs.locate_turn(turn)
            said = next(t for t in home.runs.transcript(run_id).parsed.turns if t.offset == offset)
            held |= mining_answer.extract_terms(said.text("text"))
        n_held += 2 * len(wanted & held) >= len(wanted)
    return len(memories), n_found, n_held


def sent_twice(home: Home) -> int:
    """How many messages stand in more than one mined stretch."""
    mined = memory_rows.list_mined_ranges(home.index(), home.user)
    return sum(
        low < until and since < high
        for stretches in mined.values()
        for n, (low, high) in enumerate(stretches)
        for since, until in stretches[n + 1 :]
    )


def figures(home: Home, done: MiningResult, heard: Heard) -> dict[str, Any]:
    """What one pass came to."""
    n_memories, n_found, n_held = supported(home)
    refused = Counter(refusal.code for refusal in done.refusals)
    n_sent = done.n_messages
    each = 1000 / n_sent if n_sent else 0.0
    usage = [sum(getattr(one, name) for one in heard.usage) for name in vars(TokenUsage())]
    return {
        "messages": n_sent, "batches": done.n_batches, "calls": done.n_calls,
        "answers that keep the schema": done.n_batches,
        "answers that do not": dict(heard.bad), "operations": heard.operations, "refused": dict(refused),
        "new": done.n_new, "said again": done.n_reinforced, "skipped": done.n_known,
        "memories made": n_memories, "whose sources are turns": n_found, "whose sources hold half their words": n_held,
        "stretches that overlap": sent_twice(home), "calls of a second pass": home.memories.mine(EVERY).n_calls,
        "tokens in per 1,000 messages": round((usage[0] + usage[2] + usage[3]) * each),
        "tokens out per 1,000 messages": round(usage[1] * each),
        "seconds per 1,000 messages": round(sum(heard.took_s) * each, 1),
    }  # fmt: skip


def real(place: Path, model: Path, most: int) -> dict[str, Any]:
    """The real small model on the samples."""
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text(CONFIG.format(model=model, most=most))
    with perdure.open(place) as settings:
        heard = Heard(settings.chat("miner", job="mine"), MOST_OF_SMALL)
    with perdure.open(place, chats={"miner": heard}) as home:
        home.import_files([SAMPLES])
        done = home.memories.mine(EVERY)
        while done.n_left and done.n_calls:  # a pass ends at an answer that comes too late; the next goes on
            more = home.memories.mine(EVERY)
            if not more.n_calls:
                break
            more.refusals = done.refusals + more.refusals
            for name in ("n_batches", "n_messages", "n_calls", "n_new", "n_reinforced", "n_known"):
                setattr(more, name, getattr(done, name) + getattr(more, name))
            done = more
        found = figures(home, done, heard)
        for memory in [m for m in home.memories.list_memories(every=True) if m.how == "mined"][:10]:
            print(f"  [{memory.kind}] {memory.path}: {memory.text[:100]!r} ({memory.trust})")
        return found


def quoting(question: Question) -> dict[str, Any]:
    """A miner that keeps the first words of every third message: about as many as a careful model keeps."""
    lines = question.messages[-1].text.splitlines()
    heads = [n for n, line in enumerate(lines) if line.split(".")[0].isdigit() and not line.startswith(" ")]
    found = []
    for head in heads[::3]:
        number, words = int(lines[head].split(".")[0]), lines[head + 1].strip()[:120]
        path = f"quoted/{zlib.crc32(words.encode())}"
        found.append(
            {"op": "create", "id": "", "path": path, "kind": "fact", "text": words, "turns": [number, number],
             "entities": [], "valid_from": "", "valid_until": "", "confidence": 0.8, "reason": "said"}
        )  # fmt: skip
    return {"operations": found}


def scripted(place: Path, transcripts: Path) -> dict[str, Any]:
    """A scripted model on the same, or on other transcripts."""
    heard = Heard(ScriptedChat([quoting] * 100_000))
    with perdure.open(place, chats={"miner": heard}) as home:
        home.import_files([transcripts])
        with timed() as clock:
            done = home.memories.mine(EVERY)
        print(f"  {clock.wall_s:.1f} s, {clock.cpu_s:.1f} s of the processor")
        return figures(home, done, heard)


_CHILD = """
import sys, perdure
import benchmarks.mining as bench
from perdure.testing import ScriptedChat
from rig import local_model

def answer(question):
    print("asked", flush=True)
    return bench.quoting(question)

with perdure.open(sys.argv[1], chats={"miner": ScriptedChat([answer] * 1000)}) as home:
    home.memories.mine(bench.EVERY)
"""


def killed(place: Path, n_kills: int) -> dict[str, Any]:
    """Mined by processes that are killed, each at its second question, against mined in one go."""
    for name in ("killed", "whole"):
        with perdure.open(place / name) as home:
            home.import_files([SAMPLES])
    n_killed = 0
    for n in range(n_kills + 1):
        child = subprocess.Popen([sys.executable, "-c", _CHILD, str(place / "killed")], stdout=subprocess.PIPE)
        assert child.stdout is not None
        asked = 0
        while n < n_kills and asked < 2 and child.stdout.readline():
            asked += 1
        if asked == 2:
            child.send_signal(signal.SIGKILL)
            n_killed += 1
        child.stdout.read()
        child.wait()
    subprocess.run([sys.executable, "-c", _CHILD, str(place / "whole")], check=True, stdout=subprocess.DEVNULL)
    with perdure.open(place / "killed") as one, perdure.open(place / "whole") as other:
        found = [
            sorted((m.text, m.path, m.sources, m.n_stated) for m in h.memories.list_memories(every=True))
            for h in (one, other)
        ]
        same = memory_rows.list_mined_ranges(one.index(), one.user) == memory_rows.list_mined_ranges(
            other.index(), other.user
        )
    return {"kills": n_killed, "memories": len(found[0]), "the same as in one go": found[0] == found[1] and same}


def cost(place: Path, transcripts: Path) -> dict[str, Any]:
    """About what would be sent of these transcripts: a dry run."""
    with perdure.open(place) as home:
        home.import_files([transcripts])
        n_sources = len(session_turns.list_unmined_sources(home.index(), home.user))
        with timed() as clock:
            done = home.memories.mine(MiningRequest(include_active=True, dry_run=True))
    each = 1000 / max(1, done.n_messages)
    return {
        "sources": n_sources, "left alone": sum(done.skipped.values()), "messages": done.n_messages,
        "batches": done.n_batches, "tokens": done.n_tokens,
        "tokens per 1,000 messages": round(done.n_tokens * each), "seconds": round(clock.wall_s, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--transcripts", type=Path)
    parser.add_argument("--output-tokens", type=int, default=1500)
    options = parser.parse_args()
    print(", ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    found: dict[str, Any] = {}
    with scratch() as place:
        if options.transcripts:
            found["cost"] = cost(place / "cost", options.transcripts)
        else:
            found["scripted"] = scripted(place / "scripted", SAMPLES)
            found["killed"] = killed(place, 4)
            try:
                model = None if options.scripted else local_model.file()
            except local_model.Missing as missing:
                print(f"not measured: {missing}")
                model = None
            if model is not None:
                found["real"] = real(place / "real", model, options.output_tokens)
    for name, result in found.items():
        table(name, [{"what": key, "": value} for key, value in result.items()])
    save("mining", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
