"""``--set``: a key of a config by its dotted path."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.config.assignments import assigned
from migrator.config.reading import validate_config
from migrator.errors import ConfigError
from tests.migrator.conftest import SMALL, changed

DOTTED = changed(SMALL, {"tenants.0.name": "my.model-v1.5"})


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("load=0.5", {"load": 0.5}),
        ("seed=7", {"seed": 7}),
        ("forecast.method=known", {"forecast.method": "known"}),
        ("planner.planning_s=1e1", {"planner.planning_s": 10.0}),
        ("simulation.service_jitter=measured", {"simulation": {"service_jitter": "measured"}}),
        ("tenants.language.slo_ms=200", {"tenants.1.slo_ms": 200}),
        ("tenants.1.arrivals.scale.factor=2", {"tenants.1.arrivals.scale.factor": 2}),
        ("tenants.language.accuracy.1.after=0.75", {"tenants.1.accuracy.1.after": 0.75}),
        ("tenants.vision.accuracy={before: 0.1, after: 0.2}", {"tenants.0.accuracy": {"before": 0.1, "after": 0.2}}),
        (" name = other ", {"name": "other"}),
    ],
)
def test_a_value_takes_its_place_as_if_the_file_had_it(text: str, changes: dict[str, Any]) -> None:
    assert validate_config(assigned(SMALL, [text]), "x") == validate_config(changed(SMALL, changes), "x")


def test_null_takes_a_key_s_value_away() -> None:
    assert validate_config(assigned({**SMALL, "load": 0.5}, ["load=null"]), "x").load is None


def test_a_tenant_s_name_may_hold_dots() -> None:
    found = assigned(DOTTED, ["tenants.my.model-v1.5.slo_ms=99"])
    assert validate_config(found, "x").tenants[0].slo_ms == 99


def test_the_document_itself_stays_as_it_is() -> None:
    before = changed(SMALL, {})
    assigned(before, ["tenants.vision.slo_ms=9", "forecast.n_paths=2"])
    assert before == SMALL


def test_entries_that_a_file_writes_once_are_changed_alone() -> None:
    shared = {"before": 0.1, "after": 0.2}
    document = {"tenants": [{"name": name, "accuracy": shared} for name in "ab"]}
    assert assigned(document, ["tenants.a.accuracy.after=0.9"])["tenants"][1]["accuracy"] == shared  # type: ignore[index]


BAD = [
    ("load", "--set load: KEY=VALUE is needed"),
    ("=3", "KEY=VALUE is needed"),
    ("tenants..slo_ms=3", "KEY=VALUE is needed"),
    ("load=[1, 2", "--set load=[1, 2: is no YAML"),
    ("load=!!bool maybe", "is no YAML"),
    ("tenants.visoin.slo_ms=3", "tenants has no entry 'visoin'; it has vision, language"),
    ("tenants.2.slo_ms=3", "tenants has no entry '2'"),
    ("tenants.language.accuracy.before=0.5", "tenants.language.accuracy has no entry 'before'; a place from 0 to 1"),
    ("seed.first=3", "seed is 3, which has no key 'first'"),
    (f"name={'x' * 20_000}", "KEY=VALUE is needed"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text[:30] for text, _ in BAD])
def test_what_cannot_be_set_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        assigned(SMALL, [text])
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 250


def test_a_key_that_is_set_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="load is given twice"):
        assigned(SMALL, ["load=1", "load=2"])


@pytest.mark.parametrize("command", ["run", "plan", "whatif", "compare"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tenants.vision.slo=5",
            "config.yaml with tenants.vision.slo=5: tenants.vision: unknown key 'slo'; did you mean 'slo_ms'",
        ),
        ("load=-1", "config.yaml with load=-1: load: "),
    ],
)
def test_every_command_that_takes_a_config_says_what_was_set_wrongly(
    call, write_config, command: str, text: str, message: str
) -> None:
    more = ["--vary", "load=x1"] if command == "whatif" else []
    code, out, err = call(command, write_config(), "--set", text, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_what_is_set_stands_in_the_run_s_config(call, write_config) -> None:
    code, out, _ = call("run", write_config(), "--windows", 1, "--set", "tenants.vision.slo_ms=123", "--out", "r")
    assert code == 0
    assert "123 ms" in out


def test_nothing_can_be_set_in_a_problem_file(call) -> None:
    code, _, err = call("plan", "--problem", "problem.json", "--set", "load=1")
    assert code == 2
    assert "--set goes with a CONFIG" in err


def test_a_key_that_has_an_option_of_its_own_is_given_once(call, write_config) -> None:
    code, out, err = call("compare", write_config(), "--load", 0.5, "--set", "load=0.9")
    assert (code, out) == (2, "")
    assert err == "error: --set load: it is given by an option of its own, too; once is needed\n"
