"""What a run is made of. Three openers make it whole; nothing that is given these parts asks whether it is simulated.

:func:`migrator.execution.simulated.simulated_parts`, :func:`migrator.execution.real.real_parts` and
:func:`migrator.execution.live.opening.live_parts` are the openers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from executor.mig import OwnedLayout
from migrator.errors import InfeasibleError
from migrator.execution.accounts import QueueAccounts
from migrator.execution.applier import Backend
from migrator.execution.foresight import Foresight, observe
from migrator.execution.happenings import Trained
from migrator.execution.instances import Instances, lead_s
from migrator.execution.layout import with_layout
from migrator.execution.models import Models, TabledModels
from migrator.execution.planning import Solving
from migrator.execution.posing import posed, tenants_that_run
from migrator.execution.requests import SimulatedQueues
from migrator.execution.seams import Accounts, Sharing
from migrator.execution.tenancies import Tenancy
from migrator.inputs.pools import as_shared
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic, Traffic
from migrator.log.records import Answer, Record, RunFinished, ServiceStopped, Wall
from planner.errors import EngineError
from planner.feasibility import infeasibility
from planner.policies.policy import AnyPolicy, Knows, Policy
from planner.problem import Owner, Problem
from workloads.serving.servers import Dispatch
from workloads.tenants import accuracy_at_start
from workloads.traffic.luck import ServiceJitter, service_jitter

Told = tuple[Answer, Wall]
"""An answer to an order, and facts of the wall clock about it."""

Ending = Callable[[], RunFinished | ServiceStopped]
"""Ends what only one kind of run has, and says what is known then."""


@dataclass(frozen=True, slots=True)
class Joining:
    """Where a run that was cut off is joined again: at the begin of a window, with empty queues.

    Attributes:
        window: The window.
        void: Windows of which it is unknown what became: the one that was torn, and those that are left out.
        trained: What was learned before, in order.
        n_started: How many instances were started before.
        held: What is put up at once, before the window, as it stood before; ``None``: the window's plan says it.
        from_s: The second of the run at which that is.
        n_trained: By tenant, how many retrainings ended that ``trained`` does not have.
        unknown: By tenant, requests offered before that no record counts; where there are any.
        told: What else the log is to have of it, at once.
        rolled_back: By tenant that answers with older weights, the newest window in them.
    """

    window: int
    void: tuple[int, ...]
    trained: tuple[Trained, ...]
    n_started: int
    held: OwnedLayout[Owner] | None = None
    from_s: float = 0.0
    n_trained: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    told: Sequence[Record] = ()
    rolled_back: Mapping[str, int] = field(default_factory=dict)


class Shown(Protocol):
    """Shows the run's time."""

    @property
    def now_s(self) -> float:
        """Seconds since the first window began."""


@dataclass(frozen=True, eq=False)
class Parts:
    """What a run is made of.

    Attributes:
        traffic: What arrives.
        policy: What decides.
        sharing: What its answers become on the GPU.
        clock: The run's time; it may be ahead of the requests, while the driver works.
        accounts: Outcomes of requests.
        models: What answers them.
        ending: Ends what only this run has, and says what is known then; ``None`` where there is nothing of the kind.
        joins: Where a run that was cut off is joined again; ``None`` for a new one.
        time_limit_s: Wall seconds for a plan, beside the config's work. With one, another run may come out otherwise.
        drain: Takes no further request from this second of the run on, and settles as many windows; only a service's,
            which is stopped so.
        coming: Tenancies that are to begin, by when; a source may add some while the run goes on.
        turns_by: By what the processes of a pool's members take turns in an instance; only where they are real.
        attend: Takes the orders that have come, and what a signal asks for if one did; yields the answers, each of
            which is in the log before anything is done about it.
        forget: Deletes at this second of the run what is too old to be kept, as a new segment of the log has begun.
    """

    traffic: Traffic
    policy: AnyPolicy
    sharing: Sharing
    clock: Shown
    accounts: Accounts
    models: Models
    ending: Ending | None = None
    joins: Joining | None = None
    time_limit_s: float | None = None
    turns_by: str | None = None
    drain: Callable[[float, int], object] | None = None
    forget: Callable[[float], object] = lambda _: None
    attend: Callable[[bool], Iterable[Told]] = lambda _: ()
    coming: deque[Tenancy] = field(default_factory=deque)

    @property
    def first_window(self) -> int:
        """With which window the run begins, or goes on."""
        return 0 if self.joins is None else self.joins.window


