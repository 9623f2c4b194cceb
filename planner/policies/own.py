"""Policies from files of one's own: loaded, asked, and answerable for what they raise or return.

Whatever goes wrong in such a file is a :class:`PolicyError`: one line with the file, the line in it, the policy, the
window, and what is wrong. What answers without an error but breaks a rule of the problem is another matter: that is
found by ``planner.verify``, and the layout is kept.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from executor.files import read_input
from planner.errors import PolicyError
from planner.plan import MigPlan
from planner.policies.answer import AnswerError, checked_answer, checked_plan, checked_shares
from planner.policies.policy import Knows, Policy, Traits, Window
from planner.policies.shares import Answer, Moment, SharePolicy, Shares, Switching
from planner.policies.turns import TurnPolicy
from planner.problem import Problem

ANSWER_LIMIT_S = 600.0
"""Wall seconds in which an answer is awaited; a policy that needs more has a ``limit_s`` of its own."""

Checked = TypeVar("Checked")


class _TooLong(BaseException):
    """An answer did not come; no ``Exception``, so that a policy that goes on whatever happens does not go on."""


@dataclass(frozen=True)
class _Origin:
    """The file that a policy comes from, and what to call both in a message."""

    path: Path
    policy: str | None = None

    def error(self, what: str, line: int | None = None, window: int | None = None) -> PolicyError:
        """What is wrong, and where."""
        place = f"policy {self.path}" + ("" if line is None else f", line {line}")
        named = [] if self.policy is None else [self.policy]
        named += [] if window is None else [f"window {window}"]
        return PolicyError(": ".join([place, *([", ".join(named)] if named else []), what]))

    @contextmanager
    def answers(
        self, doing: str = "", window: int | None = None, limit_s: float | None = None, line: int | None = None
    ) -> Iterator[None]:
        """What is raised in the context is the file's own error; ``doing`` begins what is said of it.

        What the file prints goes to standard error, as standard output may be JSON.
        ``line`` is named where none of the file was under way, as when a method takes other arguments.

        Raises:
            PolicyError: Naming the last line of the file that was under way.
        """
        try:
            with redirect_stdout(sys.stderr), _time_limit(limit_s):
                yield
        except _TooLong as error:
            what = f"no answer within {limit_s:g} s; a policy that needs more sets limit_s"
            raise self.error(what, self._line(error.__traceback__) or line, window) from None
        except (Exception, SystemExit) as error:
            own = error.lineno if isinstance(error, SyntaxError) else self._line(error.__traceback__)
            raise self.error(f"{doing}{type(error).__name__}: {_text(error)}", own or line, window) from error

    def _line(self, trace: TracebackType | None) -> int | None:
        """The file's own innermost line of a traceback."""
        line = None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == str(self.path):
                line = trace.tb_lineno
            trace = trace.tb_next
        return line


@contextmanager
def _time_limit(limit_s: float | None) -> Iterator[None]:
    """Raise ``_TooLong`` after so many seconds; only a main thread can, elsewhere there is no limit."""
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        raise _TooLong

    former = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)


def _text(error: BaseException) -> str:
    """The error's message; a message of one's own may fail as well."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it is the file's
        return "(without a readable message)"


def _line_of(function: object) -> int | None:
    """The line on which a function of the file begins."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return None if code is None else int(code.co_firstlineno)


class _Source(SourceFileLoader):
    """Compiles a file each time: where it is as long as before and was changed within a second, bytecode is stale."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """None, without which bytecode is neither read nor written (``importlib.abc.SourceLoader``)."""
        raise OSError(path)

    def get_data(self, path: str) -> bytes:
        """The file's text (``importlib.abc.ResourceLoader``); raises OSError where it is no file that can be read."""
        return read_input(Path(path))


