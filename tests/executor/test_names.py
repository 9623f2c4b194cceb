from __future__ import annotations

import pytest

from executor.names import nearest, spelled_as


def test_a_name_is_found_whatever_the_case_of_its_letters() -> None:
    assert spelled_as("A100-80GB", ["a30-24gb", "a100-80gb"]) == "a100-80gb"


def test_a_name_that_is_known_as_it_stands_is_not_changed() -> None:
    assert spelled_as("B", ["b", "B"]) == "B"


def test_a_name_that_could_be_two_is_left_to_the_caller() -> None:
    assert spelled_as("AB", ["ab", "Ab"]) == "AB"


def test_an_unknown_name_is_left_to_the_caller() -> None:
    assert spelled_as("c", ["a", "b"]) == "c"


CARDS = ("a100-40gb", "a100-80gb", "a30-24gb", "B200-180gb")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("a100-8gb", "a100-80gb"),
        ("A30", "a30-24gb"),
        ("b200", "B200-180gb"),
        ("v100", None),
        ("", None),
        ("a30-24gb" + "x" * 10**6, None),
    ],
)
def test_what_was_meant_is_the_most_like_or_the_first_that_begins_so(typed: str, meant: str | None) -> None:
    assert nearest(typed, CARDS) == meant
