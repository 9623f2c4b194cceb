"""How many modules of Mudi's eleven kinds a model has: by which it knows a training before it has ever run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

KINDS = (
    "conv", "linear", "activations", "embeddings", "encoder", "decoder", "flatten", "batch_normalization", "fc",
    "pooling", "other_layers",
)  # fmt: skip
"""Source: Mudi (EuroSys '25), §4.1.2."""

_NAMES = (
    ("conv", ("conv",)),
    ("batch_normalization", ("batchnorm",)),
    ("linear", ("linear",)),
    ("embeddings", ("embedding",)),
    ("flatten", ("flatten",)),
    ("pooling", ("pool",)),
    ("activations", ("elu", "sigmoid", "tanh", "silu", "swish", "softmax", "mish")),
)
"""Parts of the names of classes, by kind; the first that fits counts."""


class ModuleTree(Protocol):
    """What of a torch module is asked."""

    def modules(self) -> Iterable[ModuleTree]:
        """Itself and all below."""

    def children(self) -> Iterable[ModuleTree]:
        """Those right below."""


def module_counts(module: ModuleTree) -> tuple[int, ...]:
    """Modules of each of :data:`KINDS`, by the names of their classes: those without parts, and en- and decoders.

    The last linear module counts as fully connected (``fc``), as the paper tells both apart and not how.
    """
    found = [kind for part in module.modules() if (kind := _kind(part))]
    if "linear" in found:
        found[len(found) - 1 - found[::-1].index("linear")] = "fc"
    return tuple(found.count(kind) for kind in KINDS)


def _kind(part: ModuleTree) -> str | None:
    name = type(part).__name__.lower()
    coder = next((kind for kind in ("encoder", "decoder") if kind in name), None)
    if coder is not None or any(True for _ in part.children()):
        return coder
    return next((kind for kind, words in _NAMES if any(word in name for word in words)), "other_layers")
