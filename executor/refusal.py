"""Messages of errors, for people: what a file or a caller gave is shown, but not all of it where it is long."""

from __future__ import annotations

import re

LONGEST_LINE = 2000
"""Characters of a message that are shown."""

_LONGEST_VALUE = 300
"""Characters of one value in it: longer than most paths."""

_KEPT = 120, 40
"""Characters of a longer value's beginning and end that are shown."""

_LONG_VALUE = re.compile(
    r"""(?<!\w)'[^']{N,}'(?!\w)|(?<!\w)"[^"]{N,}"(?!\w)|\[[^\[\]]{N,}\]|\S{N,}""".replace("N", str(_LONGEST_VALUE))
)


class Refusal(Exception):  # noqa: N818 (the error trees begin above it)
    """The base of all errors of ours: the text is :func:`brief`, whatever the message quotes."""

    def __str__(self) -> str:
        return brief(super().__str__())


def brief(message: str) -> str:
    """The message with every long word, quoted text and list cut in its middle, in :data:`LONGEST_LINE` characters.

    Its beginning says where the value stands, and its end what is allowed: both are kept.
    """
    first, last = _KEPT
    short = _LONG_VALUE.sub(lambda value: f"{value[0][:first]}…{value[0][-last:]}", message)
    half = LONGEST_LINE // 2
    return short if len(short) <= LONGEST_LINE else f"{short[:half]} … {short[-half:]}"
