from __future__ import annotations

from tests.migrator.log.kinds_page import PAGE, page, rendered


def test_the_page_tells_of_the_kinds_what_their_types_say() -> None:
    assert PAGE.read_text("utf-8") == page(rendered()), "python -m tests.migrator.log.kinds_page writes it anew"
