"""The paper's Figure 2: GPCs divided between a model's inference and its retraining."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.paper.accuracies import RESNET50_FIGURE_2
from benchmarks.paper.motivation_held import Held, score_held
from benchmarks.paper.motivation_layouts import Names, best_substitute, capability_of, one_of, shown, substitutes
from benchmarks.paper.motivation_splits import (
    W7,
    Row,
    Study,
    best_in_each,
    by_window,
    counted,
    of_all,
    printed,
    windows_first,
)
from migrator.config import Config, read_config
from migrator.setting import Setting, assemble

SPLITS = ((6, 1), (5, 2), (4, 3), (3, 4))
"""(GPCs of inference, GPCs of retraining), in the figure's order."""

OTHER_LOADS = (0.3, 0.5, 0.9, 1.1)
"""The paper prints no load, and the best split depends on it."""

SLO_PCT = {
    1: (92.62, 89.63, 91.49, 94.32),
    2: (90.05, 87.54, 90.76, 92.46),
    3: (83.99, 77.14, 89.48, 85.52),
    4: (73.64, 62.80, 82.13, 78.56),
}
"""SLO attainment of ResNet-50 in windows 1-4, as printed, by the GPCs of its retraining."""

TEXT = (
    "ResNet-50 alone on the GPU with NC-CIFAR-10, four windows of 200 s. A split is held throughout, and each window's "
    "retraining starts when the window does. The tenant is that of W7 (Azure trace, SLO 150 ms, batch auto), here at a "
    "load of 0.7 on its own; the paper prints neither load nor SLO, nor which trace this figure has. `6-1` is 6 GPCs "
    "for inference and 1 for retraining. MIG has no instance of 6 or of 5 GPCs: two stand for one, of the pairs that "
    "fit beside the retraining's instance the one that answers most. The paper's accuracy is of all requests received, "
    "so that there even those too late must be answered; here what cannot be in time is not, and accuracy is of what "
    "is answered. It follows from accuracies before and after that were *fitted to this figure*, so that it agrees is "
    "no result; SLO attainment and goodput are. *Paper's product* is ours: its SLO attainment times its accuracy."
)


def figure_2() -> Study:
    """ResNet-50 alone under four splits of the GPU between its inference and its retraining."""
    rows = windows_first([row for split in SPLITS for row in rows_of(config_at(None), split)])
    return {
        "title": "Figure 2: GPCs for inference or for retraining",
        "text": TEXT,
        "rows": rows,
        "found": [
            best_in_each(rows, "goodput_pct", "Goodput"),
            best_in_each(rows, "paper_product_pct", "The paper's product"),
            _ends(rows),
            *_with_other_pairs(rows),
            _at_other_loads(),
        ],
        "paper": [
            "6-1 against 3-4, mean of the four windows: SLO attainment 18 % higher, inference accuracy 8 % lower",
            "6-1 against 3-4, window 1: 19 % higher and 10 % lower; window 2: 27 % higher and 8 % lower",
            "prioritizing either inference or retraining may compromise the other",
            "the trade-off varies across retraining windows",
        ],
    }


def config_at(load: float | None) -> Config:
    """W7's ResNet-50 with the GPU to itself, at the load given; ``None`` for the config's own."""
    config = read_config(W7, name="figure-2", load=load)
    return config.model_copy(update={"tenants": [tenant for tenant in config.tenants if tenant.name == "resnet50"]})


def rows_of(config: Config, split: tuple[int, int], inference: Names | None = None) -> list[Row]:
    """The split simulated: a row for each window, and one for all together.

    ``inference`` are the instances of its inference, by default those of the highest capability.
    """
    setting, _ = assemble(config, config.name)
    n_inference, n_retraining = split
    retraining, capability_rps = one_of(setting.gpu, n_retraining), setting.tenants[0].capability_rps
    if inference is None:
        inference = best_substitute(setting.gpu, n_inference, (retraining,), capability_rps)
    score = score_held(config, Held((inference,), (retraining,)))
    return [
        {
            "split": f"{n_inference}-{n_retraining}",
            "inference": shown(inference),
            "capability_rps": round(capability_of(inference, capability_rps)),
            "retraining": retraining,
            "window": window,
            **counted(totals),
            **_printed(n_retraining, window),
        }
        for window, totals in by_window(score.totals)
    ]


def other_pairs(setting: Setting, split: tuple[int, int]) -> list[Names]:
    """What could have stood for the inference's GPCs as well, but answers less."""
    retraining = (one_of(setting.gpu, split[1]),)
    best = best_substitute(setting.gpu, split[0], retraining, setting.tenants[0].capability_rps)
    found = (names[::-1] for names in substitutes(setting.gpu, split[0], retraining))
    return [names for names in found if names != best]


def _with_other_pairs(rows: Sequence[Row]) -> Iterator[str]:
    config, known = config_at(None), of_all(rows, "goodput_pct")
    setting, _ = assemble(config, config.name)
    for split in SPLITS:
        name = f"{split[0]}-{split[1]}"
        rest = max(value for own, value in known.items() if own != name)
        for pair in other_pairs(setting, split):
            other = rows_of(config, split, pair)
            goodput, rate = of_all(other, "goodput_pct")[name], other[0]["capability_rps"]
            yield (
                f"With {shown(pair)} for {split[0]} GPCs ({rate} requests/s), {name} has a goodput of {goodput:.2f} % "
                f"in all together, in place of {known[name]:.2f} %; the best other split has {rest:.2f} %."
            )


def _printed(gpcs: int, window: int | str) -> Row:
    slo, accuracy = printed(SLO_PCT[gpcs], window), printed(RESNET50_FIGURE_2[gpcs], window)
    product = None if slo is None or accuracy is None else round(slo * accuracy / 100, 2)
    return {"paper_slo_pct": slo, "paper_accuracy_pct": accuracy, "paper_product_pct": product}


def _ends(rows: Sequence[Row]) -> str:
    slo, accuracy, goodput = (of_all(rows, key) for key in ("slo_pct", "accuracy_pct", "goodput_pct"))
    first, last = (f"{inference}-{retraining}" for inference, retraining in (SPLITS[0], SPLITS[-1]))
    return (
        f"{first} against {last}, all windows together: SLO attainment {slo[first] - slo[last]:+.1f} points, accuracy "
        f"{accuracy[first] - accuracy[last]:+.1f}, goodput {goodput[first] - goodput[last]:+.1f}."
    )


def _at_other_loads() -> str:
    parts = []
    for load in OTHER_LOADS:
        goodput = of_all([row for split in SPLITS for row in rows_of(config_at(load), split)], "goodput_pct")
        best = max(goodput, key=goodput.__getitem__)
        parts.append(f"{best} at {load:g} ({goodput[best]:.2f} %)")
    return f"At other loads, all windows together, goodput is highest with {', '.join(parts)}."