def policy_in(named: str) -> Policy | SharePolicy | TurnPolicy:
    """The ``POLICY`` of the Python file that is named.

    Raises:
        PolicyError: It is missing, cannot be loaded, or has no policy.
    """
    path = Path(named)
    if not path.is_file():
        raise PolicyError(f"policy {named}: there is no such file")
    # The module needs a name under which it is found, which dataclasses look for, and that shadows none.
    loader = _Source(f"policy file {path.stem}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None  # the loader is one of files
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    origin = _Origin(path)
    with origin.answers("cannot be loaded: "):
        loader.exec_module(module)
        policy = module.POLICY()
        name, knows = getattr(policy, "name", None), getattr(policy, "knows", None)
        limit_s = getattr(policy, "limit_s", ANSWER_LIMIT_S)
    if not isinstance(knows, Knows) or not isinstance(name, str):
        raise origin.error("POLICY() needs a name, a str, and knows, a Knows")
    origin = replace(origin, policy=name)
    if isinstance(policy, TurnPolicy):
        return policy
    if not isinstance(limit_s, (int, float)) or not 0 < limit_s <= threading.TIMEOUT_MAX:
        raise origin.error(f"limit_s is {limit_s!r}; seconds > 0 are needed")
    if isinstance(policy, SharePolicy):
        with origin.answers("cannot be used: "):
            switching, period_s = getattr(policy, "switching", None), getattr(policy, "period_s", None)
        if not isinstance(switching, Switching):
            raise origin.error(f"switching is {switching!r}; a Switching is needed")
        if period_s is not None and (not isinstance(period_s, int) or period_s < 1):
            raise origin.error(f"period_s is {period_s!r}; None, or whole seconds ≥ 1, are needed")
        return OwnShares(policy, origin, limit_s)
    if not callable(getattr(policy, "plan", None)):
        raise origin.error("POLICY() needs plan, a method that takes a Window")
    return OwnPolicy(policy, origin, limit_s)


@dataclass(frozen=True)
class _Own:
    """A policy from a file, and where it is from.

    Attributes:
        own: The file's ``POLICY()``; what it lacks is as in :class:`~planner.policies.policy.Policy`.
        origin: The file.
        limit_s: Wall seconds in which an answer is awaited.
    """

    own: Any
    origin: _Origin
    limit_s: float

    @property
    def name(self) -> str:
        """As the file has it."""
        return str(self.own.name)

    @property
    def knows(self) -> Knows:
        """As the file has it."""
        return Knows(self.own.knows)

    @property
    def traits(self) -> Traits:
        """The file's, or the usual ones."""
        traits = getattr(self.own, "traits", None)
        return traits if isinstance(traits, Traits) else Traits()

    @property
    def needs_hindsight(self) -> bool:
        """The file's, or what follows from what it knows."""
        needs = getattr(self.own, "needs_hindsight", None)
        return needs if isinstance(needs, bool) else self.knows.needs_hindsight

    @property
    def has_pools(self) -> bool:
        """As the file has it; a class that does not say so has none."""
        return getattr(self.own, "has_pools", False) is True

    def _asked(self, method: str, window: int | None, check: Callable[[Any], Checked], argument: object) -> Checked:
        """What a method of the file answers, checked.

        Raises:
            PolicyError: It raises something, takes too long, or answers what cannot be used.
        """
        asked = getattr(self.own, method)
        with self.origin.answers(f"{method}() raised ", window, self.limit_s, _line_of(asked)):
            answer = asked(argument)
        try:
            return check(answer)
        except AnswerError as error:
            raise self.origin.error(f"{method}() {error}", _line_of(asked), window) from None


@dataclass(frozen=True)
class OwnPolicy(_Own, Policy):
    """A policy from a file that plans MIG instances; its class need not inherit from :class:`Policy`."""

    def prepared(self, run: Sequence[Problem]) -> Self:
        """As the file's policy is once it has seen the run.

        Raises:
            PolicyError: It raises something, or answers something else than a policy.
        """
        if not hasattr(self.own, "prepared"):
            return self
        return replace(self, own=self._asked("prepared", None, _with_plan, run))

    def plan(self, window: Window) -> MigPlan:
        """The file's plan, of which every value has its type; whether it keeps the rules is not asked here.

        Raises:
            PolicyError: The file raises something, or answers something else than a plan of the window.
        """
        return self._asked("plan", window.number, lambda answer: checked_plan(answer, window.problem), window)


@dataclass(frozen=True)
class OwnShares(_Own, SharePolicy):
    """A policy from a file that divides a GPU's processors."""

    @property
    def switching(self) -> Switching:
        """As the file has it."""
        return Switching(self.own.switching)

    @property
    def period_s(self) -> int | None:
        """As the file has it."""
        period_s: int | None = self.own.period_s
        return period_s

    def reconsiders(self, moment: Moment) -> bool:
        """Whether the file's policy does.

        Raises:
            PolicyError: The file raises something.
        """
        return self._asked("reconsiders", moment.window, bool, moment)

    def shares(self, moment: Moment) -> Shares:
        """The file's shares.

        Raises:
            PolicyError: The file raises something, or answers shares that cannot be.
        """
        return self._asked("shares", moment.window, lambda answer: checked_shares(answer, moment), moment)

    def answer(self, moment: Moment) -> Answer:
        """The file's answer, or its shares, where it has nothing to say of turns and of ways to retrain.

        Raises:
            PolicyError: The file raises something, or answers what cannot be.
        """
        if type(self.own).answer is SharePolicy.answer:
            return super().answer(moment)
        return self._asked("answer", moment.window, lambda answer: checked_answer(answer, moment), moment)


def _with_plan(policy: object) -> object:
    if not callable(getattr(policy, "plan", None)):
        raise AnswerError(f"returned {type(policy).__name__}; the policy, with its method plan, is needed")
    return policy
