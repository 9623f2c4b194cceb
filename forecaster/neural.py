"""Learned forecasters: networks of neuralforecast, one for all tenants, fitted once on past arrivals.

The network reads the last L steps of one tenant and returns quantiles of the next H. It works on square roots of rates
(whose spread hardly depends on the level), less their mean over the L steps and over their standard deviation; both
transforms are monotone, so that quantiles stay quantiles. It is trained here, step by step, on random windows by the
pinball loss. neuralforecast's own ``fit`` is not used: it keeps the last weights, not the best, cannot go on where it
was broken off, and its trainer writes into the working folder.

Of the series' last fifth nothing is learned. It says which weights are best (the learning curve), and how far the
quantiles can be trusted: for each window there, what came is turned into *normal scores*, the z at which the forecast's
quantile function (linear in z between quantiles, and beyond the outermost) does just that. Whole paths of scores are
kept. A forecast is what its quantile function makes of all of them: this corrects quantiles that are too narrow at some
lead, and its paths hang together in time as real ones do. Tenants' paths are drawn apart from each other.

A fitted model is a folder: ``model.json`` (how it was made, of what, with which versions), ``model.safetensors``
(weights and scores) and, to go on with the fitting, ``resume.pt``, which holds tensors and numbers alone.

torch and neuralforecast come with the extra ``neural`` and are imported where they are used.

Source: Zhou et al., Informer, AAAI 2021; Challu et al., NHITS, AAAI 2023.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from executor.extras import install
from executor.files import read_input, write_whole
from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast
from forecaster.spread import checked_history, quantiles_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

METHODS = ("informer", "nhits")
"""The networks that there are."""

SCHEMA = 1
"""Version of a model's folder."""

FACTS_FILE, WEIGHTS_FILE, RESUME_FILE = "model.json", "model.safetensors", "resume.pt"

HELD_OUT = 0.2
"""Part at the end of each series from which nothing is learned."""

CHECK_EVERY = 25
"""Updates between two looks at the held-out part, at which progress is saved, too."""

_MOST_CHECKED = 400
"""Windows of the held-out part that are looked at, evenly spaced."""

_LEAST_SCALE = 0.25
"""Of the square roots' standard deviation; that of Poisson counts is about a half."""

_LEAST_GAP = 1e-3
"""Between neighbouring quantiles, in standard deviations, so that the quantile function can be inverted."""

_MOST_Z = 5.0

_SCORES = "scores"
"""Name of the normal scores among the tensors."""

_Z = np.array([NormalDist().inv_cdf(level) for level in QUANTILE_LEVELS])


class FitError(ValueError):
    """A model cannot be fitted or used; one line names the folder and what is wrong."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is fitted.

    Attributes:
        method: One of ``METHODS``.
        window_steps: Steps of a forecast, H.
        history_steps: Steps that it reads, L.
        batch: Windows in each update.
        learning_rate: Of Adam.
        seed: Of weights, batches and dropout.
    """

    method: str
    window_steps: int = 200
    history_steps: int = 400
    batch: int = 64
    learning_rate: float = 5e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise FitError(f"{self.method!r} is no network; there are {', '.join(METHODS)}")
        for name, least in (("window_steps", 1), ("history_steps", 16), ("batch", 2)):
            if getattr(self, name) < least:
                raise FitError(f"{name} is {getattr(self, name)}; at least {least} is needed")


@dataclass(frozen=True, slots=True)
class FittedOn:
    """What a model was fitted on: a part of a series.

    Attributes:
        name: Of the series.
        first_s: Its first second in the trace or run.
        n_seconds: How many from there on.
        sha256: Of the rates.
    """

    name: str
    first_s: int
    n_seconds: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Check:
    """The losses after so many updates: mean pinball, in standard deviations of square roots of rates.

    Attributes:
        update: How many.
        fitted: On the updates since the last check.
        held_out: On the held-out part.
    """

    update: int
    fitted: float
    held_out: float