def parts_on_instances(
    setting: Setting,
    traffic: Traffic,
    policy: Policy,
    backend: Callable[[float], Backend],
    *,
    accounts: Accounts | None = None,
    models: Models | None = None,
    ending: Ending | None = None,
    joins: Joining | None = None,
    as_published: bool = False,
    time_limit_s: float | None = None,
) -> Parts:
    """The parts of a run whose tenants have instances; accounts and models are simulated unless given.

    ``backend`` opens the GPU with a clock that shows this second, and begins to run when it is looked at.

    Raises:
        ConfigError: The policy cannot run on what was measured, or has no pools and the config lists some.
        InfeasibleError: There are more tenants, or pools, than compute slices; or a policy that knows the run finds no
            plan, as a window has none; or ``planner.layout: auto`` finds no layout.
        GpuError: The driver does not list instances.
    """
    setting = with_layout(as_shared(setting, policy), traffic)
    if policy.knows is Knows.RUN:
        policy = _prepared(policy, true_problems(setting, traffic))
    first_s, start_s = begins_s(setting, joins)
    if accounts is None:
        assert isinstance(traffic, RecordedTraffic)  # what is simulated is
        dispatch = Dispatch.PUSH if policy.traits.pushes else Dispatch.PULL
        queues = simulated_queues(setting, dispatch)
        first_window = 0 if joins is None else joins.window
        accounts = QueueAccounts(traffic, setting.tenants, setting.config.window_s, queues, first_window)
    opened = backend(start_s)
    step_s, n_steps = setting.config.step_s, setting.config.n_history_steps
    arrived_rps = partial(traffic.rates_before, step_s=step_s, n_steps=n_steps) if policy.knows is Knows.PAST else None
    solving = Solving(
        policy=policy, as_published=as_published, time_limit_s=time_limit_s, proves=False, arrived_rps=arrived_rps
    )
    n_started = 0 if joins is None else joins.n_started
    sharing = Instances(setting, opened, accounts, tenants_that_run(setting), solving, first_s, start_s, n_started)
    models = models or tabled_models(setting, joins)
    return Parts(traffic, policy, sharing, opened.clock, accounts, models, ending, joins, time_limit_s)


def begins_s(setting: Setting, joins: Joining | None) -> tuple[float, float]:
    """The second at which the run's first window begins, and the one at which its clock does."""
    first_s = 0.0 if joins is None else joins.window * setting.config.window_s
    return first_s, first_s - lead_s(setting) if joins is None or joins.held is None else joins.from_s


def simulated_queues(setting: Setting, dispatch: Dispatch = Dispatch.PULL) -> SimulatedQueues:
    """The tenants' queues, with the run's chance and turn cost."""
    weights = {tenant.name: tenant.weight for tenant in setting.tenants}
    return SimulatedQueues(weights, jitter_of(setting), dispatch, turn_cost=setting.turn_cost)


def _prepared(policy: Policy, run: Sequence[Problem]) -> Policy:
    """The policy once it has seen all windows' true problems.

    Raises:
        InfeasibleError: It has no answer, and a window has no plan whatever the policy.
        EngineError: It has no answer, though counts alone allow every window a plan.
    """
    try:
        return policy.prepared(run)
    except EngineError:
        for window, problem in enumerate(run):
            if (reason := infeasibility(problem)) is not None:
                raise InfeasibleError(f"window {window}: {reason}") from None
        raise


def jitter_of(setting: Setting) -> ServiceJitter | None:
    """By how much batches of the run take longer or shorter than measured."""
    return service_jitter(setting.config.seed, setting.config.simulation.service_jitter)


def tabled_models(setting: Setting, joins: Joining | None = None) -> TabledModels:
    """The config's models, as the run's first window finds them."""
    window_s = setting.config.window_s
    models = TabledModels(setting.tenants, window_s)
    for window in range(0 if joins is None else joins.window):
        models.open(window)
        for one in () if joins is None else joins.trained:
            if window * window_s <= one.at_s < (window + 1) * window_s:
                models.trained(one.tenant, one.window, one.at_s, one.option, one.checkpoint)
    return models


def true_problems(setting: Setting, traffic: Traffic) -> tuple[Problem, ...]:
    """Every window's problem with its true arrivals, each as if it were the first and no retraining had been missed."""
    hindsight, found = Foresight(setting, traffic, needs_hindsight=True), []
    for window in range(setting.config.windows):
        accuracies = [accuracy_at_start(tenant, window, window - 1) for tenant in setting.tenants]
        opening = observe(setting, traffic, window, accuracies)
        found.append(posed(setting, opening, None, hindsight.forecast(opening)))
    return tuple(found)
