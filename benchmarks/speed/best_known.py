"""The best values and bounds that were ever found for the benchmark problems, and how."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

PATH = Path(__file__).with_name("best_known.json")

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


def read() -> Values:
    """What the file holds; nothing if there is none."""
    if not PATH.exists():
        return {}
    document = json.loads(PATH.read_text("utf-8"))
    return {name: {label: BestKnown(**entry) for label, entry in known.items()} for name, known in document.items()}


def store(problem_set: str, label: str, found: BestKnown) -> None:
    """Put ``found`` into the file, if it is better than what stands there."""
    values = read()
    known = values.setdefault(problem_set, {})
    known[label] = known[label].with_found(found) if label in known else found
    PATH.write_text(_text(values), "utf-8")


def _text(values: Values) -> str:
    """One problem a line."""
    sets = []
    for name, known in sorted(values.items()):
        lines = [f"    {json.dumps(label)}: {json.dumps(asdict(known[label]))}" for label in sorted(known, key=_order)]
        sets.append(f"  {json.dumps(name, ensure_ascii=False)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(sets) + "\n}\n"


def _order(label: str) -> tuple[str, int]:
    kind, _, number = label.partition("-")
    return kind, int(number)
