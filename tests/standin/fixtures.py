"""The stand-in, built once a test process, and a fresh driver for every test."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standin.cards import Card
from tests.standin.standin import Programs, StandIn, build

MakeStandIn = Callable[..., StandIn]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The library and the command; where gcc is absent everything that needs them is skipped, and says so."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc IS ABSENT: nothing was tested against the stand-in of NVIDIA's driver")
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    return build(tmp_path_factory.mktemp("standin"), Path(spec.origin))


@pytest.fixture
def make_standin(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStandIn]:
    """Makes a driver with the cards given, and lets this process and its children meet it."""
    made: list[StandIn] = []
    ctypes.CDLL(str(programs.library))  # found by its soname from now on, whatever LD_LIBRARY_PATH says

    def make(*cards: Card, seed: int = 1) -> StandIn:
        standin = StandIn(tmp_path / f"driver-{len(made)}", programs, *cards, seed=seed)
        for name, value in standin.environment.items():
            monkeypatch.setenv(name, value)
        made.append(standin)
        return standin

    yield make
    for standin in made:
        standin.close()
