"""Reading JSON and YAML strictly: what is no mapping, no text, or says a key twice is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import PlanFileError
from planner.files.strict import read_document


def message_of(path: Path) -> str:
    with pytest.raises(PlanFileError) as caught:
        read_document(path, PlanFileError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert message_of(tmp_path / "none.json") == f"{tmp_path / 'none.json'}: cannot be read: No such file or directory"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "cannot be read: Is a directory" in message_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.json", b"\xff\xfe", "it is not UTF-8 text"),
        ("a.json", b"{", "is no JSON"),
        ("a.json", b"", "is no JSON"),
        ("a.json", b"[" * 100_000, "is no JSON"),
        ("a.json", b"[1]", "holds [1]; a mapping of keys to values is needed"),
        ("a.json", b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is given twice"),
        ("a.yaml", b"a: [", "is no YAML"),
        ("a.yaml", b"", "holds None"),
        ("a.yaml", b"a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is given twice"),
        ("a.yaml", b"? [1]\n: 2\n", "is no YAML"),
    ],
)
def test_what_is_no_mapping_is_refused(tmp_path: Path, name: str, content: bytes, part: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert part in message_of(path)


def test_yaml_merges_are_no_keys_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base: &base {a: 1, b: 2}\nother: {<<: *base, b: 3}\n")
    assert read_document(path, PlanFileError)["other"] == {"a": 1, "b": 3}


def test_a_long_value_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(str(list(range(1000))))
    assert len(message_of(path)) < len(str(path)) + 130
