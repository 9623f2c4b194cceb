"""How near plans come to what then happens: `python -m benchmarks.speed.fidelity [CONFIG …]`.

Without arguments: the quickstart and the configs of tests/migrator/fidelity, with arrivals known. Everything is
simulated. Plans are there as their windows begin, except where a config says how long planning takes. One line a
window: by how much the plan expected too much goodput (negative: too little), the loss that it expected and the one
that came, and the first again if workers start exactly when the plan says.

``--pools``: the first three windows of eight of the sixteen workloads, whose tenants may share instances, at the load
that they have and at 0.5; each line ends with the most that a pool or a tenant brings of what it is served with, in the
mean over the window, and with who shared.
"""

from __future__ import annotations

import sys
from pathlib import Path

from migrator.api import load_config
from migrator.fidelity.plans import measured
from migrator.inputs.assembly import assemble

ROOT = Path(__file__).parents[2]
CONFIGS = (ROOT / "configs" / "quickstart.yaml", *sorted((ROOT / "tests" / "migrator" / "fidelity").glob("*.yaml")))

HEADER = (
    f"{'config':22} window {'plan':9} {'goodput':>9} {'expected loss':>14} {'loss':>8} "
    f"{'of arrivals':>12} {'punctual':>9}"
)


POOLED = tuple(ROOT / "configs" / f"w{number}.yaml" for number in (1, 3, 5, 7, 10, 12, 14, 16))


def main() -> None:
    """Print the table."""
    print(HEADER)
    if "--pools" in sys.argv[1:]:
        shared = {"windows": 3, "sharing.pools": "auto"}
        cases = [(path, shared | more) for more in ({}, {"load": 0.5}) for path in POOLED]
    else:
        cases = [(path, {}) for path in [Path(argument) for argument in sys.argv[1:]] or CONFIGS]
    for path, changes in cases:
        config = load_config(path, set=changes)
        known = config.forecast.model_copy(update={"method": "known"})
        planner = config.planner.model_copy(update={"planning_s": config.planner.planning_s or 0.0})
        config = config.model_copy(update={"forecast": known, "planner": planner})
        assembled = assemble(config, str(path))
        for real, punctual in zip(measured(*assembled), measured(*assembled, start_as_planned=True), strict=True):
            total = real.total
            line = (
                f"{path.stem:22} {real.window:6} {real.status:9} {100 * total.goodput_excess:+z8.2f}% "
                f"{total.expected_lost:14.0f} {total.achieved_lost:8.0f} {total.arrivals:12.0f} "
                f"{100 * punctual.total.goodput_excess:+z8.2f}%"
            )
            print(f"{line} {max(real.use):5.2f} {' | '.join(map(' + '.join, real.pools))}" if changes else line)


if __name__ == "__main__":
    main()
