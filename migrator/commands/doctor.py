"""``migrator doctor``: whether a real run could work on this machine, and what to do where it could not.

It looks, and changes nothing: no file is made, no lock is taken, and no driver call has an effect. A control group that
is made to see whether it can be is taken away.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from executor import processes
from executor.cpu.gpu import find_shares, ways
from executor.discovery import disagreements
from executor.driver import DriverGpu
from executor.errors import ExecutorError, GpuError, NoGpuError
from executor.extras import install
from executor.gpu import GpuInstance
from executor.journal import Records, in_doubt
from executor.mps import COMMAND as MPS_COMMAND
from executor.mps import cut_of
from executor.opening import BackendName, driver_facts, open_gpu
from executor.processes import (
    device_users,
    gpu_process,
    holder_of_lock,
    mps_daemons,
    other_managers,
    usual_holders,
)
from migrator.commands.options import Backend, Json, State, with_examples
from migrator.commands.where import Where, state_folder
from migrator.errors import ExitCode
from migrator.extras import EXTRAS, lacking
from migrator.terminal.console import counted, escape, output, print_json

Level = Literal["ok", "note", "warning", "problem"]
"""``note``: nothing is wrong. ``problem``: a real run could not work."""

_STYLES: dict[Level, str] = {"ok": "green", "note": "dim", "warning": "yellow", "problem": "bold red"}
_LEAST_NVML = (12, 570)
"""Versions of nvidia-ml-py before this one do not know all profiles."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check came to.

    Attributes:
        level: How bad it is.
        about: What was looked at.
        said: What was found.
        advice: What to do; empty where nothing has to be done.
    """

    level: Level
    about: str
    said: str
    advice: str = ""


@with_examples("doctor")
def doctor_command(*, backend: Backend = "auto", state: State = None, as_json: Json = False) -> None:
    """Print what was found; end with 0 if a real run could work, else with 4."""
    found = tuple(findings(backend, state))
    n_problems = sum(finding.level == "problem" for finding in found)
    if as_json:
        print_json({"can_run": n_problems == 0, "checks": [asdict(finding) for finding in found]})
    else:
        _print(found, n_problems)
    if n_problems:
        raise typer.Exit(ExitCode.DEVICE_ERROR)


def findings(backend: BackendName = "auto", state: Path | None = None) -> Iterator[Finding]:
    """Every check, one after the other: the driver, its GPUs, this node, this user, the planner's solvers."""
    n_gpus = yield from _driver(backend)
    by_mps = _by_mps(n_gpus or 0)
    needs_mig = n_gpus is None or (yield from _gpus(backend, n_gpus, state, by_mps))
    yield from _permission(needs_mig=needs_mig)
    yield from _node()
    yield from _state(state)
    yield from _cpu_shares(state)
    yield from _mps_shares(by_mps, state)
    yield from _solvers()
    yield from _extras()


def _print(found: Sequence[Finding], n_problems: int) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in found:
        text = f"{finding.said}; {finding.advice}" if finding.advice else finding.said
        table.add_row(f"[{_STYLES[finding.level]}]{finding.level}[/]", escape(finding.about), escape(text))
    output().print(table)
    if n_problems == 0:
        output().print("A real run could work here.")
    else:
        output().print(f"A real run could not work here: {counted(n_problems, 'problem')}.")


def _driver(backend: BackendName) -> Generator[Finding, None, int | None]:
    """What the driver says of itself, by NVML and by the command; returns how many GPUs it has, if it can be read."""
    try:
        _require_module()
        facts = driver_facts()
    except GpuError as error:
        yield Finding("problem", "NVML", str(error))
        return None
    version = None if backend == "nvml" else (yield from _command_version(backend))
    if version in (None, facts.version):
        by = "NVML" if version is None else "NVML and nvidia-smi"
        yield Finding("ok", "driver", f"{facts.version}, {counted(facts.n_gpus, 'GPU')}, by {by}")
    else:
        said = f"{facts.version} by NVML, {version} by nvidia-smi"
        yield Finding("problem", "driver", said, "library and command are of two drivers: remove one, and reboot")
    return facts.n_gpus


