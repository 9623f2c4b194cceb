"""What a service does at an order: each kind has one place here.

An order is refused before anything of it is done, by raising; its answer is in the log before anything else is.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path
from typing import Any

from executor.driver import DriverGpu
from migrator.config.changing import changes_of, in_words, require_layout
from migrator.config.reading import config_yaml
from migrator.errors import ConfigError, MigratorError
from migrator.execution.live.learning import LiveModels, learned_in
from migrator.execution.live.site import Site
from migrator.execution.live.workers import LiveWorkers
from migrator.execution.parts import Shown, Told
from migrator.execution.tenancies import Tenancy
from migrator.inputs.arrival_store import ARRIVALS, ArrivalStore
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.assembly import assemble_run
from migrator.inputs.in_force import config_in, given_in, order_of, service_of
from migrator.inputs.pools import as_shared, without_turns
from migrator.inputs.setting import Setting
from migrator.log.orders import AnyOrder, Order, Orders, Reload, Rollback
from migrator.log.records import OrderRefused, Reloaded, RolledBack, Wall
from migrator.log.runlog import TIME_DIGITS, bytes_of_log, log_in
from migrator.log.weights import Served
from migrator.terminal.console import warn
from planner.policies.policy import AnyPolicy

Doing = Callable[[Any, str | None], Generator[Told | None, None, None]]
"""Does an order of one kind, which goes by this name; yields its answer first.

Before that it may yield ``None``: it waits for something, and is asked again. It raises :class:`MigratorError` before
its answer where the order is refused.
"""


class Attending:
    """As :attr:`migrator.execution.parts.Parts.attend`."""

    def __init__(
        self, run: Path, doing: Mapping[type[Order], Doing], later: Callable[[], Iterable[Told]] = lambda: ()
    ) -> None:
        """``doing`` has every kind of order; ``run`` is the run's folder; what orders led to ``later`` is told, too."""
        self._run, self._doing, self._orders, self._later = run, doing, Orders(run), later
        self._waiting: list[tuple[str | None, Order, Generator[Told | None, None, None]]] = []

    def __call__(self, asks_anew: bool) -> Iterator[Told]:
        """Do what lies there, oldest first; of several configs the newest."""
        found: list[tuple[str | None, AnyOrder | MigratorError]] = [*self._orders.taken()]
        if asks_anew:
            found.append((None, self._file_again()))
        waiting, self._waiting = self._waiting, []
        orders = [*(order for _, order, _ in waiting), *(order for _, order in found)]
        newest = max((n for n, order in enumerate(orders) if isinstance(order, Reload)), default=0)
        for n, (name, order, doing) in enumerate(waiting):
            if isinstance(order, Reload) and n < newest:
                doing.close()
                yield _refused(order, name, NEWER)
            else:
                yield from self._go_on(name, order, doing)
        for n, (name, given) in enumerate(found, len(waiting)):
            if isinstance(given, Reload) and n < newest:
                yield _refused(given, name, NEWER)
            elif isinstance(given, Order):
                yield from self._go_on(name, given, self._doing[type(given)](given, name))
            else:
                yield OrderRefused(order=name, what="", reason=str(given)), Wall()
        yield from self._later()

    def _go_on(self, name: str | None, order: Order, doing: Generator[Told | None, None, None]) -> Iterator[Told]:
        try:
            answer = next(doing)
        except MigratorError as error:
            yield _refused(order, name, str(error))
            return
        if answer is None:
            self._waiting.append((name, order, doing))
            return
        yield answer
        yield from (one for one in doing if one is not None)

    def _file_again(self) -> AnyOrder | MigratorError:
        """The file that the log names, as it is now."""
        try:
            given = given_in(log_in(bytes_of_log(self._run), self._run))
            if given is None:
                return ConfigError("the log names no file to read anew")
            return order_of(*given)[1]
        except MigratorError as error:
            return error


NEWER = "a newer one came"
"""Why of several configs the older ones are refused."""


def _refused(order: Order, name: str | None, reason: str) -> Told:
    return OrderRefused(order=name, what=order.kind, reason=reason), Wall()


