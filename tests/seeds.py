"""Which of a test's cases are for every day, and how many examples; the others are for ``make test-long``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import settings


def daily(every: Iterable[Any], some: Container[Any]) -> list[Any]:
    """All cases as parameters of one argument, those that are not among ``some`` for ``make test-long`` alone."""
    return [pytest.param(one, marks=() if one in some else pytest.mark.long) for one in every]


def examples(n: int) -> int:
    """How many examples a test draws that draws ``n`` in ``make test-long``."""
    return max(1, n * settings().max_examples // 100)
