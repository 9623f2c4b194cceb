"""Names as people type them, and as we write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def spelled_as(name: str, known: Iterable[str]) -> str:
    """The one of ``known`` that equals ``name`` but for the case of its letters; ``name`` itself where none does.

    A known name comes back unchanged, also where another differs from it in case alone.
    """
    names = tuple(known)
    if name in names:
        return name
    alike = [other for other in names if other.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else name


_LONGEST = 60
"""Characters of a name that are compared: what is longer than any of ours takes long to compare."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that was probably meant: the most like, else the first that begins so; ``None`` without any.

    The case of letters does not count.
    """
    folded = {other.casefold(): other for other in known}
    typed = name[:_LONGEST].casefold()
    alike = get_close_matches(typed, folded, n=1) or [other for other in folded if typed and other.startswith(typed)]
    return folded[alike[0]] if alike else None


_CHIP = re.compile(r"(?:[a-z]+-)*[a-z]*\d+[a-z]*(?![a-z0-9])")


def slug(title: str) -> str:
    """A card's name made of what its driver calls it: ``NVIDIA A100-SXM4-80GB`` is ``a100-sxm4-80gb``."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower().removeprefix("nvidia ")))


def chip_of(name: str) -> str:
    """The chip in a card's name or title: ``a100`` of ``a100-80gb``, ``rtx-pro-6000`` of ``rtx-pro-6000-96gb``.

    All of a name that tells no chip.
    """
    whole = slug(name)
    found = _CHIP.match(whole)
    return whole if found is None else found[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question whether :func:`nearest` was meant, to be put behind the name; empty where there is none."""
    meant = nearest(name, known)
    return f" (did you mean {meant}?)" if meant else ""
