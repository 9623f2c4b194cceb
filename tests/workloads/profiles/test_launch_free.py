import pytest

from workloads.profiles.launch_free import DERIVED, is_launch_bound, launch_free, linear_fit
from workloads.profiles.operating_point import operating_points
from workloads.profiles.shipped import shipped_profiles
from workloads.profiles.table import ServiceProfiles, ServiceRow

GPU = "a100-80gb"
LAUNCH_BOUND = {"resnet50", "mobilenet-v2", "inception-v3", "bert-large", "bert-base"}


def row(profile: str, batch: int, latency_s: float) -> ServiceRow:
    return ServiceRow("me", GPU, "m", profile, batch, 1, latency_s, batch / latency_s)


def flat(*, small_s: float = 0.05) -> tuple[ServiceRow, ...]:
    """A model whose batch 1 takes the same on all profiles, and whose large batches follow 2 + batch milliseconds."""
    return tuple(
        row(profile, batch, small_s if batch < 8 else 0.002 + 0.001 * batch)
        for profile in ("1g.10gb", "7g.80gb")
        for batch in (1, 4, 8, 16, 32)
    )


def freed(rows: tuple[ServiceRow, ...]) -> dict[tuple[str, int], ServiceRow]:
    return {(r.profile, r.batch): r for r in launch_free(ServiceProfiles("made", rows)).rows}


def test_a_straight_line_is_found() -> None:
    assert linear_fit([8, 16, 64], [0.010, 0.018, 0.066]) == pytest.approx((0.002, 0.001))


def test_small_batches_follow_the_line_through_the_large_ones() -> None:
    made = freed(flat())["1g.10gb", 4]
    assert (made.latency_s, made.derived) == (pytest.approx(0.006), DERIVED)
    assert made.throughput_rps == pytest.approx(4 / made.latency_s)


def test_large_batches_stay_as_recorded() -> None:
    made = freed(flat())
    assert [r for r in flat() if r.batch >= 8] == [r for (_, batch), r in made.items() if batch >= 8]


def test_nothing_becomes_slower() -> None:
    assert freed(flat(small_s=0.0029))["7g.80gb", 1].latency_s == 0.0029


def test_a_model_that_gains_from_larger_profiles_stays_as_recorded() -> None:
    rows = (row("1g.10gb", 1, 0.05), row("7g.80gb", 1, 0.02), *(r for r in flat() if r.batch >= 8))
    assert tuple(freed(rows).values()) == rows


def test_too_few_large_batches_say_nothing() -> None:
    rows = tuple(r for r in flat() if r.batch <= 8)
    assert tuple(freed(rows).values()) == rows


def test_a_line_that_crosses_zero_says_nothing() -> None:
    rows = tuple(r if r.batch < 8 else row(r.profile, r.batch, 0.001 * (r.batch - 4)) for r in flat())
    assert tuple(freed(rows).values()) == rows


def test_a_model_without_batch_1_is_not_called_launch_bound() -> None:
    assert not is_launch_bound([r for r in flat() if r.batch > 1])


@pytest.mark.parametrize("model", shipped_profiles().models(GPU))
def test_which_shipped_models_are_launch_bound(model: str) -> None:
    assert is_launch_bound(shipped_profiles().of(GPU, model)) == (model in LAUNCH_BOUND)


@pytest.mark.parametrize("model", shipped_profiles().models(GPU))
def test_every_shipped_rate_at_batch_1_is_at_least_the_recorded(model: str) -> None:
    recorded, free = (
        operating_points(table, GPU, model, 0.33, batch=1)
        for table in (shipped_profiles(), launch_free(shipped_profiles()))
    )
    gains = {name: free[name].rate_rps / recorded[name].rate_rps for name in recorded}
    assert min(gains.values()) >= 1
    assert (max(gains.values()) > 1.1) == (model in LAUNCH_BOUND)


def test_the_variant_stands_in_the_tables_name() -> None:
    assert launch_free(shipped_profiles()).name == "the shipped table, launch-free"
