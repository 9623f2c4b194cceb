"""``migrator gpu diff|apply|clear|restore``: bring a GPU to a layout, or say how that would be done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from executor.clock import WallClock
from executor.driver import DriverGpu
from executor.errors import InUseError, TargetNotReachedError
from executor.gpu import GpuInstance
from executor.journal import Journal, in_doubt
from executor.mig import Layout
from executor.reconcile import Decision, Outcome, Patience, Reconciler, decide, destructions
from migrator.commands.gpu.standing import LayoutText, creations, layout_in
from migrator.commands.options import Backend, BesideOthers, Card, Index, Json, State, with_examples
from migrator.commands.where import Manner, Where
from migrator.errors import MigratorError
from migrator.terminal.console import escape, output, print_json, warn_of

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the nvidia-smi commands, and change nothing.")]


@with_examples("gpu diff 2g.10gb@0,3g.20gb@4")
def diff_command(
    layout: LayoutText,
    *,
    card: Card = None,
    index: Index = 0,
    backend: Backend = "auto",
    state: State = None,
    as_json: Json = False,
) -> None:
    """Print what would have to be done to reach the layout, and do nothing."""
    where = Where(index, backend, state, card)
    where.mind_other_managers(may_refuse=False)
    with where.opened() as gpu:
        standing, records = gpu.instances(), where.records_of(gpu)
        decision = decide(standing, records.is_ours, _asked(layout, gpu, where))
        warn_of(map(in_doubt, filter(records.is_perhaps_ours, standing)))
        if as_json:
            print_json(_decision_to_json(decision))
        else:
            print_decision(decision, gpu.index)


@with_examples("gpu apply 2g.10gb@0,3g.20gb@4 --dry-run", "gpu apply 3g.20gb:1,1g.5gb:2")
def apply_command(
    layout: LayoutText,
    *,
    card: Card = None,
    index: Index = 0,
    backend: Backend = "auto",
    state: State = None,
    dry_run: DryRun = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over what others made, too; it may be destroyed.")
    ] = False,
    beside_others: BesideOthers = False,
) -> None:
    """Bring the GPU to the layout; what others made stays, unless it is adopted.

    Raises:
        OtherControllerError: Another controller has the GPU, or another manager of this node would undo the layout.
        TargetNotReachedError: Something is missing, would not go, or is in the way.
    """
    where = Where(index, backend, state, card)
    with where.opened() as gpu:
        _bring(gpu, _asked(layout, gpu, where, adopt=adopt), where, Manner(dry_run, adopt, beside_others))


@with_examples("gpu clear --dry-run")
def clear_command(
    *,
    card: Card = None,
    index: Index = 0,
    backend: Backend = "auto",
    state: State = None,
    dry_run: DryRun = False,
    beside_others: BesideOthers = False,
) -> None:
    """Take away every instance of ours, and nobody else's.

    Raises:
        OtherControllerError: Another controller has the GPU, or another manager of this node.
        TargetNotReachedError: Something of ours would not go, or something stays that may be ours.
    """
    where = Where(index, backend, state, card)
    with where.opened() as gpu:
        _bring(gpu, Layout(), where, Manner(dry_run, beside_others=beside_others))


@with_examples("gpu restore --dry-run")
def restore_command(
    *,
    card: Card = None,
    index: Index = 0,
    backend: Backend = "auto",
    state: State = None,
    dry_run: DryRun = False,
    beside_others: BesideOthers = False,
) -> None:
    """Bring back the layout that was last asked for, as after a reboot.

    Raises:
        MigratorError: None ever was.
    """
    where = Where(index, backend, state, card)
    with where.opened() as gpu:
        records = where.records_of(gpu)
        target = records.target
        if target is None:
            raise MigratorError(f"no layout to restore on GPU {gpu.index}: gpu apply writes it to {records.path}")
        output().print(f"last asked for: {escape(' '.join(target)) or 'no instance of ours'}", soft_wrap=True)
        _bring(gpu, layout_in(",".join(target), gpu.model), where, Manner(dry_run, beside_others=beside_others))


def _asked(layout: str, gpu: DriverGpu, where: Where, *, adopt: bool = False) -> Layout:
    """The layout that is asked for; counts keep what is ours, or is going to be, and go around all else."""
    if ":" not in layout:
        return layout_in(layout, gpu.model)
    standing, records = gpu.instances(), where.records_of(gpu)
    others = tuple(item for item in standing if not (adopt or records.is_ours(item)))
    return layout_in(layout, gpu.model, (item for item in standing if item not in others), others)


def _bring(gpu: DriverGpu, target: Layout, where: Where, manner: Manner) -> None:
    """Bring the GPU to the layout, or say how that would be done."""
    if not manner.dry_run:
        where.mind_other_managers(may_refuse=not manner.beside_others)
        with Journal(where.journal_of(gpu), gpu.boot) as journal:
            reconciler = Reconciler(gpu, journal, WallClock(), Patience(waits_for_holders=False))
            reconciler.settle()
            if manner.adopt:
                for item in reconciler.adopt():
                    output().print(f"adopted {item.placement} (GPU instance ID {item.gi_id})")
            journal.aim(target)
            try:
                outcome = reconciler.apply(target)
                _end(outcome, gpu, () if len(target) else journal.untold())  # whoever clears is to leave nothing
            finally:
                warn_of(journal.untold())
        return
    where.mind_other_managers(may_refuse=False)
    standing, records = gpu.instances(), where.records_of(gpu)
    warn_of(map(in_doubt, filter(records.is_perhaps_ours, () if manner.adopt else standing)))
    adopted = tuple(item for item in standing if manner.adopt and not records.is_ours(item))
    for item in adopted:
        output().print(f"[dim]adopt   {item.placement} (GPU instance ID {item.gi_id})[/]")
    print_decision(decide(standing, lambda item: item in adopted or records.is_ours(item), target), gpu.index)


def _end(outcome: Outcome, gpu: DriverGpu, stays: Sequence[str]) -> None:
    """Print our instances; refuse where the target is not reached, or something ``stays`` that may be ours."""
    for item in outcome.standing:
        output().print(f"{item.placement}  GPU instance ID {item.gi_id}  {item.uuid}", soft_wrap=True)
    if stays or not outcome.is_complete:
        unexplained = any(isinstance(item.error, InUseError) and not item.holders for item in outcome.undone)
        advice = ["migrator doctor looks for programs that hold instances unlisted"] if unexplained else []
        said = dict.fromkeys(map(str, (*outcome.undone, *outcome.blocked)))  # one refusal may keep several from coming
        left = [item.left for item in outcome.undone if item.left is not None]
        if left and gpu.backend != "sim":
            advice.append(f"once nothing holds it: {'; '.join(destructions(left, gpu.index))}")
        raise TargetNotReachedError("; ".join([*said, *stays, *advice]))


def _commands(decision: Decision, index: int) -> list[str]:
    lines = destructions(decision.destroyed, index)
    for item in decision.repaired:
        parts = [f"nvidia-smi mig -i {index} -dci -gi {item.gi_id}"] if item.parts else []
        lines += [*parts, f"nvidia-smi mig -i {index} -cci -gi {item.gi_id}"]
    return [*lines, *creations(index, Layout(decision.created))]


def print_decision(decision: Decision, index: int) -> None:
    """Print what would be done on the GPU, as ``nvidia-smi`` commands."""
    for item in decision.kept:
        output().print(f"[dim]keep    {item.placement} (GPU instance ID {item.gi_id})[/]")
    for command in _commands(decision, index):
        output().print(command, soft_wrap=True)
    for blocked in decision.blocked:
        output().print(f"[yellow]blocked[/] {escape(str(blocked))}", soft_wrap=True)
    if decision.is_done:
        output().print("nothing to do")


def _decision_to_json(decision: Decision) -> dict[str, object]:
    def described(items: Iterable[GpuInstance]) -> list[dict[str, object]]:
        return [{"placement": str(item.placement), "gi_id": item.gi_id} for item in items]

    return {
        "kept": described(decision.kept),
        "repaired": described(decision.repaired),
        "destroyed": described(decision.destroyed),
        "created": [str(placement) for placement in decision.created],
        "blocked": [{"placement": str(item.placement), "by": described(item.by)} for item in decision.blocked],
        "is_done": decision.is_done,
    }
