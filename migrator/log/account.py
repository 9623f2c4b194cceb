"""Where the goodput goes: every request of a run in one of seven classes, by tenant and second, from the log alone.

A request that is not answered in time is *missed*. Of a second's misses

* **capacity** are those beyond what serving and changing instances together could have answered;
* **reconfiguration** are those between that and what serving instances could: what instances that start
  (from the creation until they serve) and stop (from their last batch until they are gone) would have answered;
* **forecast** is the part of these two that the same planner serves when it knows the arrivals;
* **queueing** are the others: bursts within the second, waits for a batch, requests carried over from the last; where
  tenants share instances, also waits for another one's turn, and :func:`waits_for_others` says how many.

Of those answered in time, **wrong_old** are wrong answers of the model as it was when the window began, and
**wrong_new** those of the model retrained in it; the rest is **goodput**. The second in which a
retraining ends counts as the old model's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from migrator.errors import LogError
from migrator.log.changes import Tenure, serving_instances
from migrator.log.records import Finished, Tenant, WindowStarted
from migrator.log.runlog import ReadLog
from workloads.arrays import FloatArray
from workloads.serving.tally import Added

PoolRates = Mapping[tuple[tuple[str, ...], str], Mapping[str, float]]
"""By a pool's members and a profile, what an instance would answer of each member if it served no other."""


@dataclass(frozen=True, eq=False)
class SecondAccounts:
    """One tenant's requests by the second of arrival and by class; all arrays ``(n_seconds,)``.

    In every second the classes add up to the arrivals.

    Attributes:
        arrivals: Requests.
        in_time: Those answered in time, right or wrong.
        goodput: In time and right.
        wrong_old: In time, wrong, by the model of the window's beginning.
        wrong_new: In time, wrong, by the retrained model.
        capacity: Missed for want of instances.
        reconfiguration: Missed while instances changed.
        queueing: Missed otherwise.
        forecast: Missed for not knowing the arrivals; 0 until ``with_forecast``.
    """

    arrivals: FloatArray
    in_time: FloatArray
    goodput: FloatArray
    wrong_old: FloatArray
    wrong_new: FloatArray
    capacity: FloatArray
    reconfiguration: FloatArray
    queueing: FloatArray
    forecast: FloatArray

    @property
    def total(self) -> Account:
        """Sums over the seconds."""
        return self.between(0, len(self.arrivals))

    def between(self, first: int, end: int) -> Account:
        """Sums over the seconds ``[first, end)``."""
        return Account(**{item.name: float(getattr(self, item.name)[first:end].sum()) for item in fields(Account)})

    def with_forecast(self, in_time_if_known: FloatArray) -> SecondAccounts:
        """With what would have been answered in time, ``(n_seconds,)``, had the planner known the arrivals.

        It is taken from ``capacity`` first, then from ``reconfiguration``.
        """
        would_be = np.maximum(0.0, in_time_if_known - self.in_time)
        from_capacity = np.minimum(self.capacity, would_be)
        from_changes = np.minimum(self.reconfiguration, would_be - from_capacity)
        return replace(
            self,
            capacity=self.capacity - from_capacity,
            reconfiguration=self.reconfiguration - from_changes,
            forecast=self.forecast + from_capacity + from_changes,
        )


@dataclass(frozen=True, slots=True)
class Account(Added):
    """Requests by class; they add up to the arrivals. Accounts add up with ``+``."""

    goodput: float = 0.0
    wrong_old: float = 0.0
    wrong_new: float = 0.0
    capacity: float = 0.0
    reconfiguration: float = 0.0
    forecast: float = 0.0
    queueing: float = 0.0

    @property
    def arrivals(self) -> float:
        """All classes together."""
        return float(sum(getattr(self, item.name) for item in fields(Account)))

    @property
    def shares(self) -> Mapping[str, float]:
        """Each class as a share of the arrivals; all 0 without any."""
        arrivals = self.arrivals
        return {item.name: getattr(self, item.name) / arrivals if arrivals else 0.0 for item in fields(Account)}


def accounts(log: ReadLog, first_s: int = 0, *, needs_labels: bool = True) -> dict[str, SecondAccounts]:
    """By tenant, the account of all seconds from ``first_s`` to the end of the last settled window; void ones are 0.

    Where nobody knows which answers are right, and no caller needs it, all in time are *goodput*.

    Raises:
        LogError: It is not known which answers are right, and needed.
    """
    if needs_labels and not all(closing.is_labelled for closing in log.settled.values()):
        raise LogError(f"{log.folder}: clients do not say which answers are right, so it is unknown where goodput went")
    instances = serving_instances(log)
    return {tenant.name: _account(log, tenant, instances[tenant.name], first_s) for tenant in log.header.tenants}


def _account(log: ReadLog, tenant: Tenant, instances: Sequence[Tenure], first_s: int) -> SecondAccounts:
    name, window_s = tenant.name, round(log.header.window_s)
    end_s = max(first_s, window_s * (1 + max(log.settled, default=-1)))
    starts_s = np.arange(first_s, end_s, dtype=np.float64)
    counts = partial(counts_of, log, name, n_seconds=len(starts_s), first_s=first_s)
    if log.header.sharing == "instances":
        serving, changing = could_serve(log, tenant, instances, starts_s)
    else:
        serving, changing = counts("could_serve"), counts("changing")
    is_new = np.zeros(len(starts_s), dtype=np.bool_)
    for ended in log.of(Finished):
        if ended.tenant == name and ended.rejected is None:
            first, end = np.searchsorted(starts_s, [ended.finish_s, (ended.window + 1) * window_s])
            is_new[first:end] = True
    in_time = counts("in_time")
    correct = counts("correct") if all(one.is_labelled for one in log.settled.values()) else in_time
    return second_accounts(counts("arrivals"), in_time, correct, serving, changing, is_new)


