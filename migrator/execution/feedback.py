"""What clients say of answers: which share of the newest labels agreed."""

from __future__ import annotations

from collections import defaultdict, deque

LEAST_LABELS = 200
"""Fewer labels say nothing of a model."""

DIGITS = 6
"""As the log has shares."""


class Feedback:
    """By tenant, the newest labels of answers: as many as are needed, in the pieces in which they came."""

    def __init__(self) -> None:
        self._pieces: defaultdict[str, deque[tuple[int, int]]] = defaultdict(deque)

    def add(self, tenant: str, n_labels: int, n_right: int) -> None:
        """So many labels came, of which so many agreed with the answer."""
        pieces = self._pieces[tenant]
        pieces.append((n_labels, n_right))
        while sum(n for n, _ in pieces) - pieces[0][0] >= LEAST_LABELS:
            pieces.popleft()

    def newest(self, tenant: str) -> tuple[int, int]:
        """How many labels count, and how many of them agreed."""
        pieces = self._pieces[tenant]
        return sum(n for n, _ in pieces), sum(right for _, right in pieces)

    def share(self, tenant: str) -> float | None:
        """Which share agreed, as the log has it; ``None`` while there are too few."""
        n_labels, n_right = self.newest(tenant)
        return share_of(n_labels, n_right)

    def forget(self, tenant: str) -> None:
        """Another model answers from now on."""
        self._pieces.pop(tenant, None)


def share_of(n_labels: int, n_right: int) -> float | None:
    """The share of labels that agreed; ``None`` of too few."""
    return round(n_right / n_labels, DIGITS) if n_labels >= LEAST_LABELS else None
