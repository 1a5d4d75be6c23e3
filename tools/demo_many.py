"""Show one home for three people on many processes, and kill one of each kind: `make demo-many`.

Starts a real Postgres and a real S3-compatible store (both from wheels of PyPI), two `perdure serve` and three `perdure
worker` on one home. Three people bring their sample sessions: mira on the machine of the home, noor and otto from
machines of their own. While they go on talking, a worker, a web process, the database and the store are killed one
after the other, and started again. At the end every message that was acknowledged is there once, in the archive, in the
index and in the store, and nobody finds what another person said. Exits with 1 if anything of that is not so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]  # the servers of the tests

import perdure  # noqa: E402
from perdure.config import IndexConfig  # noqa: E402
from perdure.work_queue import WorkQueue  # noqa: E402
from rig.postgres import ROLE, PostgresServer  # noqa: E402
from rig.tier_servers import ObjectServer  # noqa: E402
from rig.waiting import find_free_ports, wait_for  # noqa: E402

SAMPLES = ROOT / "src" / "perdure" / "samples"
PEOPLE = {"mira": ("claude-code",), "noor": ("codex", "gemini-cli"), "otto": ("pi",)}  # whose sample sessions
N_WEB, N_WORKERS = 2, 3
MEMORY_EVERY = 3  # of so many messages one asks to be remembered
OTHERS_EVERY = 4  # of so many messages one is searched by the other people, too
PAUSE_S = 0.6  # between two messages of a person
SETTLE_S = 90.0  # longest time until all is indexed and in the store
KILLED_S = 1.5  # how long what was killed stays away


class StoryFault(Exception):
    """The story is not true."""


class Processes:
    """The processes of the home. Close them."""

    def __init__(self, home: Path, variables: dict[str, str]) -> None:
        self.home, self.ports = home, find_free_ports(N_WEB)
        self.env = {**os.environ, **variables, "PERDURE_HOME": str(home), "NO_COLOR": "1"}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses = [f"http://127.0.0.1:{port}" for port in self.ports]

    def start(self, name: str) -> None:
        """Start `web 1`, `worker 2` and so on."""
        kind, _, number = name.partition(" ")
        words = ["serve", "--http", f"127.0.0.1:{self.ports[int(number) - 1]}"] if kind == "web" else ["worker"]
        with (self.home.parent / "processes.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "perdure.surfaces.cli", *words],
                env=self.env, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """End one of them with kill -9."""
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait_for_web(self) -> None:
        """Wait until both web processes answer."""
        for address in self.addresses:
            wait_for(lambda address=address: _is_alive(address), f"{address} answers")

    def close(self) -> None:
        """End all of them, with kill -9."""
        for name in list(self.running):
            self.kill(name)

    def run(self, *words: str, home: Path | None = None, stdin: str = "") -> str:
        """Run a command of Perdure; return its output. Raises StoryFault."""
        env = {**self.env, "PERDURE_HOME": str(home)} if home else self.env
        line = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        done = subprocess.run(
            line, env=env, cwd=self.home.parent, input=stdin, capture_output=True, text=True, timeout=120, check=False
        )  # fmt: skip
        if done.returncode:
            raise StoryFault(f"perdure {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout


def _is_alive(address: str) -> bool:
    try:
        return bool(ask(address, "/api/alive", "")["alive"])
    except (OSError, KeyError):
        return False


def ask(address: str, path: str, secret: str, *, body: bytes | None = None) -> dict[str, Any]:
    """Send one request; return the answer. Raises OSError where there is none, or a refusal."""
    request = urllib.request.Request(f"{address}{path}", body, {"Authorization": f"Bearer {secret}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        value: dict[str, Any] = json.load(answer)
        return value


class Talk:
    """One person who says something every moment, and sends it until a web process says that it is kept."""

    def __init__(self, name: str, secret: str, addresses: list[str]) -> None:
        self.name, self.secret, self._addresses = name, secret, addresses
        self.acknowledged: list[str] = []
        self.n_retries = 0
        self.stop_event = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)

    def start(self) -> None:
        """Begin to talk."""
        self._thread.start()

    def end(self) -> None:
        """Say nothing new; wait until everything is acknowledged."""
        self.stop_event.set()
        self._thread.join(120)
        if self._thread.is_alive():
            raise StoryFault(f"{self.name} still waits for an answer")

    def _talk(self) -> None:
        number = 0
        while not self.stop_event.wait(PAUSE_S):
            number += 1
            word = f"{self.name}kiln{number:03}"
            text = (
                f"Remember: {word} stands at {900 + number} degrees."
                if number % MEMORY_EVERY == 0
                else f"We saw {word} today."
            )
            message = {"role": "user", "content": text, "timestamp": f"2026-11-20T10:{number % 60:02}:00Z"}
            self._send(number, json.dumps(message).encode() + b"\n")
            self.acknowledged.append(word)

    def _send(self, number: int, line: bytes) -> None:
        """Send a session of one message to either web process until it is acknowledged, as an outbox does."""
        path = f"/api/runs?runtime=messages&session={self.name}-{number}"
        for attempt in range(1000):
            try:
                ask(self._addresses[(number + attempt) % len(self._addresses)], path, self.secret, body=line)
                return
            except (OSError, ValueError):
                self.n_retries += 1
                time.sleep(0.2)
        raise StoryFault(f"{self.name}: message {number} was never taken")


def say(text: str) -> None:
    """Print a line of the story."""
    sys.stdout.write(f"{time.monotonic() - STARTED_S:5.1f} s  {text}\n")
    sys.stdout.flush()


STARTED_S = time.monotonic()


def write_settings(home: Path, address: str, store: ObjectServer) -> None:
    """Write the config.toml of the home."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f'user = "mira"\nmachine = "home"\n\n[server]\nrequests_per_minute = 100000\n\n[index]\nengine = "postgres"\n'
        f'address = "{address}"\n\n[workers]\nenabled = true\n\n'
        f'[archive]\nstore = "s3://bucket/perdure"\nstore_endpoint = "{store.endpoint}"\n'
    )


