"""Counts of modules by Mudi's kinds, of made-up models and of the catalogue's."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from workloads.learning.modules import KINDS, module_counts


class Part:
    """A module with these parts."""

    def __init__(self, *parts: Part) -> None:
        self.parts = parts

    def children(self) -> Iterable[Part]:
        return self.parts

    def modules(self) -> Iterable[Part]:
        yield self
        for part in self.parts:
            yield from part.modules()


def of(name: str, *parts: Part) -> Part:
    kind = type(name, (Part,), {})
    made: Part = kind(*parts)
    return made


def told(module: Part) -> dict[str, int]:
    return {kind: n for kind, n in zip(KINDS, module_counts(module), strict=True) if n}


def test_parts_count_by_kind_and_the_last_linear_one_as_fully_connected() -> None:
    body = of("Sequential", of("Conv2d"), of("BatchNorm2d"), of("ReLU"), of("MaxPool2d"), of("Dropout"))
    head = of("Sequential", of("Flatten"), of("Linear"), of("GELU"), of("Linear"))
    assert told(of("Net", of("Embedding"), body, head)) == {
        "embeddings": 1, "conv": 1, "batch_normalization": 1, "activations": 2, "pooling": 1, "other_layers": 1,
        "flatten": 1, "linear": 1, "fc": 1,
    }  # fmt: skip


def test_an_encoder_counts_with_its_parts() -> None:
    assert told(of("TransformerEncoderLayer", of("Linear"))) == {"encoder": 1, "fc": 1}
    assert told(of("Decoder")) == {"decoder": 1}


@pytest.mark.live
def test_a_model_of_the_catalogue_has_its_modules() -> None:
    from workloads.learning.datasets import benchmark
    from workloads.learning.models import classifier

    found = told(classifier("cnn", **benchmark("digits").model_options).module)
    assert found == {"conv": 2, "activations": 3, "pooling": 2, "flatten": 1, "linear": 1, "fc": 1}
