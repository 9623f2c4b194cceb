"""The paper's Figure 5: what a reconfiguration takes, in four phases."""

from __future__ import annotations

from benchmarks.paper.motivation_splits import Row, Study
from executor.catalogue import gpu_model
from planner.problem import DRAIN_S, default_switch_s
from workloads.profiles.table import shipped_profiles
from workloads.tenants import default_worker_start, most_instances

GPU = "a100-80gb"

MODELS = {
    "ConvNeXt": "convnext-base",
    "ResNet-50": "resnet50",
    "MobileNet": "mobilenet-v2",
    "Inception": "inception-v3",
    "ViT": "vit-b-16",
    "BERT": "bert-base",
    "BERT-large": "bert-large",
}
"""The figure's three, the paper's others, and the one other model whose start-up was measured."""

_N_RETRAINING = 2

IN_FIGURE = ("ConvNeXt", "ResNet-50", "MobileNet")

TEXT = (
    "What the simulation charges for giving a tenant one new instance on an otherwise quiet GPU, from the shipped "
    "table (`workloads/data/worker_start.csv`) and the GPU's catalogue (`executor/catalogue/a100-80gb.toml`): driver "
    "calls of the slowest profile, then the worker's start. Only ResNet-50's and BERT-large's workers were measured "
    "(gpuless-thesis); the others have the times of that source's median model, which says "
    "nothing of how models differ. Destruction and initialisation depend on the profile, not on the model "
    "(RL_MIG_scheduler). *Planned* is what a plan reckons with for any change: the largest change's driver calls "
    "and two retrainings', then as many workers starting at once as the GPU holds instances."
)


def figure_5() -> Study:
    """The phases of a reconfiguration by model, in milliseconds."""
    totals = [sum(phases_ms(MODELS[name]).values()) for name in IN_FIGURE]
    planned = [planned_ms(MODELS[name]) for name in IN_FIGURE]
    answer_ms = single_answer_ms(MODELS[IN_FIGURE[1]])
    took = (
        f"One instance for one of the figure's three models takes {min(totals)} to {max(totals)} ms in all; a plan "
        f"reckons with {min(planned)} to {max(planned)} ms."
    )
    times = (
        f"{IN_FIGURE[1]} answers a single request in {answer_ms:.2f} ms on the whole GPU: one instance takes "
        f"{totals[1] / answer_ms:.0f} times as long, what a plan reckons with {planned[1] / answer_ms:.0f} times."
    )
    return {
        "title": "Figure 5: the phases of a reconfiguration",
        "text": TEXT,
        "rows": [_row(paper_name, model) for paper_name, model in MODELS.items()],
        "found": [took, times],
        "paper": [
            "the reconfiguration overheads can take more than 6,000 milliseconds",
            "more than 1,000 times the latency of responding to a single inference request",
            "the bars have no numbers; the axis ends at 7,000 ms",
        ],
    }


def phases_ms(model: str) -> dict[str, int]:
    """Milliseconds of each phase, for one worker that starts alone on the profile whose driver calls are slowest."""
    gpu, start = gpu_model(GPU), default_worker_start(model)
    profiles = [gpu.profile(name) for name in gpu.standard_profile_names]
    seconds = {
        "destruction_ms": max(profile.destroy_s for profile in profiles),
        "initialisation_ms": max(profile.create_s for profile in profiles),
        "library_load_ms": start.library_s,
        "model_load_ms": start.base_s - start.library_s,
    }
    return {phase: round(1000 * value) for phase, value in seconds.items()}


def single_answer_ms(model: str) -> float:
    """Milliseconds for a batch of one on the whole GPU, by one process."""
    rows = shipped_profiles().of(GPU, model)
    whole = gpu_model(GPU).standard_profile_names[-1]
    return next(1000 * row.latency_s for row in rows if (row.profile, row.batch, row.processes) == (whole, 1, 1))


def planned_ms(model: str) -> int:
    """Milliseconds that a plan reckons with for a change, draining apart."""
    gpu = gpu_model(GPU)
    start_s = default_worker_start(model).planned_s(most_instances(gpu))
    return round(1000 * (default_switch_s(gpu, _N_RETRAINING) - DRAIN_S + start_s))


def _row(paper_name: str, model: str) -> Row:
    phases, start = phases_ms(model), default_worker_start(model)
    return {
        "model": paper_name,
        "in_figure": paper_name in IN_FIGURE,
        "is_measured": start != default_worker_start("any other model"),
        **phases,
        "total_ms": sum(phases.values()),
        "planned_ms": planned_ms(model),
        "source": start.source,
    }
