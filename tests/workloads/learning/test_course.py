"""What a retraining is asked and tells, as values and as lines."""

from __future__ import annotations

import math

import pytest

from workloads.errors import LearningError
from workloads.learning.course import (
    Checkpoint,
    Failed,
    Finished,
    Option,
    Progress,
    Started,
    Stepped,
    Told,
    line_of,
    message_in,
)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"trainer": "keras"}, "trainer is 'keras'; one of plain, avalanche"),
        ({"strategy": "ewc"}, "trainer plain knows naive, replay"),
        ({"n_samples": 0}, "n_samples is 0; a whole number ≥ 1"),
        ({"n_epochs": 1.5}, "n_epochs is 1.5"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"checkpoints": (0.5, 0.5)}, r"checkpoints are \[0.5, 0.5\]"),
        ({"checkpoints": (0.5, 1.0)}, "rising shares inside 0 to 1"),
    ],
)
def test_an_option_that_cannot_be_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(LearningError, match=said):
        Option("full", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "told",
    [
        Started(0.1, "random", 2.0),
        Progress(3.0, 0.5, 0.25, 100.0, 3.0),
        Stepped((0.1, 0.25), 3.5),
        Checkpoint(0.25, 0.5, "a b.safetensors", 4.0),
        Finished(0.9, "final.safetensors", 5.0),
        Failed("deadline", "60 % done\nat the end", 6.0),
    ],
)
def test_a_line_comes_back_as_what_was_told(told: Told) -> None:
    assert message_in(line_of(told)) == told


def test_a_line_is_one_line() -> None:
    assert line_of(Failed("error", "a\nb", 1.0)).count(b"\n") == 1


def test_a_loss_that_is_no_number_is_none() -> None:
    assert message_in(line_of(Progress(1.0, 0.1, math.nan, 1.0, None))) == Progress(1.0, 0.1, None, 1.0, None)


@pytest.mark.parametrize("line", [b"", b"[]\n", b'{"kind": "won"}\n', b'{"kind": "started"}\n', b"\xff\n", b"{}\n"])
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(LearningError, match="a line of JSON of a known kind is needed"):
        message_in(line)
