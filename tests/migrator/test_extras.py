"""What is lacking of an extra is told in one clause."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from executor.extras import install
from migrator.config.reading import read_config
from migrator.errors import ConfigError
from migrator.extras import lacking


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch):
    def are(*names: str) -> None:
        monkeypatch.setattr("migrator.extras.find_spec", lambda name: None if name in names else name)

    return are


@pytest.mark.parametrize(
    ("modules", "told"),
    [
        ((), None),
        (("torch",), "needs torch: LIVE"),
        (("zmq", "torch", "scipy"), "needs scipy, torch and zmq: LIVE"),
        (("torch", "transformers"), "needs torch and transformers: LIVE transformers"),
        (("avalanche",), "needs avalanche: ALONE"),
        (("avalanche", "torch"), "needs avalanche and torch: BOTH"),
        (("transformers",), "needs transformers: pip install transformers"),
    ],
)
def test_what_is_lacking_is_named_with_what_installs_it(absent, modules: tuple[str, ...], told: str | None) -> None:
    absent(*modules)
    assert lacking("live", ["uvicorn", *modules]) == (told and _named(told))


def _named(told: str) -> str:
    extras = {"LIVE": "live", "ALONE": "avalanche", "BOTH": "live,avalanche"}
    for word, extra in extras.items():
        told = told.replace(word, install(extra))
    return told


def test_a_network_without_model_and_library_is_refused_naming_both(absent, write_config) -> None:
    absent("neuralforecast")
    with pytest.raises(ConfigError, match=r"fit nhits makes; that needs neuralforecast: pip install .*\[neural\]'$"):
        read_config(write_config({"forecast.method": "nhits"}))


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ((), "torch"),
        (("--set", "tenants.turned.model=bert_base"), "transformers"),
        (("--set", "tenants.grown.learning.trainer=avalanche"), "avalanche"),
        (("--set", "front_door.port=0"), "starlette"),
    ],
)
def test_a_live_run_without_a_library_is_refused_before_anything_begins(
    absent, call, changes: tuple[str, ...], missing: str
) -> None:
    assert call("init", "live-cpu")[0] == 0
    absent(missing)
    code, out, err = call("run", "live-cpu.yaml", *changes)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"error: live-cpu.yaml: a live run needs {missing}: pip install ")


def asked_for(name: str, *extras: str, seen: set[tuple[str, ...]] | None = None) -> Iterator[tuple[str, Requirement]]:
    """All that a distribution asks for, and what that asks for in turn: who asks, and what for.

    An extra counts however it is spelled, as for pip since 23.3; older ones pass over it.
    """
    seen = set() if seen is None else seen
    wanted = {canonicalize_name(extra) for extra in extras} | {""}
    if (name, *sorted(wanted)) in seen:
        return
    seen.add((name, *sorted(wanted)))
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
            yield name, requirement
            try:
                yield from asked_for(canonicalize_name(requirement.name), *requirement.extras, seen=seen)
            except PackageNotFoundError:
                continue


@pytest.mark.live
def test_the_extras_of_live_tests_are_installed_as_any_pip_would_do_it() -> None:
    lacking = []
    for who, requirement in asked_for("migrator-mig", "live", "avalanche"):
        try:
            version = distribution(requirement.name).version
        except PackageNotFoundError:
            version = "none"
        if version == "none" or not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{who} asks for {requirement}, and there is {version}")
    assert not lacking
