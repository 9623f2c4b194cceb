"""How long planning takes, and how good the plans are: engine × model × tenants × steps, as a Markdown table.

``python -m benchmarks.speed.planner`` runs the cases of ``problems.py``, each in a process of its own,
one after the other. Times are seconds from Problem to Plan with the kernels loaded; values and bounds are
shares of the best known value (``best_known.json``). Every plan is checked by ``planner.verify``.

``--only CASE`` (repeatable), ``--problems N`` and ``--time-limit S`` narrow it; ``--slow`` adds HiGHS on ``paper-ilp``;
``--store`` puts better values and bounds into ``best_known.json`` (with a long ``--time-limit``);
``--run`` instead measures what a run with the default budget asks, in processor seconds: what one core takes, whatever
else the machine does. The default of ``planner.planning_s`` is from it;
``--keep-plans`` solves the whole windows that are re-planned midway, and keeps their plans.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from benchmarks.speed.problems import (
    CASES,
    RUN_CASES,
    SLOW_CASES,
    WINDOW_PLANS,
    Case,
    Task,
    labels,
    tasks,
    whole_window,
)
from planner.budget import Budget
from planner.files.plan_file import plan_of, plan_to_json
from planner.files.problem_file import problem_to_json
from planner.plan import Status
from planner.solve import engine_names, solve
from planner.verify import verify

BEST_KNOWN = Path(__file__).with_name("best_known.json")
"""The best values and bounds that were ever found for the benchmark problems, and how."""

COLUMNS = (
    *("case", "engine", "tenants × steps", "problems", "time s, median / worst", "value %, median / worst"),
    *("claimed bound %, median", "claimed gap %, median / worst", "gap %, median / worst", "optimal", "MiB", "asked"),
)

Values = dict[str, dict[str, "BestKnown"]]
"""By problem set, then by label."""


@dataclass(frozen=True, slots=True)
class BestKnown:
    """What is known of one problem.

    Attributes:
        value: The best plan's goodput in requests.
        bound: The least bound on every plan.
        engine: Who found the value.
        seconds: In how much time.
        problem: The problem's fingerprint.
    """

    value: float
    bound: float
    engine: str
    seconds: float
    problem: str

    def with_found(self, found: BestKnown) -> BestKnown:
        """The better of both values, with the lower bound; the other's alone if the problem has changed."""
        if self.problem != found.problem:
            return found
        better = found if found.value > self.value else self
        return replace(better, bound=max(better.value, min(self.bound, found.bound)))


def read_best_known() -> Values:
    """What the file holds; nothing if there is none."""
    if not BEST_KNOWN.exists():
        return {}
    document = json.loads(BEST_KNOWN.read_text("utf-8"))
    return {name: {label: BestKnown(**entry) for label, entry in known.items()} for name, known in document.items()}


def store(problem_set: str, label: str, found: BestKnown) -> None:
    """Put ``found`` into the file, if it is better than what is there; a line a problem."""
    values = read_best_known()
    known = values.setdefault(problem_set, {})
    known[label] = known[label].with_found(found) if label in known else found
    sets = []
    for name, own in sorted(values.items()):
        lines = [f"    {json.dumps(label)}: {json.dumps(asdict(own[label]))}" for label in sorted(own, key=_order)]
        sets.append(f"  {json.dumps(name, ensure_ascii=False)}: {{\n" + ",\n".join(lines) + "\n  }")
    BEST_KNOWN.write_text("{\n" + ",\n".join(sets) + "\n}\n", "utf-8")


def _order(label: str) -> tuple[str, list[int]]:
    kind, *numbers = label.split("-")
    return kind, [*map(int, numbers)]


