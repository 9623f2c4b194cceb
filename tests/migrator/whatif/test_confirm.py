from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.whatif.confirm import N_SEEDS, TOLERANCE, Confirmed, Kept, Trial, confirm, share_kept
from migrator.whatif.grid import Choice
from migrator.whatif.search import Condition, Found, Verdict, by_size, find, number_of, read_search
from migrator.whatif.sweep import PointOutcome
from tests.migrator.conftest import SMALL

HALF = Condition("slo_attainment", None, ">=", 0.5)
SEED = 7


def counts(*windows: tuple[float, float, float]) -> Any:
    return np.array(windows)


def promised(text: str, limit: float, tenants: int = 2) -> Found:
    """A search whose plans promise one half from the easy end up to the limit."""
    config = validate_config({**SMALL, "load": 0.7}, "small.yaml")
    few = list(config.tenants)
    names = [few[0].model_copy(update={"name": f"t{number}"}) for number in range(tenants)]
    search = read_search(text, config.model_copy(update={"tenants": names}))
    sign = 1 if search.direction == "max" else -1

    def planned(choices: Sequence[Choice]) -> list[PointOutcome]:
        shares = [60.0 if sign * number(one) <= sign * limit else 40.0 for one in choices]
        return [
            PointOutcome((one,), "optimal", "physical", "physical", 1.0, 1.0, 1.0, 0.0, slo_attainment_pct=share)
            for one, share in zip(choices, shares, strict=True)
        ]

    return find(search, [HALF], planned)


def number(choice: Choice) -> float:
    return [model.name for model in by_size()].index(choice.text) if choice.key == "gpu" else number_of(choice)


Curve = Callable[[float, int], float | None]


def kept(found: Found, curve: Curve) -> tuple[Confirmed, list[tuple[Choice, int]], list[Trial]]:
    """What is confirmed where runs keep a share by the value and the seed; what was simulated; what was told."""
    asked: list[tuple[Choice, int]] = []
    told: list[Trial] = []

    def simulate(wanted: Sequence[tuple[Choice, int]]) -> list[Kept | None]:
        assert wanted
        asked.extend(wanted)
        shares = [curve(number(choice), seed) for choice, seed in wanted]
        return [None if one is None else {"t0": counts((1000, 0, 1000 * one), (1000, 0, 1000 * one))} for one in shares]

    return confirm(found, SEED, {"t0": 1.0}, simulate, told.append), asked, told


def step(limit: float, sign: int = 1) -> Curve:
    return lambda value, _: 0.6 if sign * value <= sign * limit else 0.4


@pytest.mark.parametrize(
    ("text", "plans", "runs"),
    [
        ("max:load", 0.567, 0.567),
        ("max:load", 0.567, 0.31),
        ("max:load", 0.567, 1.07),
        ("max:load", 0.05, 0.4),  # no plan promises it anywhere
        ("max:load", 2.0, 0.66),  # plans promise it everywhere
        ("max:language.load=x1..x12", 8.0, 2.3),
        ("min:slo_ms=10..120", 33, 41),
        ("min:slo_ms=10..120", 33, 15.5),
    ],
)
def test_both_ends_of_the_answer_are_simulated_and_stand_close(text: str, plans: float, runs: float) -> None:
    text = text.replace("language", "t1")
    sign = 1 if text.startswith("max") else -1
    answer, asked, told = kept(promised(text, plans), step(runs, sign))
    assert answer.holds is not None
    assert answer.breaks is not None
    easy, hard = number_of(answer.holds.choice), number_of(answer.breaks.choice)
    assert sign * easy <= sign * runs < sign * hard
    assert abs(hard - easy) <= TOLERANCE * max(easy, hard) + 1e-9
    assert answer.holds.seeds == answer.breaks.seeds == (7, 8, 9)
    assert len(set(asked)) == len(asked) <= 20
    assert told[-1] in answer.trials


