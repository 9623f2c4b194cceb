"""An extra is installed from where the distribution was."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

import executor.extras
from executor.extras import install

ROOT = Path(executor.extras.__file__).parents[1]
GIT = {"url": "https://host/migrator.git", "vcs_info": {"vcs": "git", "commit_id": "f00"}}


@pytest.fixture
def installed_from(monkeypatch: pytest.MonkeyPatch):
    def of(text: str | None) -> None:
        found = SimpleNamespace(read_text=lambda name: text if name == "direct_url.json" else None)
        monkeypatch.setattr("importlib.metadata.distribution", lambda _: found)

    return of


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (GIT, "pip install 'migrator-mig[nvml] @ git+https://host/migrator.git'"),
        ({"url": "https://host/m.whl", "archive_info": {}}, "pip install 'migrator-mig[nvml] @ https://host/m.whl'"),
        ({"url": "file:///gone/clone", "dir_info": {"editable": True}}, "pip install '.[nvml]'"),
        ({}, "pip install 'migrator-mig[nvml]'"),
        ([], "pip install 'migrator-mig[nvml]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_distribution_was(installed_from, origin: object, command: str) -> None:
    installed_from(json.dumps(origin))
    assert install("nvml") == command


@pytest.mark.parametrize("text", [None, "", "{"])
def test_without_a_word_on_its_origin_it_is_from_a_registry(
    installed_from, text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed_from(text)
    monkeypatch.setattr("executor.extras.__file__", str(tmp_path / "site-packages" / "executor" / "extras.py"))
    assert install("live") == "pip install 'migrator-mig[live]'"


def test_in_a_clone_it_is_here_and_elsewhere_the_clone(
    installed_from, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    installed_from(json.dumps({"url": clone.as_uri(), "dir_info": {}}))
    monkeypatch.chdir(tmp_path)
    assert install("live") == f"pip install '{clone}[live]'"
    monkeypatch.chdir(clone)
    assert install("live") == "pip install '.[live]'"


def test_sources_are_a_clone_though_a_build_left_metadata_beside_them(
    installed_from, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_from(None)
    monkeypatch.chdir(ROOT)
    assert install("live") == "pip install '.[live]'"


def test_sources_that_were_never_installed_are_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", absent)
    monkeypatch.chdir(ROOT)
    assert install("live") == "pip install '.[live]'"


def test_no_page_installs_us_by_a_name_that_no_registry_has() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert not [page.name for page in pages if "install 'migrator-mig" in page.read_text("utf-8")]
