"""The product's behaviour, written down: this script writes the files beside it, or compares them with the code.

``python tests/golden/freeze.py`` computes everything anew, prints what differs, and exits with 1 if anything does.
``--write`` writes the files instead. Names of sections narrow both:

- ``paper``: the 24 problems of the benchmark case ``paper-2``, on ``exact``.
- ``physical``: the 24 problems of ``physical-2`` and four of ``physical-2-midway``, with a budget of work, not seconds.
- ``small``: every engine of both models on small problems, with options, starts, and windows that are planned again.
- ``windows``: ``migrator plan --json`` on windows of two configs, which have gain tables, and on problem files.
  Tenants share nothing here, nor in ``compare`` and ``logs``.
- ``quickstart``: ``migrator report --json`` of a run of the quickstart.
- ``compare``: ``migrator compare --json`` on W3 and W8, two windows, all policies, both terms; and W8's first window.
- ``help``: what ``--help`` of every verb prints; the root's own is left out.
- ``answers``: ``--json`` of ``whatif``, ``forecast eval``, and ``verify`` of the quickstart's run.
- ``logs``: what short runs write: records in order, and digests of what they say but numbers, checksums, wall clocks;
  every way to share, faulty drivers with plans made anew, and a GPU that the stand-in of NVIDIA's driver has.
- ``live``: ``migrator report --json`` of the log of a live run on a CPU, which is kept beside these files.
- ``reproduce``: rows of the short ``make reproduce``, which must also be those of ``docs/results.json``. Without
  ``--all`` it compares a sample: W3, W8 and W16 of the first table, and W8 at interference 0.25.

``speed`` is not part of them. ``freeze.py speed --against DIR --python PY`` runs the benchmarks of another checkout and
of this one in turns, and prints how their speeds compare; ``--out FILE`` keeps the table.

The script knows the product by its front doors alone, and all of its imports of the product stand in one place.
``made.json`` says which commit, libraries and processor the files are from. A plan is kept as its figures and a digest
of all of it but its seconds. Another processor may break ties otherwise: then digests and work counts differ.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

GOLDEN = Path(__file__).resolve().parent
ROOT = GOLDEN.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "planner")]

# All that this script knows of the product, its benchmarks and its tests. A module that moves is renamed here alone.
from problems import paper_problem, physical_problem, short_paper_problem  # noqa: E402

from benchmarks.paper.experiments import Experiment  # noqa: E402
from benchmarks.paper.matches import matches_of, result_of, rows_of  # noqa: E402
from benchmarks.paper.reproduce import chosen  # noqa: E402
from benchmarks.speed.problems import CASES, Task, random_problem, tasks, trace_problem  # noqa: E402
from planner.budget import Budget, EngineOptions  # noqa: E402
from planner.errors import EngineError  # noqa: E402
from planner.files.plan_file import WALL_KEYS, plan_to_json  # noqa: E402
from planner.files.problem_file import problem_to_json  # noqa: E402
from planner.plan import MigPlan  # noqa: E402
from planner.problem import Problem  # noqa: E402
from planner.replan import remaining_plan, remaining_problem  # noqa: E402
from planner.solve import engine_names, solve  # noqa: E402
from tests.migrator.conftest import SMALL, changed  # noqa: E402

COMMAND = ("-m", "migrator")
"""What the interpreter is given to start the command line."""

RESULTS = ROOT / "docs" / "results.json"

Json = dict[str, Any]

PHYSICAL_WORK = 450
"""Units of work that ``physical`` has on a benchmark problem: its starts, some prices and some of its search.

