"""Tell a change from chance: two exact tests, with an interval. Pure, and without random draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, exp, lgamma, log, log1p

ALPHA = 0.05  # a result that chance gives less often than this is more than chance
_N_STEPS = 40  # halvings when a bound is looked for: finer than any figure that is shown


@dataclass(frozen=True, slots=True)
class PairedChange:
    """The change of a share between two runs of the same questions."""

    n: int  # questions that both runs asked
    n_lost: int  # answered only before
    n_gained: int  # answered only after
    p: float  # how often chance alone gives a difference as large (McNemar, exact, two-sided)
    low: float  # of the change of the share, 95 %
    high: float

    @property
    def change(self) -> float:
        """The change of the share, from -1 to 1."""
        return (self.n_gained - self.n_lost) / self.n if self.n else 0.0

    @property
    def is_fall(self) -> bool:
        """True if the share fell by more than chance."""
        return self.n_lost > self.n_gained and self.p < ALPHA


def compare_pairs(n: int, n_lost: int, n_gained: int) -> PairedChange:
    """Compare two runs by the questions whose answer changed (McNemar 1947, exact by the binomial).

    Without a real change a changed answer is as often lost as gained. Six lost and none gained: p = 2 / 2^6.

    >>> round(compare_pairs(100, 6, 0).p, 4), compare_pairs(100, 6, 0).is_fall, compare_pairs(100, 5, 0).is_fall
    (0.0312, True, False)
    """
    n_changed = n_lost + n_gained
    p = min(1.0, 2 * sum(comb(n_changed, k) for k in range(min(n_lost, n_gained) + 1)) / 2**n_changed)
    low, high = find_share_bounds(n_gained, n_changed)
    share_changed = n_changed / n if n else 0.0
    return PairedChange(n, n_lost, n_gained, p, (2 * low - 1) * share_changed, (2 * high - 1) * share_changed)


def find_share_bounds(n_hits: int, n: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934).

    >>> [round(bound, 4) for bound in find_share_bounds(0, 6)]
    [0.0, 0.4593]
    """
    half = ALPHA / 2
    logs = [lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) for k in range(n_hits + 1)]
    low = _find_root(lambda share: 1 - _sum_binomial(logs[:-1], n, share) < half) if n_hits else 0.0
    high = _find_root(lambda share: _sum_binomial(logs, n, share) > half) if n_hits < n else 1.0
    return low, high


def compute_fisher_p(n_hits: int, n: int, n_other_hits: int, n_other: int) -> float:
    """Return how often chance alone gives the first group so many hits or more, if both groups have one share.

    Fisher's exact test, one-sided: of 4 and 4 with 4 and 0 hits, 1 in 70.

    >>> round(compute_fisher_p(4, 4, 0, 4) * 70, 6)
    1.0
    """
    n_all_hits = n_hits + n_other_hits
    least, most = max(n_hits, n_all_hits - n_other), min(n, n_all_hits)
    cases = sum(comb(n, k) * comb(n_other, n_all_hits - k) for k in range(least, most + 1))
    return cases / comb(n + n_other, n_all_hits)


def _sum_binomial(logs: Sequence[float], n: int, share: float) -> float:
    """Return how often fewer of n hit than there are logs, each with this share. logs: of n over k, from k = 0 on."""
    hit, miss = log(share), log1p(-share)
    return sum(exp(coefficient + k * hit + (n - k) * miss) for k, coefficient in enumerate(logs))


def _find_root(is_below: Callable[[float], bool]) -> float:
    """Return the share from which on `is_below` no longer holds."""
    low, high = 0.0, 1.0
    for _ in range(_N_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low
