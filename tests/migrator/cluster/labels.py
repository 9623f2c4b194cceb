"""A model of one's own that needs no library, with profiles made up for it."""

from __future__ import annotations

from collections.abc import Sequence

MODEL = "labels:Labels"


class Labels:
    """Labels an input by its first byte."""

    def __init__(self, shape: Sequence[int] = (4,), n_classes: int = 3, dtype: str = "uint8") -> None:
        del shape, dtype
        self._n_classes = n_classes

    def load(self, weights: str) -> None:
        """There are none to load."""

    def answer(self, inputs: Sequence[bytes]) -> list[bytes]:
        """A label each."""
        return [(one[0] % self._n_classes).to_bytes(2, "little") for one in inputs]


def made_up_profiles(gpu: str) -> str:
    """Service profiles far below what the model does."""
    rows = ["source,gpu,model,profile,batch,processes,latency_ms,throughput_rps,derived"]
    for slices in (1, 2, 3, 4, 7):
        for batch in (1, 8, 64):
            latency_ms = 40 / slices + batch / 2
            figures = f"{latency_ms:.3f},{1000 * batch / latency_ms:.3f}"
            rows.append(f"made-up,{gpu},{MODEL},{slices}c,{batch},1,{figures},made up for tests")
    return "\n".join(rows) + "\n"
