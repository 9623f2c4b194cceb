"""How models are named that are to be measured."""

from __future__ import annotations

import pytest

from migrator.profiling.subjects import Named, named


@pytest.mark.parametrize(
    ("text", "model", "benchmark"),
    [
        ("mlp", "mlp", "digits"),
        ("ResNet50:cifar10", "resnet50", "cifar10"),
        ("bert_base:newsgroups20-tokens", "bert_base", "newsgroups20-tokens"),
        ("bert-base:newsgroups20-tokens", "bert-base", "newsgroups20-tokens"),  # as configs/live-gpu.yaml has it
        ("my_models:detector", "my_models:detector", None),
        ("my_models:detector:digits", "my_models:detector", "digits"),
    ],
)
def test_a_model_is_called_as_in_tables_and_a_benchmark_follows(text: str, model: str, benchmark: str | None) -> None:
    assert named(text) == Named(model, benchmark)
