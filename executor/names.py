"""Names as people type them, and as we write them."""

from __future__ import annotations

from collections.abc import Iterable


def spelled_as(name: str, known: Iterable[str]) -> str:
    """The one of ``known`` that equals ``name`` but for the case of its letters; ``name`` itself where none does.

    A name that is known as it stands comes back unchanged, also where another differs from it in case alone.
    """
    names = tuple(known)
    if name in names:
        return name
    alike = [other for other in names if other.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else name