# --- fitting


def fit(
    folder: Path,
    recipe: Recipe,
    series: Sequence[FloatArray],
    seen: Sequence[FittedOn],
    *,
    n_updates: int,
    resume: bool = False,
    on_update: Callable[[int, Check | None], None] = lambda _update, _check: None,
) -> tuple[Check, ...]:
    """Fit a model on all tenants of all series and save it in ``folder``; returns the learning curve.

    Progress is saved at every check; with ``resume`` a folder that holds some is gone on with, and the network comes to
    the same weights as without a break. The weights kept are those with the least loss on the held-out part.

    Shapes: each series ``(T, n)``, in requests a second.

    Raises:
        ModelError: The extra is missing, the folder is there (or, with ``resume``, is of something else), or the series
            are too short.
    """
    _require_extra(folder)
    begun = _progress(folder, recipe, seen) if resume else None
    if folder.exists() and not resume:
        raise FitError(f"{folder} exists already; another folder is needed, or --resume to go on in it")
    windows = _Windows(recipe, series)
    training = _Training(recipe, windows, begun)
    folder.mkdir(parents=True, exist_ok=True)
    while training.update < n_updates:
        check = training.advance(
            min(CHECK_EVERY - training.update % CHECK_EVERY, n_updates - training.update), on_update
        )
        training.save(folder, seen)
        on_update(training.update, check)
    return tuple(training.curve)


