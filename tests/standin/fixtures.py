"""The stand-in, built once a test process, and a fresh driver for every test."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standin.cards import A100_80, Card
from tests.standin.mps import MpsStandIn
from tests.standin.standin import Programs, StandIn, build

MakeStandIn = Callable[..., StandIn]
MakeMps = Callable[[Card], MpsStandIn]


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


@pytest.fixture
def make_mps(make_standin: MakeStandIn) -> Iterator[MakeMps]:
    """Makes a GPU that is not cut by MIG, and a state folder with a short name for its MPS daemon.

    No other test has this GPU: daemons are real processes, which see each other.
    """
    with contextlib.ExitStack() as stack:

        def make(card: Card) -> MpsStandIn:
            gpu = make_standin(card).state.gpus[0]
            gpu.mig_current, gpu.uuid = 0, f"GPU-{uuid.uuid4()}".encode()
            state = stack.enter_context(tempfile.TemporaryDirectory(prefix="mps-"))
            standin = MpsStandIn(Path(state), gpu.uuid.decode())
            stack.callback(standin.kill)
            return standin

        yield make


@pytest.fixture
def mps(make_mps: MakeMps) -> MpsStandIn:
    """An A100 of 80 GB."""
    return make_mps(A100_80)