As much processor time as 300 took while a unit counted neither placing nor rounds of prices.
"""

MIDWAY_WORK = 60

SAMPLE = ("main w3", "main w8", "main w16", "interference-0.25 w8")
"""Rows of ``reproduce`` that a run without ``--all`` compares."""

MOST_SHOWN = 12
"""Differences that are printed of one entry."""


@dataclass(frozen=True)
class Ask:
    """One solve.

    Attributes:
        problem: Makes the problem, and the plan that the engine starts from.
        engine: Who solves.
        budget: What may be spent.
        options: What only some engines know.
    """

    problem: Callable[[], tuple[Problem, MigPlan | None]]
    engine: str
    budget: Budget | None = None
    options: EngineOptions | None = None

    def answer(self) -> Json:
        """The plan's figures and its digest, or the error; and the problem's digest."""
        problem, start = self.problem()
        known: Json = {"problem": digest(problem_to_json(problem))}
        try:
            plan = solve(problem, engine=self.engine, budget=self.budget, initial=start, options=self.options)
        except EngineError as error:
            return {**known, "error": str(error)}
        return {**known, **_figures(plan_to_json(plan))}


def digest(document: object) -> str:
    """The first 16 digits of the SHA-256 of the document as canonical JSON."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def _figures(plan: Json) -> Json:
    rest = {key: value for key, value in plan.items() if key not in WALL_KEYS}
    figures = ("status", "objective", "claimed_bound", "claimed_gap", "work")
    return {**{key: plan[key] for key in figures}, "plan": digest(rest)}


def paper_asks() -> dict[str, Ask]:
    """The problems of the case ``paper-2``, by label."""
    return dict(_case_asks("paper-2", "", None))


def physical_asks() -> dict[str, Ask]:
    """The problems of the case ``physical-2``, by label, and four of ``physical-2-midway``."""
    whole = _case_asks("physical-2", "", Budget(max_nodes=PHYSICAL_WORK))
    midway = _case_asks("physical-2-midway", "midway ", Budget(max_nodes=MIDWAY_WORK), 4)
    return {**dict(whole), **dict(midway)}


def _case_asks(
    name: str, prefix: str, budget: Budget | None, n_problems: int | None = None
) -> Iterator[tuple[str, Ask]]:
    case = next(one for one in CASES if one.name == name)
    for task in tasks(case, n_problems):
        yield f"{prefix}{task.label}", Ask(partial(_given, task), case.engine, budget)


def small_asks() -> dict[str, Ask]:
    """Every engine on small problems, by what is asked."""
    return {**_small_paper(), **_small_physical(), **_many_tenants(), **_refused()}


def _small_paper() -> dict[str, Ask]:
    found = {}
    for seed in range(16):
        make = partial(_alone, paper_problem, seed)
        for engine in sorted(set(engine_names("paper")) - {"paper-ilp"}):
            found[f"paper {seed} {engine}"] = Ask(make, engine)
    for seed in range(16):
        make = partial(_alone, short_paper_problem, seed)
        found[f"short {seed} paper-ilp"] = Ask(make, "paper-ilp")
        found[f"short {seed} exact, greedy start"] = Ask(partial(_started, short_paper_problem, seed), "exact")
    for seed in range(4):
        make = partial(_alone, paper_problem, seed)
        found[f"paper {seed} exact, work 1"] = Ask(make, "exact", Budget(max_nodes=1))
        found[f"paper {seed} exact, gap 0.05"] = Ask(make, "exact", Budget(rel_gap=0.05))
    for engine in ("greedy", "static"):
        found[f"random 2 × 40 {engine}"] = Ask(
            partial(_alone, partial(random_problem, n_tenants=2, n_steps=40), 0), engine
        )
    return found


