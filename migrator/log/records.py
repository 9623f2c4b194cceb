"""What a log holds: one type of record for each kind of line, made by the run and read by everything else.

A class says when its record is written, and its fields what they mean; ``docs/log.md`` has both in tables that are made
from here. A field with a default is in the log only where it is another; a later version may add such fields, which
this one leaves alone, without another number of the schema. All times are seconds of the run unless said otherwise,
rates requests a second, shares of the time or of requests in [0, 1].
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

# Numbers far above any use, with which sums and shares could not be computed, are no numbers of ours.
Count = Annotated[int, Meta(ge=0, le=10**15)]
Step = Annotated[int, Meta(ge=-(10**15), le=10**15)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
Amount = Annotated[float, Meta(ge=0, le=1e15)]
Length = Annotated[float, Meta(ge=1e-6, le=1e9)]
Share = Annotated[float, Meta(ge=0, le=1)]
Sum = Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
Call = Annotated[str, Meta(pattern="^(create|destroy|repair)$")]
Knows = Annotated[str, Meta(pattern="^(forecast|past|ahead|window|run)$")]
Sharing = Annotated[str, Meta(pattern="^(instances|shares|turns)$")]
Task = Annotated[str, Meta(pattern="^(inference|retraining)$")]
Per = Annotated[str, Meta(pattern="^(window|step)$")]
NAMES_TENANT = "names a tenant"
TenantName = Annotated[str, Meta(extra={NAMES_TENANT: True})]
"""A tenant of the run, by its name; a log in which one is named that its header does not have is refused."""
Holder = TenantName | tuple[TenantName, ...]
"""The holder of an instance: a tenant, or the members of a pool."""
Json = dict[str, Any]
"""A part of a problem or plan file, whose own reader checks it where it is used."""


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a record."""


class Record(Part, frozen=True, kw_only=True, tag_field="kind"):
    """One line of a log; its number, its time and facts of the wall clock are written around it."""

    @property
    def kind(self) -> str:
        """What it tells, by the name in the log."""
        return str(self.__struct_config__.tag)


class InWindow(Record, frozen=True, kw_only=True):
    """A record of something that happens in, or concerns, one window."""

    window: Count


class Wall(Part, frozen=True, kw_only=True):
    """Facts of the wall clock: those of two runs of one config and seed may differ."""

    started_at: str | None = None
    """When the run was begun, in ISO 8601; of ``run_started``."""
    version: str | None = None
    """Which version of this program began it; likewise."""
    config_sum: str | None = None
    """CRC-32 of ``config.yaml``, in 8 hex digits; likewise."""
    solve_s: Amount | None = None
    """How long the plan was solved; of records that hold one."""
    load_s: Amount | None = None
    """How long a solver was loaded for that; likewise."""
    entries: tuple[Json, ...] = ()
    """The facts of records that a `snapshot` repeats."""
    run: Sum | None = None
    """CRC-32 of the run's first line; of `snapshot`."""
    config_file: str | None = None
    """The file that ``serve`` or ``reload`` was given, absolute; of `run_started`, `resumed` and `reloaded`."""
    assigned: tuple[str, ...] = ()
    """What ``--set`` changed of it; likewise."""


# --- what the run is about


class Scale(Part, frozen=True, kw_only=True):
    """How a trace's requests were scaled; ``thin`` with a factor of 1 is a replay."""

    method: str
    factor: Number
    smooth_s: int | None


class OperatingPoint(Part, frozen=True, kw_only=True):
    """How a tenant is served in an instance of one profile; the truth, also under ``service_spread``."""

    batch: Count
    processes: Count
    rate_rps: Number
    derived: str
    """From what it was computed; empty where it was measured."""


class WorkerStart(Part, frozen=True, kw_only=True):
    """How a worker of the tenant starts."""

    seconds: Number
    """For one alone."""
    library_s: Number
    """Of them, for libraries."""
    source: str


class Floor(Part, frozen=True, kw_only=True):
    """The least share of requests in time that is asked for, in each window or each step."""

    share: Number
    per: Per


