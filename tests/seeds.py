"""Which tests are for every day, which of their cases, and how many examples.

``slow.txt`` names the tests of which a case takes more than about 0.6 s of processor time, and files whose fixtures do.
CI runs these too, by ``make test-slow``; ``make test-live`` begins with those among its own. Cases beside the daily
ones, and most of the examples, are for ``make test-long``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent

SLOW = frozenset((TESTS / "slow.txt").read_text("utf-8").split())
"""Files, and tests as ``FILE::NAME``, below ``tests``."""


def is_slow(item: pytest.Item) -> bool:
    """Whether ``slow.txt`` names the test or its file."""
    file = item.path.relative_to(TESTS).as_posix() if TESTS in item.path.parents else ""
    return not SLOW.isdisjoint((file, f"{file}::{item.name.partition('[')[0]}"))


def daily(every: Iterable[Any], some: Container[Any]) -> list[Any]:
    """All cases as parameters of one argument, those that are not among ``some`` for ``make test-long`` alone."""
    return [pytest.param(one, marks=() if one in some else pytest.mark.long) for one in every]


def examples(n: int) -> int:
    """How many examples a test draws that draws ``n`` in ``make test-long``."""
    return max(1, n * settings().max_examples // 100)