def _command_version(backend: BackendName) -> Generator[Finding, None, str | None]:
    """The version of the driver to which ``nvidia-smi`` speaks; the backend ``smi`` alone cannot do without it."""
    from executor.smi import command_facts  # noqa: PLC0415 - needs NVML's module

    try:
        facts = command_facts()
    except GpuError as error:
        if backend == "smi":
            yield Finding("problem", "nvidia-smi", str(error))
        else:
            yield Finding("warning", "nvidia-smi", str(error), "NVML is enough")
        return None
    for warned in facts.warnings:
        yield Finding("warning", "nvidia-smi", warned, "instances can be changed all the same")
    return facts.driver_version


def _require_module() -> None:
    """Check that NVML's Python module is there, and new enough.

    Raises:
        NoGpuError: It is not.
    """
    least = ".".join(map(str, _LEAST_NVML))
    install = f"pip install 'nvidia-ml-py>={least}'"
    try:
        version = metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        raise NoGpuError(f"the Python module nvidia-ml-py is absent; {install}") from None
    if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < _LEAST_NVML:
        raise NoGpuError(f"nvidia-ml-py is {version}, which does not know all profiles; {install}")


def _gpus(
    backend: BackendName, n_gpus: int, state: Path | None, by_mps: Mapping[int, str]
) -> Generator[Finding, None, bool]:
    """What each GPU is like, and whether there is one to run on; returns whether that is by MIG, or not at all."""
    n_usable = 0
    for index in range(n_gpus):
        try:
            with open_gpu(backend, index) as gpu:
                found = tuple(_gpu(gpu, Where(index, backend, state)))
        except GpuError as error:
            found = (Finding("warning", f"GPU {index}", str(error)),)
        else:
            n_usable += all(finding.level != "problem" for finding in found)
        yield from found
    if n_usable == 0 and backend == "auto" and by_mps:
        yield Finding("warning", "GPUs", "none can be cut by MIG", "by MPS a run could work, see below")
        return False
    if n_usable == 0:
        yield Finding(
            "problem", "GPUs", "there is none to run on", "see above" if n_gpus else "nvidia-smi -L lists them"
        )
    return True


def _by_mps(n_gpus: int) -> dict[int, str]:
    """The GPUs that MPS can share, with what they are then called."""
    found = {}
    if shutil.which(MPS_COMMAND) is not None:
        for index in range(n_gpus):
            with suppress(GpuError):
                found[index] = cut_of(index).name
    return found


def _gpu(gpu: DriverGpu, where: Where) -> Iterator[Finding]:
    """What one GPU in MIG mode is like, its instances, and who has it."""
    about = f"GPU {gpu.index}"
    yield Finding("ok", about, f"{gpu.model.title}, in MIG mode, as {gpu.model.name}")
    if not gpu.keeps_mig_mode:
        yield Finding("warning", about, "its MIG mode ends with the next reset", f"nvidia-smi -i {gpu.index} -mig 1")
    if (turns_by := gpu.turns_by) is not None:
        yield Finding("ok", about, f"an instance takes several processes, as pools need, by {turns_by}")
    else:
        advice = f"pools need more; as root: nvidia-smi -i {gpu.index} -c DEFAULT"
        yield Finding("note", about, "an instance takes one process alone, by its compute mode", advice)
    for line in disagreements(gpu.model):
        yield Finding("note", about, f"catalogue: {line}", "the driver's word counts")
    holder = holder_of_lock(where.journal_of(gpu))
    if holder is not None:
        yield Finding("problem", about, f"another controller has it: process {holder}", "wait for it, or --state DIR")
    try:
        records = where.records_of(gpu)
    except ExecutorError as error:
        yield Finding("problem", about, str(error))
        return
    yield from _standing(gpu, records, about)


