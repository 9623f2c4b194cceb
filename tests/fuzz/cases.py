"""Cases: a folder with input files, one or two of them changed, and a command line that reads them.

A case is known by seed and number alone, and can be made again from them.
"""

from __future__ import annotations

import copy
import csv
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from migrator.log.line import as_line
from tests.fuzz import mutate
from tests.fuzz.originals import CONFIG, PAPER, PHYSICAL, TRACES
from tests.workloads.profiles.share_rows import share_text

PROFILES = Path(__file__).parents[2] / "workloads" / "data" / "parvagpu.csv"


@dataclass(frozen=True)
class Originals:
    """What good commands wrote: a plan of each cost model, and the log and config of a run; made once.

    ``others`` are logs and configs of runs whose tenants share the GPU in other ways, by what they are called.
    """

    plans: dict[str, dict[str, Any]]
    log: bytes
    config: bytes
    others: dict[str, tuple[bytes, bytes]]


@dataclass(frozen=True)
class Case:
    """A command line to be called in ``folder / "cwd"``, where the only file to write is below ``out`` or ``runs``.

    Attributes:
        kind: Which kind of file was changed.
        arguments: Behind the program's name.
    """

    kind: str
    arguments: tuple[str, ...]


def profiles_text() -> str:
    """A table of two models at a few batch sizes."""
    with PROFILES.open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    chosen = [
        row for row in rows if row[2] in ("resnet50", "bert-large") and row[4] in ("1", "8", "32") and row[5] == "1"
    ]
    return "\n".join(map(",".join, (header, *chosen))) + "\n"


def made(kind: str, random: Random, folder: Path, originals: Originals) -> Case:
    """Write the files of a case of the kind into ``folder / "cwd"``, and return its command line."""
    cwd = folder / "cwd"
    cwd.mkdir(parents=True)
    return Case(kind, tuple(KINDS[kind](random, cwd, originals)))


def write_inputs(cwd: Path, random: Random, config: Any, raw_share: float = 0.0) -> None:
    """A config with all that it may name: a good trace and table, and what is no file."""
    (cwd / "config.yaml").write_bytes(mutate.as_yaml(config, random, raw_share))
    (cwd / "trace.csv").write_text(TRACES["counts"])
    (cwd / "profiles.csv").write_text(profiles_text())
    (cwd / "bomb.csv.gz").write_bytes(_BOMB)
    (cwd / "loop.csv").symlink_to("loop.csv")
    os.mkfifo(cwd / "pipe.csv")


_BOMB = gzip.compress(gzip.compress(bytes(2**22)) * 2**6)


def of_config(random: Random, cwd: Path, _: Originals) -> list[str]:
    """A config, its document or its text changed."""
    write_inputs(cwd, random, mutate.mutated(CONFIG, random), raw_share=0.1)
    if random.random() < 0.2:
        path = cwd / "config.yaml"
        path.write_bytes(mutate.damaged(path.read_bytes(), random))
    return _on_config(random)


def of_trace(random: Random, cwd: Path, _: Originals) -> list[str]:
    """A trace of one of the formats, changed; sometimes packed, and the package damaged."""
    name = random.choice(list(TRACES))
    config = copy.deepcopy(CONFIG)
    if random.random() < 0.2:
        config["tenants"][1]["arrivals"]["format"] = random.choice(("counts", "azure", "timestamps"))
    if random.random() < 0.2:
        config["tenants"][1]["arrivals"]["unit"] = random.choice(("s", "ms", "ns"))
    write_inputs(cwd, random, config)
    raw = mutate.table(TRACES[name], random) if random.random() < 0.5 else mutate.damaged(TRACES[name].encode(), random)
    if random.random() < 0.2:
        raw = gzip.compress(raw)
        raw = mutate.damaged(raw, random) if random.random() < 0.5 else raw
    (cwd / "trace.csv").write_bytes(raw)
    return _on_config(random)


def of_profiles(random: Random, cwd: Path, _: Originals) -> list[str]:
    """A table of service profiles, changed."""
    write_inputs(cwd, random, CONFIG)
    text = profiles_text()
    raw = mutate.table(text, random) if random.random() < 0.6 else mutate.damaged(text.encode(), random)
    (cwd / "profiles.csv").write_bytes(raw)
    return _on_config(random)


def of_shares(random: Random, cwd: Path, _: Originals) -> list[str]:
    """A table of measured shares, changed."""
    write_inputs(cwd, random, {**CONFIG, "share_profiles": "shares.csv"})
    text = share_text()
    raw = mutate.table(text, random) if random.random() < 0.6 else mutate.damaged(text.encode(), random)
    (cwd / "shares.csv").write_bytes(raw)
    return _on_config(random)


