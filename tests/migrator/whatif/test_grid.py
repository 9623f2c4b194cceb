from __future__ import annotations

import pytest

from migrator.errors import GridError
from migrator.whatif.grid import Choice, Factor, doubts_of, point_text, read_grid


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("gpu=a30-24gb,h100-80gb", ["a30-24gb", "h100-80gb"]),
        ("slo_ms=150, x0.5", [150.0, Factor(0.5)]),
        ("load=0.7,x1e-1", [0.7, Factor(0.1)]),
        ("overhead_s=0,x0", [0.0, Factor(0.0)]),
        ("step_s=0.5,2", [0.5, 2.0]),
        ("tenants=1,2", [1, 2]),
        ("batch=8,auto", [8, "auto"]),
        ("window=0,3", [0, 3]),
        ("model=paper,physical", ["paper", "physical"]),
        ("engine=greedy,physical", ["greedy", "physical"]),
    ],
)
def test_values_are_read_as_their_key_takes_them(argument: str, values: list[object]) -> None:
    (variation,) = read_grid([argument]).variations
    assert [choice.value for choice in variation.choices] == values
    assert {choice.tenant for choice in variation.choices} == {None}


@pytest.mark.parametrize("key", ["slo_ms", "load", "batch", "overhead_s"])
def test_a_tenants_name_stands_before_the_last_dot(key: str) -> None:
    (variation,) = read_grid([f"my.model-v1.5.{key}=2"]).variations
    assert (variation.choices[0].tenant, variation.choices[0].key) == ("my.model-v1.5", key)
    assert variation.name == f"my.model-v1.5.{key}"


def test_points_are_the_product_and_the_last_key_changes_fastest() -> None:
    points = read_grid(["tenants=2,1", "a.slo_ms=x1,20", "window=0"]).points
    assert [point_text(point) for point in points] == [
        "tenants=2, a.slo_ms=x1, window=0",
        "tenants=2, a.slo_ms=20, window=0",
        "tenants=1, a.slo_ms=x1, window=0",
        "tenants=1, a.slo_ms=20, window=0",
    ]


@pytest.mark.parametrize(
    "choice", [Choice("load", None, Factor(1.5)), Choice("slo_ms", "a", 20.25), Choice("engine", None, "greedy")]
)
def test_a_choice_is_shown_as_it_would_be_typed(choice: Choice) -> None:
    assert read_grid([str(choice)]).points == ((choice,),)


BAD = [
    ([], "--vary KEY=V1,V2 is missing"),
    (["load"], "KEY=V1,V2 is needed"),
    (["laod=x1"], "did you mean load?"),
    (["vision.gpu=a30-24gb"], "gpu is no key of a single tenant; those are slo_ms, load, batch, overhead_s"),
    (["gpu=a30"], "known: a100-40gb"),
    (["slo_ms=0"], "slo_ms=0: milliseconds > 0"),
    (["slo_ms="], "slo_ms=: milliseconds > 0"),
    (["slo_ms=1,,2"], "milliseconds > 0"),
    (["load=nan"], "load=nan"),
    (["load=0.7,70"], "load=70: a load > 0 and at most 10 (percent? 70 % are 0.7), or a factor on the arrivals"),
    (["load=xinf"], "load=xinf"),
    (["load=x0"], "a factor on the arrivals"),
    (["overhead_s=-1"], "seconds ≥ 0"),
    (["step_s=x2"], "a number of seconds > 0"),
    (["tenants=0"], "a number of tenants"),
    (["tenants=1.5"], "a number of tenants"),
    (["window=-1"], "a window's number"),
    (["batch=0"], "the largest batch size"),
    (["model=magic"], "physical or paper is needed"),
    (["engine=magic"], "one of "),
    (["load=x1,x1.0"], "x1 is given twice"),
    (["a.load=x1", "a.load=x2"], "--vary a.load is given 2 times"),
    (["load=" + ",".join(f"x{n}" for n in range(1, 12_001))], "--vary load: 12,000 values are given; at most 1,000"),
    ([f"window={','.join(map(str, range(101)))}", f"tenants={','.join(map(str, range(1, 101)))}"], "10,100 points"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message for _, message in BAD])
def test_what_cannot_be_varied_is_refused_with_what_is_allowed(arguments: list[str], message: str) -> None:
    with pytest.raises(GridError) as refusal:
        read_grid(arguments)
    assert message in str(refusal.value)
    assert "--vary" in str(refusal.value)


@pytest.mark.parametrize("argument", ["x" * 99_999, "load=" + "9" * 99_999, "y" * 99_999 + ".gpu=a30-24gb"])
def test_a_long_argument_is_not_repeated_in_full(argument: str) -> None:
    with pytest.raises(GridError) as refusal:
        read_grid([argument])
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("argument", "n_doubts"), [("load=0.7,3", 0), ("load=0.7,4,5", 1), ("load=x20", 0), ("slo_ms=9", 0)]
)
def test_a_load_above_three_is_doubted_once(argument: str, n_doubts: int) -> None:
    doubts = doubts_of(read_grid([argument]).variations)
    assert [doubt[:10] for doubt in doubts] == ["load is 5:"] * n_doubts
