"""The protocol: what is asked comes through as it was meant, and whatever else comes is refused in words."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workloads.live.open_inference import (
    DATATYPES,
    MOST_JSON_BYTES,
    InferenceAsked,
    ProtocolError,
    Tensor,
    answered,
    asked,
    asked_packed,
    check_packing,
    unpacked,
)

IMAGE = Tensor("image", "UINT8", (2, 3))
LABEL = Tensor("label", "UINT16", (1,))
PIXELS = [[1, 2, 3], [4, 5, 6]]
ONE = {"name": "image", "datatype": "UINT8", "shape": [1, 2, 3], "data": [1, 2, 3, 4, 5, 6]}


def asked_for(request: object, behind: bytes = b"", wanted: Tensor = LABEL, given: Tensor = IMAGE) -> InferenceAsked:
    head = json.dumps(request).encode()
    return asked(head + behind, len(head) if behind else None, given, wanted, 8)


def refusal(request: object, behind: bytes = b"") -> str:
    with pytest.raises(ProtocolError) as caught:
        asked_for(request, behind)
    assert caught.value.status == 400
    return str(caught.value)


def one(**changes: object) -> dict[str, Any]:
    """A request with one image, changed; ``None`` leaves a key out."""
    return {"inputs": [{key: value for key, value in (ONE | changes).items() if value is not None}]}


def binary(size: object) -> dict[str, Any]:
    return one(data=None, parameters={"binary_data_size": size})


# --- what is asked


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [PIXELS]])
def test_numbers_may_be_flat_or_nested(data: list[Any]) -> None:
    assert asked_for(one(data=data)) == InferenceAsked(None, (bytes([1, 2, 3, 4, 5, 6]),), is_binary=False)


def test_bytes_stand_behind_the_json() -> None:
    assert asked_for(binary(6), b"abcdef").samples == (b"abcdef",)


def test_each_sample_has_its_own_bytes() -> None:
    assert asked_for(one(data=[PIXELS, PIXELS], shape=[2, 2, 3])).samples == (bytes([1, 2, 3, 4, 5, 6]),) * 2


@pytest.mark.parametrize(
    ("changes", "is_binary"),
    [
        ({}, False),
        ({"parameters": {"binary_data_output": True}}, True),
        ({"outputs": [{"name": "label"}], "parameters": {"binary_data_output": True}}, True),
        ({"outputs": [{"name": "label", "parameters": {"binary_data": True}}]}, True),
        (
            {
                "outputs": [{"name": "label", "parameters": {"binary_data": False}}],
                "parameters": {"binary_data_output": True},
            },
            False,
        ),
    ],
)
def test_the_output_comes_as_it_is_wanted(changes: dict[str, Any], is_binary: bool) -> None:
    assert asked_for(one() | changes).is_binary is is_binary


def test_the_clients_own_name_and_patience_are_kept() -> None:
    request = asked_for(one() | {"id": "q7", "parameters": {"timeout": 1_500_000}})
    assert (request.id, request.timeout_s) == ("q7", 1.5)


@given(
    st.sampled_from(sorted(DATATYPES)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            arrays.arrays(
                DATATYPES[name],
                arrays.array_shapes(min_dims=1, max_dims=4, max_side=4),
                elements={"allow_nan": False, "allow_infinity": False} if name.startswith("FP") else None,
            ),
        )
    ),
    st.booleans(),
)
def test_every_tensor_survives_both_ways(drawn: tuple[str, np.ndarray[Any, Any]], is_nested: bool) -> None:
    datatype, array = drawn
    tensor = Tensor("x", datatype, array.shape[1:])
    samples = tuple(sample.tobytes() for sample in array)
    told = {"name": "x", "datatype": datatype, "shape": list(array.shape)}
    data = array.tolist() if is_nested else array.ravel().tolist()
    raw = {"parameters": {"binary_data_size": array.nbytes}}
    assert asked_for({"inputs": [told | {"data": data}]}, given=tensor).samples == samples
    assert asked_for({"inputs": [told | raw]}, array.tobytes(), given=tensor).samples == samples
    versions = ["1"] * len(samples)
    for is_binary in (False, True):
        body, size = answered(InferenceAsked("7", samples, is_binary), "m", tensor, samples, versions, in_time=True)
        output = json.loads(body[:size])["outputs"][0]
        back = np.frombuffer(body[size:], DATATYPES[datatype]) if is_binary else output["data"]
        assert output["shape"] == list(array.shape)
        assert np.array(back, DATATYPES[datatype]).tobytes() == array.tobytes()


# --- what is refused


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ([], "the request: []; an object is needed"),
        ({}, "inputs: None; a list of one tensor is needed: 'image'"),
        ({"inputs": [ONE, ONE]}, "a list of one tensor is needed"),
        ({"inputs": ["x"]}, "inputs[0]: 'x'; an object is needed"),
        (one(name="picture"), "inputs[0].name: 'picture'; allowed: 'image'"),
        (one(datatype="FP32"), "inputs[0].datatype: 'FP32'; allowed: 'UINT8'"),
        (one(shape=[2, 3]), "inputs[0].shape: [2, 3]; allowed: [n, 2, 3] with n from 1 to 8"),
        (one(shape=[0, 2, 3], data=[]), "inputs[0].shape: [0, 2, 3]"),
        (one(shape=[9, 2, 3]), "n from 1 to 8"),
        (one(shape=[True, 2, 3]), "inputs[0].shape: [True, 2, 3]"),
        (one(shape=[]), "inputs[0].shape: []"),
        (one(data=None), "data or parameters.binary_data_size is needed; neither is there"),
        (one(parameters={"binary_data_size": 6}), "both are there"),
        (one(data={}), "inputs[0].data: {}; a list is needed"),
        (one(data=[1, 2]), "inputs[0].data: 2 numbers; shape [1, 2, 3] has 6"),
        (one(data=[PIXELS, PIXELS]), "inputs[0].data: 2 samples; its shape is [1, 2, 3]"),
        (one(data=[[[1, 2], [3, 4, 5, 6]]]), "is not nested as its shape is"),
        (one(data=[[1, 2, 3, 4, 5, 6]]), "is not nested as its shape is"),
        (one(data=[1, 2, 3, 4, 5, 256]), "beyond UINT8"),
        (one(data=[1, 2, 3, 4, 5, -1]), "beyond UINT8"),
        (one(data=[1, 2, 3, 4, 5, 1.5]), "inputs[0].data: 1.5 is no UINT8"),
        (one(data=[1, 2, 3, 4, 5, "6"]), "inputs[0].data: '6' is no UINT8"),
        (one(data=[1, 2, 3, 4, 5, True]), "inputs[0].data: True is no UINT8"),
        (one(parameters={"shared_memory_region": "r"}), "shared_memory_region: cannot be reached from here"),
        (binary(5), "binary_data_size: 5; UINT8 of shape [1, 2, 3] has 6 bytes"),
        (binary("6"), "binary_data_size: '6'"),
        (binary(6), "0 bytes behind the JSON; its inputs have 6 there"),
        (one() | {"outputs": [{"name": "other"}]}, "outputs[0].name: 'other'; allowed: 'label'"),
        (one() | {"outputs": [{"name": "label", "parameters": {"classification": 3}}]}, "is not done here"),
        (one() | {"outputs": [{"name": "label", "parameters": {"binary_data": 1}}]}, "binary_data: 1; allowed: true"),
        (one() | {"parameters": {"sequence_id": 3}}, "parameters.sequence_id: models here know none"),
        (one() | {"parameters": {"timeout": 0}}, "parameters.timeout: 0; allowed"),
        (one() | {"parameters": 3}, "the request: parameters: 3; an object is needed"),
        (one() | {"id": 3}, "id: 3; allowed: text of at most 1000 characters"),
    ],
)
def test_what_does_not_fit_is_refused(request_: object, said: str) -> None:
    assert said in refusal(request_)


@pytest.mark.parametrize(("request_", "behind"), [(binary(6), b"abcde"), (binary(6), b"abcdefg"), (one(), b"a")])
def test_bytes_too_few_or_too_many_are_refused(request_: object, behind: bytes) -> None:
    assert f"{len(behind)} bytes behind the JSON" in refusal(request_, behind)


def test_numbers_that_the_type_cannot_hold_are_refused() -> None:
    half = Tensor("image", "FP16", (1,))
    told = one(datatype="FP16", shape=[1, 1], data=[70000.0])
    with pytest.raises(ProtocolError, match="beyond FP16"):
        asked_for(told, given=half)


@pytest.mark.parametrize("json_bytes", [0, 7])
def test_a_length_of_the_json_beyond_the_body_is_refused(json_bytes: int) -> None:
    with pytest.raises(ProtocolError, match=f"{json_bytes} bytes of JSON in a body of 2 bytes; allowed: 1 to 2"):
        asked(b"{}", json_bytes, IMAGE, LABEL, 8)


def test_much_json_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError, match="send tensors as binary data") as caught:
        asked(b"[" * (MOST_JSON_BYTES + 1), None, IMAGE, LABEL, 8)
    assert caught.value.status == 413


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["name", "inputs", "outputs", "parameters", "shape", "data", "datatype", "id", "timeout"])
            | st.text(max_size=3),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.binary(max_size=60), st.none() | st.integers(-1, 80))
def test_any_bytes_are_refused_in_words(body: bytes, json_bytes: int | None) -> None:
    with pytest.raises(ProtocolError):
        asked(body, json_bytes, IMAGE, LABEL, 8)


def understood(request: object, behind: bytes = b"") -> InferenceAsked | None:
    """What is asked; or nothing, where it is refused as a client's fault."""
    try:
        return asked_for(request, behind)
    except ProtocolError as error:
        return None if error.status == 400 and "\n" not in str(error) else asked_for(request, behind)


