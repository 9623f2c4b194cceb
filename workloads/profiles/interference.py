"""By how much work that shares a GPU without partitions slows other work down.

MPS divides the GPU's processors, not its memory, caches and buses; MIG divides all of these. Mudi (EuroSys '25, §2.2.1,
Figures 3 and 4) measured latency beside other work over latency alone, on an A100 with MPS, averaged over batches 16 to
256 and shares 10 to 90 %:

* ResNet-50 2.40 beside inference, 1.21 beside training; GPT-2 3.19 and 1.67.

Taken from it: ResNet-50's for image models, GPT-2's for text models. Adaptations: neighbours add up, each as far as it
is busy; training is not slowed down, as nothing is printed of it. That it may be too much: the figures hold contention
for the host's processors and PCIe too, which MIG does not take away either. STREAM on compute instances that share a
GPU instance's memory (gpuless-thesis) shows 1.7 to 1.8 for code bound by memory alone, and nothing at the median for
one slice beside two others. Hence ``strength``: 0 is no interference, 1 as printed, and comparisons say at which
strength a policy ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Latency of a model's inference beside one neighbour that is always busy, over its latency alone, ≥ 1."""

    beside_inference: float
    beside_retraining: float


IMAGE = Sensitivity(2.40, 1.21)
TEXT = Sensitivity(3.19, 1.67)


def sensitivity_of(model: str) -> Sensitivity:
    """That of text models for BERT, that of image models for all others."""
    return TEXT if model.startswith("bert") else IMAGE


def slowdown(own: Sensitivity, strength: float, busy_inference: Sequence[float], n_retraining: float) -> float:
    """What the model's latencies are multiplied by, ≥ 1.

    ``busy_inference`` has, for each other tenant's inference, the share of time in which it runs a batch;
    ``n_retraining`` is how many retrainings run, the tenant's own included.
    """
    beside = (own.beside_inference - 1) * sum(busy_inference) + (own.beside_retraining - 1) * n_retraining
    return 1.0 + strength * beside
