"""HiGHS, without a word on standard output: what a program reads there is a command's own."""

from __future__ import annotations

import highspy


class SilentHighs(highspy.Highs):
    """A model that prints nothing; from 1.16 on HiGHS prints a banner as soon as a model of it is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def enableCallbacks(self) -> None:  # noqa: N802 - HiGHS's name; its models call this as they are made
        """Hear of the search, after output was turned off: it is this that prints the banner."""
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]
