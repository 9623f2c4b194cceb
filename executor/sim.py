"""The simulated GPU: a real driver's rules, errors and times, on any ``Clock``, and if asked for its whims.

It keeps its own table of which instance holds which memory slice and never asks ``GpuModel.fits``, so
an error of the geometry shows up here instead of being repeated. Times come from the profiles, one driver call
after the other. Like a driver, it hands out ids that cannot be predicted from placements.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from executor.clock import Clock
from executor.errors import (
    DriverError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    RetryableGpuError,
)
from executor.gpu import GpuInstance, PartialChangeError, own_placement, unable_to_create
from executor.mig import GpuModel, Placement

_COMPUTE_INSTANCE = 0.1
"""A compute instance alone takes this share of its GPU instance's time; assumed, as in the stand-in for the driver."""

_REFUSED = 0.5
"""A call that a fault hits takes this share of its time; assumed."""

_FIRST_PID = 100_001
"""Pretended processes have ids from here on."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often the driver refuses what it could do; by default never.

    Attributes:
        error_share: Of the calls that change something, those refused for no reason that the driver names.
        in_use_share: Of the instances, those that will not go when they are first asked to, though no process is there:
            real drivers do so while a neighbour is busy.
        in_use_s: How long such an instance refuses, from the first attempt on.
        half_share: Of the refusals above, those that come too late: a creation leaves the GPU instance without its
            compute instance, a destruction has taken the compute instance alone.
    """

    error_share: float = 0.0
    in_use_share: float = 0.0
    in_use_s: float = 5.0
    half_share: float = 0.25


@dataclass(frozen=True, slots=True)
class OthersInstance:
    """An instance that others put on the GPU, with a process in it, and take away.

    Attributes:
        placement: Where.
        from_s: When it comes, by the GPU's clock; if there is no room then, as soon as there is.
        to_s: When it goes, or gives up waiting for room.
    """

    placement: Placement
    from_s: float = -math.inf
    to_s: float = math.inf


