"""Joint operating points against a search that tries everything, and the memory that pools may take."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.catalogue import gpu_model
from executor.mig import GpuModel
from tests.seeds import examples
from workloads.profiles.operating_point import operating_points, point_of, servable_rows
from workloads.profiles.pool_points import CONTEXT_MIB, JointPoints, PoolPoints, lends, memory_mib
from workloads.profiles.table import ServiceProfiles, ServiceRow, shipped_profiles

GPU = gpu_model("a100-80gb")
PROFILES = ("1g.10gb", "2g.20gb", "7g.80gb")
N_CASES = 300


@dataclass(frozen=True)
class Asked:
    """A tenant as far as pools are concerned."""

    name: str
    slo_s: float
    rows: tuple[ServiceRow, ...]
    min_profile: str = "1g.10gb"


def asked(random_: random.Random, name: str, *, has_memory: bool) -> Asked:
    """A tenant with a few rows; latencies are whole milliseconds, so that ties and limits that are just met occur."""
    rows = []
    weights_mib, context_mib = (random_.choice([50.0, 900.0, 2500.0]), random_.choice([None, 200.0, 1300.0]))
    for profile in random_.sample(PROFILES, random_.randint(1, 3)):
        for batch, processes in random_.sample(list(product((1, 2, 4, 8), (1, 2, 3))), random_.randint(1, 5)):
            latency_s = random_.randint(1, 40) / 1000
            row = ServiceRow("me", GPU.name, name, profile, batch, processes, latency_s, batch * processes / latency_s)
            if has_memory:
                batch_mib = random_.choice([None, 0.0, 700.0 * batch])
                row = replace(row, weights_mib=weights_mib, context_mib=context_mib, batch_mib=batch_mib)
            rows.append(row)
    return Asked(name, random_.randint(5, 120) / 1000, tuple(rows))


def tried(pool: list[Asked], profile: str, turn_cost: float) -> tuple[float, float, float, list[ServiceRow]] | None:
    """Least share, sum of shares, L and rows of the best of everything that may be tried; as the definition has it."""
    have = GPU.profile(profile).memory_gib
    assert have is not None
    of = [[row for row in tenant.rows if row.profile == profile] for tenant in pool]
    best = None
    for most in {row.processes for rows in of for row in rows}:
        for longest_s in {row.latency_s for rows in of for row in rows if row.processes <= most}:
            chosen, shares = [], []
            for tenant, rows in zip(pool, of, strict=True):
                alone = [row.batch * row.processes / row.latency_s for row in rows if 2 * row.latency_s <= tenant.slo_s]
                allowed = [
                    row
                    for row in rows
                    if row.processes <= most
                    and row.latency_s <= longest_s
                    and (1 + turn_cost) * (row.latency_s + longest_s) <= tenant.slo_s
                ]
                if not allowed:
                    break
                row = max(allowed, key=lambda one: (rate_rps(one), -one.latency_s, -one.processes))
                chosen.append(row)
                shares.append(row.batch * row.processes / row.latency_s / max(alone))
            if len(chosen) < len(pool):
                continue
            taken = max(row.batch_mib or 0 for row in chosen)
            for row in chosen:
                if row.weights_mib is not None:
                    context = 400.0 if row.context_mib is None else row.context_mib
                    taken += row.processes * (row.weights_mib + context)
            if taken > have * 1024:
                continue
            found = (min(shares), math.fsum(shares), -longest_s)
            if best is None or any_more(found, best[:3]):
                best = (*found, chosen)
    return best


def rate_rps(row: ServiceRow) -> float:
    """Rates that differ by rounding are equal."""
    return round(row.batch * row.processes / row.latency_s, 9)


def any_more(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether one is more in the first figure in which they differ by more than rounding."""
    for a, b in zip(one, other, strict=True):
        if abs(a - b) > 1e-12:
            return a > b
    return False


