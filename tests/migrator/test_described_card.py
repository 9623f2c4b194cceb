"""A card that the catalogue does not know is planned for and run by its description, or by its driver's name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from executor.described import described, toml_of
from migrator.config.reading import config_yaml, read_config
from planner.files.problem_file import problem_of, problem_to_json
from tests.executor.test_discovery import discovered
from tests.migrator.conftest import PAPER_PROBLEM, WriteConfig
from tests.standin.cards import A100_80, H20
from tests.standin.fixtures import MakeStandIn
from workloads.profiles.table import shipped_profiles, text_of

CARD = discovered(H20)
NAMES = {"1g.10gb": "1g.18gb", "2g.20gb": "2g.35gb", "3g.40gb": "3g.71gb", "4g.40gb": "4g.71gb", "7g.80gb": "7g.141gb"}


def measured(gpu: str) -> str:
    """The shipped table as if it had been measured on a GPU whose profiles have an H20's names."""
    rows = list(csv.DictReader(io.StringIO(text_of(shipped_profiles().rows))))
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0])
    writer.writeheader()
    writer.writerows({**row, "gpu": gpu, "profile": NAMES[row["profile"]]} for row in rows if row["profile"] in NAMES)
    return out.getvalue()


@pytest.fixture
def on_h20(tmp_path: Path, write_config: WriteConfig) -> Path:
    """A config, with a card's file and a table of its own beside it."""
    (tmp_path / "h20.toml").write_text(toml_of(CARD))
    (tmp_path / "mine.csv").write_text(measured("h20"))
    return write_config({"gpu.model": "h20.toml", "profiles": "mine.csv"})


def test_a_run_needs_neither_the_cards_file_nor_its_driver_afterwards(
    on_h20: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    assert call("run", on_h20, "--out", "out", "--windows", 1)[0] == 0
    (tmp_path / "h20.toml").unlink()
    (header, *_) = map(json.loads, Path("out/events.jsonl").read_text().splitlines())
    assert (header["gpu"], header["card"]["title"]) == ("h20", "NVIDIA H20")
    for command in (("report", "out"), ("verify", "out"), ("plan", "out/config.yaml", "--window", 0)):
        assert call(*command)[0] == 0, command


def test_a_config_says_all_of_a_described_card_and_nothing_of_a_catalogued_one(on_h20: Path, tmp_path: Path) -> None:
    (tmp_path / "again.yaml").write_text(config_yaml(read_config(on_h20), tmp_path))
    (tmp_path / "h20.toml").unlink()
    again = read_config(tmp_path / "again.yaml")
    assert (again.gpu.model, again.gpu.cut, again.gpu.cut.profile("2g.35gb").sm_count) == ("h20", CARD, 16)
    other = read_config(tmp_path / "again.yaml", ["gpu.model=a100-80gb"])
    assert "card" not in yaml.safe_load(config_yaml(other))["gpu"]


def test_a_card_of_this_machine_is_known_by_what_gpu_list_prints(
    on_h20: Path, tmp_path: Path, make_standin: MakeStandIn
) -> None:
    make_standin(H20)
    (tmp_path / "h20.toml").unlink()
    for name in ("NVIDIA H20", "h20", "H20"):
        assert read_config(on_h20, [f"gpu.model={name}"]).gpu.cut == CARD


def test_a_real_run_is_on_the_described_card_and_on_no_other(
    on_h20: Path, make_standin: MakeStandIn, call: Callable[..., tuple[int, str, str]]
) -> None:
    make_standin(H20, A100_80)
    run = ("run", on_h20, "--gpu", "nvml", "--dry-run", "--state", "state")
    code, out, err = call(*run)
    assert (code, "warning" in err, "-cgi" in out) == (0, False, True)
    code, _, err = call(*run, "--index", 1)
    assert (code, "gpu.model is h20; GPU 1 is a NVIDIA A100-SXM4-80GB: set gpu.model to a100-80gb" in err) == (4, True)


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("starts = [0, 4]", "starts = [0, 3]", "line 61: profiles.4.starts: 3g.71gb at 0 and 3 overlap"),
        ("compute_slices = 3", "compute_slices = 8", "profiles.4.compute_slices: 3g.71gb takes 8; the GPU has 7"),
    ],
)
def test_a_cards_file_that_cannot_be_is_bad_input(
    on_h20: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]], was: str, now: str, told: str
) -> None:
    path = tmp_path / "h20.toml"
    path.write_text(path.read_text().replace(was, now, 1))
    code, out, err = call("run", on_h20, "--out", "out")
    assert (code, out, err.count("\n"), Path("out").exists()) == (2, "", 1, False)
    assert (f"{path} line" in err, told.partition(": ")[2] in err) == (True, True)


def test_a_table_of_a_profile_that_the_card_does_not_have_is_bad_input(
    on_h20: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "mine.csv").write_text(measured("h20").replace("3g.71gb", "3g.72gb"))
    code, _, err = call("run", on_h20, "--out", "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "profile: h20 has no MIG profile '3g.72gb'" in err


def test_a_problem_file_holds_a_described_card() -> None:
    text = json.dumps(PAPER_PROBLEM).replace("1g.5gb", "1g.18gb").replace("2g.10gb", "2g.35gb")
    problem = problem_of(json.loads(text) | {"gpu": described(CARD)}, "test")
    written = json.loads(json.dumps(problem_to_json(problem)))
    assert problem.gpu == CARD
    assert (written["gpu"]["title"], problem_of(written, "test").gpu) == ("NVIDIA H20", CARD)
    assert problem_to_json(problem_of(PAPER_PROBLEM, "test"))["gpu"] == "a100-40gb"
