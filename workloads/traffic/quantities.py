"""What the name of a column says of its numbers, also where it is an expression of PromQL. Names are in lower case."""

from __future__ import annotations

import re
from enum import Enum, auto


class Quantity(Enum):
    """What the numbers of a column are, by its name."""

    COUNT = auto()
    """Requests of the row."""

    RATE = auto()
    """Requests a second."""

    INCREASE = auto()
    """Requests of the time over which PromQL looks back, see :func:`range_s`."""

    TOTAL = auto()
    """All requests until then."""

    UNSAID = auto()
    """Any of these: the name says nothing (``value``), or not of which unit (``rate``)."""

    OTHER = auto()
    """Another quantity or unit, or a name that is not known."""


_COUNT_WORDS = re.compile(
    r"(?:requests?|reqs?|quer(?:y|ies)|hits?|calls?|invocations?|arrivals?|inferences?|events?|counts?|cnt|totals?"
    r"|numbers?|num|https?|api|rpc|grpc|incoming|received|all|sum)+|n|of|the"
)
"""Words of which such names are made, if they are taken without being asked: a name with any other word
(``in_flight``, ``rpm``, ``length``, ``k``) names another quantity or another unit."""

_SAYS_COUNT = re.compile(
    r".*(requests|reqs?$|queries|hits|calls|invocations|arrivals|inferences|count|cnt|total).*|n|num.*"
)
_RATE_WORDS = re.compile(r"rate|throughput|value")
_A_SECOND = re.compile(r"(?P<what>[\w #()\[\]]*?)(?:rps|qps|(?:/|per)[\s_]*s(?:ec(?:ond)?)?)[])]?")
_UNSAID = re.compile(r"value(?: #\w+)?|(?:(?:requests?|reqs?|query)[ _])?rate|")

_REQUESTS = r"requests|reqs|queries|hits|calls|invocations|inferences|arrivals"
_CALL = re.compile(
    r"(?:sum ?(?:(?:by|without) ?\([\w, ]*\) ?)?\( ?)?(?P<function>rate|increase) ?\( ?"
    rf"[\w:]*(?:(?:{_REQUESTS}|request_success)(?:_total)?|(?:{_REQUESTS}|request)(?:_\w+)?_count)"
    r"(?:\{[^{}]*\})? ?\[(?P<range>[^\[\]]*)\] ?\)(?: ?\))?(?: ?(?:by|without) ?\([\w, ]*\))?"
)
_LONGEST_CALL = 1_000
_LABELLED = re.compile(r"(?P<metric>[\w:]*)\{.*\}")
_RANGE = re.compile(r"(\d{1,6})([smh])")


def words_of(name: str) -> list[str]:
    """The words of which a name is made, and signs that stand for a unit."""
    return re.findall(r"[^\W_]+|[%$]", name)


def quantity_of(name: str) -> Quantity:
    """What the name says."""
    called, labelled, a_second = _called(name), _LABELLED.fullmatch(name), _A_SECOND.fullmatch(name)
    if _is_count(name):
        return Quantity.COUNT
    if called:
        return Quantity.RATE if called["function"] == "rate" else Quantity.INCREASE
    if labelled:
        is_total = labelled["metric"].endswith(("_total", "_count", "_sum", "_bucket"))
        return Quantity.TOTAL if is_total else quantity_of(labelled["metric"])
    if a_second:
        words = words_of(a_second["what"])
        if all(_COUNT_WORDS.fullmatch(word) or _RATE_WORDS.fullmatch(word) for word in words):
            return Quantity.RATE
    return Quantity.UNSAID if _UNSAID.fullmatch(name) else Quantity.OTHER


def range_s(name: str) -> int | None:
    """How many seconds ``rate(…[1m])`` or ``increase(…[1m])`` look back; ``None`` if it is not in one unit."""
    called = _called(name)
    length = _RANGE.fullmatch(called["range"]) if called else None
    return None if length is None else int(length[1]) * {"s": 1, "m": 60, "h": 3600}[length[2]]


def _called(name: str) -> re.Match[str] | None:
    return _CALL.fullmatch(name) if len(name) <= _LONGEST_CALL else None


def _is_count(name: str) -> bool:
    words = words_of(name)
    # Behind another word they number a request: request_no, request_number.
    is_ordinal = len(words) > 1 and words[-1] in {"n", "num", "number"}
    is_plain = re.fullmatch(r"[\w #()-]*", name) is not None
    is_known = is_plain and all(_COUNT_WORDS.fullmatch(word) for word in words)
    return is_known and not is_ordinal and any(_SAYS_COUNT.fullmatch(word) for word in words)
