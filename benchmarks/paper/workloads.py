"""Writes configs/w1.yaml to w16.yaml, the sixteen workloads of the paper's Table 4. A test holds the files to it.

Usage: python -m benchmarks.paper.workloads [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper.accuracies import N_WINDOWS, Accuracies, accuracies

CONFIGS = Path(__file__).parents[2] / "configs"


@dataclass(frozen=True)
class Model:
    """A model of the paper's Table 3: its name there, in the service profiles and as a tenant, and its SLO."""

    paper_name: str
    name: str
    tenant: str
    slo_ms: int


BERT = Model("BERT", "bert-base", "bert", 330)
VIT = Model("ViT", "vit-b-16", "vit", 200)
CONVNEXT = Model("ConvNeXt", "convnext-base", "convnext", 200)
INCEPTION = Model("Inception", "inception-v3", "inception", 120)
RESNET = Model("ResNet-50", "resnet50", "resnet50", 150)
MOBILENET = Model("MobileNet", "mobilenet-v2", "mobilenet", 100)

CIFAR, CORE, NEWS = "NC-CIFAR-10", "NC-CORe50", "NC-20-Newsgroups"

PAIRS = (
    (BERT, VIT),
    (BERT, CONVNEXT),
    (VIT, CONVNEXT),
    (BERT, INCEPTION),
    (VIT, RESNET),
    (CONVNEXT, MOBILENET),
    (INCEPTION, RESNET),
    (RESNET, MOBILENET),
)
"""Model-1 and Model-2 of W1 to W8; W9 to W16 are the same pairs with NC-CORe50 in the place of NC-CIFAR-10."""

SAMPLES = {CIFAR: (10_000, 1), CORE: (10_000, 1), NEWS: (1_100, 5)}
"""Samples and epochs of one retraining."""

FEWER_SAMPLES = {(VIT, CONVNEXT): 5_000}
"""Where two retrainings of 10,000 samples do not fit into one window; see docs/workloads.md."""

ALIBABA, AZURE = "alibaba-servegen", "azure-conv"
"""The traces of Model-1 and Model-2."""

OFFSETS_S = {(ALIBABA, CIFAR): 648_300, (ALIBABA, CORE): 821_100, (AZURE, CIFAR): 1_700, (AZURE, CORE): 1_700}
"""Where window 0 begins, by the images of W1-W8 and W9-W16: in the second half of the trace, two days apart where it
is long enough, and not where ServeGen's rates of 600 s change: that would fall on a window of the run."""


@dataclass(frozen=True)
class Workload:
    """One row of Table 4."""

    number: int
    models: tuple[Model, Model]
    datasets: tuple[str, str]
    images: str

    @property
    def windows(self) -> int:
        """Until the longer data set is used up."""
        return max(N_WINDOWS[dataset] for dataset in self.datasets)


def workloads() -> list[Workload]:
    """Table 4, W1 to W16."""
    rows = [(pair, images) for images in (CIFAR, CORE) for pair in PAIRS]
    made = []
    for number, ((one, two), images) in enumerate(rows, start=1):
        datasets = (NEWS if one is BERT else images, NEWS if two is BERT else images)
        made.append(Workload(number, (one, two), datasets, images))
    return made


def config_text(workload: Workload) -> str:
    """The workload's config file."""
    parts = [
        f"{model.paper_name} ({trace}, {dataset})"
        for model, trace, dataset in zip(workload.models, ("Alibaba", "Azure"), workload.datasets, strict=True)
    ]
    samples = FEWER_SAMPLES.get(workload.models)
    lines = [
        f"# W{workload.number} of the paper's Table 4: {' and '.join(parts)}.",
        "# Made by benchmarks/paper/workloads.py; docs/workloads.md says what each number stands on.",
        f"name: w{workload.number}",
        "seed: 1",
        "gpu: { model: a100-80gb } # the paper's had 40 GB",
        "window_s: 200",
        "step_s: 1",
        f"windows: {workload.windows}",
        "load: 0.7",
        "profile_variant: recorded # or launch-free",
        "",
        "tenants:",
    ]
    for place in range(2):
        lines += _tenant(workload, place, samples)
    return "\n".join(lines) + "\n"


def _tenant(workload: Workload, place: int, fewer_samples: int | None) -> list[str]:
    model, dataset, trace = workload.models[place], workload.datasets[place], (ALIBABA, AZURE)[place]
    samples, epochs = SAMPLES[dataset]
    known = accuracies(model.name, dataset)
    retraining = f"{{ samples: {fewer_samples or samples}, epochs: {epochs}, windows: {N_WINDOWS[dataset]} }}"
    note = " # 10,000 do not fit" if fewer_samples else ""
    synthetic = " # synthetic at second scale" if trace == ALIBABA else ""
    return [
        f"  - name: {model.tenant}",
        f"    model: {model.name}",
        f"    slo_ms: {model.slo_ms}",
        "    arrivals:",
        f"      trace: {trace}{synthetic}",
        f"      offset_s: {OFFSETS_S[trace, workload.images]}",
        "      scale: { method: poisson, smooth_s: 10 }",
        f"    retraining: {retraining}{note}",
        f"    accuracy: # {known.source}",
        *_accuracy_lines(known, workload.windows),
    ]


def _accuracy_lines(known: Accuracies, n_windows: int) -> Sequence[str]:
    lines = [f"      - {{ before: {before:.3f}, after: {after:.3f} }}" for before, after in known.windows]
    if len(known.windows) < n_windows:
        last = known.windows[-1][1]
        lines.append(
            f"      - {{ before: {last:.3f}, after: {last:.3f} }} # no new classes, no retraining from here on"
        )
    return lines


def write_configs(folder: Path) -> list[Path]:
    """Write all sixteen; their paths."""
    paths = []
    for workload in workloads():
        path = folder / f"w{workload.number}.yaml"
        path.write_text(config_text(workload), "utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    for written in write_configs(Path(sys.argv[1]) if len(sys.argv) > 1 else CONFIGS):
        print(written)
