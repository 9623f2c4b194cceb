"""The plain trainer: stochastic gradient descent on new samples, with remembered ones beside them or without."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workloads.learning.course import Option
from workloads.learning.experiences import Samples, joined
from workloads.learning.models import Classifier
from workloads.learning.watch import Steps

MOMENTUM = 0.9
"""Of the descent, in both trainers."""


def fit(classifier: Classifier, new: Samples, memory: Samples, option: Option, *, seed: int, steps: Steps) -> None:
    """Train the classifier in place. On a CPU the same seed has the same weights.

    Args:
        classifier: Its weights change.
        new: Samples of the current experience.
        memory: Samples of earlier ones, which strategy ``replay`` mixes in: as many a step as new ones, if it has them.
        option: Epochs, batch, learning rate and strategy.
        seed: Of the order of samples and of whatever chance the module itself uses.
        steps: Hears of each step.

    Raises:
        Cut: ``steps`` ended it.
    """
    import torch  # noqa: PLC0415 (heavy, and of the extra `live`)

    torch.manual_seed(seed)
    remembered = memory if option.strategy == "replay" else memory.take(np.arange(0))
    n_steps = option.n_epochs * -(-len(new) // option.batch)
    optimizer = torch.optim.SGD(classifier.module.parameters(), lr=option.learning_rate, momentum=MOMENTUM)
    classifier.module.train()
    for samples in _batches(new, remembered, option, np.random.default_rng((seed, 3))):
        optimizer.zero_grad()
        scores = classifier.module(classifier.tensor(samples.inputs))
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(samples.labels.copy()).to(classifier.device))
        loss.backward()
        optimizer.step()
        steps.step(float(loss.detach()), n_steps)
    classifier.module.eval()


def _batches(new: Samples, memory: Samples, option: Option, rng: np.random.Generator) -> Iterator[Samples]:
    n_batches = -(-len(new) // option.batch)
    for _ in range(option.n_epochs):
        # Batches of even size: a last one of a single sample has no variance to normalise by.
        for part in np.array_split(rng.permutation(len(new)), n_batches):
            batch = new.take(part)
            if len(memory):
                again = rng.choice(len(memory), min(option.batch, len(memory)), replace=False)
                batch = joined([batch, memory.take(again)])
            yield batch