def _small_physical() -> dict[str, Ask]:
    found = {}
    for seed in range(30):
        for engine in engine_names("physical"):
            found[f"physical {seed} {engine}"] = Ask(partial(_alone, physical_problem, seed), engine)
    for seed in range(12):
        make = partial(_started, physical_problem, seed)
        found[f"physical {seed} physical, greedy start"] = Ask(make, "physical")
    for seed in range(20):
        for step in (1, 3):
            found[f"physical {seed} replanned at {step}"] = Ask(partial(_replanned, seed, step), "physical")
    for n_tenants, work in ((2, 20), (2, 200), (3, 20), (3, 100)):
        problem = partial(random_problem, n_tenants=n_tenants, n_steps=40, model="physical")
        make = partial(_alone, problem, 0)
        found[f"random physical {n_tenants} × 40 work {work}"] = Ask(make, "physical", Budget(max_nodes=work))
    for engine in ("greedy", "static"):
        problem = partial(trace_problem, n_tenants=3, model="physical")
        found[f"trace physical 3 × 200 {engine}"] = Ask(partial(_alone, problem, 1), engine)
    return found


def _many_tenants() -> dict[str, Ask]:
    """Three and four tenants on ``exact``."""
    found = {}
    for n_tenants in (3, 4):
        for seed in (0, 1):
            make = partial(_alone, partial(random_problem, n_tenants=n_tenants, n_steps=40), seed)
            found[f"random {seed} {n_tenants} × 40 exact"] = Ask(make, "exact", Budget(max_nodes=200))
        make = partial(_alone, partial(trace_problem, n_tenants=n_tenants), 0)
        found[f"trace 0 {n_tenants} × 200 exact"] = Ask(make, "exact", Budget(max_nodes=200))
    return found


def _refused() -> dict[str, Ask]:
    """What engines refuse, so that their messages stay."""
    paper, physical = partial(_alone, paper_problem, 0), partial(_alone, physical_problem, 0)
    return {
        "refused: unknown engine": Ask(paper, "best"),
        "refused: physical on paper": Ask(paper, "physical"),
        "refused: exact on physical": Ask(physical, "exact"),
        "refused: option": Ask(paper, "greedy", options=EngineOptions(solver="highs")),
        "refused: solver": Ask(paper, "paper-ilp", options=EngineOptions(solver="best")),
        "refused: configs": Ask(paper, "paper-ilp", options=EngineOptions(configs="paper12")),
    }


def _given(task: Task) -> tuple[Problem, MigPlan | None]:
    return task.problem, task.initial


def _alone(make: Callable[[int], Problem], seed: int) -> tuple[Problem, MigPlan | None]:
    return make(seed), None


def _started(make: Callable[[int], Problem], seed: int) -> tuple[Problem, MigPlan | None]:
    """The problem, and the plan of ``greedy`` to start from."""
    problem = make(seed)
    return problem, solve(problem, engine="greedy")


def _replanned(seed: int, step: int) -> tuple[Problem, MigPlan | None]:
    """The rest of a physical window from ``step`` on, and the rest of its plan; all of it where it has no plan."""
    problem = physical_problem(seed, 6)
    plan = solve(problem)
    if not plan.status.has_plan:
        return problem, None
    return remaining_problem(problem, plan, step), remaining_plan(plan, step)


def _at_once(config: str, folder: str, replan: str = "replan_every_s: never") -> Path:
    """The shipped config as a file in ``folder``, with plans that are there as their windows begin.

    They are followed to the windows' ends, unless ``replan`` says otherwise.
    """
    path = Path(folder) / f"{config}.yaml"
    text = (ROOT / "configs" / path.name).read_text("utf-8")
    path.write_text(f"{text}\nplanner: {{ planning_s: 0, {replan} }}\n", "utf-8")
    return path


ADDED = ("assumed", "plan_from_step", "planning_s", "setup", "surprises")
"""What reports and plans came to say after they were written down here; other tests hold it."""


def _as_written_down(document: Any) -> Any:
    """The document without what was :data:`ADDED`, wherever it stands."""
    if isinstance(document, dict):
        return {key: _as_written_down(value) for key, value in document.items() if key not in ADDED}
    return [_as_written_down(item) for item in document] if isinstance(document, list) else document