def test_the_plans_answer_is_what_is_simulated_first_cut_to_the_easy_side() -> None:
    _, asked, _ = kept(promised("max:load=0.2..2.4", 1.7539), step(1.0))
    assert [(choice.text, seed) for choice, seed in asked[:2]] == [("1.75", SEED), ("1.8", SEED)]
    _, asked, _ = kept(promised("min:slo_ms=10..120", 33.333), step(100, -1))
    assert asked[0][0].text == "33.5"  # of 33.44, the last of the halvings


def test_no_value_has_more_digits_than_the_tolerance_justifies() -> None:
    found = promised("max:t1.load=x1..x4", 2.0)
    answer, asked, _ = kept(found, step(2.31))
    assert answer.holds is not None
    assert all(len(choice.text) <= len("x2.31") for choice, _ in asked)
    assert found.search.choices[1].text == "x1.273"


def test_none_is_said_only_where_the_easy_end_fails_with_every_seed() -> None:
    answer, asked, _ = kept(promised("max:load", 0.567), lambda *_: 0.4)
    assert answer.holds is None
    assert answer.breaks is not None
    assert (answer.breaks.choice.text, answer.breaks.verdict) == ("0.1", Verdict.FAILS)
    assert {seed for choice, seed in asked if choice.text == "0.1"} == {7, 8, 9}


def test_a_run_that_cannot_begin_keeps_nothing() -> None:
    answer, _, _ = kept(promised("max:load", 0.567), lambda load, _: None if load > 0.3 else 0.6)
    assert answer.holds is not None
    assert answer.holds.choice.text == "0.3"


def test_where_all_is_kept_the_limit_lies_beyond() -> None:
    answer, asked, _ = kept(promised("max:load", 0.567), lambda *_: 0.6)
    assert answer.holds is not None
    assert (answer.holds.choice.text, answer.breaks) == ("1.2", None)
    assert len(asked) < 12


def noisy(value: float, seed: int) -> float:
    """Falls by 0.5 over a load of 1; seeds differ by 0.01."""
    return 0.5 + 0.5 * (0.7 - value) + 0.01 * (seed - 8)


def test_noise_drives_the_ends_apart_until_both_are_beyond_it() -> None:
    answer, _, _ = kept(promised("max:load", 0.65), noisy)
    assert answer.holds is not None
    assert answer.breaks is not None
    assert number_of(answer.holds.choice) < 0.676
    assert number_of(answer.breaks.choice) > 0.7
    within = [one for one in answer.trials if one.verdict is Verdict.NOT_SHOWN]
    assert all(number_of(answer.holds.choice) < number_of(one.choice) <= 0.7 for one in within)


def test_where_the_first_seed_misleads_the_ends_close_in_again() -> None:
    answer, asked, _ = kept(
        promised("max:load", 0.65), lambda load, seed: step(0.95 if seed == SEED else 0.58)(load, 0)
    )
    assert answer.holds is not None
    assert answer.breaks is not None
    easy, hard = number_of(answer.holds.choice), number_of(answer.breaks.choice)
    assert easy <= 0.58 < hard < 1.06 * easy
    assert len(asked) <= 60


def test_at_a_cliff_the_answer_stands_back_from_it_unless_as_much_is_to_spare() -> None:
    for spare, limit in ((0.001, 0.56), (0.1, 0.57)):
        answer, _, _ = kept(
            promised("max:load", 0.567), lambda load, _, spare=spare: 0.5 + spare if load < 0.571 else 0.4
        )
        assert answer.holds is not None
        assert answer.breaks is not None
        assert 0.95 * limit < number_of(answer.holds.choice) <= limit
        assert 0.57 < number_of(answer.breaks.choice) < 0.59
        told = {one.choice.text: one.verdict for one in answer.trials}
        assert told["0.57"] is (Verdict.NOT_SHOWN if spare == 0.001 else Verdict.HOLDS)