@dataclass(frozen=True, slots=True)
class Result:
    """One solve.

    Attributes:
        label: The problem's.
        fingerprint: The problem's.
        seconds: Wall seconds without loading; of whole commands, with it; processor seconds where work is limited.
        status: The plan's.
        objective: Goodput in requests; ``None`` without a plan.
        claimed_bound: The plan's.
        claimed_gap: The plan's.
        gap: What its certificate proves; ``None`` where that is nothing.
        violations: What the checker found.
        peak_mib: The process's peak memory up to then.
    """

    label: str
    fingerprint: str
    seconds: float
    status: str
    objective: float | None
    claimed_bound: float | None
    claimed_gap: float | None
    gap: float | None
    violations: tuple[str, ...]
    peak_mib: float


def row(
    case: Case,
    results: Sequence[Result],
    known: Mapping[str, BestKnown],
    reference: tuple[str, Sequence[Result]] | None = None,
) -> str:
    """The table's row for a case: what was measured, and which targets are missed.

    A case of which nothing is asked has its time as a multiple of that of the ``reference`` instead, another case's
    name and results on the same problems.
    """
    figures = ("objective", "claimed_bound", "claimed_gap", "gap")
    found = pd.DataFrame(map(asdict, results)).astype(dict.fromkeys(figures, float))
    entries = [(known.get(one.label), one.fingerprint) for one in results]
    best = pd.Series([entry.value if entry and entry.problem == problem else math.nan for entry, problem in entries])
    if reference is not None:
        # Without a best known value, the first case on the same problems in this run is the measure.
        best = best.fillna(found["label"].map({one.label: one.objective for one in reference[1]}))
    values = found["objective"] / best
    n, n_planned = len(found), found["objective"].notna().sum()
    cells = [
        case.name,
        case.engine,
        f"{case.n_tenants} × {case.n_steps}",
        f"{n_planned}/{n}" if n_planned < n else str(n),
        _pair(found["seconds"].median(), found["seconds"].max(), 2),
        _pair(100 * values.median(), 100 * values.min(), 2),
        _shown(100 * (found["claimed_bound"] / best).median(), 2),
        *(_pair(100 * found[gap].median(), 100 * found[gap].max(), 3) for gap in ("claimed_gap", "gap")),
        f"{(found['status'] == Status.OPTIMAL).sum()}/{n}",
        f"{found['peak_mib'].max():.0f}",
        _verdict(case, found, values) or _multiple(found, reference),
    ]
    return "| " + " | ".join(cells) + " |"


def _shown(figure: float, digits: int) -> str:
    return "–" if math.isnan(figure) else f"{figure:.{digits}f}"


def _pair(median: float, worst: float, digits: int) -> str:
    return "–" if math.isnan(median) else f"{_shown(median, digits)} / {_shown(worst, digits)}"


def _multiple(found: pd.DataFrame, reference: tuple[str, Sequence[Result]] | None) -> str:
    """The time of the results as a multiple of the reference's on the same problems."""
    if reference is None:
        return "–"
    name, results = reference
    ratio = (found["seconds"] / found["label"].map({one.label: one.seconds for one in results})).median()
    return "–" if math.isnan(ratio) else f"{ratio:.0f} × the time of {name}"


def _verdict(case: Case, found: pd.DataFrame, values: pd.Series[float]) -> str:
    target, missed = case.target, [*_missed(case, found, values)]
    n_broken = found["violations"].astype(bool).sum()
    if n_broken:
        missed.append(f"{n_broken} plans break rules")
    if missed:
        return f"{target}; missed: {', '.join(missed)}".removeprefix("; ")
    return f"{target}; met" if str(target) else ""


