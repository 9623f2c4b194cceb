"""The figures of a setting that are neither in the config nor measured for the model, and where they come from instead.

What is computed from measurements of the same model by a rule (a retraining's time) is assumed, too. So is what was
measured of another model, on another GPU, or for another policy's source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from executor.mig import GpuModel
from migrator.config.sections import TenantConfig
from migrator.inputs.pools import lacks_pools
from migrator.inputs.setting import Setting
from migrator.log.records import Assumed
from planner.build import TYPICAL_INSTANCES, documented_warm_ups
from planner.policies.policy import AnyPolicy
from planner.policies.turns import TurnPolicy
from planner.problem import Problem, Reconfiguration
from workloads.profiles.pool_points import CONTEXT_MIB
from workloads.profiles.shares import TURN_COST, measured_for, sensitivity_of
from workloads.tenants import Tenant, drift_in

RULE = "3 × inference of the same data (MIGRator)"


def assumed_in(
    setting: Setting, sharing: str = "instances", policy: AnyPolicy | None = None, *, is_planned: bool = True
) -> tuple[Assumed, ...]:
    """Everything that was filled in; ``sharing`` is how tenants share the GPU, as the log calls it.

    ``policy`` is whose answers are meant, our planner's by default; ``is_planned`` is whether windows are planned,
    which takes its time.
    """
    pairs = list(zip(setting.config.tenants, setting.tenants, strict=True))
    found = []
    if policy is not None and lacks_pools(setting.config, policy):
        found.append(Assumed(None, "pools", 0.0, "", f"policy {policy.name} has none: sharing.pools auto means off"))
    found += [_switching(setting)] if sharing == "instances" and setting.config.planner.switch_s is None else []
    found += list(_of_planning(setting)) if is_planned else []
    found += [item for entry, tenant in pairs for item in _of_tenant(setting, entry, tenant)]
    if is_disturbed(sharing, policy) and setting.config.simulation.interference > 0:
        found += [item for tenant in setting.tenants for item in _interference(setting, tenant)]
    if sharing == "turns":
        found.append(_memory(setting, policy))
    if setting.config.sharing.may_pool and (policy is None or policy.has_pools):
        lends = setting.config.planner.layout is not None
        found += [item for tenant in setting.tenants for item in _memory_in_pools(tenant, lends=lends)]
        found += _turn_cost(setting)
    return tuple(found)


def is_disturbed(sharing: str, policy: AnyPolicy | None) -> bool:
    """Whether the config's interference slows serving down: on shares, and beside some trainings that give way."""
    gives_way = isinstance(policy, TurnPolicy) and policy.gives_way
    return sharing == "shares" or bool(gives_way and gives_way.has_interference)


def assumed_in_problem(problem: Problem) -> tuple[Assumed, ...]:
    """What a problem file left out and was filled in."""
    if problem.reconfiguration is not Reconfiguration.PHYSICAL or problem.switch_s is not None:
        return ()
    return (Assumed(None, "switch_s", problem.switching_s, "s", _driver_times(problem.gpu)),)


def assumed_in_any(several: Iterable[Sequence[Assumed]]) -> tuple[Assumed, ...]:
    """What was assumed in any of several, each once, in the order in which they first appear."""
    found: list[Assumed] = []
    for assumed in several:
        found += [item for item in assumed if item not in found]
    return tuple(found)


def assumed_to_json(assumed: Sequence[Assumed]) -> list[dict[str, Any]]:
    """A list of their fields, as in logs and results."""
    return [to_builtins(item) for item in assumed]


def _of_tenant(setting: Setting, entry: TenantConfig, tenant: Tenant) -> Iterator[Assumed]:
    start = tenant.worker_start
    is_elsewhere = not setting.gpu.name.startswith(start.gpu)
    if entry.worker_start_s is None and ("times" in start.assumed or is_elsewhere):
        on = "" if not is_elsewhere else ", on an A100"
        yield Assumed(tenant.name, "worker start", start.base_s, "s", start.source + on)
    if "slowdown" in start.assumed or is_elsewhere:
        source = "ResNet-50 on an A100 (gpuless-thesis)"
        yield Assumed(tenant.name, "slowdown by each other start", start.slowdown_per_other, "", source)
    if tenant.retraining_time_s and entry.retraining_start_s is None:
        yield Assumed(tenant.name, "retraining start", tenant.trainer_start.base_s, "s", "as worker start")
    by_rule = {name: s for name, s in tenant.retraining_time_s.items() if name not in tenant.measured_retraining}
    if by_rule:
        yield Assumed(tenant.name, "retraining time", by_rule, "s", RULE)
    if setting.config.is_live and entry.learning is None:
        source = "the config; the model only serves, so that nothing measures it"
        yield Assumed(tenant.name, "accuracy", tenant.accuracy[0].before, "", source)
    n_given = len(tenant.accuracy)
    if isinstance(entry.accuracy, list) and n_given < setting.config.windows:
        last = tenant.accuracy[-1]
        value = {"before": last.before, "after": last.after}
        yield Assumed(tenant.name, f"accuracy from window {n_given} on", value, "", f"as in window {n_given - 1}")
    yield from _of_decisions(setting, entry, tenant)
    by_source: dict[str, dict[str, float]] = {}
    for name, point in tenant.operating_points.items():
        if point.derived:
            by_source.setdefault(point.derived, {})[name] = point.rate_rps
    for source, rates in by_source.items():
        yield Assumed(tenant.name, "capability", rates, "requests/s", source)


