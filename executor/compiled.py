"""Loops that are compiled: once an installation, kept on disk, and outside every clock that measures work.

The one rule for every compiled function of the program (``compiled``):

* It is compiled when it is first called with arguments of a kind, and kept beside its source or, where that cannot be
  written, in the user's cache folder. Where neither can be written it still works, in each process anew.
* What is kept carries a checksum. Whatever is damaged is passed over, named and kept anew; so is what another version
  of the compiler or of the source left. Machine code that was altered never runs.
* :func:`working_s` is a clock that stands still meanwhile, so that a limit of seconds is one of work, also the first
  time.

:func:`listen` sets who hears about it; by default nobody does. Each process keeps its own account.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., object])

COMPILING = "compiling, once: half a minute or less"
"""What is said before the first function of a process is compiled."""


class _Account:
    """How long this process has spent on loading and compiling, by whatever thread, and what has been said of it."""

    def __init__(self) -> None:
        self.listener: Callable[[str], None] | None = None
        self.n_compiled = 0
        self._lock = threading.Lock()
        self._n_busy, self._since_s, self._spent_s = 0, 0.0, 0.0
        self._said: set[str] = set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Loading or compiling goes on in here; where several threads do, their time counts once."""
        with self._lock:
            self._n_busy += 1
            if self._n_busy == 1:
                self._since_s = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._n_busy -= 1
                if not self._n_busy:
                    self._spent_s += time.perf_counter() - self._since_s

    def now_s(self) -> tuple[float, float]:
        """The time, and how much of it has been spent."""
        with self._lock:
            now_s = time.perf_counter()
            return now_s, self._spent_s + (now_s - self._since_s if self._n_busy else 0.0)

    def say(self, message: str, topic: str | None = None) -> None:
        """Tell the listener, once a ``topic``; the message is its own by default."""
        if self.listener is not None and (topic or message) not in self._said:
            self._said.add(topic or message)
            self.listener(message)


_ACCOUNT = _Account()


def listen(listener: Callable[[str], None] | None) -> None:
    """Have ``listener`` told, each thing once, what is compiled and what is wrong with what was kept."""
    _ACCOUNT.listener = listener


def loading_s() -> float:
    """Seconds that this process has spent on loading and compiling."""
    return _ACCOUNT.now_s()[1]


def working_s() -> float:
    """``time.perf_counter`` without the seconds that went into loading and compiling."""
    now_s, spent_s = _ACCOUNT.now_s()
    return now_s - spent_s


def n_compiled() -> int:
    """How many functions this process has had to compile, once for each kind of arguments."""
    return _ACCOUNT.n_compiled


def compiled(function: _Function) -> _Function:
    """``function`` compiled at its first call, kept on disk, and free to run beside other threads.

    Loops that a first run waits for assign rows element by element: for an array assigned to a row numba also compiles
    the message for shapes that do not fit, which takes it some three seconds a process.
    """
    import numba  # noqa: PLC0415 (heavy: what compiles nothing does without it)

    # numba's types do not know what is done here, in this file and nowhere else.
    dispatcher: Any = numba.njit(nogil=True)(function)
    compile_one = dispatcher.compile

    def compile_and_account(signature: object) -> object:
        with _ACCOUNT.busy():
            return compile_one(signature)

    dispatcher.compile = compile_and_account
    dispatcher._cache = _Kept(function)
    return cast("_Function", dispatcher)


def inlined(function: _Function) -> _Function:
    """``function`` as a part of the compiled functions that call it, which must be in the same file.

    numba looks at that file alone to see whether the code kept on disk is still valid.
    """
    import numba  # noqa: PLC0415 (heavy: what compiles nothing does without it)

    return cast("_Function", numba.njit(inline="always")(function))


class _DamagedError(Exception):
    """What was kept is not what was put there."""


class _Sealed:
    """numba's way to make kept data of compiled code and back, with a checksum around the data."""

    def __init__(self, inner: Any) -> None:
        self.locator, self.check_cachable = inner.locator, inner.check_cachable
        self._inner = inner

    def reduce(self, compiled_code: object) -> tuple[str, bytes]:
        """The data to keep."""
        from numba.core.serialize import dumps  # noqa: PLC0415 (heavy)

        data = cast("bytes", dumps(self._inner.reduce(compiled_code)))  # type: ignore[no-untyped-call]
        return hashlib.sha256(data).hexdigest(), data

    def rebuild(self, target: object, kept: tuple[str, bytes]) -> object:
        """The compiled code again.

        Raises:
            _DamagedError: The data are not those that were kept.
        """
        digest, data = kept
        if hashlib.sha256(data).hexdigest() != digest:
            raise _DamagedError("its checksum is wrong")
        return self._inner.rebuild(target, pickle.loads(data))  # noqa: S301 (checked above; the folder is the user's)


class _Kept:
    """What is kept on disk of one function: numba's cache, but one that no state of the disk makes fail."""

    def __init__(self, function: Callable[..., object]) -> None:
        from numba.core.caching import FunctionCache  # noqa: PLC0415 (heavy)

        self._cache: Any = None
        try:
            self._cache = FunctionCache(function)  # type: ignore[no-untyped-call]
        except (RuntimeError, OSError):  # numba's word for: no folder that can be written
            return
        self._cache._impl = _Sealed(self._cache._impl)

    @property
    def cache_path(self) -> str | None:
        """The folder; ``None`` where there is none."""
        return None if self._cache is None else str(self._cache.cache_path)

    def load_overload(self, signature: object, target: object) -> object | None:
        """The compiled code for these arguments; ``None`` where it has to be compiled."""
        found = None if self._cache is None else self._loaded(signature, target)
        if found is None:
            _ACCOUNT.n_compiled += 1
            if self._cache is None:
                _ACCOUNT.say(_homeless("no folder for compiled code can be written"))
            else:
                _ACCOUNT.say(COMPILING)
        return found

    def save_overload(self, signature: object, compiled_code: object) -> None:
        """Keep the compiled code, if that can be done."""
        if self._cache is None:
            return
        try:
            self._cache.save_overload(signature, compiled_code)
        except OSError as error:
            _ACCOUNT.say(_homeless(f"{self.cache_path} cannot be written ({error.strerror or error})"))

    def flush(self) -> None:
        """Forget what is kept."""
        if self._cache is not None:
            self._cache.flush()

    def _loaded(self, signature: object, target: object) -> object | None:
        index = Path(self._cache._cache_file._index_path)
        try:
            found: object | None = self._cache.load_overload(signature, target)
            if found is None and index.exists() and not self._cache._cache_file._load_index():
                _ACCOUNT.say(f"compiled code in {index.parent} is of another version of it or of numba: compiled anew")
        except OSError as error:
            _ACCOUNT.say(f"compiled code in {index.parent} cannot be read ({error.strerror or error}): compiled anew")
        except Exception as error:  # noqa: BLE001 (there is no end to what unpickling garbage raises)
            what = f"compiled code in {index.parent} is damaged"
            _ACCOUNT.say(f"{what} ({index.stem}: {_reason(error)}): compiled anew", topic=what)
        else:
            return found
        self._forget(index)
        return None

    @staticmethod
    def _forget(index: Path) -> None:
        """Take the index away, without which numba looks at nothing that is kept."""
        try:
            index.unlink(missing_ok=True)
        except OSError as error:
            _ACCOUNT.say(_homeless(f"{index} cannot be replaced ({error.strerror or error})"))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _homeless(why: str) -> str:
    return f"compiling in every process anew, half a minute or less: {why}; NUMBA_CACHE_DIR can name a folder"