def _standing(gpu: DriverGpu, records: Records, about: str) -> Iterator[Finding]:
    instances, running = gpu.instances(), {}
    try:
        running = gpu.processes()
    except GpuError as error:
        yield Finding("warning", about, f"processes unknown: {error}", "what holds an instance is not seen either")
    ours = tuple(item for item in instances if records.is_ours(item))
    others = tuple(item for item in instances if item not in ours)
    yield Finding("ok", about, f"ours: {_named(ours) or 'no instance'}")
    if others:
        advice = "they stay, and plans go around them; gpu apply --adopt takes them over"
        yield Finding("warning", about, f"others': {_named(others)}", advice)
    for item in filter(records.is_perhaps_ours, instances):
        yield Finding("warning", about, in_doubt(item))
    for item in instances:
        if not item.is_whole:
            advice = "its owner may be about to make it, or have left it half done"
            advice = "gpu apply LAYOUT --adopt makes it whole" if item.parts else advice
            yield Finding("warning", about, f"{_named([item])} has no compute instance that takes all of it", advice)
        if item.gi_id in running:
            who = ", ".join(str(gpu_process(pid)) for pid in running[item.gi_id])
            advice = "it cannot be destroyed before they end" if item in ours else ""
            yield Finding("warning" if item in ours else "note", about, f"{item.placement} is held by {who}", advice)
    if records.target is not None and set(records.target) != {str(item.placement) for item in ours}:
        said = f"last asked for: {' '.join(records.target) or 'no instance'}, which is not what we have there"
        yield Finding("warning", about, said, f"migrator gpu restore -i {gpu.index}")


def _permission(*, needs_mig: bool) -> Iterator[Finding]:
    config = processes.PROC / "driver" / "nvidia" / "capabilities" / "mig" / "config"
    if os.geteuid() == 0:
        yield Finding("ok", "permission", "root may change instances")
    elif os.access(config, os.R_OK):
        yield Finding("ok", "permission", f"{config} can be read: this user may change instances")
    else:
        advice = "run as root, or let root give this user read access to it, and to its device in /dev/nvidia-caps"
        yield Finding(
            "problem" if needs_mig else "note", "permission", f"neither root nor read access to {config}", advice
        )


def _node() -> Iterator[Finding]:
    """Which other programs cut GPUs, hand them out or hold them here."""
    managers, holders = other_managers(), usual_holders()
    for neighbour in managers:
        yield Finding("problem", "node", str(neighbour), "stop it while we work, or take this node's GPUs from it")
    for neighbour in holders:
        yield Finding("warning", "node", str(neighbour))
    named = {neighbour.process for neighbour in (*managers, *holders)}
    for user in device_users():
        if user not in named:
            yield Finding("note", "node", f"process {user} has devices of NVIDIA's driver open")
    if not managers:
        yield Finding("ok", "node", "no other manager of MIG among the processes that can be seen from here")


def _state(state: Path | None) -> Iterator[Finding]:
    folder = state or state_folder()
    there = next(place for place in (folder, *folder.absolute().parents) if os.access(place, os.F_OK))
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        yield Finding("ok", "state", f"{folder} can be written")
    else:
        yield Finding("problem", "state", f"{folder} cannot be written", "choose another folder: --state DIR")


def _cpu_shares(state: Path | None) -> Iterator[Finding]:
    """How this machine's CPU can be cut in place of a GPU; a real run does not need it."""
    about = "CPU shares"
    try:
        shares, why_not = find_shares(ways(state or state_folder()), "migrator-tried")
    except NoGpuError as error:
        yield Finding("note", about, str(error))
        return
    if shares.is_coarse:
        advice = f"exact ones need a control group that this user may write to: {'; '.join(why_not)}"
        yield Finding("note", about, f"coarse ones only, by {shares.way}", advice)
    else:
        yield Finding("ok", about, f"exact ones, by {shares.way}")