class Tenant(Part, frozen=True, kw_only=True):
    """A tenant as the run finds it."""

    name: str
    model: str
    slo_ms: Number
    load: Number
    trace: str
    scale: Scale
    notes: tuple[str, ...] = ()
    """What reading the trace assumed or filled."""
    dispersion_before: Number
    """Variance over mean of the counts by second, before scaling."""
    dispersion_after: Number
    """The same after scaling."""
    operating_points: dict[str, OperatingPoint]
    """By profile."""
    retraining_s: dict[str, Number]
    """By profile, training alone."""
    worker_start: WorkerStart
    min_slo_attainment: Floor | None = None
    """Its floor of in-time answers."""


class Assumed(Part, frozen=True):
    """A figure that is neither in the config nor measured for the model, or was computed."""

    tenant: TenantName | None
    """Whose; ``null``: it concerns all of them."""
    what: str
    """One of those below."""
    value: Number | Annotated[dict[str, Number], Meta(min_length=1)]
    """The figure; by profile or by part if there are several."""
    unit: str
    """Of the value; empty for a share or a factor."""
    source: str


class DriverFaults(Part, frozen=True, kw_only=True):
    """As ``simulation.driver`` of the config."""

    error_share: Number
    in_use_share: Number
    in_use_s: Number
    half_share: Number


class OthersInstance(Part, frozen=True, kw_only=True):
    """As ``simulation.others`` of the config."""

    placement: str
    from_s: Number | None
    to_s: Number | None


class SimulatedFaults(Part, frozen=True, kw_only=True):
    """What the simulated GPU does beyond what it is asked to."""

    driver: DriverFaults
    others: tuple[OthersInstance, ...]


class RunStarted(Record, frozen=True, kw_only=True, tag="run_started"):
    """First."""

    schema: Count
    name: str
    seed: int
    simulated: bool
    """Whether requests and workers are: ``false`` in a live run."""
    backend: str | None = None
    """``nvml``, ``smi``, ``mps`` or ``cpu``; only on a real GPU."""
    index: Count | None = None
    """Which GPU; only on a real one."""
    gpu: str
    card: Json | None = None
    """As ``gpu describe`` prints it; only where the catalogue has another or none."""
    compute_slices: Annotated[int, Meta(gt=0, le=1000)]
    memory_slices: Count
    window_s: Length
    step_s: Length
    windows: Count
    service: bool = False
    """Whether it goes on until it is stopped; under ``serve``."""
    policy: str
    knows: Knows
    """What the policy knows of arrivals: ``forecast``, ``past``, ``ahead``, ``window`` or ``run``."""
    ahead_s: Length | None = None
    """For how many seconds it knows the arrivals to come; only where ``knows`` is ``ahead``."""
    sharing: Sharing
    """How tenants share the GPU: ``instances``, ``shares`` or ``turns``."""
    forecaster: str
    profiles: str
    """The table of service profiles."""
    profile_variant: str
    service_jitter: str | None = None
    """Only where it is ``measured``."""
    service_spread: Number | None = None
    """As in ``estimates`` of the config; only where it is above 0."""
    interference: Number | None = None
    """As in ``simulation`` of the config; only with ``shares``, and under ``sirius``."""
    simulated_faults: SimulatedFaults | None = None
    """Only where the simulated GPU was asked to misbehave."""
    planning_s: Amount | None = None
    """What planning is charged; only where windows are planned."""
    replan_every_s: Length | None = None
    """The pace at which the rest of windows is planned anew; only where it is."""
    time_limit_s: Number | None = None
    """Only under ``run --time-limit``, whose plans another run may not find."""
    turns_by: str | None = None
    """How a pool's processes take turns in an instance; only in live runs with pools."""
    pinned: tuple[str, ...] = ()
    """By the config's `pin`."""
    repeatable: bool = True
    """``false`` under ``run --time-limit``, and on a real GPU."""
    assumed: tuple[Assumed, ...]
    """All other numbers count as given."""
    tenants: tuple[Tenant, ...]
    """In the config's order."""


