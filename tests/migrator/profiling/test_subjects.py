"""How models are named that are to be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import MigratorError
from migrator.profiling.subjects import Named, named, subject


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


def test_a_sample_that_cannot_be_read_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    own = named("my_models:detector")
    for sample, said in (
        (None, "no input; give --sample FILE"),
        (tmp_path / "none", "No such"),
        (tmp_path, "it is a folder"),
    ):
        with pytest.raises(MigratorError, match=said):
            subject(own, sample, None, tmp_path)
