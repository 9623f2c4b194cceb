from __future__ import annotations

import math
import multiprocessing
import os

import pytest

from migrator.errors import MigratorError
from migrator.terminal.parallel import Processes

# Spawned processes import what they call: the functions are the standard library's.


def test_every_item_comes_with_its_place() -> None:
    with Processes(2) as processes:
        found = dict(processes.each(math.sqrt, [float(n * n) for n in range(20)]))
        again = dict(processes.each(math.floor, [1.5, 2.5]))
    assert found == {n: float(n) for n in range(20)}
    assert again == {0: 1, 1: 2}


def test_work_is_done_in_other_processes_that_are_gone_afterwards() -> None:
    before = set(multiprocessing.active_children())
    with Processes(1) as processes:
        ((_, pid),) = processes.each(eval, ["__import__('os').getpid()"])
        assert pid in {child.pid for child in multiprocessing.active_children()}
    assert pid != os.getpid()
    assert set(multiprocessing.active_children()) == before


def test_what_the_function_raises_is_raised_and_the_processes_end_in_the_middle_of_their_calls() -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"), Processes(2) as processes:
        list(processes.each(eval, ["__import__('threading').Event().wait()", "__import__('math').sqrt(-1.0)"]))
    assert set(multiprocessing.active_children()) == before


def test_a_process_that_ends_early_is_told() -> None:
    with pytest.raises(MigratorError, match="one of 1 processes ended before"), Processes(1) as processes:
        list(processes.each(os._exit, [1]))
