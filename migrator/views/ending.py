"""All that a terminal tells of a run: tables, its layout over time, retrainings, and what it won over a policy."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from migrator.log.account import Account, account_in, accounts, had_same_requests, waits_for_others
from migrator.log.changes import RETRAINING, Tenure, changes_in
from migrator.log.report import Report
from migrator.log.runlog import ReadLog
from migrator.log.slow_plans import slow_plans
from migrator.log.timeline import new_models
from migrator.terminal.console import escape
from migrator.views.palette import shown
from migrator.views.report import print_report
from migrator.views.strips import GUTTER, Bar, TimeScale, gantt, print_chart, tenant_letters

LOSSES_IN_WORDS = {
    "wrong_old": "wrong answers of models not yet retrained",
    "wrong_new": "wrong answers of retrained models",
    "capacity": "requests beyond what the instances could serve",
    "reconfiguration": "requests missed while instances changed",
    "queueing": "requests that waited too long in a burst or for a batch",
    "forecast": "requests missed for not knowing the arrivals",
}
"""The classes of an account that are not goodput, in words."""

_WHAT_IT_IS = {
    "static": "the best layout that never changes, chosen in hindsight",
    "oracle": "this planner, told what will come",
}
"""What a rival that needs a word is."""

_LEAST_POINTS = 0.1
"""Points of the arrivals below which a class is not worth a word."""


def print_full(log: ReadLog, report: Report, rival: ReadLog | None, console: Console) -> None:
    """Print all about a run; with ``rival``, what it won over that policy on the same requests, too."""
    if rival is not None and had_same_requests(log, rival):
        print_against(log, rival, console)
    print_report(report, console)
    print_layout_over_time(log, console)
    print_retrainings(log, console)
    if told := slow_plans(log):
        console.print(f"[bold yellow]slow plans:[/] {escape(told)}")


def print_layout_over_time(log: ReadLog, console: Console) -> None:
    """Print what every memory slice did in every second of the run; nothing where tenants had no instances."""
    if log.header.sharing != "instances" or not log.settled:
        return
    n_rows, n_seconds = log.header.memory_slices, (1 + max(log.settled)) * round(log.header.window_s)
    names = [tenant.name for tenant in log.header.tenants]
    letters, scale = tenant_letters(names), TimeScale.within(n_seconds, console.width - GUTTER)
    lines = gantt(tuple(_bars(log, names, n_seconds)), n_rows, scale, letters)
    meanings = ", ".join(f"{letter}: {escape(name)}" for letter, name in zip(letters, names, strict=True))
    console.print(f"\nThe layout over time, {meanings}")
    print_chart(console, lines, [f"slice {row}" for row in range(n_rows)], scale, "second")


MOST_RETRAININGS = 8
"""Of a tenant, that are printed one by one."""


def print_retrainings(log: ReadLog, console: Console) -> None:
    """Print when each tenant's model got better or worse, from which accuracy to which; nothing where none trains."""
    trained = [tenant.name for tenant in log.header.tenants if tenant.retraining_s]
    if not trained or not log.settled:
        return
    found = new_models(log)
    console.print("\nRetrainings: the second at which each ended, and right answers before and after it, %")
    for name in trained:
        own = [one for one in found if one.tenant == name]
        told = [
            f"{one.at_s:,.0f} s {100 * one.before:.1f} → {100 * one.after:.1f}{' (in part)' if one.is_part else ''}"
            for one in own[:MOST_RETRAININGS]
        ]
        more = [f"and {len(own) - len(told):,} more"] if len(own) > len(told) else []
        console.print(f"  {escape(name)}: {', '.join([*told, *more]) or 'none ended'}")


