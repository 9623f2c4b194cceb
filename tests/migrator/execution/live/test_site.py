"""What a site keeps of the dispatcher's words: sums of all seconds, and the last seconds one by one."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

pytest.importorskip("zmq")

from migrator.execution.live.site import TOTALS, Site
from workloads.live.messages import Counts


class Listening(Site):
    """A site without processes."""

    def __init__(self, kept_s: float) -> None:
        self.totals = defaultdict(Counter)
        self._counts, self._kept_s, self._newest_s = {}, kept_s, 0
        self.hear = lambda _: None


def word(tenant: str, second: int, arrived: int, in_time: int) -> Counts:
    return Counts(tenant, second, arrived, in_time, 0, arrived - in_time, 0, 0, in_time, in_time, in_time)


def test_the_latest_word_on_each_second_counts_and_old_seconds_are_forgotten() -> None:
    site, expected = Listening(kept_s=5.0), Counter[str]()
    for second in range(100):
        words = [word("a", second, 9, n) for n in (0, 4, 7)]
        site._take([*words, word("b", second, 1, 1)])
        expected.update({name: getattr(words[-1], name) for name in TOTALS})
    assert site.totals["a"] == expected
    assert site.totals["b"]["arrived"] == 100
    assert len(site._counts) == 12
    site._take([word("a", second, 9, 7) for second in range(100)])  # the dispatcher's last word says all again
    assert site.totals["a"] == expected
