"""What clients say of answers: which label was right, by the id of the request that they asked with."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

from pydantic_core import from_json

from workloads.live.open_inference import ProtocolError

MOST_REMEMBERED = 1_000_000
"""Requests of one tenant whose answers are remembered; the oldest go first."""

MOST_BYTES = 2**16
"""Of one body."""

LABEL_BYTES = 2
"""Of one answer, as :data:`workloads.learning.experiences.LABEL_BYTES`."""

_MOST_LABEL = 2 ** (8 * LABEL_BYTES) - 1
_N_VERSIONS = 2**12
_VERSION_AT = 8 * LABEL_BYTES
_SECONDS_AT = _VERSION_AT + _N_VERSIONS.bit_length() - 1


class Answered:
    """The answers to one tenant's requests that had an id, for ``keep_s`` seconds.

    An id is kept as eight bytes of its digest; a single answer with its second and its version's number in one, so that
    a million of them take about 100 MiB. It knows the last 4,096 versions of a tenant.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._answers: dict[int, int | tuple[int, bytes, tuple[int, ...]]] = {}  # oldest first
        self._versions: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._n_versions = 0

    def __len__(self) -> int:
        return len(self._answers)

    def keep(self, request: str, labels: bytes, versions: Sequence[str], now_s: float) -> None:
        """Remember what a request was answered with: its samples' labels one after the other, each by its version."""
        key, second, numbers = _key(request), int(now_s), tuple(map(self._number, versions))
        self._answers.pop(key, None)
        if len(numbers) == 1:
            told = second << _SECONDS_AT | numbers[0] << _VERSION_AT | int.from_bytes(labels, "little")
            self._answers[key] = told
        else:
            self._answers[key] = second, labels, numbers
        self._forget(now_s)

    def judge(self, request: str, labels: tuple[int, ...], now_s: float) -> dict[str, tuple[int, int]]:
        """By version, how many of a request's answers are its own, and how many of them are these labels.

        The request is forgotten then, so that each label counts once.

        Raises:
            ProtocolError: It is unknown or too old (404), or has another number of answers (400).
        """
        self._forget(now_s)
        found = self._answers.get(_key(request))
        if found is None:
            message = f"id {request[:100]!r}: no answer to it within {self._keep_s:g} s waits for a label"
            raise ProtocolError(message, 404)
        numbers: tuple[int, ...]
        if isinstance(found, int):
            answers, numbers = [found & _MOST_LABEL], ((found >> _VERSION_AT) % _N_VERSIONS,)
        else:
            _, raw, numbers = found
            answers = [int.from_bytes(raw[at : at + LABEL_BYTES], "little") for at in range(0, len(raw), LABEL_BYTES)]
        if len(answers) != len(labels):
            raise ProtocolError(f"labels: {len(labels)} of them; id {request[:100]!r} has {len(answers)} answers")
        del self._answers[_key(request)]
        judged = dict[str, tuple[int, int]]()
        for answer, label, number in zip(answers, labels, numbers, strict=True):
            n_labels, n_right = judged.get(version := self._versions[number], (0, 0))
            judged[version] = n_labels + 1, n_right + (answer == label)
        return judged

    def _number(self, version: str) -> int:
        """By which the version is remembered."""
        number = self._numbers.get(version, -1)
        if self._versions.get(number) != version:
            number = self._numbers[version] = self._n_versions % _N_VERSIONS
            self._numbers.pop(self._versions.get(number, ""), None)
            self._versions[number] = version
            self._n_versions += 1
        return number

    def _forget(self, now_s: float) -> None:
        """Forget what is too old, and beyond the most."""
        least_s = now_s - self._keep_s
        too_many = max(0, len(self._answers) - MOST_REMEMBERED)
        old = list(islice(self._answers, too_many))
        for key, found in islice(self._answers.items(), too_many, None):
            if (found >> _SECONDS_AT if isinstance(found, int) else found[0]) >= least_s:
                break
            old.append(key)
        for key in old:
            del self._answers[key]


def judgement(body: bytes | bytearray) -> tuple[str, tuple[int, ...]]:
    """The id and the labels, one a sample, of a body: ``{"id": "a", "label": 3}``, or ``labels`` with a list.

    Raises:
        ProtocolError: It says something else.
    """
    try:
        said: Any = from_json(body)
    except ValueError as error:
        raise ProtocolError(f"the body is no JSON: {error}") from None
    if not isinstance(said, dict) or not isinstance(said.get("id"), str):
        raise ProtocolError("id: it is missing; the text that the request was asked with is needed")
    if ("label" in said) == ("labels" in said):
        raise ProtocolError("label, or labels with one for each sample, is needed")
    labels = [said["label"]] if "label" in said else said["labels"]
    if not isinstance(labels, list) or any(type(one) is not int or not 0 <= one <= _MOST_LABEL for one in labels):
        raise ProtocolError(f"labels: {str(labels)[:60]}; whole numbers from 0 to {_MOST_LABEL} are needed")
    return said["id"], tuple(labels)


def _key(request: str) -> int:
    return int.from_bytes(sha256(request.encode("utf-8", "surrogatepass")).digest()[:8], "little")
