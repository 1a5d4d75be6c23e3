"""Perdure's store beside those that agents keep their state in: the same job on each, in one run.

A user's 1,000 turns are put one by one, the newest is read, words and meanings are searched. Then the process is killed
(kill -9), and another one reads everything again, as that user and as another one. Each system has the same embedder,
Perdure's own, so that what differs is the store. Peers are installed into environments that you may throw away.

    python -m benchmarks.tier_peers --install /tmp/peers           # minutes to install, minutes to run
    python -m benchmarks.tier_peers --install /tmp/peers --write   # and put the table into docs/evaluation/tiers.md
    python -m benchmarks.tier_peers --only perdure memory --turns 100
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, Protocol

from benchmarks.common import machine, spread
from perdure.eval.datasets import load_dataset
from perdure.eval.recall_quality import SHIPPED, is_answerable

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evaluation" / "tiers.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
GROUPS = ("tidepool", "bakery", "garden")  # of the shipped set: those in English
K = 5
N_BOB = 20  # turns of the other user
PEERS: dict[str, tuple[str, tuple[str, ...]]] = {  # name: (what it is, what it needs beside Perdure's own packages)
    "perdure": ("Perdure, `PerdureStore` for LangGraph", ()),
    "memory": ("LangGraph `InMemoryStore`", ()),
    "sqlite": ("LangGraph `SqliteStore`", ("langgraph-checkpoint-sqlite", "pysqlite3")),
    "redis": ("LangGraph `RedisStore`", ("langgraph-checkpoint-redis",)),
    "mem0": ("mem0, `infer=False`", ("mem0ai==2.2.1", "qdrant-client==1.20.0")),
    "agent-memory": ("Redis Agent Memory Server", ("agent-memory-server==0.15.2",)),
}


# the job --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What every system is given: turns by key, and questions with the keys that answer them."""

    turns: dict[str, dict[str, Any]]
    words: list[tuple[str, set[str]]]  # an identifier, and the one turn that has it
    meanings: list[tuple[str, set[str]]]  # a question in other words