class Resumed(InWindow, frozen=True, kw_only=True, tag="resumed"):
    """A run that was cut off on a real GPU, or a stopped service, is joined again at this window."""

    void: tuple[Count, ...]
    """The windows of which nothing is known."""
    unknown: dict[TenantName, Count] = {}
    """By tenant, requests before a kill that no record counts; their outcome is unknown."""


class Moments(Part, frozen=True, kw_only=True):
    """What is remembered of a model's accuracy."""

    by_s: tuple[tuple[Number, Number], ...] = ()
    """`[second, accuracy]`."""
    kept: tuple[tuple[Number, Number], ...] = ()
    """`[second, share]`: of windows before, what their begins left."""


class Snapshot(InWindow, frozen=True, kw_only=True, tag="snapshot"):
    """First in each later segment: what readers need of earlier ones."""

    segment: Count
    """Its number, from 1."""
    first_window: Count
    """The first that is not settled."""
    n_instances: Count
    """All ever started, with loans."""
    n_trained: dict[TenantName, Count] = {}
    """Retrainings before those in `entries`."""
    accuracies: dict[TenantName, Moments] = {}
    """What drift is learned from."""
    entries: tuple[Json, ...]
    """Earlier records that are still needed."""


class TenantsChanged(InWindow, frozen=True, kw_only=True, tag="tenants_changed"):
    """Tenants come or go, before a window is planned or inside one, whose rest is re-planned."""

    tenants: tuple[Tenant, ...]
    """All that there are from now on."""
    accuracies: dict[TenantName, Share] = {}
    """Of those who come: how accurate their models are."""
    pinned: tuple[str, ...] = ()
    """As in `run_started`."""


class Answer(Record, frozen=True, kw_only=True):
    """What a service answers to an order."""

    order: str | None = None
    """The order's file in ``orders``; none for a signal or a start."""


class Reloaded(Answer, frozen=True, kw_only=True, tag="reloaded"):
    """A service takes another config up."""

    config: str
    """All of it, as YAML; file names are relative to the run's folder."""
    changes: tuple[str, ...]
    """In words."""


class RolledBack(Answer, frozen=True, kw_only=True, tag="rolled_back"):
    """Older weights of a tenant serve again; without an ``order``, as those that were to cannot be loaded."""

    served_s: Number
    tenant: TenantName
    version: str
    before: str
    """The version until then."""
    weights: str
    """A file, as seen from the run's folder."""
    accuracy: Number
    learned: Annotated[int, Meta(ge=-1)]
    """The newest window in them; −1: none."""

    @property
    def from_s(self) -> float:
        """When its accuracy begins to hold."""
        return self.served_s


class OrderRefused(Answer, frozen=True, kw_only=True, tag="order_refused"):
    """A service refuses an order; all stays as it is."""

    what: str
    """The order's kind: ``reload``."""
    reason: str


# --- a window and its plan


class Plan(Part, frozen=True, kw_only=True):
    """A plan as ``migrator plan --json`` prints it, without its wall seconds; steps count from its own first one."""

    status: str
    """``optimal`` and ``feasible`` are the engine's word."""
    objective: Number | None
    bound: Number | None = None
    """No plan is better than this by its certificate; none where that proves nothing."""
    gap: Number | None = None
    """To that bound, as a share of it."""
    claimed_bound: Number | None
    """The same by the engine's word."""
    claimed_gap: Number | None
    expected_goodput: Number | None = None
    """The objective without salvage; only where there is some."""
    salvage: Number | None = None
    """What the plan expects models to be worth beyond the window, in requests."""
    goodput_gap: Number | None = None
    engine: str
    reconfiguration: str
    n_steps: Count
    work: dict[str, Count]
    reason: Json | None = None
    tenants: list[Json] | None = None
    lifetimes: list[Json] | None = None
    next_epoch_step: Count | None = None
    certificate: Json | None = None
    """Without its prices where an earlier certificate of the window ends with the same ones."""
    missed: tuple[str, ...] = ()
    floor_costs: Number | None = None
    """With floors of in-time answers: how much less the objective is than the best without, as a share of arrivals."""
    keeping_costs: Number | None = None
    """The same of the best plan found that keeps every floor, if any."""
    burst_loss: Number | None = None
    """Only where a layout that stays took the plan's place: which share of the worst requests the plan would lose."""

    def with_prices(self, told: Json | None) -> Plan:
        """The plan with the prices that its certificate leaves out, from the one ``told`` before it in its window."""
        own, prices = self.certificate, None if told is None else told.get("prices")
        if own is None or "prices" in own or not isinstance(prices, list):
            return self
        return structs.replace(self, certificate={**own, "prices": prices[-self.n_steps :]})


