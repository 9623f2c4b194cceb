import pytest

from benchmarks.cluster import PARTS, summaries
from benchmarks.fleets import GPU, cluster_of, config_of, drawn
from executor.catalogue import gpu_model
from migrator.cluster.posing import FirstWindow, first_window, fleet_of
from migrator.execution.foresight import Foresight, observe
from migrator.execution.models import TabledModels
from migrator.execution.posing import posed
from migrator.inputs.assembly import assemble
from planner.cluster.fleet import TenantSet
from planner.cluster.rivals import loads_of


@pytest.fixture(scope="module")
def window() -> FirstWindow:
    return first_window(cluster_of(drawn(3, 3, 2, 0.6), 2), "a fleet", 1)


def test_a_set_is_posed_as_a_run_of_its_tenants_poses_it(window: FirstWindow) -> None:
    tenants = [drawn(3, 3, 2, 0.6)[i] for i in (0, 2)]
    setting, traffic = assemble(config_of(tenants), "a run")
    accuracies = TabledModels(setting.tenants, 200.0).open(0)
    opening = observe(setting, traffic, 0, accuracies)
    found, problem = (
        window.pose(TenantSet(0, (0, 2))),
        posed(setting, opening, None, Foresight(setting, traffic).forecast(opening)),
    )
    assert found.gpu == gpu_model(GPU)
    assert found.switch_s == problem.switch_s
    for own, expected in zip(found.tenants, problem.tenants, strict=True):
        assert (own.options, own.overhead_s) == (expected.options, expected.overhead_s)
        assert own.salvage == pytest.approx(expected.salvage)
        assert own.arrivals_rps.tolist() == pytest.approx(expected.arrivals_rps.tolist())


def test_loads_are_about_what_was_asked_for(window: FirstWindow) -> None:
    fleet = fleet_of(cluster_of(drawn(3, 3, 2, 0.6), 2), window)
    assert [gpu.name for gpu in fleet.gpus] == ["g00.0", "g01.0"]
    assert 0.5 * 1.2 < loads_of(fleet).sum() < 2 * 1.2


def test_figures_have_means_and_intervals_over_seeds() -> None:
    rows = [{"part": "gaps", "seed": seed, "load": 0.7, "gap": 1.0 + seed} for seed in (1, 2, 3)]
    (line,) = summaries(rows)
    assert line == "gaps at 0.7: gap 3.00 (95 %: 0.52 to 5.48; 2.00 to 4.00 in 3 seeds)"
    assert list(summaries([{"part": "large", "seed": 1, "gap": 1.5}])) == ["large at 0.7: gap 1.50"]
    assert list(PARTS) == ["exact", "gaps", "large", "simulated"]