@pytest.mark.parametrize("has_memory", [False, True])
@pytest.mark.parametrize("turn_cost", [0.0, 0.05, 0.5])
def test_points_are_the_best_of_all_that_may_be_tried(has_memory: bool, turn_cost: float) -> None:
    n_served = n_refused = 0
    for seed in range(N_CASES):
        random_ = random.Random(f"pool {seed} {has_memory} {turn_cost}")
        pool = [asked(random_, f"t{number}", has_memory=has_memory) for number in range(random_.randint(2, 4))]
        found = JointPoints(GPU, pool, turn_cost).of([tenant.name for tenant in pool])
        for profile in PROFILES:
            best = tried(pool, profile, turn_cost)
            assert (best is None) == (profile in found.unserved), (seed, profile)
            if best is None:
                n_refused += 1
                continue
            n_served += 1
            least, total, minus_longest_s, _ = best
            joint = found.points[profile]
            shares = [one.rate_rps / alone_rps(tenant, profile) for one, tenant in zip(joint, pool, strict=True)]
            assert (min(shares), sum(shares)) == pytest.approx((least, total), abs=1e-12), (seed, profile)
            for one, tenant in zip(joint, pool, strict=True):
                row = one.row
                assert row in tenant.rows
                assert (one.batch, one.processes, one.latency_s) == (row.batch, row.processes, row.latency_s)
                assert row.latency_s <= -minus_longest_s
                assert one.planned_rps == pytest.approx(row.batch * row.processes / row.latency_s / (1 + turn_cost))
                assert one.mixed_rps(0.0) == pytest.approx(one.planned_rps)
                assert one.mixed_rps(1.0) == one.rate_rps
                assert one.slack_s == pytest.approx(tenant.slo_s - (1 + turn_cost) * row.latency_s)
                assert one.slack_s > 0
    assert min(n_served, n_refused) > 50


def alone_rps(tenant: Asked, profile: str) -> float:
    rows = [row for row in tenant.rows if row.profile == profile and 2 * row.latency_s <= tenant.slo_s]
    return max(row.batch * row.processes / row.latency_s for row in rows)


@pytest.mark.parametrize("slo_s", [0.05, 0.15, 0.4])
def test_a_pool_of_one_has_the_ordinary_points(slo_s: float) -> None:
    profiles = shipped_profiles()
    for model in ("resnet50", "mobilenet-v2", "inception-v3"):
        rows = servable_rows(profiles, GPU.name, model)
        points = operating_points(profiles, GPU.name, model, slo_s)
        found = JointPoints(GPU, [Asked("one", slo_s, rows)], 0.05).of(["one"])
        assert set(found.points) == set(points)
        for name, (joint,) in found.points.items():
            assert point_of(joint.row, rows) == points[name]
            assert joint.planned_rps == joint.rate_rps == points[name].rate_rps
            assert joint.slack_s == slo_s - points[name].batch_latency_s


def shipped(slo_s: float, *models: str, **others: str) -> list[Asked]:
    found = []
    for place, model in enumerate(models):
        name = f"{model}-{place}"
        rows = servable_rows(shipped_profiles(), GPU.name, model)
        found.append(Asked(name, slo_s, rows, others.get(f"t{place}", "1g.10gb")))
    return found


def pooled(tenants: list[Asked], gpu: GpuModel = GPU) -> PoolPoints:
    return JointPoints(gpu, tenants, 0.05).of([tenant.name for tenant in tenants])


def test_members_may_be_named_in_any_order_and_stand_in_the_configs() -> None:
    tenants = shipped(0.15, "resnet50", "mobilenet-v2", "inception-v3")
    joint = JointPoints(GPU, tenants, 0.05)
    one = joint.of(["inception-v3-2", "resnet50-0"])
    assert one is joint.of(["resnet50-0", "inception-v3-2"])
    assert one.members == ("resnet50-0", "inception-v3-2")


def test_a_pool_that_cannot_be_names_the_member_and_the_rule() -> None:
    tight = [*shipped(0.018, "mobilenet-v2"), *shipped(0.6, "bert-large")]
    tight[1] = replace(tight[1], name="slow")
    found = pooled(tight)
    assert not found.points
    assert found.infeasible is not None
    assert found.infeasible.startswith("no profile serves it; on 7g.80gb, mobilenet-v2-0: its SLO is 18 ms, and its")
    assert "shortest batch after that of slow takes" in found.infeasible


