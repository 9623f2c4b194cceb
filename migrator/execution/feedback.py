"""What clients say of answers: which share of the newest labels agreed."""

from __future__ import annotations

from collections import defaultdict, deque

LEAST_LABELS = 200
"""Fewer labels say nothing of a model."""

DIGITS = 6
"""As the log has shares."""


class Feedback:
    """By tenant and version of its weights, the newest labels of answers, in the pieces in which they came.

    As many as are needed. Where models have no versions, all answers are of one without a name.
    """

    def __init__(self) -> None:
        self._pieces: defaultdict[str, defaultdict[str, deque[tuple[int, int]]]]
        self._pieces = defaultdict(lambda: defaultdict(deque))

    def add(self, tenant: str, n_labels: int, n_right: int, version: str = "") -> None:
        """So many labels came, of which so many agreed with the version's answer."""
        pieces = self._pieces[tenant][version]
        pieces.append((n_labels, n_right))
        while sum(n for n, _ in pieces) - pieces[0][0] >= LEAST_LABELS:
            pieces.popleft()

    def newest(self, tenant: str, version: str = "") -> tuple[int, int]:
        """How many labels count, and how many of them agreed."""
        pieces = self._pieces[tenant][version]
        return sum(n for n, _ in pieces), sum(right for _, right in pieces)

    def share(self, tenant: str, version: str = "") -> float | None:
        """Which share agreed, as the log has it; ``None`` while there are too few."""
        return share_of(*self.newest(tenant, version))

    def forget(self, tenant: str) -> None:
        """Another model answers from now on."""
        self._pieces.pop(tenant, None)


def share_of(n_labels: int, n_right: int) -> float | None:
    """The share of labels that agreed; ``None`` of too few."""
    return round(n_right / n_labels, DIGITS) if n_labels >= LEAST_LABELS else None
