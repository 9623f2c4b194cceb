"""What holds for all tests."""

from __future__ import annotations

import gc
import importlib.util
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.seeds import is_slow
from tests.skips import surplus
from tests.standin.fixtures import make_mps, make_standin, mps, programs

__all__ = ["make_mps", "make_standin", "mps", "programs"]

# A shell that starts the tests in the background has them ignore Ctrl-C, and nohup a hang-up; some are about these.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No test is timed: how long an example takes says how busy the machine is.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("daily", UNTIMED, max_examples=30)
settings.register_profile("long", UNTIMED, max_examples=100)


def pytest_configure(config: pytest.Config) -> None:
    """Have ``make test-long`` draw more examples."""
    settings.load_profile("long" if "hypothesis" in config.option.markexpr else "daily")


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Processes die here, not machines: ``test_journal`` and ``test_runlog`` hold that writes are synced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


def pytest_collection_finish() -> None:
    """Leave out of garbage collections what was collected to be run: it lasts."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud what this machine could not test."""
    reasons = {report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())}
    for reason in sorted(reason for reason in reasons if "NOT TESTED" in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), yellow=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped more than may be."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):  # a worker's reports are the controller's, too
        return
    skipped = reporter.stats.get("skipped", ())
    for line in surplus((report.nodeid, report.longrepr[2].removeprefix("Skipped: ")) for report in skipped):
        reporter.ensure_newline()
        reporter.write_line(f"TOO MANY SKIPPED in {line}", red=True)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, leave out live tests where torch is missing, and begin with the tests of ``executor``.

    Of two processes that halve the tests, one begins with these, which need no compiled loops. Meanwhile the other one
    compiles them, for both. Live tests begin with the slow ones, so that none is left over.
    """
    for item in filter(is_slow, items):
        item.add_marker("slow")
    items.sort(key=lambda item: Path(__file__).parent / "executor" not in item.path.parents)
    items.sort(key=lambda item: not {"live", "slow"} <= {mark.name for mark in item.iter_markers()})
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("live"):
                item.add_marker(pytest.mark.skip(reason="NOT TESTED: needs the extra `live`: make test-live"))
