"""A home as each of its users: for the threads that do what waits for everybody.

What is done for a user is done by a home object of theirs, with their memories, floor and journal; none of them sees
another's. Somebody for whom it fails keeps nobody else from their turn.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType

from perdure.errors import PerdureError
from perdure.home import Home
from perdure.jobs.book import Done, Share, summed
from perdure.schedule import Job, Stop
from perdure.types import Identity

MOST_OPEN = 16  # homes kept open beside the first: each holds an index, a ledger and up to three slabs open


class Everyone:
    """One home's users, for one thread. Close it; the home it was made of stays open."""

    def __init__(self, home: Home) -> None:
        """home: of the user who comes first."""
        self._home = home
        self._open: OrderedDict[str, Home] = OrderedDict()  # the least used first

    def __enter__(self) -> Everyone:
        """Nothing is open yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the homes of the others."""
        while self._open:
            self._open.popitem()[1].close()

    def users(self) -> list[str]:
        """The home's own user, then the others by name."""
        own = self._home.user
        return [own, *(user for user in self._home.users() if user != own)]

    def as_user(self, user: str) -> Home:
        """The home as one of its users. It stays open until others were asked for since."""
        if user == self._home.user:
            return self._home
        found = self._open.pop(user, None) or self._home.beside(identity=Identity(user, self._home.config.machine, ""))
        self._open[user] = found
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return found


def worked(job: Job, home: Home, stop: Stop) -> Done:
    """Do a job: once, or for each user, who have an equal share of its time; what one leaves is for the next."""
    if not job.for_each:
        return job.work(home, stop)
    shares: dict[str, Share] = {}
    ends_s = time.monotonic() + job.most_s
    with Everyone(home) as everyone:
        users = everyone.users()
        for n_done, user in enumerate(users):
            if stop():
                break
            left_s = (ends_s - time.monotonic()) / (len(users) - n_done) if job.most_s else None
            until = _until(stop, left_s)
            shares[user] = share(lambda: job.work(everyone.as_user(user), until))  # noqa: B023 - called at once
    return summed(shares)


def share(work: Callable[[], Done]) -> Share:
    """What a job came to for one user."""
    try:
        done = work()
    except (PerdureError, OSError) as error:
        return Share("failed", f"{getattr(error, 'code', type(error).__name__)}: {error}")
    return Share("done" if done.did else "nothing", done.why, done.counts)


def _until(stop: Stop, left_s: float | None) -> Stop:
    """Stop when told so, or when the time is over."""
    if left_s is None:
        return stop
    ends_s = time.monotonic() + left_s
    return lambda: stop() or time.monotonic() >= ends_s
