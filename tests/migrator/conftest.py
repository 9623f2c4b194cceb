"""A small run that takes about a second, and ways to write configs and call the command line."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.register_assert_rewrite("tests.migrator.views.pages")

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "gpu": {"model": "a100-80gb"},
    "window_s": 60,
    "windows": 2,
    "forecast": {"history_s": 60, "half_life_s": 10, "n_paths": 4},
    "planner": {"max_schedules": 8, "planning_s": 0, "replan_every_s": "never"},
    "retraining": {"required": True, "drift": "as_given"},
    "sharing": {"pools": "off"},
    "tenants": [
        {
            "name": "vision",
            "model": "resnet50",
            "slo_ms": 150,
            "arrivals": {"rate_rps": 60},
            "accuracy": {"before": 0.6, "after": 0.9},
            "retraining": {"samples": 1000},
            "worker_start_s": 1.0,
        },
        {
            "name": "language",
            "model": "bert-large",
            "slo_ms": 330,
            "arrivals": {"trace": "azure-conv", "offset_s": 100, "scale": {"factor": 4.0}},
            "accuracy": [{"before": 0.5, "after": 0.8}, {"before": 0.4, "after": 0.7}],
            "worker_start_s": 2.0,
        },
    ],
}


PAPER_PROBLEM: dict[str, Any] = {
    "schema": 1,
    "gpu": "a100-40gb",
    "step_s": 1.0,
    "n_steps": 6,
    "reconfiguration": "paper",
    "tenants": [
        {
            "name": "resnet50",
            "arrivals_rps": [221, 246, 218, 200, 230, 240],
            "capability_rps": {"1g.5gb": 45, "2g.10gb": 88},
            "retraining_s": {"1g.5gb": 2.5, "2g.10gb": 1.4},
            "accuracy": {"before": 0.62, "after": 0.86},
            "overhead_s": 0.5,
            "min_profile": "1g.5gb",
        }
    ],
}
"""One tenant and six steps, as a problem file has them."""


def changed(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``data`` with dotted keys set; a number in a key is a place in a list, ``None`` removes."""
    result = copy.deepcopy(dict(data))
    for key, value in changes.items():
        *path, last = [int(part) if part.isdecimal() else part for part in key.split(".")]
        target: Any = result
        for part in path:
            target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
        if value is None:
            del target[last]
        else:
            target[last] = copy.deepcopy(value)
    return result


WriteConfig = Callable[..., Path]


@pytest.fixture
def write_config(tmp_path: Path) -> WriteConfig:
    """Writes the small config with dotted keys changed, and names the file."""

    def write(changes: Mapping[str, Any] | None = None) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(changed(SMALL, changes or {}), sort_keys=False))
        return path

    return write


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Any]:
    """Calls the command line in an empty folder; gives (exit code, standard output, standard error)."""
    from migrator import cli

    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["migrator", *map(str, arguments)])
        with pytest.raises(SystemExit) as ending:
            cli.main()
        captured = capsys.readouterr()
        return int(ending.value.code or 0), captured.out, captured.err

    return run


class Inline(AbstractContextManager["Inline", None]):
    """Stands for ``Processes``: all is done in this process, which has everything loaded."""

    def __init__(self, _: int, prepare: Callable[[], None] | None = None) -> None:
        if prepare is not None:
            prepare()

    def __exit__(self, *_: object) -> None:
        pass

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return ((place, function(item)) for place, item in enumerate(items))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """``compare`` and ``whatif`` start no processes, each of which takes over a second to load what it needs."""
    for name in ("compare", "whatif"):
        monkeypatch.setattr(f"migrator.commands.{name}.Processes", Inline)
