"""The results page is what its figures write, and its figures are what simulating gives."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.paper import matches, reproduce
from benchmarks.paper.experiments import EXPERIMENTS, MAIN
from benchmarks.paper.matches import CLASSES, key_of, matches_of, result_of, results_of, rows_of, source_digest
from benchmarks.paper.statistics import results_in

DOCUMENT = json.loads(reproduce.RESULTS.read_text("utf-8"))
RESULTS = pd.concat(results_in(DOCUMENT).values()).dropna(subset="arrivals")
POLICIES = ("static", "whole", "paris", "oracle")
MATCH = matches_of(MAIN)[0]


def test_the_figures_are_written_as_they_are_read() -> None:
    assert reproduce.RESULTS.read_text("utf-8") == reproduce.as_text(DOCUMENT)


def test_a_small_part_simulated_anew_gives_the_same_figures() -> None:
    small = replace(MAIN, workloads=("w16",), policies=POLICIES)
    anew = json.loads(json.dumps(rows_of([result_of(match) for match in matches_of(small)])))
    rows = DOCUMENT["experiments"][0]["rows"]
    assert anew == [row for policy in POLICIES for row in rows if row[:2] == [policy, "w16"]]


def test_every_account_adds_up_to_the_arrivals() -> None:
    assert RESULTS[list(CLASSES)].sum(axis=1).tolist() == pytest.approx(RESULTS["arrivals"].tolist(), abs=0.1)


def test_every_row_s_windows_add_up() -> None:
    arrivals = [sum(window[0] for window in windows) for windows in RESULTS["windows"]]
    assert arrivals == RESULTS["arrivals"].tolist()


def test_what_was_simulated_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "CACHE", tmp_path)
    (tmp_path / f"{key_of(MATCH)}.json.gz").write_bytes(gzip.compress(b'{"kept": 1}'))
    assert list(results_of([MATCH, MATCH])) == [{"kept": 1}, {"kept": 1}]


def test_what_decides_about_a_result_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [replace(MATCH, policy="static"), replace(MATCH, segment=1), matches_of(EXPERIMENTS[1])[0]]
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


def test_one_policy_s_code_is_not_in_another_s_key() -> None:
    assert len({source_digest(policy) for policy in ("migrator", "ekya", "paris", "whole")}) == 4


def test_a_policy_without_a_plan_has_a_row_without_numbers() -> None:
    tenants = [tenant.model_copy(update={"min_profile": "7g.80gb"}) for tenant in MATCH.config.tenants]
    found = result_of(replace(MATCH, config=MATCH.config.model_copy(update={"tenants": tenants})))
    assert "error" in found
    assert rows_of([found])[0][3] is None


def test_a_short_run_has_no_long_experiment_and_without_traces_none_that_needs_them() -> None:
    assert all(not one.is_long for one in reproduce.chosen(is_full=False, traces=None))
    assert not any(one.n_segments for one in reproduce.chosen(is_full=True, traces=None))
    assert any(one.n_segments for one in reproduce.chosen(is_full=False, traces=Path("counts.csv")))
    assert reproduce.chosen(is_full=True, traces=Path("counts.csv")) == list(EXPERIMENTS)
