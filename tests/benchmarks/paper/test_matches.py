"""The matches of an experiment: what is changed in the configs, and how results are kept."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest

from benchmarks.paper import matches
from benchmarks.paper.experiments import EXPERIMENTS, MAIN, N_TWITTER, SECTIONS, Bursts, Experiment
from benchmarks.paper.matches import (
    DAY_S,
    HALF_WEEK_S,
    factors_of,
    key_of,
    matches_of,
    perturbed,
    result_of,
    results_of,
    rows_of,
    source_digest,
    twitter_offset_s,
)
from executor.catalogue import gpu_model
from migrator.config.sections import AccuracyConfig, Config, EstimatesConfig
from migrator.errors import OutputError
from migrator.inputs import assembly
from migrator.inputs.assembly import assemble, service_profiles
from migrator.inputs.estimates import estimate_of, service_factors
from workloads.profiles.table import shipped_profiles
from workloads.tenants import Tenant, drift_in
from workloads.traffic.trace_file import shipped_trace

ONE = replace(MAIN, workloads=("w8",), policies=("static",))
TABLE = shipped_profiles()
INTERFERENCE = next(one for one in EXPERIMENTS if one.name == "interference-0")
MATCH = matches_of(MAIN)[0]
GPU = gpu_model("a100-80gb")


def tenants_of(config: Config) -> list[Tenant]:
    """A config's tenants, without their traffic, which takes most of the time of putting a config together."""
    gpu, profiles = gpu_model(config.gpu.model), service_profiles(config)
    return [assembly._tenant(config, entry, gpu, profiles) for entry in config.tenants]


