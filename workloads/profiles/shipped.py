"""The shipped service profiles: what ParvaGPU and MIGPerf measured on an A100-80GB, and what is derived from it.

Each model has one source: ParvaGPU the four models that it has, MIGPerf ViT-B/16 and BERT-base.
MIGPerf has no 4g; ParvaGPU's BERT-large, the only transformer that was measured on both 3g and 4g of
this card, gives the ratio. ConvNeXt-base was measured by neither and follows ViT-B/16 by GFLOPs.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from workloads.profiles.derived import latency_ratio, of_similar_model, on_missing_profile
from workloads.profiles.table import ServiceProfiles, ServiceRow, parse_profiles

_FOUR, _THREE, _WHOLE = "4g.40gb", "3g.40gb", "7g.80gb"


@cache
def shipped_profiles() -> ServiceProfiles:
    """The shipped table."""
    parvagpu, migperf = (_read(name) for name in ("parvagpu.csv", "migperf.csv"))
    ratio = latency_ratio(parvagpu.rows, "bert-large", _THREE, _FOUR)
    rows: list[ServiceRow] = []
    for model in migperf.models("a100-80gb"):
        own = migperf.of("a100-80gb", model)
        origin = "ParvaGPU's BERT-large"
        four = on_missing_profile(own, profile=_FOUR, like=_THREE, ratio=ratio, faster=_WHOLE, origin=origin)
        rows += [row for row in own if row.profile != _WHOLE]
        rows += four
        rows += [row for row in own if row.profile == _WHOLE]
    rows += of_similar_model(rows, model="convnext-base", like="vit-b-16")
    return ServiceProfiles("the shipped table", (*parvagpu.rows, *rows))


def _read(name: str) -> ServiceProfiles:
    return parse_profiles(name, (files("workloads.data") / name).read_text("utf-8"))
