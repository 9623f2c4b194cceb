import pytest

from workloads.errors import ProfileTableError
from workloads.profiles.derived import latency_ratio, of_similar_model, on_missing_profile
from workloads.profiles.table import ServiceRow

GPU = "a100-80gb"


def row(profile: str, batch: int, latency_s: float, model: str = "vit-b-16", processes: int = 1) -> ServiceRow:
    return ServiceRow("me", GPU, model, profile, batch, processes, latency_s, batch * processes / latency_s)


THREE = [row("3g.40gb", 1, 0.01), row("3g.40gb", 8, 0.10), row("3g.40gb", 16, 0.20), row("3g.40gb", 32, 0.40)]
FOUR = [row("4g.40gb", 1, 0.02), row("4g.40gb", 8, 0.08), row("4g.40gb", 16, 0.18), row("4g.40gb", 32, 0.32)]


def test_the_ratio_is_the_median_over_large_batches() -> None:
    assert latency_ratio([*THREE, *FOUR], "vit-b-16", "3g.40gb", "4g.40gb") == pytest.approx(0.8)


def test_several_processes_do_not_enter_the_ratio() -> None:
    packed = [row("3g.40gb", 64, 1.0, processes=2), row("4g.40gb", 64, 9.0, processes=2)]
    assert latency_ratio([*THREE, *FOUR, *packed], "vit-b-16", "3g.40gb", "4g.40gb") == pytest.approx(0.8)


def test_a_ratio_needs_a_batch_that_was_measured_on_both() -> None:
    with pytest.raises(ProfileTableError, match=r"no batch ≥ 8 was measured on both 3g\.40gb and 4g\.40gb"):
        latency_ratio([*THREE, FOUR[0]], "vit-b-16", "3g.40gb", "4g.40gb")


def test_a_missing_profile_follows_another_but_is_no_faster_than_the_largest() -> None:
    whole = [row("7g.80gb", 1, 0.009), row("7g.80gb", 8, 0.03)]
    made = on_missing_profile(
        [*THREE[:2], *whole], profile="4g.40gb", like="3g.40gb", ratio=0.5, faster="7g.80gb", origin="here"
    )
    assert [(r.profile, r.batch, r.latency_s) for r in made] == [("4g.40gb", 1, 0.009), ("4g.40gb", 8, 0.05)]
    assert {r.derived for r in made} == {"latency of 3g.40gb × 0.500 (here), no faster than 7g.80gb"}


def test_a_similar_model_takes_its_share_of_the_latency() -> None:
    (made,) = of_similar_model(THREE[:1], model="convnext-base", like="vit-b-16")
    assert (made.model, made.latency_s) == ("convnext-base", pytest.approx(0.01 * 15.36 / 17.56))
    assert made.throughput_rps == pytest.approx(1 / made.latency_s)
    assert made.derived == "latency of vit-b-16 × 15.36/17.56 (GFLOPs)"
