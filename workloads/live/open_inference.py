"""The Open Inference Protocol, version 2: what an HTTP request asks for, and its answers; no sockets here.

A tenant's model has one input and one output, both tensors whose first dimension counts samples. Tensors come and go
as JSON numbers, or as little-endian bytes behind the JSON (the binary tensor extension), whose length a header tells.

Source: the protocol's REST specification (github.com/kserve/open-inference-protocol) and Triton's extension
"binary tensor data".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from workloads.errors import WorkloadError

DATATYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "BOOL": "?",
        "UINT8": "<u1",
        "UINT16": "<u2",
        "UINT32": "<u4",
        "UINT64": "<u8",
        "INT8": "<i1",
        "INT16": "<i2",
        "INT32": "<i4",
        "INT64": "<i8",
        "FP16": "<f2",
        "FP32": "<f4",
        "FP64": "<f8",
    }.items()
}
"""The protocol's names of numbers of a fixed size, so all but ``BYTES``, as numpy has them."""

MOST_JSON_BYTES = 2**21
"""Of a request: JSON is read in one go."""

_KINDS: Mapping[str, frozenset[type]] = {
    "b": frozenset([bool]),
    "u": frozenset([int]),
    "i": frozenset([int]),
    "f": frozenset([int, float]),
}
_WINDOW_BITS = {"gzip": 31, "deflate": 15}


