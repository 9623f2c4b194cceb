"""The matches of an experiment, their outcomes, and their rows in ``docs/results.json``.

What was simulated is kept under ``runs/reproduce``. Its name is a digest of all that decides about it: config, the
product's code and data, and versions of libraries.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grimp
import numpy as np
import pandas as pd

from benchmarks.paper.experiments import AT_ONCE, SEVEN_HOURS_S, Bursts, Experiment
from executor.files import write_whole
from forecaster.neural import FACTS_FILE
from migrator import __version__
from migrator.comparison.matches import CEILING, Match, over_each_segment, score_of
from migrator.config.reading import config_yaml, read_config
from migrator.config.sections import AccuracyConfig, Config, ScaleConfig, TenantConfig
from migrator.errors import InfeasibleError, OutputError
from migrator.log.account import Account, SecondAccounts
from migrator.terminal.outputs import write_output
from migrator.terminal.parallel import Processes, n_cores
from planner.errors import EngineError
from planner.policies.registry import policy_of
from workloads.arrays import FloatArray
from workloads.profiles.table import COLUMNS as PROFILE_COLUMNS
from workloads.profiles.table import ServiceProfiles, shipped_profiles
from workloads.serving.tally import Totals
from workloads.traffic.gaps import Gaps
from workloads.traffic.scaling import smoothed
from workloads.traffic.trace_file import Reading, TraceFormat, read_trace, shipped_trace

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "runs" / "reproduce"

PACKAGES = ("executor", "forecaster", "workloads", "planner", "migrator")

CLASSES = tuple(item.name for item in fields(Account))
"""Of the loss account."""

COUNTS = tuple(item.name for item in fields(Totals) if item.name not in ("unlabelled", "refused", "failed"))
"""Of requests; what is simulated has labels, refuses none and fails none."""

COLUMNS = ("policy", "workload", "segment", *COUNTS, *CLASSES, "changes", "windows_without_plan", "windows")
"""Of a row; ``windows`` has arrivals and correct answers in time of each window.

A policy that has no plan for its first window has a row whose numbers are all null.
"""

VERSION = "2"
"""Of what is kept of a match."""

HALF_WEEK_S, DAY_S = 302_400, 86_400

BEFORE_GAP_S = 2_400
"""Seconds before a day's end in which no run begins: the counts have none from 23:31 on."""

PIECE_HISTORY_S, PIECE_MARGIN_S = 660, 60
"""Seconds of counts before and after a run: what forecasts look back on, and what smoothing reaches to."""

AZURE_OFFSETS_S = (700, 1_700)
"""Where a run begins in the Azure trace, by the tenant's place, where that trace stands for both tenants'."""

BASE_SMOOTH_S = 60
"""Seconds over which that trace is smoothed below bursts."""


def matches_of(experiment: Experiment, traces: Path | None = None) -> list[Match]:
    """Every policy on every segment of every workload of the experiment; ``traces`` is the file of Twitter counts.

    Raises:
        ValueError: The experiment needs ``traces``.
    """
    found = []
    for name in experiment.workloads:
        path, changes = ROOT / "configs" / f"{name}.yaml", {**AT_ONCE, **experiment.changes}
        config = over_each_segment(read_config(path, windows=experiment.windows, **changes))
        tenants = [tenant.model_copy(update={"batch": experiment.batch}) for tenant in config.tenants]
        if experiment.gain is not None:
            tenants = [_gaining(tenant, experiment.gain, config.windows) for tenant in tenants]
        config = config.model_copy(update={"tenants": tenants})
        for number, segment in enumerate(_segments(experiment, config, traces)):
            found += [
                Match(policy, segment, f"configs/{name}.yaml", number, experiment.fairness)
                for policy in experiment.policies
            ]
    return found


def _segments(experiment: Experiment, config: Config, traces: Path | None) -> Iterator[Config]:
    if experiment.n_segments:
        if traces is None:
            raise ValueError(f"experiment {experiment.name} needs the Twitter counts")
        for number in range(experiment.n_segments):
            offsets_s = [twitter_offset_s(number, place, experiment.stride_s) for place in range(len(config.tenants))]
            yield _on_pieces(experiment, config, [(_counts(traces), offset_s) for offset_s in offsets_s])
    elif experiment.is_replayed or experiment.bursts is not None:
        yield _on_pieces(
            experiment,
            config,
            [(_azure(experiment.bursts, place), AZURE_OFFSETS_S[place]) for place in range(len(config.tenants))],
        )
    elif experiment.perturbation is not None:
        profiles = perturbed(shipped_profiles(), experiment.perturbation)
        yield config.model_copy(update={"profiles": str(_kept_profiles(profiles))})
    else:
        yield config