class Queue(Part, frozen=True, kw_only=True):
    """A tenant's queue."""

    waiting: Count
    """Requests."""
    busy_until_s: dict[str, Number]
    """By server that is busy."""
    batches: Count
    """How many there were."""


class Estimate(Part, frozen=True, kw_only=True):
    """What the plan knows of a retraining."""

    accuracy_after: Number
    source: str | None = None
    """In a live run, whether it was measured and in how many seconds, or why it is the config's."""
    retraining_s: dict[str, Number]
    """By profile, training alone; ``run_started`` has the simulated truth."""
    profiling_s: dict[str, Number]
    """By profile, before the training."""
    gains: dict[str, Number] = {}
    """With ``retraining.options``: by option, the share of what ``full`` gains."""


class TenantForecast(Part, frozen=True, kw_only=True):
    """What is forecast of a tenant, and what of its model is known."""

    accuracy_before: Number
    accuracy_after: Number | None = None
    """The true one; not in a live run."""
    estimate: Estimate | None = None
    """Where the window offers a retraining, and ``estimates`` are set, the run is live or the plan was begun ahead."""
    by_feedback: Share | None = None
    """With ``retraining.below``: which share clients called right."""
    mean_rps: list[Number]
    """By step."""
    low_rps: list[Number]
    """By step, at ``low_level``."""
    high_rps: list[Number]
    """By step, at ``high_level``."""


class Forecast(Part, frozen=True, kw_only=True):
    """What the window's arrivals are taken to be."""

    method: str
    """The forecaster, which expert weighs most in it, and what was missing."""
    low_level: Share
    high_level: Share
    tenants: dict[TenantName, TenantForecast]
    unknown_s: Count = 0
    """Only of live arrivals: seconds of the past that nobody counted, and that were filled."""
    expected_s: Count = 0
    """Only of live arrivals: seconds before the run, known from the config alone."""
    known_s: Count | None = None
    """No second from this one on was known: the front door was not open yet."""


class Promise(Part, frozen=True, kw_only=True):
    """What the plan promises a tenant from ``plan_from_step`` on, in requests."""

    arrivals: Number
    in_time: Number | None
    goodput: Number | None
    """``null`` where the weight is 0."""


class WarmUp(Part, frozen=True, kw_only=True):
    """What the plan reckons a change to take, from what the run has seen ([engines.md](engines.md#warm-ups))."""

    switch_s: Number
    start_s: dict[TenantName, Number]
    """By tenant, until its worker serves."""
    training_start_s: dict[TenantName, Number]
    """By tenant, until its worker trains."""


class Pool(Part, frozen=True, kw_only=True):
    """Tenants whose inference holds instances together in a window, as a [problem file](plan.md) has them."""

    members: tuple[TenantName, ...]
    overhead_s: Amount
    """What the plan reckons for a start in a new instance, until all are served."""
    capability_rps: dict[str, dict[TenantName, Number]]
    """By profile, then by member."""


class Outlook(Part, frozen=True):
    """What is expected of a tenant's model after the window."""

    drift: Share
    """r̂, the part of its accuracy that it keeps as a window with something to learn begins."""
    stays: Share
    """γ, the probability that such a window passes without another retraining."""
    in_time: Share
    """Of the last window's requests, the share answered in time."""
    ahead: tuple[bool, ...]
    """Of each window ahead that counts, whether it has something to learn; else the model stays as it is."""
    still: Share
    """τ, the part of a window that replaces it through which it still answers."""