class ProtocolError(WorkloadError, ValueError):
    """What a request is answered with in the place of what it asked for.

    Attributes:
        status: HTTP's.
        retry_after_s: When the client may ask again; ``None``: the answer does not say.
    """

    def __init__(self, message: str, status: int = 400, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a model takes or returns for one sample.

    Attributes:
        name: As clients call it.
        datatype: One of :data:`DATATYPES`.
        shape: Of one sample, without the dimension that counts samples; empty for a single number.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: is empty; a text is needed")
        if self.datatype not in DATATYPES:
            raise ValueError(f"datatype: {self.datatype!r}; allowed: {' '.join(DATATYPES)}")
        if not all(size > 0 for size in self.shape):
            raise ValueError(f"shape: {list(self.shape)}; numbers above 0 are needed")

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return prod(self.shape) * DATATYPES[self.datatype].itemsize

    @property
    def metadata(self) -> dict[str, object]:
        """The tensor as the protocol describes it: −1 stands for any number of samples."""
        return {"name": self.name, "datatype": self.datatype, "shape": [-1, *self.shape]}


@dataclass(frozen=True, slots=True)
class InferenceAsked:
    """What a request asks for.

    Attributes:
        id: The client's own name for the request.
        samples: One sample's bytes each, at least one sample.
        is_binary: Whether the output is wanted as bytes.
        timeout_s: After which the client has no use for answers; ``None``: it did not say.
    """

    id: str | None
    samples: tuple[bytes, ...]
    is_binary: bool
    timeout_s: float | None = None


def asked(
    body: bytes | bytearray, json_bytes: int | None, given: Tensor, wanted: Tensor, most_samples: int
) -> InferenceAsked:
    """What the request asks for.

    Args:
        body: Of the request, decompressed.
        json_bytes: How much of it is JSON; ``None``: all.
        given: The model's input.
        wanted: Its output.
        most_samples: Of one request.

    Raises:
        ProtocolError: The request is none, or does not fit the model; the message names the key and what is allowed.
    """
    size = len(body) if json_bytes is None else json_bytes
    if not 0 < size <= len(body):
        raise ProtocolError(f"{size} bytes of JSON in a body of {len(body)} bytes; allowed: 1 to {len(body)}")
    if size > MOST_JSON_BYTES:
        most = f"allowed: at most {MOST_JSON_BYTES}; send tensors as binary data"
        raise ProtocolError(f"{size} bytes of JSON; {most}", 413)
    try:
        request = from_json(body[:size], allow_inf_nan=False)
    except ValueError as error:
        raise ProtocolError(f"the request is no JSON: {error}") from None
    request = _object(request, "the request")
    parameters = _parameters(request, "the request")
    for name in ("sequence_id", "priority"):
        if parameters.get(name):
            raise ProtocolError(f"parameters.{name}: models here know none; leave it out")
    return InferenceAsked(
        _id(request),
        _samples(_only(request.get("inputs"), "inputs", given), memoryview(body)[size:], given, most_samples),
        _is_binary(request, parameters, wanted),
        _timeout_s(parameters),
    )


def answered(
    request: InferenceAsked,
    model: str,
    wanted: Tensor,
    answers: Sequence[bytes],
    versions: Sequence[str],
    *,
    in_time: bool,
) -> tuple[bytes, int | None]:
    """The body of the response, and how much of it is JSON; ``None``: all.

    Args:
        request: What was asked for.
        model: Its name.
        wanted: The model's output.
        answers: One a sample.
        versions: Of the model, one an answer; told each once, in order, with commas.
        in_time: Whether all answers were there by their deadlines.

    Raises:
        ProtocolError: The model's answers are no such tensor.
    """
    for place, answer in enumerate(answers):
        if len(answer) != wanted.sample_bytes:
            needed = f"{wanted.sample_bytes} are needed, {wanted.datatype} of shape {list(wanted.shape)}"
            raise ProtocolError(f"sample {place}: the model's answer has {len(answer)} bytes; {needed}", 500)
    raw = b"".join(answers)
    output: dict[str, object] = wanted.metadata | {"shape": [len(answers), *wanted.shape]}
    if request.is_binary:
        output["parameters"] = {"binary_data_size": len(raw)}
    else:
        output["data"] = np.frombuffer(raw, DATATYPES[wanted.datatype]).tolist()
    told: dict[str, object] = {"model_name": model, "model_version": ",".join(sorted(set(versions)))}
    told |= {} if request.id is None else {"id": request.id}
    told |= {"parameters": {"in_time": in_time}, "outputs": [output]}
    try:
        text = json.dumps(told, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        message = "the model's answer holds values for which JSON has no number; ask for binary data"
        raise ProtocolError(message, 500) from None
    return (text + raw, len(text)) if request.is_binary else (text, None)


def check_packing(packing: str) -> None:
    """Refuse a ``Content-Encoding`` that :func:`unpacked` does not know; an empty one is none.

    Raises:
        ProtocolError: It is unknown.
    """
    if packing and packing not in _WINDOW_BITS:
        raise ProtocolError(f"Content-Encoding: {packing[:100]!r}; allowed: {' '.join(_WINDOW_BITS)}", 415)


def unpacked(body: bytes | bytearray, packing: str, most_bytes: int) -> bytes:
    """What a body holds that is packed in a way that :func:`check_packing` lets pass, and not empty.

    Raises:
        ProtocolError: The body holds more, is not packed so, not whole or followed by something else.
    """
    inflate = zlib.decompressobj(_WINDOW_BITS[packing])
    try:
        found = inflate.decompress(body, most_bytes + 1)
    except zlib.error:
        raise ProtocolError(f"Content-Encoding: {packing}: the body is not in it") from None
    if len(found) > most_bytes:
        raise too_large(most_bytes)
    if not inflate.eof:
        raise ProtocolError(f"Content-Encoding: {packing}: the body is cut off")
    if inflate.unused_data:
        raise ProtocolError(f"Content-Encoding: {packing}: the body goes on after its end")
    return found


def too_large(most_bytes: int) -> ProtocolError:
    """How a body with more bytes is refused."""
    return ProtocolError(f"a body of more than {most_bytes} bytes; that is the most allowed", 413)


def asked_packed(body: bytes | bytearray, packing: str, most_bytes: int, *rest: Any) -> InferenceAsked:
    """What :func:`asked` says, whose other arguments follow, of a body that is packed unless ``packing`` is empty.

    Raises:
        ProtocolError: As for :func:`unpacked` and :func:`asked`.
    """
    return asked(unpacked(body, packing, most_bytes) if packing else body, *rest)


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"{where}: {_shown(value)}; an object is needed")
    return value


def _parameters(of: dict[str, Any], where: str) -> dict[str, Any]:
    return _object(of.get("parameters", {}), f"{where}: parameters")


def _only(value: object, key: str, tensor: Tensor) -> dict[str, Any]:
    """The one tensor of a list; it has to be called as the model's own."""
    if not isinstance(value, list) or len(value) != 1:
        raise ProtocolError(f"{key}: {_shown(value)}; a list of one tensor is needed: {tensor.name!r}")
    found = _object(value[0], f"{key}[0]")
    if found.get("name") != tensor.name:
        raise ProtocolError(f"{key}[0].name: {_shown(found.get('name'))}; allowed: {tensor.name!r}")
    return found


def _id(request: dict[str, Any]) -> str | None:
    value = request.get("id")
    if value is None or (isinstance(value, str) and len(value) <= 1000):
        return value
    raise ProtocolError(f"id: {_shown(value)}; allowed: text of at most 1000 characters")


def _timeout_s(parameters: dict[str, Any]) -> float | None:
    value = parameters.get("timeout")
    if value is None:
        return None
    if type(value) is not int or not 0 < value < 2**63:
        raise ProtocolError(f"parameters.timeout: {_shown(value)}; allowed: a whole number of microseconds above 0")
    return value / 1e6


def _is_binary(request: dict[str, Any], parameters: dict[str, Any], wanted: Tensor) -> bool:
    """Whether the output is wanted as bytes: as it says itself, else as the request says of all outputs."""
    place, chosen = "parameters.binary_data_output", parameters.get("binary_data_output", False)
    if request.get("outputs"):
        output = _parameters(_only(request["outputs"], "outputs", wanted), "outputs[0]")
        _refuse_shared_memory(output, "outputs[0]")
        if output.get("classification"):
            raise ProtocolError("outputs[0].parameters.classification: is not done here; leave it out")
        if "binary_data" in output:
            place, chosen = "outputs[0].parameters.binary_data", output["binary_data"]
    if not isinstance(chosen, bool):
        raise ProtocolError(f"{place}: {_shown(chosen)}; allowed: true false")
    return chosen


def _samples(tensor: dict[str, Any], raw: memoryview, given: Tensor, most_samples: int) -> tuple[bytes, ...]:
    """The bytes of each sample."""
    shape = (_n_samples(tensor, given, most_samples), *given.shape)
    n_needed = shape[0] * given.sample_bytes
    parameters = _parameters(tensor, "inputs[0]")
    _refuse_shared_memory(parameters, "inputs[0]")
    n_binary = parameters.get("binary_data_size")
    if (n_binary is None) == ("data" not in tensor):
        which = "both are" if "data" in tensor else "neither is"
        raise ProtocolError(f"inputs[0]: data or parameters.binary_data_size is needed; {which} there")
    if n_binary is not None and (type(n_binary) is not int or n_binary != n_needed):
        needed = f"{given.datatype} of shape {list(shape)} has {n_needed} bytes"
        raise ProtocolError(f"inputs[0].parameters.binary_data_size: {_shown(n_binary)}; {needed}")
    if len(raw) != (n_binary or 0):
        raise ProtocolError(f"{len(raw)} bytes behind the JSON; its inputs have {n_binary or 0} there")
    samples = raw if n_binary is not None else memoryview(_array(tensor["data"], shape, given).tobytes())
    return tuple(bytes(samples[start : start + given.sample_bytes]) for start in range(0, n_needed, given.sample_bytes))


def _n_samples(tensor: dict[str, Any], given: Tensor, most_samples: int) -> int:
    if tensor.get("datatype") != given.datatype:
        raise ProtocolError(f"inputs[0].datatype: {_shown(tensor.get('datatype'))}; allowed: {given.datatype!r}")
    shape = tensor.get("shape")
    allowed = f"[n{''.join(f', {size}' for size in given.shape)}] with n from 1 to {most_samples}"
    if not isinstance(shape, list) or not all(type(size) is int for size in shape) or shape[1:] != [*given.shape]:
        raise ProtocolError(f"inputs[0].shape: {_shown(shape)}; allowed: {allowed}")
    if not shape or not 1 <= shape[0] <= most_samples:
        raise ProtocolError(f"inputs[0].shape: {_shown(shape)}; allowed: {allowed}")
    n_samples: int = shape[0]
    return n_samples


def _array(data: object, shape: tuple[int, ...], given: Tensor) -> NDArray[Any]:
    """The numbers, flat: of a list that is flat itself, or nested as the shape is."""
    flat = _flat(data, shape)
    dtype, kinds = DATATYPES[given.datatype], set(map(type, flat))
    if kinds - _KINDS[dtype.kind]:
        odd = next(value for value in flat if type(value) not in _KINDS[dtype.kind])
        raise ProtocolError(f"inputs[0].data: {_shown(odd)} is no {given.datatype}")
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, "<f8" if dtype.kind == "f" else dtype).astype(dtype)
        is_held = dtype.kind != "f" or bool(np.isfinite(array).all())
    except OverflowError:
        is_held = False
    if not is_held:
        raise ProtocolError(f"inputs[0].data: holds a number that is beyond {given.datatype}")
    return array


def _flat(data: object, shape: tuple[int, ...]) -> list[Any]:
    if not isinstance(data, list):
        raise ProtocolError(f"inputs[0].data: {_shown(data)}; a list is needed")
    flat = data
    if flat and isinstance(flat[0], list):
        if len(flat) != shape[0]:
            raise ProtocolError(f"inputs[0].data: {len(flat)} samples; its shape is {list(shape)}")
        for size in shape[1:]:
            if set(map(type, flat)) != {list} or set(map(len, flat)) != {size}:
                raise ProtocolError(f"inputs[0].data: is not nested as its shape is, {list(shape)}")
            flat = list(chain.from_iterable(flat))
    if len(flat) != prod(shape):
        raise ProtocolError(f"inputs[0].data: {len(flat)} numbers; shape {list(shape)} has {prod(shape)}")
    return flat


def _refuse_shared_memory(parameters: dict[str, Any], where: str) -> None:
    if "shared_memory_region" in parameters:
        raise ProtocolError(f"{where}.parameters.shared_memory_region: cannot be reached from here; send the data")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
