"""What a site keeps of the dispatcher's words: sums of all seconds, and the last seconds one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

pytest.importorskip("zmq")

from migrator.errors import LiveError
from migrator.execution.live.site import FINISH_S, TOTALS, Received, Site
from workloads.live.messages import Counts, NotDone


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


class Waiting(Listening):
    """A site whose time passes while it waits, and that hears one word a second; its clock shows 0 at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(5.0)
        self.folder, self._later, self._clock, self.at_s, self.n_heard = Path("run"), [], self, 0.0, 0
        monkeypatch.setattr("migrator.execution.live.site.monotonic", lambda: self.at_s)

    @property
    def now_s(self) -> float:
        return self.at_s

    def was_woken(self) -> bool:
        return False

    def _fresh(self, timeout_s: float) -> list[Received]:
        self.at_s += timeout_s
        self.n_heard += 1
        return [NotDone(f"word {self.n_heard}")]


def test_words_are_waited_for_until_they_are_due_and_what_else_happens_is_kept(monkeypatch) -> None:
    site = Waiting(monkeypatch)
    site.hear_until(lambda: site.n_heard >= 25, due_s=24.0)
    assert (site.at_s, len(site._later)) == (25.0, 25)
    site.hear_until(lambda: True, due_s=0.0)
    with pytest.raises(LiveError, match=r"the dispatcher has not told its counts for 10 s; see run/"):
        site.hear_until(lambda: False, due_s=27.0)
    assert site.at_s == 25.0 + 2.0 + FINISH_S