def test_where_an_easier_value_kept_less_the_answer_has_as_much_to_spare() -> None:
    def dips(load: float, _: int) -> float:
        return 0.9 - 0.7 * load - (0.08 if 0.42 < load < 0.48 else 0.0)

    answer, _, _ = kept(promised("max:load", 0.45), dips)
    assert answer.holds is not None
    assert answer.breaks is not None
    assert dips(number_of(answer.holds.choice), 0) >= 0.5 + 0.045
    assert number_of(answer.breaks.choice) > 0.571


def test_an_easy_end_that_is_kept_by_less_than_the_noise_is_the_answer_and_called_so() -> None:
    answer, _, _ = kept(promised("max:load=0.699..2", 0.65), noisy)
    assert answer.holds is not None
    assert (answer.holds.choice.text, answer.holds.verdict) == ("0.699", Verdict.NOT_SHOWN)


@pytest.mark.parametrize(("tenants", "plans", "runs"), [(5, 3, 4), (30, 11, 19), (30, 11, 1), (3, 0, 2)])
def test_tenants_are_counted_in_whole_numbers(tenants: int, plans: int, runs: int) -> None:
    answer, _, _ = kept(promised("max:tenants", plans, tenants), step(runs))
    assert answer.holds is not None
    assert answer.breaks is not None
    assert (answer.holds.choice.value, answer.breaks.choice.value) == (runs, runs + 1)


@pytest.mark.parametrize("smallest", [0, 1, 5, len(by_size()) - 1])
def test_the_smallest_gpu_that_keeps_it_is_found_with_the_next_smaller_one(smallest: int) -> None:
    answer, _, _ = kept(promised("min:gpu", 3), step(smallest, -1))
    assert answer.holds is not None
    assert number(answer.holds.choice) == smallest
    assert (None if answer.breaks is None else number(answer.breaks.choice)) == (smallest - 1 if smallest else None)


def test_the_same_simulations_give_the_same_answer() -> None:
    assert kept(promised("max:load", 0.65), noisy) == kept(promised("max:load", 0.65), noisy)


def test_a_share_is_the_mean_of_seeds_over_all_windows_with_its_error() -> None:
    runs = [
        {"a": counts((100, 60, 90), (300, 150, 270)), "b": counts((100, 0, 10), (100, 0, 10))},
        {"a": counts((100, 60, 80), (300, 150, 250)), "b": counts((100, 0, 10), (100, 0, 10))},
    ]
    weights = {"a": 1.0, "b": 3.0}
    of_a = share_kept(Condition("slo_attainment", "a", ">=", 0.5), runs, weights)
    assert of_a.mean == pytest.approx((360 / 400 + 330 / 400) / 2)
    # Windows differ by 10 and 20 requests between two seeds: variances 50 and 200.
    assert of_a.error == pytest.approx((250 / 2) ** 0.5 / 400)
    assert share_kept(Condition("goodput", None, ">=", 0.5), runs, weights).mean == pytest.approx(210 / (400 + 3 * 200))
    assert share_kept(Condition("slo_attainment", None, ">=", 0.5), runs[:1], weights).error is None
    assert N_SEEDS == 3
    # Student's t at 0.95 is 2.920 with two degrees of freedom.
    assert of_a.error is not None
    assert of_a.room == pytest.approx(4.303 * 2**0.5 * of_a.error, rel=0.04)


def test_a_tenant_without_requests_keeps_nothing() -> None:
    run = {"a": counts((0, 0, 0))}
    assert share_kept(Condition("goodput", "a", ">=", 0.5), [run], {"a": 1.0}).mean is None
    assert share_kept(Condition("goodput", "b", ">=", 0.5), [run], {"a": 1.0}).mean is None
    found = replace(promised("max:load", 0.567), conditions=(Condition("goodput", "t0", "<=", 0.5),))
    assert kept(found, step(0.567))[0].breaks is None  # nobody is right, and at most half was asked for