def register(processes: Processes) -> dict[str, str]:
    """Register a machine of each person; return their secrets."""
    secrets = {}
    for name in PEOPLE:
        words = ("machine", "register", "--name", f"{name}s-laptop", "--user", name, "--no-write-auth", "--json")
        secrets[name] = json.loads(processes.run(*words))["result"]["secret"]
    return secrets


def take_in_samples(processes: Processes, secrets: dict[str, str], folder: Path) -> None:
    """Take in everybody's sample sessions: mira's at the home, those of the others from machines of their own."""
    for source in PEOPLE["mira"]:
        processes.run("import", str(SAMPLES / source))
    for name in ("noor", "otto"):
        machine = folder / name
        processes.run("join", processes.addresses[0], "--no-hooks", "--secret-file", "-", home=machine,
                      stdin=secrets[name])  # fmt: skip
        for source in PEOPLE[name]:
            processes.run("import", str(SAMPLES / source), home=machine)


def kill_each(processes: Processes, postgres: PostgresServer, store: ObjectServer) -> None:
    """Kill one of each kind in turn, and start it again."""
    kinds: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
        ("a worker", lambda: processes.kill("worker 1"), lambda: processes.start("worker 1")),
        ("a web process", lambda: processes.kill("web 1"), lambda: processes.start("web 1")),
        ("the database", postgres.kill, postgres.start_again),
        ("the store", store.kill, store.start),
    ]
    for name, kill, start in kinds:
        time.sleep(1.0)
        kill()
        say(f"killed {name} (kill -9)")
        time.sleep(KILLED_S)
        start()
        say(f"started {name} again")
    processes.wait_for_web()


def wait_until_done(processes: Processes, settings: IndexConfig) -> None:
    """Wait until nothing waits any more: outbox, queue, index."""

    def is_done() -> bool:
        counts = queue.count_items()
        waits = home.captures.has_waiting() or home.upkeep.list_behind()
        return not waits and not any(sum(counts[slot]) for slot in ("capture", "embed"))

    with contextlib.closing(WorkQueue(settings)) as queue, perdure.open(processes.home, offline=True) as home:
        try:
            wait_for(is_done, "everything is indexed", limit_s=SETTLE_S)
        except AssertionError as error:
            raise StoryFault(f"{error}: {home.upkeep.list_behind()}, {queue.count_items()}") from error


def check_people(processes: Processes, talks: list[Talk]) -> tuple[int, int]:
    """Check by both web processes that each finds what they said, once, and nobody else a sample of it; return
    (found, asked).
    """
    n_found = n_asked = 0
    for owner in talks:
        for number, word in enumerate(owner.acknowledged):
            for reader in talks if number % OTHERS_EVERY == 0 else [owner]:
                body = json.dumps({"query": word, "mode": "keyword", "limit": 5}).encode()
                answer = ask(processes.addresses[number % N_WEB], "/api/runs/search", reader.secret, body=body)
                texts = [hit for hit in answer["hits"] if word in json.dumps(hit)]
                n_asked += 1
                n_found += len(texts)
                if len(texts) != (reader is owner):
                    raise StoryFault(f"{reader.name} finds {word} {len(texts)} times")
    return n_found, n_asked