def _missed(case: Case, found: pd.DataFrame, values: pd.Series[float]) -> Iterator[str]:
    """What is asked and not kept; a problem without a plan has the claimed gap 1 and the value 0."""
    target, gaps = case.target, found["claimed_gap"].fillna(1.0)
    of_limit = found["seconds"].max() / (case.time_limit_s or math.inf)
    limits = (
        ("median s", target.median_s, found["seconds"].median()),
        ("worst s", target.worst_s, found["seconds"].max()),
        ("median claimed gap", target.median_gap, gaps.median()),
        ("worst claimed gap", target.worst_gap, gaps.max()),
        (f"{of_limit:.2f} × the limit", target.worst_of_limit, of_limit),
        ("MiB", target.most_mib, found["peak_mib"].max()),
    )
    yield from (name for name, limit, figure in limits if limit is not None and figure > limit)
    is_planned = found["objective"].notna().all()
    if target.least_value is not None and not (is_planned and values.fillna(1.0).min() >= target.least_value):
        yield "value"
    if target.is_optimal and not (found["status"] == Status.OPTIMAL).all():
        yield "claimed optimal"


def main() -> int:
    """Runs what the command line asks for; returns 1 if a case failed."""
    options = _options()
    cases = _chosen(options)
    if options.time_limit is not None:
        cases = [replace(case, time_limit_s=options.time_limit, max_schedules=None) for case in cases]
    if options.keep_plans:
        _keep_plans(next(case for case in CASES if case.is_replan), options.time_limit)
        return 0
    if options.child:
        _measure(cases[0], options.problems)
        return 0
    return _print_table(cases, options)


def _chosen(options: argparse.Namespace) -> list[Case]:
    if options.only:
        return [case for case in (*CASES, *SLOW_CASES, *RUN_CASES) if case.name in options.only]
    return [*(RUN_CASES if options.run else CASES), *(SLOW_CASES if options.slow else ())]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in (*CASES, *SLOW_CASES, *RUN_CASES)]
    parser.add_argument("--only", action="append", choices=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--problems", type=int, metavar="N", help="the first N problems of each case")
    parser.add_argument(
        "--time-limit", type=float, metavar="S", help="seconds for a solve, instead of the case's limits"
    )
    parser.add_argument("--slow", action="store_true", help="also the cases that take minutes a problem")
    parser.add_argument("--run", action="store_true", help="instead, what a run asks, with its default budget")
    parser.add_argument("--store", action="store_true", help="keep what is better than best_known.json")
    parser.add_argument("--keep-plans", action="store_true", help="make window_plans.json anew")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.problems is not None and options.problems < 1:
        parser.error(f"--problems is {options.problems}; at least 1 is needed")
    return options


def _print_table(cases: Sequence[Case], options: argparse.Namespace) -> int:
    references: dict[str, tuple[str, list[Result]]] = {}
    exit_code = 0
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS))
    for case in cases:
        if case.engine not in engine_names(case.model):
            print(f"| {case.name} | {case.engine} | not there |")
            continue
        try:
            found = list(_results(case, options))
        except subprocess.CalledProcessError as error:
            exit_code = 1
            print(f"| {case.name} | {case.engine} | failed with exit code {error.returncode} |")
            continue
        known = read_best_known().get(case.problem_set, {})
        print(row(case, found, known, references.get(case.problem_set)), flush=True)
        references.setdefault(case.problem_set, (case.name, found))
    return exit_code


def _results(case: Case, options: argparse.Namespace) -> Iterator[Result]:
    for result in _child_results(case, options):
        _tell(case, result)
        if options.store and result.objective is not None and result.claimed_bound is not None:
            seconds = round(result.seconds, 1)
            found = BestKnown(result.objective, result.claimed_bound, case.engine, seconds, result.fingerprint)
            store(case.problem_set, result.label, found)
        yield result


def _tell(case: Case, result: Result) -> None:
    """A line on standard error for each problem, and for all that is wrong with its plan."""
    gap = "no plan" if result.claimed_gap is None else f"claimed gap {100 * result.claimed_gap:.3f} %"
    print(f"  {case.name} {result.label}: {result.seconds:.2f} s, {result.status}, {gap}", file=sys.stderr)
    for violation in result.violations:
        print(f"    VIOLATION {violation}", file=sys.stderr)