def _mps_shares(by_mps: Mapping[int, str], state: Path | None) -> Iterator[Finding]:
    """Whether a GPU can be shared by MPS where MIG may not be changed; a run on MIG instances does not need it."""
    about, folder = "MPS shares", (state or state_folder()).resolve()
    if shutil.which(MPS_COMMAND) is None:
        advice = "it comes with NVIDIA's driver, or a package beside it; without it there are no MPS shares"
        yield Finding("note", about, f"there is no {MPS_COMMAND}", advice)
    else:
        yield Finding("ok", about, f"{MPS_COMMAND} is there, for a GPU with MIG off; such shares isolate no memory")
    for index, name in by_mps.items():
        yield Finding("ok", about, f"GPU {index} can be shared, as {name}: run --gpu mps --set gpu.model={name}")
    for daemon in mps_daemons():
        if daemon.pipe is not None and Path(daemon.pipe).is_relative_to(folder):
            yield Finding("ok", about, f"our daemon runs: process {daemon.process}")
        else:
            advice = "on a GPU that it may serve, ours is refused: their shares would compete"
            yield Finding("note", about, f"another MPS daemon runs: process {daemon.process}", advice)


def _solvers() -> Iterator[Finding]:
    """The planner's solvers, each of them tried."""
    tries: dict[str, Callable[[], str]] = {"highs": _try_highs, "cbc": _try_cbc, "gurobi": _try_gurobi}
    for name, attempt in tries.items():
        try:
            yield Finding("ok", name, attempt())
        except ModuleNotFoundError as error:
            advice = f"pip install 'migrator-mig{'[gurobi]' if name == 'gurobi' else ''}', for --solver {name}"
            yield Finding("note" if name == "gurobi" else "warning", name, f"{error.name} is absent", advice)
        except Exception as error:  # noqa: BLE001 - a foreign program that fails, for whatever reason, is what we look for
            yield Finding("warning", name, " ".join(str(error).split()), f"--solver {name} will not work")


def _try_highs() -> str:
    from planner.highs import SilentHighs  # noqa: PLC0415 - only where it is looked for

    highs = SilentHighs()
    column = highs.addVariable(0, 1)
    highs.maximize(column)
    if highs.getInfo().objective_function_value != 1:
        raise RuntimeError("it does not solve a program of one variable")
    return f"HiGHS {highs.version()} works"


def _try_cbc() -> str:
    import pulp  # noqa: PLC0415

    program = pulp.LpProblem(sense=pulp.LpMaximize)
    program += program.add_variable("x", 0, 1)
    with warnings.catch_warnings(category=DeprecationWarning, action="ignore"):  # PuLP 4 will not bundle it
        cbc = pulp.PULP_CBC_CMD(msg=False)
    if program.solve(cbc) != pulp.LpStatusOptimal:
        raise RuntimeError("it does not solve a program of one variable")
    return f"CBC works, of PuLP {pulp.__version__}"


def _try_gurobi() -> str:
    """What Gurobi's licence is good for: a program beyond the free one's size is solved, or refused."""
    import gurobipy  # noqa: PLC0415 - optional

    version = ".".join(map(str, gurobipy.gurobi.version()))
    with gurobipy.Env(empty=True) as environment:
        environment.setParam("OutputFlag", 0)
        environment.start()
        with gurobipy.Model(env=environment) as model:
            model.addVars(_BEYOND_FREE)
            try:
                model.optimize()
            except gurobipy.GurobiError as error:
                if error.errno != gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
                    raise
                return f"Gurobi {version}, with its free licence: 2,000 variables and rules at most"
    return f"Gurobi {version}, with a licence for any size"


_BEYOND_FREE = 2001


def _extras() -> Iterator[Finding]:
    for name, extra in EXTRAS.items():
        if lacking(name):
            yield Finding("note", f"extra {name}", f"absent, for {extra.purpose}", install(name))
        else:
            yield Finding("ok", f"extra {name}", f"there, for {extra.purpose}")


def _named(instances: Iterable[GpuInstance]) -> str:
    return ", ".join(f"{item.placement} (GPU instance ID {item.gi_id})" for item in instances)