def call(
    *arguments: object, command: tuple[str, ...] = COMMAND, environment: Mapping[str, str] = MappingProxyType({})
) -> str:
    """What the command line, or another program, prints."""
    whole = [sys.executable, *command, *map(str, arguments)]
    around = {**os.environ, **environment}
    ran = subprocess.run(whole, check=False, capture_output=True, text=True, cwd=ROOT, env=around)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(whole[1:])} failed with exit code {ran.returncode}: {ran.stderr}")
    return ran.stdout


def _window(config: str, window: int, engine: str) -> Json:
    """The plan of a window of a config; such windows are physical."""
    options = ("--window", window, "--engine", engine, "--no-floors", "--json", *APART)
    with tempfile.TemporaryDirectory() as folder:
        return _figures(_as_written_down(json.loads(call("plan", _at_once(config, folder), *options))))


def _from_file(engine: str, model: str) -> Json:
    """The plan of a problem file."""
    document = problem_to_json(random_problem(3, n_tenants=2, n_steps=20, model=model))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.json"
        path.write_text(json.dumps(document), "utf-8")
        plan = json.loads(call("plan", "--problem", path, "--engine", engine, "--no-floors", "--json"))
    return {"problem": digest(document), **_figures(_as_written_down(plan))}


def quickstart() -> Json:
    """The report of a run of the quickstart; it has no facts of the machine."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        call("run", _at_once("quickstart", folder, "replan_every_s: 10"), "--out", out)
        report: Json = _as_written_down(json.loads(call("report", out, "--json")))
    report["replans"].pop("solve_s")  # a time of the machine
    return report


def _compared(config: str, terms: str, windows: int) -> Json:
    options = ("--windows", windows, "--terms", terms, "--jobs", 1, "--json", *APART)
    with tempfile.TemporaryDirectory() as folder:
        found: Json = _as_written_down(json.loads(call("compare", _at_once(config, folder), *options)))
    return found


APART = ("--set", "sharing.pools=off")
"""Gives each tenant instances of its own."""

VERBS = (
    *("init", "run", "report", "runs", "top", "metrics", "diff", "plan", "whatif", "compare", "verify", "profile"),
    *("fidelity", "docs", "doctor", "serve", "reload", "rollback"),
    *("forecast", "forecast eval", "forecast fit", "forecast show", "gpu", "gpu models", "gpu layouts", "gpu describe"),
    *("gpu list", "gpu diff", "gpu apply", "gpu clear", "gpu restore", "gpu watch", "gpu assert", "gpu export"),
    *("cluster", "cluster plan", "cluster verify", "cluster run", "cluster compare"),
)


def _help(verb: str) -> list[str]:
    return call(*verb.split(), "--help", environment={"COLUMNS": "100", "TERM": "dumb"}).splitlines()


def _whatif() -> Json:
    with tempfile.TemporaryDirectory() as folder:
        config = _at_once("quickstart", folder)
        asked = ("--vary", "load=0.5,0.9", "--vary", "step_s=2,4", "--jobs", 1)
        return _without_times(json.loads(call("whatif", config, *asked, "--json")))


def _evaluated() -> Json:
    asked = ("--method", "ewma", "--method", "seasonal-naive", "--seconds", "0:1500")
    return _without_times(json.loads(call("forecast", "eval", "azure-conv", *asked, "--json")))


def _verified() -> Json:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        call("run", _at_once("quickstart", folder, "replan_every_s: 10"), "--windows", 2, "--out", out)
        return _without_times(json.loads(call("verify", out, "--json")))


TIMES = ("solve_s", "load_s", "took_s", "wall", "run", "forecast_s", "fit_s")
"""Keys of answers that tell a time of the machine, or a temporary folder."""


def _without_times(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _without_times(value) for key, value in document.items() if key not in TIMES}
    return [_without_times(item) for item in document] if isinstance(document, list) else document


def _faults(seed: int) -> Json:
    """A driver that refuses much, an instance of others' that comes and goes, and one that stays."""
    came_s, place = 40 + 7 * seed % 60, ("1g.10gb@6", "1g.10gb@0", "2g.20gb@4", "3g.40gb@4")[seed % 4]
    others = [{"placement": place, "from_s": came_s, "to_s": came_s + 45}]
    if seed % 3 == 0:
        others.append({"placement": "1g.10gb@3", "from_s": 70})
    driver = {"error_share": 0.4, "in_use_share": 0.3, "half_share": 0.3}
    return {"driver": driver, "others": others, "start_jitter": 0.3, "service_jitter": 0.2}