def _child_results(case: Case, options: argparse.Namespace) -> Iterator[Result]:
    """The case's results, solved in another process and checked in this one."""
    command = [sys.executable, "-m", "benchmarks.speed.planner", "--child", "--only", case.name]
    command += [] if options.problems is None else ["--problems", str(options.problems)]
    command += [] if options.time_limit is None else ["--time-limit", str(options.time_limit)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603 - our own command
        assert child.stdout is not None
        for task, line in zip(tasks(case, options.problems), child.stdout, strict=False):
            measured = json.loads(line)
            yield _checked(task, **measured)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


def _checked(task: Task, plan: dict[str, object], seconds: float, peak_mib: float) -> Result:
    found = plan_of(plan, task.problem, task.label)
    checked = verify(task.problem, found) if found.status.has_plan else None
    return Result(
        label=task.label,
        fingerprint=task.fingerprint,
        seconds=seconds,
        status=found.status.value,
        objective=found.objective,
        claimed_bound=found.claimed_bound,
        claimed_gap=found.claimed_gap,
        gap=None if checked is None else checked.gap,
        violations=() if checked is None else tuple(map(str, checked.violations)),
        peak_mib=peak_mib,
    )


def _measure(case: Case, n_problems: int | None) -> None:
    """Solve the case's problems and print a line of JSON for each: the plan, its seconds, the peak memory."""
    measure = _commanded if case.is_command else _solved
    whose_memory = resource.RUSAGE_CHILDREN if case.is_command else resource.RUSAGE_SELF
    measure(replace(case, time_limit_s=1.0), _warm_up(case))
    for task in tasks(case, n_problems):
        plan, seconds = measure(case, task)
        peak_mib = resource.getrusage(whose_memory).ru_maxrss / 1024
        print(json.dumps({"plan": plan, "seconds": seconds, "peak_mib": peak_mib}), flush=True)


def _warm_up(case: Case) -> Task:
    """A small problem of the same kind; solving it loads libraries and most kernels."""
    return Task("small", whole_window(replace(case, n_steps=40, step_s=1.0, training=1.0), "random-0"))


def _solved(case: Case, task: Task) -> tuple[dict[str, object], float]:
    proves = not case.is_replan or case.max_schedules is None
    budget = Budget(time_limit_s=case.time_limit_s, max_nodes=case.max_schedules, proves=proves)
    # What a run charges for planning has to hold on one core, too, and beside other work.
    clock = time.perf_counter if case.max_schedules is None else time.process_time
    begin_s = clock()
    plan = solve(task.problem, engine=case.engine, budget=budget, initial=task.initial)
    # A limit of seconds is one of work: what small problems do not need is loaded by the first large one.
    loading_s = plan.load_s if clock is time.perf_counter else 0.0
    return plan_to_json(plan), clock() - begin_s - loading_s


def _commanded(case: Case, task: Task) -> tuple[dict[str, object], float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.json"
        path.write_text(json.dumps(problem_to_json(task.problem)), "utf-8")
        command = [sys.executable, "-m", "migrator", "plan", "--problem", str(path), "--engine", case.engine, "--json"]
        command += [] if case.time_limit_s is None else ["--time-limit", str(case.time_limit_s)]
        begin_s = time.perf_counter()
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own command
        seconds = time.perf_counter() - begin_s
    return json.loads(ran.stdout), seconds


def _keep_plans(case: Case, time_limit_s: float | None) -> None:
    """Solve the whole windows of ``case`` and keep their plans, one a line."""
    lines = []
    for label in labels(case.n_most):
        problem = whole_window(case, label)
        plan = solve(problem, engine=case.engine, budget=Budget(time_limit_s=time_limit_s))
        bare = replace(plan, certificate=None, solve_s=0.0, work=())
        lines.append(f"  {json.dumps(label)}: {json.dumps(plan_to_json(bare))}")
        print(f"  {label}: claimed gap {plan.claimed_gap}", file=sys.stderr)
    WINDOW_PLANS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