def _of_decisions(setting: Setting, entry: TenantConfig, tenant: Tenant) -> Iterator[Assumed]:
    """What plans count on where a retraining is a decision, and nothing has shown it."""
    decision = setting.config.retraining
    if tenant.retraining_time_s and tenant.counts_salvage(decision.salvage):
        source = "retraining.drift_prior, until a window has shown it"
        yield Assumed(tenant.name, "accuracy kept to the next window", decision.drift_prior, "", source)
        n = tenant.n_retraining_windows
        if n and n < setting.config.windows and drift_in(tenant, n - 1) < 1:
            falls = f"retraining.windows; the config's accuracy falls to {tenant.accuracy_in(n).before:g}"
            yield Assumed(tenant.name, f"accuracy kept to window {n}", 1.0, "", falls)
    given = {
        option.name for option in (entry.retraining.options if entry.retraining else ()) if option.gain is not None
    }
    gains = {option.name: option.gain for option in tenant.other_options if option.name not in given}
    gains |= {f"checkpoint {part:g}": gain for part, gain in tenant.checkpoints}
    if gains:
        curve = decision.curve if entry.retraining is None or entry.retraining.curve is None else entry.retraining.curve
        if isinstance(curve, str):
            yield Assumed(tenant.name, "gain of a part of a retraining", gains, "", f"curve {curve}")


def _interference(setting: Setting, tenant: Tenant) -> Iterator[Assumed]:
    source, found = measured_for(tenant.model), sensitivity_of(tenant.model)
    measured = {} if setting.shares is None else setting.shares.beside(tenant.model)
    if measured:
        own = setting.sensitivity(tenant.model).by_trainer
        unseen = {trainer: factor for trainer, factor in own.items() if trainer not in measured}
        told = {} if setting.shares is None else setting.shares.derived(tenant.model)
        for trainer in own:
            if trainer in told:
                value = {trainer: own[trainer]}
                yield Assumed(tenant.name, f"interference of a training of {trainer}", value, "", told[trainer])
        if unseen:
            which = f"the mean beside {', '.join(measured)}"
            yield Assumed(tenant.name, "interference of trainings that were not measured", unseen, "", which)
    if source is not None:
        value = {"beside inference": found.beside_inference}
        if not measured:
            value["beside retraining"] = found.beside_retraining
        yield Assumed(tenant.name, "interference", value, "", source)


def _memory(setting: Setting, policy: AnyPolicy | None) -> Assumed:
    """That what takes turns is on the card all the time; where memory changes hands, by what rule."""
    source = "all fit at once, with activations and training states; turns do not look at memory"
    count = float(len(setting.tenants))
    way = policy.gives_way if isinstance(policy, TurnPolicy) else None
    if way is not None and way.memory is not None:
        rule, weights_mib = way.memory, setting.weights_mib
        if weights_mib is None:
            return Assumed(None, "memory", count, "models", f"{source}; Algorithm 1 is left out: weights are not known")
        source = (
            f"of {sum(weights_mib):,.0f} MiB of weights; they change hands by Algorithm 1 (T_idle {rule.idle_s:g} s, "
            f"W {rule.watermark_mib:,.0f} MiB), come at {rule.load_mib_s:,.0f} MiB/s, and training needs no memory"
        )
    return Assumed(None, "memory", count, "models", source)


def _memory_in_pools(tenant: Tenant, *, lends: bool) -> Iterator[Assumed]:
    """What is taken for a tenant's memory in instances that it shares, or is lent, where its rows do not tell."""
    if tenant.alone:
        return
    source = "not in the service profiles"
    if any(row.weights_mib is None for row in tenant.rows):
        yield Assumed(tenant.name, "memory of weights and processes", 0.0, "MiB", source)
    elif any(row.context_mib is None for row in tenant.rows):
        yield Assumed(tenant.name, "memory of a process beside weights", CONTEXT_MIB, "MiB", f"{source}; CUDA's")
    if any(row.batch_mib is None for row in tenant.rows):
        yield Assumed(tenant.name, "memory of some batches", 0.0, "MiB", source)
    if lends and tenant.retraining_time_s and all(row.training_mib is None for row in tenant.rows):
        yield Assumed(tenant.name, "memory of training beyond serving", 0.0, "MiB", source)


def _turn_cost(setting: Setting) -> Iterator[Assumed]:
    """What a turn after another tenant's is taken to cost, where neither the config nor a measurement says it."""
    measured = setting.measured_turn_costs
    unknown = [name for name, cost in measured.items() if cost is None]
    if setting.config.sharing.turn_cost is None and unknown:
        whose = "" if len(unknown) == len(measured) else f" of {', '.join(unknown)}"
        yield Assumed(None, "turn_cost", TURN_COST, "", f"not in the service profiles{whose}")


def _switching(setting: Setting) -> Assumed:
    value = documented_warm_ups(setting.gpu, setting.known_tenants).switch_s
    source = f"{TYPICAL_INSTANCES} instances at once, until some were; the longest batch, and "
    return Assumed(None, "switch_s", value, "s", source + _driver_times(setting.gpu))


def _of_planning(setting: Setting) -> Iterator[Assumed]:
    config = setting.config
    if config.planner.planning_s is None and config.windows > 1:
        n = len(config.tenants)
        source = f"benchmark, {n} tenant{'s' if n > 1 else ''} × {config.n_steps} steps (docs/planner.md)"
        yield Assumed(None, "planning_s", config.planning_s, "s", source)
    if (config.is_live or config.estimates.delay_s) and config.windows > 1 and config.ahead_steps:
        source = "before a window, retrainings are taken to bring what was last estimated, and models to lose as usual"
        yield Assumed(None, "planned ahead", config.ahead_steps * config.step_s, "s", source)


def _driver_times(gpu: GpuModel) -> str:
    known = (source.removeprefix("driver times: ") for source in gpu.sources if source.startswith("driver times"))
    return f"driver times of {next(known, 'no known source').split(',')[0]}"
