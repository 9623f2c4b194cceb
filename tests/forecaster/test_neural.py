"""Learned forecasters: what of them needs no torch, and, under the marker `live`, fitting and forecasting."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecaster import neural
from forecaster.forecast import QUANTILE_LEVELS, FloatArray
from forecaster.neural import Check, FitError, FittedOn, Learned, Recipe, fit
from tests.fitted import fitted_folder

SMALL = Recipe("nhits", window_steps=20, history_steps=40, batch=8)
SEEN = (FittedOn("made", 0, 600, "0" * 64),)

needs_neuralforecast = pytest.mark.skipif(
    find_spec("neuralforecast") is None, reason="NOT TESTED: needs the extra `neural`"
)


def rates(n_steps: int = 600, n_tenants: int = 2, seed: int = 0) -> FloatArray:
    """Counts around a slow wave."""
    level = 30 + 15 * np.sin(np.arange(n_steps) / 40)[:, np.newaxis]
    return np.random.default_rng(seed).poisson(level, (n_steps, n_tenants)).astype(np.float64)


def test_scales_undo_level_and_spread() -> None:
    roots = np.sqrt(rates(60).T)
    inputs, targets, location, scale = neural._scaled(roots, 40)
    np.testing.assert_allclose(inputs.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([inputs, targets], axis=1) * scale + location, roots)


def test_silence_has_a_scale_all_the_same() -> None:
    inputs, targets, _, scale = neural._scaled(np.zeros((1, 60)), 40)
    assert scale.item() == 0.25
    assert not inputs.any()
    assert not targets.any()


def test_scores_and_values_are_each_others_inverse() -> None:
    rng = np.random.default_rng(0)
    quantiles = neural._ascending(rng.normal(size=(5, 7, len(QUANTILE_LEVELS))))
    values = rng.normal(size=(5, 7))
    scores = neural._scores_of(values, quantiles)
    inside = np.abs(scores) < 5
    assert inside.mean() > 0.5
    for place in range(5):
        again = neural._values_at(scores[place : place + 1], quantiles[place : place + 1])[0, 0]
        np.testing.assert_allclose(again[inside[place]], values[place][inside[place]])


def test_the_quantiles_themselves_have_the_levels_scores() -> None:
    quantiles = np.linspace(-1, 1, len(QUANTILE_LEVELS))[np.newaxis, np.newaxis]
    for place in range(len(QUANTILE_LEVELS)):
        np.testing.assert_allclose(neural._scores_of(quantiles[..., place], quantiles), neural._Z[place])


def test_crossing_quantiles_are_put_in_order() -> None:
    ordered = neural._ascending(np.array([[3.0, 1.0, 1.0, 2.0, 0.0]]))
    assert (np.diff(ordered) >= neural._LEAST_GAP - 1e-12).all()


def test_what_is_held_out_is_never_learned_from() -> None:
    counting = np.arange(500.0)[:, np.newaxis] ** 2  # a window tells its steps by their square roots
    windows = neural._Windows(SMALL, [counting])
    learned = windows.batch(8000, np.random.default_rng(0))
    assert learned.max() < 400
    assert windows.held_out[:, SMALL.history_steps :].min() == 400
    assert windows.held_out.max() == 499
    assert set(learned[:, 0].round().astype(int)) == set(range(341))


def test_long_series_are_checked_at_no_more_windows_than_it_takes() -> None:
    assert len(neural._Windows(SMALL, [rates(9000)]).held_out) == 400


def test_short_series_are_refused() -> None:
    with pytest.raises(FitError, match="nhits: a series has 60 steps; about 100 are needed"):
        neural._Windows(SMALL, [rates(600), rates(60)])


def test_tenants_have_the_same_weight_however_long_their_series() -> None:
    windows = neural._Windows(SMALL, [np.full((9000, 1), 4.0), np.full((2000, 1), 9.0)])
    assert windows.batch(4000, np.random.default_rng(0)).mean() == pytest.approx(2.5, abs=0.05)
    assert (windows.held_out == 3.0).mean() == 0.5


@pytest.mark.parametrize(("changes", "message"), [({"method": "gru"}, "'gru' is no network"), ({"batch": 1}, "batch")])
def test_a_recipe_says_what_is_wrong_with_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FitError, match=message):
        Recipe(**{**asdict(SMALL), **changes})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return fitted_folder(tmp_path / "model", SMALL, SEEN, monkeypatch)


def altered(folder: Path, key: str, value: object) -> None:
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**facts, key: value}))


def test_a_model_is_read_without_torch(folder: Path) -> None:
    model = Learned(folder)
    assert (model.name, model.min_history_steps, model.seen) == ("nhits", 40, SEEN)
    assert model.curve == (Check(1, 0.5, 0.6),)


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.json").unlink(), "is no fitted model: it holds no model.json"),
    (lambda folder: (folder / "model.json").write_text("{"), "cannot be read as a fitted model: JSONDecodeError"),
    (lambda folder: (folder / "model.json").write_text("[]"), "cannot be read as a fitted model: TypeError"),
    (lambda folder: altered(folder, "schema", 2), "has schema 2; 1 is needed"),
    (lambda folder: altered(folder, "recipe", {"method": "gru"}), "'gru' is no network"),
    (lambda folder: altered(folder, "recipe", {"layers": 3}), "cannot be read as a fitted model: TypeError"),
    (lambda folder: altered(folder, "quantile_levels", [0.5]), r"was fitted for the quantiles \[0.5\]"),
    (lambda folder: altered(folder, "versions", {"neuralforecast": "2.0.1"}), "was fitted with neuralforecast 2.0.1; "),
    (lambda folder: altered(folder, "versions", {"neuralforecast": "3.0"}), r"was fitted with torch \?; here is 2.15"),
    (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: cannot be read: No such file"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"weight"), "is not what model.json describes"),
]


@pytest.mark.parametrize(("damage", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_does_not_fit_is_refused_in_one_line(folder: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(folder)
    with pytest.raises(FitError, match=message) as refusal:
        Learned(folder)
    assert "\n" not in str(refusal.value)
    assert str(folder) in str(refusal.value) or "gru" in message


def test_twice_as_many_steps_as_it_was_fitted_for_are_refused(folder: Path) -> None:
    with pytest.raises(FitError, match="nhits: fitted for windows of 20 steps; 40 steps and 4 paths"):
        Learned(folder).forecast(rates(100), 40, 4, np.random.default_rng(0))


def test_steps_beyond_its_window_go_on_as_its_last_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = np.sort(np.random.default_rng(2).normal(size=(1, 20, len(QUANTILE_LEVELS))), axis=-1)
    monkeypatch.setattr(neural, "_one_thread", nullcontext)
    monkeypatch.setattr(neural, "_predicted", lambda network, inputs: said)  # noqa: ARG005
    model = Learned(folder)
    monkeypatch.setattr(model, "_made", lambda: None)
    model._scores = np.random.default_rng(3).normal(size=(6, 20))
    exact, longer = (model.forecast(rates(100), n_steps, 4, np.random.default_rng(0)) for n_steps in (20, 26))
    for name in ("mean_rps", "quantiles_rps", "paths_rps"):
        short, long = (np.moveaxis(getattr(one, name), -2, 0) for one in (exact, longer))
        np.testing.assert_array_equal(long[:20], short)
        np.testing.assert_array_equal(long[20:], np.broadcast_to(short[-1], long[20:].shape))


def test_without_the_extra_it_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural, "_versions", lambda: {"neuralforecast": "", "torch": "2.6.0"})
    for use in (lambda: Learned(folder), lambda: fit(folder, SMALL, [rates()], SEEN, n_updates=1)):
        with pytest.raises(FitError, match=r"needs neuralforecast; install the extra: pip install '.*\[neural\]'"):
            use()


def test_reading_the_module_imports_neither_torch_nor_neuralforecast() -> None:
    script = "import sys, forecaster.neural; print({'torch', 'neuralforecast', 'ray'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads of torch wait for each other in busy loops, which takes long where cores are shared."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


live = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.live,
    needs_neuralforecast,
    pytest.mark.filterwarnings("ignore"),  # of what neuralforecast and ray import
]


def marked(test: Callable[..., None]) -> Callable[..., None]:
    for mark in live:
        test = mark(test)
    return test


@marked
@pytest.mark.parametrize("method", neural.METHODS)
def test_a_fitted_network_forecasts_and_writes_nothing_elsewhere(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = Recipe(method, window_steps=20, history_steps=40, batch=8)
    curve = fit(tmp_path / "model", recipe, [rates()], SEEN, n_updates=30)
    assert [check.update for check in curve] == [25, 30]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "model.json",
        "model.safetensors",
        "resume.pt",
    ]
    model = Learned(tmp_path / "model")
    history = rates(100, n_tenants=3, seed=1)
    first, again = (model.forecast(history, 20, 8, np.random.default_rng(5)) for _ in range(2))
    assert (first.mean_rps.shape, first.paths_rps.shape) == ((20, 3), (8, 20, 3))
    np.testing.assert_array_equal(first.paths_rps, again.paths_rps)
    assert (np.diff(first.quantiles_rps, axis=0) >= 0).all()
    assert 10 < first.mean_rps.mean() < 60
    alone = model.forecast(history[:, :1], 5, 8, np.random.default_rng(5))
    np.testing.assert_allclose(alone.mean_rps, first.mean_rps[:5, :1], rtol=1e-4)


@marked
def test_a_fitting_that_was_broken_off_comes_to_the_same_weights(tmp_path: Path) -> None:
    fit(tmp_path / "whole", SMALL, [rates()], SEEN, n_updates=75)
    fit(tmp_path / "parts", SMALL, [rates()], SEEN, n_updates=25)
    fit(tmp_path / "parts", SMALL, [rates()], SEEN, n_updates=75, resume=True)
    whole, parts = (json.loads((tmp_path / name / "model.json").read_text()) for name in ("whole", "parts"))
    assert whole == parts


@marked
def test_a_fitting_that_was_broken_off_before_its_first_check_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert fit(tmp_path / "model", SMALL, [rates()], SEEN, n_updates=1, resume=True)[-1].update == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(FitError, match=r"holds no resume.pt to go on from"):
        fit(tmp_path / "other", SMALL, [rates()], SEEN, n_updates=1, resume=True)


@marked
def test_only_the_same_fitting_is_gone_on_with(tmp_path: Path) -> None:
    fit(tmp_path / "model", SMALL, [rates()], SEEN, n_updates=25)
    other = Recipe("nhits", window_steps=20, history_steps=60, batch=8)
    for recipe, seen, resume, message in (
        (SMALL, SEEN, False, "exists already"),
        (other, SEEN, True, "was begun with history_steps 40, not 60"),
        (SMALL, (), True, "was begun on other arrivals"),
    ):
        with pytest.raises(FitError, match=message):
            fit(tmp_path / "model", recipe, [rates()], seen, n_updates=50, resume=resume)
    (tmp_path / "model" / "resume.pt").write_bytes(b"PK")
    with pytest.raises(FitError, match=r"resume.pt: cannot be gone on with: "):
        fit(tmp_path / "model", SMALL, [rates()], SEEN, n_updates=50, resume=True)


@marked
def test_learning_lowers_the_loss_and_the_band_covers_what_comes(tmp_path: Path) -> None:
    from forecaster.scores import origins_between, pooled, rolling, score

    fit(tmp_path / "model", SMALL, [rates(1500)], SEEN, n_updates=200)
    model = Learned(tmp_path / "model")
    assert min(check.held_out for check in model.curve) < 0.9 * model.curve[0].held_out
    trials = rolling(
        model, rates(900, seed=3), origins_between(100, 900, 20, 20), n_steps=20, n_history=100, n_paths=50
    )
    assert 0.8 < pooled([score(trials)]).coverage[0.9].value < 0.98


@marked
def test_nothing_after_the_origin_is_seen_by_a_network(tmp_path: Path) -> None:
    from forecaster.scores import rolling

    fit(tmp_path / "model", SMALL, [rates()], SEEN, n_updates=25)
    model = Learned(tmp_path / "model")
    known = rates(200, seed=4)
    poisoned = known.copy()
    poisoned[120:] = np.nan
    real, blind = (
        rolling(model, one, np.array([120]), n_steps=20, n_history=80, n_paths=8) for one in (known, poisoned)
    )
    np.testing.assert_array_equal(real.quantiles_rps, blind.quantiles_rps)