class InTime(Part, frozen=True, kw_only=True):
    """What the plan promises a tenant in time, over the steps that it covers."""

    promised: Number | None
    """The share; ``null`` without arrivals."""
    missed: str | None
    """What it lacks of the tenant's floor, in words."""


class WindowStarted(InWindow, frozen=True, kw_only=True, tag="window_started"):
    """A window is planned, and nothing of it carried out."""

    start_s: Number
    queues: dict[TenantName, Queue]
    """By tenant."""
    forecast: Forecast
    plan_from_step: Count
    """The step of the window from which on its plan is."""
    initial: Json | None
    """What it begins with, as in a [problem file](plan.md); ``null`` in window 0 and without instances."""
    expected: dict[TenantName, Promise] | None
    """By tenant; ``null`` without a plan of its own."""
    plan: Plan | None
    """``null`` with ``shares`` and ``turns``."""
    violations: tuple[str, ...]
    """What the independent checker found."""
    rejected_plan: Plan | None = None
    """Only after violations: the plan, which is not carried out."""
    unavailable: tuple[Json, ...] = ()
    """Memory slices of others, or that the driver refuses, as in a problem file."""
    warm_up: WarmUp | None = None
    """Where there is a plan."""
    model_age: dict[TenantName, Count]
    """By tenant, how many windows old the newest data is that its model has learned."""
    outlook: dict[TenantName, Outlook] = {}
    """By tenant; only where plans count what models are worth beyond the window."""
    in_time: dict[TenantName, InTime] | None = None
    """By tenant, where there are floors."""
    asked_s: Number | None = None
    """When its plan was begun, if before the window: from what was known and expected then."""
    pools: tuple[Pool, ...] = ()
    """Only where tenants share instances; a tenant that is in none has its own."""


class MeasuredModel(Part, frozen=True, kw_only=True):
    """What is known of a tenant's model."""

    accuracy_before: Number
    estimate: Estimate | None = None
    """As in the forecast."""


class Measured(InWindow, frozen=True, kw_only=True, tag="measured"):
    """What a plan made ahead expected is now measured."""

    measured_s: Number
    """From then on plans of the window's rest know it."""
    tenants: dict[TenantName, MeasuredModel]


class Judged(InWindow, frozen=True, kw_only=True, tag="judged"):
    """By clients' labels a tenant may be retrained in the window's rest."""

    judged_s: Number
    tenant: TenantName
    labels: Count
    """The newest."""
    right: Count


class Rest(Part, frozen=True, kw_only=True):
    """What was left of a window for a tenant."""

    accuracy_before: Number
    options: tuple[str, ...]
    """Of its retraining."""
    retraining_required: bool
    due: Number | None = None
    """Of a floor, in requests."""
    salvage: tuple[Number, ...] = ()
    """Of the options, where plans count it."""
    mean_rps: Number
    """Of the rest's forecast."""


class Cause(StrEnum):
    """Why another plan was asked for."""

    PACE = "pace"
    """The pace of the config's ``planner.replan_every_s``."""

    BAND = "band"
    """Arrivals left the band of the forecast."""

    TRAINED = "retraining"
    """A retraining ended earlier or later than planned."""

    FAILED = "failure"
    """A worker failed."""

    FEEDBACK = "feedback"
    """Clients called too many answers wrong."""

    MEASURED = "measured"
    """The accuracies that the window begins with were measured, and what retrainings would bring; the plan in force was
    made before."""


class Kept(StrEnum):
    """Why the plan in force went on, though another was asked for."""

    BETTER = "the other plan was worth no more"
    LATE = "the other plan was not there in time"
    ALONE = "there was no other plan"
    OVERTAKEN = "something else happened"
    STRAYED = "the plan could not be followed"
    ENDED = "the window ended"


class OfRest(InWindow, frozen=True, kw_only=True):
    """A record of the rest of a window, which was posed anew."""

    from_step: Count
    """The window's step at which the rest begins."""
    reason: str
    asked_s: Number
    """When another plan was asked for."""
    initial: Json | None
    """What the rest begins with, as of ``window_started``."""
    rest: dict[TenantName, Rest]
    """By tenant."""
    plan: Plan
    violations: tuple[str, ...]
    rejected_plan: Plan | None = None
    """As of ``window_started``; ``plan`` is then the layout that stays."""
    unavailable: tuple[Json, ...] = ()
    """As of ``window_started``."""


