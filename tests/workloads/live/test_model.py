"""Finding models by name, and holding them to their Protocol."""

from __future__ import annotations

import pytest

from workloads.live.model import ModelError, answers_of, factory, loaded

HERE = "live_models"


def test_a_model_is_made_with_its_options() -> None:
    assert loaded(f"{HERE}:Echo", {"prefix": "a"}).answer([b"b"]) == [b"ab"]


def test_a_name_of_the_catalogue_stands_for_its_callable() -> None:
    assert loaded("ECHO", {}, {"echo": f"{HERE}:Echo"}).answer([b"b"]) == [b"b"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resnet5", "allowed: module:callable, or one of the catalogue (resnet50)"),
        (":Echo", "unknown"),
        ("no_such_module_here:x", "cannot import no_such_module_here: ModuleNotFoundError"),
        (f"{HERE}:Nothing", "has no such name: Nothing"),
        (f"{HERE}:NOT_CALLABLE", "holds int there, not a callable"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(name: str, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        factory(name, {"resnet50": "somewhere:resnet50"})
    assert name in str(caught.value)
    assert said in str(caught.value)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ModelError, match=r"with depth=3: TypeError: .*unexpected keyword argument 'depth'"):
        loaded(f"{HERE}:Echo", {"depth": 3})


def test_what_lacks_the_methods_is_no_model() -> None:
    with pytest.raises(ModelError, match=r"returns NoneType, which lacks answer\(inputs\) or load\(weights\)"):
        loaded(f"{HERE}:none", {})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (b"raise", r"the model raised RuntimeError: asked to \(live_models.py, line \d+\)"),
        (b"short", "returned 0 answers to 1 inputs"),
        (b"text", "answered with str; bytes are needed"),
    ],
)
def test_a_model_that_misbehaves_is_told_on(asked: bytes, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        answers_of(loaded(f"{HERE}:Raises", {}), [asked])
