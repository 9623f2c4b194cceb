"""One colour, one meaning, in every table, page and plot: of a tenant, a policy, a cause of loss, a varied value.

No colour of one kind is a colour of another. Terminals have names for tenants' colours, pages and plots hexadecimal
ones. What a colour says, a letter, a mark, a pattern or a number says as well.
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
        "mudi": "#7B6FD0",
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
        "goodput": "#18804F",
        "wrong_old": "#EEDD88",
        "wrong_new": "#D5D5D5",
        "capacity": "#EE9F82",
        "reconfiguration": "#8CB6E0",
        "forecast": "#FFB3C1",
        "queueing": "#A8E1F5",
    }
)
"""By the class of an account: goodput is brightest, on losses dark numbers can be read, and nothing wrong is green."""

VALUES = ("#332288", "#44AA99", "#DDCC77", "#CC6677", "#88CCEE", "#117733", "#AA4499", "#999933")
"""Of the values of a varied key, in their order; Tol's muted ones."""

ALL_WORKLOADS = "#8FB0C7"
"""Of a figure over all workloads together."""


IN_THE_DARK: Mapping[str, str] = MappingProxyType(
    {
        LOSSES["goodput"]: "#5AD19B",
        LOSSES["wrong_old"]: "#786A2E",
        LOSSES["wrong_new"]: "#5C5F63",
        LOSSES["capacity"]: "#8F4A33",
        LOSSES["reconfiguration"]: "#3F6288",
        LOSSES["forecast"]: "#8A4A5C",
        LOSSES["queueing"]: "#2F7085",
        POLICIES["migrator"]: "#3B9BDB",
        POLICIES["migrator-paper-cold"]: "#6C9DB8",
        POLICIES["paris-changing"]: "#4FB399",
        POLICIES["time-sharing"]: "#D070A0",
        POLICIES["window"]: "#C46A96",
        POLICIES["equal"]: "#B08A5B",
        POLICIES["oracle"]: "#FFFFFF",
        OWN_POLICIES[0]: "#A98BE0",
        OWN_POLICIES[1]: "#E8707A",
        OWN_POLICIES[3]: "#EE7DB5",
        OWN_POLICIES[4]: "#CC8A4A",
        UNKNOWN_POLICY: "#AAAAAA",
        ALL_WORKLOADS: "#557C96",
        VALUES[0]: "#9C8CF0",
        VALUES[3]: "#E08A98",
        VALUES[5]: "#3FA35C",
        VALUES[6]: "#D07AC4",
    }
)
"""What takes a colour's place on a dark page, where it would not be seen, or where its kin would be too bright."""


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
