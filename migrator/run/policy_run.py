"""A run of a policy, put together from its parts: simulated ones, and those that a real GPU or a live run gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from executor.mig import Layout
from migrator.log.runlog import RunLog
from migrator.run import events
from migrator.run.applier import Backend
from migrator.run.foresight import FORECAST_LIMIT_S, Foresight, observe
from migrator.run.instances import Instances
from migrator.run.loop import Joining, Loop, Reviser, View
from migrator.run.models import Models
from migrator.run.planning import Solving
from migrator.run.posing import posed
from migrator.run.requests import Queues, SimulatedQueues
from migrator.run.rolling import Rolling
from migrator.run.seams import Sharing
from migrator.run.shares import Shares
from migrator.run.simulated import simulated_backend, tenants_that_run
from migrator.run.turns import Turns
from migrator.setting import Setting
from migrator.traffic import RecordedTraffic
from planner.policies.ours import Migrator
from planner.policies.policy import AnyPolicy, Knows, Policy
from planner.policies.shares import SharePolicy
from planner.policies.turns import TurnPolicy
from planner.problem import Problem
from workloads.drift import accuracy_at_start
from workloads.serving.requests import Dispatch
from workloads.traffic.luck import service_jitter


def _sharing(
    setting: Setting,
    traffic: RecordedTraffic,
    policy: AnyPolicy,
    how: Solving,
    backend: Callable[[float], Backend],
    joins: Joining | None,
    queues: Queues | None,
) -> Sharing:
    """What the policy's answers become on a GPU."""
    config = setting.config
    jitter = service_jitter(config.seed, config.simulation.service_jitter)
    if isinstance(policy, SharePolicy):
        return Shares(
            setting, traffic, policy, SimulatedQueues(len(setting.tenants), jitter), as_published=how.as_published
        )
    if isinstance(policy, TurnPolicy):
        return Turns(setting, policy, jitter)
    assert isinstance(policy, Policy)
    dispatch = Dispatch.PUSH if policy.traits.pushes else Dispatch.PULL
    queues = queues or SimulatedQueues(len(setting.tenants), jitter, dispatch)
    if joins is not None:
        start_s = joins.window * config.window_s
        queues.begin(traffic.requests(start_s), start_s)
    n_started = 0 if joins is None else joins.n_started
    return Instances(setting, backend, queues, tenants_that_run(setting), replace(how, policy=policy), n_started)


class PolicyRun:
    """A run of a policy, by default our planner. All of it is simulated but for the parts that are given to it.

    A run on a real GPU gives ``backend``; a live run gives ``queues``, ``models`` and ``ending``, too. Its first window
    is planned, and nothing is written to its log yet.
    """

    def __init__(
        self,
        setting: Setting,
        traffic: RecordedTraffic,
        policy: AnyPolicy | None = None,
        view: View | None = None,
        *,
        as_published: bool = False,
        time_limit_s: float | None = None,
        backend: Callable[[float], Backend] | None = None,
        revises: Reviser | None = None,
        joins: Joining | None = None,
        queues: Queues | None = None,
        models: Models | None = None,
        ending: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        """``backend`` opens the GPU, as :func:`migrator.run.simulated.simulated_backend` does.

        ``queues`` are simulated unless given.
        ``revises``, ``joins``, ``models`` and ``ending`` are the loop's.

        With ``time_limit_s``, wall seconds for a plan, another run of the same may come out otherwise; the log says so.

        Raises:
            ConfigError: The policy cannot run on what was measured.
            InfeasibleError: The first window has no plan.
            PlannerError: The policy cannot answer.
            GpuError: The driver does not say what stands.
        """
        policy = policy or Migrator()
        limit_s = None if setting.config.gpu.backend == "sim" else FORECAST_LIMIT_S
        needs_hindsight, ahead_s = policy.needs_hindsight, policy.looks_ahead_s
        foresight = Foresight(setting, traffic, needs_hindsight=needs_hindsight, ahead_s=ahead_s, limit_s=limit_s)
        if isinstance(policy, Policy) and policy.knows is Knows.RUN:
            policy = policy.prepared(true_problems(setting, traffic))
        how = Solving(as_published=as_published, time_limit_s=time_limit_s)
        every_s = _replan_every_s(setting, policy)
        rolling = None if every_s is None else Rolling(setting, traffic, every_s)
        sharing = _sharing(setting, traffic, policy, how, backend or simulated_backend(setting), joins, queues)
        if joins is None:
            header = events.run_started(
                setting, traffic.origins, foresight.name, policy, sharing.kind, time_limit_s, every_s
            )
            self._begins: tuple[str, Mapping[str, object]] = "run_started", header
        else:
            self._begins = "resumed", events.resumed(joins.window, joins.void)
        self._loop = Loop(setting, traffic, sharing, foresight, view or View(), revises, joins, models, ending, rolling)
        self._loop.prepare()

    @property
    def first_layout(self) -> Layout:
        """What is to stand as the first window begins, retrainings aside; empty where sharing needs no instances."""
        planned = self._loop.first_plan
        if planned is None:
            return Layout()
        serving = {item.placement for item in planned.plan.lifetimes if item.is_inference and item.create_step == 0}
        return Layout(tuple(sorted(serving, key=lambda placement: placement.sort_key)))

    def carry_out(self, log: RunLog, wall: Mapping[str, object] | None = None) -> None:
        """All windows, into the log.

        Raises:
            OSError: The log, or the journal of our instances, cannot be written.
        """
        self._loop.run(log, *self._begins, wall)


def _replan_every_s(setting: Setting, policy: AnyPolicy) -> float | None:
    """The pace at which the policy plans the rest of a window anew; ``None`` where it does not."""
    if not isinstance(policy, Policy) or not policy.replans:
        return None
    paces = (setting.config.replan_every_s, policy.looks_ahead_s)
    return min((pace for pace in paces if pace is not None), default=None)


def true_problems(setting: Setting, traffic: RecordedTraffic) -> tuple[Problem, ...]:
    """Every window's problem with its true arrivals, each as if it were the first and no retraining had been missed."""
    hindsight, found = Foresight(setting, traffic, needs_hindsight=True), []
    for window in range(setting.config.windows):
        accuracies = [accuracy_at_start(tenant, window, window - 1) for tenant in setting.tenants]
        opening = observe(setting, traffic, window, accuracies)
        found.append(posed(setting, opening, None, hindsight.forecast(opening)))
    return tuple(found)
