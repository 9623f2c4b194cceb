"""``migrator run``: put the run together, refuse what cannot work, then carry it out with its log open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from executor.mig import GpuModel
from migrator.commands.options import Assignments, BesideOthers, nameable, with_examples
from migrator.commands.pages import require_page
from migrator.commands.resume import resume_run
from migrator.commands.running import OnGpu, begin, print_run, refuse_unlike
from migrator.commands.where import Manner
from migrator.config import Config, read_config
from migrator.console import progress
from migrator.traffic import RecordedTraffic
from migrator.views.progress import RunView
from migrator.views.traffic import print_traffic
from planner.policies.registry import policy_of


@with_examples("run quickstart.yaml --windows 2 --out runs/try", "run --resume runs/try")
def run_command(
    config: Annotated[
        Path | None, typer.Argument(help="The config file (YAML); see docs/configuration.md. Not with --resume.")
    ] = None,
    *,
    windows: Annotated[int | None, typer.Option(min=1, help="How many of the config's windows, or more.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed, instead of the config's.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=nameable, help="The run's folder, in which no other was begun. Default: runs/NAME, if it is free."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Who decides: a sharing policy's name, or a .py file; see docs/policies.md. Default: migrator."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="Simulate this policy, too, and say what was won over it, e.g. static."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Also write a page of the run into this file at its end; needs the extra plot."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.0, help="Seconds a plan until the best so far is taken; the run is then not repeatable."),
    ] = None,
    gpu: Annotated[
        Literal["sim", "nvml", "smi", "mps", "cpu"] | None,
        typer.Option(
            case_sensitive=False,
            help="A simulated GPU; a real one by NVML, nvidia-smi or MPS; or this machine's CPU; over the config.",
        ),
    ] = None,
    index: Annotated[
        int | None, typer.Option("--index", "-i", min=0, help="Which real GPU, as in nvidia-smi -i; over the config.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=nameable,
            help="Where is written which instances are ours (real GPU only). See gpu list.",
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Take over what others made (real GPU only): what the plan does not want is destroyed as the run "
            "begins, the rest at its end.",
        ),
    ] = False,
    beside_others: BesideOthers = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan the first window, print its nvidia-smi commands, and do nothing.")
    ] = False,
    assignments: Assignments = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Instead of a CONFIG: go on with the run in this folder, which was cut off."),
    ] = None,
) -> None:
    """Run a config under a policy and print its report; with ``against``, what it won over that policy, too.

    With ``time_limit`` each plan is made within that, and the run is not repeatable. With ``resume`` a run that was cut
    off goes on as it was begun.

    Nothing is written before the config is checked and window 0 has a plan; but the processes of a live run write into
    its folder before that plan, and the folder goes again where there is none.

    Raises:
        ConfigError: The config cannot be used.
        PolicyError: There is no such policy.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
        MigratorError: There is a time limit, or a real GPU, but the policy makes no plans; a real GPU is to have
            faults; or a live run lacks libraries.
        JournalError: The file of our instances on a real GPU cannot be used.
        GpuError: A real GPU is not there, not as the config has it, or does not answer.
        LiveError: A process that a live run cannot do without is gone.
        ZygoteError: The warm process of a live run is gone.
        WireError: The folder of a live run's processes cannot be used.
    """
    where = OnGpu(gpu, index, state, Manner(dry_run, adopt, beside_others))
    if resume is not None:
        options: dict[str, object] = {"--windows": windows, "--seed": seed, "--out": out, "--time-limit": time_limit}
        options |= {"--set": assignments, "--gpu": gpu, "--index": index, "--dry-run": dry_run or None}
        given = [name for name, value in {"CONFIG": config, **options}.items() if value not in (None, [])]
        if given:
            raise typer.BadParameter(f"--resume goes on with a run as it was begun: without {', '.join(given)}")
        if html is not None:
            require_page(html, resume)
        resume_run(resume, policy=policy, against=against, on_gpu=where, html=html)
        return
    if config is None:
        raise typer.BadParameter("give a CONFIG, or --resume DIR")
    if html is not None:
        require_page(html, config)
    asked = read_config(config, [*where.assignments, *(assignments or ())], windows=windows, seed=seed)
    chosen = policy_of(policy or "migrator")
    rival = None if against is None else policy_of(against)
    refuse_unlike(rival, asked)
    show = partial(_shown, asked)
    folder, setting, traffic = begin(asked, str(config), chosen, show, where=where, out=out, time_limit_s=time_limit)
    if folder is not None:
        print_run(folder, rival, setting, traffic, html)


@contextmanager
def _shown(config: Config, gpu: GpuModel, traffic: RecordedTraffic) -> Iterator[RunView]:
    """Print what arrives, and then how far the run is; ``config`` is as it was read."""
    console = progress()
    print_traffic(config, traffic, console)
    with closing(RunView(config, gpu.memory_slices, console)) as view:
        yield view