class RollingBack:
    """Has a tenant's older weights serve again."""

    def __init__(self, run: Path, clock: Shown, models: LiveModels, workers: LiveWorkers) -> None:
        self._run, self._clock, self._models, self._workers = run, clock, models, workers
        self._failed: list[Told] = []
        self._unloadable: set[tuple[str, str]] = set()

    def __call__(self, order: Rollback, name: str | None) -> Generator[Told, None, None]:
        """As :data:`Doing`.

        Raises:
            MigratorError: There is no such tenant, or it has no such weights; or others are being taken over, or stay.
        """
        served = self._models.older(order.tenant, order.version)
        if (pinned := self._models.pinned(order.tenant)) is not None:
            raise MigratorError(f"tenants.{order.tenant}.pin.weights is {pinned}: change it, and reload")
        if self._workers.is_swapping(order.tenant):
            raise MigratorError(f"{order.tenant}: other weights are being taken over; give the order again")
        yield from self._serve(order.tenant, served, name)

    def later(self) -> Iterator[Told]:
        """What could not be loaded since, so that what was there before serves again; and what is pinned and did not.

        A pin whose weights no worker could load is left until another one has come.
        """
        while self._failed:
            yield self._failed.pop(0)
        pins = {(entry.name, entry.pin.weights) for entry in self._models.config.tenants if entry.pin.weights}
        self._unloadable &= pins
        for tenant, version in sorted(pins - self._unloadable):
            if self._models.served(tenant).version != version and not self._workers.is_swapping(tenant):
                try:
                    served = self._models.older(tenant, version)
                except MigratorError as error:  # its file was deleted
                    warn(str(error))
                    self._unloadable.add((tenant, version))
                    continue
                yield from self._serve(tenant, served, None)

    def _serve(self, tenant: str, served: Served, order: str | None) -> Iterator[Told]:
        """Once the log has it, have other weights serve."""
        before = self._models.served(tenant)
        record, wall = self._told(tenant, served, before, order)
        yield record, wall
        self._models.roll_back(tenant, served, record.served_s)
        self._workers.roll_back(tenant, served, before, lambda: self._fail(tenant, served, before))

    def _fail(self, tenant: str, served: Served, before: Served) -> None:
        warn(f"{tenant}: {served.version} cannot be loaded, so that {before.version} answers again")
        self._unloadable.add((tenant, served.version))
        record, wall = self._told(tenant, before, served, None)
        self._models.roll_back(tenant, before, record.served_s)
        self._failed.append((record, wall))

    def _told(self, tenant: str, served: Served, before: Served, order: str | None) -> tuple[RolledBack, Wall]:
        """What the log has of it."""
        record = RolledBack(
            order=order,
            served_s=round(self._clock.now_s, TIME_DIGITS),
            tenant=tenant,
            version=served.version,
            before=before.version,
            weights=os.path.relpath(served.file, self._run) if served.file is not None else "",
            accuracy=served.accuracy,
            learned=learned_in(served.version),
        )
        return record, Wall()


@dataclass(frozen=True, eq=False)
class Serving:
    """What a service that takes up another config has at hand.

    Attributes:
        run: Its folder.
        gpu: Its GPU.
        policy: What decides.
        clock: The run's time.
        traffic: What its clients ask.
        models: What answers them.
        site: Its processes.
        coming: Where tenancies are put that are to begin.
        check: Refuses a setting that cannot be served live, by raising.
        door: The front door's setup for one, or raises.
    """

    run: Path
    gpu: DriverGpu
    policy: AnyPolicy
    clock: Shown
    traffic: LiveTraffic
    models: LiveModels
    site: Site
    coming: deque[Tenancy]
    check: Callable[[Setting], object]
    door: Callable[[Setting], str]


class Reloading:
    """Takes up another config, where only keys differ that may.

    Attributes:
        setting: The one in force, or about to be.
    """

    def __init__(self, serving: Serving, setting: Setting) -> None:
        self._serving, self.setting = serving, setting

    def __call__(self, order: Reload, name: str | None) -> Generator[Told | None, None, None]:
        """As :data:`Doing`; who comes is made ready before the answer.

        Raises:
            ConfigError: It cannot be used, or not while the service runs.
            InfeasibleError: There is no room for all tenants.
            LiveError: The model of one who comes cannot be made.
        """
        own, file = self._serving, order.file
        asked = without_turns(service_of(config_in(order.config, file), file), own.gpu.turns_by)
        store = ArrivalStore(own.run / ARRIVALS, [tenant.name for tenant in asked.tenants], warn)
        setting, traffic = assemble_run(asked, file, own.gpu.model, store)
        assert isinstance(traffic, LiveTraffic)
        changes = changes_of(self.setting.config, setting.config, file)
        is_of_set = any(change.is_of_set for change in changes)
        if any(change.is_of_plans for change in changes):
            require_layout(setting.config, changes, file)
            own.check(as_shared(setting, own.policy))
        own.models.require_versions(setting.config.tenants)
        there = {tenant.name for tenant in self.setting.tenants}
        yield from self._made_ready(setting, there)
        door, first = own.door(setting), own.door(_with_door_of(self.setting, setting)) if not is_of_set else None
        wall = Wall(config_file=file, assigned=order.assigned)
        yield Reloaded(order=name, config=config_yaml(setting.config, own.run), changes=in_words(changes)), wall
        self.setting = setting
        if first is not None:
            own.site.change_door(first)
        if any(change.is_of_plans for change in changes) or own.coming:
            own.coming.clear()  # the newest counts
            own.coming.append(self._tenancy(setting, traffic, store, door, is_of_set=is_of_set))

    def _made_ready(self, setting: Setting, there: Container[str]) -> Iterator[None]:
        """Make the models of who comes."""
        tenants = [tenant for tenant in setting.tenants if tenant.name not in there]
        entries = [entry for entry in setting.config.tenants if entry.name not in there]
        for are_there in self._serving.models.coming(entries, tenants) if tenants else ():
            if not are_there:
                yield None

    def _tenancy(
        self, setting: Setting, traffic: LiveTraffic, store: ArrivalStore, door: str, *, is_of_set: bool
    ) -> Tenancy:
        """A set of tenants that changes does so at once; what else plans depend on, with the next window."""
        own, window_s = self._serving, setting.config.window_s
        now_s = own.clock.now_s

        def begin() -> None:
            own.models.config = setting.config
            own.site.change_tenants([tenant.name for tenant in setting.tenants])
            own.traffic.change_tenants(traffic, store)
            own.site.change_door(door)

        from_s = now_s if is_of_set else (floor(now_s / window_s) + 1) * window_s
        return Tenancy(from_s, setting, own.traffic, begin)


def _with_door_of(before: Setting, after: Setting) -> Setting:
    """The tenants as they were, with the front door as it is to be."""
    config = before.config.model_copy(update={"front_door": after.config.front_door})
    return replace(before, config=config)