def _gaining(tenant: TenantConfig, gain: float, n_windows: int) -> TenantConfig:
    """The tenant with every retraining gaining so much; windows without one stay as they are."""
    if tenant.retraining is None:
        return tenant
    given = [*tenant.accuracies, *tenant.accuracies[-1:] * (n_windows - len(tenant.accuracies))]
    n_retraining = len(given) if tenant.retraining.windows is None else tenant.retraining.windows
    accuracies = [
        AccuracyConfig(before=round(own.after - gain, 6), after=own.after) if window < n_retraining else own
        for window, own in enumerate(given)
    ]
    return tenant.model_copy(update={"accuracy": accuracies})


def _on_pieces(experiment: Experiment, config: Config, sources: Sequence[tuple[Sequence[int], int]]) -> Config:
    """The config on pieces of counts, by tenant all counts and where in them window 0 begins.

    What forecasting and smoothing need lies around a piece. Pieces are files: two weeks of counts take seconds to read,
    and every match would read them.
    """
    tenants = []
    for tenant, (counts, offset_s) in zip(config.tenants, sources, strict=True):
        end_s = offset_s + round(config.windows * config.window_s) + PIECE_MARGIN_S
        own = counts[offset_s - PIECE_HISTORY_S : end_s]
        text = "\n".join(["second,count", *(f"{second},{count}" for second, count in enumerate(own))])
        update = {"trace": str(kept("counts", text + "\n")), "format": "counts", "offset_s": PIECE_HISTORY_S}
        if experiment.is_replayed:
            update["scale"] = ScaleConfig(method="copies")
        elif experiment.bursts is not None:
            update["scale"] = ScaleConfig(method="poisson", smooth_s=1)
        arrivals = tenant.arrivals.model_copy(update=update)
        tenants.append(tenant.model_copy(update={"arrivals": arrivals}))
    return config.model_copy(update={"tenants": tenants})


def _azure(bursts: Bursts | None, place: int) -> list[int]:
    """The counts of the Azure trace, or thousands of times its rate under these bursts, which differ by place."""
    counts = shipped_trace("azure-conv").counts
    if bursts is not None:
        rng = np.random.default_rng([place, round(bursts.ratio), round(bursts.dwell_s)])
        rates = smoothed(counts, BASE_SMOOTH_S, loop=False) * factors_of(bursts, counts.size, rng)
        counts = np.rint(1000 * rates).astype(np.int64)
    return list(map(int, counts))


def factors_of(bursts: Bursts, n_seconds: int, rng: np.random.Generator) -> FloatArray:
    """What a process of two states multiplies the rate of each second by, ``(n_seconds,)``; 1 on average.

    It begins in either with the same probability and leaves it after each second with probability 1 / ``dwell_s``.
    """
    n_changes = np.cumsum(rng.random(n_seconds) < 1 / bursts.dwell_s)
    is_high = (n_changes + rng.integers(2)) % 2 == 1
    found: FloatArray = np.where(is_high, bursts.ratio, 1.0) * 2 / (1 + bursts.ratio)
    return found


def require_two_weeks(traces: Path) -> None:
    """Raise unless the file has the counts of two weeks.

    Raises:
        TraceError: No such file, or it holds no counts.
        ValueError: It is shorter.
    """
    if len(_counts(traces)) < 4 * HALF_WEEK_S:
        raise ValueError(f"{traces}: has {len(_counts(traces))} seconds; two weeks, {4 * HALF_WEEK_S}, are needed")


@cache
def _counts(traces: Path) -> tuple[int, ...]:
    return tuple(read_trace(traces, Reading(TraceFormat.COUNTS, gaps=Gaps.ZERO)).counts.tolist())


def twitter_offset_s(segment: int, place: int, stride_s: int = SEVEN_HOURS_S) -> int:
    """Where a segment begins for the tenant at ``place``: in the second week, away from the gap that ends each day.

    One that would run into the gap's half hour, or look back on it, begins an hour later.
    """
    week_s = 2 * HALF_WEEK_S
    offset_s = (7_200 + stride_s * segment + place * (HALF_WEEK_S + 10_800)) % week_s
    if not PIECE_HISTORY_S <= offset_s % DAY_S < DAY_S - BEFORE_GAP_S:
        offset_s = (offset_s + 3_600) % week_s
    return week_s + offset_s


def perturbed(profiles: ServiceProfiles, seed: int) -> ServiceProfiles:
    """The table with the latencies of each model on each profile times a factor of its own from [0.8, 1.2]."""
    curves = sorted({(row.gpu, row.model, row.profile) for row in profiles.rows})
    factors = dict(zip(curves, np.random.default_rng(seed).uniform(0.8, 1.2, len(curves)).tolist(), strict=True))
    rows = tuple(row.stretched(factors[row.gpu, row.model, row.profile]) for row in profiles.rows)
    return ServiceProfiles(f"{profiles.name}, perturbed", rows)


