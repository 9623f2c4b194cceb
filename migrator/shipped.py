"""What is shipped inside the package beside code: example configs and the documentation.

``migrator/configs`` and ``migrator/docs`` are links to the folders at the top of the repository; a wheel has the files.
"""

from __future__ import annotations

from pathlib import Path

CONFIGS = Path(__file__).parent / "configs"
DOCS = Path(__file__).parent / "docs"

TRACES = "my-traces"
"""The example that is a folder: a config with the files that it reads."""

PROBLEM = "problem"
"""The example that is a problem file."""


def examples() -> dict[str, tuple[Path, ...]]:
    """By name, the files of each example, the one to begin with first: ``quickstart``, ``w1`` …, ``my-traces``."""
    named = sorted(CONFIGS.glob("*.yaml"), key=lambda path: (path.stem.startswith("live"), *_by_number(path.stem)))
    configs = {path.stem: (path, *sorted(CONFIGS.glob(f"{path.stem}-*.csv"))) for path in named}
    traces = CONFIGS / TRACES / f"{TRACES}.yaml"
    beside = sorted(path for path in traces.parent.iterdir() if path != traces)
    return {**configs, TRACES: (traces, *beside), PROBLEM: (CONFIGS / f"{PROBLEM}.json",)}


def pages() -> dict[str, Path]:
    """The documentation's pages by name."""
    return {path.stem: path for path in sorted(DOCS.glob("*.md"))}


def _by_number(name: str) -> tuple[str, int]:
    """w2 before w10."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)