def check_tables(postgres: PostgresServer, database: str, talks: list[Talk]) -> tuple[int, int]:
    """Check by SQL that each message is there once, and each memory that it asked for; return how many of each."""
    schema = postgres.execute("SELECT schema_name FROM perdure.generation WHERE is_current", database=database)[0][0]
    query = f"SELECT text, turn < 0 FROM {schema}.chunk_text JOIN {schema}.chunk USING (id)"  # below 0: a memory
    rows = postgres.execute(query, database=database)
    n_memories = 0
    for talk in talks:
        for number, word in enumerate(talk.acknowledged, start=1):
            kinds = sorted(is_memory for text, is_memory in rows if word in text)
            n_memories += len(kinds) - 1
            if kinds != ([False, True] if number % MEMORY_EVERY == 0 else [False]):
                raise StoryFault(f"the index has {word} {len(kinds)} times")
    return sum(len(talk.acknowledged) for talk in talks), n_memories


def compare_with_store(processes: Processes, folder: Path) -> str:
    """Let a new machine take everything from the store; return the digest that both have."""
    settings = (processes.home / "config.toml").read_text()
    new_home = folder / "new-machine"
    new_home.mkdir(mode=0o700)
    head, _, rest = settings.partition("[index]")
    archive = rest[rest.index("[archive]") :]
    (new_home / "config.toml").write_text(head.replace('machine = "home"', 'machine = "new"') + archive)
    program = "import perdure, sys\nwith perdure.open(sys.argv[1]) as home: print(home.upkeep.digest())"
    digests = []
    for home in (processes.home, new_home):
        line = [sys.executable, "-c", program, str(home)]
        done = subprocess.run(line, env=processes.env, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise StoryFault(done.stderr)
        digests.append(done.stdout.strip())
    if digests[0] != digests[1]:
        raise StoryFault(f"the home holds {digests[0]}, and the store {digests[1]}")
    return digests[0]


@contextlib.contextmanager
def make_folder() -> Iterator[Path]:
    """Yield a folder, and delete it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-many-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(folder: Path) -> None:
    """Play the whole story. Raises StoryFault."""
    (folder / "store").mkdir()
    with contextlib.ExitStack() as closing:
        postgres = closing.enter_context(contextlib.closing(PostgresServer()))
        store = ObjectServer(folder / "store")
        closing.callback(store.kill)
        store.start()
        say("a Postgres and an S3-compatible store run")
        home, database = folder / "home", postgres.create_database()
        write_settings(home, postgres.get_address(database, role=ROLE), store)
        processes = Processes(home, store.environment)
        closing.callback(processes.close)
        for name in [*(f"web {n + 1}" for n in range(N_WEB)), *(f"worker {n + 1}" for n in range(N_WORKERS))]:
            processes.start(name)
        secrets = register(processes)
        processes.wait_for_web()
        say(f"{N_WEB} web processes answer, {N_WORKERS} workers work, for {', '.join(PEOPLE)}")
        take_in_samples(processes, secrets, folder)
        say("their sample sessions are taken in: mira's here, noor's and otto's from machines of their own")
        talks = [Talk(name, secrets[name], processes.addresses) for name in PEOPLE]
        for talk in talks:
            talk.start()
        kill_each(processes, postgres, store)
        for talk in talks:
            talk.end()
        n_said, n_retries = sum(len(talk.acknowledged) for talk in talks), sum(talk.n_retries for talk in talks)
        say(f"{n_said} messages were acknowledged meanwhile; {n_retries} times somebody had to try again")
        wait_until_done(processes, IndexConfig("postgres", postgres.get_address(database, role=ROLE)))
        say("nothing waits any more")
        n_messages, n_memories = check_tables(postgres, database, talks)
        say(f"nothing is lost and nothing is twice: {n_messages} messages and {n_memories} memories, each once")
        n_found, n_asked = check_people(processes, talks)
        say(f"nobody sees what is not theirs: of {n_asked} searches {n_found} found a message, each its own person's")
        say(f"verify: {processes.run('verify').strip().splitlines()[-1]}")
        processes.run("store")
        say(f"a new machine made the same from the store alone: digest {compare_with_store(processes, folder)[:16]}")


def main() -> int:
    """Play the story; return the exit status."""
    with make_folder() as folder:
        try:
            play(folder)
        except StoryFault as fault:
            sys.stderr.write(f"The story is not true: {fault}\n")
            for path in (folder / "home" / "run" / "log.jsonl", folder / "processes.log"):
                with contextlib.suppress(OSError):
                    sys.stderr.write(path.read_text()[-4000:])
            return 1
    say("done: nothing was lost, nothing is twice, nobody sees what is not theirs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
