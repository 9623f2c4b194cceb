"""What is seen when a window begins, and what is forecast of it from that."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np

from forecaster.forecast import FloatArray, Forecast
from forecaster.registry import HINDSIGHT, known, make_forecaster
from forecaster.seconds import BySeconds, steps_per_second
from migrator.config.sections import Config
from migrator.errors import ConfigError
from migrator.execution.windows import Opening
from migrator.inputs.estimates import Estimate
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Hindsight, Traffic, whole_seconds
from migrator.log.records import ForecastFailed
from planner.plan import MigPlan
from planner.problem import MOST_NUMBER


def observe(
    setting: Setting,
    traffic: Traffic,
    window: int,
    accuracies: Sequence[float],
    plans: Sequence[MigPlan] = (),
    estimates: Sequence[Estimate] | None = None,
    ahead_steps: int = 0,
) -> Opening:
    """The opening of a window, from the traffic alone that comes before it, or ``ahead_steps`` before that."""
    config = setting.config
    seen_s = window * config.window_s - ahead_steps * config.step_s
    return Opening(
        window,
        rates_before_step(setting, traffic, window, -ahead_steps),
        tuple(accuracies),
        tuple(plans),
        estimates,
        ahead_steps=ahead_steps,
        is_measured=not ahead_steps,
        filled=traffic.filled_before(seen_s, math.ceil(config.n_history_steps * config.step_s)),
    )


def seen_step(config: Config, window: int, now_s: float) -> int:
    """The last step of the running window that begins with a full second by now: what is known ends with it."""
    return whole_seconds(now_s - window * config.window_s, config.step_s)


def rates_before_step(setting: Setting, traffic: Traffic, window: int, step: int) -> FloatArray:
    """The arrival rates that are known as this step of a window begins; below 0 are the steps before the window."""
    config = setting.config
    seen_s = window * config.window_s + step * config.step_s
    return traffic.rates_before(seen_s, config.step_s, config.n_history_steps)


FORECAST_LIMIT_S = 2.0
"""Seconds for which a forecast is waited for where time passes by itself; eight tenants' should take a quarter."""


class Foresight:
    """What says which arrivals are to come: the config's forecaster, or hindsight for policies that may know them.

    A forecaster that fails in whatever way does not end the run. Inside a window the rest of its last good forecast
    takes its place, else what ``window`` says, which takes any past.

    Attributes:
        name: As logs and reports call it.
        failures: Of the forecaster, oldest first; the code that tells them takes them away.
    """

    def __init__(
        self,
        setting: Setting,
        traffic: Traffic,
        *,
        needs_hindsight: bool = False,
        ahead_s: float | None = None,
        limit_s: float | None = None,
    ) -> None:
        """Hindsight is taken from the traffic only where the config or the policy needs it.

        With ``ahead_s`` it is of so many seconds, and the forecaster says what comes after them. A forecast that takes
        longer than ``limit_s`` wall seconds has failed.

        Raises:
            ConfigError: It is needed and the traffic, being live, has none.
        """
        self._setting, self._limit_s = setting, limit_s
        self._n_known = None if ahead_s is None else math.ceil(ahead_s / setting.config.step_s - 1e-9)
        self._hindsight: Hindsight | None = None
        if needs_hindsight or setting.forecaster is None:
            self._hindsight = traffic.hindsight
            if self._hindsight is None:
                raise ConfigError(
                    "live traffic has no hindsight: it allows no forecast.method 'known', and no policy "
                    "that knows arrivals before they come"
                )
        if setting.forecaster is None or (needs_hindsight and ahead_s is None):
            self.name = HINDSIGHT
        else:
            self.name = setting.forecaster.name
            self.name += "" if ahead_s is None else f", and {ahead_s:g} s {HINDSIGHT}"
        self.failures: deque[ForecastFailed] = deque()
        self._last: tuple[int, int, Forecast] | None = None

    def change_tenants(self, setting: Setting, traffic: Traffic) -> None:
        """These are the tenants from now on, and their arrivals."""
        self._setting, self._last = setting, None
        self._hindsight = None if self._hindsight is None else traffic.hindsight

    def forecast(self, opening: Opening, from_step: int = 0) -> Forecast:
        """What planning knows of the window's arrivals from a step on, which ``opening.past_rps`` ends with.

        Of a window that is seen before it begins, that is the whole of it.
        """
        if opening.ahead_steps:
            return forecast_from(self._forecast_from(opening, -opening.ahead_steps), opening.ahead_steps)
        return self._forecast_from(opening, from_step)

    def _forecast_from(self, opening: Opening, from_step: int) -> Forecast:
        """As :meth:`forecast`; ``from_step`` is below 0 where it begins before the window."""
        config, n_steps = self._setting.config, self._setting.config.n_steps - from_step
        if self._hindsight is None:
            return self._forecast(opening, from_step)
        n_known = n_steps if self._n_known is None or self._setting.forecaster is None else min(self._n_known, n_steps)
        start_s = config.window_s * opening.window + config.step_s * from_step
        rates_rps = self._hindsight.rates_rps(start_s, config.step_s, n_known)
        if n_known == n_steps:
            return known(rates_rps)
        past_rps = np.concatenate([opening.past_rps, rates_rps])[n_known:]
        return _followed_by(rates_rps, self._forecast(replace(opening, past_rps=past_rps), from_step + n_known))

    def _forecast(self, opening: Opening, from_step: int) -> Forecast:
        """What the forecaster says of the window's arrivals from a step on; where it fails, what takes its place."""
        config, n_steps = self._setting.config, self._setting.config.n_steps - from_step
        forecaster = self._setting.forecaster
        assert forecaster is not None
        n_paths = config.forecast.n_paths
        rng = self._rng(opening.window, from_step)
        call = partial(forecaster.forecast, opening.past_rps, n_steps, n_paths, rng)
        try:
            forecast = call() if self._limit_s is None else _within(self._limit_s, call)
            _require_usable(forecast, n_steps, len(self._setting.tenants))
        except Exception as error:  # noqa: BLE001 - a model of whatever library may fail in whatever way
            what, forecast = self._instead(opening, from_step)
            reason = f"{type(error).__name__}: {error}"
            self.failures.append(
                ForecastFailed(
                    window=opening.window,
                    from_step=from_step,
                    forecaster=forecaster.name,
                    reason=reason,
                    instead=what,
                )
            )
            return forecast
        self._last = opening.window, from_step, forecast
        return forecast

    def _instead(self, opening: Opening, from_step: int) -> tuple[str, Forecast]:
        """The rest of the window's last good forecast; what ``window`` says where there is none; with what it is."""
        if self._last is not None:
            window, begun, last = self._last
            if window == opening.window and begun <= from_step:
                return "the rest of its last forecast", forecast_from(last, from_step - begun)
        config = self._setting.config
        n_steps, n_paths = config.n_steps - from_step, config.forecast.n_paths
        rng = self._rng(opening.window, from_step)
        instead = BySeconds(make_forecaster("window"), steps_per_second(config.step_s))
        forecast = instead.forecast(opening.past_rps, n_steps, n_paths, rng)
        return forecast.method, forecast

    def _rng(self, window: int, from_step: int) -> np.random.Generator:
        """Seeded by window and step, so that sample paths do not depend on what was planned before."""
        stream = [self._setting.config.seed, _FORECAST_STREAM, window]
        return np.random.default_rng([*stream, from_step % 2**32] if from_step else stream)  # seeds are not negative