class SimGpu:
    """A ``Gpu`` that exists in memory only; ``backend`` says so wherever it is reported.

    A GPU instance holds its memory slices, and is listed, from the moment its creation starts until
    its destruction ends. A call that is refused takes no time beyond waiting for its turn, or half of its time
    where a fault refuses it. Others' instances come and go as the clock is seen to have passed their moments, which
    is whenever the GPU is asked something. For one thread.

    Attributes:
        backend: Always ``sim``.
        model: What the GPU can be cut into.
        index: The GPU's number.
    """

    backend = "sim"

    def __init__(
        self,
        model: GpuModel,
        clock: Clock,
        *,
        seed: int = 0,
        index: int = 0,
        faults: Faults = Faults(),
        others: Sequence[OthersInstance] = (),
    ) -> None:
        """A GPU that is empty but for ``others``; ``seed`` decides ids and UUIDs and, apart from them, the faults.

        Raises:
            InvalidArgumentError: The GPU model has no such placement as one of ``others``.
        """
        self.model = model
        self._clock = clock
        self.index = index
        self._random = random.Random(seed)  # noqa: S311 - ids of a simulation, no secrets
        self._faults = faults
        self._luck = random.Random(f"faults {seed}")  # noqa: S311 - nor here
        self._instances: dict[int, GpuInstance] = {}
        self._clients: dict[int, set[str]] = {}
        self._refuses_until_s: dict[int, float] = {}
        own = (replace(other, placement=own_placement(self, other.placement)) for other in others)
        self._to_come = sorted(own, key=lambda other: (other.from_s, other.placement.sort_key))
        self._others: dict[int, tuple[OthersInstance, int]] = {}
        self._next_pid = _FIRST_PID
        self._driver_free_s = clock.now_s

    def __repr__(self) -> str:
        standing = " ".join(str(gpu_instance.placement) for gpu_instance in self._sorted()) or "(empty)"
        return f"SimGpu({self.model.name}, index={self.index}: {standing})"

    def instances(self) -> tuple[GpuInstance, ...]:
        """All GPU instances, others' included, sorted by placement; takes no time."""
        self._let_others_come_and_go()
        return self._sorted()

    def create(self, placement: Placement) -> GpuInstance:
        """The GPU instance now standing at ``placement``, after the profile's ``create_s``.

        Raises:
            InsufficientResourcesError: A memory slice is taken, naming the holder, or none of the
                profile, or too few compute slices, are left.
            InvalidArgumentError: The GPU model has no such profile or start.
            DriverError: By a fault.
            PartialChangeError: By a fault: it is left without its compute instance.
        """
        start_s = self._wait_for_driver()
        own = own_placement(self, placement)
        profile, what = own.profile, unable_to_create(self, own.profile)
        if (obstacle := self._obstacle(own)) is not None:
            raise InsufficientResourcesError(f"{what}: Insufficient Resources ({own}: {obstacle})")
        if self._is_hit(self._faults.error_share):
            half = self._put(own, is_whole=False) if self._is_hit(self._faults.half_share) else None
            self._keep_driver_busy(start_s, profile.create_s * _REFUSED)
            raise _refusal(DriverError, f"{what}: Unknown Error", half)
        created = self._put(own)
        self._keep_driver_busy(start_s, profile.create_s)
        return created

    def destroy(self, gi_id: int) -> None:
        """The GPU instance is gone, after its profile's ``destroy_s``.

        Raises:
            InUseError: Clients are attached, naming them; or by a fault, though no process is there.
            InstanceNotFoundError: There is no GPU instance of this id.
            DriverError: By a fault.
            PartialChangeError: By a fault: it is left without its compute instance.
        """
        start_s = self._wait_for_driver()
        prefix = f"Unable to destroy GPU instance ID {gi_id:>2} from GPU {self.index:>2}"
        instance = self._found(gi_id, prefix)
        if self._clients[gi_id]:
            clients = ", ".join(sorted(self._clients[gi_id]))
            raise InUseError(f"{prefix}: In use by another client ({instance.placement} is held by {clients})")
        destroy_s = instance.placement.profile.destroy_s
        refusal = self._refused_destruction(instance, prefix)
        if refusal is not None:
            self._keep_driver_busy(start_s, destroy_s * _REFUSED)
            raise refusal
        self._keep_driver_busy(start_s, destroy_s)
        self._drop(gi_id)

    def make_whole(self, gi_id: int) -> GpuInstance:
        """The GPU instance with a compute instance, made anew in a tenth of ``create_s`` where it had none.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
            DriverError: By a fault; nothing has changed.
        """
        start_s = self._wait_for_driver()
        instance = self._found(gi_id, f"there is no GPU instance ID {gi_id:>2} on GPU {self.index:>2}")
        if instance.is_whole:
            return instance
        duration_s = instance.placement.profile.create_s * _COMPUTE_INSTANCE
        if self._is_hit(self._faults.error_share):
            self._keep_driver_busy(start_s, duration_s * _REFUSED)
            raise DriverError(f"Unable to create a compute instance in GPU instance ID {gi_id:>2}: Unknown Error")
        made = self._instances[gi_id] = replace(instance, uuid=self._new_uuid())
        self._keep_driver_busy(start_s, duration_s)
        return made

    def reset(self) -> None:
        """Every instance is gone at once, others' too, and their processes: as after ``nvidia-smi --gpu-reset``."""
        for gi_id in list(self._instances):
            self._drop(gi_id)

    def check(self) -> None:
        """Nothing: a simulated GPU always answers, and is in MIG mode."""

    def changed(self) -> bool:
        """Always true: a look costs nothing here."""
        return True

    def processes(self) -> dict[int, tuple[int, ...]]:
        """The pretended processes in others' instances, by id; clients of ours are no processes."""
        self._let_others_come_and_go()
        return {gi_id: (pid,) for gi_id, (_, pid) in self._others.items()}

    def attach(self, gi_id: int, client: str) -> None:
        """The process called ``client`` runs in the GPU instance, which cannot be destroyed meanwhile.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
            InvalidArgumentError: The client is attached already, or there is no compute instance to run in.
        """
        prefix = f"Unable to attach {client} to GPU instance ID {gi_id:>2} on GPU {self.index:>2}"
        if not self._found(gi_id, prefix).is_whole:
            raise InvalidArgumentError(f"{prefix}: Invalid Argument (it has no compute instance)")
        if client in self._clients[gi_id]:
            raise InvalidArgumentError(f"{prefix}: Invalid Argument (it is attached already)")
        self._clients[gi_id].add(client)

    def detach(self, gi_id: int, client: str) -> None:
        """The process called ``client`` has left the GPU instance.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
            InvalidArgumentError: The client is not attached.
        """
        prefix = f"Unable to detach {client} from GPU instance ID {gi_id:>2} on GPU {self.index:>2}"
        self._found(gi_id, prefix)
        if client not in self._clients[gi_id]:
            attached = ", ".join(sorted(self._clients[gi_id])) or "none"
            raise InvalidArgumentError(f"{prefix}: Invalid Argument (attached clients: {attached})")
        self._clients[gi_id].remove(client)

    def _wait_for_driver(self) -> float:
        """Wait until the driver is free for this call, and return that time."""
        start_s = max(self._clock.now_s, self._driver_free_s)
        self._clock.sleep_until(start_s)
        self._let_others_come_and_go()
        return start_s

    def _keep_driver_busy(self, start_s: float, duration_s: float) -> None:
        # Booked before the wait, so that a caller that comes meanwhile queues behind this call.
        self._driver_free_s = start_s + duration_s
        self._clock.sleep_until(self._driver_free_s)

    def _obstacle(self, placement: Placement) -> str | None:
        """Why there is no room for the placement; ``None`` if there is."""
        profile = placement.profile
        standing = [gpu_instance.placement.profile for gpu_instance in self._instances.values()]
        first_taken = min(
            (
                (max(placement.start, other.placement.start), other.gi_id)
                for other in self._instances.values()
                if other.placement.start < placement.end and placement.start < other.placement.end
            ),
            default=None,
        )
        compute_left = self.model.compute_slices - sum(held.compute_slices for held in standing)
        if first_taken is not None:
            return f"memory slice {first_taken[0]} is held by GPU instance ID {first_taken[1]:>2}"
        if profile.compute_slices > compute_left:
            return f"{compute_left} compute slices are left"
        if standing.count(profile) >= profile.max_instances:
            return f"at most {profile.max_instances} {profile} at once"
        return None

    def _let_others_come_and_go(self) -> None:
        now_s = self._clock.now_s
        for gi_id in [gi_id for gi_id, (other, _) in self._others.items() if other.to_s <= now_s]:
            self._drop(gi_id)
        waiting = []
        for other in self._to_come:
            if other.to_s <= now_s:
                continue
            if other.from_s > now_s or self._obstacle(other.placement) is not None:
                waiting.append(other)
            else:
                self._put_for_others(other)
        self._to_come = waiting

    def _put_for_others(self, other: OthersInstance) -> None:
        gi_id = self._put(other.placement).gi_id
        self._clients[gi_id].add(f"process {self._next_pid}")
        self._others[gi_id] = other, self._next_pid
        self._next_pid += 1

    def _put(self, placement: Placement, *, is_whole: bool = True) -> GpuInstance:
        made = GpuInstance(self._new_gi_id(), placement, self._new_uuid() if is_whole else "")
        self._instances[made.gi_id] = made
        self._clients[made.gi_id] = set()
        return made

    def _drop(self, gi_id: int) -> None:
        del self._instances[gi_id], self._clients[gi_id]
        self._refuses_until_s.pop(gi_id, None)
        self._others.pop(gi_id, None)

    def _is_hit(self, share: float) -> bool:
        return self._luck.random() < share

    def _refused_destruction(self, instance: GpuInstance, prefix: str) -> RetryableGpuError | None:
        """Why a fault refuses the destruction, which may already have taken the compute instance."""
        gi_id = instance.gi_id
        if gi_id not in self._refuses_until_s:  # it was never asked to go before
            lasts_s = self._faults.in_use_s if self._is_hit(self._faults.in_use_share) else -math.inf
            self._refuses_until_s[gi_id] = self._clock.now_s + lasts_s
        is_in_use = self._clock.now_s < self._refuses_until_s[gi_id]
        if not is_in_use and not self._is_hit(self._faults.error_share):
            return None
        half = None
        if instance.is_whole and self._is_hit(self._faults.half_share):
            half = self._instances[gi_id] = replace(instance, uuid="")
        if is_in_use:
            return _refusal(InUseError, f"{prefix}: In use by another client", half)
        return _refusal(DriverError, f"{prefix}: Unknown Error", half)

    def _sorted(self) -> tuple[GpuInstance, ...]:
        return tuple(sorted(self._instances.values(), key=lambda gpu_instance: gpu_instance.placement.sort_key))

    def _found(self, gi_id: int, prefix: str) -> GpuInstance:
        try:
            return self._instances[gi_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self._instances))) or "none"
            raise InstanceNotFoundError(f"{prefix}: Not Found (GPU instance IDs: {known})") from None

    def _new_gi_id(self) -> int:
        # Small numbers that recur, as a driver's do: a stale id soon names another instance.
        unused = [gi_id for gi_id in range(2 * self.model.memory_slices) if gi_id not in self._instances]
        return self._random.choice(unused)

    def _new_uuid(self) -> str:
        return f"MIG-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"


def _refusal(kind: type[RetryableGpuError], message: str, half: GpuInstance | None) -> RetryableGpuError:
    if half is None:
        return kind(message)
    message = f"{message}; {half.placement} is left without its compute instance"
    return PartialChangeError(message, half, retry_after_s=kind.RETRY_AFTER_S)