class PlanRevised(OfRest, frozen=True, kw_only=True, tag="plan_revised"):
    """The rest of a window is planned again: the plan's premise is wrong, or another plan replaces it."""

    cause: Cause | None = None
    """In the second case: ``pace``, ``band``, ``retraining``, ``failure`` or ``measured``."""
    gain: Number | None = None
    """In the second case: expected goodput gained over going on, unless that would have broken a rule."""


class NotRevised(OfRest, frozen=True, kw_only=True, tag="not_revised"):
    """The rest of a window should be planned again, and no plan was found; the next try is after 10 s."""


class PlanKept(InWindow, frozen=True, kw_only=True, tag="plan_kept"):
    """Another plan was asked for, and the one in force goes on."""

    cause: Cause
    reason: str
    asked_s: Number
    """When it was asked for."""
    n_steps: Count
    """Of the rest of the window."""
    why: Kept
    error: str | None = None
    """Only where planning failed."""


class ForecastFailed(InWindow, frozen=True, kw_only=True, tag="forecast_failed"):
    """The forecaster raised an error, took too long (2 s; on a real GPU only) or returned what cannot be used."""

    from_step: Step
    """From which step on the forecast was to be; below 0 where planned before the window."""
    forecaster: str
    reason: str
    instead: str
    """What took its place: ``window``'s, or the rest of the last forecast."""


# --- the GPU


class Intent(InWindow, frozen=True, kw_only=True, tag="intent"):
    """Before a driver call."""

    call: Call
    """``create``, ``destroy`` or ``repair``: a compute instance made anew."""
    placement: str
    gi_id: Count | None
    """``null`` for ``create``."""


class Outcome(InWindow, frozen=True, kw_only=True, tag="outcome"):
    """After a driver call."""

    intent: Count
    """The number of its record."""
    gi_id: Count | None
    begin_s: Number
    end_s: Number
    error: str | None
    """Why the driver refused."""


class OfInstance(Part, frozen=True, kw_only=True):
    """Which instance, and whose."""

    instance: str
    placement: str
    compute_slices: Count
    tenant: Holder
    """A tenant, or a list of those of a pool."""
    task: Task

    @property
    def members(self) -> tuple[TenantName, ...]:
        """All whose it is."""
        return (self.tenant,) if isinstance(self.tenant, str) else self.tenant


class Stopped(OfInstance, frozen=True, kw_only=True):
    """An instance that has ended."""

    end_s: Number
    """No batch begins from here on."""
    drained_s: Number
    """The last one has ended."""
    gone_s: Number
    """Its slices are free."""


class Started(OfInstance, frozen=True, kw_only=True):
    """An instance that has begun."""

    begin_s: Number
    """Its slices are taken."""
    promised_s: Number
    """When the plan has it ready."""


class Change(InWindow, frozen=True, kw_only=True, tag="change"):
    """Instances have started or ended."""

    planned_s: Number
    begin_s: Number
    """Later than planned if the driver or a retraining took longer."""
    stopped: tuple[Stopped, ...]
    started: tuple[Started, ...]
    layout: tuple[tuple[str, Holder, Task], ...]
    """Which instance each holder has afterwards: `[placement, tenant, task]`."""
    undone: tuple[str, ...] = ()
    """What is missing or did not go, and why."""
    passed: tuple[Started, ...] = ()
    """Instances that go on under other holders, of which at least one served there before."""
    loans: tuple[Started, ...] = ()
    """Retrainings that start in instances of others, which serve nobody from ``ready`` to the end."""


class Others(InWindow, frozen=True, kw_only=True, tag="others"):
    """Others have done something to the GPU."""

    gone: tuple[str, ...]
    """Instances in use that others have destroyed."""
    came: tuple[str, ...]
    """Placements where others newly have instances."""
    left: tuple[str, ...]
    """Placements where they have none any more."""
    taken: tuple[str, ...]
    """Where no plan may put anything from now on."""