def _on_config(random: Random) -> list[str]:
    commands = (
        ["run", "config.yaml", "--windows", "1", "--out", "out"],
        ["run", "config.yaml", "--windows", "1", "--policy", random.choice(("equal", "ekya", "whole", "static"))],
        ["plan", "config.yaml", "--no-floors"],
        ["plan", "config.yaml", "--json", "--no-floors", "--out", "out"],
    )
    return random.choice(commands)


def of_problem(random: Random, cwd: Path, _: Originals) -> list[str]:
    """A problem file, JSON or YAML, its document or its text changed."""
    name = random.choice(("problem.json", "problem.yaml"))
    document = mutate.mutated(random.choice((PAPER, PHYSICAL)), random)
    raw = mutate.as_json(document) if name.endswith("json") else mutate.as_yaml(document, random)
    (cwd / name).write_bytes(mutate.damaged(raw, random) if random.random() < 0.2 else raw)
    engine = random.choice(((), (), ("--engine", "greedy"), ("--engine", "static"), ("--explain", "1")))
    return ["plan", "--problem", name, *engine, *random.choice(((), ("--json",), ("--out", "out"), ("--changes",)))]


def of_plan(random: Random, cwd: Path, originals: Originals) -> list[str]:
    """A plan file, changed, for its own or the other model's problem."""
    model = random.choice(("paper", "physical"))
    plan = mutate.mutated(originals.plans[model], random)
    name = random.choice(("plan.json", "plan.json", "plan.yaml"))
    raw = mutate.as_json(plan) if name.endswith("json") else mutate.as_yaml(plan, random)
    (cwd / name).write_bytes(mutate.damaged(raw, random) if random.random() < 0.2 else raw)
    other = random.random() < 0.05
    (cwd / "problem.json").write_bytes(mutate.as_json(PAPER if (model == "paper") != other else PHYSICAL))
    if random.random() < 0.3:
        return ["plan", "--problem", "problem.json", "--warm-start", name]
    return ["verify", name, "problem.json", *random.choice(((), ("--json",)))]


def of_log(random: Random, cwd: Path, originals: Originals) -> list[str]:
    """A run's log: records changed and their checksums made anew, or bytes changed; beside a good one."""
    _write_runs(cwd, random, originals.log, originals.config)
    raw = originals.log
    for _ in range(random.choice((0, 1, 1, 2))):
        raw = _with_other_records(raw, random)
    if raw is originals.log or random.random() < 0.2:
        raw = mutate.damaged(raw, random)
    (cwd / "run" / "events.jsonl").write_bytes(raw)
    if random.random() < 0.2:
        (cwd / "problem.json").write_bytes(mutate.as_json(PAPER))
        return ["plan", "--problem", "problem.json", "--overhead-from", "run"]
    return [*random.choice(_READ_RUN), *random.choice(((), ("--json",)))]


def _write_runs(cwd: Path, random: Random, log: bytes, config: bytes) -> None:
    """The run twice, one of them to be changed."""
    write_inputs(cwd, random, CONFIG)
    for name in ("run", "good"):
        (cwd / name).mkdir()
        (cwd / name / "config.yaml").write_bytes(config)
        (cwd / name / "events.jsonl").write_bytes(log)


_READ_RUN = ["report", "run"], ["verify", "run"], ["diff", "good", "run"], ["diff", "run", "good"], ["runs", "."]


def of_signed_log(random: Random, cwd: Path, originals: Originals) -> list[str]:
    """A run's log with records changed so that nearly all of it still fits, and every checksum made anew."""
    logs = {"instances": (originals.log, originals.config), **originals.others}
    log, config = logs[random.choice(list(logs))]
    _write_runs(cwd, random, log, config)
    records = [json.loads(line) for line in log.splitlines()]
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(records)) if random.random() < 0.6 else _of_rare_kind(records, random)
        change = random.choice((mutate.slightly_changed, mutate.with_another_name))
        records[at] = change(records[at], random)
    (cwd / "run" / "events.jsonl").write_bytes(_signed(records))
    read = *_READ_RUN, ["report", "run", "--html", "out.html"]
    chosen = random.choice(read)
    return [*chosen, *random.choice(((), ("--json",)))]


def _of_rare_kind(records: list[dict[str, Any]], random: Random) -> int:
    """The place of a record whose kind was drawn first: there are many calls of the driver, and one header."""
    kind = random.choice(sorted({str(record.get("kind")) for record in records}))
    return random.choice([place for place, record in enumerate(records) if str(record.get("kind")) == kind])


