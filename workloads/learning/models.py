"""The catalogue of models by name, as classifiers that serve and learn. torch is imported when one is made."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from executor.extras import install
from executor.files import write_whole
from executor.names import spelled_as
from workloads.learning.experiences import encoded
from workloads.live.model import ModelError, WeightsError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Shape = tuple[int, ...]

N_SERVED_AT_ONCE = 64
"""Samples that one pass takes while an accuracy is measured."""

_FACTS = "migrator"  # the metadata's key, of a JSON object with the checksum over all tensors, `sha256`


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model of the catalogue.

    Attributes:
        make: ``(input shape, number of classes) → module`` with random weights.
        takes: ``images`` (channels, height, width), ``numbers`` (any shape) or ``tokens`` (numbers of words).
        pixels: Height and width that the module needs; 0 for any. Images are scaled to it.
        pretrained: Puts weights of the library into the module, but for its last layer; ``None`` if there are none.
    """

    make: Callable[[Shape, int], Module]
    takes: str
    pixels: int = 0
    pretrained: Callable[[Module], None] | None = None


class Classifier:
    """A torch module that answers requests, learns, and whose weights are saved and loaded whole.

    Attributes:
        name: Of the catalogue.
        module: From a batch of :meth:`tensor` to scores ``(n, n_classes)``.
        n_classes: Labels that it can answer with.
        weights: What the weights are: ``random``, with the reason where pretrained ones cannot be had; ``pretrained``,
            but for the last layer; or the file that they came from. Without a file, answers are no better than chance.
    """

    def __init__(
        self,
        name: str,
        module: Module,
        *,
        shape: Shape,
        dtype: np.dtype[Any],
        n_classes: int,
        channels: int,
        device: str,
    ) -> None:
        self.name = name
        self.module = module.to(device).eval()
        self.n_classes = n_classes
        self.weights = "random"
        self._shape = shape
        self._dtype = dtype
        self._channels = channels
        self._device = device

    @property
    def device(self) -> str:
        """Where torch computes."""
        return self._device

    def tensor(self, inputs: NDArray[Any]) -> Tensor:
        """Samples as the module takes them. Shapes: ``(n, *shape) → (n, *shape)``, grey images with more channels."""
        import torch  # noqa: PLC0415 (heavy, and of the extra `live`)

        if inputs.dtype == np.uint16:
            return torch.from_numpy(inputs.astype(np.int64)).to(self._device)
        scaled = torch.from_numpy(inputs.astype(np.float32)).to(self._device) / 255
        return scaled.expand(-1, self._channels, -1, -1) if self._channels > 1 else scaled

    def labels(self, inputs: NDArray[Any]) -> NDArray[np.int64]:
        """The label of each sample. Shapes: ``(n, *shape) → (n,)``."""
        import torch  # noqa: PLC0415 (heavy, and of the extra `live`)

        learning = self.module.training
        if learning:
            self.module.eval()
        with torch.inference_mode():
            found: NDArray[np.int64] = self.module(self.tensor(inputs)).argmax(1).cpu().numpy()
        if learning:
            self.module.train()
        return found

    def accuracy(
        self, inputs: NDArray[Any], labels: NDArray[np.int64], between: Callable[[], None] = lambda: None
    ) -> float:
        """The share of samples that it labels right; 0 of none. ``between``, called before each part, may raise."""
        n_right = 0
        for first in range(0, len(labels), N_SERVED_AT_ONCE):
            between()
            part = slice(first, first + N_SERVED_AT_ONCE)
            n_right += int(np.count_nonzero(self.labels(inputs[part]) == labels[part]))
        return n_right / max(1, len(labels))

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        """The label of each input, see :mod:`workloads.learning.experiences`.

        Raises:
            ModelError: An input has another size than the model's.
        """
        n_bytes = math.prod(self._shape) * self._dtype.itemsize
        for position, payload in enumerate(inputs):
            if len(payload) != n_bytes:
                shaped = f"{self._dtype} of shape {self._shape}"
                raise ModelError(
                    f"{self.name}: input {position} has {len(payload)} bytes; {n_bytes} are needed, {shaped}"
                )
        batch = np.frombuffer(b"".join(inputs), self._dtype).reshape(-1, *self._shape)
        return [encoded(int(label)) for label in self.labels(batch)]

    def load(self, weights: Path) -> None:
        """Take the weights of a safetensors file, in place.

        Raises:
            WeightsError: Naming the file, and the tensor that does not fit; the old weights stay.
        """
        import torch  # noqa: PLC0415 (heavy, and of the extra `live`)

        found = _tensors_in(weights)
        own = self.module.state_dict()
        _check_fit(weights, found, own)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(found[name])
        self.weights = str(weights)

    def save(self, path: Path, facts: Mapping[str, str]) -> None:
        """Write the weights to ``path``: whole or not at all, synced to the disk. ``facts`` go into its metadata.

        Raises:
            OSError: The disk is full, the folder is missing.
        """
        from safetensors.torch import save  # noqa: PLC0415 (of the extra `live`)

        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.module.state_dict().items()}
        # Under one key: several would come in another order each time, and equal weights in different bytes.
        told = json.dumps({**facts, "model": self.name, "sha256": _digest(tensors)}, sort_keys=True)
        raw = save(tensors, {_FACTS: told})
        write_whole(path, raw)

    def copied(self) -> Classifier:
        """Another one with the same weights."""
        return copy.deepcopy(self)