class Blind(InWindow, frozen=True, kw_only=True, tag="blind"):
    """The state of a real GPU is unknown; and again when it was read."""

    from_s: Number
    """The last moment of known state."""
    to_s: Number | None
    """When it was read again; ``null`` in the first."""
    reason: str


class Shares(InWindow, frozen=True, kw_only=True, tag="shares"):
    """Shares come into force; only with ``shares``."""

    shares: tuple[tuple[TenantName, Task, Count], ...]
    """`[tenant, task, twentieths]`."""
    in_turns: bool = False
    """Whether twentieths are of the time, not of the processors."""
    batches: tuple[tuple[TenantName, Count], ...] = ()
    """`[tenant, requests]` in a batch at most, where the policy says it."""


# --- workers


class OfWorker(InWindow, frozen=True, kw_only=True):
    """A record of one worker."""

    instance: str | None
    """``null`` where tenants have no instances."""
    tenant: TenantName


class Ready(OfWorker, frozen=True, kw_only=True, tag="ready"):
    """A worker is ready; another follows after a failure. In a pool's instance each member has its own."""

    task: Task
    ready_s: Number
    """It serves, or trains."""
    late_ready_s: Amount
    """Later than the plan promised."""
    library_s: Amount
    """How long it loaded libraries."""
    model_s: Amount
    """How long it then loaded the model."""


class Finished(OfWorker, frozen=True, kw_only=True, tag="finished"):
    """A retraining has ended; ``window`` is whose data it learned."""

    finish_s: Number
    accuracy: Number
    """Of its model, from then on."""
    option: str | None = None
    """How it was retrained, where that is not ``full``."""
    version: str | None = None
    """Of the weights; this and what follows only in a live run."""
    weights: str | None = None
    """A file of the run's folder."""
    accuracy_before: Number | None = None
    """That of the weights before."""
    expected: Share | None = None
    """What micro-profiling expected of ``accuracy``, uncorrected by earlier retrainings."""
    rejected: Share | None = None
    """Accuracy of its weights on the held-out samples, where they never serve: too low, or others are pinned."""
    pinned: str | None = None
    """The version that is pinned instead."""
    trained_s: Number | None = None
    """How long it took."""
    swap_s: tuple[Number, ...] = ()
    """Of each worker, to load the weights."""
    checkpoints: tuple[tuple[Number, Number, Number], ...] = ()
    """Share of the steps, accuracy, second."""

    @property
    def from_s(self) -> float:
        """When its accuracy begins to hold."""
        return self.finish_s


class Checkpoint(Finished, frozen=True, kw_only=True, tag="checkpoint"):
    """A retraining has done a part of its work; its weights serve if they are better.

    ``accuracy`` is what is served from then on.
    """

    part: Number
    """Of the work."""


class Failed(OfWorker, frozen=True, kw_only=True, tag="failed"):
    """A worker has died, or was given up: at its start, or as a retraining when the window after its own ends."""

    task: Task
    failed_s: Number
    reason: str


# --- its outcome


class Counts(Part, frozen=True, kw_only=True):
    """A tenant's requests by the second of *arrival* in the window.

    ``arrivals = in_time + late + dropped`` in every second, and all are 0 in blind ones.
    """

    arrivals: list[Count]
    in_time: list[Count]
    late: list[Count]
    dropped: list[Count]
    correct: list[Count] = []
    """In time and correct: goodput. This and the next only where it is known what is right."""
    correct_late: list[Count] = []
    """Late and correct."""
    refused: list[Count] = []
    """Of the dropped, those that found no room; only of live arrivals."""
    failed: list[Count] = []
    """Of the dropped, those that workers could not answer; only of live arrivals, where there are any."""
    latency_ms: list[tuple[Count, Count]]
    """Histogram of the answered, `[b, n]`: n took more than b − 1 and at most b milliseconds."""
    judged: tuple[Count, Count] | None = None
    """Answers that clients labelled since the window before, and how many were right."""
    could_serve: list[Number] = []
    """Only without instances: how many requests could have been answered in each second."""
    changing: list[Number] = []
    """The same, by what was starting or stopping."""
    others_share: list[Number] = []
    """Only with shared instances: the part of them that others had in each second."""

    @property
    def is_labelled(self) -> bool:
        """Whether it is known which answers are right."""
        return bool(self.correct)