def of_resumption(random: Random, cwd: Path, originals: Originals) -> list[str]:
    """A run's folder whose log was cut off, and perhaps a file in it, or one that it names, changed as well."""
    write_inputs(cwd, random, CONFIG)
    raw, config = originals.log, originals.config
    change = random.randrange(5)
    if change == 0:
        raw = _with_other_records(raw, random)
    raw = raw[: random.randrange(len(raw) // 3, len(raw))]
    if change == 1:
        raw = mutate.damaged(raw, random)
    if change == 2:
        config = mutate.damaged(config, random)
    if change == 3:
        (cwd / "trace.csv").write_text(mutate.table(TRACES["counts"], random).decode("utf-8", "replace"))
    (cwd / "out").mkdir()
    (cwd / "out" / "events.jsonl").write_bytes(raw)
    (cwd / "out" / "config.yaml").write_bytes(config)
    return ["run", "--resume", "out"]


def _with_other_records(raw: bytes, random: Random) -> bytes:
    """The log with one record changed, moved, doubled or removed, then numbered and summed as if it had been so."""
    records = [json.loads(line) for line in raw.splitlines()]
    # Every second change is to the header, of which a report shows most.
    at = 0 if random.random() < 0.5 else random.randrange(len(records))
    match random.randrange(8):
        case 0:
            records.pop(at)
        case 1:
            records.insert(random.randrange(len(records)), copy.deepcopy(records[at]))
        case 2:
            records.insert(random.randrange(len(records)), records.pop(at))
        case _:
            records[at] = mutate.mutated(records[at], random)
    return _signed(records)


def _signed(records: list[Any]) -> bytes:
    """The records as lines, numbered anew and with checksums that match, as far as they are records."""
    lines = []
    for n, record in enumerate(records):
        if isinstance(record, dict):
            record.pop("sum", None)
            wall = record.pop("wall", None)
            if isinstance(wall, dict):
                wall.pop("sum", None)
            if "n" in record:
                record["n"] = n
            try:
                lines.append(as_line(record, wall if isinstance(wall, dict) else None))
                continue
            except ValueError:  # a number that JSON does not have
                pass
        lines.append(mutate.as_json(record) + b"\n")
    return b"".join(lines)


def of_arguments(random: Random, cwd: Path, _: Originals) -> list[str]:
    """Options with values that few would give, on good files."""
    write_inputs(cwd, random, CONFIG)
    (cwd / "problem.json").write_bytes(mutate.as_json(PAPER))
    (cwd / "folder").mkdir()
    odd = str(mutate.value(random)).replace("\0", "") if random.random() < 0.7 else random.choice(_FILES)
    odd = odd.encode("utf-8", "replace").decode()
    command, options = random.choice(_COMMANDS)
    option = random.choice(options)
    if option in ("--out", "--plot"):
        odd = random.choice(_OUTPUTS)
    elif option == "--vary":  # the second one is refused, so that no processes are started
        grid = (f"load={odd}", f"{odd}=1", odd, f"slo_ms=x{odd}", f"tenants=vision+{odd}", f"window={odd},0")
        return [*command, "--vary", random.choice(grid), "--vary", "nothing=1"]
    return [*command, option, odd] if option else [*command[:-1], odd]


_FILES = ("pipe.csv", "/dev/zero", "/dev/full", "loop.csv", "folder", "nosuch", "bomb.csv.gz", "config.yaml", "x/y/z")
_OUTPUTS = ("out", "out.json", "pipe.csv", "/dev/full", "/dev/null", "folder", "x/y", "problem.json", "")
_COMMANDS: tuple[tuple[list[str], tuple[str, ...]], ...] = (
    (["run", "config.yaml"], ("", "--seed", "--policy")),
    (["run", "--windows", "1", "config.yaml"], ("", "--seed", "--policy")),
    (["plan", "--no-floors", "config.yaml"], ("", "--window", "--engine", "--solver", "--time-limit", "--explain")),
    (["plan", "--problem", "problem.json"], ("", "--engine", "--configs", "--warm-start", "--overhead-from", "--out")),
    (["verify", "problem.json", "problem.json"], ("",)),
    (["report", "run"], ("",)),
    (["run", "--resume", "run"], ("", "--policy", "--against")),
    (["gpu", "layouts", "a30-24gb"], ("", "--profiles")),
    (["whatif", "config.yaml"], ("--vary",)),
    (["whatif", "--vary", "nothing=1", "config.yaml"], ("", "--jobs", "--out", "--plot")),
    (["compare", "--policies", "nobody", "config.yaml"], ("", "--segments", "--windows", "--terms", "--out")),
)

KINDS: dict[str, Callable[[Random, Path, Originals], list[str]]] = {
    "config": of_config,
    "problem": of_problem,
    "plan": of_plan,
    "trace": of_trace,
    "profiles": of_profiles,
    "log": of_log,
    "signed log": of_signed_log,
    "arguments": of_arguments,
    "resumption": of_resumption,
    "shares": of_shares,
}
"""By name; a case's number decides its kind."""
