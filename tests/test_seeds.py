"""The list of slow tests names tests that there are."""

from __future__ import annotations

import pytest

from tests.seeds import SLOW, TESTS


@pytest.mark.parametrize("named", sorted(SLOW))
def test_each_slow_test_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    there = ".TestCase\n" if name == "runTest" else f"\ndef {name}("  # of a state machine
    assert there * bool(name) in (TESTS / file).read_text("utf-8")
