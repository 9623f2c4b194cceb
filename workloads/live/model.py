"""What answers requests, and how it is found by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

from executor.names import spelled_as
from workloads.errors import WorkloadError

CATALOGUE: Mapping[str, str] = {
    name: f"workloads.learning.models:{name}"
    for name in (
        "mlp",
        "cnn",
        "cnn_wide",
        "resnet50",
        "mobilenet_v2",
        "inception_v3",
        "vit_b_16",
        "convnext_base",
        "bert_base",
    )
}
"""The models that have a name of their own, as ``module:callable``. Their modules are imported when they are used."""


class ModelError(WorkloadError, ValueError):
    """There is no such model, it cannot be made, or it answers otherwise than it should."""


class WeightsError(WorkloadError, ValueError):
    """The file holds no weights that fit the model; the model answers with those that it had."""


@runtime_checkable
class Model(Protocol):
    """What answers requests: loaded once, fed batches."""

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        """One answer an input, in the same order; the bytes are the tenant's own format."""

    def load(self, weights: Path) -> None:
        """Take new weights, in place, between two batches.

        Raises:
            WeightsError: The file does not fit; the old weights stay.
        """


def factory(name: str, catalogue: Mapping[str, str] = CATALOGUE) -> Callable[..., object]:
    """What makes the model: the catalogue's, or the callable of ``module:callable``. Its module is imported.

    Raises:
        ModelError: The name is neither, or the module cannot be imported or has no such callable.
    """
    place = catalogue.get(spelled_as(name.replace("-", "_"), catalogue), name)  # tables spell names with hyphens
    module_name, colon, attribute = place.partition(":")
    if not (colon and module_name and attribute):
        known = ", ".join(sorted(catalogue)) or "none"
        raise ModelError(f"model {name!r}: unknown; allowed: module:callable, or one of the catalogue ({known})")
    made: object = getattr(imported(module_name, name), attribute, None)
    if not callable(made):
        what = "has no such name" if made is None else f"holds {type(made).__name__} there, not a callable"
        raise ModelError(f"model {name!r}: {module_name} {what}: {attribute}")
    return made


def imported(module_name: str, name: str) -> ModuleType:
    """The module, which the model of this name needs.

    Raises:
        ModelError: It cannot be imported.
    """
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ModelError(f"model {name!r}: cannot import {module_name}: {_text(error)}") from error


def loaded(name: str, options: Mapping[str, object], catalogue: Mapping[str, str] = CATALOGUE) -> Model:
    """The model of this name, made with the tenant's options.

    Raises:
        ModelError: As :func:`factory`; or the callable raises, or returns something without ``answer`` and ``load``.
    """
    return made_by(factory(name, catalogue), name, options)


def made_by(make: Callable[..., object], name: str, options: Mapping[str, object]) -> Model:
    """What the callable returns for these options.

    Raises:
        ModelError: It raises, or returns no model.
    """
    try:
        model = make(**options)
    except (Exception, SystemExit) as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "no options"
        raise ModelError(f"model {name!r} with {given}: {_text(error)}") from error
    if not isinstance(model, Model):
        raise ModelError(f"model {name!r}: returns {type(model).__name__}, which lacks answer(inputs) or load(weights)")
    return model


def answers_of(model: Model, inputs: Sequence[bytes]) -> list[bytes]:
    """The model's answers, one an input.

    Raises:
        ModelError: The model raises, or returns something else; the message says what, and where.
    """
    try:
        answers = list(model.answer(inputs))
    except (Exception, SystemExit) as error:
        raise ModelError(f"the model raised {_text(error)}") from error
    if len(answers) != len(inputs):
        raise ModelError(f"the model returned {len(answers)} answers to {len(inputs)} inputs")
    for answer in answers:
        if not isinstance(answer, bytes):
            raise ModelError(f"the model answered with {type(answer).__name__}; bytes are needed")
    return answers


def take_weights(model: Model, weights: Path) -> str:
    """Have the model load the file; why it could not, or nothing."""
    try:
        model.load(weights)
    except WeightsError as error:
        return str(error)[:1000]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's own code
        return f"weights {weights}: the model raised {_text(error)}"[:1000]
    return ""


def _text(error: BaseException) -> str:
    """The error's kind, message and innermost line, in one line of at most 300 characters."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the message is the user's own code as well
        message = "(without a readable message)"
    place = ""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and trace.tb_frame.f_code.co_filename != __file__:
        place = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
    return f"{type(error).__name__}: {message}"[: 300 - len(place)] + place
