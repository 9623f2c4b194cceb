"""When the rest of a window is planned anew, though its plan can be followed: at a pace, and when something happens.

Nothing here weighs what a change costs. The planner does: a plan takes the place of the running one only where it is
worth more, warm-ups and all, by the newest forecast.
"""

from __future__ import annotations

import math

import numpy as np

from forecaster.forecast import FloatArray, Forecast
from migrator.config.sections import Config
from migrator.execution.happenings import Asked, Failed, Trained
from migrator.execution.windows import PlannedWindow
from migrator.inputs.traffic import Traffic, whole_seconds
from migrator.log.records import Cause

BAND = (0.05, 0.95)
"""Quantiles of the sample paths' totals between which arrivals are as expected."""

BAND_REST_S = 3.0
"""Arrivals outside the band ask for a plan no sooner than this after the last one was asked for.

A total over a few seconds leaves such a band one time in ten by chance, and a change of the layout takes about as long.
"""

_EPS = 1e-9


class Rolling:
    """Says at each step of a window whether its rest is to be planned anew, and why; it sees what has arrived."""

    def __init__(self, config: Config, traffic: Traffic, every_s: float | None) -> None:
        """``every_s`` is the pace; ``None`` where plans that can be followed are followed to their windows' ends."""
        self._config, self._traffic, self._every_s = config, traffic, every_s
        self._names = [tenant.name for tenant in config.tenants]
        self._asked_s = 0.0
        self._news: list[Asked] = []
        self._window = 0
        self._end_s: dict[str, float] = {}
        self._origin_s = 0.0
        self._band: tuple[FloatArray, FloatArray] | None = None

    def begin(self, forecast: Forecast, planned: PlannedWindow, now_s: float) -> None:
        """A window begins, at ``now_s``, with this forecast of it and this plan."""
        self._asked_s, self._news = now_s, []
        self.follow(planned)
        self.set_forecast(forecast)

    def change_tenants(self, config: Config, traffic: Traffic) -> None:
        """These are the tenants from now on; nothing was expected of their arrivals yet."""
        self._config, self._traffic, self._band = config, traffic, None
        self._names = [tenant.name for tenant in config.tenants]
        self._end_s = {name: end_s for name, end_s in self._end_s.items() if name in self._names}

    def follow(self, planned: PlannedWindow) -> None:
        """This plan is in force from now on: its retrainings are to end when it says."""
        config, self._window = self._config, planned.window
        plan_s = planned.window * config.window_s + planned.plan_from_step * config.step_s
        self._end_s = {
            item.owner.tenant: plan_s + item.end_step * config.step_s
            for item in planned.plan.lifetimes
            if not item.is_inference
        }

    def set_forecast(self, forecast: Forecast) -> None:
        """This is what is expected up to the window's end, from a full second on."""
        config = self._config
        self._origin_s = (self._window + 1) * config.window_s - len(forecast.mean_rps) * config.step_s
        totals = np.cumsum(forecast.paths_rps, axis=1) * config.step_s
        low, high = np.quantile(totals, BAND, axis=0)
        self._band = low, high

    def trained(self, happened: Trained) -> None:
        """A retraining has ended; if not in the step that was planned, or not in its window, that asks for a plan."""
        if happened.window != self._window:
            reason = f"{happened.tenant}'s retraining of the last window ended in this one"
            self._news.append(Asked(reason, Cause.TRAINED))
            return
        end_s = self._end_s.pop(happened.tenant, happened.at_s)
        late_s = happened.at_s - end_s
        if abs(late_s) >= self._config.step_s - _EPS:
            side = "later" if late_s > 0 else "earlier"
            reason = f"{happened.tenant}'s retraining ended {abs(late_s):.1f} s {side} than planned"
            self._news.append(Asked(reason, Cause.TRAINED))

    def failed(self, failed: Failed) -> None:
        """A worker has failed: that asks for a plan."""
        self._news.append(Asked(f"the worker in {failed.instance_id} failed: {failed.reason}", Cause.FAILED))

    def judged(self, tenant: str, share: float) -> None:
        """Clients called too many of a tenant's answers wrong: that asks for a plan."""
        self._news.append(Asked(f"clients call {share:.1%} of {tenant}'s answers right", Cause.FEEDBACK))

    def measured(self) -> None:
        """What the plan in force could only expect is known: that asks for a plan."""
        self._news.append(Asked("the models that the window begins with were measured", Cause.MEASURED))

    def next_s(self, now_s: float) -> float:
        """When to ask next, should nothing happen before: as the next step begins, if at all."""
        if self._every_s is None:
            return math.inf
        step_s = self._config.step_s
        return (math.floor(now_s / step_s + _EPS) + 1) * step_s

    def asks(self, now_s: float) -> Asked | None:
        """Why the rest of the window should be planned anew now; what has happened comes first, the pace last."""
        if self._every_s is None:
            return None
        if self._news:
            return Asked("; ".join(item.reason for item in self._news), self._news[0].cause)
        since_s = now_s - self._asked_s
        if since_s >= BAND_REST_S - _EPS and (left := self._left_the_band(now_s)) is not None:
            return Asked(left, Cause.BAND)
        if since_s >= self._every_s - _EPS:
            return Asked(f"{since_s:.4g} s after the last plan", Cause.PACE)
        return None

    def begun(self, now_s: float) -> None:
        """A plan is being made, from what is known now."""
        self._asked_s, self._news, self._band = now_s, [], None

    def _left_the_band(self, now_s: float) -> str | None:
        """Whose arrivals since the last plan are not as expected, in words."""
        step_s = self._config.step_s
        n_steps = whole_seconds(now_s - self._origin_s, step_s)
        if self._band is None or not 1 <= n_steps <= len(self._band[0]):
            return None
        arrived = self._traffic.rates_before(self._origin_s + n_steps * step_s, step_s, n_steps).sum(axis=0) * step_s
        low, high = (bound[n_steps - 1] for bound in self._band)
        slack = _EPS * np.maximum(1.0, arrived)  # with arrivals known, the band has no width
        for name, count, least, most in zip(self._names, arrived, low - slack, high + slack, strict=True):
            if not least <= count <= most:
                expected = f"{least:.0f} to {most:.0f} were expected"
                return f"{count:.0f} requests of {name} in {n_steps * step_s:g} s; {expected}"
        return None
