"""Which weights serve, whatever orders, retrainings, kills and segments of the log do: those that the log says.

The models, the orders and the log are the real ones; processes are played, and take weights over at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import to_builtins

from executor.files import summed

pytest.importorskip("zmq")

from migrator.config.sections import Config
from migrator.execution.live.learning import LiveModels, Served, learned_in
from migrator.execution.live.orders import Attending, RollingBack
from migrator.execution.models import Lessons
from migrator.execution.real import rolled_back_in, trained_in
from migrator.inputs.assembly import assemble_run
from migrator.inputs.in_force import config_in_force
from migrator.log import segments
from migrator.log.orders import ORDERS, Reload, Rollback
from migrator.log.records import Answer, OrderRefused, Reloaded, Resumed, RolledBack
from migrator.log.runlog import whole_log
from migrator.log.segments import older_segments
from migrator.log.weights import FIRST, kept_weights, served_weights
from tests.migrator.execution.live.test_learning import Profilers, aside
from tests.migrator.execution.live.test_orders import Service
from tests.migrator.log import records
from tests.seeds import examples
from workloads.learning.profiler import Tried

NAMES, WINDOW_S = ("vision", "language"), 3.0
VERSIONS = [FIRST, "window-0", "window-1", "window-3"]


class Keeping(Service):
    """A service whose models are real."""

    def models_of(self, config: Config) -> Any:
        log, site = whole_log(self.run), Profilers(self.run)
        site.writes = Tried("own")
        tenants = assemble_run(config, "shop")[0].tenants
        models = LiveModels(config, tenants, site, None, aside, served_weights(log), {}, kept_weights(log))
        for one in models._models.values():  # there is a file to go back to
            own = Served(self.file.with_name("own.safetensors"), FIRST, 0.5)
            one.versions[FIRST] = own
            one.served = own if one.served.version == FIRST else one.served
        return models

    def attended(self) -> None:
        """Orders are looked for, those to roll back, too."""
        workers: Any = SimpleNamespace(is_swapping=lambda _: False, roll_back=lambda *_: None)
        rolling = RollingBack(self.run, self.clock, self.models, workers)  # type: ignore[arg-type]
        self.attend = Attending(self.run, {Reload: self.reloading, Rollback: rolling}, rolling.later)


class Weights(RuleBasedStateMachine):
    """Retrainings, orders, windows, borders and kills, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack, self.window, self.n_orders = ExitStack(), 0, 0
        self.stack.enter_context(patch.object(segments, "N_LESSONS", 2))
        folder = Path(self.stack.enter_context(TemporaryDirectory()))
        (folder / "own.safetensors").touch()
        self.service = Keeping(folder)
        self.stack.enter_context(self.service.log)
        self.service.logs = self.stack
        self.service.attended()
        self.trained, self.serves, self.pins = Lessons(), dict.fromkeys(NAMES, FIRST), dict[str, str]()
        self.is_held = False
        self._settle()

    def teardown(self) -> None:
        self.stack.close()

    @precondition(lambda self: not self.is_held)
    @rule(name=st.sampled_from(NAMES))
    def finishes(self, name: str) -> None:
        version, models = f"window-{self.window}", self.service.models
        file = self.service.run / "live" / "weights" / name / version
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        told = {**records.finished(self.window, None, self.at_s, name), "version": version, "weights": ""}
        told["weights"] = str(file.relative_to(self.service.run))
        pinned = models.pinned(name)
        if pinned is None:
            models.serve(name, Served(file, version, 0.9))
            self.trained.add(name, self.window)
            self.serves[name] = version
        self._note({**told, "rejected": None if pinned is None else 0.9, "pinned": pinned})

    @rule(name=st.sampled_from(NAMES), version=st.sampled_from([None, *VERSIONS]))
    def rolls_back(self, name: str, version: str | None) -> None:
        before, is_pinned = self.serves[name], self.service.models.pinned(name) is not None
        (self.service.run / ORDERS / "1").write_bytes(summed(to_builtins(Rollback(tenant=name, version=version))))
        first, *_ = self._looked()
        assert isinstance(first, OrderRefused) or (first.version != before and not is_pinned)

    @rule(pins=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VERSIONS)), weight=st.sampled_from([1, 2]))
    def reloads(self, pins: Mapping[str, str], weight: int) -> None:
        changes: dict[str, Any] = {f"tenants.{NAMES.index(name)}.pin": {"weights": one} for name, one in pins.items()}
        self.service.write({**changes, "tenants.0.weight": weight})
        kept = {name: {self.serves[name], *self.service.models._models[name].versions} for name in NAMES}
        (first,) = self._looked(hears_hup=True)
        assert isinstance(first, Reloaded) == all(one in kept[name] for name, one in pins.items())
        if isinstance(first, Reloaded):
            self.pins = dict(pins)

    @rule(is_border=st.booleans())
    def a_window_begins(self, is_border: bool) -> None:
        self.window += 1
        self.service.clock.now_s = self.at_s
        for tenancy in self.service.coming:
            tenancy.begins()
        self.service.coming.clear()
        if is_border:
            self.service.log.begin_segment(self.window, self.at_s)
            for path in older_segments(self.service.run).values():
                path.unlink()
        self._settle()
        self.is_held = False
        self._looked()
        assert {name: self.serves[name] for name in self.pins} == self.pins

    @rule()
    def is_killed(self) -> None:
        self.service = self.service.killed()  # type: ignore[assignment]
        self.service.attended()
        log = self.service.log.stands  # type: ignore[attr-defined]
        n_trained = {} if log.begins is None else log.begins.n_trained
        before = {name: self.trained.last(name) for name in NAMES}
        self.trained = Lessons(((one.tenant, one.window) for one in trained_in(log)), n_trained)
        for name, learned in rolled_back_in(log).items():
            self.trained.roll_back(name, learned)
        assert {name: self.trained.last(name) for name in NAMES} == before
        void = () if self.is_held else (self.window,)
        self.service.log.append(Resumed(window=self.window + 1, void=void), self.at_s)
        self.is_held = True
        self._looked()

    @invariant()
    def the_log_says_what_serves(self) -> None:
        log, models = whole_log(self.service.run), self.service.models
        assert {name: models.served(name).version for name in NAMES} == self.serves
        told = {name: one.version for name, one in served_weights(log).items()}
        assert {name: told.get(name, FIRST) for name in NAMES} == self.serves
        assert {name: self.trained.last(name) for name in NAMES} == {
            name: learned_in(self.serves[name]) for name in NAMES
        }
        pins = {one.name: one.pin.weights for one in config_in_force(log).tenants if one.pin.weights}
        assert pins == self.pins

    @property
    def at_s(self) -> float:
        return WINDOW_S * self.window + 1.0

    def _settle(self) -> None:
        """The window begins in the log, and what came before it is settled."""
        self._note(records.window_started(self.window, WINDOW_S, *NAMES))
        counts = records.counts([0] * 3, [0] * 3, [0] * 3)
        if self.window and not self.is_held:
            self._note(records.window_finished(self.window - 1, **dict.fromkeys(NAMES, counts)))

    def _note(self, record: Mapping[str, Any]) -> None:
        self.service.log.append(records.record_of(record), self.at_s)

    def _looked(self, *, hears_hup: bool = False) -> list[Answer]:
        """What is answered; the loop takes in what serves again."""
        found = list[Answer]()
        for answer, wall in self.service.attend(hears_hup):
            self.service.log.append(answer, self.at_s, wall)
            if isinstance(answer, RolledBack):
                self.trained.roll_back(answer.tenant, answer.learned)
                self.serves[answer.tenant] = answer.version
            found.append(answer)
        return found


Weights.TestCase.settings = settings(max_examples=examples(15), stateful_step_count=25, deadline=None)
TestWeights = Weights.TestCase
