"""SGDRC's Figure 17 by ratio: groups, quotas and traffic; what is measured is not asserted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.seeds.sgdrc import (
    LEAST_CORES,
    LOADS,
    REQUEST_S,
    SERVER,
    TRAINER,
    WAYS,
    Measured,
    Tide,
    arrivals_s,
    measured,
    ratios,
    ways_table,
)
from executor.cpu.shares import SharesV1
from executor.folders import Files


class Recorded(SharesV1):
    """Shares in a folder of the test: nobody keeps to them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Files())
        self.limits: list[tuple[str, float]] = []

    def prepare(self) -> None:
        self.folder.mkdir()

    def limit(self, name: str, cores: float, _weight: int) -> None:
        assert (self.folder / name).is_dir()
        self.limits.append((name, cores))

    def enter(self, folder: Path, _pid: int) -> None:
        assert folder.is_dir()


@pytest.fixture
def shares(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "shares")


def test_the_tide_turns_with_who_is_served_and_no_other_quota_does(shares: Recorded) -> None:
    (shares.folder / TRAINER).mkdir(parents=True)
    for name in WAYS:
        Tide(shares, WAYS[name]).turn(is_served=True)
    assert shares.limits == [(TRAINER, LEAST_CORES)]
    (shares.folder / SERVER).mkdir()
    Tide(shares, WAYS["tide"]).turn(is_served=False)
    assert shares.limits[1:] == [(SERVER, 1.0), (TRAINER, 1.0)]


def test_arrivals_are_of_the_load_and_the_seed() -> None:
    times = arrivals_s(LOADS["heavy"], 200.0, 3)
    assert times == sorted(times) == arrivals_s(LOADS["heavy"], 200.0, 3)
    assert len(times) * REQUEST_S / 200.0 == pytest.approx(LOADS["heavy"], rel=0.05)


@pytest.mark.parametrize("way", ["alone", "stops itself"])
def test_a_round_answers_all_and_leaves_no_group(way: str, shares: Recorded) -> None:
    found = measured(shares, WAYS[way], [0.0, 0.001, 0.3], 10, 10)
    assert 0 < found.p50_ms <= found.p99_ms
    assert (found.steps_s > 0) == WAYS[way].trains
    assert not shares.folder.exists()


def test_ratios_are_round_by_round() -> None:
    rounds = {
        (traffic, name): [Measured(1.0, 2.0 + place, 4.0 * (place + 1)) for place in range(2)]
        for traffic in LOADS
        for name in WAYS
    }
    rounds["light", "half"] = [Measured(1.0, 1.0, 2.0)] * 2
    found = ratios(rounds, "light", "tide", "half", lambda one: one.steps_s)
    assert np.array_equal(found, [2.0, 4.0])
    assert ways_table(rounds).row_count == len(LOADS) * len(WAYS)
