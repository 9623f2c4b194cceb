"""Reading JSON and YAML strictly: what is no mapping, no text, or says a key twice is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import PlanFileError
from planner.files.strict import read_document, value_in


def message_of(path: Path) -> str:
    with pytest.raises(PlanFileError) as caught:
        read_document(path, PlanFileError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert message_of(tmp_path / "none.json") == f"{tmp_path / 'none.json'}: cannot be read: No such file or directory"


def test_a_missing_file_is_offered_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "problem.json").write_text("{}")
    assert message_of(tmp_path / "problm.json").endswith(f" (did you mean {tmp_path / 'problem.json'}?)")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "cannot be read: it is a folder; a file is needed" in message_of(tmp_path)


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
        ("a.yaml", b"a:\n\tb: 1\n", "is no YAML: line 2 begins with a tab; YAML is indented with spaces"),
        ("a.yaml", b"a:\n  b: 1\n \tc: 2\n", "line 3 begins with a tab"),
        ("a.yaml", b"a: 1\nb: %x\n", "is no YAML: line 2, column 4: found character that cannot start any token"),
        ("a.yaml", b"", "holds None"),
        ("a.yaml", b"a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is given twice"),
        ("a.yaml", b"? [1]\n: 2\n", "is no YAML"),
        ("a.yaml", b"a: 1\nb: !!bool maybe\n", "line 2: the tag 'tag:yaml.org,2002:bool'; values without a tag"),
        ("a.yaml", b"a: !!int x\n", "line 1: the tag 'tag:yaml.org,2002:int'"),
        ("a.yaml", b"a: !!python/object/apply:os.system [ls]\n", "line 1: the tag 'tag:yaml.org,2002:python/object"),
        ("a.yaml", b"a: !!timestamp x\n", "line 1: the tag"),
        ("a.yaml", b"a: !!binary x\n", "line 1: the tag"),
        ("a.yaml", b"!!set {a}\n", "line 1: the tag"),
        ("a.yaml", b"a: &a [*a]\n", "line 1: *a is before or inside what it names"),
        ("a.yaml", b"a: *b\n", "line 1: *b is before or inside what it names"),
        ("a.yaml", b"a: &k x\n*k : 1\nx: 2\n", "line 3: the key 'x' is given twice"),
        ("a.yaml", b"<<: {a: 1}\n<<: {b: 1}\n", "line 2: the key '<<' is given twice"),
        ("a.yaml", b"- &a [1, 2]\n- *a\n", "holds [[1, 2], [1, 2]]; a mapping"),
        ("a.yaml", b"[" * 100_000, "nested more than 64 levels"),
        ("a.yaml", b"- " * 100_000 + b"x", "nested more than 64 levels"),
        ("a.json", b'{"a":' * 65 + b"1" + b"}" * 65, "nested more than 64 levels"),
        ("a.json", b'{"a": [' + b"0," * 2_000_000 + b"0]}", "more than 2000000 values"),
    ],
)
def test_what_is_no_mapping_is_refused(tmp_path: Path, name: str, content: bytes, part: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert part in message_of(path)


@pytest.mark.parametrize(
    ("text", "part"),
    [("[" * 9_000, "nested more than 64 levels"), ("{a: 1, a: 2}", "given twice"), ("!!int x", "without a tag")],
)
def test_a_value_is_read_as_strictly_as_a_file(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        value_in(text)


@pytest.mark.parametrize(("n_levels", "is_read"), [(64, True), (65, False)])
@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_both_formats_may_be_as_deep(tmp_path: Path, name: str, n_levels: int, is_read: bool) -> None:
    (tmp_path / name).write_text('{"a":' * n_levels + "1" + "}" * n_levels)
    if is_read:
        assert "a" in read_document(tmp_path / name, PlanFileError)
    else:
        assert "nested more than 64 levels" in message_of(tmp_path / name)


def test_yaml_merges_are_no_keys_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base: &base {a: 1, b: 2}\nother: {<<: *base, b: 3}\n")
    assert read_document(path, PlanFileError)["other"] == {"a": 1, "b": 3}


def test_a_long_value_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(str(list(range(1000))))
    assert len(message_of(path)) < len(str(path)) + 130


def test_aliases_that_repeat_too_much_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    assert "more than 2000000 values" in message_of(tmp_path / "a.yaml")


def test_merges_that_repeat_too_much_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    assert "more than 2000000 values" in message_of(tmp_path / "a.yaml")


def test_a_list_of_aliases_is_never_written_out(tmp_path: Path) -> None:
    lines = ["- &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 6)]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    assert "holds [['x', 'x'" in message_of(tmp_path / "a.yaml")


def test_a_key_given_twice_is_found_among_hundreds_of_thousands(tmp_path: Path) -> None:
    keys = ", ".join(f'"key{n}": 1' for n in [*range(300_000), 299_999])
    (tmp_path / "a.json").write_text(f"{{{keys}}}")
    assert "the key 'key299999' is given twice" in message_of(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["010", "0x1F", "0b11", "1_000", "1:30", "2024-01-01", "2024-99-99", "1" * 5000, "1e"])
def test_what_is_no_number_in_yaml_1_2_is_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(f"a: {text}\n")
    assert read_document(tmp_path / "a.yaml", PlanFileError)["a"] == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e5", 1e5),
        ("-1.5E-3", -1.5e-3),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
    ],
)
def test_numbers_of_yaml_1_2_are_numbers(tmp_path: Path, text: str, value: float) -> None:
    (tmp_path / "a.yaml").write_text(f"a: {text}\n")
    found = read_document(tmp_path / "a.yaml", PlanFileError)["a"]
    assert (found, type(found)) == (value, type(value))


def test_a_whole_number_of_thousands_of_digits_is_infinite_in_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f'{{"a": {"1" * 5000}}}')
    assert read_document(tmp_path / "a.json", PlanFileError)["a"] == float("inf")
