"""What sets the simulated card that remembers apart from other GPUs whose instances are folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from executor.errors import UnknownGpuModelError
from executor.mig import transition
from executor.sim_card import SimCard


@pytest.mark.parametrize("name", gpu_model_names())
def test_what_one_process_made_stands_for_the_next_one_and_ids_do_not_depend_on_the_day(
    tmp_path: Path, name: str
) -> None:
    model, ids = gpu_model(name), []
    for place in ("one", "two"):
        made = []
        for placement in transition(model.layouts()[0], model.maximal_layouts()[-1]).created:
            with SimCard(name, tmp_path / place) as card:
                assert card.instances() == tuple(sorted(made, key=lambda item: item.placement.sort_key))
                made.append(card.create(placement))
        ids.append([item.gi_id for item in made])
    assert ids[0] == ids[1]
    assert (card.model.title, card.model.profiles) == (f"{model.title}, simulated", model.profiles)


@pytest.mark.parametrize("name", ["a100", "cpu-1.6-in-7", "mps-a100-80gb-in-7", ""])
def test_only_cards_that_mig_cuts_are_simulated(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownGpuModelError, match="known: a100-40gb, a100-80gb, a30-24gb"):
        SimCard(name, tmp_path)