def counts_of(
    log: ReadLog, tenant: str, key: str, n_seconds: int, missing: float = 0.0, first_s: int = 0
) -> FloatArray:
    """What windows counted of a tenant by second, ``(n_seconds,)``; ``missing`` where nothing is known of it."""
    found, window_s = np.full(n_seconds, missing), round(log.header.window_s)
    for window, closing in log.settled.items():
        begin = window * window_s - first_s
        first, end = max(0, begin), max(0, min(begin + window_s, n_seconds))
        own = closing.tenants.get(tenant)
        values = None if own is None else getattr(own, key)
        found[first:end] = values[first - begin : end - begin] if values else missing
    return found


def waits_for_others(log: ReadLog, known: Mapping[str, SecondAccounts], first_s: int = 0) -> dict[str, FloatArray]:
    """By tenant, which of its *queueing* waited for another member of its pool, ``(n_seconds,)``.

    They are those beyond what its instances could have answered in the time that the others' turns left, and no more.
    ``known`` are the log's :func:`accounts` from ``first_s`` on. Empty where the log does not say what others had: in a
    live run, and where no tenants share.
    """
    if not any(counts.others_share for closing in log.settled.values() for counts in closing.tenants.values()):
        return {}
    instances, found = serving_instances(log), dict[str, FloatArray]()
    for tenant in log.header.tenants:
        own = known[tenant.name]
        n = len(own.arrivals)
        found[tenant.name] = shares = counts_of(log, tenant.name, "others_share", n, first_s=first_s)
        if shares.any():
            starts_s = np.arange(first_s, first_s + n, dtype=np.float64)
            could, _ = could_serve(log, tenant, instances[tenant.name], starts_s)
            beyond, beyond_left = (np.maximum(own.arrivals - one, 0.0) for one in (could, could * (1.0 - shares)))
            found[tenant.name] = np.minimum(beyond_left - beyond, own.queueing)
    return found


def account_in(log: ReadLog, known: Mapping[str, SecondAccounts], windows: Iterable[int]) -> Account:
    """All tenants' account over these windows, each of them settled."""
    window_s = round(log.header.window_s)
    each = (own.between(n * window_s, (n + 1) * window_s) for n in windows for own in known.values())
    return sum(each, Account())


def had_same_requests(log: ReadLog, rival: ReadLog) -> bool:
    """Whether the rival has settled all windows of the log, each with the same requests: none come in blind seconds."""
    return set(log.settled) <= set(rival.settled) and all(
        own.arrivals == rival.settled[window].tenants[name].arrivals
        for window, closing in log.settled.items()
        for name, own in closing.tenants.items()
    )


def _pool_rates_rps(log: ReadLog) -> PoolRates:
    """Those of all pools that windows were planned with."""
    pools = (pool for started in log.of(WindowStarted) for pool in started.pools)
    return {(pool.members, profile): rates for pool in pools for profile, rates in pool.capability_rps.items()}


def could_serve(
    log: ReadLog, tenant: Tenant, instances: Iterable[Tenure], starts_s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Requests that the tenant's instances could have answered in each second: those that serve, and that change.

    Seconds begin at ``starts_s``, ``(n_seconds,)``, ascending.

    An instance whose worker has failed does neither until the worker is ready again. One of a pool counts as if its
    turns were all the tenant's.
    """
    serving, changing, pools = np.zeros(len(starts_s)), np.zeros(len(starts_s)), _pool_rates_rps(log)
    for item in instances:
        if len(item.members) > 1:
            rate_rps = pools.get((item.members, item.profile), {}).get(tenant.name, 0.0)
        else:
            rate_rps = tenant.operating_points[item.profile].rate_rps
        for span_s in item.served:
            _add(serving, rate_rps, starts_s, *span_s)
        for span_s in ((item.begin_s, item.up_s), (item.end_s, item.gone_s)):
            _add(changing, rate_rps, starts_s, *span_s)
    return serving, changing


def _add(total: FloatArray, rate_rps: float, starts_s: FloatArray, begin_s: float, end_s: float) -> None:
    """Add what is served at this rate in [begin, end) to each second's total; others are not touched."""
    touched = slice(*np.searchsorted(starts_s, [begin_s - 1, end_s]).tolist())
    lasts_s = np.minimum(starts_s[touched] + 1, end_s) - np.maximum(starts_s[touched], begin_s)
    total[touched] += rate_rps * np.clip(lasts_s, 0.0, 1.0)


def second_accounts(
    arrivals: FloatArray,
    in_time: FloatArray,
    correct: FloatArray,
    serving: FloatArray,
    changing: FloatArray,
    is_new: NDArray[np.bool_],
) -> SecondAccounts:
    """One tenant's account, all ``(n_seconds,)``.

    ``serving`` and ``changing`` are the requests that could have been answered in each second by what served, and
    by what was starting or stopping; ``is_new`` says in which seconds the window's retrained model answered.
    """
    missed, wrong = arrivals - in_time, in_time - correct
    beyond_all, beyond_serving = (np.maximum(0.0, arrivals - could) for could in (serving + changing, serving))
    capacity = np.minimum(missed, beyond_all)
    reconfiguration = np.minimum(missed - capacity, beyond_serving - beyond_all)
    return SecondAccounts(
        arrivals=arrivals,
        in_time=in_time,
        goodput=correct,
        wrong_old=np.where(is_new, 0.0, wrong),
        wrong_new=np.where(is_new, wrong, 0.0),
        capacity=capacity,
        reconfiguration=reconfiguration,
        queueing=missed - capacity - reconfiguration,
        forecast=np.zeros(len(arrivals)),
    )
