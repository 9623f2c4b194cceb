"""Interference: nothing without strength or neighbours, and more with more of either."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.profiles.interference import IMAGE, TEXT, Sensitivity, sensitivity_of, slowdown

KINDS = pytest.mark.parametrize("own", [IMAGE, TEXT], ids=["image", "text"])
BUSY = st.lists(st.floats(0, 1), max_size=5)
OWN = st.sampled_from([IMAGE, TEXT])
STRENGTH = st.floats(0, 10)
TRAINING = st.integers(0, 6)


@pytest.mark.parametrize(
    ("model", "expected"), [("bert-large", TEXT), ("bert-base", TEXT), ("resnet50", IMAGE), ("vit-b-16", IMAGE)]
)
def test_bert_is_a_text_model_and_all_others_are_image_models(model: str, expected: Sensitivity) -> None:
    assert sensitivity_of(model) is expected


@KINDS
def test_one_busy_neighbour_at_full_strength_is_the_printed_figure(own: Sensitivity) -> None:
    assert slowdown(own, 1.0, [1.0], 0) == pytest.approx(own.beside_inference)


@KINDS
def test_one_retraining_at_full_strength_is_the_printed_figure(own: Sensitivity) -> None:
    assert slowdown(own, 1.0, [], 1) == pytest.approx(own.beside_retraining)


@given(OWN, BUSY, TRAINING)
def test_strength_0_is_no_interference(own: Sensitivity, busy: list[float], n_retraining: int) -> None:
    assert slowdown(own, 0.0, busy, n_retraining) == 1.0


@given(OWN, STRENGTH)
def test_alone_nothing_is_slowed_down(own: Sensitivity, strength: float) -> None:
    assert slowdown(own, strength, [], 0) == 1.0


@given(OWN, STRENGTH, BUSY, TRAINING)
def test_neighbours_add_up(own: Sensitivity, strength: float, busy: list[float], n_retraining: int) -> None:
    each = [slowdown(own, strength, [share], 0) - 1 for share in busy]
    each += [slowdown(own, strength, [], 1) - 1] * n_retraining
    assert slowdown(own, strength, busy, n_retraining) == pytest.approx(1 + sum(each))


@given(OWN, STRENGTH, BUSY, TRAINING)
def test_it_grows_in_proportion_to_strength(
    own: Sensitivity, strength: float, busy: list[float], n_retraining: int
) -> None:
    at_full = slowdown(own, 1.0, busy, n_retraining) - 1
    assert slowdown(own, strength, busy, n_retraining) - 1 == pytest.approx(strength * at_full)


@given(st.floats(0.01, 10), st.floats(0.01, 1), TRAINING)
def test_text_suffers_more_than_images(strength: float, busy: float, n_retraining: int) -> None:
    assert slowdown(TEXT, strength, [busy], n_retraining) > slowdown(IMAGE, strength, [busy], n_retraining)