def _faulty(seed: int) -> Json:
    pace = (10, 5, "never")[seed % 3]
    return {
        "simulation": _faults(seed),
        "tenants.0.arrivals": {"trace": "azure-code", "offset_s": 300 * (1 + seed % 8), "scale": {"factor": 60.0}},
        "tenants.1.arrivals.scale.factor": 12.0,
        "estimates": {"time_bias": -0.3, "time_sigma": 0.5, "accuracy_sigma": 0.1},
        "planner": {"max_schedules": 8, "planning_s": 1 + seed % 3, "replan_every_s": pace},
        "windows": 3,
    }


LOGGED: Mapping[str, tuple[Json, tuple[object, ...]]] = {
    "quickstart": ({}, ("--windows", 2)),
    "time-sharing": ({"windows": 2}, ("--policy", "time-sharing")),
    "ekya": ({"windows": 2}, ("--policy", "ekya")),
    "whole": ({"windows": 2}, ("--policy", "whole")),
    "paris": ({"windows": 2}, ("--policy", "paris")),
    "reactive": ({"windows": 2}, ("--policy", "reactive")),
    **{f"faulty {seed}": (_faulty(seed), ("--seed", seed)) for seed in range(16)},
}
"""Runs whose logs are written down: changes of the tests' small config (none: the quickstart), and further options.

All are without pools.
"""


def _logged(changes: Json, options: tuple[object, ...]) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        if changes:
            config.write_text(yaml.safe_dump(changed(SMALL, changes)), "utf-8")
        else:
            config = _at_once("quickstart", folder, "replan_every_s: 10")
        out = Path(folder) / "run"
        call("run", config, *APART, *options, "--out", out)
        return _said(out)


ON_STAND_IN = """
import sys
from pathlib import Path
from tests.crash.kinds import driven
(kind,) = driven(Path(sys.argv[1]))
kind.begin(Path(sys.argv[1]))
"""


def _on_stand_in() -> Json:
    with tempfile.TemporaryDirectory() as folder:
        call(folder, command=("-c", ON_STAND_IN))
        return _said(Path(folder) / "run")


def _said(run: Path) -> Json:
    """What a run's log says, and the report of it."""
    records = [_plain(json.loads(line)) for line in (run / "events.jsonl").read_text("utf-8").splitlines()]
    kinds = [record["kind"] for record in records]
    report = _without_times(json.loads(call("report", run, "--json")))
    return {
        "kinds": dict(sorted(Counter(kinds).items())),
        "order": digest([(record["kind"], record["at_s"]) for record in records]),
        "records": {kind: digest([one for one in records if one["kind"] == kind]) for kind in sorted(set(kinds))},
        "goodput_pct": report["total"]["goodput_pct"],
        "report": digest(report),
    }


ENVELOPE = ("n", "sum", "wall", "schema", "gpu_uuid")


