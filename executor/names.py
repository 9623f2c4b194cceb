"""Names as people type them, and as we write them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def spelled_as(name: str, known: Iterable[str]) -> str:
    """The one of ``known`` that equals ``name`` but for the case of its letters; ``name`` itself where none does.

    A name that is known as it stands comes back unchanged, also where another differs from it in case alone.
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question whether :func:`nearest` was meant, to be put behind the name; empty where there is none."""
    meant = nearest(name, known)
    return f" (did you mean {meant}?)" if meant else ""