@given(st.sampled_from([*ONE, "parameters"]), JSON, st.binary(max_size=8))
def test_an_input_with_any_value_is_understood_or_refused(key: str, value: object, behind: bytes) -> None:
    request = understood({"inputs": [ONE | {key: value}]}, behind)
    assert request is None or all(len(sample) == IMAGE.sample_bytes for sample in request.samples)


@given(st.sampled_from(["id", "inputs", "outputs", "parameters"]), JSON)
def test_a_request_with_any_value_is_understood_or_refused(key: str, value: object) -> None:
    request = understood(one() | {key: value})
    assert request is None or request.samples == (bytes([1, 2, 3, 4, 5, 6]),)


@given(JSON)
def test_any_json_is_refused_in_words(value: object) -> None:
    with pytest.raises(ProtocolError):
        asked(json.dumps(value).encode(), None, IMAGE, LABEL, 8)


# --- what is answered


def test_a_model_that_answers_with_another_size_has_failed() -> None:
    with pytest.raises(ProtocolError, match=r"sample 1: .* has 3 bytes; 2 are needed, UINT16 of shape \[1\]") as caught:
        answered(InferenceAsked(None, (b"", b""), False), "m", LABEL, [b"ab", b"abc"], ["1", "1"], in_time=True)
    assert caught.value.status == 500


