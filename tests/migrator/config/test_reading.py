from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import workloads.traffic.servegen
import workloads.traffic.trace_file
from migrator.config import sections
from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.config.sections import Config, FloorConfig
from migrator.errors import ConfigError
from planner.budget import planning_time_s
from workloads.live.open_inference import DATATYPES


def test_limits_repeated_for_speed_equal_their_origin() -> None:
    known = (*workloads.traffic.trace_file.SHIPPED, workloads.traffic.servegen.SERVEGEN_TRACE)
    assert known == sections.SHIPPED_TRACES
    assert [dtype.name for dtype in DATATYPES.values()] == [*sections.DTYPES]


def test_small_config_is_read_with_its_defaults(write_config) -> None:
    config = read_config(write_config())
    assert (config.n_steps, config.tenants[0].batch, config.planner.planning_s) == (60, "auto", 0.0)


@pytest.mark.parametrize(("changes", "planning_s"), [({}, 2.0), ({"step_s": 0.5}, 4.0), ({"tenants.1": None}, 1.0)])
def test_planning_takes_what_is_measured_for_so_many_tenants_and_steps(
    write_config, changes: dict[str, object], planning_s: float
) -> None:
    config = read_config(write_config({"planner.planning_s": None, **changes}))
    assert config.planning_s == planning_time_s(len(config.tenants), config.n_steps) == planning_s


@pytest.mark.parametrize(
    ("gpu", "changes", "planning_s"),
    [
        ("h100-80gb", {"profiles": "own.csv", "planner.prove": "windows"}, 11.0),
        ("h100-80gb", {"profiles": "own.csv"}, 6.0),
        ("h100-80gb", {"planner.prove": "windows"}, 6.0),
        ("a30-24gb", {"profiles": "own.csv", "planner.prove": "windows"}, 6.0),
    ],
)
def test_proofs_take_longer_where_profiles_of_ones_own_may_have_double_memory(
    write_config, gpu: str, changes: dict[str, object], planning_s: float
) -> None:
    given = {"planner.planning_s": None, "window_s": 200, "gpu.model": gpu, **changes}
    assert read_config(write_config(given)).planning_s == planning_s


@pytest.mark.parametrize(
    ("changes", "every_s"),
    [({}, 10.0), ({"step_s": 20}, 20.0), ({"planner.replan_every_s": 30}, 30.0), ({"planner": {}, "step_s": 5}, 10.0)],
)
def test_windows_are_planned_anew_every_10_s_or_step(write_config, changes: dict[str, object], every_s: float) -> None:
    assert read_config(write_config({"planner.replan_every_s": None, **changes})).replan_every_s == every_s


def test_windows_are_planned_once_if_that_is_asked_for(write_config) -> None:
    assert read_config(write_config({"planner.replan_every_s": "never"})).replan_every_s is None


@pytest.mark.parametrize(
    ("forecast", "method"),
    [
        ({}, "auto"),
        ({"history_s": 300}, "auto"),
        ({"half_life_s": 30}, "ewma"),
        ({"season_s": 100}, "seasonal-naive"),
        ({"half_life_s": 30, "season_s": 100, "method": "auto"}, "auto"),
    ],
)
def test_a_setting_asks_for_its_forecaster(write_config, forecast: dict[str, object], method: str) -> None:
    config = read_config(write_config({"forecast": forecast}))
    assert config.forecast.method == method
    assert validate_config(yaml.safe_load(config_yaml(config)), "again").forecast == config.forecast


def test_settings_of_two_forecasters_ask_for_a_method(write_config) -> None:
    with pytest.raises(ConfigError, match=r"forecast: half_life_s is of method ewma, season_s of seasonal-naive"):
        read_config(write_config({"forecast": {"half_life_s": 30, "season_s": 100}}))


def test_planning_takes_as_long_as_it_is_given(write_config) -> None:
    assert read_config(write_config({"planner.planning_s": 2.5})).planning_s == 2.5


