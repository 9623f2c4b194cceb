"""What a driver describes can be written to a file and read from it; what a person has broken in it is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from executor.described import described, model_of, read_model, toml_of
from executor.errors import InvalidGpuModelError, UnknownGpuModelError
from executor.mig import GpuModel
from tests.executor.test_discovery import discovered
from tests.standin.cards import A100_80, CARDS

EVERY_MODEL = [
    *map(gpu_model, gpu_model_names()),
    *map(discovered, CARDS),
    discovered(replace(A100_80, name="A800 80GB")),
]


def all_of(model: GpuModel) -> tuple[object, ...]:
    """Profiles compare by size alone: all else that they say beside it."""
    return (model, *(tuple(getattr(p, name) for name in p.__dataclass_fields__) for p in model.profiles))


@pytest.mark.parametrize("model", EVERY_MODEL, ids=lambda model: model.name)
def test_a_described_model_is_read_back_whole(model: GpuModel, tmp_path: Path) -> None:
    (tmp_path / "card.toml").write_text(toml_of(model))
    assert all_of(gpu_model(str(tmp_path / "card.toml"))) == all_of(model)
    assert all_of(model_of(described(model))) == all_of(model)


TEXT = toml_of(gpu_model("a100-40gb"))


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            "starts = [0, 4]",
            "starts = [0, 2]",
            "line 63: profiles.4.starts: 3g.20gb at 0 and 2 overlap; each takes 4 mem",
        ),
        (
            "starts = [0, 4]",
            "starts = [0, 5]",
            "line 63: profiles.4.starts: 3g.20gb at 5 takes 4 memory slices; the GPU",
        ),
        ("starts = [0, 4]", "starts = []", "line 63: profiles.4.starts: 3g.20gb has none; at least one"),
        ("compute_slices = 4", "compute_slices = 8", "profiles.5.compute_slices: 4g.20gb takes 8; the GPU has 7"),
        (
            "memory_slices = 8",
            "memory_slices = 7",
            "profiles.2.starts: 1g.10gb at 6 takes 2 memory slices; the GPU has 7",
        ),
        ("memory_slices = 8", "memory_slices = 99", "line 4: memory_slices: is 99; 1 to 16 are allowed"),
        ("max_instances = 3", "max_instances = 4", "profiles.3.max_instances: 2g.10gb is 4; 1 to 3"),
        ("sm_count = 28", "smcount = 28", "profiles.3.smcount: unknown key (did you mean sm_count?)"),
        ("gi_profile_id = 9", "gi_profile_id = '9'", "profiles.4.gi_profile_id: Expected `int`, got `str`"),
        ("gi_profile_id = 9\n", "", "line 59: profiles.4.gi_profile_id: Object missing required field"),
        ("memory_gib = 9.62", "memory_gib = nan", "memory_gib: 1g.10gb is nan; a number from"),
        ('name = "2g.10gb"', 'name = "1g.10gb"', "profiles.3.name: 1g.10gb is there twice"),
        ('name = "a100-40gb"', 'name = "../x"', "line 1: name: '../x' is no name; small letters"),
        ("starts = [0, 4]", "starts = [0", "no TOML file: "),
    ],
)
def test_what_cannot_be_is_named_with_its_line_and_key(tmp_path: Path, was: str, now: str, told: str) -> None:
    path = tmp_path / "card.toml"
    path.write_text(TEXT.replace(was, now, 1))
    assert path.read_text() != TEXT
    with pytest.raises(InvalidGpuModelError) as refused:
        read_model(path)
    assert (str(refused.value).startswith(f"{path}"), told in str(refused.value)) == (True, True)


def test_a_model_of_too_many_layouts_is_refused() -> None:
    document = described(gpu_model("a100-40gb")) | {"compute_slices": 16, "memory_slices": 16}
    first = document["profiles"][0] | {"starts": list(range(16)), "max_instances": 16}
    document["profiles"] = [first | {"name": f"1g.{n}gb"} for n in range(3)]
    with pytest.raises(InvalidGpuModelError, match="they make 4,294,967,296 layouts; at most 100,000 are allowed"):
        model_of(document)


@pytest.mark.parametrize("path", ["absent.toml", ".toml", "/dev/zero.toml"])
def test_a_file_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(UnknownGpuModelError, match=f"^{path}: cannot be read: No such file or directory"):
        gpu_model(path)
