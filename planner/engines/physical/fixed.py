"""``physical``: what ``static`` searches: every held set, from the first step that allows it to the last.

Without an initial state a held set serves from step 0. With one, the initial set is held until
``next_epoch_step``; there is one epoch, or none. A retraining occupies one placement that is free
beside the initial set before that step, and beside the other from there on. The held set lies on memory slices
that are ours in every step of those; a retraining's have to be while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from executor.mig import GpuModel, Layout, Placement
from planner.engines.arrays import Bools, Floats, Int64s
from planner.engines.fixed import FixedLayout, FixedLayouts, Room, values_by_way
from planner.engines.physical.held_sets import Entries, Held, HeldSets, LayoutTable
from planner.engines.schedule import PlacedSchedule, WindowFacts


@dataclass(frozen=True)
class HeldChoices:
    """The layouts of a ``physical`` problem with the held sets that they stand for.

    Attributes:
        layouts: What is searched.
        held_sets: All held sets.
        index: Which of them each layout is, ``(n_layouts,)``.
        row: The layout that each held set is, or is worth as much as; −1 where it is not allowed, ``(n_held_sets,)``.
        free: By layout of the held sets, the placements left to retrainings, in the order of its room's.
    """

    layouts: FixedLayouts[Placement]
    held_sets: HeldSets
    index: Int64s
    row: Int64s
    free: tuple[tuple[Placement, ...], ...]

    def placed(self, found: FixedLayout[Placement]) -> PlacedSchedule[Placement]:
        """The retrainings where they sit beside the held set, which may differ from its room in where it lies."""
        layout, placed = found
        own = self.free[self.held_sets.layout[self.index[layout]]]
        listed = self.layouts.rooms[self.layouts.room[layout]].tokens.values()
        place = dict(zip((token for tokens in listed for token in tokens), own, strict=True))
        return tuple((retraining, place[token]) for retraining, token in placed)

    def held(self, layout: int) -> Held:
        """The window's start, then the epoch if there is one."""
        facts, chosen = self.layouts.facts, self.held_sets.entries(int(self.index[layout]))
        initial = facts.initial_held
        if initial is None:
            return ((0, chosen),)
        if facts.first_step == facts.n_steps or chosen == initial:
            return ((0, initial),)
        return ((0, initial), (facts.first_step, chosen))


def held_choices(facts: WindowFacts, among: Sequence[int] | None = None) -> HeldChoices:
    """The held sets of the problem, or those ``among`` them; of those that earn and leave the same, the first."""
    held_sets, initial = HeldSets.of(facts.problem), facts.initial_held
    index = _allowed(facts, held_sets, initial)
    if among is not None:
        index = index[np.isin(index, among)]
    columns = held_sets.columns(facts.gains)[index]
    kept = columns if initial is None else held_sets.columns(facts.gains, initial)[index]
    patterns = [np.unique(kept[:, m] << 32 | columns[:, m], return_inverse=True) for m in range(columns.shape[1])]
    borders = _borders(facts)
    rooms, room_of_layout, free = _rooms(facts, held_sets.table, borders, initial)
    rows = [*(inverse.reshape(-1) for _, inverse in patterns), room_of_layout[held_sets.layout[index]]]
    distinct, first, inverse = np.unique(np.column_stack(rows), axis=0, return_index=True, return_inverse=True)
    row = np.full(len(held_sets), -1, dtype=np.int64)
    row[index] = inverse.reshape(-1)
    gains = [_gains(facts, m, codes >> 32, codes & 0xFFFFFFFF) for m, (codes, _) in enumerate(patterns)]
    layouts = FixedLayouts(
        facts=facts,
        borders=borders,
        by_end=tuple(_by_end(facts, m, own) for m, own in enumerate(gains)),
        by_way={way: v for m, own in enumerate(gains) for way, v in values_by_way(facts, m, own).items()},
        holdings=distinct[:, :-1],
        room=distinct[:, -1],
        rooms=rooms,
    )
    return HeldChoices(layouts, held_sets, index[first], row, free)


def _allowed(facts: WindowFacts, held_sets: HeldSets, initial: Entries | None) -> Int64s:
    """The held sets that fit beside what is taken; the initial one alone if none may follow it."""
    if initial is not None and facts.first_step == facts.n_steps:
        found = [index for index in range(len(held_sets)) if held_sets.entries(index) == initial]
        return np.array(found, dtype=np.int64)
    busy = [placement for retraining, placement in facts.running if retraining.end_step > facts.first_step]
    mask = facts.problem.unavailable_in(facts.first_step, facts.n_steps)
    table = held_sets.table
    fits = table.fits_beside(facts.problem.gpu, busy) & (table.memory & mask == 0)
    return np.flatnonzero(fits[held_sets.layout])


def _borders(facts: WindowFacts) -> tuple[int, ...]:
    ends = {retraining.end_step for retraining, _ in facts.running}
    first = set() if facts.is_free else {facts.first_step}
    changes = {begin for begin, _, _ in facts.problem.unavailable_spans}
    return tuple(step for step in sorted(changes | ends | first) if step < facts.n_steps)