class WindowFinished(InWindow, frozen=True, kw_only=True, tag="window_finished"):
    """Every request of the window is resolved, and GPU state is known."""

    tenants: dict[TenantName, Counts]
    """By tenant."""
    blind: tuple[tuple[Count, Count], ...] = ()
    """`[first, end)`, seconds of the run that are in no count."""
    arrival_sums: dict[TenantName, Sum] = {}
    """By tenant, CRC-32 of the window in ``arrivals/``; only of live arrivals, and not where a service stopped."""

    @property
    def is_labelled(self) -> bool:
        """Whether it is known of all tenants which answers are right."""
        return all(counts.is_labelled for counts in self.tenants.values())

    @property
    def blind_seconds(self) -> frozenset[int]:
        """The same, each by itself."""
        return frozenset(second for first, end in self.blind for second in range(first, end))

    @property
    def blind_s(self) -> int:
        """Seconds that are in no count."""
        return sum(end - first for first, end in self.blind)


class OutsideCounts(Part, frozen=True, kw_only=True):
    """Sums of what :class:`Counts` has by second."""

    arrivals: Count
    in_time: Count
    late: Count
    dropped: Count
    refused: Count
    failed: Count


class Outside(InWindow, frozen=True, kw_only=True, tag="outside"):
    """Requests before this window, the first after a start; no window counts them."""

    tenants: dict[TenantName, OutsideCounts]
    """By tenant."""


class Dispatched(Part, frozen=True, kw_only=True):
    """What the dispatcher counted of a tenant, requests of all clients."""

    arrived: Count
    in_time: Count
    late: Count
    dropped: Count
    refused: Count
    failed: Count
    correct: Count
    """Of all answered."""
    goodput: Count
    """Of those answered in time."""


class LiveRequests(Part, frozen=True, kw_only=True):
    """A tenant's requests of a live run: what was sent, and what the generator heard of it."""

    sent: Count
    in_time: Count
    late: Count
    dropped: Count
    refused: Count
    failed: Count
    dispatcher: Dispatched
    """Its own counts, of all clients' requests."""


class RunFinished(Record, frozen=True, kw_only=True, tag="run_finished"):
    """Last."""

    windows: Count
    requests: dict[TenantName, LiveRequests] = {}
    """By tenant; this and what follows only in a live run."""
    sent_late_s: tuple[Number, ...] | None = None
    """How late the generator sent: median, 99th percentile, worst."""
    swaps: Count | None = None
    """How often a worker took newer weights."""
    stolen_share: Number | None = None
    """Of the machine's CPU time, what it was refused."""
    others_share: Number | None = None
    """Of that time, what processes of others took."""


class ServiceStopped(Record, frozen=True, kw_only=True, tag="service_stopped"):
    """A service stopped in order, with all requests answered; last, or before ``resumed``."""

    keeps_layout: bool = False
    """Whether its instances stay, under ``--keep-layout``."""


class Interrupted(Record, frozen=True, kw_only=True, tag="interrupted"):
    """Last, after Ctrl-C, TERM or HUP, or where a real GPU answers no more."""

    reason: str | None = None
    """Only in the last case."""
    blind_from_s: Number | None = None
    """The last moment of known GPU state; likewise."""


AnyRecord = (
    RunStarted
    | Snapshot
    | TenantsChanged
    | Reloaded
    | OrderRefused
    | RolledBack
    | Resumed
    | WindowStarted
    | Measured
    | Judged
    | ForecastFailed
    | PlanRevised
    | PlanKept
    | NotRevised
    | Intent
    | Outcome
    | Change
    | Others
    | Blind
    | Shares
    | Ready
    | Checkpoint
    | Finished
    | Failed
    | Outside
    | WindowFinished
    | RunFinished
    | ServiceStopped
    | Interrupted
)
"""All kinds, in the order in which the docs have them."""
