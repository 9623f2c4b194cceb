"""One colour, one meaning, in every table, page and plot: of a tenant, a policy, a cause of loss, a varied value.

No colour of one kind is a colour of another. Terminals have names for tenants' colours, pages and plots hexadecimal
ones. What is told by colour is told by a letter, a mark, a pattern or a number as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

TENANTS = ("cyan", "magenta", "green", "blue", "dark_orange", "medium_purple1", "deep_pink2")
"""By tenant index, in terminals. Red is what falls short or went wrong, yellow what to be careful with."""

PAGE_TENANTS = ("#3366AA", "#C2571A", "#2E8B57", "#8E5BB5", "#9A7B00", "#1A8FA0", "#B5487F")
"""By tenant index, on pages; each is seen on white and on black."""

SHORT = "red"
"""In terminals: less than what is needed."""

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "migrator": "#0072B2",
        "migrator-paper": "#56B4E9",
        "migrator-paper-cold": "#2F6F94",
        "ekya": "#D55E00",
        "astraea": "#E69F00",
        "paris": "#009E73",
        "paris-changing": "#00664A",
        "whole": "#CC79A7",
        "time-sharing": "#AA3377",
        "reactive": "#8A7A00",
        "window": "#882255",
        "equal": "#6B4C2A",
        "static": "#7F7F7F",
        "static-history": "#B5B5B5",
        "oracle": "#000000",
    }
)
"""Okabe and Ito's, which the colour-blind tell apart; darker kin where these are used up."""

OWN_POLICIES = ("#5E3C99", "#B2182B", "#4D9221", "#C51B7D", "#A6611A")
"""Of policies from files, in the order in which they appear; more of them take the same with a pattern."""

UNKNOWN_POLICY = "#555555"
"""In plots that know the shipped policies alone."""

LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "goodput": "#C9D6DF",
        "wrong_old": "#EEDD88",
        "wrong_new": "#BBCC33",
        "capacity": "#EE8866",
        "reconfiguration": "#77AADD",
        "forecast": "#FFAABB",
        "queueing": "#44BB99",
    }
)
"""By the class of an account: a calm colour for goodput, and Tol's light ones, on which dark numbers can be read."""

VALUES = ("#332288", "#44AA99", "#DDCC77", "#CC6677", "#88CCEE", "#117733", "#AA4499", "#999933")
"""Of the values of a varied key, in their order; Tol's muted ones."""

ALL_WORKLOADS = "#8FB0C7"
"""Of a figure over all workloads together."""


def shown(policy: str) -> str:
    """What tables and plots for people call a policy: ``oracle`` is no seer, it plans with the arrivals known."""
    return "arrivals known" if policy == "oracle" else policy


def policy_looks(names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """A colour for each policy, the same wherever it appears, and the number of a pattern, 0 for none.

    Policies from files have the colours that are left, and a pattern when those are used up.
    """
    own = [name for name in dict.fromkeys(names) if name not in POLICIES]
    looks = {name: (OWN_POLICIES[n % len(OWN_POLICIES)], n // len(OWN_POLICIES)) for n, name in enumerate(own)}
    return {name: looks.get(name) or (POLICIES[name], 0) for name in names}