def _kept_profiles(profiles: ServiceProfiles) -> Path:
    """The table as a file under ``runs``."""
    cells = [(row.source, *row.key, row.latency_s * 1000, row.throughput_rps, row.derived) for row in profiles.rows]
    return kept("profiles", pd.DataFrame(cells, columns=[*PROFILE_COLUMNS, "derived"]).to_csv(index=False))


def kept(kind: str, text: str) -> Path:
    """The text as a CSV file under ``runs``, named by its content."""
    path = CACHE / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.csv"
    if not path.is_file() or path.read_bytes() != text.encode():
        make_folder(CACHE)
        write_output(kind, path, text, None)
    return path


def make_folder(folder: Path) -> None:
    """Make the folder, unless it is there.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made: {error.strerror or error}") from None


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


def rows_of(results: Sequence[Json], beside: Sequence[Json] = ()) -> list[list[Any]]:
    """A row a result, by :data:`COLUMNS`; ``forecast`` stays 0 where neither these nor ``beside`` have ``oracle``'s."""
    ceilings = {(one["workload"], one["segment"]): one for one in (*beside, *results) if one["policy"] == CEILING}
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


def results_of(matches: Sequence[Match]) -> Iterator[Json]:
    """Each match's result, in order; what is not kept yet is simulated first, on all cores."""
    files = [CACHE / f"{key_of(match)}.json.gz" for match in matches]
    todo = list({path: match for path, match in zip(files, matches, strict=True) if not _is_kept(path)}.items())
    if todo:
        make_folder(CACHE)
        with Processes(min(n_cores(), len(todo))) as processes:
            found = processes.each(result_of, [match for _, match in todo])
            for n_done, (index, result) in enumerate(found, 1):
                _keep(todo[index][0], gzip.compress(json.dumps(result).encode(), mtime=0))
                print(f"\r  {n_done} of {len(todo)} simulated", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    return (json.loads(gzip.decompress(path.read_bytes())) for path in files)


def _keep(path: Path, raw: bytes) -> None:
    try:
        write_whole(path, raw)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _is_kept(path: Path) -> bool:
    """Whether the file holds a result; says so where it holds something else."""
    if not path.is_file():
        return False
    try:
        is_whole = isinstance(json.loads(gzip.decompress(path.read_bytes())), dict)
    except (OSError, EOFError, zlib.error, ValueError):
        is_whole = False
    if not is_whole:
        print(f"{path}: damaged; what it held is simulated anew", file=sys.stderr)
    return is_whole


@cache
def versions() -> str:
    """Of Python, of us, and of the libraries that compute results."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "highspy"))
    return f"Python {platform.python_version()}, migrator {__version__}, {libraries}"


def key_of(match: Match) -> str:
    """What the result of a match depends on, as a digest: its config, code and libraries.

    Files that the config names lie in the cache and are named by their contents, so that the folder may differ. For a
    fitted model is named by what its folder says of it, which has the digest of its weights.
    """
    forecast = match.config.forecast
    if forecast.model is not None:
        facts = hashlib.sha256((Path(forecast.model) / FACTS_FILE).read_bytes()).hexdigest()
        forecast = forecast.model_copy(update={"model": facts})
    config = config_yaml(match.config.model_copy(update={"forecast": forecast})).replace(f"{CACHE}/", "")
    match_parts = (match.policy, match.fairness.value, str(match.segment))
    parts = (VERSION, versions(), source_digest(match.policy), *match_parts, config)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def source_digest(policy: str) -> str:
    """A digest of the product's data, and of the code that a match of the policy runs: all that it imports.

    Imports by name, which no graph sees, are the planner's: of it all but other policies counts. So does every
    ``__init__``, as an import of one module runs those of its packages.
    """
    module = type(policy_of(policy)).__module__
    code = _imports("migrator.comparison.matches") | _imports(module) | {"migrator.comparison.matches", module}
    planner, policies = ROOT / "planner", ROOT / "planner" / "policies"
    return digest_of(
        [
            path
            for path in product_files()
            if path.suffix != ".py"
            or path.name == "__init__.py"
            or (path.is_relative_to(planner) and not path.is_relative_to(policies))
            or _module_in(path) in code
        ]
    )


@cache
def _imports(module: str) -> set[str]:
    """The product's modules that this one imports, at any remove; not by way of the registry of all policies."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    graph.remove_module("planner.policies.registry")
    return graph.find_upstream_modules(module)


def _module_in(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def product_files() -> tuple[Path, ...]:
    """All files of the product's packages."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    return tuple(path for path in found if "__pycache__" not in path.parts)


def digest_of(paths: Sequence[Path]) -> str:
    """A digest of the files' names and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
