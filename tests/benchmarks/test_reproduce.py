"""The results page is what its figures write, and its figures are what simulating gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import reproduce
from reproduce_experiments import EXPERIMENTS
from reproduce_page import page

DOCUMENT = json.loads(reproduce.RESULTS.read_text("utf-8"))


def test_the_page_is_made_from_its_figures() -> None:
    assert reproduce.PAGE.read_text("utf-8") == page(DOCUMENT)


@pytest.mark.parametrize("policy", ["static", "whole", "paris"])
def test_a_small_part_simulated_anew_gives_the_same_figures(policy: str) -> None:
    match = next(m for m in reproduce.matches_of(EXPERIMENTS[0]) if (m.config.name, m.policy) == ("w16", policy))
    rows = DOCUMENT["experiments"][0]["results"]
    known = next(row for row in rows if (row["workload"], row["policy"]) == ("w16", policy))
    assert json.loads(json.dumps(reproduce.result_of(match))) == known


def test_every_account_adds_up_to_the_arrivals() -> None:
    rows = [row for found in DOCUMENT["experiments"] for row in found["results"]]
    assert all(sum(row["account"].values()) == pytest.approx(row["arrivals"]) for row in rows)


def test_what_was_simulated_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "CACHE", tmp_path)
    match = reproduce.matches_of(EXPERIMENTS[0])[0]
    (tmp_path / f"{reproduce.key_of(match, reproduce.source_digest())}.json").write_text('{"kept": 1}', "utf-8")
    assert reproduce.results_of([match]) == [{"kept": 1}]


def test_what_decides_about_a_result_is_in_its_key() -> None:
    match = reproduce.matches_of(EXPERIMENTS[0])[0]
    others = [replace(match, policy="static"), replace(match, segment=1), reproduce.matches_of(EXPERIMENTS[1])[0]]
    keys = {reproduce.key_of(one, "source") for one in (match, *others)} | {reproduce.key_of(match, "other source")}
    assert len(keys) == 5


def test_experiments_have_names_of_their_own() -> None:
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_experiment_s_configs_can_be_read(experiment: reproduce.Experiment) -> None:
    assert len(reproduce.matches_of(experiment)) == len(experiment.workloads) * len(experiment.policies)
