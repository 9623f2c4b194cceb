from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.paper.workloads import CONFIGS, accuracies, write_configs
from migrator.config.reading import read_config
from migrator.config.sections import Config
from migrator.execution.ahead import plan_through
from migrator.inputs.assembly import assemble
from tests.seeds import daily

# The paper's Table 4: Model-1, its data set, Model-2, its data set. Model-1 is asked by the Alibaba trace, Model-2 by
# the Azure trace, throughout. Spelt out, so that a slip in the generator shows.
TABLE_4 = {
    1: ("bert-base", "20N", "vit-b-16", "CIF"),
    2: ("bert-base", "20N", "convnext-base", "CIF"),
    3: ("vit-b-16", "CIF", "convnext-base", "CIF"),
    4: ("bert-base", "20N", "inception-v3", "CIF"),
    5: ("vit-b-16", "CIF", "resnet50", "CIF"),
    6: ("convnext-base", "CIF", "mobilenet-v2", "CIF"),
    7: ("inception-v3", "CIF", "resnet50", "CIF"),
    8: ("resnet50", "CIF", "mobilenet-v2", "CIF"),
    9: ("bert-base", "20N", "vit-b-16", "COR"),
    10: ("bert-base", "20N", "convnext-base", "COR"),
    11: ("vit-b-16", "COR", "convnext-base", "COR"),
    12: ("bert-base", "20N", "inception-v3", "COR"),
    13: ("vit-b-16", "COR", "resnet50", "COR"),
    14: ("convnext-base", "COR", "mobilenet-v2", "COR"),
    15: ("inception-v3", "COR", "resnet50", "COR"),
    16: ("resnet50", "COR", "mobilenet-v2", "COR"),
}
RETRAINING_WINDOWS = {"20N": 9, "COR": 9, "CIF": 4}
SLO_MS = {
    "bert-base": 330,
    "vit-b-16": 200,
    "convnext-base": 200,
    "resnet50": 150,
    "inception-v3": 120,
    "mobilenet-v2": 100,
}
SMALLER = {3, 11}
"""Two retrainings of 10,000 images on the slowest models do not fit into one window."""

every_workload = pytest.mark.parametrize("number", TABLE_4)


def config_of(number: int, **overrides: object) -> Config:
    return read_config(CONFIGS / f"w{number}.yaml", **overrides)


def test_the_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    made = {path.name: path.read_text("utf-8") for path in write_configs(tmp_path)}
    assert made == {path.name: path.read_text("utf-8") for path in CONFIGS.glob("w*.yaml")}


@every_workload
def test_models_data_sets_and_traces_are_those_of_table_4(number: int) -> None:
    tenants = config_of(number).tenants
    assert [tenant.model for tenant in tenants] == [*TABLE_4[number][::2]]
    assert [tenant.retraining.windows for tenant in tenants] == [RETRAINING_WINDOWS[d] for d in TABLE_4[number][1::2]]
    assert [tenant.arrivals.trace for tenant in tenants] == ["alibaba-servegen", "azure-conv"]


@every_workload
def test_every_model_has_its_slo(number: int) -> None:
    assert all(tenant.slo_ms == SLO_MS[tenant.model] for tenant in config_of(number).tenants)


@every_workload
def test_a_retraining_goes_through_the_stated_data(number: int) -> None:
    images = (5_000 if number in SMALLER else 10_000, 1)
    for tenant in config_of(number).tenants:
        expected = (1_100, 5) if tenant.model == "bert-base" else images
        assert (tenant.retraining.samples, tenant.retraining.epochs) == expected


@every_workload
def test_a_run_lasts_until_the_longer_data_set_is_used_up(number: int) -> None:
    config = config_of(number)
    assert (config.windows, config.window_s, config.load) == (
        max(RETRAINING_WINDOWS[dataset] for dataset in TABLE_4[number][1::2]),
        200,
        0.7,
    )


@every_workload
def test_a_tenant_whose_data_set_is_used_up_serves_on_as_it_was(number: int) -> None:
    config = config_of(number)
    for tenant in config.tenants:
        used_up = tenant.retraining.windows
        last = tenant.accuracies[used_up - 1].after
        assert [(a.before, a.after) for a in tenant.accuracies[used_up:]] == [(last, last)] * (config.windows > used_up)


@pytest.mark.parametrize("number", daily(TABLE_4, [*TABLE_4][::6]))
def test_a_workload_can_be_put_together_and_its_first_window_has_a_plan(number: int) -> None:
    # As few schedules as engines try at first: how good the plan is, is the matter of other tests.
    config = config_of(number, planner={"max_schedules": 10})
    setting, traffic = assemble(config, "here")
    assert [origin.load for origin in traffic.origins] == pytest.approx([0.35, 0.35], rel=0.02)
    assert "synthetic at second scale" in traffic.origins[0].source
    (planned,) = plan_through(setting, traffic, 0)
    assert planned.is_planned
    assert planned.retrained.keys() == {tenant.name for tenant in config.tenants}


def test_resnet_50_gives_back_the_paper_s_figure_2() -> None:
    # Worked by hand: with 73 s on 1 GPC, 0.951 − 0.37 · 73/200 is 0.816; the figure has 81.29 %.
    before, after = accuracies("resnet50", "NC-CIFAR-10").windows[0]
    assert after - (after - before) * 72.8 / 200 == pytest.approx(0.8129, abs=0.01)


@pytest.mark.parametrize("model", ["resnet50", "inception-v3", "vit-b-16", "convnext-base", "mobilenet-v2"])
def test_core50_is_taken_for_an_average_cifar_window(model: str) -> None:
    four, nine = (accuracies(model, dataset).windows for dataset in ("NC-CIFAR-10", "NC-CORe50"))
    assert (
        nine
        == ((pytest.approx(fmean(b for b, _ in four), abs=1e-3), pytest.approx(fmean(a for _, a in four), abs=1e-3)),)
        * 9
    )


def test_w1_s_models_drop_and_gain_what_the_paper_says() -> None:
    windows = accuracies("bert-base", "NC-20-Newsgroups").windows
    afters = [0.95, *(after for _, after in windows)]
    assert [earlier - before for earlier, (before, _) in zip(afters, windows, strict=False)] == pytest.approx(
        [0.325] * 9
    )
    assert [after - before for before, after in windows] == pytest.approx([0.30] * 9)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ValueError, match="alexnet"):
        accuracies("alexnet", "NC-CIFAR-10")