def _bars(log: ReadLog, names: list[str], n_seconds: int) -> Iterator[Bar]:
    gpu = log.gpu
    changes = changes_in(log)
    loans = {item.name for change in changes for item in change.loans}
    begun = [item for change in changes for item in change.begun if item.tenant == item.members[0]]
    stretches = [(item, one) for item in begun for one in _stretches(item, is_loan=item.name in loans)]
    for item, moments_s in stretches:
        placement = gpu.placement(item.placement)
        create, serve, end = (round(min(max(0.0, at_s), n_seconds)) for at_s in moments_s)
        yield Bar(
            first_row=placement.start,
            end_row=placement.end,
            create_step=create,
            serve_step=serve,
            end_step=end,
            tenant=names.index(item.tenant),
            is_retraining=item.task == RETRAINING,
            label=placement.profile.name.partition(".")[0],
            others=tuple(map(names.index, item.members[1:])),
            is_lent=item.name in loans,
        )


def _stretches(item: Tenure, *, is_loan: bool) -> Iterator[tuple[float, float, float]]:
    """The moments of the parts of an instance's life in which it is not lent; a loan starts up beside those."""
    create_s, serve_s, end_s = _moments(item)
    if is_loan:
        yield serve_s, serve_s, end_s
        return
    for from_s, to_s in sorted(item.lent):
        if create_s < from_s < end_s:
            yield create_s, min(serve_s, from_s), from_s
            create_s, serve_s = to_s, max(serve_s, to_s)
    if create_s < end_s:
        yield create_s, serve_s, end_s


def _moments(item: Tenure) -> tuple[float, float, float]:
    """When it takes its slices, serves or trains, and is gone; one that never was ready serves never."""
    return item.begin_s, item.gone_s if item.ready is None else item.up_s, item.gone_s


def print_against(log: ReadLog, rival: ReadLog, console: Console) -> None:
    """Print what the run's policy won over the rival's, what it lost and why; both logs are of the same requests."""
    own, other = (account_in(log, accounts(one), log.settled) for one in (log, rival))
    if not own.arrivals:
        return
    gained = own.goodput - other.goodput
    relative = f" ({100 * gained / other.goodput:+z.1f} %)" if other.goodput else ""
    policy = rival.header.policy
    what = f", {_WHAT_IT_IS[policy]}," if policy in _WHAT_IT_IS else ""
    name = shown(policy)
    console.print(
        f"\n[bold]{'Won' if gained >= 0 else 'Lost'}[/] against {escape(name)}{what} on the same {own.arrivals:,.0f} "
        f"requests: {100 * own.shares['goodput']:.1f} % were answered in time and right, {name} has "
        f"{100 * other.shares['goodput']:.1f} %: {abs(gained):,.0f} {'more' if gained >= 0 else 'fewer'}"
        f"{relative}{_where_from(own, other)}."
    )
    waited = sum(float(each.sum()) for each in waits_for_others(log, accounts(log)).values()) / own.arrivals
    of_waits = f" ({100 * waited:.1f} % for others of their pool)" if 100 * waited >= _LEAST_POINTS else ""
    lost = [
        f"{100 * share:.1f} % {LOSSES_IN_WORDS[cause]}{of_waits if cause == 'queueing' else ''}"
        for cause, share in _lost(own)
        if 100 * share >= _LEAST_POINTS
    ]
    console.print(f"[bold]Lost[/] all the same: {'; '.join(lost) if lost else 'next to nothing'}. Simulated.")


def _lost(account: Account) -> list[tuple[str, float]]:
    """The classes that are not goodput, the largest first."""
    found = [(cause, share) for cause, share in account.shares.items() if cause != "goodput"]
    return sorted(found, key=lambda item: -item[1])


def _where_from(own: Account, other: Account) -> str:
    """The class that changed most for the better, and the one that changed most for the worse."""
    points = {cause: 100 * (own.shares[cause] - other.shares[cause]) for cause in LOSSES_IN_WORDS}
    least, most = min(points, key=lambda cause: points[cause]), max(points, key=lambda cause: points[cause])
    fewer = f"{-points[least]:.1f} points fewer {LOSSES_IN_WORDS[least]}" if points[least] <= -_LEAST_POINTS else ""
    more = f"{points[most]:.1f} points more {LOSSES_IN_WORDS[most]}" if points[most] >= _LEAST_POINTS else ""
    said = " against ".join(filter(None, (fewer, more)))
    return f"; {said}" if said else ""