def test_what_json_has_no_number_for_is_told() -> None:
    score, nan = Tensor("score", "FP32", ()), np.float32("nan").tobytes()
    with pytest.raises(ProtocolError, match="ask for binary data"):
        answered(InferenceAsked(None, (b"",), False), "m", score, [nan], ["1"], in_time=True)
    assert answered(InferenceAsked(None, (b"",), True), "m", score, [nan], ["1"], in_time=True)[0].endswith(nan)


def test_all_versions_that_answered_are_told() -> None:
    body, _ = answered(InferenceAsked(None, (b"",) * 3, False), "m", LABEL, [b"ab"] * 3, ["2", "1", "2"], in_time=False)
    told = json.loads(body)
    assert (told["model_version"], told["parameters"]) == ("1,2", {"in_time": False})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "name: is empty"),
        ({"datatype": "BYTES"}, "datatype: 'BYTES'; allowed: BOOL"),
        ({"shape": (3, 0)}, r"shape: \[3, 0\]; numbers above 0 are needed"),
    ],
)
def test_a_tensor_without_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Tensor(**{"name": "x", "datatype": "UINT8", "shape": (1,)} | changes)


# --- what is compressed


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress}


@given(st.binary(max_size=400), st.sampled_from(sorted(PACKERS)))
def test_a_body_is_unpacked(body: bytes, packing: str) -> None:
    check_packing(packing)
    assert unpacked(PACKERS[packing](body), packing, 400) == body


@given(st.binary(max_size=200), st.sampled_from(sorted(PACKERS)), st.binary(max_size=3))
def test_a_body_that_is_not_whole_is_refused(body: bytes, packing: str, more: bytes) -> None:
    packed = PACKERS[packing](body)
    for wrong in (packed[:-1], packed + b"x" + more, body[:10]):
        with pytest.raises(ProtocolError, match=f"Content-Encoding: {packing}: the body"):
            unpacked(wrong, packing, 200)


def test_an_unknown_packing_is_refused() -> None:
    check_packing("")
    with pytest.raises(ProtocolError, match="Content-Encoding: 'br'; allowed: gzip deflate") as caught:
        check_packing("br")
    assert caught.value.status == 415


@pytest.mark.parametrize("packing", sorted(PACKERS))
def test_a_little_that_unpacks_to_much_is_refused(packing: str) -> None:
    assert len(unpacked(PACKERS[packing](bytes(4096)), packing, 4096)) == 4096
    for n_bytes in (4097, 2**26):
        with pytest.raises(ProtocolError, match="a body of more than 4096 bytes") as caught:
            unpacked(PACKERS[packing](bytes(n_bytes)), packing, 4096)
        assert caught.value.status == 413


@pytest.mark.parametrize("packing", ["", *sorted(PACKERS)])
def test_a_packed_body_is_understood_as_any_other(packing: str) -> None:
    body = json.dumps(one()).encode()
    packed = PACKERS[packing](body) if packing else body
    assert asked_packed(packed, packing, 1000, None, IMAGE, LABEL, 8) == asked(body, None, IMAGE, LABEL, 8)
