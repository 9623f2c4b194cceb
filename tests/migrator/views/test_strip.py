from __future__ import annotations

import pytest

from migrator.views.strip import tenant_letters


@pytest.mark.parametrize(
    ("names", "letters"),
    [
        (("vision", "language"), ("V", "L")),
        (("resnet", "roberta"), ("A", "B")),
        (("1st", "second"), ("A", "B")),
        (("one",), ("O",)),
    ],
)
def test_first_letters_where_they_differ_else_in_order(names: tuple[str, ...], letters: tuple[str, ...]) -> None:
    assert tenant_letters(names) == letters