def test_a_pool_needs_an_instance_as_large_as_each_members_least() -> None:
    large = shipped(0.15, "resnet50", "mobilenet-v2", t1="7g.80gb")
    assert pooled(large).infeasible is None
    rows = tuple(row for row in large[0].rows if row.profile != "7g.80gb")
    found = pooled([replace(large[0], rows=rows), large[1]])
    assert found.infeasible == "mobilenet-v2-1: its min_profile is 7g.80gb, and of that size no profile serves the pool"


def sized(name: str, weights_mib: float | None, batch_mib: float | None = None, processes: int = 1) -> Asked:
    row = ServiceRow("me", GPU.name, name, "1g.10gb", 4, processes, 0.01, 400.0 * processes)
    return Asked(name, 0.1, (replace(row, weights_mib=weights_mib, context_mib=None, batch_mib=batch_mib),))


def test_what_does_not_fit_is_refused_with_what_it_takes() -> None:
    found = pooled([sized("small", 100.0), sized("large", 9000.0)])
    assert found.unserved["1g.10gb"].startswith("large, the largest of 2 members: an instance has 9,")
    assert found.unserved["1g.10gb"].endswith(" MiB of memory, and they take 9,900 at least")


def test_memory_that_is_not_known_is_allowed_and_told() -> None:
    found = pooled([sized("told", 100.0, 10.0), sized("untold", None)])
    assert ("1g.10gb" in found.points, found.unknown) == (True, ("told", "untold"))  # a context is never told
    complete = [replace(one, rows=(replace(one.rows[0], context_mib=3.0),)) for one in (sized("a", 1.0, 2.0),)]
    assert pooled([*complete, sized("b", 5.0, 5.0)]).unknown == ("b",)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(1, 6000), st.none() | st.floats(0, 2000), st.none() | st.floats(0, 6000), st.integers(1, 4)
        ),
        min_size=2,
        max_size=6,
    )
)
def test_a_profile_serves_a_pool_only_if_its_memory_is_enough(
    sizes: list[tuple[float, float | None, float | None, int]],
) -> None:
    tenants = []
    for place, (weights, context, batch, processes) in enumerate(sizes):
        (row,) = sized(f"t{place}", weights, batch, processes).rows
        tenants.append(Asked(f"t{place}", 0.1, (replace(row, context_mib=context),)))
    resident = [n * (w + (CONTEXT_MIB if c is None else c)) for w, c, _, n in sizes]
    needed = sum(resident) + max(b or 0.0 for _, _, b, _ in sizes)
    have = (GPU.profile("1g.10gb").memory_gib or 0) * 1024
    found = pooled(tenants)
    assert memory_mib([tenant.rows[0] for tenant in tenants]) == pytest.approx(needed)
    if abs(needed - have) > 1e-6:
        assert ("1g.10gb" in found.points) == (needed < have)


def test_rows_know_what_any_row_of_their_model_says_of_memory() -> None:
    rows = [ServiceRow("me", GPU.name, "m", profile, 1, 1, 0.01, 100.0) for profile in PROFILES]
    told = (replace(rows[0], weights_mib=7.0, training_mib=3.0, batch_mib=1.0), replace(rows[1], context_mib=5.0))
    found = ServiceProfiles("made", (*told, rows[2])).with_memory(GPU.name, "m")
    assert [(row.weights_mib, row.context_mib, row.batch_mib, row.training_mib) for row in found] == [
        (7.0, None, 1.0, 3.0),
        (7.0, 5.0, None, 3.0),
        (7.0, None, None, 3.0),
    ]


def test_an_instance_is_lent_where_a_trainer_has_memory_beside_those_who_serve() -> None:
    profile = GPU.profile("1g.10gb")
    row = replace(sized("a", 1000.0, 500.0, 2).rows[0], context_mib=200.0)
    have = (profile.memory_gib or 0) * 1024
    beside = memory_mib([row]) + 1000.0 + 200.0
    for training_mib, is_lent in ((have - beside, True), (have - beside + 1.0, False), (None, True)):
        assert lends(profile, [row], replace(row, training_mib=training_mib)) == is_lent
