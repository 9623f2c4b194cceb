"""Both trainers on real digits: what they learn, forget and repeat. Avalanche and torch alone pass the same tests."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from workloads.errors import LearningError
from workloads.learning.course import Option
from workloads.learning.datasets import benchmark
from workloads.learning.experiences import Benchmark, Samples
from workloads.learning.models import Classifier, classifier
from workloads.learning.retraining import fit_of
from workloads.learning.watch import Cut

pytestmark = pytest.mark.live

BOTH = [("plain", "naive"), ("plain", "replay"), *(("avalanche", name) for name in ("naive", "replay", "ewc", "lwf"))]


class Counted:
    """Counts steps, and ends the training after some."""

    def __init__(self, most: int = 10**9) -> None:
        self.losses: list[float] = []
        self.n_steps = 0
        self._most = most

    def step(self, loss: float, n_steps: int) -> None:
        self.losses.append(loss)
        self.n_steps = n_steps
        if len(self.losses) == self._most:
            raise Cut("stopped", "enough")


@cache
def digits(seed: int = 0) -> Benchmark:
    return benchmark("digits", seed=seed)


def right(model: Classifier, samples: Samples) -> float:
    return model.accuracy(samples.inputs, samples.labels)


def learned(
    trainer: str,
    strategy: str,
    *,
    until: int = 1,
    seed: int = 0,
    steps: Counted | None = None,
    device: str | None = None,
) -> Classifier:
    """A model that was trained on all experiences up to ``until``, the last one with this trainer and strategy."""
    model = classifier("mlp", seed=seed, device=device, **digits(seed).model_options)
    for number in range(until + 1):
        chosen = (trainer, strategy) if number == until else ("plain", "replay")
        option = Option("x", chosen[1], chosen[0], n_epochs=6, learning_rate=0.05)
        new, memory = digits(seed).train(number, None, seed), digits(seed).memory(number, 200, seed)
        watched = steps if steps and number == until else Counted()
        fit_of(option)(model, new, memory, option, seed=seed, steps=watched)
    return model


@pytest.mark.parametrize(("trainer", "strategy"), BOTH)
def test_the_new_experience_is_unknown_before_and_known_after(trainer: str, strategy: str) -> None:
    before, after = learned("plain", "replay", until=0), learned(trainer, strategy, until=1)
    assert right(before, digits().test(1)) < 0.2
    assert right(after, digits().test(1)) > 0.85


@pytest.mark.parametrize("trainer", ["plain", "avalanche"])
@pytest.mark.parametrize("seed", [0, 1])
def test_replay_forgets_less_than_naive(trainer: str, seed: int) -> None:
    old = digits(seed).test(0)
    assert right(learned(trainer, "replay", seed=seed), old) > right(learned(trainer, "naive", seed=seed), old) + 0.5


@pytest.mark.parametrize(("trainer", "strategy"), BOTH)
def test_on_a_cpu_the_same_seed_learns_the_same_bit_by_bit(trainer: str, strategy: str) -> None:
    one, other = (learned(trainer, strategy, device="cpu").module.state_dict() for _ in range(2))
    assert all(np.array_equal(one[name].numpy(), other[name].numpy()) for name in one)


@pytest.mark.parametrize(("trainer", "strategy"), BOTH)
def test_each_step_is_told_and_none_is_missing(trainer: str, strategy: str) -> None:
    steps = Counted()
    learned(trainer, strategy, until=1, steps=steps)
    assert len(steps.losses) == steps.n_steps == 6 * -(-len(digits().train(1, None, 0)) // 32)


@pytest.mark.parametrize(("trainer", "strategy"), [("plain", "naive"), ("avalanche", "replay")])
def test_whoever_watches_may_end_it(trainer: str, strategy: str) -> None:
    steps = Counted(most=3)
    with pytest.raises(Cut):
        learned(trainer, strategy, steps=steps)
    assert len(steps.losses) == 3


@pytest.mark.parametrize(("trainer", "strategy"), BOTH)
def test_the_loss_falls(trainer: str, strategy: str) -> None:
    steps = Counted()
    learned(trainer, strategy, steps=steps)
    assert np.mean(steps.losses[-5:]) < np.mean(steps.losses[:5])


def test_avalanche_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "avalanche.training.supervised", None)
    with pytest.raises(LearningError, match=r"trainer avalanche needs .*pip install '.*\[avalanche\]'"):
        learned("avalanche", "naive")
