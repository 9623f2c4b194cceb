"""Runs whose windows' rests must be planned anew when a test asks, as if their plans could not be followed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from migrator.execution.happenings import Asked
from migrator.execution.instances import Instances


def ask(monkeypatch: pytest.MonkeyPatch, reason: Callable[[float], str | None]) -> None:
    """From now on ``reason`` says at each moment of a run, by its second, why to plan anew; ``None`` for no reason."""
    own = Instances._why_replan

    def why_replan(sharing: Instances) -> Asked | None:
        assert own.fget is not None
        asked: Asked | None = own.fget(sharing)
        if asked is None and (text := reason(sharing._accounts.now_s)) is not None:
            return Asked(text)
        return asked

    monkeypatch.setattr(Instances, "_why_replan", property(why_replan))


def once_after(moment_s: float) -> Callable[[float], str | None]:
    """Asks once, at the first moment from then on."""
    told: list[float] = []

    def reason(now_s: float) -> str | None:
        if told or now_s < moment_s:
            return None
        told.append(now_s)
        return "a test asks"

    return reason