def _rooms(
    facts: WindowFacts, table: LayoutTable, borders: tuple[int, ...], initial: Entries | None
) -> tuple[tuple[Room[Placement], ...], Int64s, tuple[tuple[Placement, ...], ...]]:
    """The rooms that differ; by layout, which of them it leaves, and its own placements in the room's order."""
    retrains_on = {retraining.profile for choices in facts.choices for retraining in choices if retraining is not None}
    names = [name for name in facts.problem.profile_names if name in retrains_on]
    tokens = facts.problem.gpu.placements(names)
    masks = [facts.problem.unavailable_in(begin, begin + 1) for begin in borders]
    own: list[tuple[Placement, ...]] = []
    rooms: list[Room[Placement]] = []
    number: dict[object, int] = {}
    room_of: list[int] = []
    counts = table.counts(facts.problem.profile_names).tolist()
    free = _fits_alone(facts, table, tokens, borders, initial).tolist()
    for layout, held, beside in zip(table.layouts, counts, free, strict=True):
        ever = {token: tuple(stretches) for token, stretches in zip(tokens, beside, strict=True) if any(stretches)}
        key = (_shape(ever), tuple(held))
        if key not in number:
            number[key] = len(rooms)
            by_profile = {name: tuple(t for t in ever if t.profile.name == name) for name in names}
            fits = _fits(facts.problem.gpu, [_base(facts, layout, begin, initial) for begin in borders], masks)
            rooms.append(Room(by_profile, fits))
        room_of.append(number[key])
        own.append(tuple(ever))
    return tuple(rooms), np.array(room_of, dtype=np.int64), tuple(own)


def _fits_alone(
    facts: WindowFacts,
    table: LayoutTable,
    tokens: Sequence[Placement],
    borders: tuple[int, ...],
    initial: Entries | None,
) -> Bools:
    """What ``fits`` of a layout's room says of single tokens, ``(n_layouts, n_tokens, n_borders)``."""
    gpu, nothing = facts.problem.gpu, Layout(())
    out = np.zeros((len(table.layouts), len(tokens), len(borders)), dtype=np.bool_)
    for (column, token), (stretch, begin) in product(enumerate(tokens), enumerate(borders)):
        if token.memory_mask & facts.problem.unavailable_in(begin, begin + 1):
            continue
        busy = (*_base(facts, nothing, begin, initial), token)
        is_initial = initial is not None and begin < facts.first_step
        out[:, column, stretch] = gpu.fits(busy) if is_initial else table.fits_beside(gpu, busy)
    return out


def _shape(free: Mapping[Placement, tuple[bool, ...]]) -> tuple[object, ...]:
    """What is the same for rooms that differ only in where on the GPU they lie, given the counts beside them."""
    slices = sorted({at for token in free for at in range(token.start, token.end)})
    rank = {at: number for number, at in enumerate(slices)}
    return tuple((t.profile.name, rank[t.start], rank[t.end - 1], stretches) for t, stretches in free.items())


def _base(facts: WindowFacts, layout: Layout, begin: int, initial: Entries | None) -> tuple[Placement, ...]:
    """What is taken in the stretch that begins at ``begin``: the held set and the retrainings in progress."""
    held = layout.placements
    if initial is not None and begin < facts.first_step:
        held = tuple(placement for placement, _ in initial)
    return (*held, *(placement for retraining, placement in facts.running if begin < retraining.end_step))


def _fits(
    gpu: GpuModel, bases: Sequence[tuple[Placement, ...]], masks: Sequence[int]
) -> Callable[[int, tuple[Placement, ...]], bool]:
    """Whether placements fit beside what is taken in a stretch, and lie on memory slices that are ours in it."""
    known: dict[tuple[int, tuple[Placement, ...]], bool] = {}

    def fits(stretch: int, tokens: tuple[Placement, ...]) -> bool:
        key = (stretch, tokens)
        if key not in known:
            is_ours = not masks[stretch] or not any(token.memory_mask & masks[stretch] for token in tokens)
            known[key] = is_ours and gpu.fits((*bases[stretch], *tokens))
        return known[key]

    return fits


def _gains(facts: WindowFacts, m: int, kept: Int64s, held: Int64s) -> Floats:
    """By level and step, for pairs of columns: what is kept through the epoch, and what is held after it."""
    steady, first = facts.gains[m].steady, facts.first_step
    warm = first if facts.is_free else min(first + int(facts.warm_steps[m]), facts.n_steps)
    initial = steady[:, np.arange(first), facts.initial_columns[:, m]]
    parts = [np.repeat(initial[:, :, None], len(held), axis=2), steady[:, first:warm, kept], steady[:, warm:, held]]
    gains: Floats = np.concatenate(parts, axis=1)
    for retraining, _ in facts.running:
        if retraining.tenant == m:
            gains[0] = facts.along(retraining, gains)
    return gains


def _by_end(facts: WindowFacts, m: int, gains: Floats) -> Floats:
    """See :class:`FixedLayouts`."""
    earned = np.concatenate([np.zeros_like(gains[:, :1]), np.cumsum(gains, axis=1)], axis=1)
    values = earned[:1] + earned[:, -1:] - earned
    salvages = np.array(facts.problem.tenants[m].salvages)
    if m in facts.running_tenants:
        salvages[0] = salvages[1]
    values[: len(salvages)] += salvages[:, None, None]
    return np.ascontiguousarray(np.moveaxis(values, 1, 2))
