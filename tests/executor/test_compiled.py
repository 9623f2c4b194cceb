"""Compiled functions: kept on disk, and what becomes of a disk that keeps them badly."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from executor import compiled as module

SOURCE = """
from executor.compiled import compiled

@compiled
def doubled(number):
    return 2 * number
"""

_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the listener is told, by an account of this test's own."""
    account = module._Account()
    monkeypatch.setattr(module, "_ACCOUNT", account)
    messages: list[str] = []
    module.listen(messages.append)
    return messages


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE)
    return path


def doubled_of(source: Path) -> Callable[[int], int]:
    """The function as a process that has just started has it."""
    spec = importlib.util.spec_from_file_location(f"doubling_{next(_NUMBERS)}", source)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    function: Callable[[int], int] = loaded.doubled
    return function


def kept(source: Path, ending: str) -> Path:
    (found,) = (source.parent / "__pycache__").glob(f"*.{ending}")
    return found


def test_a_function_is_compiled_once_and_then_loaded(source: Path) -> None:
    for _ in range(2):
        assert doubled_of(source)(21) == 42
    assert module.n_compiled() == 1


def test_compiling_is_said_once(source: Path, heard: list[str]) -> None:
    function = doubled_of(source)
    function(21), function(2.5)  # type: ignore[arg-type]
    assert heard == [module.COMPILING]


def test_loading_is_not_said(source: Path, heard: list[str]) -> None:
    doubled_of(source)(21)
    heard.clear()
    doubled_of(source)(21)
    assert not heard


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that goes on by a second whenever somebody looks at it."""
    seconds = itertools.count()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))


@pytest.mark.usefixtures("ticks")
def test_the_clock_of_work_stands_still_while_a_function_is_compiled(source: Path) -> None:
    function, begun_s = doubled_of(source), module.working_s()
    function(21)
    assert (module.working_s() - begun_s, module.loading_s()) == (2.0, 1.0)


@pytest.mark.usefixtures("ticks")
def test_loading_by_two_threads_at_once_counts_once() -> None:
    account = module._Account()
    with account.busy(), account.busy():
        pass
    assert account.now_s()[1] == 1.0


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [b"", b"no pickle at all", None], ids=["empty", "garbage", "truncated"])
def test_what_is_damaged_is_compiled_anew(source: Path, ending: str, damage: bytes | None) -> None:
    doubled_of(source)(21)
    path = kept(source, ending)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if damage is None else damage)
    assert [doubled_of(source)(21), doubled_of(source)(21), module.n_compiled()] == [42, 42, 2]


def test_machine_code_that_was_altered_is_compiled_anew(source: Path) -> None:
    doubled_of(source)(21)
    path, data = kept(source, "nbc"), bytearray(kept(source, "nbc").read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert (doubled_of(source)(21), module.n_compiled()) == (42, 2)


def test_what_is_damaged_is_named_with_its_folder(source: Path, heard: list[str]) -> None:
    doubled_of(source)(21)
    kept(source, "nbi").write_bytes(b"no pickle at all")
    doubled_of(source)(21)
    folder = source.parent / "__pycache__"
    assert heard[1].startswith(f"compiled code in {folder} is damaged (doubling.doubled-")


def test_what_another_version_left_is_named_and_compiled_anew(source: Path, heard: list[str]) -> None:
    doubled_of(source)(21)
    source.write_text(SOURCE + "\n# a later version\n")
    assert (doubled_of(source)(21), heard[1:]) == (
        42,
        [f"compiled code in {source.parent / '__pycache__'} is of another version of it or of numba: compiled anew"],
    )


def test_a_folder_in_which_nothing_can_be_kept_is_named(
    source: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    function = doubled_of(source)
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    assert function(21) == 42
    assert heard[1].startswith("compiling in every process anew")
    assert "No space left on device" in heard[1]


def test_where_no_folder_can_be_written_functions_still_work(
    source: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert doubled_of(source)(21) == 42
    assert [message.partition(":")[0] for message in heard] == [
        "compiling in every process anew, half a minute or less"
    ]