SEGMENT = 5


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two weeks of counts: nearly none, but a burst in the middle of one segment of either tenant."""
    seconds = {0: 1, 4 * HALF_WEEK_S - 1: 1}
    for place in (0, 1):
        start = twitter_offset_s(SEGMENT, place) + 100 * (place + 1)
        seconds |= dict.fromkeys(range(start - 5, start + 5), 50)
        seconds[start] = 5000
    monkeypatch.setattr(matches, "CACHE", tmp_path / "cache")
    path = tmp_path / "counts.csv"
    rows = (f"{second},{count}" for second, count in sorted(seconds.items()))
    path.write_text("\n".join(["second,count", *rows]) + "\n", "utf-8")
    return path


def test_experiments_have_names_of_their_own() -> None:
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS)


def test_sections_have_names_of_their_own() -> None:
    assert len({section.name for section in SECTIONS}) == len(SECTIONS)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_every_experiment_s_configs_can_be_read(experiment: Experiment, counts: Path) -> None:
    n = len(experiment.workloads) * len(experiment.policies) * max(1, experiment.n_segments)
    assert len(matches_of(experiment, counts)) == n


def test_a_segment_has_its_own_piece_of_the_counts(counts: Path) -> None:
    one = replace(ONE, n_segments=N_TWITTER)
    match = matches_of(one, counts)[SEGMENT]
    hindsight = assemble(match.config, match.origin)[1].hindsight
    at_s = [int(np.bincount(arrival_s.astype(np.int64)).argmax()) for arrival_s in hindsight.arrival_s]
    assert at_s == [100, 200]


def test_two_weeks_of_counts_are_needed(counts: Path, tmp_path: Path) -> None:
    matches.require_two_weeks(counts)
    short = tmp_path / "short.csv"
    short.write_text("second,count\n0,1\n9,1\n", "utf-8")
    with pytest.raises(ValueError, match="has 10 seconds; two weeks, 1209600, are needed"):
        matches.require_two_weeks(short)


def test_twitter_counts_are_asked_for() -> None:
    with pytest.raises(ValueError, match="needs the Twitter counts"):
        matches_of(next(one for one in EXPERIMENTS if one.n_segments))


@pytest.mark.parametrize("place", [0, 1])
def test_twitter_segments_are_in_the_second_week_apart_and_away_from_each_day_s_gap(place: int) -> None:
    starts_s = sorted(twitter_offset_s(segment, place) for segment in range(N_TWITTER))
    assert starts_s[0] - 600 >= 2 * HALF_WEEK_S
    assert starts_s[-1] + 400 <= 4 * HALF_WEEK_S
    assert min(later - start for start, later in pairwise(starts_s)) > 400  # two windows
    assert all((start - 600) % DAY_S < (start + 400) % DAY_S < 84_660 for start in starts_s)


@pytest.mark.parametrize("bursts", [Bursts(2.0, 2.0), Bursts(8.0, 10.0), Bursts(4.0, 60.0)], ids=str)
def test_bursts_are_as_far_apart_and_as_long_as_asked_and_leave_the_mean(bursts: Bursts) -> None:
    factors = factors_of(bursts, 400_000, np.random.default_rng(7))
    assert sorted(set(factors / factors.min())) == [1.0, bursts.ratio]
    assert factors.mean() == pytest.approx(1.0, abs=0.02)
    n_stays = 1 + np.count_nonzero(np.diff(factors))
    assert factors.size / n_stays == pytest.approx(bursts.dwell_s, rel=0.05)


@pytest.mark.usefixtures("counts")
def test_bursty_traffic_is_drawn_around_a_rate_of_two_levels_by_tenants_of_their_own() -> None:
    one = replace(ONE, bursts=Bursts(8.0, 10.0))
    (match,) = matches_of(one)
    rates = assemble(match.config, match.origin)[1].hindsight.rates_rps(0.0, 1.0, 400)
    is_high = rates > rates.mean(axis=0)
    high, low = (rates[mask, 0].mean() for mask in (is_high[:, 0], ~is_high[:, 0]))
    assert high > 4 * low
    assert 0.2 < (is_high[:, 0] == is_high[:, 1]).mean() < 0.8
    assert key_of(match) == key_of(matches_of(one)[0])
    assert key_of(match) != key_of(matches_of(replace(one, bursts=Bursts(8.0, 2.0)))[0])


@pytest.mark.usefixtures("counts")
def test_a_replayed_trace_comes_as_recorded() -> None:
    (match,) = matches_of(replace(ONE, is_replayed=True))
    traffic = assemble(match.config, match.origin)[1]
    rates = traffic.hindsight.rates_rps(0.0, 1.0, 400)
    for place, origin in enumerate(traffic.origins):
        offset_s = matches.AZURE_OFFSETS_S[place]
        recorded = shipped_trace("azure-conv").counts[offset_s : offset_s + 400]
        assert np.abs(rates[:, place] - origin.scale.factor * recorded).max() <= recorded.max()


def test_no_tenant_has_the_other_s_segment() -> None:
    for segment in range(84):
        second = twitter_offset_s(segment, 0, 7_207) % 86_400
        assert 660 <= second < 84_000
    spans = [{twitter_offset_s(segment, place) for segment in range(N_TWITTER)} for place in (0, 1)]
    assert all(abs(one - other) > 1000 for one in spans[0] for other in spans[1])


def test_a_perturbed_curve_has_one_factor_within_a_fifth() -> None:
    factors: dict[tuple[str, ...], set[float]] = {}
    for row, before in zip(perturbed(TABLE, 1).rows, TABLE.rows, strict=True):
        factor = row.latency_s / before.latency_s
        assert row.throughput_rps * factor == pytest.approx(before.throughput_rps)
        factors.setdefault((row.gpu, row.model, row.profile), set()).add(round(factor, 9))
    assert all(len(found) == 1 for found in factors.values())
    assert 0.8 <= min(map(min, factors.values())) < 0.85
    assert 1.15 < max(map(max, factors.values())) <= 1.2


def test_draws_differ_and_repeat() -> None:
    assert perturbed(TABLE, 1).rows == perturbed(TABLE, 1).rows != perturbed(TABLE, 2).rows


def test_a_perturbed_table_is_what_is_simulated() -> None:
    (match,) = matches_of(replace(ONE, perturbation=3))
    found = {row.key: row.latency_s for row in service_profiles(match.config).rows}
    assert found == pytest.approx({row.key: row.latency_s for row in perturbed(TABLE, 3).rows})


@pytest.mark.parametrize("workload", ["w1", "w8"])
def test_every_retraining_gains_what_is_asked_and_ends_as_the_config_says(workload: str) -> None:
    given, made = (
        matches_of(replace(ONE, workloads=(workload,), gain=gain, windows=None))[0].config for gain in (None, 0.1)
    )
    for own, before in zip(made.tenants, given.tenants, strict=True):
        assert own.retraining is not None
        n_retraining = own.retraining.windows
        held = before.accuracies[-1:] * (given.windows - len(before.accuracies))
        pairs = list(zip(own.accuracies, [*before.accuracies, *held], strict=True))
        assert [one.after for one, _ in pairs] == [one.after for _, one in pairs]
        assert [one.after - one.before for one, _ in pairs[:n_retraining]] == pytest.approx([0.1] * n_retraining)
        assert pairs[n_retraining:] == [(one, one) for _, one in pairs[n_retraining:]]


def test_gains_sweep_the_drift_as_the_page_says() -> None:
    sweep = [one for one in EXPERIMENTS if one.name.startswith("gain-") and one.name.endswith("-compound")]
    kept = []
    for experiment in sweep:
        configs = {match.config.name: match.config for match in matches_of(experiment)}
        tenants = [tenant for config in configs.values() for tenant in tenants_of(config)]
        kept.append(median(drift_in(tenant, window) for tenant in tenants for window in (0, 1)))
    assert [round(100 * one) for one in kept] == [93, 87, 76, 65]
    (section,) = [one for one in SECTIONS if sweep[0] in one.experiments]
    assert "keeps 93, 87, 76 and 65 % of its accuracy" in section.text


def test_a_gain_reaches_all_windows_and_a_tenant_without_retraining_keeps_its_accuracy() -> None:
    config = matches_of(ONE)[0].config
    first, second = config.tenants
    assert first.retraining is not None
    held = first.model_copy(
        update={
            "accuracy": AccuracyConfig(before=0.5, after=0.9),
            "retraining": first.retraining.model_copy(update={"windows": None}),
        }
    )
    assert [own.before for own in matches._gaining(held, 0.2, 3).accuracies] == [0.7, 0.7, 0.7]
    never = second.model_copy(update={"retraining": None})
    assert matches._gaining(never, 0.2, 3) == never


def test_the_errors_of_latencies_are_as_the_page_says() -> None:
    factors = {}
    for match in matches_of(replace(MAIN, policies=("static",))):
        for tenant in match.config.tenants:
            found = service_factors(EstimatesConfig(service_spread=0.2), match.config.seed, GPU, tenant.model)
            factors |= {(tenant.model, row.profile): found[row.profile] for row in TABLE.of("a100-80gb", tenant.model)}
    assert len(factors) == 30
    assert round(100 * fmean(factors.values()) - 100) == -2


def test_the_errors_of_time_are_as_the_page_says() -> None:
    errors = EstimatesConfig(accuracy_sigma=0.086, time_sigma=0.3, cost_gpu_s=2.0, delay_s=10.0)
    factors = {}
    for match in matches_of(replace(MAIN, policies=("static",))):
        for tenant, window in product(tenants_of(match.config), range(2)):
            found = estimate_of(errors, match.config.seed, GPU, tenant, window).retraining_s["7g.80gb"]
            factors[tenant.name, window] = found / tenant.retraining_time_s["7g.80gb"]
    assert len(factors) == 12
    assert round(100 * fmean(factors.values()) - 100) == -17


def test_a_damaged_result_is_simulated_anew_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matches, "CACHE", tmp_path)
    monkeypatch.setattr(matches, "result_of", str)  # picklable, and no dict: what comes is what was made anew
    asked = [replace(MATCH, segment=segment) for segment in range(4)]  # in one call: each call starts processes
    paths = [tmp_path / f"{key_of(one)}.json.gz" for one in asked]
    damages = (gzip.compress(b'{"kept": 1}')[:-5], b"", gzip.compress(b"{"), b"x" * 9)
    for path, damage in zip(paths, damages, strict=True):
        path.write_bytes(damage)
    assert list(results_of(asked)) == [str(one) for one in asked]
    told = capsys.readouterr().err
    assert [path for path in paths if f"{path}: damaged; what it held is simulated anew" not in told] == []


def test_a_full_disk_names_the_result_and_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path, __: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match=r"one\.json\.gz: cannot be written: No space left on device"):
        matches._keep(tmp_path / "one.json.gz", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(matches, "CACHE", tmp_path / "file" / "cache")
    for use in (lambda: matches.kept("counts", "x"), lambda: results_of([MATCH])):
        with pytest.raises(OutputError, match=r"file/cache: cannot be made: Not a directory$"):
            use()


def test_a_damaged_table_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "CACHE", tmp_path)
    path = matches.kept("counts", "second,count\n0,1\n")
    path.write_text("second")
    assert matches.kept("counts", "second,count\n0,1\n").read_text() == "second,count\n0,1\n"


def test_what_was_simulated_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "CACHE", tmp_path)
    (tmp_path / f"{key_of(MATCH)}.json.gz").write_bytes(gzip.compress(b'{"kept": 1}'))
    assert list(results_of([MATCH, MATCH])) == [{"kept": 1}, {"kept": 1}]


def test_what_decides_about_a_result_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [replace(MATCH, policy="static"), replace(MATCH, segment=1), matches_of(INTERFERENCE)[0]]
    keys = {key_of(one) for one in (MATCH, *others)}
    monkeypatch.setattr(matches, "source_digest", lambda _: "other source")
    assert len(keys | {key_of(MATCH)}) == 5


def test_made_profiles_are_in_the_key_by_their_content_and_not_by_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        monkeypatch.setattr(matches, "CACHE", tmp_path / folder)
        keys.append(key_of(matches_of(replace(MAIN, perturbation=seed))[0]))
    assert keys[0] == keys[1] != keys[2]


LOADING = """
import json, sys
from dataclasses import replace
from benchmarks.paper.experiments import MAIN
from benchmarks.paper.matches import PACKAGES, matches_of, result_of
(match,) = matches_of(replace(MAIN, policies=("migrator",), workloads=("w8",), windows=1))
before = set(sys.modules)
result_of(match)
new = (sys.modules[name] for name in set(sys.modules) - before if name.partition(".")[0] in PACKAGES)
print(json.dumps([module.__file__ for module in new]))
"""


def test_all_code_that_a_match_loads_is_in_its_key_and_so_is_every_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "digest_of", lambda paths: paths)
    known = set(source_digest.__wrapped__("migrator"))
    engines = set((matches.ROOT / "planner" / "engines").rglob("*.py"))
    assert engines - known == set()
    told = subprocess.run([sys.executable, "-c", LOADING], cwd=matches.ROOT, check=True, capture_output=True, text=True)
    loaded = set(map(Path, json.loads(told.stdout)))
    assert loaded & engines
    assert loaded - known == set()


def test_one_policy_s_code_is_not_in_another_s_key() -> None:
    assert len({source_digest(policy) for policy in ("migrator", "ekya", "paris", "reactive")}) == 4


def test_a_policy_without_a_plan_has_a_row_without_numbers() -> None:
    tenants = [tenant.model_copy(update={"min_profile": "7g.80gb"}) for tenant in MATCH.config.tenants]
    found = result_of(replace(MATCH, config=MATCH.config.model_copy(update={"tenants": tenants})))
    assert "error" in found
    assert rows_of([found])[0][3] is None
