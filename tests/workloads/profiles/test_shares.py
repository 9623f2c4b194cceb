"""Shares of a GPU's processors: what was measured on MIG instances, straight lines between, and never a fall."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.catalogue import gpu_model
from workloads.errors import ProfileTableError, UnmetSloError
from workloads.profiles.knee import Knee
from workloads.profiles.operating_point import operating_points
from workloads.profiles.shares import (
    IMAGE,
    TEXT,
    TURN_COST,
    Sensitivity,
    ShareProfile,
    sensitivity_of,
    slowdown,
    training_rates,
)
from workloads.profiles.table import ServiceProfiles, ServiceRow, shipped_profiles

GPU = gpu_model("a100-80gb")
TABLE = shipped_profiles()
SHARES = [k / 20 for k in range(1, 21)]
SLOS_S = [0.02, 0.05, 0.15, 0.33, 1.0, math.inf]
SLICES = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 3, "4g.40gb": 4, "7g.80gb": 7}
MEASURED = pytest.mark.parametrize("profile", SLICES)
PAPERS = pytest.mark.parametrize(("model", "slo_s"), [("resnet50", 0.15), ("bert-large", 0.33)])
ALL = pytest.mark.parametrize("model", TABLE.models(GPU.name))


def profile_of(model: str, slo_s: float, **chosen: int) -> ShareProfile:
    return ShareProfile.of(TABLE, GPU, model, slo_s, **chosen)  # type: ignore[arg-type]


def made(*rows: tuple[str, int, int, float, float], slo_s: float = 1.0) -> ShareProfile:
    """From (profile, batch, processes, latency in s, requests a second)."""
    table = ServiceProfiles("made", tuple(ServiceRow("me", GPU.name, "m", *row) for row in rows))
    return ShareProfile.of(table, GPU, "m", slo_s)


@PAPERS
@MEASURED
def test_a_measured_share_is_the_mig_instances_operating_point(model: str, slo_s: float, profile: str) -> None:
    point = profile_of(model, slo_s).point(SLICES[profile] / 7)
    mig = operating_points(TABLE, GPU.name, model, slo_s)[profile]
    assert (point.batch, point.processes) == (mig.batch, mig.processes)
    assert point.rate_rps == pytest.approx(mig.rate_rps)


@PAPERS
@MEASURED
def test_a_full_batch_takes_as_long_as_on_the_mig_instance(model: str, slo_s: float, profile: str) -> None:
    point = profile_of(model, slo_s).point(SLICES[profile] / 7)
    mig = operating_points(TABLE, GPU.name, model, slo_s)[profile]
    assert point.latency.at(point.batch) == pytest.approx(mig.batch_latency_s)


@PAPERS
@MEASURED
def test_smaller_batches_take_at_most_as_long_as_on_the_mig_instance(model: str, slo_s: float, profile: str) -> None:
    latency = profile_of(model, slo_s).point(SLICES[profile] / 7).latency
    mig = operating_points(TABLE, GPU.name, model, slo_s)[profile].latency
    assert latency.batches == mig.batches
    assert all(own <= its + 1e-12 for own, its in zip(latency.latency_s, mig.latency_s, strict=True))


@ALL
@pytest.mark.parametrize("slo_s", SLOS_S)
def test_a_measured_share_is_never_worse_than_the_mig_instance(model: str, slo_s: float) -> None:
    try:
        mig = operating_points(TABLE, GPU.name, model, slo_s)
    except UnmetSloError:
        mig = {}
    shares = profile_of(model, slo_s)
    found = {profile: shares.point(SLICES[profile] / 7).rate_rps for profile in mig}
    assert all(found[profile] >= point.rate_rps * (1 - 1e-9) for profile, point in mig.items())


@ALL
@pytest.mark.parametrize("slo_s", SLOS_S)
def test_a_rate_never_falls_with_the_share(model: str, slo_s: float) -> None:
    shares = profile_of(model, slo_s)
    rates_rps = [shares.point(share).rate_rps for share in SHARES]
    assert all(less <= more for less, more in pairwise(rates_rps))


@ALL
def test_a_rate_never_rises_with_the_slowdown(model: str) -> None:
    shares = profile_of(model, 0.33)
    for share in SHARES[::4]:
        rates_rps = [shares.point(share, slowdown).rate_rps for slowdown in (1.0, 1.1, 1.5, 2.0, 4.0)]
        assert all(less <= more for more, less in pairwise(rates_rps))


def test_a_slowdown_stretches_latencies_and_divides_rates() -> None:
    shares = made(("1g.10gb", 4, 1, 0.1, 40.0))
    alone, beside = shares.point(1 / 7), shares.point(1 / 7, 2.0)
    assert beside.latency.at(4) == pytest.approx(2 * alone.latency.at(4))
    assert beside.rate_rps == pytest.approx(alone.rate_rps / 2)


@pytest.mark.parametrize(("share", "speed"), [(1 / 14, 5.0), (1 / 7, 10.0), (1.5 / 7, 15.0), (2 / 7, 20.0)])
def test_speed_is_linear_between_measured_shares_and_down_to_0(share: float, speed: float) -> None:
    point = made(("1g.10gb", 1, 1, 1 / 10, 10.0), ("2g.20gb", 1, 1, 1 / 20, 20.0)).point(share)
    assert (1 / point.latency.at(1), point.rate_rps) == pytest.approx((speed, speed))


def test_a_larger_share_is_as_fast_as_a_smaller_one_that_was_measured_faster() -> None:
    point = made(("1g.10gb", 1, 1, 0.1, 10.0), ("7g.80gb", 1, 1, 0.2, 5.0)).point(1.0)
    assert (point.rate_rps, point.latency.at(1)) == pytest.approx((10.0, 0.1))


def test_what_was_measured_on_large_instances_only_runs_on_small_shares() -> None:
    assert made(("7g.80gb", 8, 1, 0.05, 70.0)).point(1 / 7).rate_rps == pytest.approx(10.0)


def test_of_batches_that_meet_the_slo_the_one_of_the_highest_rate_is_taken() -> None:
    rows = (("7g.80gb", 1, 1, 0.1, 10.0), ("7g.80gb", 8, 1, 0.5, 16.0), ("7g.80gb", 16, 1, 0.51, 32.0))
    assert made(*rows).point(1.0).batch == 8


def test_a_smaller_share_takes_a_smaller_batch_to_meet_the_slo() -> None:
    shares = made(("7g.80gb", 1, 1, 0.1, 10.0), ("7g.80gb", 8, 1, 0.4, 20.0))
    assert [shares.point(share).batch for share in (0.5, 1.0)] == [1, 8]


@ALL
@pytest.mark.parametrize("share", [0.05, 1 / 7, 1.0])
def test_where_nothing_meets_the_slo_the_rate_is_0_and_the_fastest_serves(model: str, share: float) -> None:
    shares = profile_of(model, 1e-4)
    point = shares.point(share)
    kinds = {(row.processes, row.batch) for row in shares.rows}
    each = [profile_of(model, 1e-4, processes=processes).point(share) for processes, _ in kinds]
    assert point.rate_rps == 0.0
    assert point.latency.at(point.batch) == min(other.latency.at(other.batch) for other in each)


def test_the_curve_holds_measured_batches_of_the_same_process_count_up_to_its_own() -> None:
    sizes = [(batch, count) for batch in (1, 2, 4, 16) for count in (1, 2)]
    rows = [("7g.80gb", batch, count, 0.05 * batch * count, 20.0 + batch + count) for batch, count in sizes]
    point = made(*rows).point(1.0)
    assert (point.batch, point.processes, point.latency.batches) == (4, 2, (1, 2, 4))


def test_a_chosen_process_count_is_kept() -> None:
    shares = profile_of("resnet50", 0.15, processes=2)
    assert {shares.point(share).processes for share in SHARES} == {2}


@pytest.mark.parametrize("limit", ["batch", "max_batch"])
def test_no_batch_exceeds_a_limit(limit: str) -> None:
    free, limited = profile_of("resnet50", 0.15), profile_of("resnet50", 0.15, **{limit: 8})
    assert free.point(1.0).batch > 8
    assert max(limited.point(share).batch for share in SHARES) == 8


def test_a_model_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(ProfileTableError, match="no service profiles for the model 'gpt-5'"):
        profile_of("gpt-5", 0.15)


TIMES_S = {"1g.10gb": 20.0, "3g.40gb": 8.0, "7g.80gb": 4.0}


def test_training_rates_are_one_over_the_time_at_measured_shares() -> None:
    found = training_rates(GPU, TIMES_S, [1 / 7, 3 / 7, 1.0])
    assert found.tolist() == pytest.approx([1 / 20, 1 / 8, 1 / 4])


def test_nothing_is_trained_on_no_share() -> None:
    assert training_rates(GPU, TIMES_S, [0.0]).tolist() == [0.0]


def test_training_rates_rise_with_the_share() -> None:
    assert np.all(np.diff(training_rates(GPU, TIMES_S, [0.0, *SHARES])) > 0)


def test_training_rates_do_not_depend_on_the_order_of_profiles() -> None:
    turned = dict(reversed(TIMES_S.items()))
    assert training_rates(GPU, turned, SHARES).tolist() == training_rates(GPU, TIMES_S, SHARES).tolist()


# --- interference

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


@ALL
@pytest.mark.parametrize("slo_s", SLOS_S)
def test_in_turns_a_share_is_that_part_of_the_whole_gpu_at_most(model: str, slo_s: float) -> None:
    profile = profile_of(model, slo_s)
    whole_rps = profile.point(1.0).rate_rps
    found = [profile.point_in_turns(share).rate_rps for share in SHARES]
    assert all(
        rate_rps * (1 + TURN_COST) <= share * whole_rps * (1 + 1e-9)
        for share, rate_rps in zip(SHARES, found, strict=True)
    )


@ALL
def test_without_an_slo_it_is_exactly_that_part(model: str) -> None:
    profile = profile_of(model, math.inf)
    whole_rps = profile.point(1.0).rate_rps
    assert profile.point_in_turns(0.25).rate_rps == pytest.approx(whole_rps / 4 / (1 + TURN_COST))


def test_in_turns_a_batch_lasts_as_much_longer_as_its_part_is_smaller() -> None:
    point = made(("7g.80gb", 4, 1, 0.1, 40.0)).point_in_turns(0.25)
    assert (point.latency.at(4), point.rate_rps) == (pytest.approx(0.4 * 1.05), pytest.approx(10.0 / 1.05))


def test_steepness_is_the_mean_of_both_slopes_over_batches() -> None:
    knees = {1: Knee(0.5, 0.01, -0.04, -0.01, 0.1, 0.9), 4: Knee(0.4, 0.02, -0.09, -0.02, 0.1, 0.9)}
    measured = ShareProfile.of(TABLE, GPU, "resnet50", 0.15, knees=knees)
    assert measured.steepness == pytest.approx((0.04 + 0.01 + 0.09 + 0.02) / 4)


def test_without_measurements_a_steeper_model_is_steeper() -> None:
    assert profile_of("bert-large", 0.33).steepness > profile_of("mobilenet-v2", 0.33).steepness > 0
