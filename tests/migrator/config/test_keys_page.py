from __future__ import annotations

import re
from collections.abc import Iterator

from migrator.config.sections import Config, Section
from tests.migrator.config.keys_page import PAGE, SECTIONS, page, rows, section_in

TEXT = PAGE.read_text("utf-8")


def keys(of: type[Section], seen: list[type[Section]]) -> Iterator[tuple[str, str]]:
    """Each key that a config may have, with the section that has it."""
    seen.append(of)
    for name, field in of.model_fields.items():
        yield of.__name__, name
        inside = section_in(field.annotation)
        if inside is not None and inside not in seen:
            yield from keys(inside, seen)


def test_the_page_tells_of_the_keys_what_their_sections_say() -> None:
    assert page(TEXT) == TEXT, "python -m tests.migrator.config.keys_page writes it anew"
    assert re.findall(r"<!-- made from (\w+) -->", TEXT) == [own.__name__ for own in SECTIONS.values()]


def test_every_key_that_a_config_may_have_is_in_a_table() -> None:
    shown = {key.rpartition(".")[2] for own in SECTIONS.values() for key, _, _ in rows(own)}
    bare = {"scale", "driver"}  # told by their keys
    assert {name for _, name in keys(Config, [])} - bare == shown
    assert len([*keys(Config, [])]) - len(bare) == sum(1 for own in SECTIONS.values() for _ in rows(own))


def test_every_row_says_what_its_key_means() -> None:
    assert [key for own in SECTIONS.values() for key, _, meaning in rows(own) if not meaning] == []
