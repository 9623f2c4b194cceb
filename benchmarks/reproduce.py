"""The paper's evaluation: simulate it and write ``docs/results.json`` and, from that alone, ``docs/results.md``.

``make reproduce`` runs what takes minutes, ``make reproduce FULL=1`` everything. Each match of a policy on a workload
is kept under ``runs/reproduce``, by the content of its config and of the product's code: what was simulated once is not
simulated again, and a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from reproduce_experiments import EXPERIMENTS, Experiment
from reproduce_page import page

from migrator.compare import Match, score_of, standings
from migrator.config import config_yaml, read_config
from migrator.outputs import write_output
from migrator.parallel import Processes, n_cores

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "runs" / "reproduce"
RESULTS = ROOT / "docs" / "results.json"
PAGE = ROOT / "docs" / "results.md"

Json = dict[str, object]


def matches_of(experiment: Experiment) -> list[Match]:
    """Every policy on every workload of the experiment."""
    found = []
    for name in experiment.workloads:
        config = read_config(ROOT / "configs" / f"{name}.yaml", windows=experiment.windows, **experiment.changes)
        tenants = [tenant.model_copy(update={"batch": experiment.batch}) for tenant in config.tenants]
        config = config.model_copy(update={"tenants": tenants})
        found += [Match(policy, config, f"configs/{name}.yaml", 0, experiment.terms) for policy in experiment.policies]
    return found


def source_digest() -> str:
    """A digest of all of the product's code and data, which decide about results."""
    digest = hashlib.sha256()
    for package in ("executor", "forecaster", "workloads", "planner", "migrator"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key_of(match: Match, source: str) -> str:
    """What the result of a match depends on, as a digest."""
    parts = (source, match.policy, match.terms.value, str(match.segment), config_yaml(match.config))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def result_of(match: Match) -> Json:
    """The match simulated, as numbers: requests, and where they went, with no forecast class yet."""
    score = score_of(match)
    alone = standings([score])[0]
    return {
        "policy": score.policy,
        "workload": score.workload,
        **asdict(score.total),
        "account": asdict(alone.account),
        "changes": score.n_changes,
        "windows_without_plan": score.n_unplanned,
        "notes": [list(note) for note in score.notes],
    }


def results_of(matches: Sequence[Match]) -> list[Json]:
    """Every match's result, in order; what is not known yet is simulated, on all cores, and kept."""
    source = source_digest()
    files = [CACHE / f"{key_of(match, source)}.json" for match in matches]
    missing = [place for place, path in enumerate(files) if not path.is_file()]
    if missing:
        CACHE.mkdir(parents=True, exist_ok=True)
        with Processes(min(n_cores(), len(missing))) as processes:
            done = processes.each(result_of, [matches[place] for place in missing])
            for n_done, (index, result) in enumerate(done, 1):
                write_output("the cache", files[missing[index]], json.dumps(result))
                print(f"\r  {n_done} of {len(missing)} simulated", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    return [json.loads(path.read_text("utf-8")) for path in files]


def document(experiments: Sequence[Experiment], command: str) -> Json:
    """All results of the experiments, with what made them."""
    made = {"command": command, "version": version("migrator"), "python": platform.python_version()}
    machine = f"{platform.system()} {platform.machine()}, {n_cores()} cores"
    return {"schema": 1, "made": {**made, "machine": machine}, "experiments": list(_experiments(experiments))}


def _experiments(experiments: Sequence[Experiment]) -> Iterator[Json]:
    for number, experiment in enumerate(experiments, 1):
        print(f"{number} of {len(experiments)}: {experiment.title}", file=sys.stderr)
        yield {"name": experiment.name, "results": results_of(matches_of(experiment))}


def main() -> None:
    """Run what is asked for and write both files."""
    is_full = os.environ.get("FULL", "") not in ("", "0")
    chosen = [one for one in EXPERIMENTS if is_full or not one.is_long]
    found = document(chosen, f"make reproduce{' FULL=1' if is_full else ''}")
    write_output("results", RESULTS, json.dumps(found, indent=1) + "\n")
    write_output("results", PAGE, page(found))
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
