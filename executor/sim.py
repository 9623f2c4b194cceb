"""The simulated GPU: a real driver's rules, errors and times, on any ``Clock``.

It keeps its own table of which instance holds which memory slice and never asks ``GpuModel.fits``, so
an error of the geometry shows up here instead of being repeated. Times come from the profiles, one driver call
after the other. Like a driver, it hands out ids that cannot be predicted from placements.
"""

from __future__ import annotations

import random
import uuid

from executor.clock import Clock
from executor.errors import InstanceNotFoundError, InsufficientResourcesError, InUseError, InvalidArgumentError
from executor.gpu import GpuInstance
from executor.mig import GpuModel, Placement, Profile


class SimGpu:
    """A ``Gpu`` that exists in memory only; ``backend`` says so wherever it is reported.

    A GPU instance holds its memory slices, and is listed, from the moment its creation starts until
    its destruction ends. A call that is refused takes no time beyond waiting for its turn. For one thread.

    Attributes:
        backend: Always ``sim``.
    """

    backend = "sim"

    def __init__(self, model: GpuModel, clock: Clock, *, seed: int = 0, index: int = 0) -> None:
        """An empty GPU; ``seed`` decides the ids and UUIDs alone."""
        self._model = model
        self._clock = clock
        self._index = index
        self._random = random.Random(seed)  # noqa: S311 - ids of a simulation, no secrets
        self._instances: dict[int, GpuInstance] = {}
        self._clients: dict[int, set[str]] = {}
        self._driver_free_s = clock.now_s

    def __repr__(self) -> str:
        standing = " ".join(str(gpu_instance.placement) for gpu_instance in self.instances()) or "(empty)"
        return f"SimGpu({self._model.name}, index={self._index}: {standing})"

    @property
    def model(self) -> GpuModel:
        """What the GPU can be cut into."""
        return self._model

    @property
    def index(self) -> int:
        """The GPU's number."""
        return self._index

    def instances(self) -> tuple[GpuInstance, ...]:
        """All GPU instances, sorted by placement; takes no time."""
        return tuple(sorted(self._instances.values(), key=lambda gpu_instance: gpu_instance.placement.sort_key))

    def create(self, placement: Placement) -> GpuInstance:
        """The GPU instance now standing at ``placement``, after the profile's ``create_s``.

        Raises:
            InsufficientResourcesError: A memory slice is taken, naming the holder, or none of the
                profile, or too few compute slices, are left.
            InvalidArgumentError: The GPU model has no such profile or start.
        """
        start_s = self._wait_for_driver()
        profile = self._own_profile(placement)
        self._check_room(placement, profile)
        created = GpuInstance(self._new_gi_id(), Placement(profile, placement.start), self._new_uuid())
        self._instances[created.gi_id] = created
        self._clients[created.gi_id] = set()
        self._keep_driver_busy(start_s, profile.create_s)
        return created

    def destroy(self, gi_id: int) -> None:
        """The GPU instance is gone, after its profile's ``destroy_s``.

        Raises:
            InUseError: Clients are attached, naming them.
            InstanceNotFoundError: There is no GPU instance of this id.
        """
        start_s = self._wait_for_driver()
        prefix = f"Unable to destroy GPU instance ID {gi_id:>2} from GPU {self._index:>2}"
        placement = self._found(gi_id, prefix).placement
        if self._clients[gi_id]:
            clients = ", ".join(sorted(self._clients[gi_id]))
            raise InUseError(f"{prefix}: In use by another client ({placement} is held by {clients})")
        self._keep_driver_busy(start_s, placement.profile.destroy_s)
        del self._instances[gi_id], self._clients[gi_id]

    def make_whole(self, gi_id: int) -> GpuInstance:
        """The GPU instance as it is: a simulated one always has its compute instance.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
        """
        return self._found(gi_id, f"there is no GPU instance ID {gi_id:>2} on GPU {self._index:>2}")

    def processes(self) -> dict[int, tuple[int, ...]]:
        """None: clients of a simulated GPU are no processes."""
        return {}

    def attach(self, gi_id: int, client: str) -> None:
        """The process called ``client`` runs in the GPU instance, which cannot be destroyed meanwhile.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
            InvalidArgumentError: The client is attached already.
        """
        prefix = f"Unable to attach {client} to GPU instance ID {gi_id:>2} on GPU {self._index:>2}"
        self._found(gi_id, prefix)
        if client in self._clients[gi_id]:
            raise InvalidArgumentError(f"{prefix}: Invalid Argument (it is attached already)")
        self._clients[gi_id].add(client)

    def detach(self, gi_id: int, client: str) -> None:
        """The process called ``client`` has left the GPU instance.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
            InvalidArgumentError: The client is not attached.
        """
        prefix = f"Unable to detach {client} from GPU instance ID {gi_id:>2} on GPU {self._index:>2}"
        self._found(gi_id, prefix)
        if client not in self._clients[gi_id]:
            attached = ", ".join(sorted(self._clients[gi_id])) or "none"
            raise InvalidArgumentError(f"{prefix}: Invalid Argument (attached clients: {attached})")
        self._clients[gi_id].remove(client)

    def _wait_for_driver(self) -> float:
        """Wait until the driver is free for this call, and return that time."""
        start_s = max(self._clock.now_s, self._driver_free_s)
        self._clock.sleep_until(start_s)
        return start_s

    def _keep_driver_busy(self, start_s: float, duration_s: float) -> None:
        # Booked before the wait, so that a caller that comes meanwhile queues behind this call.
        self._driver_free_s = start_s + duration_s
        self._clock.sleep_until(self._driver_free_s)

    def _own_profile(self, placement: Placement) -> Profile:
        """The GPU model's own profile: one of the same name on another model has other times and starts."""
        for profile in self._model.profiles:
            if profile == placement.profile and placement.start in profile.starts:
                return profile
        raise InvalidArgumentError(
            f"{self._unable_to_create(placement.profile)}: Invalid Argument "
            f"({self._model.name} has no placement {placement})"
        )

    def _check_room(self, placement: Placement, profile: Profile) -> None:
        standing = [gpu_instance.placement.profile for gpu_instance in self._instances.values()]
        first_taken = min(
            (
                (max(placement.start, other.placement.start), other.gi_id)
                for other in self._instances.values()
                if other.placement.start < placement.end and placement.start < other.placement.end
            ),
            default=None,
        )
        compute_left = self._model.compute_slices - sum(held.compute_slices for held in standing)
        if first_taken is not None:
            reason = f"memory slice {first_taken[0]} is held by GPU instance ID {first_taken[1]:>2}"
        elif profile.compute_slices > compute_left:
            reason = f"{compute_left} compute slices are left"
        elif standing.count(profile) >= profile.max_instances:
            reason = f"at most {profile.max_instances} {profile} at once"
        else:
            return
        raise InsufficientResourcesError(
            f"{self._unable_to_create(profile)}: Insufficient Resources ({placement}: {reason})"
        )

    def _unable_to_create(self, profile: Profile) -> str:
        return f"Unable to create a GPU instance on GPU {self._index:>2} using profile {profile.gi_profile_id}"

    def _found(self, gi_id: int, prefix: str) -> GpuInstance:
        try:
            return self._instances[gi_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self._instances))) or "none"
            raise InstanceNotFoundError(f"{prefix}: Not Found (GPU instance IDs: {known})") from None

    def _new_gi_id(self) -> int:
        # Small numbers that recur, as a driver's do: a stale id soon names another instance.
        unused = [gi_id for gi_id in range(2 * self._model.memory_slices) if gi_id not in self._instances]
        return self._random.choice(unused)

    def _new_uuid(self) -> str:
        return f"MIG-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"
