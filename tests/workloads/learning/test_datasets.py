"""Benchmarks by name: files in a folder, what is wrong with them, and data that cannot be had."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from workloads.errors import DataAbsentError, LearningError
from workloads.learning.datasets import ANGLES, N_TOKENS, N_WORD_BINS, benchmark


@pytest.fixture
def images(tmp_path: Path) -> Path:
    labels = np.arange(40, dtype=np.uint8) % 10
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "cifar10_small.npz", x_train=pixels, y_train=labels, x_test=pixels[:20], y_test=labels[:20])
    return tmp_path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    with gzip.open(tmp_path / "newsgroups20.csv.gz", "wt", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["split", "group", "text"])
        for split in ("train", "train", "test"):
            rows.writerows(
                (split, f"group{number:02}", f"Words of group number {'x' * (number + 2)}.") for number in range(20)
            )
    return tmp_path


def test_cifar10_is_read_from_a_folder_in_five_experiences(images: Path) -> None:
    found = benchmark("cifar10", folder=images)
    assert (len(found.experiences), found.shape, found.n_classes) == (5, (3, 32, 32), 10)


def test_images_have_their_channels_first(images: Path) -> None:
    with np.load(images / "cifar10_small.npz") as arrays:
        first = arrays["x_test"][arrays["y_test"] == 3][0]
    found = benchmark("cifar10", folder=images)
    number = next(number for number, experience in enumerate(found.experiences) if 3 in experience.classes)
    test = found.test(number)
    assert np.array_equal(test.inputs[test.labels == 3][0], np.moveaxis(first, -1, 0))


def test_the_seed_decides_the_order_of_classes(images: Path) -> None:
    orders = {tuple(e.classes for e in benchmark("cifar10", folder=images, seed=seed).experiences) for seed in range(3)}
    assert len(orders) == 3


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x_train": np.zeros(3)}, "'y_train' is not in it"),
        (
            {k: np.zeros((2, 4, 4, 3)) for k in ("x_train", "y_train", "x_test", "y_test")},
            "images are float64 of shape",
        ),
    ],
)
def test_arrays_that_are_no_images_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    np.savez(tmp_path / "cifar10.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(LearningError, match=said):
        benchmark("cifar10", folder=tmp_path)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cifar10.npz").write_bytes(b"PK\x03\x04 and nothing")
    with pytest.raises(LearningError, match=r"cifar10\.npz: .*arrays x_train, y_train"):
        benchmark("cifar10", folder=tmp_path)


def test_newsgroups_are_weights_of_words_in_ten_experiences(texts: Path) -> None:
    found = benchmark("newsgroups20", folder=texts)
    assert (len(found.experiences), found.shape, found.dtype) == (10, (N_WORD_BINS,), np.uint8)


def test_texts_have_about_the_same_length_as_vectors(texts: Path) -> None:
    lengths = np.linalg.norm(benchmark("newsgroups20", folder=texts).test(0).inputs.astype(float), axis=1)
    assert lengths == pytest.approx(255, rel=0.02)


def test_newsgroups_are_numbers_of_words_for_models_of_tokens(texts: Path) -> None:
    found = benchmark("newsgroups20-tokens", folder=texts)
    assert found.model_options == {"shape": [N_TOKENS], "n_classes": 20, "dtype": "uint16"}


def test_groups_that_are_missing_are_counted(tmp_path: Path) -> None:
    (tmp_path / "newsgroups20.csv").write_text("split,group,text\ntrain,a,b\n")
    with pytest.raises(LearningError, match="column group has 1 different names; 20 are needed"):
        benchmark("newsgroups20", folder=tmp_path)


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "newsgroups20.csv").write_text("split,text\ntrain,b\n")
    with pytest.raises(LearningError, match=r"'group' is not in it; a CSV with columns split, group"):
        benchmark("newsgroups20", folder=tmp_path)


def test_a_benchmark_that_nobody_knows_is_refused() -> None:
    with pytest.raises(LearningError, match="benchmark 'mnist': unknown; digits, digits-rotated, cifar10"):
        benchmark("mnist")


def test_a_way_of_asking_that_nobody_knows_is_refused() -> None:
    with pytest.raises(LearningError, match="asked is 'old'; new or seen is allowed"):
        benchmark("digits", asked="old")  # type: ignore[arg-type]


def _no_network(*_args: object, **_more: object) -> None:
    raise URLError("Name or service not known")


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "loader", "said"),
    [
        ("cifar10", "torchvision.datasets.CIFAR10", r"CIFAR-10 \(https://.*: put there its folder cifar-10-batches-py"),
        (
            "core50",
            "torchvision.datasets.utils.download_and_extract_archive",
            "CORe50 .*put there its folder core50_32",
        ),
        ("newsgroups20", "sklearn.datasets.fetch_20newsgroups", "20 Newsgroups .*put there 20news-bydate_py3.pkz"),
    ],
)
def test_absent_data_without_a_network_says_what_to_put_where(
    name: str, loader: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, _no_network)
    with pytest.raises(DataAbsentError, match=said) as caught:
        benchmark(name, folder=tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.live
def test_digits_come_two_by_two() -> None:
    found = benchmark("digits")
    assert [len(experience.classes) for experience in found.experiences] == [2] * 5


@pytest.mark.live
def test_rotated_digits_have_all_classes_in_each_experience() -> None:
    found = benchmark("digits-rotated")
    assert [len(experience.classes) for experience in found.experiences] == [10] * len(ANGLES)


@pytest.mark.live
def test_the_same_seed_gives_the_same_digits() -> None:
    one, other = (benchmark("digits", seed=5).test(2) for _ in range(2))
    assert np.array_equal(one.inputs, other.inputs)


@pytest.mark.live
def test_core50_is_read_from_its_folder_in_nine_experiences(tmp_path: Path) -> None:
    from PIL import Image

    for session in (1, 3):
        for number in range(1, 51):
            path = tmp_path / "core50_32x32" / f"s{session}" / f"o{number}" / "C_01_01_000.png"
            path.parent.mkdir(parents=True)
            Image.new("RGB", (32, 32), (number, 0, 0)).save(path)
    found = benchmark("core50", folder=tmp_path)
    assert [len(experience.classes) for experience in found.experiences] == [10] + [5] * 8