def _followed_by(rates_rps: FloatArray, beyond: Forecast) -> Forecast:
    """The forecast that knows these rates, ``(k, n)``, and goes on with another: its paths all begin with them."""

    def joined(values: FloatArray) -> FloatArray:
        return np.concatenate([rates_rps[None].repeat(len(values), axis=0), values], axis=1)

    return Forecast(
        method=f"{HINDSIGHT}, then {beyond.method}",
        mean_rps=np.concatenate([rates_rps, beyond.mean_rps]),
        quantiles_rps=joined(beyond.quantiles_rps),
        paths_rps=joined(beyond.paths_rps),
    )


def _require_usable(forecast: Forecast, n_steps: int, n_tenants: int) -> None:
    """Raise unless the planner can go by the forecast.

    Raises:
        ValueError: It is of other steps or tenants, or has rates that no problem may have.
    """
    if forecast.mean_rps.shape != (n_steps, n_tenants) or len(forecast.paths_rps) < 1:
        raise ValueError(f"a forecast of shape {forecast.mean_rps.shape}; {(n_steps, n_tenants)} is needed")
    for name in ("mean_rps", "quantiles_rps", "paths_rps"):
        values = getattr(forecast, name)
        if not ((values >= 0) & (values <= MOST_NUMBER)).all():
            raise ValueError(f"{name} has values that are negative, not finite or above {MOST_NUMBER:g}")


def _within(limit_s: float, call: Callable[[], Forecast]) -> Forecast:
    """What the call gives, if it does in time; a call that does not come to an end holds nothing up.

    Raises:
        TimeoutError: It is not over within ``limit_s`` wall seconds.
    """
    answer: Future[Forecast] = Future()

    def made() -> None:
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
            answer.set_exception(error)

    threading.Thread(target=made, name="forecaster", daemon=True).start()
    try:
        return answer.result(limit_s)
    except TimeoutError:
        raise TimeoutError(f"not there within {limit_s:g} s") from None


_FORECAST_STREAM = 2
"""Second word of the seed of forecasts' sample paths; :mod:`migrator.execution.simulated` has the others."""


def forecast_from(forecast: Forecast, step: int) -> Forecast:
    """What is left of a forecast from one of its steps on."""
    if step == 0:
        return forecast
    return Forecast(
        method=forecast.method,
        mean_rps=forecast.mean_rps[step:].copy(),
        quantiles_rps=forecast.quantiles_rps[:, step:].copy(),
        paths_rps=forecast.paths_rps[:, step:].copy(),
    )
