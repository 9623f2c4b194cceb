"""The benchmarks by name: digits (offline), CIFAR-10, CORe50, 20 Newsgroups; or what others have labelled."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from executor.extras import install
from executor.files import gunzipped, read_arrays, read_input
from executor.names import spelled_as
from workloads.errors import DataAbsentError, LearningError
from workloads.learning.experiences import (
    Asked,
    Benchmark,
    Experience,
    Pool,
    Samples,
    class_incremental,
    even_groups,
    held_out,
)
from workloads.learning.inbox import benchmark_in
from workloads.training import FOLDER

ANGLES = (0, 30, 60, 90, 120)
"""By how many degrees the images of ``digits-rotated`` are turned, experience by experience."""

CORE50_TEST_SESSIONS = (3, 7, 10)
"""Sessions of CORe50 that are tested with; the others are trained on (the benchmark's own division)."""

CORE50_STRIDE = 20
"""One frame of so many is taken: CORe50's films have 20 a second, and neighbours are almost alike."""

N_WORD_BINS = 2048
"""Numbers in one input of ``newsgroups20``: words fall into bins by a checksum."""

N_TOKENS = 128
"""Words in one input of ``newsgroups20-tokens``."""

N_VOCABULARY = 30_522
"""Token numbers are below this, the size of BERT-base's vocabulary."""

_FIRST_WORD = 1000  # BERT's vocabulary has its special and unused tokens before; 0 pads, 101 begins
_BEGIN = 101
_MOST_BYTES = 2**31

_T = TypeVar("_T")


def benchmark(name: str, *, seed: int = 0, folder: Path | None = None, asked: Asked = "new") -> Benchmark:
    """The benchmark of this name; the same seed has the same experiences.

    Args:
        name: One of :data:`BENCHMARKS`.
        seed: Decides the order of classes, and what is tested with where the data set does not say.
        folder: Where its data lies or is to be downloaded to; :func:`data_folder` if ``None``.
        asked: What requests replay.

    Raises:
        DataAbsentError: Its data is not in the folder and cannot be downloaded.
        LearningError: There is no such benchmark, or its files are not as they should be.
    """
    known = spelled_as(name, BENCHMARKS)
    if known not in BENCHMARKS:
        raise LearningError(f"benchmark {name!r}: unknown; {', '.join(BENCHMARKS)} are allowed")
    if asked not in get_args(Asked):
        raise LearningError(f"asked is {asked!r}; {' or '.join(get_args(Asked))} is allowed")
    try:
        return BENCHMARKS[known](seed, data_folder() if folder is None else folder, asked)
    except ImportError as error:
        raise LearningError(f"benchmark {known} needs {error.name}: {install('live')}") from error


def data_folder() -> Path:
    """Where data sets are looked for and downloaded to, if nothing else is said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "migrator" / "data"


def _digits(seed: int, _folder: Path, asked: Asked) -> Benchmark:
    return class_incremental("digits", _digits_pool(seed), even_groups(10, 5, seed), asked)


def _digits_rotated(seed: int, _folder: Path, asked: Asked) -> Benchmark:
    from scipy.ndimage import rotate  # noqa: PLC0415 (of the extra `live`)

    def turned(samples: Samples, angle: int) -> Samples:
        images = rotate(samples.inputs.astype(np.float32), angle, axes=(2, 3), reshape=False, order=1)
        return Samples(np.clip(np.rint(images), 0, 255).astype(np.uint8), samples.labels)

    train, test = _digits_pool(seed)
    classes = tuple(range(10))
    experiences = tuple(Experience(turned(train, angle), turned(test, angle), classes) for angle in ANGLES)
    return Benchmark("digits-rotated", experiences, 10, asked)


def _digits_pool(seed: int) -> Pool:
    from sklearn.datasets import load_digits  # noqa: PLC0415 (of the extra `live`)

    found = load_digits()
    images = np.rint(found.images * (255 / 16)).astype(np.uint8)[:, None]
    return held_out(Samples(images, found.target.astype(np.int64)), 0.3, np.random.default_rng(seed))


def _cifar10(seed: int, folder: Path, asked: Asked) -> Benchmark:
    arrays = sorted(folder.glob("cifar10*.npz"))
    pool = _pool_in_arrays(arrays[0]) if arrays else _cifar10_of_torchvision(folder)
    return class_incremental("cifar10", pool, even_groups(10, 5, seed), asked)


def _pool_in_arrays(path: Path) -> Pool:
    """Images of an ``.npz``: ``x_train``, ``y_train``, ``x_test``, ``y_test``, pixels ``(n, height, width, 3)``."""
    try:
        arrays = read_arrays(path, _MOST_BYTES)
        return _of_images(arrays["x_train"], arrays["y_train"]), _of_images(arrays["x_test"], arrays["y_test"])
    except (OSError, ValueError, KeyError) as error:
        needed = "arrays x_train, y_train, x_test, y_test of uint8 images (n, height, width, 3) are needed"
        raise LearningError(f"{path}: {_said_by(error)}; {needed}") from error


def _of_images(images: NDArray[Any], labels: NDArray[Any] | list[int]) -> Samples:
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise ValueError(f"images are {images.dtype} of shape {images.shape}")
    return Samples(np.moveaxis(images, -1, 1), np.asarray(labels, np.int64))


def _cifar10_of_torchvision(folder: Path) -> Pool:
    from torchvision.datasets import CIFAR10  # noqa: PLC0415 (of the extra `live`)

    def part(*, train: bool) -> Samples:
        found = CIFAR10(folder, train=train, download=True)
        return _of_images(found.data, found.targets)

    source = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    put = "its folder cifar-10-batches-py, or a cifar10.npz with x_train, y_train, x_test, y_test"
    return _downloaded(lambda: (part(train=True), part(train=False)), f"CIFAR-10 ({source})", put, folder)


def _core50(_seed: int, folder: Path, asked: Asked) -> Benchmark:
    """New classes, object level: 10 objects first, then 8 × 5, as CORe50's scenario NC counts them."""
    groups = [tuple(range(10))] + [tuple(range(first, first + 5)) for first in range(10, 50, 5)]
    sizes = [folder / f"core50_{size}" for size in ("32x32", "128x128")]
    images = next((path for path in sizes if path.is_dir()), None)
    if images is None:
        source = "http://vps.continualai.org/data/core50_32x32.zip"
        put = "its folder core50_32x32 or core50_128x128, with s1/o1/*.png to s11/o50/*.png"
        _downloaded(lambda: _fetch_core50(source, folder), f"CORe50 ({source})", put, folder)
        images = sizes[0]
    return class_incremental("core50", _core50_pool(images), groups, asked)


def _fetch_core50(source: str, folder: Path) -> None:
    from torchvision.datasets.utils import download_and_extract_archive  # noqa: PLC0415 (of the extra `live`)

    # The checksum is the one that avalanche-lib 0.6.0 has for this file.
    download_and_extract_archive(source, str(folder), md5="d89d34cdc0281fa84074430e9a22b728")


def _core50_pool(images: Path) -> Pool:
    """Frames of ``s<session>/o<object>/C_….png``, every twentieth."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 (comes with torchvision)

    parts: dict[bool, tuple[list[NDArray[np.uint8]], list[int]]] = {True: ([], []), False: ([], [])}
    for session in range(1, 12):
        pixels, labels = parts[session not in CORE50_TEST_SESSIONS]
        for number in range(50):
            for path in sorted((images / f"s{session}" / f"o{number + 1}").glob("*.png"))[::CORE50_STRIDE]:
                try:
                    pixels.append(np.asarray(Image.open(io.BytesIO(read_input(path, _MOST_BYTES))).convert("RGB")))
                except (OSError, UnidentifiedImageError) as error:
                    raise LearningError(f"{path}: {error}; a PNG image is needed") from error
                labels.append(number)
    if not (parts[True][1] and parts[False][1]):
        raise LearningError(f"{images}: no frames in s1/o1/*.png to s11/o50/*.png; unpack CORe50's archive there")
    train, test = (_of_images(np.stack(pixels), labels) for pixels, labels in (parts[True], parts[False]))
    return train, test


def _newsgroups20(seed: int, folder: Path, asked: Asked) -> Benchmark:
    (train, train_labels), (test, test_labels) = _newsgroups_texts(folder)
    counts = _word_counts(train)
    rarity = np.log((1 + len(train)) / (1 + np.count_nonzero(counts, axis=0))) + 1
    pool = (
        Samples(_weighted(counts, rarity), train_labels),
        Samples(_weighted(_word_counts(test), rarity), test_labels),
    )
    return class_incremental("newsgroups20", pool, even_groups(20, 10, seed), asked)


def _newsgroups20_tokens(seed: int, folder: Path, asked: Asked) -> Benchmark:
    train, test = (Samples(_tokens(texts), labels) for texts, labels in _newsgroups_texts(folder))
    return class_incremental("newsgroups20-tokens", (train, test), even_groups(20, 10, seed), asked)


_Texts = tuple[list[str], NDArray[np.int64]]


def _newsgroups_texts(folder: Path) -> tuple[_Texts, _Texts]:
    files = sorted(folder.glob("newsgroups20*.csv*"))
    if files:
        return _texts_in_rows(files[0])

    def part(subset: str) -> _Texts:
        from sklearn.datasets import fetch_20newsgroups  # noqa: PLC0415 (of the extra `live`)

        found = fetch_20newsgroups(data_home=folder, subset=subset, remove=("headers", "footers", "quotes"))
        return list(found.data), np.asarray(found.target, np.int64)

    what = "20 Newsgroups (sklearn.datasets.fetch_20newsgroups)"
    put = "20news-bydate_py3.pkz, which that function leaves, or a newsgroups20.csv with columns split, group, text"
    return _downloaded(lambda: (part("train"), part("test")), what, put, folder)


def _said_by(error: Exception) -> str:
    match error:
        case OSError(strerror=str() as said):
            return said
        case KeyError():
            return f"{error} is not in it"
    return str(error)


def _texts_in_rows(path: Path) -> tuple[_Texts, _Texts]:
    """Texts of a CSV, gzipped or not, with columns ``split`` (train or test), ``group`` and ``text``."""
    try:
        raw = read_input(path, _MOST_BYTES)
        text = (gunzipped(raw, _MOST_BYTES) if path.suffix == ".gz" else raw).decode("utf-8")
        rows = [(row["split"], row["group"], row["text"]) for row in csv.DictReader(io.StringIO(text))]
    except (OSError, ValueError, csv.Error, KeyError) as error:
        raise LearningError(f"{path}: {_said_by(error)}; a CSV with columns split, group and text is needed") from error
    groups = {group: number for number, group in enumerate(sorted({group for _, group, _ in rows}))}
    if len(groups) != 20:
        raise LearningError(f"{path}: column group has {len(groups)} different names; 20 are needed")

    def part(split: str) -> _Texts:
        return (
            [text for at, _, text in rows if at == split],
            np.array([groups[group] for at, group, _ in rows if at == split], np.int64),
        )

    return part("train"), part("test")


def _words(text: str) -> list[int]:
    """Each word's checksum: the same everywhere, which Python's own hash is not."""
    return [zlib.crc32(word) for word in re.findall(rb"[a-z]{2,}", text.lower().encode("ascii", "ignore"))]


def _word_counts(texts: list[str]) -> NDArray[np.float32]:
    """Shape ``(n, N_WORD_BINS)``: log(1 + how often words of the bin occur)."""
    counts = np.zeros((len(texts), N_WORD_BINS), np.float32)
    for row, text in zip(counts, texts, strict=True):
        row[:] = np.bincount(np.array(_words(text), np.int64) % N_WORD_BINS, minlength=N_WORD_BINS)
    return np.log1p(counts, out=counts)


def _weighted(counts: NDArray[np.float32], rarity: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Counts times rarity, each text scaled to length 255."""
    weights = counts * rarity.astype(np.float32)
    weights *= 255 / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-9)
    return np.rint(weights).astype(np.uint8)