def _plain(value: Any) -> Any:
    """A record without what stands around it, and its numbers as floats: 5 and 5.0 say the same."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in ENVELOPE}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _live() -> Json:
    found: Json = json.loads(call("report", GOLDEN / "live", "--json"))
    return found


def _rows(experiment: Experiment, workload: str) -> list[list[Any]]:
    """The rows of one workload of an experiment, simulated anew; nothing that was kept is read."""
    matches = matches_of(replace(experiment, workloads=(workload,)))
    rows: list[list[Any]] = json.loads(json.dumps(rows_of([result_of(match) for match in matches])))
    return rows


@cache
def published() -> dict[str, list[list[Any]]]:
    """The short experiments' rows in ``docs/results.json``, by experiment and workload."""
    document = json.loads(RESULTS.read_text("utf-8"))
    rows = {one["name"]: one["rows"] for one in document["experiments"]}
    return {
        f"{one.name} {workload}": [row for row in rows[one.name] if row[1] == workload]
        for one in _short_experiments()
        for workload in one.workloads
    }


def _short_experiments() -> list[Experiment]:
    """What a run that is not full draws, of what was drawn so far."""
    drawn = {one["name"] for one in json.loads(RESULTS.read_text("utf-8"))["experiments"]}
    return [one for one in chosen(is_full=False, traces=None) if one.name in drawn]


Entries = Mapping[str, Callable[[], object]]


@cache
def entries(section: str) -> Entries:
    """What computes each entry of the section, by its key."""
    return _SECTIONS[section]()


def _of_asks(asks: Callable[[], dict[str, Ask]]) -> Entries:
    return {key: ask.answer for key, ask in asks().items()}


def _window_entries() -> Entries:
    windows = {
        f"{config} window {window} {engine}": partial(_window, config, window, engine)
        for config in ("w3", "w8")
        for window in (0, 1)
        for engine in engine_names("physical")
    }
    asked = (("exact", "paper"), ("greedy", "paper"), ("physical", "physical"))
    return {**windows, **{f"file {model} {engine}": partial(_from_file, engine, model) for engine, model in asked}}


def _compare_entries() -> Entries:
    asked = [(config, terms, 2) for config in ("w3", "w8") for terms in ("policy-only", "as-published")]
    asked.append(("w8", "policy-only", 1))
    return {" ".join(map(str, one)): partial(_compared, *one) for one in asked}


def _log_entries() -> Entries:
    found: dict[str, Callable[[], object]] = {key: partial(_logged, *asked) for key, asked in LOGGED.items()}
    return {**found, "stand-in": _on_stand_in}


def _answer_entries() -> Entries:
    return {"whatif": _whatif, "forecast eval": _evaluated, "verify": _verified}


def _reproduce_entries() -> Entries:
    return {
        f"{one.name} {workload}": partial(_rows, one, workload)
        for one in _short_experiments()
        for workload in one.workloads
    }


_SECTIONS: Mapping[str, Callable[[], Entries]] = {
    "paper": partial(_of_asks, paper_asks),
    "physical": partial(_of_asks, physical_asks),
    "small": partial(_of_asks, small_asks),
    "windows": _window_entries,
    "quickstart": lambda: {"report": quickstart},
    "compare": _compare_entries,
    "help": lambda: {verb: partial(_help, verb) for verb in VERBS},
    "answers": _answer_entries,
    "logs": _log_entries,
    "live": lambda: {"report": _live},
    "reproduce": _reproduce_entries,
}

SECTIONS = tuple(_SECTIONS)


@cache
def golden(section: str) -> Json:
    """What is written down of the section, by key."""
    found: Json = json.loads((GOLDEN / f"{section}.json").read_text("utf-8"))
    return found


def differences(known: object, found: object, tolerance: float = 0.0, place: str = "") -> list[str]:
    """Where two JSON values differ.

    Args:
        known: What is written down.
        found: What the code gives.
        tolerance: By how much floats may differ, relative where they are above 1 and absolute below.
        place: Where the values stand, for the message.
    """
    if isinstance(known, dict) and isinstance(found, dict):
        lines = [f"{place}.{key}: only written down" for key in known if key not in found]
        lines += [f"{place}.{key}: only found" for key in found if key not in known]
        shared = [key for key in known if key in found]
        return lines + [
            line for key in shared for line in differences(known[key], found[key], tolerance, f"{place}.{key}")
        ]
    if isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        pairs = enumerate(zip(known, found, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, tolerance, f"{place}[{index}]")]
    if isinstance(known, float) and isinstance(found, float) and tolerance:
        is_same = math.isclose(known, found, rel_tol=tolerance, abs_tol=tolerance)
    else:
        is_same = type(known) is type(found) and known == found
    return [] if is_same else [f"{place}: {known!r} is written down, {found!r} is found"]


