"""Pages in a real browser: nothing leaves them or is cut off, all can be read, zoomed and opened by keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from forecaster.ewma import Ewma
from migrator.comparison.forecasts import Methods, Series, Terms, evaluate
from migrator.comparison.matches import Fairness
from migrator.log.diff import diff_of
from migrator.log.runlog import read_log
from migrator.views.compare_page import comparison_to_html
from migrator.views.forecast import ShownForecast, evaluations_to_html, shown_to_html
from migrator.views.run_page import diff_to_html, run_to_html
from migrator.views.whatif_page import sweep_to_html
from tests.migrator.log import records
from tests.migrator.views.browser import Browser, needs_chromium, opened, started
from tests.migrator.views.sweeps import searched
from tests.migrator.views.test_compare_page import SCORES
from tests.migrator.views.test_run_page import many

pytestmark = needs_chromium

STORED = Path("tests/golden/live").resolve()

FAINT = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const below = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return light(colour);
    }
  };
  const texts = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility() &&
    [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) &&
    !one.closest("script, style, .barlayer"));
  return texts.map((one) => {
    const style = getComputedStyle(one);
    const [own, paper] = [light(parts(one instanceof SVGElement ? style.fill : style.color)), below(one)];
    return [(Math.max(own, paper) + 0.05) / (Math.min(own, paper) + 0.05), one.textContent.slice(0, 40)];
  }).filter(([contrast]) => contrast < 4.5);
})()"""
"""Texts that stand out too little from what is behind them, with their contrast; those on bars have bars."""

CUT = """(() => {
  const box = (one) => one.getBoundingClientRect();
  const inFigures = [...document.querySelectorAll(".figure svg text")]
    .filter((one) => box(one).width && getComputedStyle(one).opacity !== "0" && !one.closest(".barlayer"))
    .map((one) => [one, box(one.closest(".figure"))]);
  const page = { left: 0, right: innerWidth, top: -Infinity, bottom: Infinity };
  const inPage = [...document.querySelectorAll("body *:not(svg *)")]
    .filter((one) => one.checkVisibility() && one.textContent.trim())
    .filter((one) => !one.closest(".scrolls, script, #js-plotly-tester"))
    .map((one) => [one, page]);
  return [...inFigures, ...inPage].filter(([one, around]) => {
    const { left, right, top, bottom } = box(one);
    return left < around.left - 1 || right > around.right + 1 || top < around.top - 1 || bottom > around.bottom + 1;
  }).map(([one]) => one.textContent.slice(0, 60));
})()"""
"""What does not lie within its figure or the page, where nothing says that it can be scrolled to."""

RANGE = "document.getElementById('time').layout.xaxis.range.map(Number)"


def _forecast_show() -> str:
    rates_rps = np.full((60, 1), 5.0)
    forecast = Ewma(2).forecast(rates_rps, 20, 9, np.random.default_rng(1))
    return shown_to_html(ShownForecast("made", 1, 60.0, 60.0, 1.0, ("a",), rates_rps, forecast, rates_rps[:20]))


def _forecast_eval() -> str:
    rates_rps = np.linspace(5.0, 50.0, 300)[:, np.newaxis]
    methods = Methods({f"a method of {n} s": Ewma(n) for n in range(2, 11)})
    series = Series("made", ("made",), rates_rps)
    return evaluations_to_html([evaluate(series, methods, Terms(window_s=20, stride_s=5, n_paths=9))])


def _diff() -> str:
    def log(n_right: int) -> object:
        counted = records.counts([100] * 3, [0] * 3, [n_right, 50, 50])
        begun, ended = records.window_started(0, 3.0, "a"), records.window_finished(0, a=counted)
        return records.log_of(*records.timed([records.header(3.0, "a"), begun, ended]))

    return diff_to_html(diff_of(log(40), log(50)), "one", "other")


PAGES: Mapping[str, Callable[[], str]] = {
    "run": lambda: run_to_html(read_log(STORED)),
    "run-of-many": lambda: run_to_html(many(20, "-with-a-name-of-many-words-and-60-letters-to-be-cut")),
    "whatif": lambda: sweep_to_html(*searched("slo_attainment>=0.6", "goodput:a>=0.5")),
    "compare": lambda: comparison_to_html(SCORES, Fairness.POLICY_ONLY),
    "diff": _diff,
    "forecast-eval": _forecast_eval,
    "forecast-show": _forecast_show,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as running:
        yield running


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A file of each page."""
    folder = tmp_path_factory.mktemp("pages")
    files = {name: folder / f"{name}.html" for name in PAGES}
    for name, path in files.items():
        path.write_text(PAGES[name](), "utf-8")
    return files


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_can_be_read(
    browser: Browser, written: Mapping[str, Path], name: str, width: int, scheme: str
) -> None:
    with opened(browser, written[name], width, scheme) as tab:
        assert tab.evaluate("document.getElementById('no-figures').hidden")
        assert tab.evaluate("[...document.querySelectorAll('.figure')].every((one) => one.querySelector('.main-svg'))")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(CUT) == []
        assert tab.evaluate(FAINT) == []
        assert tab.asked == [written[name].as_uri()]
        assert tab.said == []


def test_time_is_zoomed_in_all_panels_and_its_numbers_open_by_keys(
    browser: Browser, written: Mapping[str, Path]
) -> None:
    with opened(browser, written["run"], 1280, "light") as tab:
        figure = "document.getElementById('time')"
        assert tab.evaluate(f"new Set({figure}.data.map((trace) => trace.xaxis ?? 'x')).size") == 1
        tab.evaluate("document.querySelector('a[data-from]').click()")
        first, end = tab.evaluate("Object.values(document.querySelector('a[data-from]').dataset).map(Number)")
        assert tab.evaluate(RANGE) == [first, end]
        tab.evaluate("document.querySelector('details[data-figure=time] summary').focus()")
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", tab.session, type=kind, key="Enter", code="Enter", text="\r")
        tab.evaluate("new Promise(requestAnimationFrame)")
        titles = tab.evaluate(
            "[...document.querySelectorAll('[data-figure=time] caption')].map((one) => one.textContent)"
        )
        assert titles[0] == "who holds which memory slices"
        assert tab.said == []


@pytest.mark.parametrize("name", PAGES)
def test_a_browser_that_cannot_unpack_says_so_and_shows_tables(
    browser: Browser, written: Mapping[str, Path], name: str
) -> None:
    with opened(browser, written[name], 400, "light", script="delete window.DecompressionStream") as tab:
        tab.evaluate("new Promise(requestAnimationFrame)")
        assert "DecompressionStream" in tab.evaluate("document.getElementById('no-figures').innerText")
        shown = "(one) => one.checkVisibility() && one.rows.length > 1"
        assert tab.evaluate(f"[...document.querySelectorAll('table')].some({shown})")
        assert not tab.evaluate("[...document.querySelectorAll('.figure')].some((one) => one.checkVisibility())")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400
        assert tab.evaluate(CUT) == []
        assert tab.said == []
