"""The page of a run in a real browser: nothing leaves it or is cut off, all can be read, zoomed and opened by keys."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from migrator.log.runlog import read_log
from migrator.views.run_page import run_to_html

CHROMIUM = Path("/usr/bin/chromium")

pytestmark = pytest.mark.skipif(
    find_spec("playwright") is None or not CHROMIUM.is_file(),
    reason="NOT TESTED: pages in a browser: needs the package playwright and /usr/bin/chromium",
)

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")

FAINT = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const below = light(parts(getComputedStyle(document.body).backgroundColor));
  const texts = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility() &&
    [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) &&
    !one.closest("script, style, .barlayer"));
  return texts.map((one) => {
    const style = getComputedStyle(one);
    const own = light(parts(one instanceof SVGElement ? style.fill : style.color));
    return [(Math.max(own, below) + 0.05) / (Math.min(own, below) + 0.05), one.textContent.slice(0, 40)];
  }).filter(([contrast]) => contrast < 4.5);
}"""
"""Texts that stand out too little from the page, with their contrast; those on bars have bars below them."""

RANGE = "document.getElementById('time').layout.xaxis.range.map(Number)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=str(CHROMIUM), args=list(QUIET))
        yield found
        found.close()


@pytest.fixture
def written(call, write_config) -> Path:
    """The page of a small run."""
    assert call("run", write_config({"window_s": 40}), "--out", "run")[0] == 0
    path = Path("run.html").resolve()
    path.write_text(run_to_html(read_log(Path("run"))), "utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_can_be_used(browser: Any, written: Path, width: int, scheme: str) -> None:
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(written.as_uri())
    opened.wait_for_selector("#time .main-svg")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.evaluate(FAINT) == []
    assert opened.evaluate(RANGE) == [0, 80]
    panels = opened.evaluate("new Set(document.getElementById('time').data.map((trace) => trace.xaxis ?? 'x')).size")
    assert panels == 1  # one axis of time: what zooms one panel zooms all
    opened.click("a[data-from]")
    opened.wait_for_function(f"{RANGE}[1] - {RANGE}[0] === 40")
    opened.focus("details[data-figure] summary")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("details[data-figure] table")
    titles = opened.evaluate(
        "[...document.querySelectorAll('details[data-figure] caption')].map((one) => one.textContent)"
    )
    assert titles[0] == "who holds which memory slices"
    assert len(titles) == 5
    assert asked == [written.as_uri()]
    assert said == []
    opened.close()