class _Windows:
    """Windows of L + H steps of all tenants of all series, as square roots of rates: to learn from, and held out.

    Every tenant has the same weight in both, however long its series.
    """

    def __init__(self, recipe: Recipe, series: Sequence[FloatArray]) -> None:
        """Take the tenants apart.

        Raises:
            ModelError: A series holds no window to learn from and one to check.
        """
        self._history, self._length = recipe.history_steps, recipe.history_steps + recipe.window_steps
        self._columns = [np.sqrt(column) for rates in series for column in checked_history(rates, recipe.method, 1).T]
        # What is held out begins with the steps that are forecast: those before are read in both parts.
        self._splits = [round((1 - HELD_OUT) * column.size) for column in self._columns]
        for column, split in zip(self._columns, self._splits, strict=True):
            if split < self._length or column.size - split < recipe.window_steps:
                needed = max(self._length / (1 - HELD_OUT), recipe.window_steps / HELD_OUT)
                raise FitError(
                    f"{recipe.method}: a series has {column.size:,} steps; about {needed:,.0f} are needed for windows "
                    f"of {recipe.history_steps} + {recipe.window_steps} steps of which a part is held out"
                )
        each = -(-_MOST_CHECKED // len(self._columns))
        self.held_out = self._cut(
            [
                (place, first)
                for place, (column, split) in enumerate(zip(self._columns, self._splits, strict=True))
                for first in _spaced(split - self._history, column.size - self._length, each)
            ]
        )

    def batch(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Windows to learn from, ``(n, L + H)``."""
        places = rng.integers(0, len(self._columns), n).tolist()
        return self._cut([(place, int(rng.integers(0, self._splits[place] - self._length + 1))) for place in places])

    def _cut(self, places: Sequence[tuple[int, int]]) -> FloatArray:
        return np.stack([self._columns[place][first : first + self._length] for place, first in places])


def _spaced(first: int, last: int, most: int) -> list[int]:
    """All numbers from ``first`` to ``last``, or ``most`` of them, evenly spaced."""
    spaced: list[int] = np.linspace(first, last, min(most, last - first + 1)).round().astype(int).tolist()
    return spaced


class _Training:
    """A network on its way, with all that going on takes: optimizer, best weights and their scores, learning curve."""

    def __init__(self, recipe: Recipe, windows: _Windows, begun: Mapping[str, Any] | None) -> None:
        import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

        self._recipe, self._windows = recipe, windows
        self._network = _network(recipe)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=recipe.learning_rate)
        self.update = 0
        self.curve: list[Check] = []
        self._best: dict[str, Tensor] = {}
        if begun is not None:
            self._network.load_state_dict(begun["network"])
            self._optimizer.load_state_dict(begun["optimizer"])
            self._best = begun["best"]
            self.update = begun["update"]
            self.curve = [Check(*one) for one in begun["curve"]]

    def advance(self, n_updates: int, on_update: Callable[[int, Check | None], None]) -> Check:
        """So many updates, then a look at the held-out part."""
        import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

        losses = []
        self._network.train()
        for _ in range(n_updates):
            rng = np.random.default_rng([self._recipe.seed, self.update])
            inputs, targets, _, _ = _scaled(self._windows.batch(self._recipe.batch, rng), self._recipe.history_steps)
            with _seeded(int(rng.integers(2**31))):
                loss = _pinball(_quantiles_of(self._network, inputs), torch.from_numpy(targets).float())
                self._optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
                self._optimizer.step()
            losses.append(float(loss.detach()))
            self.update += 1
            on_update(self.update, None)
        inputs, targets, _, _ = _scaled(self._windows.held_out, self._recipe.history_steps)
        quantiles = _predicted(self._network, inputs)
        held_out = float(_pinball(torch.from_numpy(quantiles), torch.from_numpy(targets)))
        if not np.isfinite(held_out):
            raise FitError(f"{self._recipe.method}: the loss is no number any more after {self.update} updates")
        if all(held_out < earlier.held_out for earlier in self.curve):
            weights = {name: tensor.clone() for name, tensor in self._network.state_dict().items()}
            scores = _scores_of(targets, _ascending(quantiles))
            self._best = {**weights, _SCORES: torch.from_numpy(scores).float()}
        self.curve.append(Check(self.update, float(np.mean(losses)), held_out))
        return self.curve[-1]

    def save(self, folder: Path, seen: Sequence[FittedOn]) -> None:
        """Write the model as it is now, and what going on takes; each file whole or not at all."""
        import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)
        from safetensors.torch import save  # noqa: PLC0415 (of the extra `neural`)

        weights = save({name: tensor.contiguous() for name, tensor in self._best.items()})
        write_whole(folder / WEIGHTS_FILE, weights)
        begun = {
            "network": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "best": self._best,
            "update": self.update,
            "curve": [[one.update, one.fitted, one.held_out] for one in self.curve],
        }
        resumable = io.BytesIO()
        torch.save(begun, resumable)
        write_whole(folder / RESUME_FILE, resumable.getvalue())
        best = min(self.curve, key=lambda one: one.held_out)
        facts = {
            "schema": SCHEMA,
            "recipe": asdict(self._recipe),
            "quantile_levels": list(QUANTILE_LEVELS),
            "versions": _versions(),
            "seen": [asdict(one) for one in seen],
            "n_updates": self.update,
            "best_update": best.update,
            "learning_curve": [asdict(one) for one in self.curve],
            "weights_sha256": hashlib.sha256(weights).hexdigest(),
        }
        text = json.dumps(facts, indent=1, allow_nan=False) + "\n"
        write_whole(folder / FACTS_FILE, text.encode())


def _progress(folder: Path, recipe: Recipe, seen: Sequence[FittedOn]) -> Mapping[str, Any] | None:
    """What a fitting that was broken off left in the folder; ``None`` where it has not begun."""
    import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

    if not folder.exists() or not any(folder.iterdir()):
        return None
    if not (folder / RESUME_FILE).exists():
        raise FitError(f"{folder}: holds no {RESUME_FILE} to go on from, and something else")
    facts = _facts(folder)
    if facts["recipe"] != asdict(recipe):
        other = next(name for name, value in asdict(recipe).items() if facts["recipe"].get(name) != value)
        raise FitError(
            f"{folder}: was begun with {other} {facts['recipe'].get(other)}, not {getattr(recipe, other)}; "
            "give the same"
        )
    if facts["seen"] != [asdict(one) for one in seen]:
        raise FitError(f"{folder}: was begun on other arrivals; give the same sources and the same part of them")
    try:
        return dict(torch.load(io.BytesIO(read_input(folder / RESUME_FILE)), weights_only=True))
    except Exception as error:  # noqa: BLE001 - torch raises many kinds of what a damaged file holds
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise FitError(f"{folder / RESUME_FILE}: cannot be gone on with: {reason}") from None


# --- forecasting


class Learned:
    """A fitted model as a forecaster; it forecasts windows up to the length that it was fitted for.

    Attributes:
        folder: Where it lies.
        recipe: How it was fitted.
        seen: What it was fitted on.
        curve: Its learning curve.
    """

    def __init__(self, folder: Path) -> None:
        """Read and check the folder; the network is made when it is first used.

        Raises:
            ModelError: It is no model, is damaged, or was made by another major version; or the extra is missing.
        """
        facts = _facts(folder)
        self.folder, self.recipe = folder, Recipe(**facts["recipe"])
        self.seen = tuple(FittedOn(**one) for one in facts["seen"])
        self.curve = tuple(Check(**one) for one in facts["learning_curve"])
        self._weights_sha256 = facts["weights_sha256"]
        self._raw = self._weights()
        self._network: Module | None = None
        self._scores: FloatArray = np.zeros((0, 0))
        _require_extra(folder)

    @property
    def name(self) -> str:
        """``informer`` or ``nhits``."""
        return self.recipe.method

    @property
    def min_history_steps(self) -> int:
        """The steps that the network reads."""
        return self.recipe.history_steps

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        """The next ``n_steps`` steps; beyond the window that the model was fitted for they go on as its last one.

        A window that is planned before it begins ends some steps beyond; as many again as the model has are too many.
        Shapes: history ``(T, n)`` → mean ``(n_steps, n)``, paths ``(n_paths, n_steps, n)``.

        Raises:
            ValueError: T is below ``min_history_steps``, a rate is negative or not finite, a count is below 1, or the
                steps are twice as many as the model's, or more.
        """
        history = checked_history(history_rps, self.name, self.min_history_steps)
        if not 1 <= n_steps < 2 * self.recipe.window_steps or n_paths < 1:
            raise FitError(
                f"{self.name}: fitted for windows of {self.recipe.window_steps} steps; {n_steps} steps and {n_paths} "
                "paths were asked for"
            )
        steps = np.minimum(np.arange(n_steps), self.recipe.window_steps - 1)
        network = self._made()
        recent = np.sqrt(history[-self.recipe.history_steps :].T)
        inputs, _, location, scale = _scaled(recent, self.recipe.history_steps)
        with _one_thread():
            quantiles = _ascending(_predicted(network, inputs)[:, steps])
        scores = self._scores[:, steps]
        roots = location[..., None] + scale[..., None] * _values_at(scores, quantiles)  # (n, K, H)
        outcomes = np.moveaxis(np.maximum(roots, 0.0) ** 2, 0, -1)
        stretches = (np.arange(n_paths) + rng.random((history.shape[1], n_paths))) / n_paths
        drawn = rng.permuted(np.minimum((stretches * len(scores)).astype(np.int64), len(scores) - 1), axis=1)
        return Forecast(
            method=self.name,
            mean_rps=outcomes.mean(axis=0),
            quantiles_rps=quantiles_of(outcomes),
            paths_rps=np.stack([outcomes[own, :, tenant] for tenant, own in enumerate(drawn)], axis=-1),
        )

    def _weights(self) -> bytes:
        path = self.folder / WEIGHTS_FILE
        try:
            raw = read_input(path)
        except OSError as error:
            raise FitError(f"{path}: cannot be read: {error.strerror or error}") from None
        if hashlib.sha256(raw).hexdigest() != self._weights_sha256:
            raise FitError(f"{path}: is not what {FACTS_FILE} describes; it was damaged or replaced")
        return raw

    def _made(self) -> Module:
        if self._network is None:
            from safetensors.torch import load  # noqa: PLC0415 (of the extra `neural`)

            tensors = load(self._raw)
            self._scores = tensors.pop(_SCORES).double().numpy()
            network = _network(self.recipe)
            try:
                network.load_state_dict(tensors)
            except RuntimeError as error:
                reason = " ".join(str(error).split())[:200]
                raise FitError(f"{self.folder / WEIGHTS_FILE}: does not fit the network: {reason}") from None
            self._network, self._raw = network, b""
        return self._network


def _facts(folder: Path) -> Mapping[str, Any]:
    """What ``model.json`` says, checked.

    Raises:
        ModelError: It is missing, damaged, or of another version.
    """
    path = folder / FACTS_FILE
    try:
        facts: dict[str, Any] = json.loads(read_input(path))
        schema, made_with = facts["schema"], dict(facts["versions"])
        Recipe(**facts["recipe"])
        [FittedOn(**one) for one in facts["seen"]]
        [Check(**one) for one in facts["learning_curve"]]
        levels, _ = facts["quantile_levels"], facts["weights_sha256"]
    except FileNotFoundError:
        raise FitError(f"{folder} is no fitted model: it holds no {FACTS_FILE}") from None
    except FitError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FitError(f"{path}: cannot be read as a fitted model: {type(error).__name__}: {error}") from None
    if schema != SCHEMA:
        raise FitError(f"{path}: has schema {schema}; {SCHEMA} is needed: fit the model anew")
    if levels != list(QUANTILE_LEVELS):
        raise FitError(f"{path}: was fitted for the quantiles {levels}; {list(QUANTILE_LEVELS)} are needed: fit anew")
    for name, own in _versions().items():
        made = str(made_with.get(name, ""))
        if own and made.partition(".")[0] != own.partition(".")[0]:
            raise FitError(f"{path}: was fitted with {name} {made or '?'}; here is {own}: fit the model anew")
    return facts


def _versions() -> dict[str, str]:
    """Versions of what a model depends on; empty where it is not installed."""

    def of(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return ""

    return {name: of(name) for name in ("neuralforecast", "torch")}


def _require_extra(where: Path) -> None:
    missing = [name for name, own in _versions().items() if not own]
    if missing:
        raise FitError(f"{where}: needs {missing[0]}; install the extra: {install('neural')}")


# --- the network


def _network(recipe: Recipe) -> Module:
    """The network with fresh weights, in inference mode."""
    with _seeded(recipe.seed), warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")  # of what neuralforecast imports
        from neuralforecast.losses.pytorch import MQLoss  # noqa: PLC0415 (heavy, and of the extra `neural`)
        from neuralforecast.models import NHITS, Informer  # noqa: PLC0415 (heavy, and of the extra `neural`)

        shared = {
            "h": recipe.window_steps,
            "input_size": recipe.history_steps,
            "loss": MQLoss(quantiles=list(QUANTILE_LEVELS)),
            "random_seed": recipe.seed,
            "logger": False,
            "enable_checkpointing": False,
        }
        match recipe.method:
            case "informer":
                network = Informer(**shared, hidden_size=64, conv_hidden_size=64, n_head=4, dropout=0.05)
            case _:
                network = NHITS(
                    **shared, mlp_units=3 * [[256, 256]], n_pool_kernel_size=[8, 4, 1], n_freq_downsample=[40, 10, 2]
                )
    return network.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave other libraries' chance and their chatter as they were: the networks seed everything that there is."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global state is what is to be kept
    environment = {name: os.environ.get(name) for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")}
    logger = logging.getLogger("lightning_fabric.utilities.seed")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Whatever torch draws inside depends on the seed alone, and nothing outside is changed by it."""
    import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Leave the other cores to workers: torch's threads wait for each other in busy loops."""
    import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _quantiles_of(network: Module, inputs: FloatArray) -> Tensor:
    """The network's quantiles of inputs ``(B, L)``: ``(B, H, Q)``."""
    import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

    # Informer's sampled attention takes a batch of one for a dimension to drop.
    several = inputs if len(inputs) > 1 else np.repeat(inputs, 2, axis=0)
    insample = torch.from_numpy(several).float().unsqueeze(-1)
    window = {"insample_y": insample, "insample_mask": torch.ones_like(insample)}
    found = network({**window, "futr_exog": None, "hist_exog": None, "stat_exog": None})
    return found[: len(inputs)]


def _predicted(network: Module, inputs: FloatArray) -> FloatArray:
    """The same without gradients, in pieces, and without dropout; its sampled attention draws the same keys always."""
    import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

    network.eval()
    parts = []
    with torch.no_grad():
        for first in range(0, len(inputs), 64):
            with _seeded(0):
                parts.append(_quantiles_of(network, inputs[first : first + 64]).double().numpy())
    return np.concatenate(parts)


def _pinball(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Mean pinball loss; quantiles ``(B, H, Q)``, targets ``(B, H)``."""
    import torch  # noqa: PLC0415 (heavy, and of the extra `neural`)

    levels = torch.tensor(QUANTILE_LEVELS, dtype=quantiles.dtype)
    below = targets.unsqueeze(-1) - quantiles
    return torch.maximum(levels * below, (levels - 1) * below).mean()


# --- scales and scores


def _scaled(roots: FloatArray, n_history: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Windows of square roots ``(B, L + H)`` in standard deviations from the mean of their first L steps.

    Shapes: ``(B, L)`` inputs, ``(B, H)`` targets, ``(B, 1)`` mean and standard deviation.
    """
    past = roots[:, :n_history]
    location = past.mean(axis=1, keepdims=True)
    scale = np.maximum(past.std(axis=1, keepdims=True), _LEAST_SCALE)
    scaled = (roots - location) / scale
    return scaled[:, :n_history], scaled[:, n_history:], location, scale


def _ascending(quantiles: FloatArray) -> FloatArray:
    """Quantiles along the last axis in order, at least ``_LEAST_GAP`` apart."""
    ordered: FloatArray = np.sort(quantiles, axis=-1)
    steps = np.arange(ordered.shape[-1]) * _LEAST_GAP
    return np.asarray(np.maximum.accumulate(ordered - steps, axis=-1) + steps, dtype=np.float64)


def _scores_of(values: FloatArray, quantiles: FloatArray) -> FloatArray:
    """The z at which the quantile functions give these values: ``(B, H)`` of ``(B, H)`` and ``(B, H, Q)``."""
    place = np.clip((quantiles <= values[..., None]).sum(axis=-1) - 1, 0, len(_Z) - 2)
    low = np.take_along_axis(quantiles, place[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(quantiles, place[..., None] + 1, axis=-1)[..., 0]
    z = _Z[place] + (values - low) / (high - low) * (_Z[place + 1] - _Z[place])
    return np.asarray(np.clip(z, -_MOST_Z, _MOST_Z), dtype=np.float64)


def _values_at(scores: FloatArray, quantiles: FloatArray) -> FloatArray:
    """What quantile functions ``(B, H, Q)`` give at scores ``(K, H)``: ``(B, K, H)``."""
    place = np.clip(np.searchsorted(_Z, scores, side="right") - 1, 0, len(_Z) - 2)
    share = (scores - _Z[place]) / (_Z[place + 1] - _Z[place])
    steps = np.arange(scores.shape[1])
    low, high = quantiles[:, steps, place], quantiles[:, steps, place + 1]
    return np.asarray(low + share * (high - low), dtype=np.float64)
