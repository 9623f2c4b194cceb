"""All that a test claims of one thing, told together: what does not hold is collected, and the test fails once."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Self

import pytest


class Claims:
    """Claims of one thing; on leaving, the test fails with every one that does not hold, and with what was raised."""

    def __init__(self, of: object) -> None:
        self.of = of
        self.broken: list[str] = []

    def __call__(self, holds: object, otherwise: str) -> None:
        """Claim that ``holds`` is true; ``otherwise`` says what is wrong if it is not."""
        if not holds:
            self.broken.append(otherwise)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self.broken.append("".join(traceback.format_exception(error)))
        elif error is not None:
            return
        if self.broken:
            pytest.fail(f"{self.of}:\n" + "\n".join(self.broken), pytrace=False)