def classifier(
    model: str,
    *,
    shape: Sequence[int],
    n_classes: int,
    dtype: str = "uint8",
    seed: int = 0,
    weights: str = "pretrained",
    device: str | None = None,
    threads: int = 1,
) -> Classifier:
    """The model of this name for inputs of this shape.

    Args:
        model: One of :data:`MODELS`.
        shape: Of one input.
        n_classes: Labels that it has to tell apart, ≥ 1.
        dtype: ``uint8``, or ``uint16`` for numbers of words.
        seed: Of random weights. The generators of torch are left as they were.
        weights: ``pretrained`` (the library's own where it has some and they can be had, with a random last layer),
            ``random``, or a file that :meth:`Classifier.save` wrote.
        device: Torch's name of a device; ``None`` for the first CUDA device, or the CPU where there is none.
        threads: Of torch on the CPU, in this whole process. Where several processes share the cores, more than one
            wait for each other.

    Raises:
        ModelError: No such model, it cannot take such inputs, or a library is missing.
        WeightsError: The file does not fit.
    """
    if model not in MODELS:
        raise ModelError(f"model {model!r}: unknown; {', '.join(MODELS)} or module:callable are allowed")
    _check_inputs(model, tuple(shape), dtype, n_classes)
    try:
        import torch  # noqa: PLC0415 (heavy, and of the extra `live`)

        torch.set_num_threads(threads)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module, label = _module(MODELS[model], tuple(shape), n_classes, weights)
    except ImportError as error:
        command = "pip install transformers" if error.name == "transformers" else install("live")
        raise ModelError(f"model {model} needs {error.name}: {command}") from error
    made = Classifier(
        model,
        module,
        shape=tuple(shape),
        dtype=np.dtype(dtype),
        n_classes=n_classes,
        channels=3 if MODELS[model].pixels and shape[0] == 1 else 1,
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
    made.weights = label
    if weights not in {"pretrained", "random"}:
        made.load(Path(weights))
    return made


def _check_inputs(model: str, shape: Shape, dtype: str, n_classes: int) -> None:
    takes = MODELS[model].takes
    if n_classes < 1 or n_classes > 2**16:
        raise ModelError(f"model {model}: n_classes is {n_classes}; 1 to {2**16} are allowed")
    if not shape or min(shape) < 1:
        raise ModelError(f"model {model}: shape is {list(shape)}; numbers ≥ 1 are needed")
    fits = {
        "images": len(shape) == 3 and shape[0] in {1, 3} and dtype == "uint8",
        "numbers": dtype == "uint8",
        "tokens": len(shape) == 1 and dtype == "uint16",
    }
    needed = {
        "images": "uint8 images (1 or 3 channels, height, width)",
        "numbers": "uint8 numbers",
        "tokens": "uint16 numbers of words (n,)",
    }
    if not fits[takes]:
        raise ModelError(f"model {model}: inputs are {dtype} of shape {list(shape)}; {needed[takes]} are needed")


def _module(entry: CatalogueModel, shape: Shape, n_classes: int, weights: str) -> tuple[Module, str]:
    """The module and what its weights are."""
    from torch import nn  # noqa: PLC0415 (heavy, and of the extra `live`)

    module, label = entry.make(shape, n_classes), "random"
    if weights == "pretrained" and entry.pretrained is not None:
        try:
            entry.pretrained(module)
            label = "pretrained"
        except (OSError, RuntimeError) as error:
            label = f"random (pretrained ones cannot be had: {' '.join(str(error).split())[:100]})"
    if entry.pixels and shape[1:] != (entry.pixels, entry.pixels):
        scale = nn.Upsample((entry.pixels, entry.pixels), mode="bilinear", align_corners=False)
        module = nn.Sequential(scale, module)
    return module, label


def _mlp(shape: Shape, n_classes: int) -> Module:
    from torch import nn  # noqa: PLC0415 (heavy, and of the extra `live`)

    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 128), nn.ReLU(), nn.Linear(128, n_classes))