@pytest.mark.parametrize(
    ("step_s", "planning_s", "n_steps"),
    [
        *((1, 6, 6), (1, 2.5, 3), (5, 6, 2), (0.1, 6, 60), (2.5, 0, 0)),
        *((2.5, 6, 4), (0.5, 0.5, 2), (0.5, 6.5, 14), (0.3, 1, 10), (7.5, 10, 2)),
        (7.5, 46, 7),  # eight would be a full minute, and the whole window
    ],
)
def test_plans_are_begun_with_a_full_second(write_config, step_s: float, planning_s: float, n_steps: int) -> None:
    config = read_config(write_config({"step_s": step_s, "planner.planning_s": planning_s}))
    assert config.ahead_steps == n_steps


def test_a_single_window_is_planned_before_it_begins_however_long_that_takes(write_config) -> None:
    assert read_config(write_config({"planner.planning_s": 100, "windows": 1})).planning_steps == 100


def test_name_defaults_to_the_file(write_config) -> None:
    assert read_config(write_config({"name": None})).name == "config"


@pytest.mark.parametrize(("stem", "name"), [("my config (2)", "my-config-2"), ("…", "run"), ("-x", "x")])
def test_a_file_s_name_becomes_a_run_s_name(write_config, stem: str, name: str) -> None:
    path = write_config({"name": None})
    assert read_config(path.rename(path.with_stem(stem))).name == name


def test_overrides_replace_top_level_keys(write_config) -> None:
    config = read_config(write_config(), windows=7, seed=None)
    assert (config.windows, config.seed) == (7, 3)


@pytest.mark.parametrize(("changes", "expected"), [({}, 2), ({"windows": None}, 4), ({"load_windows": 3}, 3)])
def test_other_windows_leave_the_load_to_those_of_the_file(changes, expected, write_config) -> None:
    assert read_config(write_config(changes), windows=7).load_windows == expected


def test_resolved_config_reads_back_equal(write_config, tmp_path: Path) -> None:
    config = read_config(write_config())
    again = tmp_path / "again.yaml"
    again.write_text(config_yaml(config))
    assert read_config(again) == config


def test_trace_files_are_relative_to_the_config(write_config, tmp_path: Path) -> None:
    config = read_config(write_config({"tenants.1.arrivals.trace": "traces/my.csv"}))
    assert config.tenants[1].arrivals.trace == str((tmp_path / "traces" / "my.csv").resolve())


def test_quickstart_is_valid() -> None:
    quickstart = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
    assert read_config(quickstart).load == 0.7


@pytest.mark.parametrize(
    ("given", "floor"),
    [
        (0.99, FloorConfig(share=0.99)),
        (1, FloorConfig(share=1.0)),
        ({"share": 0.9, "per": "step"}, FloorConfig(share=0.9, per="step")),
    ],
)
def test_a_floor_of_in_time_answers_has_a_short_and_a_long_form(write_config, given, floor) -> None:
    assert read_config(write_config({"tenants.0.min_slo_attainment": given})).tenants[0].min_slo_attainment == floor


@pytest.mark.parametrize(
    "given", [0, -0.1, 1.5, "0.9", True, {"per": "step"}, {"share": 2}, {"share": 0.9, "per": "s"}]
)
def test_a_floor_that_cannot_be_is_refused_with_its_key(write_config, given) -> None:
    with pytest.raises(ConfigError, match=r"tenants\.vision\.min_slo_attainment") as caught:
        read_config(write_config({"tenants.0.min_slo_attainment": given}))
    assert "\n" not in str(caught.value)


ALLOWED_SERVICE_JITTER = "simulation.service_jitter: a number from 0 to 10, or 'measured', is needed"

