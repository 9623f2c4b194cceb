from __future__ import annotations

from executor.names import spelled_as


def test_a_name_is_found_whatever_the_case_of_its_letters() -> None:
    assert spelled_as("A100-80GB", ["a30-24gb", "a100-80gb"]) == "a100-80gb"


def test_a_name_that_is_known_as_it_stands_is_not_changed() -> None:
    assert spelled_as("B", ["b", "B"]) == "B"


def test_a_name_that_could_be_two_is_left_to_the_caller() -> None:
    assert spelled_as("AB", ["ab", "Ab"]) == "AB"


def test_an_unknown_name_is_left_to_the_caller() -> None:
    assert spelled_as("c", ["a", "b"]) == "c"