def _cnn(shape: Shape, n_classes: int, width: int = 16) -> Module:
    from torch import nn  # noqa: PLC0415 (heavy, and of the extra `live`)

    def block(n_in: int, n_out: int) -> list[Module]:
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]

    height, across = (math.ceil(math.ceil(size / 2) / 2) for size in shape[1:])
    flat = [nn.Flatten(), nn.Linear(2 * width * height * across, 64), nn.ReLU()]
    features = [*block(shape[0], width), *block(width, 2 * width), *flat]
    return nn.Sequential(*features, nn.Linear(64, n_classes))


def _torchvision(name: str, _shape: Shape, n_classes: int) -> Module:
    from torchvision.models import get_model  # noqa: PLC0415 (heavy, and of the extra `live`)

    # Inception's second head serves training from nothing alone, and makes its answer a pair.
    return get_model(name, weights=None, num_classes=n_classes, **_INCEPTION.get(name, {}))


_INCEPTION = {"inception_v3": {"aux_logits": False, "init_weights": True}}


def _torchvision_weights(name: str, module: Module) -> None:
    """The library's weights for ImageNet, for all tensors of the same name and shape: all but the last layer."""
    from torchvision.models import get_model_weights  # noqa: PLC0415 (heavy, and of the extra `live`)

    found = get_model_weights(name).DEFAULT.get_state_dict(progress=False, check_hash=True)
    own = module.state_dict()
    module.load_state_dict({key: found[key] if found[key].shape == own[key].shape else own[key] for key in own})


def _bert(shape: Shape, n_classes: int) -> Module:
    from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415 (heavy, and optional)

    del shape  # as many tokens as BERT's 512 positions allow
    module = BertForSequenceClassification(BertConfig(num_labels=n_classes))
    module.register_forward_hook(lambda _module, _given, answer: answer.logits)
    return module


def _torchvision_entry(name: str, pixels: int) -> CatalogueModel:
    return CatalogueModel(partial(_torchvision, name), "images", pixels, partial(_torchvision_weights, name))


MODELS: dict[str, CatalogueModel] = {
    "mlp": CatalogueModel(_mlp, "numbers"),
    "cnn": CatalogueModel(_cnn, "images"),
    "cnn_wide": CatalogueModel(partial(_cnn, width=192), "images"),
    "resnet50": _torchvision_entry("resnet50", 224),
    "mobilenet_v2": _torchvision_entry("mobilenet_v2", 224),
    "inception_v3": _torchvision_entry("inception_v3", 299),
    "vit_b_16": _torchvision_entry("vit_b_16", 224),
    "convnext_base": _torchvision_entry("convnext_base", 224),
    "bert_base": CatalogueModel(_bert, "tokens"),
}
"""The catalogue. ``bert_base`` needs the package ``transformers``, which the extra ``live`` does not bring."""


def libraries(model: str) -> tuple[str, ...]:
    """What a process that is to make, serve and train the model quickly imports beforehand; nothing for a user's own.

    Names are spelled as for :func:`workloads.live.model.factory`. The first step of any optimizer imports
    ``torch._dynamo``, which takes seconds.
    """
    known = spelled_as(model.replace("-", "_"), MODELS)
    if known not in MODELS:
        return ()
    others = {"mlp": (), "cnn": (), "cnn_wide": (), "bert_base": ("transformers",)}
    return ("torch", "torch._dynamo", *others.get(known, ("torchvision.models",)))


def _tensors_in(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 (of the extra `live`)

    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise WeightsError(f"{path}: no regular file; a safetensors file is needed")
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get(_FACTS, "{}"))
            # An iterator of its own kind: it has keys(), and no way to iterate over them directly.
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, RuntimeError, TypeError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{path}: {error}; a whole safetensors file is needed") from error
    if "sha256" in facts and facts["sha256"] != _digest(found):
        raise WeightsError(f"{path}: its tensors do not have the checksum that it names; the file is damaged")
    return found


def _check_fit(path: Path, found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """The first tensor that does not fit, in the model's order, is named."""
    for name, tensor in own.items():
        if name not in found:
            raise WeightsError(f"{path}: tensor {name} is missing")
        got = found[name]
        if got.shape != tensor.shape:
            raise WeightsError(f"{path}: tensor {name} has shape {list(got.shape)}; {list(tensor.shape)} is needed")
        if got.dtype != tensor.dtype:
            raise WeightsError(f"{path}: tensor {name} is {got.dtype}; {tensor.dtype} is needed")
        if not bool(got.isfinite().all()):
            raise WeightsError(f"{path}: tensor {name} holds values that are no finite numbers")
    if more := sorted(found.keys() - own.keys()):
        raise WeightsError(f"{path}: the model has no tensor {more[0]}")


def _digest(tensors: Mapping[str, Tensor]) -> str:
    import torch  # noqa: PLC0415 (heavy, and of the extra `live`)

    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()


def __getattr__(name: str) -> Callable[..., Classifier]:
    """``workloads.learning.models:resnet50`` and its like make that model: a name of the catalogue is a callable."""
    if name not in MODELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(classifier, name)