def write(section: str) -> None:
    """Compute the section and write it, a line an entry."""
    lines = [f"{json.dumps(key)}: {json.dumps(compute())}" for key, compute in entries(section).items()]
    path = GOLDEN / f"{section}.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    golden.cache_clear()
    print(f"wrote {path.relative_to(ROOT)}: {len(lines)} entries")


def compare(section: str, *, is_all: bool) -> int:
    """Compute the section, print what differs, and return how many entries do."""
    known, computed = golden(section), entries(section)
    wrong = [f"{key}: only written down" for key in known if key not in computed]
    wrong += [f"{key}: only found" for key in computed if key not in known]
    chosen = [key for key in computed if key in known and (is_all or section != "reproduce" or key in SAMPLE)]
    for key in chosen:
        found = differences(known[key], computed[key]())
        wrong += [f"{key}{line}" for line in found[:MOST_SHOWN]]
        wrong += [f"{key}: and {len(found) - MOST_SHOWN} more"] if len(found) > MOST_SHOWN else []
    print(f"{section}: {len(chosen)} entries compared, {len(wrong)} differences", flush=True)
    for line in wrong:
        print(f"  {line}")
    return len(wrong)


def compare_published() -> int:
    """Print where the rows that are written down differ from ``docs/results.json``, and return how many do."""
    found = differences(golden("reproduce"), published())
    print(f"docs/results.json: {len(found)} differences")
    for line in found[:MOST_SHOWN]:
        print(f"  {line}")
    return len(found)


def write_made() -> None:
    """Write down what the files are from."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    libraries = {name: version(name) for name in ("numpy", "numba", "highspy", "PuLP")}
    made = {"commit": commit, "python": platform.python_version(), **libraries, "machine": machine()}
    (GOLDEN / "made.json").write_text(json.dumps(made, indent=2) + "\n", "utf-8")


def machine() -> str:
    """The processor and its cores."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text("utf-8").splitlines() if known.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{os.cpu_count()} cores of {next(models, '') or platform.machine()}, {platform.system()}"


@dataclass(frozen=True)
class Checkout:
    """A checkout, and the interpreter that has its libraries."""

    folder: Path
    python: str

    def run(self, *command: str) -> str:
        """What one of its scripts prints."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        whole = [self.python, *command]
        ran = subprocess.run(whole, check=True, stdout=subprocess.PIPE, text=True, cwd=self.folder, env=environment)
        return ran.stdout

    def speeds(self, n_problems: int) -> dict[str, float]:
        """What the benchmarks came to, by row; more is better."""
        solved = json.loads(self.run("-c", SOLVES, str(n_problems), str(PHYSICAL_WORK)))
        found = {f"{name}: solves a second": len(seconds) / sum(seconds) for name, seconds in solved.items()}
        is_old = (self.folder / "benchmarks" / "bench_serving.py").is_file()
        command = ("benchmarks/bench_serving.py",) if is_old else ("-m", "benchmarks.speed.serving")
        return {**found, **_serving_speeds(self.run(*command))}


SOLVES = """
import json, sys, time
sys.path[:0] = ["", "benchmarks"]
try:
    from benchmarks.speed.problems import random_problem
except ImportError:
    from planner_problems import random_problem
