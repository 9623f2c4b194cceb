"""``share_profiles``: who goes by measured shares, what stays assumed, and what a config may not ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from migrator.config.reading import config_yaml, files_in, read_config, rooted, validate_config
from migrator.errors import ConfigError
from migrator.inputs.assembly import assemble
from migrator.inputs.assumed import assumed_in
from migrator.inputs.setting import Setting
from planner.policies.ekya import Ekya
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.simulation import run_of
from tests.workloads.profiles.share_rows import CARD, share_rows, share_text

SHORT = {"window_s": 15, "windows": 1, "tenants.0.retraining.samples": 1500}


def settled(folder: Path, changes: Mapping[str, Any] | None = None, rows: list[str] | None = None) -> Setting:
    (folder / "shares.csv").write_text(share_text(rows))
    data = changed(SMALL, {"share_profiles": str(folder / "shares.csv"), **(changes or {})})
    setting, _ = assemble(validate_config(data, "small"), "small")
    return setting


def test_without_the_key_a_resolved_config_does_not_have_it() -> None:
    config = validate_config(SMALL, "small")
    assert "share_profiles" not in config_yaml(config)
    assert assemble(config, "small")[0].shares is None


def test_the_file_is_found_beside_the_config(tmp_path: Path) -> None:
    config = rooted(validate_config(changed(SMALL, {"share_profiles": "shares.csv"}), "small"), tmp_path / "c.yaml")
    assert config.share_profiles == str(tmp_path.resolve() / "shares.csv")
    assert tmp_path.resolve() / "shares.csv" in files_in(config)
    assert "share_profiles: shares.csv" in config_yaml(config, tmp_path)


def test_shares_and_interference_are_as_measured(tmp_path: Path) -> None:
    setting = settled(tmp_path)
    assert list(setting.knees("resnet50")) == [1, 8]
    assert setting.sensitivity("bert-large").beside_retraining == pytest.approx(1.2)
    assert settled(tmp_path, rows=share_rows(beside={})).sensitivity("bert-large").beside_retraining == 1.67


def test_plans_on_mig_do_not_go_by_them(tmp_path: Path) -> None:
    plain, _ = assemble(validate_config(SMALL, "small"), "small")
    assert settled(tmp_path).tenants == plain.tenants


@pytest.mark.parametrize("policy", ["ekya", "astraea", "time-sharing", "sirius"])
def test_rivals_without_partitions_serve_more_where_shares_are_faster(
    tmp_path: Path, write_config, policy: str
) -> None:  # fmt: skip
    def in_time(factor: float) -> int:
        ms = [row.split(",") for row in share_rows()]
        rows = [",".join([*r[:5], f"{factor * float(r[5]):.6g}", f"{factor * float(r[6]):.6g}", r[7]]) for r in ms]
        (tmp_path / "shares.csv").write_text(share_text(rows))
        changes = {**SHORT, "tenants.0.arrivals.rate_rps": 700, "share_profiles": str(tmp_path / "shares.csv")}
        path = write_config(changes)
        return sum(one.in_time for one in run_of(assemble(read_config(path), str(path)), policy_of(policy)).totals)

    assert in_time(0.5) > in_time(2.0)


def test_a_run_by_measured_shares_is_the_same_twice(tmp_path: Path, write_config) -> None:
    (tmp_path / "shares.csv").write_text(share_text())
    path = write_config({**SHORT, "share_profiles": str(tmp_path / "shares.csv")})
    first, second = (run_of(assemble(read_config(path), str(path)), Ekya()) for _ in range(2))
    assert first.log.entries == second.log.entries


def test_what_was_measured_is_not_assumed(tmp_path: Path) -> None:
    found = [one for one in assumed_in(settled(tmp_path), "shares", is_planned=False) if "interference" in one.what]
    assert [(one.tenant, one.value) for one in found] == [("language", {"beside inference": 3.19})]


def test_of_a_training_that_was_not_measured_the_mean_of_the_others_is_assumed(tmp_path: Path) -> None:
    rows = share_rows(beside={"bert-large": 1.2, "vit-b-16": 1.6})
    found = assumed_in(settled(tmp_path, rows=rows), "shares", is_planned=False)
    unseen = [one for one in found if one.what == "interference of trainings that were not measured"]
    assert {one.tenant for one in unseen} == {"vision", "language"}
    assert unseen[0].value == pytest.approx({"resnet50": 1.4})
    assert unseen[0].source == "the mean beside bert-large, vit-b-16"


def test_what_was_left_out_is_warned_of(tmp_path: Path) -> None:
    setting = settled(tmp_path, rows=[*share_rows(), f"{CARD},resnet50,1,60,,9,9.1,"])
    assert any("9 ms on 60 %" in warning for warning in setting.warnings)


def test_a_card_in_shares_is_planned_by_the_curves(tmp_path: Path) -> None:
    (tmp_path / "profiles.csv").write_text(
        "source,gpu,model,profile,batch,processes,latency_ms,throughput_rps\n"
        + "".join(f"me,{CARD},{m},{p},1,1,9,100\n" for m in ("resnet50", "bert-large") for p in ("2m", "4m", "7m"))
    )
    changes = {"gpu.model": CARD, "profiles": str(tmp_path / "profiles.csv"), "tenants.1.slo_ms": 900}
    points = settled(tmp_path, changes).tenants[0].operating_points
    assert points["2m"].derived == "share curve of shares.csv, × 1.200 beside a training"
    assert points["7m"].derived == "share curve of shares.csv"
    assert points["2m"].rate_rps < points["4m"].rate_rps


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tenants.0.model": "vit-b-16"}, "no rows of the model 'vit-b-16'; it has bert-large, resnet50"),
        ({"tenants.0.batch": 4}, "tenants.vision.batch is 4; .* has 1, 8, or auto"),
        ({"tenants.0.processes": 2}, "tenants.vision.processes is 2; shares have one: 1, or auto"),
        ({"profile_variant": "launch-free"}, "profile_variant is launch-free, and shares are as recorded"),
        ({"share_profiles": "none.csv"}, "none.csv: cannot be read"),
    ],
)
def test_what_shares_do_not_tell_is_refused(tmp_path: Path, changes: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"small: share_profiles: .*{says}"):
        settled(tmp_path, changes)
