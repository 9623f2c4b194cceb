"""Benchmarks as sequences of experiences, on made-up samples."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.errors import LearningError
from workloads.learning.experiences import (
    Asked,
    Benchmark,
    Replay,
    Samples,
    class_incremental,
    encoded,
    even_groups,
    held_out,
)


def made(n: int, n_classes: int = 6, first: int = 0) -> Samples:
    """Samples whose four bytes tell them apart."""
    numbers = np.arange(first, first + n)
    return Samples(
        np.stack([numbers // 256, numbers % 256, numbers * 0, numbers * 0], 1).astype(np.uint8), numbers % n_classes
    )


def bench(asked: Asked = "new") -> Benchmark:
    return class_incremental("made", (made(120), made(60, first=300)), [(0, 1), (2, 3), (4, 5)], asked)


def test_each_experience_has_its_own_classes_only() -> None:
    assert [set(experience.train.labels.tolist()) for experience in bench().experiences] == [{0, 1}, {2, 3}, {4, 5}]


def test_classes_that_were_seen_add_up() -> None:
    assert bench().seen(1) == (0, 1, 2, 3)


def test_requests_ask_about_the_current_experience() -> None:
    assert set(bench("new").test(1).labels.tolist()) == {2, 3}


def test_requests_may_ask_about_all_experiences_so_far() -> None:
    assert set(bench("seen").test(1).labels.tolist()) == {0, 1, 2, 3}


def test_training_samples_are_as_even_over_classes_as_they_allow() -> None:
    assert np.bincount(bench().train(1, 10, seed=0).labels).tolist() == [0, 0, 5, 5]


def test_the_same_seed_draws_the_same_samples() -> None:
    one, other = (bench().train(1, 10, seed=3).inputs.tolist() for _ in range(2))
    assert one == other


def test_other_seeds_draw_others() -> None:
    assert bench().train(1, 10, seed=3).inputs.tolist() != bench().train(1, 10, seed=4).inputs.tolist()


def test_memory_is_even_over_the_earlier_experiences() -> None:
    assert np.bincount(bench().memory(2, 20, seed=0).labels).tolist() == [5, 5, 5, 5]


def test_the_first_experience_has_nothing_to_remember() -> None:
    assert len(bench().memory(0, 20, seed=0)) == 0


def test_the_last_experience_holds_for_later_windows() -> None:
    assert [bench().number_in(window) for window in (0, 2, 9)] == [0, 2, 2]


def test_an_experience_that_is_not_there_is_refused() -> None:
    with pytest.raises(LearningError, match="experience 3; 0 to 2 are there"):
        bench().train(3, None, seed=0)


def test_classes_without_samples_are_named() -> None:
    with pytest.raises(LearningError, match=r"experience 1 has no training samples of the classes \[6\]"):
        class_incremental("made", (made(120), made(60)), [(0, 1), (5, 6)], "new")


def test_a_request_carries_a_test_sample_and_its_label() -> None:
    test = bench().test(1)
    known = {row.tobytes(): int(label) for row, label in zip(test.inputs, test.labels, strict=True)}
    requests = [Replay(bench(), 1, seed=0).request(index) for index in range(50)]
    assert all(known[request.payload] == request.label for request in requests)


def test_a_round_of_requests_asks_about_each_sample_once() -> None:
    replay = Replay(bench(), 1, seed=0)
    assert len({replay.request(index).payload for index in range(20)}) == len(bench().test(1)) == 20


def test_requests_are_the_same_in_whatever_order_they_are_asked_for() -> None:
    forth, back = Replay(bench(), 1, seed=0), Replay(bench(), 1, seed=0)
    assert [forth.request(i) for i in range(60)] == [back.request(i) for i in reversed(range(60))][::-1]


@pytest.mark.parametrize(
    ("answer", "right"), [(encoded(258), True), (encoded(2), False), (b"\x02", False), (b"", False)]
)
def test_an_answer_is_right_if_it_is_the_label(answer: bytes, right: bool) -> None:
    request = Replay(bench(), 1, seed=0).request(0)
    assert type(request)(b"", 258).judge(answer) is right


def test_all_classes_fall_into_even_groups() -> None:
    groups = even_groups(10, 4, seed=1)
    assert sorted(len(group) for group in groups) == [2, 2, 3, 3]
    assert sorted(label for group in groups for label in group) == list(range(10))


def test_what_is_held_out_has_its_share_of_every_class() -> None:
    kept, out = held_out(made(120), 0.25, np.random.default_rng(0))
    assert np.bincount(out.labels).tolist() == [5] * 6
    assert len(kept) == 90


def test_samples_are_read_only() -> None:
    assert not made(3).inputs.flags.writeable


def test_inputs_of_another_type_are_refused() -> None:
    with pytest.raises(LearningError, match="inputs are float64; uint8 or uint16 is needed"):
        Samples(np.zeros((2, 4)), np.zeros(2, np.int64))
