import pytest

from workloads.errors import ProfileTableError
from workloads.profiles.shipped import shipped_profiles
from workloads.profiles.table import ServiceProfiles, ServiceRow
from workloads.retraining_time import retraining_times_s

GPU = "a100-80gb"
PROFILES = ServiceProfiles(
    "made",
    (
        ServiceRow("me", GPU, "m", "1g.10gb", 1, 1, 0.01, 100.0),
        ServiceRow("me", GPU, "m", "1g.10gb", 8, 1, 0.04, 200.0),
        ServiceRow("me", GPU, "m", "1g.10gb", 8, 2, 0.04, 400.0),
        ServiceRow("me", GPU, "m", "2g.20gb", 8, 1, 0.02, 400.0),
        ServiceRow("me", GPU, "m", "3g.40gb", 8, 2, 0.02, 800.0),
        ServiceRow("me", GPU, "packed", "3g.40gb", 8, 2, 0.02, 800.0),
    ),
)


def test_it_is_three_times_the_inference_time_at_the_best_batch_of_one_process() -> None:
    times_s = retraining_times_s(PROFILES, GPU, "m", n_samples=1000, n_epochs=2)
    assert times_s == {"1g.10gb": 3 * 2000 / 200, "2g.20gb": 3 * 2000 / 400}


@pytest.mark.parametrize("model", shipped_profiles().models(GPU))
def test_every_shipped_model_retrains_faster_on_a_larger_profile(model: str) -> None:
    times_s = retraining_times_s(shipped_profiles(), GPU, model, n_samples=100, n_epochs=1)
    assert list(times_s) == ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]
    assert list(times_s.values()) == sorted(times_s.values(), reverse=True)


@pytest.mark.parametrize(("n_samples", "n_epochs"), [(0, 1), (1, 0), (-5, 1)])
def test_nothing_to_train_on_is_refused(n_samples: int, n_epochs: int) -> None:
    with pytest.raises(ProfileTableError, match="both must be ≥ 1"):
        retraining_times_s(PROFILES, GPU, "m", n_samples=n_samples, n_epochs=n_epochs)


def test_a_model_that_never_ran_alone_cannot_be_retrained() -> None:
    with pytest.raises(ProfileTableError, match="packed on a100-80gb has no row with processes 1"):
        retraining_times_s(PROFILES, GPU, "packed", n_samples=1, n_epochs=1)