def _tokens(texts: list[str]) -> NDArray[np.uint16]:
    """Shape ``(n, N_TOKENS)``: words by checksum, not by BERT's own vocabulary, whose file is not shipped."""
    tokens = np.zeros((len(texts), N_TOKENS), np.uint16)
    for row, text in zip(tokens, texts, strict=True):
        words = [_BEGIN] + [_FIRST_WORD + word % (N_VOCABULARY - _FIRST_WORD) for word in _words(text)]
        row[: len(words)] = words[:N_TOKENS]
    return tokens


def _folder(_seed: int, path: Path, asked: Asked) -> Benchmark:
    """What others have written, of one window: a file of an :class:`~workloads.learning.inbox.Inbox`."""
    return benchmark_in(path, asked)


def _downloaded(load: Callable[[], _T], what: str, put: str, folder: Path) -> _T:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it tries again
            return load()
    except (OSError, RuntimeError) as error:
        why = " ".join(str(error).split())[:120]
        raise DataAbsentError(f"{what} is not in {folder} and cannot be downloaded ({why}): put there {put}") from error


BENCHMARKS: dict[str, Callable[[int, Path, Asked], Benchmark]] = {
    "digits": _digits,
    "digits-rotated": _digits_rotated,
    "cifar10": _cifar10,
    "core50": _core50,
    "newsgroups20": _newsgroups20,
    "newsgroups20-tokens": _newsgroups20_tokens,
    FOLDER: _folder,
}
"""Benchmarks by name. Those of the digits need no network: scikit-learn has the images."""