def make_job(n: int) -> Job:
    """Return the shipped conversations, and between them turns of work with an identifier each."""
    dataset = load_dataset(SHIPPED)
    docs = [doc for doc in dataset.docs if doc.group in GROUPS]
    stride = max(1, n // len(docs))
    turns: dict[str, dict[str, Any]] = {}
    keys: dict[str, str] = {}
    for number in range(max(n, len(docs))):
        key = f"t{number:05}"
        doc = docs[number // stride] if number % stride == 0 and number // stride < len(docs) else None
        text = doc.text if doc else _make_work(number)
        if doc:
            keys[doc.doc_id] = key
        turns[key] = {"text": text, "number": number, "tool": "note" if doc else "crane", "tags": ["a", None, 0.5]}
    work = [(key, turn) for key, turn in turns.items() if turn["tool"] == "crane"]
    words = [(f"container C-{turn['number']:04}", {key}) for key, turn in work[:: max(1, len(work) // 50)]]
    meanings = [
        (question.text, {keys[doc_id] for doc_id in question.gold if doc_id in keys})
        for question in dataset.questions
        if question.group in GROUPS and is_answerable(question)
    ]
    return Job(turns, words, [(text, gold) for text, gold in meanings if gold])


def _make_work(number: int) -> str:
    berth, tons = number % 17 + 1, number * 7 % 31 + 2
    forms = (
        f"Lifted container C-{number:04} at berth {berth}: seal intact, {tons} t, released to the yard.",
        f"Container C-{number:04} waits at berth {berth}, because the crane driver has a break until half past.",
        f"Weighed container C-{number:04}: {tons} t, two more than its papers say. Customs were told.",
    )
    return forms[number % len(forms)]


# the systems: put, get, search, for a user ----------------------------------------------------------------------


class StoreDriver(Protocol):
    """A system under test. One object for both users."""

    def put(self, user: str, key: str, value: dict[str, Any]) -> None:
        """Keep a turn."""

    def get(self, user: str, key: str) -> dict[str, Any] | None:
        """Return a turn as the system holds it."""

    def search(self, user: str, query: str) -> list[str]:
        """Return the keys of the best K turns."""


class LangGraphDriver:
    """A store of LangGraph: a namespace for each user."""

    def __init__(self, find_store: Callable[[str], Any]) -> None:
        """find_store: returns the store that serves a user."""
        self._find_store = find_store

    def put(self, user: str, key: str, value: dict[str, Any]) -> None:
        """Keep a turn."""
        self._find_store(user).put(("turns", user), key, value)

    def get(self, user: str, key: str) -> dict[str, Any] | None:
        """Return a turn."""
        item = self._find_store(user).get(("turns", user), key)
        return item.value if item else None

    def search(self, user: str, query: str) -> list[str]:
        """Return the best keys."""
        return [item.key for item in self._find_store(user).search(("turns", user), query=query, limit=K)]


def drive_perdure(folder: Path, _redis_url: str) -> LangGraphDriver:
    """Drive Perdure: a home, opened for each user."""
    import perdure
    from perdure.frameworks.langgraph import PerdureStore

    return LangGraphDriver(cache(lambda user: PerdureStore(perdure.open(folder / "home", user=user), fields=["text"])))


def make_index() -> dict[str, Any]:
    """Return LangGraph's settings for search, with Perdure's embedder."""
    return {"dims": 384, "embed": embed, "fields": ["text"]}


def drive_memory(_folder: Path, _redis_url: str) -> LangGraphDriver:
    """Drive LangGraph's store in memory."""
    from langgraph.store.memory import InMemoryStore

    store = InMemoryStore(index=make_index())  # type: ignore[arg-type]
    return LangGraphDriver(lambda _user: store)


def drive_sqlite(folder: Path, _redis_url: str) -> LangGraphDriver:
    """Drive LangGraph's store in a SQLite file."""
    import sqlite3

    if not hasattr(sqlite3.Connection, "enable_load_extension"):  # left out of some builds of Python
        sys.modules["sqlite3"] = __import__("pysqlite3")
    from langgraph.store.sqlite import SqliteStore  # type: ignore[import-not-found]

    return _open_store(SqliteStore.from_conn_string(str(folder / "store.db"), index=make_index()))


def drive_redis(_folder: Path, redis_url: str) -> LangGraphDriver:
    """Drive LangGraph's store in Redis."""
    from langgraph.store.redis import RedisStore  # type: ignore[import-not-found]

    return _open_store(RedisStore.from_conn_string(redis_url, index=make_index()))


def _open_store(context: AbstractContextManager[Any]) -> LangGraphDriver:
    """Open one store for all users. It stays open until the process ends."""
    store = _open_contexts.enter_context(context)
    store.setup()
    return LangGraphDriver(lambda _user: store)


class Mem0Driver:
    """mem0 without a language model: Qdrant in a folder, history in SQLite."""

    def __init__(self, folder: Path, redis_url: str) -> None:  # noqa: ARG002
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder), OPENAI_API_KEY="none")
        from mem0 import Memory  # type: ignore[import-not-found]

        store = {"path": str(folder / "qdrant"), "embedding_model_dims": 384, "on_disk": True}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(folder / "history.db"),
            }
        )
        model = self._memory.embedding_model  # OpenAI's, which is not asked
        model.embed = lambda text, memory_action=None: embed([text])[0]  # noqa: ARG005 - their signature
        model.embed_batch = lambda texts, memory_action=None: embed(texts)  # noqa: ARG005

    def put(self, user: str, key: str, value: dict[str, Any]) -> None:
        """Add a text as it is; the rest of the value is metadata."""
        about = {name: part for name, part in value.items() if name != "text"} | {"key": key}
        self._memory.add([{"role": "user", "content": value["text"]}], user_id=user, metadata=about, infer=False)

    def get(self, user: str, key: str) -> dict[str, Any] | None:
        """Find the memory with this key in its metadata."""
        rows = self._memory.get_all(filters={"user_id": user, "key": key})["results"]
        if len(rows) != 1:
            return None
        about = {name: part for name, part in rows[0]["metadata"].items() if name != "key"}
        return {"text": rows[0]["memory"], **about}

    def search(self, user: str, query: str) -> list[str]:
        """Return the best keys."""
        rows = self._memory.search(query, top_k=K, filters={"user_id": user}, threshold=0.0)["results"]
        return [row["metadata"]["key"] for row in rows]


def drive_agent_memory(_folder: Path, _redis_url: str) -> NoReturn:
    """See whether Redis's Agent Memory Server can be started. Raises RuntimeError."""
    import agent_memory_server  # type: ignore[import-not-found]

    raise RuntimeError(f"{agent_memory_server.__version__} installs; drive its REST API here")


DRIVERS: dict[str, Callable[[Path, str], StoreDriver]] = {
    "perdure": drive_perdure, "memory": drive_memory, "sqlite": drive_sqlite, "redis": drive_redis, "mem0": Mem0Driver,
    "agent-memory": drive_agent_memory,
}  # fmt: skip
_open_contexts = ExitStack()
_embedders: list[Any] = []


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Return a vector for each text, of the model that a home uses."""
    from perdure.models.local_embedders import MiniLM

    if not _embedders:
        _embedders.append(MiniLM(threads=1))
    return [row.tolist() for row in _embedders[0].embed(list(texts), "document")]


# one phase, in a process of its own -----------------------------------------------------------------------------


@dataclass
class Phase:
    """What one process saw."""

    put_ms: list[float] = field(default_factory=list)
    put_cpu_ms: float = 0.0  # of this process, a turn
    newest_ms: float = 0.0
    search_ms: list[float] = field(default_factory=list)
    search_cpu_ms: float = 0.0
    n_exact: int = 0  # turns that are read as they were put
    n_word_hits: int = 0
    n_meaning_hits: int = 0
    n_foreign: int = 0  # answers to one user that are the other's
    n_bob: int = 0  # turns of the other user that are as they were put


def drive(name: str, folder: Path, redis_url: str, job: Job, *, is_first: bool) -> Phase:
    """Do the job: put and search at first, and read everything in both processes."""
    phase, driver = Phase(), DRIVERS[name](folder, redis_url)
    bob = {key: {"text": f"Bob's own: {turn['text']}", "number": -1} for key, turn in list(job.turns.items())[:N_BOB]}
    if is_first:
        _put_all(driver, job, bob, phase)
    keys = list(job.turns)
    started_s = time.perf_counter()
    driver.get("ann", keys[-1])
    phase.newest_ms = (time.perf_counter() - started_s) * 1000
    phase.n_exact = sum(driver.get("ann", key) == job.turns[key] for key in keys)
    phase.n_bob = sum(driver.get("bob", key) == turn for key, turn in bob.items())
    cpu_s = time.process_time()
    phase.n_word_hits = _count_hits(driver, job.words, phase)
    phase.n_meaning_hits = _count_hits(driver, job.meanings, phase)
    phase.search_cpu_ms = (time.process_time() - cpu_s) * 1000 / len(phase.search_ms)
    for turn in bob.values():
        ranked = driver.search("ann", turn["text"])
        phase.n_foreign += sum(
            str((driver.get("ann", key) or {}).get("text", "")).startswith("Bob's") for key in ranked
        )
    return phase


def _put_all(driver: StoreDriver, job: Job, bob: dict[str, dict[str, Any]], phase: Phase) -> None:
    cpu_s = time.process_time()
    for key, turn in job.turns.items():
        started_s = time.perf_counter()
        driver.put("ann", key, turn)
        phase.put_ms.append((time.perf_counter() - started_s) * 1000)
    phase.put_cpu_ms = (time.process_time() - cpu_s) * 1000 / len(job.turns)
    for key, turn in bob.items():
        driver.put("bob", key, turn)


def _count_hits(driver: StoreDriver, questions: Sequence[tuple[str, set[str]]], phase: Phase) -> int:
    n_hits = 0
    for query, gold in questions:
        started_s = time.perf_counter()
        ranked = driver.search("ann", query)
        phase.search_ms.append((time.perf_counter() - started_s) * 1000)
        n_hits += bool(gold & set(ranked))
    return n_hits


# all of them ----------------------------------------------------------------------------------------------------


def make_python(requirements: Sequence[str], folder: Path) -> str:
    """Return a Python with these packages, in an environment that sees Perdure's own. Raises RuntimeError."""
    if not requirements:
        return sys.executable
    python, made = folder / "bin" / "python", folder / "requirements"
    if made.exists() and made.read_text().split() == list(requirements):
        return str(python)
    _call([sys.executable, "-m", "venv", str(folder)])
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(site, "outer.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    _call([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    made.write_text("\n".join(requirements))
    return str(python)


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(_clip_reason(done.stderr))


def _clip_reason(stderr: str) -> str:
    """Return the line of an output that says what went wrong."""
    lines = [line for line in stderr.strip().splitlines() if not line.startswith("WARNING")] or ["no reason given"]
    version = re.search(r"Requires-Python (\S+?);", stderr)
    return f"it needs Python {version[1]}" if version else lines[-1][:200]


def run_system(name: str, args: argparse.Namespace, folder: Path, redis_url: str) -> list[Phase]:
    """Run a system in two processes, of which the first is killed. Raises RuntimeError."""
    python = make_python(PEERS[name][1], args.install / name) if args.install else sys.executable
    phases = []
    for number in (1, 2):
        command = [python, "-m", "benchmarks.tier_peers", "--drive", name, "--turns", str(args.turns)]
        command += ["--folder", str(folder), "--redis", redis_url, "--phase", str(number)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(_clip_reason(done.stderr))
        phases.append(Phase(**json.loads(done.stdout.splitlines()[-1])))
    return phases


def make_row(name: str, phases: Sequence[Phase], job: Job, base: Phase | None) -> list[str]:
    """Return the cells of a system: figures of the first process, and what the second found."""
    first, second = phases
    n, put, search = len(job.turns), spread(first.put_ms), spread(first.search_ms)
    return [
        PEERS[name][0],
        f"{first.n_exact:,} of {n:,}",
        f"**{second.n_exact:,}**",
        f"{first.n_foreign + second.n_foreign} / {second.n_bob} of {N_BOB}",
        f"{first.n_word_hits} of {len(job.words)}",
        f"{first.n_meaning_hits} of {len(job.meanings)}",
        f"{put['p50']:.1f} / {put['p95']:.1f}",
        f"{first.put_cpu_ms:.1f} ({_ratio(first.put_cpu_ms, base and base.put_cpu_ms)})",
        f"{search['p50']:.1f} / {search['p95']:.1f}",
        f"{first.search_cpu_ms:.1f} ({_ratio(first.search_cpu_ms, base and base.search_cpu_ms)})",
    ]


def _ratio(value: float, base: float | None) -> str:
    return f"{value / base:.2f}" if base else "–"


HEADER = [
    "system", "exact", "exact after kill -9", "the other user's answers / own turns", f"words, hit in {K}",
    f"meaning, hit in {K}", "put ms, p50 / p95", "put CPU ms (ratio)", "search ms, p50 / p95", "search CPU ms (ratio)",
]  # fmt: skip


def main() -> int:
    """Run the peers, or one phase of one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--install", type=Path, help="install the peers into environments in this folder")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--drive", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--redis", default="", help=argparse.SUPPRESS)
    parser.add_argument("--phase", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    job = make_job(args.turns)
    if args.drive:
        phase = drive(args.drive, args.folder, args.redis, job, is_first=args.phase == 1)
        print(json.dumps(asdict(phase)), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    with tempfile.TemporaryDirectory() as place:
        text = measure(args, job, Path(place))
    print(text)
    if args.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


def measure(args: argparse.Namespace, job: Job, place: Path) -> str:
    """Run all systems and return the table, and below it those that did not run."""
    rows, reasons, base = [], [], None
    stop, redis_url = start_redis(place / "server")
    try:
        for name in args.only:
            print(f"{name} …", file=sys.stderr, flush=True)
            folder = place / name
            folder.mkdir()
            try:
                phases = run_system(name, args, folder, redis_url)
            except RuntimeError as error:
                reasons.append(f"- **{PEERS[name][0]}** did not run, because: {error}")
                continue
            base = base or (phases[0] if name == "perdure" else None)
            rows.append(make_row(name, phases, job, base))
    finally:
        stop()
    facts = machine()
    lines = [
        f"`python -m benchmarks.tier_peers`, {facts['at']}: {args.turns:,} turns; {facts['cpu']}, "
        f"{facts['n_cpus']} cores, load {facts['load'][0]} at the end, Python {facts['python']}.",
        "",
        f"| {' | '.join(HEADER)} |",
        f"|{'---|' * len(HEADER)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *reasons,
    ]
    return "\n".join(lines) + "\n"


def start_redis(folder: Path) -> tuple[Callable[[], object], str]:
    """Start a Redis-compatible server for the peers that want one. Return what ends it, and its address."""
    from perdure.workflow.tier_programs import REDIS_PROGRAM
    from perdure.workflow.tier_servers import RedisTierServer

    server = RedisTierServer(folder)
    program = REDIS_PROGRAM.find(folder)
    if program is None:
        return (lambda: None), ""
    server.launch(program)
    return server.stop, server.url


if __name__ == "__main__":
    sys.exit(main())
