from __future__ import annotations

import pytest

from tests.doors import found, second_doors


def test_files_are_opened_through_one_door() -> None:
    assert found() == []


@pytest.mark.parametrize(
    "opening",
    [
        "open(name)",
        "Path(name).open()",
        "path.open(mode)",
        "os.open(name, 0)",
        "gzip.open(name)",
        "Image.open(name)",
        "path.read_text()",
        "(folder / name).read_bytes()",
        "path.write_text(text)",
        "np.load(name)",
        "json.load(file)",
        "FileIO(name)",
        "io.FileIO(name)",
        "os.truncate(name, 0)",
        "zipfile.ZipFile(name)",
        "pd.read_csv(name)",
    ],
)
def test_a_second_door_is_seen(opening: str) -> None:
    (line,) = second_doors("a.py", f"def use():\n    return {opening}\n")
    assert line.startswith("a.py:2: ")


@pytest.mark.parametrize(
    "call", ["models.open(window)", "np.load(BytesIO(raw))", "open_input(path)", "json.loads(raw)"]
)
def test_what_opens_no_file_is_none(call: str) -> None:
    assert list(second_doors("a.py", call)) == []
