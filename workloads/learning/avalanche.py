"""The only file that knows Avalanche (avalanche-lib 0.6.0): its strategies behind the plain trainer's interface.

Its last commit is of March 2025: finished rather than alive. A break there stops nothing but this file. A retraining
is one process that begins with the served weights, so what Avalanche would have kept from earlier experiences (replay's
buffer, EWC's importances, LwF's teacher) is made anew: from the served weights and the memory's samples.
"""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from executor.extras import install
from workloads.errors import LearningError
from workloads.learning.course import Option
from workloads.learning.experiences import Samples
from workloads.learning.models import Classifier
from workloads.learning.training import MOMENTUM
from workloads.learning.watch import Steps

if TYPE_CHECKING:
    from avalanche.benchmarks import DatasetExperience

EWC_LAMBDA = 1.0
"""How much EWC holds on to what mattered."""

LWF_ALPHA, LWF_TEMPERATURE = 1.0, 2.0
"""LwF: weight and softness of the old model's answers (the library's defaults)."""


class _Done(Exception):  # noqa: N818 (no error)
    """The last step is made: what strategies would prepare for a next experience would be thrown away."""


def fit(classifier: Classifier, new: Samples, memory: Samples, option: Option, *, seed: int, steps: Steps) -> None:
    """Train the classifier in place, as :func:`workloads.learning.training.fit` does.

    Raises:
        Cut: ``steps`` ended it.
        LearningError: avalanche-lib is not installed.
    """
    try:
        import torch  # noqa: PLC0415 (heavy, and of the extra `live`)
        from avalanche.core import SupervisedPlugin  # noqa: PLC0415 (heavy, and of an extra of its own)
        from avalanche.training.plugins import EvaluationPlugin  # noqa: PLC0415 (as above)
        from avalanche.training.supervised import Naive  # noqa: PLC0415 (as above)
    except ImportError as error:
        raise LearningError(f"trainer avalanche needs {error.name}: {install('avalanche')}") from error

    class Told(SupervisedPlugin):  # type: ignore[misc] # Avalanche has no types
        """Hands each step to the watcher, and leaves after the last one."""

        n_done = 0

        def after_training_iteration(self, strategy: Any, *_args: Any, **_more: Any) -> None:
            n_steps = option.n_epochs * len(strategy.dataloader)
            steps.step(float(strategy.loss.detach()), n_steps)
            self.n_done += 1
            if self.n_done == n_steps:
                raise _Done

    torch.manual_seed(seed)
    keeping = _plugin(option) if len(memory) else None
    with warnings.catch_warnings(), suppress(_Done):
        warnings.simplefilter("ignore")  # it warns of its own deprecated calls, and that nothing logs its metrics
        strategy = Naive(
            model=classifier.module,
            optimizer=torch.optim.SGD(classifier.module.parameters(), lr=option.learning_rate, momentum=MOMENTUM),
            criterion=torch.nn.CrossEntropyLoss(),
            train_mb_size=option.batch,
            train_epochs=option.n_epochs,
            device=torch.device(classifier.device),
            plugins=[*([] if keeping is None else [keeping]), Told()],
            evaluator=EvaluationPlugin(),
        )
        if keeping is not None:
            _remember(strategy, keeping, _experience(classifier, memory, 0), set(memory.labels.tolist()))
        strategy.train(_experience(classifier, new, 1), eval_streams=[])
    classifier.module.eval()


def _plugin(option: Option) -> Any:
    from avalanche.training.plugins import EWCPlugin, LwFPlugin, ReplayPlugin  # noqa: PLC0415 (as above)

    if option.strategy == "replay":
        return ReplayPlugin(mem_size=option.memory)
    if option.strategy == "ewc":
        return EWCPlugin(EWC_LAMBDA)
    return LwFPlugin(LWF_ALPHA, LWF_TEMPERATURE) if option.strategy == "lwf" else None


def _remember(strategy: Any, keeping: Any, earlier: DatasetExperience, classes: set[int]) -> None:
    """Let the plugin look at the earlier experiences as if the strategy had just been trained on them."""
    if hasattr(keeping, "lwf"):
        # Its own way there asks for task labels, which a plain data set does not have in 0.6.0.
        keeping.lwf.prev_model = copy.deepcopy(strategy.model)
        keeping.lwf.prev_classes_by_task[0] = classes
        return
    if hasattr(keeping, "storage_policy"):
        keeping.storage_policy.post_adapt(strategy, earlier)
        return
    strategy.experience = earlier
    keeping.after_training_exp(strategy)
    strategy.clock.train_exp_counter = 1


def _experience(classifier: Classifier, samples: Samples, number: int) -> DatasetExperience:
    import torch  # noqa: PLC0415 (as above)
    from avalanche.benchmarks import DatasetExperience  # noqa: PLC0415 (as above)
    from avalanche.benchmarks.utils import as_classification_dataset  # noqa: PLC0415 (as above)

    inputs = classifier.tensor(samples.inputs).cpu()
    data = torch.utils.data.TensorDataset(inputs, torch.from_numpy(samples.labels.copy()))
    data.targets = samples.labels.tolist()  # Avalanche asks for it by this name
    dataset = as_classification_dataset(data)
    return DatasetExperience(dataset=dataset, current_experience=number)
