from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose import PHRASES, beyond, phrases, prose_of


@pytest.mark.parametrize(
    "text",
    ["it is told by then", "what stands\nthere, as far as", "what comes of it, so far", "a plan gives what stood"],
)
def test_phrases_are_counted_across_lines(text: str) -> None:
    assert phrases(text) == 2


def test_what_only_looks_like_a_phrase_is_not_counted() -> None:
    assert phrases("The letter m stands for memory in a stand-in; the far end stands still; a far cry.") == 0
    assert len(PHRASES) == 6


def test_of_code_comments_and_strings_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text('stands = 1  # stands here\nsaid = f"it {stands} stood"\n', "utf-8")
    assert phrases(prose_of(file)) == 2


def test_a_number_above_its_limit_or_without_one_is_named() -> None:
    found = {"pages": {"by hand": 3}, "phrases": {"docs": 2, "new": 1}}
    assert list(beyond(found, {"pages": {"by hand": 3}, "phrases": {"docs": 1}})) == [
        "tests/prose.toml: phrases: docs: 2; at most 1",
        "tests/prose.toml: phrases: new: 1; at most 0",
    ]
