"""The plots show what the rows say, all of it and nothing else, in the same bytes each time."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from benchmarks.paper import reproduce
from benchmarks.paper.experiments import EXPERIMENTS, LOOKAHEADS, SECTIONS, Experiment
from benchmarks.paper.matches import CLASSES, COLUMNS
from benchmarks.paper.page import pages
from benchmarks.paper.plot_list import PLOTS, Plot, plots_of
from benchmarks.paper.plots import STYLES, canvas, drawing, figures, plots, readable_on, spread, svg_of
from benchmarks.paper.statistics import results_in
from benchmarks.paper.studies import STUDIES
from migrator.errors import OutputError
from tests.seeds import daily

Json = dict[str, Any]

PLACES = st.lists(st.floats(-100, 100), max_size=12)

WORKLOADS = ("w1", "w2")

GOODPUT_PCT = {"migrator": 60, "oracle": 62, "static": 50, "ekya": 70, "astraea": 80, "whole": 55}


def row(one: Experiment, policy: str, workload: str, segment: int) -> list[object]:
    """Goodput falls by 20 points from 0 to 1 on the section's axis, and w2 has 10 points more than w1."""
    n_right = 10 * (GOODPUT_PCT.get(policy, 45) + (10 if workload == "w2" else 0) - round(20 * min(one.at, 1.0)))
    account = dict.fromkeys(CLASSES, 0.0) | {"goodput": float(n_right), "capacity": float(1000 - n_right)}
    known = {"arrivals": 1000, "correct": n_right, "in_time": n_right, "late": 0, "dropped": 1000 - n_right}
    known |= {"correct_late": 0, "changes": 0, "windows_without_plan": 0}
    windows = [[500, n_right - n_right // 2], [500, n_right // 2]]
    every = {"policy": policy, "workload": workload, "segment": segment, "windows": windows, **known, **account}
    return [every[column] for column in COLUMNS]


def document(sections: Collection[str], unplanned: Collection[tuple[str, str]] = ()) -> Json:
    """All experiments of the sections on two workloads; no numbers for each (policy, workload) without a plan."""
    experiments = []
    for one in (one for section in SECTIONS if section.name in sections for one in section.experiments):
        places = [
            (policy, w, n) for w in WORKLOADS for n in range(2 if one.n_segments else 1) for policy in one.policies
        ]
        rows = [row(one, *place) for place in places]
        rows = [[*own[:3], *[None] * (len(own) - 3)] if (own[0], own[1]) in unplanned else own for own in rows]
        experiments.append({"name": one.name, "rows": rows})
    made = {"command": "make", "commit": None, "versions": "Python 3", "of": [one["name"] for one in experiments]}
    return {"schema": 3, "made": [made], "columns": list(COLUMNS), "experiments": experiments}


FULL = document([section.name for section in SECTIONS])


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return plots(FULL)


def texts(svg: str) -> list[str]:
    found = ET.fromstring(svg)  # noqa: S314 - our own text
    return ["".join(node.itertext()) for node in found.iter() if node.tag.rpartition("}")[2] == "text"]


def figure(file: str, found: Json) -> Figure:
    return next(figure for plot, figure in figures(found).items() if plot.file == file)


def test_the_committed_plots_are_those_of_the_figures() -> None:
    committed = {path.name: path.read_text("utf-8") for path in reproduce.PLOTS.glob("*.svg")}
    assert committed == plots(json.loads(reproduce.RESULTS.read_text("utf-8")))


def test_a_full_run_has_every_plot(drawn: dict[str, str]) -> None:
    assert list(drawn) == [plot.file for plot in PLOTS]


def test_every_plot_belongs_to_a_section() -> None:
    assert {plot.section for plot in PLOTS} <= {section.name for section in SECTIONS}


def test_plots_are_drawn_in_the_same_bytes_each_time(drawn: dict[str, str]) -> None:
    sections = ("main", "load", "twitter")
    again = plots(document(sections))
    assert again == {plot.file: drawn[plot.file] for plot in PLOTS if plot.section in sections}


def test_every_plot_says_that_it_is_simulated(drawn: dict[str, str]) -> None:
    assert all("Simulated" in " ".join(texts(svg)) for svg in drawn.values())


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.file)
def test_every_policy_of_the_section_is_named(plot: Plot, drawn: dict[str, str]) -> None:
    (section,) = (one for one in SECTIONS if one.name == plot.section)
    policies = {policy for one in section.experiments for policy in one.policies}
    words = " ".join(texts(drawn[plot.file])).split()
    assert all(policy in words or f"{policy}," in words for policy in policies)


def test_the_page_shows_the_plots_that_are_drawn(drawn: dict[str, str]) -> None:
    found = "\n".join(pages(FULL).values())
    assert [found.count(f"](results/{file})") for file in drawn] == [1] * len(drawn)


@pytest.mark.parametrize("asked", daily([one.name for one in (*SECTIONS, *STUDIES)], ["headline", "load", "planning"]))
def test_a_run_of_any_one_section_has_pages_and_plots(asked: str) -> None:
    names = [one.name for one in reproduce.chosen(is_full=False, traces=Path("counts.csv"), sections=[asked])]
    experiments = [one for one in FULL["experiments"] if one["name"] in names]
    known = json.loads(reproduce.RESULTS.read_text("utf-8"))["studies"]
    found = {**FULL, "experiments": experiments, "studies": {name: known[name] for name in known if name == asked}}
    written = pages(found)
    told = "\n".join(written.values())
    assert [told.count(f"](results/{file})") for file in plots(found)]
    assert any(one["name"] in told for one in experiments) is bool(experiments)
    assert (set(written) > set(pages({**found, "studies": {}}))) is (asked in known)


def test_what_was_not_run_is_not_drawn() -> None:
    assert list(plots(document(["main", "step"]))) == ["main-account.svg", "main-goodput.svg", "step.svg"]


def test_a_section_without_numbers_has_no_plot() -> None:
    found = document(["step"], [(policy, w) for policy in ("migrator", "migrator-paper") for w in WORKLOADS])
    assert plots(found) == {}


def test_differences_need_the_reference() -> None:
    found = document(["whole-runs"], [("migrator", workload) for workload in WORKLOADS])
    section = next(one for one in SECTIONS if one.name == "whole-runs")
    assert plots_of(section, results_in(found)) == []


def test_a_workload_without_the_reference_is_left_out_of_differences() -> None:
    found = texts(plots(document(["whole-runs"], [("migrator", "w2")]))["whole-runs.svg"])
    assert "ekya (1 of 2)" in found
    assert "+10.00 [+10.00, +10.00]" in found


def test_an_account_s_bars_add_up_to_100_and_begin_with_goodput() -> None:
    bars = figure("main-account.svg", document(["main"])).axes[0].patches
    assert bars[0].get_width() == pytest.approx(65)
    assert sum(bar.get_width() for bar in bars[: len(CLASSES)]) == pytest.approx(100)


def test_an_account_of_fewer_workloads_says_so_and_one_of_none_is_left_out() -> None:
    found = document(["main"], [("paris", "w1"), ("whole", "w1"), ("whole", "w2")])
    shown = [label.get_text() for label in figure("main-account.svg", found).axes[0].get_yticklabels()]
    known = ["migrator", "migrator-paper", "ekya", "astraea", "paris (1 of 2)"]
    assert shown == [*known, "time-sharing-0", "time-sharing", "time-sharing-10", "static", "static-history", "oracle"]


def test_a_workload_without_a_plan_has_no_number_in_the_grid() -> None:
    found = texts(plots(document(["main"], [("paris", "w1")]))["main-goodput.svg"])
    assert found.count("none") == 1


def test_a_line_goes_through_the_means_of_the_workloads() -> None:
    first = figure("interference.svg", document(["interference"])).axes[0].lines[0]
    assert first.get_ydata()[[0, -1]] == pytest.approx([75, 55])


def test_a_tie_with_the_reference_is_told_where_it_is() -> None:
    found = texts(plots(document(["main", "interference"]))["interference.svg"])
    assert "tie 0.50" in found
    assert "migrator" in found


def test_without_the_reference_there_is_no_level_line() -> None:
    assert "migrator" not in texts(plots(document(["interference"]))["interference.svg"])


def test_a_mean_of_fewer_workloads_is_hollow() -> None:
    axes = figure("step.svg", document(["step"], [("migrator", "w1")])).axes[0]
    fills = {mark.get_markerfacecolor() for mark in axes.lines if mark.get_marker() == "o"}
    assert fills == {"white"}
    assert axes.get_title("right").startswith("hollow")


def test_foresight_is_a_line_from_none_to_all_and_a_level_that_never_changes() -> None:
    axes = figure("foresight.svg", document(["foresight"])).axes[0]
    anew, level, once = axes.lines
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["migrator", *LOOKAHEADS, "oracle"]
    assert anew.get_ydata() == pytest.approx([65, *[50] * len(LOOKAHEADS), 67])
    assert level.get_ydata() == pytest.approx([55, 55])
    assert (once.get_xdata(), once.get_ydata()) == (pytest.approx([0, len(names) - 1]), pytest.approx([65, 67]))


def test_a_run_removes_the_plots_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    reproduce.write_plots(folder, {"a.svg": "<a/>\n", "b.svg": "<b/>\n"})
    reproduce.write_plots(folder, {"b.svg": "<c/>\n"})
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == {"b.svg": "<c/>\n"}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(OutputError, match=r"results: cannot be made: File exists$"):
        reproduce.write_plots(tmp_path / "results", {})


def test_every_policy_has_a_colour_and_a_marker_of_its_own() -> None:
    drawn_alone = {policy for one in EXPERIMENTS for policy in one.policies} - set(
        LOOKAHEADS
    )  # places on a line of ours
    assert drawn_alone <= set(STYLES)
    n_kin = 2  # time-sharing's turns at 0 and 10 % have its colour
    assert len({style.colour for style in STYLES.values()}) == len(STYLES) - n_kin
    assert len({style.marker for style in STYLES.values()}) == len(STYLES)


@given(PLACES)
def test_names_are_apart_and_in_the_order_of_their_lines(values: list[float]) -> None:
    found = spread(values, 5.0)
    order = sorted(range(len(values)), key=lambda place: values[place])
    assert all(found[above] - found[below] >= 5.0 - 1e-9 for below, above in pairwise(order))


@given(PLACES)
def test_names_stay_where_the_lines_are_on_the_whole(values: list[float]) -> None:
    assert sum(spread(values, 5.0)) == pytest.approx(sum(values), abs=1e-6)


def test_names_that_do_not_touch_stay_where_they_are() -> None:
    assert spread([20.0, 0.0, 10.0], 5.0) == [20.0, 0.0, 10.0]


def test_names_at_one_place_are_spread_around_it() -> None:
    assert spread([10.0, 10.0, 10.0], 5.0) == [5.0, 10.0, 15.0]


def test_text_stands_out_from_what_it_is_written_on() -> None:
    assert [readable_on(colour) for colour in ("#F0E442", "#0072B2")] == ["#222222", "white"]


def test_a_user_s_own_settings_change_nothing() -> None:
    found = []
    for settings in ({}, {"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "black"}):
        with mpl.rc_context(settings), drawing():
            found.append(svg_of(canvas("a title", 2.0, left_in=1.0)[0], "a title"))
    assert found[0] == found[1]


def test_settings_are_as_before_after_drawing() -> None:
    before = dict(mpl.rcParams)
    with drawing():
        pass
    assert dict(mpl.rcParams) == before
