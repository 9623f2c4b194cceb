"""The catalogue's classifiers: what they answer, and which weights they take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.learning.models import MODELS, Classifier, classifier, libraries
from workloads.live.model import CATALOGUE, Model, ModelError, WeightsError, loaded

DIGITS: dict[str, Any] = {"shape": [1, 8, 8], "n_classes": 10}


def test_the_names_that_can_be_served_are_the_catalogue() -> None:
    assert {place.partition(":")[2] for place in CATALOGUE.values()} == set(CATALOGUE) == set(MODELS)


@pytest.mark.parametrize(
    ("model", "wrong", "said"),
    [
        ("resnet51", {}, "model 'resnet51': unknown; mlp, cnn, cnn_wide, resnet50"),
        ("cnn", {"shape": [64]}, r"inputs are uint8 of shape \[64\]; uint8 images"),
        ("cnn", {"shape": []}, r"shape is \[\]; numbers ≥ 1"),
        ("mlp", {"dtype": "uint16"}, "uint8 numbers are needed"),
        ("bert_base", {}, "uint16 numbers of words"),
        ("mlp", {"n_classes": 0}, "n_classes is 0; 1 to 65536"),
    ],
)
def test_what_a_model_cannot_take_is_refused(model: str, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        classifier(model, **{**DIGITS, **wrong})


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"model mlp needs torch: pip install '.*\[live\]'"):
        classifier("mlp", **DIGITS)


@pytest.mark.parametrize(
    ("model", "own"), [("cnn-wide", ()), ("MobileNet-v2", ("torchvision.models",)), ("bert-base", ("transformers",))]
)
def test_libraries_are_known_by_each_spelling_of_a_name(model: str, own: tuple[str, ...]) -> None:
    assert libraries(model) == ("torch", "torch._dynamo", *own)


def test_of_a_users_own_model_no_library_is_known() -> None:
    assert libraries("my_models:detector") == ()


def test_nothing_heavy_is_imported_before_a_model_is_made() -> None:
    modules = ", ".join(f"workloads.learning.{name}" for name in ("retraining", "avalanche", "profiler", "datasets"))
    code = (
        f"import sys, {modules}; print({{'torch', 'sklearn', 'scipy', 'avalanche', 'safetensors'}} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "set()\n"


@pytest.fixture
def mlp() -> Classifier:
    return classifier("mlp", **DIGITS)


@pytest.fixture
def images() -> list[bytes]:
    return [row.tobytes() for row in np.random.default_rng(0).integers(0, 256, (9, 64), np.uint8)]


@pytest.mark.live
class TestServing:
    def test_a_classifier_is_a_model(self, mlp: Classifier) -> None:
        assert isinstance(mlp, Model)

    def test_a_model_is_found_by_its_name(self, images: list[bytes]) -> None:
        assert len(loaded("CNN", DIGITS).answer(images)) == 9

    def test_an_answer_does_not_depend_on_its_batch(self, mlp: Classifier, images: list[bytes]) -> None:
        assert mlp.answer(images) == [mlp.answer([image])[0] for image in images]

    def test_no_inputs_have_no_answers(self, mlp: Classifier) -> None:
        assert list(mlp.answer([])) == []

    def test_an_input_of_another_size_is_named(self, mlp: Classifier, images: list[bytes]) -> None:
        with pytest.raises(ModelError, match=r"mlp: input 1 has 3 bytes; 64 are needed, uint8 of shape \(1, 8, 8\)"):
            mlp.answer([images[0], b"abc"])

    def test_random_weights_are_labelled(self, mlp: Classifier) -> None:
        assert mlp.weights == "random"

    def test_pretrained_weights_that_cannot_be_had_are_random_and_labelled(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("torchvision.models.get_model_weights", _no_weights)
        made = classifier("mobilenet_v2", shape=[3, 32, 32], n_classes=5)
        assert made.weights.startswith("random (pretrained ones cannot be had: no network")

    def test_the_same_seed_makes_the_same_weights(self) -> None:
        one, other = (classifier("cnn", seed=7, **DIGITS) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(_arrays(one), _arrays(other), strict=True))


def _no_weights(_name: str) -> None:
    raise OSError("no network")


@pytest.mark.live
@pytest.mark.parametrize("model", ["resnet50", "mobilenet_v2", "inception_v3", "vit_b_16", "convnext_base"])
@pytest.mark.parametrize("shape", [[3, 32, 32], [1, 8, 8]], ids=["colour", "grey"])
def test_a_large_model_answers_small_images(model: str, shape: list[int]) -> None:
    made = classifier(model, shape=shape, n_classes=5, weights="random")
    assert len(made.answer([bytes(np.prod(shape))])) == 1


@pytest.mark.live
class TestWeights:
    def test_saved_weights_come_back_bit_by_bit(self, mlp: Classifier, tmp_path: Path) -> None:
        mlp.save(tmp_path / "w.safetensors", {})
        other = classifier("mlp", seed=1, **DIGITS)
        other.load(tmp_path / "w.safetensors")
        assert [a.tobytes() for a in _arrays(other)] == [a.tobytes() for a in _arrays(mlp)]

    def test_loaded_weights_are_told_by_their_file(self, mlp: Classifier, tmp_path: Path) -> None:
        mlp.save(tmp_path / "w.safetensors", {})
        mlp.load(tmp_path / "w.safetensors")
        assert mlp.weights == str(tmp_path / "w.safetensors")

    def test_a_model_may_begin_with_a_file(self, mlp: Classifier, images: list[bytes], tmp_path: Path) -> None:
        mlp.save(tmp_path / "w.safetensors", {})
        again = classifier("mlp", seed=5, weights=str(tmp_path / "w.safetensors"), **DIGITS)
        assert again.answer(images) == mlp.answer(images)

    def test_nothing_but_the_file_is_left_in_its_folder(self, mlp: Classifier, tmp_path: Path) -> None:
        mlp.save(tmp_path / "w.safetensors", {})
        assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda raw: raw[: len(raw) // 2], "a whole safetensors file is needed"),
            (lambda _raw: b"", "a whole safetensors file is needed"),
            (lambda _raw: b"\xff" * 64, "a whole safetensors file is needed"),
            (
                lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
                "do not have the checksum that it names; the file is damaged",
            ),
        ],
        ids=["cut", "empty", "noise", "one bit"],
    )
    def test_a_damaged_file_is_refused(self, mlp: Classifier, tmp_path: Path, damage: Any, said: str) -> None:
        path = tmp_path / "w.safetensors"
        mlp.save(path, {})
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(WeightsError, match=said) as caught:
            mlp.load(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (
                lambda t: {**t, "1.weight": t["1.weight"][:, :9].contiguous()},
                r"tensor 1\.weight has shape \[128, 9\]; \[128, 64\]",
            ),
            (
                lambda t: {**t, "1.weight": t["1.weight"].double()},
                r"tensor 1\.weight is torch\.float64; torch\.float32",
            ),
            (lambda t: {**t, "extra": t["1.bias"].clone()}, "the model has no tensor extra"),
            (lambda t: {k: v for k, v in t.items() if k not in {"3.bias", "1.weight"}}, r"tensor 1\.weight is missing"),
            (lambda t: {**t, "b": t["1.bias"].clone(), "a": t["1.bias"].clone()}, "the model has no tensor a"),
            (lambda t: {k: v for k, v in t.items() if k != "3.bias"}, r"tensor 3\.bias is missing"),
            (lambda t: {**t, "3.bias": t["3.bias"] * float("nan")}, r"tensor 3\.bias holds values that are no finite"),
        ],
    )
    def test_weights_that_do_not_fit_are_refused_by_the_tensor(
        self, mlp: Classifier, tmp_path: Path, change: Any, said: str
    ) -> None:
        from safetensors.torch import save_file

        save_file(change(dict(mlp.module.state_dict())), tmp_path / "w.safetensors")
        with pytest.raises(WeightsError, match=rf"w\.safetensors: .*{said}"):
            mlp.load(tmp_path / "w.safetensors")

    def test_refused_weights_leave_the_old_ones_in_service(
        self, mlp: Classifier, images: list[bytes], tmp_path: Path
    ) -> None:
        from safetensors.torch import save_file

        before = (mlp.answer(images), [a.tobytes() for a in _arrays(mlp)])
        tensors = {name: tensor + 1 for name, tensor in mlp.module.state_dict().items()}
        save_file(tensors | {"3.bias": tensors["3.bias"][:5].clone()}, tmp_path / "w.safetensors")
        with pytest.raises(WeightsError):
            mlp.load(tmp_path / "w.safetensors")
        assert (mlp.answer(images), [a.tobytes() for a in _arrays(mlp)]) == before

    @pytest.mark.parametrize("path", ["missing.safetensors", "."])
    def test_what_is_no_file_is_refused(self, mlp: Classifier, tmp_path: Path, path: str) -> None:
        with pytest.raises(WeightsError, match="safetensors file is needed"):
            mlp.load(tmp_path / path)

    def test_a_copy_learns_apart(self, mlp: Classifier) -> None:
        copied, before = mlp.copied(), _arrays(mlp)[0].copy()
        next(copied.module.parameters()).data.add_(1)
        assert np.array_equal(_arrays(mlp)[0], before)


def _arrays(made: Classifier) -> list[np.ndarray]:
    return [tensor.detach().cpu().numpy() for tensor in made.module.state_dict().values()]
