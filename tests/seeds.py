"""Which of a test's cases are for every day; the others are marked ``long``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def daily(every: Iterable[Any], some: Container[Any]) -> list[Any]:
    """All cases as parameters of one argument, those that are not among ``some`` for ``make test-long`` alone."""
    return [pytest.param(one, marks=() if one in some else pytest.mark.long) for one in every]
