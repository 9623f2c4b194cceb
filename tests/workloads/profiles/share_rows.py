"""Tables of measured shares for tests, by a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workloads.profiles.share_table import COLUMNS

CARD = "mps-a100-80gb-in-7"
PERCENTS = (10, 30, 50, 70, 90)
ALONE_MS: Mapping[str, float] = {"resnet50": 4.0, "bert-large": 20.0}
"""Of a batch of one on 50 %, where both lines meet."""


def mean_ms(model: str, batch: int, percent: float, factor: float = 1.0) -> float:
    """Four times as steep below half of the card as above."""
    level = ALONE_MS[model] * (0.5 + 0.5 * batch)
    return factor * level * (1 - (4.0 if percent <= 50 else 1.0) * (percent - 50) / 100)


def share_rows(
    models: Sequence[str] = tuple(ALONE_MS),
    batches: Sequence[int] = (1, 8),
    beside: Mapping[str, float] | None = None,
    gpu: str = CARD,
) -> list[str]:
    """Lines of the table; ``beside`` has by trainer how many times as long a batch takes."""
    trainers = {"": 1.0, **({"resnet50": 1.2} if beside is None else beside)}
    return [
        f"{gpu},{model},{batch},{percent},{trainer},{ms:.9g},{1.05 * ms:.9g},{'50' if trainer else ''}"
        for model in models
        for batch in batches
        for percent in PERCENTS
        for trainer, factor in trainers.items()
        if (ms := mean_ms(model, batch, percent, factor))
    ]


def share_text(rows: Sequence[str] | None = None) -> str:
    """A whole table."""
    return "\n".join([",".join(COLUMNS), *(share_rows() if rows is None else rows)]) + "\n"
