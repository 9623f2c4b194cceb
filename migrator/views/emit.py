"""A plan for other tools: the ``nvidia-smi`` commands of its changes, by time, or a configuration of mig-parted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import yaml

from executor.mig import Layout, OwnedLayout, Placement, owned_transition
from migrator.execution.changes import Change, changes_of
from migrator.terminal.console import printable
from planner.plan import MigPlan
from planner.problem import Owner, Problem, Task

Form = Literal["nvidia-smi", "mig-parted"]


@dataclass(frozen=True, slots=True)
class Emitted:
    """A plan that is to be carried out by somebody else.

    Attributes:
        problem: What the plan answers.
        plan: A ``physical`` one.
        begins_s: When its step 0 is, in seconds of the window.
        origin: Whose plan it is, for a comment.
    """

    problem: Problem
    plan: MigPlan
    begins_s: float
    origin: str

    @property
    def changes(self) -> tuple[Change, ...]:
        """Its changes, by seconds of the window; loans change no instance."""
        own = replace(self.plan, lifetimes=tuple(item for item in self.plan.lifetimes if not item.lent))
        return changes_of(own, self.begins_s, self.problem.step_s, problem=self.problem)

    @property
    def before(self) -> OwnedLayout[Owner]:
        """What each owner holds when the plan begins."""
        initial = self.problem.physical_initial
        if initial is None:
            return OwnedLayout()
        held = [(item.placement, Owner(item.tenant, Task.INFERENCE, item.others)) for item in initial.held]
        own = (item for item in initial.retrainings if item.lent_from is None)
        return OwnedLayout.of([*held, *((item.placement, Owner(item.tenant, Task.RETRAINING)) for item in own)])


def emitted(form: Form, what: Emitted) -> str:
    """The plan in the other tool's words, ending with a line break."""
    lines = _script(what) if form == "nvidia-smi" else _configuration(what)
    return "".join(f"{line}\n" for line in lines)


_FUNCTIONS = """\
set -eu
gpu=${1:-0}
begun=$(date +%s)

# Waits for a second of the window. What is late goes on at once.
until_second() {
    left=$((begun + $1 - $(date +%s)))
    if [ "$left" -gt 0 ]; then sleep "$left"; fi
}

# The GPU instance of a profile (by ID) at a start: the driver's own numbers cannot be known in advance.
instance_at() {
    nvidia-smi mig -i "$gpu" -lgi |
        awk -v id="$1" -v start="$2" '$3 == "MIG" && $5 == id { split($7, at, ":"); if (at[1] == start) print $6 }'
}

destroy() {
    instance=$(instance_at "$1" "$2")
    if [ -z "$instance" ]; then echo "no GPU instance of profile $1 at $2" >&2; exit 1; fi
    nvidia-smi mig -i "$gpu" -dci -gi "$instance" || true # it may have no compute instance
    nvidia-smi mig -i "$gpu" -dgi -gi "$instance"
}

create() {
    nvidia-smi mig -i "$gpu" -cgi "$1:$2" -C
}"""


def _script(what: Emitted) -> Iterator[str]:
    gpu = what.problem.gpu
    yield "#!/bin/sh"
    yield f"# {printable(what.origin)}: its layouts on {printable(gpu.title)}, by seconds of the window."
    yield "# Start it with the window, as root: sh FILE [GPU]"
    yield f"# Profile IDs are those of {gpu.name} in the catalogue; nvidia-smi mig -lgip shows the card's own."
    yield "# Instances are all that changes here: end what runs in one before its second, and start what comes after."
    yield "# The first command that fails ends it."
    yield f"# It expects: {_named(what.before.layout)}"
    yield from _FUNCTIONS.splitlines()
    held = what.before
    for change in what.changes:
        step = owned_transition(held, change.layout)
        held = change.layout
        if not (step.destroyed or step.created or step.handed_over):
            continue
        yield ""
        yield f"# Second {change.planned_s:g}: {_named(held.layout)}"
        yield from (
            f"# {over.placement}: from {_who(over.from_owner)} to {_who(over.to_owner)}, in the same instance"
            for over in step.handed_over
        )
        if step.destroyed or step.created:
            second = math.ceil(change.planned_s)
            yield f"until_second {second}{'' if second == change.planned_s else ' # rounded up'}"
        yield from (f"destroy {_at(placement)} # {_of(placement, owner)}" for placement, owner in step.destroyed)
        yield from (f"create {_at(placement)} # {_of(placement, owner)}" for placement, owner in step.created)


def _configuration(what: Emitted) -> Iterator[str]:
    yield f"# {printable(what.origin)}: a configuration for each layout, named by its first second of the window."
    yield "# mig-parted takes how many of each profile, no placements, and makes each layout anew: no instance"
    yield "# outlives a change, and where the driver puts them is its own choice. Device 0 stands for the plan's GPU."
    configs = {}
    before: Layout | None = None
    for change in what.changes:
        layout = change.layout.layout
        if layout != before:
            counts = Counter(placement.profile.name for placement in layout)
            device = {"devices": [0], "mig-enabled": True, "mig-devices": dict(counts)}
            configs[f"second-{change.planned_s:g}"] = [device]
        before = layout
    yield from yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False).splitlines()


def _at(placement: Placement) -> str:
    return f"{placement.profile.gi_profile_id} {placement.start}"


def _of(placement: Placement, owner: Owner) -> str:
    return f"{placement}, {_who(owner)}"


def _who(owner: Owner) -> str:
    return printable(str(owner))


def _named(layout: Layout) -> str:
    return " ".join(map(str, layout)) or "no instance"
