"""Kill a bot before each file operation of its inbox and each connection, message after message, in one home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rig.step_killer import kill_at_every_step

WORK = """
import os, signal, sys, threading, time
from pathlib import Path
import perdure
from perdure.config import load
from perdure.surfaces.telegram.bot import TelegramBot
from perdure.surfaces.telegram.inbox import Inbox
from perdure.testing import ScriptedChat
import perdure.agent.agent, perdure.turn, perdure.recall.recall

home, left = Path(sys.argv[1]), 1 << 30


def count_step(event, arguments):
    global left
    is_ours = event in ("open", "os.rename", "os.remove", "os.mkdir") and isinstance(
        arguments[0], (str, os.PathLike)) and str(arguments[0]).startswith(str(home / "telegram"))
    is_waiting = threading.current_thread() is threading.main_thread()  # it only looks whether the work is done
    if not is_waiting and (is_ours or event == "socket.connect"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def work(number, max_steps):
    global left
    sys.addaudithook(count_step)
    offset = Inbox(home).state.offset
    opened = lambda: perdure.open(home, user="ada", chats={"resident": ScriptedChat([f"Answer {number}."])})
    bot, stop_event = TelegramBot(home, load(home), opened, poll_s=1, recall_mode="keyword"), threading.Event()
    thread = threading.Thread(target=bot.run, args=(stop_event,), daemon=True)
    left = max_steps
    thread.start()
    while not (Inbox(home).state.offset == 700 + N_UPDATES * (number + 1) and not Inbox(home).list_items()):
        time.sleep(0.02)
    left = 1 << 30
    stop_event.set()
    bot.close()
    os._exit(0)
"""


def kill_at_every_bot_step(home: Path, put: Callable[[int], None], *, n_updates: int = 1) -> int:
    """Kill the bot before each of its steps, as `kill_at_every_step`. n_updates: that `put` brings each time."""
    return kill_at_every_step(f"N_UPDATES = {n_updates}\n{WORK}", home, put)