from planner.budget import Budget
from planner.solve import solve
found = {}
for name, budget in (("paper", None), ("physical", Budget(max_nodes=int(sys.argv[2])))):
    problems = [random_problem(n, n_tenants=2, model=name) for n in range(int(sys.argv[1]))]
    solve(problems[0], budget=budget)  # a first solve may have kernels to compile
    found[f"{name}-2"] = []
    for problem in problems:
        start_s = time.perf_counter()
        solve(problem, budget=budget)
        found[f"{name}-2"].append(time.perf_counter() - start_s)
print(json.dumps(found))
"""
"""Seconds of solves with a budget of work, so that both checkouts do the same; run by either of them."""


def _serving_speeds(printed: str) -> dict[str, float]:
    """Thousands of requests a second, compiled: the geometric mean over the cases of each table that was printed."""
    columns: dict[str, list[float]] = {}
    dispatch, place = "", 0
    for row in csv.reader(printed.splitlines(), delimiter=" ", skipinitialspace=True):
        if "first" in row[1:2]:
            dispatch = row[0].rstrip(":")
        elif "compiled" in row:
            place = row.index("compiled") - 2  # "in time %" is one column
        elif row and row[0].isdecimal():
            columns.setdefault(f"serving, {dispatch}: thousands of requests a second", []).append(_number(row[place]))
    return {name: statistics.geometric_mean(values) for name, values in columns.items()}


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def speed(old: Checkout, new: Checkout, n_rounds: int, n_problems: int) -> str:
    """Both checkouts' benchmarks in turns, as a Markdown table: medians over the rounds, and their ratio."""
    rounds = []
    for number in range(n_rounds):
        rounds.append((old.speeds(n_problems), new.speeds(n_problems)))
        print(f"  round {number + 1} of {n_rounds} done", file=sys.stderr, flush=True)
    lines = ["| more is better | old | new | new / old | ratios of the rounds |", "|---|---:|---:|---:|---|"]
    for name in rounds[0][0]:
        before = statistics.median(one[name] for one, _ in rounds)
        after = statistics.median(one[name] for _, one in rounds)
        ratios = ", ".join(f"{two[name] / one[name]:.3f}" for one, two in rounds)
        lines.append(f"| {name} | {before:,.4g} | {after:,.4g} | {after / before:.3f} | {ratios} |")
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join((*SECTIONS, "speed")))
    parser.add_argument("--write", action="store_true", help="write the files anew")
    parser.add_argument("--all", action="store_true", help="compare all rows of reproduce, not a sample")
    parser.add_argument("--against", type=Path, metavar="DIR", help="speed: the other checkout")
    parser.add_argument("--python", default=sys.executable, metavar="PY", help="speed: its interpreter")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="speed: how often each is run")
    parser.add_argument("--problems", type=int, default=12, metavar="N", help="speed: the first N problems of a case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="speed: also write the table to this Markdown file")
    options = parser.parse_args()
    unknown = set(options.sections) - {*SECTIONS, "speed"}
    if unknown:
        parser.error(f"unknown sections {', '.join(sorted(unknown))}; known: {', '.join((*SECTIONS, 'speed'))}")
    if "speed" in options.sections and (options.against is None or options.sections != ["speed"]):
        parser.error("speed needs --against, and stands alone")
    return options


def main() -> int:
    """Do what the command line asks for; 1 if anything differs."""
    options = _options()
    if options.sections == ["speed"]:
        old, new = Checkout(options.against.resolve(), options.python), Checkout(ROOT, sys.executable)
        table = speed(old, new, options.rounds, options.problems)
        print(table, end="")
        if options.out is not None:
            title = f"Speed of this code against the code before it, {options.rounds} rounds in turns; {machine()}."
            options.out.write_text(f"{title}\n\n{table}", "utf-8")
        return 0
    sections = options.sections or SECTIONS
    if options.write:
        for section in sections:
            write(section)
        write_made()
    n_wrong = 0 if options.write else sum(compare(section, is_all=options.all) for section in sections)
    if "reproduce" in sections:
        n_wrong += compare_published()
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
