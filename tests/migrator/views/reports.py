"""Reports in a screen as they were written down: ``python -m tests.migrator.views.reports`` writes them anew.

Each file of ``tests/golden/reports`` is of one log made by hand, on terminals of some widths, and in colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

from migrator.log.report import report_of
from migrator.log.runlog import ReadLog
from migrator.views.summary import print_summary
from migrator.whatif.goals import conditions_of
from tests.migrator.log import records

GOLDEN = Path(__file__).parents[2] / "golden" / "reports"

WIDTHS = (40, 60, 80, 100, 200)

WINDOW_S, N_WINDOWS = 20.0, 4

PLACES = ("3g.40gb@4", "2g.20gb@2", "1g.10gb@0", "1g.10gb@1")
"""Where the first tenants' instances lie."""


def names(n_tenants: int) -> list[str]:
    """Those of the quickstart, or numbered ones."""
    return ["vision", "language"][:n_tenants] if n_tenants <= 2 else [f"tenant-{n:02}" for n in range(n_tenants)]


def run_of(n_tenants: int, counts: Callable[..., records.Json] = records.counts, **fields: Any) -> list[records.Json]:
    """A run of four windows: some tenants answer nearly all in time, each third only half of it."""
    of_all = names(n_tenants)
    header = records.header(WINDOW_S, *of_all, windows=N_WINDOWS, planning_s=6.0, assumed=[], **fields)
    for n, tenant in enumerate(header["tenants"]):
        rates = {
            profile.partition("@")[0]: {"batch": 8, "processes": 1, "rate_rps": 700.0, "derived": ""}
            for profile in PLACES
        }
        tenant |= {"slo_ms": 150 + 60 * n, "operating_points": rates, "retraining_s": {"1g.10gb": 9.0}}
    sources = ((None, "switch_s", 1.08, "driver times"), (of_all[0], "retraining time", 12, "MIGRator"))
    header["assumed"] = [
        {"tenant": tenant, "what": what, "value": value, "unit": "s", "source": source}
        for tenant, what, value, source in sources
    ]
    held = list(enumerate(PLACES[: min(n_tenants, len(PLACES))], 1))
    up = [records.started(f"{place}#{n}", -9.0, place, of_all[n - 1]) for n, place in held]
    found = [header, records.change(0, -9.0, up) | {"at_s": -9.0}]
    found += [records.ready(0, f"{place}#{n}", -6.0, tenant=of_all[n - 1]) | {"at_s": -6.0} for n, place in held]
    for window in range(N_WINDOWS):
        start_s = window * WINDOW_S
        found.append(
            {**records.window_started(window, WINDOW_S, *of_all), "at_s": start_s, "wall": {"solve_s": 5.0 + window}}
        )
        found += [
            {**records.finished(window, None, start_s + 5 + n, name), "at_s": start_s + 5 + n}
            for n, name in enumerate(of_all)
            if (window, n) != (2, 1)
        ]
        own = {name: counts(*_counted(n, window)) for n, name in enumerate(of_all)}
        found.append({**records.window_finished(window, **own), "at_s": start_s + WINDOW_S})
    return records.timed([*found, {"kind": "run_finished", "windows": N_WINDOWS}])


def _counted(tenant: int, window: int) -> tuple[list[int], list[int], list[int]]:
    """By second those in time, dropped, and right; each is the tenant's and the window's own."""
    came = [600 + 40 * tenant + 90 * (second % 5) + 25 * window for second in range(round(WINDOW_S))]
    in_time = [n - n // 400 if tenant % 3 != 1 else n // 2 + 10 * window for n in came]
    dropped = [n - kept for n, kept in zip(came, in_time, strict=True)]
    return in_time, dropped, [kept * (70 + window + tenant % 9) // 100 for kept in in_time]


def unlabelled(in_time: list[int], dropped: list[int], correct: list[int]) -> records.Json:
    """Counts of clients who do not say which answers are right; each tenth that was dropped was refused at the door."""
    refused = [n // 10 for n in dropped]
    return records.counts(in_time, dropped, correct) | {"correct": [], "correct_late": [], "refused": refused}


def printed(log: ReadLog, width: int, *keep: str, rival: ReadLog | None = None, colour: bool = False) -> str:
    """What is printed of the log on a terminal of this width."""
    out = StringIO()
    system = "standard" if colour else None
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system=system,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    asked = conditions_of(keep, [tenant.name for tenant in log.header.tenants])
    with patch("migrator.views.summary.program", lambda: "migrator"):
        print_summary(log, report_of(log), rival, asked, console)
    return out.getvalue()


def texts(log: ReadLog, *keep: str, rival: ReadLog | None = None) -> str:
    """What is printed at every width, and in colour."""
    found = {f"{width} columns": printed(log, width, *keep, rival=rival) for width in WIDTHS}
    found["80 columns, in colour"] = printed(log, 80, *keep, rival=rival, colour=True).replace("\x1b", "^[")
    blocks = (
        f"=== {title}\n" + "".join(f"{line.rstrip()}\n" for line in text.splitlines()) for title, text in found.items()
    )
    return "\n".join(blocks)


LOGS: Mapping[str, Callable[[], str]] = {
    "one": lambda: texts(records.log_of(*run_of(1))),
    "two": lambda: texts(records.log_of(*run_of(2)), rival=records.log_of(*run_of(2, policy="static"))),
    "twenty": lambda: texts(records.log_of(*run_of(20))),
    "kept": lambda: texts(records.log_of(*run_of(2)), "goodput:vision>=0.7", "slo_attainment:language>=0.9"),
    "clients": lambda: texts(records.log_of(*run_of(2, unlabelled, simulated=False))),
}
"""By file, what it holds."""


if __name__ == "__main__":
    for name, text in LOGS.items():
        (GOLDEN / f"{name}.txt").write_text(text(), "utf-8")