BAD = [
    ({"tennants": []}, "unknown key 'tennants'; did you mean 'tenants'?"),
    ({"gpu.modle": "x"}, "gpu: unknown key 'modle'; did you mean 'model'?"),
    ({"tenants.0.slo": 3}, "tenants.vision: unknown key 'slo'; did you mean 'slo_ms'?"),
    ({"tenants.0.arrivals.scale.faktor": 3}, "did you mean 'factor'?"),
    ({"gpu.model": "a100"}, "unknown GPU model 'a100'"),
    ({"gpu.backend": "real"}, "gpu.backend"),
    ({"window_s": "long"}, "window_s"),
    ({"window_s": float("nan")}, "window_s"),
    ({"window_s": 60.5}, "window_s is 60.5"),
    ({"step_s": 7}, "window_s is 60; a whole number of steps of 7 s"),
    ({"step_s": 0}, "step_s"),
    ({"windows": 0}, "windows"),
    ({"windows": 1.5}, "windows"),
    ({"windows": True}, "windows"),
    ({"seed": -1}, "seed"),
    ({"load": 0}, "load"),
    ({"load": 70}, "load: a share, at most 10, is needed; percent? 70 % are 0.7 (got 70"),
    ({"load": 10.01}, "load: a share, at most 10, is needed"),
    ({"planner.planning_s": 60}, "planner.planning_s is 60"),
    ({"planner.planning_s": None, "step_s": 60}, "planner.planning_s is not given, so that it is 1; it must leave"),
    ({"planner.planning_s": 59.5}, "planner.planning_s is 59.5; it must leave a step"),
    ({"planner.floor_costs_at_most": -1}, "planner.floor_costs_at_most"),
    ({"planner.floor_costs_at_most": 100.5}, "planner.floor_costs_at_most"),
    ({"planner.floor_costs_at_most": float("nan")}, "planner.floor_costs_at_most"),
    ({"planner.floor_costs_at_most": "5 %"}, "planner.floor_costs_at_most"),
    ({"estimates.delay_s": 60}, "estimates.delay_s is 60; with planner.planning_s (0) it must leave a step"),
    ({"estimates.delay_s": 30, "planner.planning_s": 29.5}, "with planner.planning_s (29.5) it must leave a step"),
    ({"estimates.delay_s": -1}, "estimates.delay_s"),
    ({"estimates.acuracy_bias": 0.1}, "estimates: unknown key 'acuracy_bias'; did you mean 'accuracy_bias'?"),
    ({"estimates.accuracy_bias": 5}, "estimates.accuracy_bias: at most 1 is needed"),
    ({"estimates.accuracy_sigma": -0.1}, "estimates.accuracy_sigma"),
    ({"estimates.time_bias": -1}, "estimates.time_bias: more than -1 is needed"),
    ({"estimates.time_sigma": 3}, "estimates.time_sigma: at most 2 is needed"),
    ({"estimates.service_spread": 1}, "estimates.service_spread: less than 1 is needed"),
    ({"estimates.service_spread": -0.1}, "estimates.service_spread"),
    ({"estimates.cost_gpu_s": float("inf")}, "estimates.cost_gpu_s"),
    ({"tenants.1.arrivals.offset_s": 100.4}, "tenants.language.arrivals.offset_s"),
    ({"tenants": []}, "tenants"),
    ({"tenants.1.name": "vision"}, "two tenants are called 'vision'"),
    ({"tenants.0.name": "no spaces"}, "tenants.0.name"),
    ({"tenants.0.name": "a\x1b[31m"}, r"(got 'a\x1b[31m')"),
    ({"tenants.0.name": "a\n"}, r"(got 'a\n')"),
    ({"tenants.0.model": ""}, "tenants.vision.model: text that is not empty is needed (got '')"),
    ({"tenants.1.arrivals.trace": ""}, "tenants.language.arrivals.trace: text that is not empty is needed"),
    ({"profiles": ""}, "profiles: text that is not empty is needed"),
    ({"tenants.0.slo_ms": -3}, "tenants.vision.slo_ms"),
    ({"tenants.0.arrivals.rate_rps": -1}, "tenants.vision.arrivals.rate_rps"),
    ({"tenants.0.arrivals.rate_rps": float("nan")}, "tenants.vision.arrivals.rate_rps"),
    ({"tenants.0.arrivals.rate_rps": 0}, "tenants.vision.arrivals.rate_rps: more than 0 is needed (got 0)"),
    ({"tenants.0.arrivals.column": "all"}, "tenants.vision.arrivals: column is of trace files"),
    ({"tenants.1.arrivals.gaps": "zero"}, "tenants.language.arrivals: gaps is of trace files; azure-conv is shipped"),
    ({"tenants.0.arrivals.scale": {"method": "copies", "factor": 3}}, "scale.method is copies; 'rate_rps' is drawn"),
    ({"tenants.0.arrivals.rate_rps": None}, "give either 'trace'"),
    ({"tenants.0.arrivals.trace": "azure-conv"}, "give either 'trace'"),
    ({"tenants.0.accuracy.before": 1.2}, "tenants.vision.accuracy"),
    ({"tenants.1.accuracy": []}, "tenants.language.accuracy: a list of 1 or more is needed"),
    *(
        (
            {"tenants.0.accuracy": value},
            f"tenants.vision.accuracy: {{before, after}} is needed, shares of at most 1{hint}",
        )
        for value, hint in ((86, "; percent? 86 % are 0.86 (got 86)"), (0.86, " (got 0.86)"), ("86%", " (got '86%')"))
    ),
    *(
        ({"tenants.1.accuracy": value}, f"tenants.language.accuracy.{key}; percent? 86 % are 0.86 (got 86)")
        for value, key in (
            ({"before": 86, "after": 0.9}, "before: a share, at most 1, is needed"),
            ([{"before": 0.6, "after": 0.9}, {"before": 0.6, "after": 86}], "1.after: a share, at most 1, is needed"),
            ([86], "0: {before, after} is needed, shares of at most 1"),
        )
    ),
    ({"tenants.0.accuracy.after": 860}, "tenants.vision.accuracy.after: a share, at most 1, is needed (got 860)"),
    ({"tenants.0.min_slo_attainment": 99}, "share: a share, at most 1, is needed; percent? 99 % are 0.99 (got 99)"),
    *(
        (
            {"tenants.0.slo_ms": value},
            f"tenants.vision.slo_ms: a number of milliseconds is needed{such} (got {value!r})",
        )
        for value, such in (
            ("100ms", ", as 100"),
            (" 99.5 ms", ", as 99.5"),
            ("100", ", as 100"),
            ("0.1s", ""),
            (True, ""),
        )
    ),
    ({"window_s": "200s"}, "config.yaml: window_s: a number of seconds is needed, as 200 (got '200s')"),
    ({"windows": "4"}, "config.yaml: windows: a whole number is needed, as 4 (got '4')"),
    ({"windows": "4.5"}, "config.yaml: windows: a whole number is needed (got '4.5')"),
    ({"tenants.0.arrivals.rate_rps": "6 rps"}, "rate_rps: a number of requests a second is needed, as 6 (got '6 rps')"),
    ({"tenants.0": 3}, "tenants.0: a mapping of keys to values (name, model, slo_ms, arrivals …) is needed (got 3)"),
    ({"gpu.model": "a30"}, "gpu.model: unknown GPU model 'a30' (did you mean a30-24gb?); known: a100-40gb"),
    ({"tenants.0.batch": 0}, "tenants.vision.batch"),
    ({"tenants.0.batch": "most"}, "tenants.vision.batch"),
    ({"tenants.0.retraining.samples": 0}, "tenants.vision.retraining.samples"),
    ({"tenants.0.retraining.options": [{"name": "x"}] * 2}, "tenants.vision.retraining.options: two are called 'x'"),
    ({"tenants.0.retraining.curve": [[0.5, 0.5], [0.3, 0.6]]}, "tenants.vision.retraining.curve: curve has the point"),
    ({"retraining.curve": [[0.5, 0.5], [0.3, 0.6]]}, "retraining.curve: curve has the point (0.3, 0.6)"),
    ({"forecast.method": "gru"}, "forecast.method"),
    ({"forecast.model": "fitted"}, "forecast: model is of methods informer and nhits, and method is 'ewma'"),
    ({"forecast.method": "informer"}, "forecast: method 'informer' needs a model: the folder"),
    ({"gpu": None}, "gpu"),
    (
        {"tenants.0.name": "visi\u00f3n"},
        "name: a name of letters from A to Z or a to z, digits, '.', '_' and '-', begun by",
    ),
    ({"name": "-x"}, "begun by a letter or a digit, is needed (got '-x')"),
    ({"name": "x" * 101}, "name: text of at most 100 characters is needed"),
    ({"tenants.1.arrivals.sort": "yes"}, "tenants.language.arrivals.sort: true or false is needed (got 'yes')"),
    ({"windows": -1}, "windows: at least 1 is needed (got -1)"),
    ({"gpu": 3}, "gpu: a mapping of keys to values (model, card, backend, index …) is needed (got 3)"),
    ({"window_s": 1e308}, "window_s"),
    ({"windows": 10**30}, "windows"),
    ({"windows": 10**8}, "windows is 100000000"),
    ({"step_s": 1e-300}, "at most 100000 steps"),
    ({"forecast.n_paths": 10**7}, "forecast.n_paths"),
    ({"simulation": {"start_jitter": 1e308}}, "simulation.start_jitter"),
    ({"simulation": {"start_jitter": "measured"}}, "simulation.start_jitter: a number is needed (got 'measured')"),
    *(
        ({"simulation": {"service_jitter": value}}, f"{ALLOWED_SERVICE_JITTER} (got {value!r})")
        for value in ("measurd", -0.1, 11, True, None, float("nan"))
    ),
    ({"simulation": {"service_jitter": ["measured"]}}, ALLOWED_SERVICE_JITTER),
    (
        {"simulation": {"driver": {"eror_share": 1}}},
        "simulation.driver: unknown key 'eror_share'; did you mean 'error_share'?",
    ),
    (
        {"simulation": {"driver": {"error_share": 10}}},
        "simulation.driver.error_share: a share, at most 1, is needed; percent? 10 % are 0.1 (got 10)",
    ),
    ({"simulation": {"driver": {"in_use_s": -1}}}, "simulation.driver.in_use_s"),
    ({"simulation": {"others": {"placement": "1g.10gb@0"}}}, "simulation.others: a list is needed"),
    ({"simulation": {"others": [{}]}}, "simulation.others.0.placement: it is missing, and needed"),
    (
        {"simulation": {"others": [{"placement": "1g.10gb@0"}, {"placement": "1g.5gb@0"}]}},
        "simulation.others.1.placement: a100-80gb has no MIG profile '1g.5gb'; it has 1g.10gb,",
    ),
    (
        {"simulation": {"others": [{"placement": "2g.20gb@1"}]}},
        "simulation.others.0.placement: 2g.20gb cannot start at memory slice 1 on a100-80gb; allowed: 0, 2, 4",
    ),
    (
        {"simulation": {"others": [{"placement": "1g.10gb@0", "from_s": 5, "to_s": 5}]}},
        "simulation.others.0: to_s is 5; more than from_s (5) is needed",
    ),
    ({"simulation": {"others": [{"placement": "1g.10gb@0", "from_s": -5}]}}, "simulation.others.0.from_s"),
    ({"tenants.0.weight": 1e308}, "tenants.vision.weight"),
    ({"tenants.0.worker_start_s": 1e308}, "tenants.vision.worker_start_s"),
    ({"tenants.0.arrivals.scale": {"factor": 1e308}}, "tenants.vision.arrivals.scale.factor"),
    ({"name": "x" * 300}, "name"),
    ({"profile_variant": "fast"}, "profile_variant: 'recorded' or 'launch-free' is needed (got 'fast')"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_values_are_told_in_one_line_with_file_and_key(write_config, changes, message: str) -> None:
    path = write_config(changes)
    with pytest.raises(ConfigError) as error:
        read_config(path)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("value", [0, 0.2, 10, "measured"])
def test_service_jitter_is_a_number_or_as_measured(write_config, value: float | str) -> None:
    assert read_config(write_config({"simulation": {"service_jitter": value}})).simulation.service_jitter == value


POOLS = [
    (None, "auto", None, True),
    (False, "off", None, False),
    ("off", "off", None, False),
    ("auto", "auto", None, True),
    ([["vision", "language"]], [["vision", "language"]], [["vision", "language"]], True),
    ([["language"], ["vision"]], [["language"], ["vision"]], [["language"], ["vision"]], False),
]


@pytest.mark.parametrize(("given", "pools", "listed", "may_pool"), POOLS)
def test_pools_are_off_chosen_or_listed_and_read_back_equal(write_config, given, pools, listed, may_pool) -> None:
    path = write_config({"sharing": None if given is None else {"pools": given}})
    again = path.with_stem("again")
    again.write_text(config_yaml(read_config(path)))
    for config in (read_config(path), read_config(again)):
        sharing = config.sharing
        assert (sharing.pools, sharing.listed, sharing.may_pool, sharing.turn_cost) == (pools, listed, may_pool, None)


@pytest.mark.parametrize("word", ["off", "Off", "no", "false", "'off'"])
def test_a_bare_off_is_off_in_files_and_assignments(write_config, word: str) -> None:
    path = write_config({"sharing": None})
    assert read_config(path, [f"sharing.pools={word}"]).sharing.pools == "off"
    path.write_text(f"{path.read_text()}\nsharing: {{pools: {word}}}\n")
    assert "\n  pools: 'off'\n" in config_yaml(read_config(path))


def test_a_tenant_may_be_alone(write_config) -> None:
    config = read_config(write_config({"tenants.0.alone": True, "sharing.pools": [["vision"], ["language"]]}))
    assert [tenant.alone for tenant in config.tenants] == [True, False]


ALLOWED_POOLS = "sharing.pools: off, auto, or a list of pools such as [[a, b], [c]], each a list of tenants, is needed"

BAD_POOLS = [
    *(({"sharing.pools": one}, ALLOWED_POOLS) for one in (True, "on", 3, ["vision", "language"], [[]], [[True]])),
    ({"sharing.pools": [["vision", "language"], ["vision"]]}, "sharing.pools: 'vision' is there 2 times; once"),
    ({"sharing.pools": [["vision", "vision"], ["language"]]}, "sharing.pools: 'vision' is there 2 times; once"),
    ({"sharing.pools": [["vision"]]}, "sharing.pools: 'language' is in no pool; each tenant is in one"),
    ({"sharing.pools": [["vision", "x"], ["language"]]}, "sharing.pools: 'x' is no tenant; there is: vision, language"),
    (
        {"sharing.pools": [["vision", "language"]], "tenants.1.alone": True},
        "sharing.pools: 'language' is to be alone, and shares with vision",
    ),
    ({"sharing.turn_cost": -0.01}, "sharing.turn_cost: at least 0 is needed (got -0.01)"),
    (
        {"sharing.turn_cost": 1.01},
        "sharing.turn_cost: a share, at most 1, is needed; percent? 1.01 % are 0.0101 (got 1.01)",
    ),
    ({"sharing.turn_costs": 1}, "sharing: unknown key 'turn_costs'; did you mean 'turn_cost'?"),
    ({"tenants.0.alone": "yes"}, "tenants.vision.alone"),
]


POOLED = {"sharing.pools": "auto", "planner.layout": ["2g.20gb", "2g.20gb", "3g.40gb"]}

ALLOWED_LAYOUTS = "planner.layout: auto, or a list of profiles such as [2g.20gb, 2g.20gb, 3g.40gb], is needed"

BAD_LAYOUTS = [
    *((POOLED | {"planner.layout": one}, ALLOWED_LAYOUTS) for one in ([], "3g.40gb", 3, [[]])),
    (POOLED | {"planner.layout": "auto", "sharing.pools": "off"}, "planner.layout: one pool of all tenants holds it"),
    (POOLED | {"planner.layout": ["2g.2gb"]}, "planner.layout.0: a100-80gb has no '2g.2gb'; it has 1g.10gb"),
    (POOLED | {"planner.layout": ["4g.40gb"] * 2}, "planner.layout: 4g.40gb, 4g.40gb do not fit a100-80gb together"),
    (POOLED | {"sharing.pools": "off"}, "planner.layout: one pool of all tenants holds it; sharing.pools auto, or"),
    (POOLED | {"sharing.pools": [["vision"], ["language"]]}, "planner.layout: one pool of all tenants holds it; shar"),
    (POOLED | {"tenants.1.alone": True}, "planner.layout: one pool of all tenants holds it, and 'language' is to be"),
]


def test_a_layout_is_placed_beside_what_others_have_from_the_start(write_config) -> None:
    changes = POOLED | {"planner.layout": ["1g.10gb", "2g.20gb"]}
    beside = {"simulation.others": [{"placement": "3g.40gb@4"}, {"placement": "2g.20gb@0", "from_s": 5}]}
    places = [[str(one) for one in read_config(write_config(own)).layout] for own in (changes, changes | beside)]
    assert places == [["2g.20gb@4", "1g.10gb@6"], ["1g.10gb@0", "2g.20gb@2"]]
    assert read_config(write_config({})).layout == ()


@pytest.mark.parametrize(("changes", "message"), BAD_POOLS + BAD_LAYOUTS)
def test_pools_that_cannot_be_are_told_in_one_line_with_file_and_key(write_config, changes, message: str) -> None:
    path = write_config(changes)
    text = refusal(path)
    assert (text.startswith(f"{path}: "), message in text, "\n" in text) == (True, True, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is no YAML"),
        ("- a list", "a mapping of keys to values is needed"),
        ("", "a mapping of keys to values is needed"),
        ("seed: 1\nseed: 2\n", "line 2: the key 'seed' is given twice"),
        ("gpu: {model: a, model: b}\n", "the key 'model' is given twice"),
    ],
)
def test_what_is_no_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml") as error:
        read_config(path)
    assert message in str(error.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00x", None])
def test_unreadable_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        read_config(path)


def test_anchors_and_merge_keys_share_settings(tmp_path: Path, write_config) -> None:
    text = write_config().read_text().replace("gpu:\n  model: a100-80gb", "gpu: {<<: {model: a100-80gb}}")
    path = tmp_path / "merged.yaml"
    path.write_text(text)
    assert read_config(path).gpu.model == "a100-80gb"


def test_exponents_are_numbers(tmp_path: Path, write_config) -> None:
    path = tmp_path / "exponent.yaml"
    path.write_text(write_config().read_text() + "load: 1e-1\n")
    assert read_config(path).load == 0.1


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("gpu: " + "[" * 5000)
    with pytest.raises(ConfigError, match=r"deep\.yaml"):
        read_config(path)


def test_a_config_is_frozen(write_config) -> None:
    config = validate_config(yaml.safe_load(write_config().read_text()), "here")
    assert isinstance(config, Config)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 4


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    return str(caught.value)


def test_a_hundred_thousand_unknown_keys_are_refused_in_one_line(write_config) -> None:
    path = write_config()
    path.write_text("".join(f"key{n}: 1\n" for n in range(100_000)))
    assert refusal(path).startswith(f"{path}: unknown key 'key0'; known: name, seed")


@pytest.mark.parametrize(
    ("place", "key"), [("tenants.0.slo_ms", "tenants.vision.slo_ms"), ("seed", "seed"), ("unknown", "unknown")]
)
def test_a_number_of_thousands_of_digits_is_refused_by_its_key(write_config, place: str, key: str) -> None:
    path = write_config({place: "DIGITS"})
    path.write_text(path.read_text().replace("DIGITS", "1" * 5000))
    message = refusal(path)
    assert key in message
    assert len(message) < len(str(path)) + 400


@pytest.mark.parametrize("key", ["tenants.1.arrivals.trace", "profiles", "tenants.0.model"])
def test_a_nul_in_a_text_is_refused(write_config, key: str) -> None:
    told = key.replace("tenants.0", "tenants.vision").replace("tenants.1", "tenants.language")
    assert f"{told}: text without NUL characters is needed (got 'a\\x00b')" in refusal(write_config({key: "a\0b"}))


def test_a_link_that_leads_to_itself_is_a_name_like_any_other(write_config, tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    assert read_config(write_config({"profiles": "loop.csv"})).profiles == str(tmp_path / "loop.csv")


def test_a_long_value_and_a_long_key_are_shown_in_part(write_config) -> None:
    assert len(refusal(write_config({"k" * 10_000: 1}))) < 500
    assert len(refusal(write_config({"gpu.model": ["k" * 10_000]}))) < 500
    assert len(refusal(write_config({"gpu.backend": "k" * 10_000}))) < 500
