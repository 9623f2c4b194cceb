"""Answers that a search keeps for as long as it lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast
from weakref import WeakMethod

P = ParamSpec("P")
Answer = TypeVar("Answer")


def remembered(method: Callable[P, Answer], most: int | None = None) -> Callable[P, Answer]:
    """The bound method, whose last ``most`` answers are kept, or all: for its owner to hold.

    The owner is not held: its tables are gone with it. A cache of the method itself would keep both until a full
    collection, which a service whose objects live long makes once in hours.
    """
    weak = WeakMethod(method)

    def ask(*args: P.args, **kwargs: P.kwargs) -> Answer:
        own = weak()
        assert own is not None  # who asks holds the owner
        return own(*args, **kwargs)

    return cast("Callable[P, Answer]", lru_cache(most)(ask))
