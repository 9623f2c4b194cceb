"""A fitted model's folder as fitting leaves it, but without a network in it: for tests that need no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from forecaster import neural
from forecaster.forecast import QUANTILE_LEVELS
from forecaster.neural import Check, FittedOn, Recipe


def fitted_folder(made: Path, recipe: Recipe, seen: Sequence[FittedOn], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder, and have the extra look installed."""
    monkeypatch.setattr(neural, "_versions", lambda: {"neuralforecast": "3.3.0", "torch": "2.15.0"})
    facts = {
        "schema": 1,
        "recipe": asdict(recipe),
        "quantile_levels": list(QUANTILE_LEVELS),
        "versions": {"neuralforecast": "3.1.0", "torch": "2.6.0"},
        "seen": [asdict(one) for one in seen],
        "n_updates": 1,
        "best_update": 1,
        "learning_curve": [asdict(Check(1, 0.5, 0.6))],
        "weights_sha256": hashlib.sha256(b"weights").hexdigest(),
    }
    made.mkdir()
    (made / "model.json").write_text(json.dumps(facts))
    (made / "model.safetensors").write_bytes(b"weights")
    return made
