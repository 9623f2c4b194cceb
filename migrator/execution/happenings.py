"""What happens in a run, as values: to workers, as the loop hears of it, and to its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forecaster.forecast import Forecast
from migrator.execution.windows import PlannedWindow
from migrator.log.records import Cause
from migrator.log.trouble import BlindSpan
from workloads.training import FULL


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker serves, or trains, from now on.

    Attributes:
        at_s: When.
        instance_id: In which instance.
        library_s: How long it loaded libraries,
        model_s: and then the model.
        tenant: Whose; it may be left out where only one has a worker there.
    """

    at_s: float
    instance_id: str
    library_s: float = 0.0
    model_s: float = 0.0
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The retraining in the instance is done; its model answers from now on. ``facts`` are for the log."""

    at_s: float
    instance_id: str
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The retraining in the instance has done a part of its work, after which its weights are worth serving."""

    at_s: float
    instance_id: str
    part: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The tenant's worker in the instance is gone, whatever it did; it holds the instance no longer."""

    at_s: float
    instance_id: str
    reason: str
    tenant: str | None = None


Happening = Ready | Checkpointed | Finished | Failed


@dataclass(frozen=True, slots=True)
class Trained:
    """A retraining that ended, or came to a checkpoint, as the loop sees it.

    Attributes:
        at_s: When the new model began to answer.
        tenant: Whose.
        window: With whose data.
        instance_id: Where, if it had an instance.
        facts: What else is known of it, for the log.
        option: How it was retrained.
        checkpoint: The part of the work that is done; ``None`` for all of it.
    """

    at_s: float
    tenant: str
    window: int
    instance_id: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)
    option: str = FULL
    checkpoint: float | None = None

    @property
    def is_rejected(self) -> bool:
        """Whether its weights are kept aside: they answered less right than those in service."""
        return self.facts.get("rejected") is not None


@dataclass(frozen=True, slots=True)
class Asked:
    """A wish for another plan of a window's rest.

    Attributes:
        reason: In words, what happened.
        cause: Why there *may* be another plan; ``None`` if there *must* be, as the one in force cannot be followed.
    """

    reason: str
    cause: Cause | None = None

    @property
    def must(self) -> bool:
        """Whether the plan in force cannot be followed."""
        return self.cause is None


@dataclass(frozen=True, slots=True)
class Replanning:
    """The rest of a window is being planned anew, from what is known now."""


@dataclass(frozen=True, eq=False)
class Replanned:
    """The rest of a window was planned anew.

    Attributes:
        asked: What was asked for.
        forecast: What the newest plan expects, up to the window's end; ``None`` where there is none.
        planned: The plan that is followed from now on; ``None`` where the running one goes on. Where there *must* be
            another and is none, the layout stays.
    """

    asked: Asked
    forecast: Forecast | None
    planned: PlannedWindow | None


Happened = Trained | Failed | Asked | Replanning | Replanned | BlindSpan
"""What the loop hears of."""


@dataclass(frozen=True, eq=False)
class AsPromised:
    """A window begins with what it was planned from; ``planned`` is its plan, ``None`` where it needs none."""

    planned: PlannedWindow | None = None


PlannedAhead = Callable[[], AsPromised | None]
"""To be called as the window begins: a plan is waited for if it is late; ``None`` if its start is not as promised."""
