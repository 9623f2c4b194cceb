"""An evaluation's tables and JSON tell the same figures."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from forecaster.ewma import Ewma
from forecaster.forecast import FloatArray
from migrator.evaluation import Evaluation, Methods, Series, Terms, evaluate
from migrator.views.forecast import evaluations_to_json, print_evaluations


def evaluation(rates_rps: FloatArray) -> Evaluation:
    methods = Methods({"short": Ewma(2), "long": Ewma(90)})
    return evaluate(Series("made", ("made",), rates_rps), methods, Terms(window_s=20, stride_s=5, n_paths=9))


@pytest.fixture(scope="module")
def drifting() -> Evaluation:
    return evaluation(np.linspace(5.0, 50.0, 300)[:, np.newaxis])


def printed(*evaluations: Evaluation, styled: bool = False) -> str:
    text = io.StringIO()
    print_evaluations(evaluations, Console(file=text, width=140, force_terminal=styled))
    return text.getvalue()


def test_the_tables_show_the_figures_of_the_json(drifting: Evaluation) -> None:
    short = evaluations_to_json([drifting])["series"][0]["methods"]["short"]
    row = next(line for line in printed(drifting).splitlines() if line.strip().startswith("short"))
    assert row.split()[1:4] == [
        f"{short['all']['mae_rps']:.3g}",
        f"{100 * short['all']['wape']:.1f}",
        f"{short['all']['pinball_over_mean_rate']:.4f}",
    ]
    assert f"{100 * short['total']['coverage']['0.8']['share']:.1f}" in row


def test_the_least_loss_is_bold(drifting: Evaluation) -> None:
    bold = [line for line in printed(drifting, styled=True).splitlines() if "\x1b[1m0." in line]
    assert len(bold) == 2  # of all steps and the total, and by lead
    assert all(line.strip().startswith("short") for line in bold)


def test_where_nothing_came_a_loss_over_it_is_a_dash() -> None:
    nothing = evaluation(np.zeros((300, 1)))
    row = next(line for line in printed(nothing).splitlines() if line.strip().startswith("short"))
    assert row.split()[2:4] == ["–", "–"]
    assert evaluations_to_json([nothing])["series"][0]["methods"]["short"]["all"]["wape"] is None


@pytest.mark.parametrize(("history_s", "told"), [(200, "200 s"), (201, "up to 201 s"), (5000, "up to 280 s")])
def test_no_more_history_is_told_than_there_is(history_s: int, told: str) -> None:
    made = Series("made", ("made",), np.ones((300, 1)))
    text = printed(evaluate(made, Methods({"ewma": Ewma(2)}), Terms(20, history_s, stride_s=20, n_paths=1)))
    assert f"from {told} before" in " ".join(text.split())


def test_several_series_have_a_table_of_all_of_them(drifting: Evaluation) -> None:
    other = evaluation(np.full((300, 1), 7.0))
    found = evaluations_to_json([drifting, other])
    each = [one["methods"]["short"]["all"]["mae_rps"] for one in found["series"]]
    assert found["pooled"]["short"]["all"]["mae_rps"] == pytest.approx(np.mean(each), abs=1e-6)
    assert "all 2 series" in printed(drifting, other)
