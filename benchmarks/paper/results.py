"""Matches simulated and kept, and the rows that stand for them in ``docs/results.json``."""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.matches import CACHE, ROOT
from migrator.compare import CEILING, Match, score_of
from migrator.config import Config, config_yaml
from migrator.errors import InfeasibleError
from migrator.log.account import Account, SecondAccounts
from migrator.parallel import Processes, n_cores
from planner.errors import EngineError
from planner.policies.registry import policy_of
from workloads.serving.tally import Totals

Json = dict[str, Any]

PACKAGES = ("executor", "forecaster", "workloads", "planner", "migrator")

VERSION = "2"
"""Of what is kept of a match."""

CLASSES = tuple(item.name for item in fields(Account))
"""Of the loss account."""

COUNTS = tuple(item.name for item in fields(Totals))

COLUMNS = ("policy", "workload", "segment", *COUNTS, *CLASSES, "changes", "windows_without_plan", "windows")
"""Of a row; ``windows`` has arrivals and correct answers in time of each window.

A policy that has no plan for its first window has a row whose numbers are all null.
"""


def result_of(match: Match) -> Json:
    """The match simulated, as numbers: requests, and by tenant and second where they went."""
    known = {"policy": match.policy, "workload": match.config.name, "segment": match.segment}
    try:
        score = score_of(match)
    except (InfeasibleError, EngineError) as error:
        return {**known, "error": str(error)}
    return {
        **known,
        **asdict(score.total),
        "has_partitions": score.has_partitions,
        "seconds": {tenant: _lists(account) for tenant, account in score.accounts.items()},
        "changes": score.n_changes,
        "windows_without_plan": score.n_unplanned,
        "windows": [[totals.arrivals, totals.correct] for totals in score.totals],
        "notes": [list(note) for note in score.notes],
    }


def _lists(account: SecondAccounts) -> dict[str, list[float]]:
    return {item.name: getattr(account, item.name).tolist() for item in fields(SecondAccounts)}


def rows_of(results: Sequence[Json]) -> list[list[Any]]:
    """A row a result, by :data:`COLUMNS`; ``forecast`` is told where the results have the clairvoyant plan's."""
    ceilings = {(one["workload"], one["segment"]): one for one in results if one["policy"] == CEILING}
    return [_row(one, ceilings.get((one["workload"], one["segment"]))) for one in results]


def _row(result: Json, ceiling: Json | None) -> list[Any]:
    if "error" in result:
        return [result.get(column) for column in COLUMNS]
    account = _account(result, ceiling)
    known = {**result, **{name: round(value, 2) for name, value in asdict(account).items()}}
    return [known[column] for column in COLUMNS]


def _account(result: Json, ceiling: Json | None) -> Account:
    total = Account()
    for tenant, seconds in result["seconds"].items():
        own = SecondAccounts(**{name: np.array(values) for name, values in seconds.items()})
        if ceiling is not None and "seconds" in ceiling and result["has_partitions"]:
            own = own.with_forecast(np.array(ceiling["seconds"][tenant]["in_time"]))
        total += own.total
    return total


def simulated(matches: Sequence[Match]) -> list[Path]:
    """Where each match's result is kept, in order; what is not known yet is simulated first, on all cores."""
    files = [CACHE / f"{key_of(match)}.json.gz" for match in matches]
    missing = {path: place for place, path in reversed(list(enumerate(files))) if not path.is_file()}
    todo = sorted(missing.values())
    if todo:
        CACHE.mkdir(parents=True, exist_ok=True)
        with Processes(min(n_cores(), len(todo))) as processes:
            for n_done, (index, result) in enumerate(processes.each(result_of, [matches[one] for one in todo]), 1):
                _keep(files[todo[index]], result)
                print(f"\r  {n_done} of {len(todo)} simulated", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    return files


def kept(path: Path) -> Json:
    """The result that is kept there."""
    found: Json = json.loads(gzip.decompress(path.read_bytes()))
    return found


def _keep(path: Path, result: Json) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_bytes(gzip.compress(json.dumps(result).encode(), mtime=0))
    beside.replace(path)


@cache
def versions() -> str:
    """Of Python, of us, and of the libraries that compute results."""
    known = ", ".join(f"{name} {version(name)}" for name in ("migrator", "numpy", "numba", "highspy"))
    return f"Python {platform.python_version()}, {known}"


def key_of(match: Match) -> str:
    """What the result of a match depends on, as a digest: its config, the files that it names, code and libraries."""
    config, contents = _without_folders(match.config)
    parts = (
        VERSION,
        versions(),
        source_digest(match.policy),
        match.policy,
        match.terms.value,
        str(match.segment),
        *contents,
    )
    return hashlib.sha256("\0".join((*parts, config_yaml(config))).encode()).hexdigest()


def _without_folders(config: Config) -> tuple[Config, list[str]]:
    """The config with its files named by their names alone, and digests of what is in them."""
    contents, tenants = [], []
    for tenant in config.tenants:
        trace = tenant.arrivals.trace
        if trace is not None and Path(trace).is_file():
            contents.append(_digest(Path(trace)))
            arrivals = tenant.arrivals.model_copy(update={"trace": Path(trace).name})
            tenants.append(tenant.model_copy(update={"arrivals": arrivals}))
        else:
            tenants.append(tenant)
    update: dict[str, object] = {"tenants": tenants}
    if config.profiles is not None:
        contents.append(_digest(Path(config.profiles)))
        update["profiles"] = Path(config.profiles).name
    return config.model_copy(update=update), contents


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def source_digest(policy: str) -> str:
    """A digest of the product's code and data, which decide about results; of other policies' files only if needed."""
    folder = ROOT / "planner" / "policies"
    needed = _imported(folder, _module_of(policy), *_used_elsewhere(folder))
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            is_other = folder in path.parents and _module_in(folder, path) not in needed
            if path.is_file() and "__pycache__" not in path.parts and not is_other:
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _module_of(policy: str) -> str:
    return type(policy_of(policy)).__module__.removeprefix("planner.policies.")


def _module_in(folder: Path, path: Path) -> str:
    return ".".join(path.relative_to(folder).with_suffix("").parts)


def _used_elsewhere(folder: Path) -> set[str]:
    """The policies' modules that the rest of the product imports, but for the registry, which knows all policies."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if folder not in path.parents)
    return {name for path in paths for name in _names(path)} - {"registry"}


def _imported(folder: Path, *modules: str) -> set[str]:
    """These modules of the folder and all that they import of it, at any remove."""
    found: set[str] = set()
    waiting = set(modules)
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= set(_names(folder / f"{name.replace('.', '/')}.py")) - found
    return found


def _names(path: Path) -> list[str]:
    return re.findall(r"planner\.policies\.((?:paper\.)?\w+)", path.read_text("utf-8"))
