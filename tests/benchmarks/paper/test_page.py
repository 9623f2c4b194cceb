"""Tables and sentences of the results page, from rows made by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.paper import reproduce
from benchmarks.paper.experiments import GIVEN, MAIN, Experiment
from benchmarks.paper.matches import CLASSES, COLUMNS
from benchmarks.paper.page import Figures, pages
from benchmarks.paper.statistics import results_in, without_largest
from benchmarks.paper.tables import TABLES, tables
from migrator.comparison.matches import Fairness

DOCUMENT = json.loads(reproduce.RESULTS.read_text("utf-8"))


def row(policy: str, workload: str, correct: int) -> list[object]:
    """Of 1000 requests, all in time."""
    counts = {"arrivals": 1000, "in_time": 1000, "late": 0, "dropped": 0, "correct": correct, "correct_late": 0}
    account = {**dict.fromkeys(CLASSES, 0.0), "goodput": float(correct), "wrong_old": 1000.0 - correct}
    places = {"policy": policy, "workload": workload, "segment": 0, "changes": 3, "windows_without_plan": 0}
    every = {**counts, **account, **places, "windows": [[500, correct // 2], [500, correct - correct // 2]]}
    return [every[column] for column in COLUMNS]


def rows(**by_policy: tuple[int, ...]) -> list[list[object]]:
    named = {name.replace("_", "-"): values for name, values in by_policy.items()}
    return [row(name, f"w{n}", value) for name, values in named.items() for n, value in enumerate(values, 1)]


MAIN_ROWS = rows(migrator=(800, 700), ekya=(500, 500), static=(700, 650), oracle=(850, 690))
LOW, HIGH = Experiment("interference-0", "0", at=0.0), Experiment("interference-1", "1", at=1.0)
JOINED = ["migrator, as shipped", "time-sharing, as shipped"]
TIES = {"interference-0": rows(ekya=(900, 800)), "interference-1": rows(ekya=(700, 750))}


def page(document: dict[str, object]) -> str:
    """All pages."""
    return "\n".join(pages(document).values())


def figures(**by_experiment: list[list[object]]) -> Figures:
    known = {"main": MAIN_ROWS, "retraining-given": MAIN_ROWS, **by_experiment}
    experiments = [{"name": name, "rows": found} for name, found in known.items()]
    return Figures(results_in({"columns": list(COLUMNS), "experiments": experiments}))


def test_the_page_is_made_from_its_figures() -> None:
    for name, text in pages(DOCUMENT).items():
        assert (reproduce.PAGES / name).read_text("utf-8") == text


def test_a_short_run_has_a_page_that_says_what_it_leaves_out() -> None:
    short = {one.name for one in reproduce.chosen(is_full=False, traces=None)}
    experiments = [one for one in DOCUMENT["experiments"] if one["name"] in short]
    text = page({**DOCUMENT, "experiments": experiments, "studies": {}})
    assert "- All windows of every workload, all policies" in text.split("## Not in this run")[1]
    assert "\ninterference,interference-0.25," in text
    assert "\nload,load-0.3," not in text


@pytest.mark.long
def test_a_policy_without_a_plan_is_named_and_its_workload_left_out_for_all() -> None:
    (main,) = (one for one in DOCUMENT["experiments"] if one["name"] == "main")
    others = [one for one in DOCUMENT["experiments"] if one is not main]
    without = [[*one[:3], *[None] * (len(one) - 3)] if one[:2] == ["paris", "w1"] else one for one in main["rows"]]
    document = {**DOCUMENT, "experiments": [*others, {**main, "rows": without}]}
    text = page(document)
    assert "No plan for the first window: `paris` on w1 (main).\n" in text
    shown = [line.split(",")[:3] for line in pages(document)["results/accounts.csv"].splitlines()]
    assert ["main", "static", "w2"] in shown
    assert ["main", "static", "w1"] not in shown


def test_accounts_are_by_policy_and_then_by_workload() -> None:
    own = figures(main=rows(migrator=(800, 700), static=(700, 650)))
    lines = tables(own, {})["accounts.csv"].splitlines()
    assert lines[0] == f"experiment,policy,workload,{','.join(CLASSES)}"
    assert [line.split(",")[:5] for line in lines[1:]] == [
        ["main", "migrator", "all", "75.00", "25.00"],
        ["main", "static", "all", "67.50", "32.50"],
        ["main", "migrator", "w1", "80.00", "20.00"],
        ["main", "migrator", "w2", "70.00", "30.00"],
        ["main", "static", "w1", "70.00", "30.00"],
        ["main", "static", "w2", "65.00", "35.00"],
    ]


def test_every_table_is_named_with_its_rows_on_the_page() -> None:
    named = pages(DOCUMENT)
    assert [name.removeprefix("results/") for name in named] == ["results.md", *TABLES]
    assert all(f"| [{name}](results/{name}) | {what} |" in named["results.md"] for name, (what, _) in TABLES.items())


def test_a_table_says_of_every_row_where_it_is_from() -> None:
    own = tables(figures(**TIES), {})
    assert own["ties.csv"].splitlines() == ["section,policy,mean,w1,w2", "interference,ekya,0.80,0.50,ahead"]
    assert "interference,interference-0,0,ekya,85.00," in own["sweeps.csv"].splitlines()
    assert own["more.csv"].splitlines() == [
        "than,experiment,workload,policy,points,relative_pct",
        "oracle,retraining-given,w2,migrator,+1.00,+1.45",
        "oracle,main,w2,migrator,+1.00,+1.45",
    ]


def test_what_an_experiment_is_for_has_no_markup() -> None:
    lines = tables(figures(), {})["experiments.csv"].splitlines()
    assert lines[0] == "section,question,experiments,how"
    assert not any("](" in line for line in lines)


def test_who_gets_more_is_told_with_how_much() -> None:
    runs = figures().runs_beside("oracle", [MAIN])
    assert len(runs) == 4  # migrator and static; ekya has no partitions
    (found,) = runs[runs["is_more"]].itertuples()
    assert (found.policy, found.workload) == ("migrator", "w2")
    assert (found.points, found.relative_pct) == pytest.approx((1.0, 100 / 69))


def test_what_several_experiments_simulate_alike_counts_once() -> None:
    loads = {"load-0.7": MAIN_ROWS, "load-0.9": rows(migrator=(600, 500), static=(610, 400))}
    own = figures(**loads, misled=MAIN_ROWS)
    assert len(own.runs_beside("oracle", [MAIN, GIVEN])) == len(own.runs_beside("oracle", [MAIN])) == 4
    at_loads, further = own.runs_beside_ours_by_load()
    assert at_loads["place"].tolist() == ["load-0.7 w1", "load-0.7 w2", "load-0.9 w1", "load-0.9 w2"]
    assert further.empty


def test_gains_are_of_means_of_workloads() -> None:
    shown = figures().summary(MAIN).loc["ekya"].tolist()
    assert shown == ["50.00", "50.00", "100.00", "50.00", "-25.9", "-184", "+50.0", "6"]


def test_published_terms_have_no_gap_to_close() -> None:
    shown = figures().summary(replace(MAIN, fairness=Fairness.AS_PUBLISHED))
    assert not {"gap closed %", "over static %"} & set(shown)


def test_the_paper_s_figures_stand_beside_the_paper_s_own_method() -> None:
    shown = figures(main=[*MAIN_ROWS, *rows(migrator_paper=(600, 600))]).summary(MAIN).loc["ekya"].tolist()
    assert shown == ["50.00", "50.00", "100.00", "50.00", "-25.9", "-184", "+50.0", "+20.0", "+17", "6"]


def test_hardly_a_gap_has_an_empty_cell() -> None:
    found = figures(main=rows(migrator=(710,), static=(700,), oracle=(700,))).summary(MAIN)
    assert found["gap closed %"].tolist() == ["", "", ""]


def test_ties_are_of_the_mean_and_of_each_workload() -> None:
    found = figures(**TIES).ties([LOW, HIGH])
    assert found.loc["ekya"].tolist() == ["0.80", "0.50", "ahead"]


def test_ties_are_of_the_workloads_that_all_have() -> None:
    found = figures(**{**TIES, "interference-1": TIES["interference-1"][:1]}).ties([LOW, HIGH])
    assert found.loc["ekya"].to_dict() == {"mean": "0.50", "w1": "0.50"}


def test_leads_stand_by_what_a_turn_costs() -> None:
    free, dear = rows(time_sharing_0=(800, 800)), rows(time_sharing=(700, 700))
    found = figures(headline=[*MAIN_ROWS, *free, *dear]).leads_by_turn_cost("headline")
    assert found.to_dict() == {0.0: 5.0, 5.0: -5.0}


def test_rows_that_join_a_table_stand_in_it_labelled() -> None:
    shipped = rows(migrator=(790, 690), time_sharing=(700, 700))
    own = figures(headline=MAIN_ROWS, **{"headline-charged": shipped})
    assert "headline-charged" not in own.rows
    found = own.first_table("headline")
    assert list(found.index) == ["migrator", "ekya", "static", "oracle", *JOINED]
    assert found.loc["migrator"].tolist() == ["75.00", "", "", "", "", "100.0", "75.0"]
    assert found.loc["migrator, as shipped"].tolist()[:2] == ["74.00", "-1.00"]
    assert found.loc["oracle"].tolist()[4] == "1 of 2"


def test_the_segment_that_makes_most_of_a_lead_is_left_out() -> None:
    ahead = pd.DataFrame({"w1": [1.0, 9.0, 2.0], "w2": [1.0, 7.0, 4.0]})
    rest, number, part = without_largest(ahead)
    assert (number, part, len(rest)) == (1, pytest.approx(16 / 24), 2)
    assert without_largest(-ahead)[1:] == (1, pytest.approx(16 / 24))


def test_what_a_policy_loses_less_is_told_where_it_is_ahead() -> None:
    own = figures(headline=rows(migrator=(800, 700, 600), time_sharing=(850, 690, 610)))
    assert own.losses_where_ahead("headline", "time-sharing").to_dict() == pytest.approx({"wrong_old": -3.0})
    behind = figures(headline=rows(migrator=(800, 700), time_sharing=(700, 690)))
    assert behind.losses_where_ahead("headline", "time-sharing").to_dict() == {}


def test_differences_have_intervals() -> None:
    found = figures().differences("main", "windows").loc["ekya"].tolist()
    assert found == ["-25.00", "–", "[-88.53, +38.53]", "0 of 2", "0 of 2", "0 of 4, at most -20.0"]
