"""The models of a live run: what profilers find becomes what plans are told. The profilers are played."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from executor.errors import GpuError
from executor.messages import value_in
from migrator.config.reading import read_config
from migrator.config.sections import Config, InputConfig, LearningConfig, RetrainingConfig, TenantPinConfig
from migrator.errors import ConfigError, LiveError, MigratorError
from migrator.inputs.assembly import assemble
from migrator.inputs.estimates import as_estimated
from tests.migrator.log import records as log_records
from workloads.learning.course import Started
from workloads.learning.inbox import Inbox
from workloads.learning.profiler import Came, Found, Measured, Prepared, Refused, Tried

pytest.importorskip("zmq")

from migrator.execution.live.learning import SPARE, LiveModels, Taught, learned_in
from migrator.execution.live.site import Asking, Site
from migrator.log.weights import FIRST, Served

CONFIG = Path(__file__).parents[4] / "configs" / "live-cpu.yaml"
PREPARED = Prepared("/w/first", "random", 0.9, (400,) * 5, "uint8", (1, 8, 8), 10)
MEASURED = Measured(0.3, raw={"full": 0.8, "half": 0.6}, accuracy_after={"full": 0.85, "half": 0.65}, took_s=1.5)
OPTIONS = [{"name": "half", "samples": 200}, {"name": "quick", "epochs": 1, "gain": 0.7}]


class Profilers(Site):
    """A site of which only the profilers are there, who all write the same."""

    def __init__(self, folder: Path, prepared: Prepared = PREPARED) -> None:
        self.folder = folder
        self.writes: Found | str = prepared
        self.asked: list[Mapping[str, Any]] = []
        self.begun: list[tuple[str, Mapping[str, Any]]] = []
        self.by_function: dict[str, Found] = {}
        self._function: dict[int, str] = {}
        self.stopped: list[Asking] = []
        self.environment: Mapping[str, str] = {}
        self.takes_long = False

    def begin_asking(
        self,
        function: str,
        asked: Sequence[Mapping[str, Any]],
        limit_s: float,
        environment: Mapping[str, str],
    ) -> Asking:
        self.asked, self.environment = list(asked), environment
        self.begun += [(function.rpartition(":")[2], one) for one in asked]
        asking = Asking({str(number): self.folder for number in range(len(asked))}, limit_s)
        self._function[id(asking)] = function.rpartition(":")[2]
        return asking

    def answered(self, asking: Asking) -> list[Found | str] | None:
        writes = self.by_function.get(self._function[id(asking)], self.writes)
        return None if self.takes_long and asking.outs else [writes for _ in asking.outs]

    def end_asking(self, asking: Asking) -> list[Found | str]:
        self.stopped.append(asking)
        return []


def models(site: Profilers, options: Sequence[Mapping[str, Any]] = ()) -> LiveModels:
    config = read_config(CONFIG)
    own = RetrainingConfig(samples=400, epochs=2, options=list(options))
    tenants = [config.tenants[0].model_copy(update={"retraining": own}), config.tenants[1]]
    config = config.model_copy(update={"tenants": tenants})
    setting, traffic = assemble(config, "live-cpu.yaml")
    requests = traffic.requests(0, round(config.windows * config.window_s))
    return LiveModels(setting.config, setting.tenants, site, requests, aside)


SERVES = {"learning": None, "retraining": None, "input": InputConfig(dtype="float32", shape=[3, 8]), "classes": 10}
"""What a tenant has that only serves."""


def served_models(site: Profilers, first: Mapping[str, Any], second: Mapping[str, Any]) -> LiveModels:
    """Models that others ask, of two tenants with these keys."""
    config = read_config(CONFIG)
    changes = ({"retraining": None, **own} for own in (first, second))
    tenants = [one.model_copy(update=own) for one, own in zip(config.tenants, changes, strict=True)]
    setting, _ = assemble(config.model_copy(update={"tenants": tenants}), "live-cpu.yaml")
    return LiveModels(setting.config, setting.tenants, site, None, aside)


def aside(*, busy: bool) -> Mapping[str, str]:
    return {"ASIDE": "beside instances" if busy else "alone"}


@pytest.fixture
def site(tmp_path: Path) -> Profilers:
    return Profilers(tmp_path)


def test_profilers_keep_out_of_the_way_once_instances_serve(site: Profilers) -> None:
    made = models(site)
    assert site.environment == aside(busy=False)
    site.writes = MEASURED
    made.open(0)
    assert site.environment == aside(busy=True)


def test_where_profilers_cannot_compute_the_run_does_not_go_on(
    site: Profilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*, busy: bool) -> Mapping[str, str]:  # noqa: ARG001
        raise GpuError("no daemon")

    made = models(site)
    monkeypatch.setattr(made, "_aside", gone)
    with pytest.raises(LiveError, match="profilers cannot start: no daemon"):
        made.open(0)


def test_what_a_profiler_measured_is_what_plans_are_told(site: Profilers) -> None:
    made = models(site)
    site.writes = MEASURED
    assert made.open(0) == (0.3, 0.3)
    assert made.estimates is not None
    one, _ = made.estimates
    seconds = made._learners["turned"].tenant.retraining_time_s
    assert (one.accuracy_after, one.source) == (0.85, "measured in 1.50 s")
    assert one.retraining_s == {name: pytest.approx(SPARE * s, abs=1e-4) for name, s in seconds.items()}
    assert {asked["budget_s"] for asked in site.asked} == {6.0}  # the config leaves 8 s, loading takes 2 of them


@pytest.mark.parametrize(("n_there", "options", "share"), [(400, (), 1.0), (100, (), 0.25), (100, OPTIONS[:1], 0.5)])
def test_where_the_data_has_fewer_samples_than_asked_for_a_retraining_is_taken_to_be_as_much_shorter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], n_there: int, options: Sequence[Mapping[str, Any]], share: float
) -> None:
    site = Profilers(tmp_path, replace(PREPARED, n_samples=(400, *(n_there,) * 4)))
    made = models(site, options)
    said = f"tenants.turned: retrainings are to take {200 if options else 400} samples or more; digits-rotated has 100"
    assert (said in " ".join(capsys.readouterr().err.split())) == (share < 1)
    site.writes = MEASURED
    made.open(0)
    seconds = made._learners["turned"].tenant.retraining_time_s
    assert made.estimates[0].retraining_s == {
        name: pytest.approx(SPARE * share * s, abs=1e-4) for name, s in seconds.items()
    }


def test_what_is_still_being_measured_is_asked_for_again_until_the_next_window_is(site: Profilers) -> None:
    made = models(site)
    site.writes, site.takes_long = MEASURED, True
    assert made.opened(0) is None
    assert made.estimates is None
    site.takes_long = False
    assert made.opened(0) == (0.3, 0.3)
    site.takes_long = True
    first = made.estimates
    assert made.opened(1) is None
    assert made.estimates == first  # what was last estimated, until more is known
    assert made.opened(2) is None
    assert len(site.stopped) == 1
    assert {asked["window"] for asked in site.asked} == {2}


def test_the_accuracy_in_service_is_what_was_measured_last_of_the_weights_that_answer(site: Profilers) -> None:
    made = models(site)
    site.writes = MEASURED
    made.open(0)
    assert made.accuracy("turned") == 0.3
    made.serve("turned", Served(Path("/w/new"), "window-0", 0.8))
    assert made.accuracy("turned") == 0.3  # workers are still loading them
    assert made.opened(1) == (0.3, 0.3)
    made.trained("turned", 0, 61.0)
    assert (made.accuracy("turned"), made.accuracy("grown")) == (0.8, 0.3)
    made.open(1)  # of the weights with which the window began
    assert made.accuracy("turned") == 0.8


@pytest.mark.parametrize(("new", "is_served"), [(0.79, True), (0.78, True), (0.77, False)])
def test_new_weights_that_are_worse_by_more_than_is_allowed_are_not_served(
    site: Profilers, new: float, is_served: bool
) -> None:
    assert models(site).serves("turned", new, Started(0.8, "first", 0.1)) is is_served


def test_after_a_retraining_that_was_rejected_the_accuracy_in_service_is_as_before(site: Profilers) -> None:
    made = models(site)
    site.writes = MEASURED
    made.open(0)
    assert made.trained("turned", 0, 31.0) == made.accuracy("turned") == 0.3
    made.serve("turned", Served(Path("/w/new"), "window-1", 0.8))
    assert made.trained("turned", 1, 61.0) == 0.8
    made.open(2)
    assert made.trained("turned", 2, 131.0) == made.accuracy("turned") == 0.3


def test_what_could_not_be_measured_is_the_configs_and_that_is_said(
    site: Profilers, capsys: pytest.CaptureFixture[str]
) -> None:
    made = models(site)
    site.writes = "not done within 60 s"
    assert made.open(0) == (0.4, 0.0)
    assert made.estimates is not None
    assert [one.accuracy_after for one in made.estimates] == [0.9, 0.95]
    assert {one.source for one in made.estimates} == {
        "the config, because nothing could be measured: not done within 60 s"
    }
    said = " ".join(capsys.readouterr().err.split())
    assert "window 0: nothing was measured of turned, so the config's accuracies hold: not done within 60 s" in said


def test_later_retrainings_are_taken_to_last_as_past_ones_did(site: Profilers) -> None:
    made = models(site)
    profile, seconds = next(iter(made._learners["turned"].tenant.retraining_time_s.items()))
    for factor in (1.0, 2.0, 7.0):
        made.ended("turned", Taught(0, "full", 0.8, factor * seconds), profile)
    site.writes = MEASURED
    made.open(1)
    assert made.estimates is not None
    assert made.estimates[0].retraining_s[profile] == pytest.approx(2.0 * seconds, abs=1e-4)


def test_what_an_estimate_was_off_by_is_handed_to_the_next(site: Profilers) -> None:
    made = models(site)
    site.writes = MEASURED
    made.open(0)
    made.ended("turned", Taught(0, "full", 0.7, 1.0), next(iter(made._learners["turned"].tenant.retraining_time_s)))
    made.open(1)
    corrections = [asked["correction"] for asked in site.asked]
    assert corrections[0]["bias"] == pytest.approx((0.7 - 0.8) / 2)
    assert corrections[1]["n_windows"] == 0


def test_what_the_log_tells_of_retrainings_is_known_again(site: Profilers) -> None:
    made, again = models(site), models(site)
    site.writes = MEASURED
    made.open(0)
    profile = next(iter(made._learners["turned"].tenant.retraining_time_s))
    expected = made.ended("turned", Taught(0, "full", 0.7, 3.0), profile)
    told = {"accuracy": 0.7, "trained_s": 3.0, "expected": expected}
    name = f"{profile}@0#1"
    changed = log_records.change(0, 0.0, [log_records.started(name, 0.0, f"{profile}@0", "turned", "retraining")])
    names = ("turned", "grown")
    begun = [log_records.window_started(window, 30.0, *names) for window in (0, 1)]
    for one, accuracy in zip(begun, (0.6, 0.35), strict=True):
        one["forecast"]["tenants"]["turned"]["accuracy_before"] = accuracy
    ended = log_records.finished(0, name, 9.0, "turned") | told
    log = log_records.log_of(log_records.header(30.0, *names), begun[0], changed, ended, begun[1])
    again.recall(log, 60.0)
    assert again.accuracies["turned"].lasting(30.0) == {1: 0.5}
    for name in ("correction", "slowness"):
        assert getattr(again._learners["turned"], name) == getattr(made._learners["turned"], name)
    assert again._learners["grown"].correction.n_windows == 0
    assert again.accuracy("turned") == again.served("turned").accuracy


def test_first_weights_that_were_trained_before_are_not_trained_again(site: Profilers) -> None:
    config = read_config(CONFIG)
    setting, _ = assemble(config, "live-cpu.yaml")
    LiveModels(setting.config, setting.tenants, site, None, aside, {}, {"turned": Path("/w/first.safetensors")})
    jobs = {json.loads(asked["job"])["out"].split("/")[-2]: json.loads(asked["job"]) for _, asked in site.begun}
    assert {name: job.get("weights") for name, job in jobs.items()} == {
        "turned": "/w/first.safetensors",
        "grown": None,
    }


def kept_models(site: Profilers, folder: Path, versions: Sequence[str]) -> LiveModels:
    """Models whose first tenant has been retrained to these versions, whose files are there, as is its first one."""
    made = models(site)
    made._models["turned"].versions.clear()
    for name in (FIRST, *versions):
        (folder / name).write_text("weights")
        made.serve("turned", Served(folder / name, name, 0.5 + 0.1 * len(made._models["turned"].versions)))
    return made


def test_the_weights_before_those_in_service_are_the_newest_that_are_kept(site: Profilers, tmp_path: Path) -> None:
    made = kept_models(site, tmp_path, ["window-1", "window-2", "window-3"])
    (tmp_path / "window-2").unlink()
    assert made.older("turned", None).version == "window-1"
    made.roll_back("turned", made.older("turned", None), 10.0)
    assert (made.served("turned").version, made.accuracy("turned")) == ("window-1", 0.6)
    assert made.older("turned", None).version == FIRST
    assert made.older("turned", "window-3").version == "window-3"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("nobody", None), "there is no tenant 'nobody'; there is: turned, grown"),
        (("turned", "window-9"), "turned: weights 'window-9' are not kept; there is: first, window-1"),
        (("turned", "window-1"), "turned: answers with window-1 as it is"),
        (("grown", None), "grown: no weights are kept from before first"),
    ],
)
def test_weights_that_are_not_kept_are_refused_in_one_line(
    site: Profilers, tmp_path: Path, asked: tuple[str, str | None], said: str
) -> None:
    with pytest.raises(MigratorError) as caught:
        kept_models(site, tmp_path, ["window-1"]).older(*asked)
    assert str(caught.value) == said


def pinning(made: LiveModels, version: str | None) -> Config:
    """The config with the first tenant's weights pinned."""
    first, *others = made.config.tenants
    first = first.model_copy(update={"pin": TenantPinConfig(weights=version)})
    return made.config.model_copy(update={"tenants": [first, *others]})


def test_pins_are_of_weights_that_are_kept(site: Profilers, tmp_path: Path) -> None:
    made = kept_models(site, tmp_path, ["window-1", "window-2"])
    for version in (None, FIRST, "window-1", "window-2"):
        made.require_versions(pinning(made, version).tenants)
    with pytest.raises(ConfigError) as refused:
        made.require_versions(pinning(made, "window-9").tenants)
    said = "tenants.turned.pin.weights: 'window-9' is not kept; there is: first, window-2, window-1"
    assert str(refused.value) == said
    made.config = pinning(made, "window-1")
    assert (made.pinned("turned"), made.pinned("grown")) == ("window-1", None)
    assert {file.name for file in made.files_in_use("turned")} == {"window-1", "window-2"}


def test_a_run_begins_with_pins_of_first_weights_and_goes_on_with_those_of_its_log(site: Profilers) -> None:
    made = models(site)
    config, tenants = pinning(made, "window-3"), [one.tenant for one in made._models.values()]
    site.begun.clear()
    with pytest.raises(ConfigError, match=r"'window-3' is not kept; there is: first$"):
        LiveModels(config, tenants, site, None, aside)
    assert site.begun == []  # nothing was trained in vain
    LiveModels(pinning(made, FIRST), tenants, site, None, aside)
    served, later = (Served(Path(f"/w/{n}"), f"window-{n}", 0.5) for n in (3, 30))
    again = LiveModels(config, tenants, site, None, aside, {"turned": served}, kept={"turned": [later]})
    assert [*again._models["turned"].versions] == [FIRST, "window-3", "window-30"]


@pytest.mark.parametrize(("version", "window"), [(FIRST, -1), ("window-12", 12), ("window-3@0.50.7", 3)])
def test_a_version_says_what_it_has_learned(version: str, window: int) -> None:
    assert learned_in(version) == window


def test_every_option_is_read_off_the_measured_curve(site: Profilers) -> None:
    made = models(site, OPTIONS)
    site.writes = replace(MEASURED, accuracy_after={"full": 0.8, "half": 0.55, "quick": 0.9})
    made.open(0)
    assert site.asked[0]["options"] == {
        "full": {"n_samples": 400, "n_epochs": 2},
        "half": {"n_samples": 200, "n_epochs": 2},
        "quick": {"n_samples": 400, "n_epochs": 1},
    }
    assert made.estimates is not None
    assert made.estimates[0].gains == {
        "half": 0.5,
        "quick": 1.0,
    }  # from 0.3 half of the way to 0.8, and beyond
    known = as_estimated(made._learners["turned"].tenant, made.estimates[0])
    assert [(one.name, one.gain) for one in known.options] == [("full", 1.0), ("half", 0.5), ("quick", 1.0)]


def test_options_that_could_not_be_measured_gain_what_the_config_says(site: Profilers) -> None:
    made = models(site, OPTIONS)
    site.writes = replace(MEASURED, raw=None, accuracy_after=None)
    made.open(0)
    assert made.estimates is not None
    assert made.estimates[0].gains == {"half": pytest.approx(0.5**0.5), "quick": 0.7}


def test_a_retraining_by_another_option_teaches_what_it_was_and_learns_so_much(site: Profilers) -> None:
    made = models(site, OPTIONS)
    profile, full_s = next(iter(made._learners["turned"].tenant.retraining_time_s.items()))
    site.writes = MEASURED
    made.open(0)
    job = made.job("turned", 0, Path("/out"), 10.0, "half")
    assert (job.option.name, job.option.n_samples, job.option.n_epochs) == ("half", 200, 2)
    made.ended("turned", Taught(0, "half", 0.5, 3 * full_s / 2), profile)
    made.open(1)
    assert site.asked[0]["correction"]["bias"] == pytest.approx((0.5 - 0.6) / 2)
    assert made.estimates is not None
    assert made.estimates[0].retraining_s[profile] == pytest.approx(3.0 * full_s, abs=1e-4)


def test_a_retraining_that_gains_nothing_leaves_no_share_of_it_to_others(site: Profilers) -> None:
    made = models(site, OPTIONS[:1])
    site.writes = replace(MEASURED, accuracy_after={"full": 0.3, "half": 0.3})
    made.open(0)
    assert made.estimates is not None
    assert made.estimates[0].gains == {"half": 0.0}


def test_a_model_or_data_that_cannot_be_had_is_bad_input(site: Profilers) -> None:
    site.writes = Refused("data set cifar10: not in /data")
    with pytest.raises(ConfigError, match=r"^tenants\.turned: data set cifar10: not in /data$"):
        models(site)


def test_a_profiler_that_dies_is_no_bad_input(site: Profilers) -> None:
    site.writes = "killed by signal 9, maybe for want of memory"
    with pytest.raises(LiveError, match=r"^tenants\.turned: killed by signal 9"):
        models(site)


@pytest.mark.parametrize(
    ("began_with", "is_told"), [("random (pretrained ones cannot be had: no network)", True), ("pretrained", False)]
)
def test_pretrained_weights_that_cannot_be_had_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], began_with: str, is_told: bool
) -> None:
    models(Profilers(tmp_path, replace(PREPARED, began_with=began_with)))
    told = f"tenants.turned: cnn_wide began to learn with weights that are {began_with}"
    assert (told in " ".join(capsys.readouterr().err.split())) is is_told


# --- what others write to learn from

READS = {
    **SERVES,
    "retraining": RetrainingConfig(samples=400, epochs=2),
    "input": InputConfig(dtype="uint8", shape=[3, 8]),
    "learning": LearningConfig(benchmark="folder", folder="/w/new"),
    "weights": "/w/own.safetensors",
}
NEW = replace(MEASURED, came=Came("/w/window-0.npz", 1, is_new=True, told=("a.txt: its name does not end in .npz",)))
OLD = replace(NEW, accuracy_before=0.35, came=Came("/w/window-0.npz", 1, is_new=False, told=()))
NEVER = Measured(None, None, None, 0.1, Came(None, 0, is_new=False, told=()))


def readers(tmp_path: Path) -> tuple[Profilers, LiveModels]:
    site = Profilers(tmp_path)
    site.by_function = {"try_out": Tried("/w/own.safetensors"), "estimate": NEW}
    return site, served_models(site, READS, SERVES)


def test_what_others_have_written_is_what_the_windows_retraining_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, made = readers(tmp_path)
    assert [function for function, _ in site.begun] == ["try_out", "try_out"]
    assert made.open(0) == (0.3, 0.0)
    (asked,) = site.asked
    inbox = value_in(asked["inbox"], Inbox)
    assert (inbox.folder, inbox.shape, inbox.n_classes, asked["trained"]) == (Path("/w/new"), (3, 8), 10, -1)
    assert inbox.kept == tmp_path.parent / "data" / "turned"
    job = made.job("turned", 0, Path("out"))
    assert (job.folder, job.experience, job.weights) == (Path("/w/window-0.npz"), 1, Path("/w/own.safetensors"))
    assert made.estimates is not None
    assert made.estimates[0].accuracy_after == 0.85
    said = "tenants.turned.learning.folder: a.txt: its name does not end in .npz"
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("found", "before"), [(OLD, 0.35), (NEVER, 0.4)])
def test_without_anything_new_there_is_no_retraining_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: Measured, before: float
) -> None:
    site, made = readers(tmp_path)
    made.open(0)
    made.ended("turned", Taught(0, "full", 0.8, 1.0), "1c")
    site.by_function["estimate"] = found
    assert made.open(1)[0] == before
    assert site.asked[0]["trained"] == 0
    assert made.estimates is not None
    assert made.estimates[0].retraining_s == {}
    said = "window 1: turned has nothing new to learn from, so that it is not retrained"
    assert said in " ".join(capsys.readouterr().err.split())


# --- the operator's own weights, and models that only serve


def test_a_model_that_only_serves_is_tried_and_is_as_accurate_as_the_config_says(site: Profilers) -> None:
    site.writes = Tried("/w/own.safetensors")
    own = {**SERVES, "weights": "/w/own.safetensors", "model_options": {"classes": 9, "n_classes": 11}}
    made = served_models(site, own, SERVES)
    options = {"shape": [3, 8], "n_classes": 11, "dtype": "float32", "classes": 9}
    told = {"model": "cnn_wide", "options": options, "input_bytes": 96, "weights": "/w/own.safetensors"}
    assert site.begun[0] == ("try_out", told)
    assert made.served("turned") == Served(Path("/w/own.safetensors"), "first", 0.4)
    assert made.served("grown").file is None
    assert (made.input_of("turned"), made.input_bytes("turned")) == (("float32", (3, 8)), 96)
    assert made.model_options("turned") == options
    site.takes_long = True  # there is nothing to measure
    assert made.opened(0) == made.open(1) == (0.4, 0.0)
    assert made.estimates is not None
    assert [one.retraining_s for one in made.estimates] == [{}, {}]
    assert (made.accuracy("turned"), made.measured) == (0.4, {})


def test_who_comes_is_tried_beside_serving_and_who_goes_may_still_be_asked_for(site: Profilers) -> None:
    site.writes = Tried("/w/own.safetensors")
    made = served_models(site, SERVES, SERVES)
    made.open(0)
    turned, grown = made.config.tenants
    third = turned.model_copy(update={"name": "third"})
    setting, _ = assemble(made.config.model_copy(update={"tenants": [grown, third]}), "live-cpu.yaml")
    site.takes_long = True
    coming = made.coming(setting.config.tenants[1:], setting.tenants[1:])
    assert [next(coming), next(coming)] == [False, False]
    assert site.environment == {"ASIDE": "beside instances"}
    site.takes_long = False
    assert next(coming)
    assert made.input_of("third") == ("float32", (3, 8))  # its door is made before it is there
    made.config = setting.config
    made.change_tenants(setting.tenants, 1, 70.0)
    assert [*made.accuracies] == ["grown", "third"]
    assert made.accuracies["third"].newest == 0.4
    assert (made.served("turned").version, made.accuracy("turned")) == ("first", 0.4)
    assert made.open(1) == (0.0, 0.4)


def test_who_comes_while_a_window_is_measured_learns_with_the_next(tmp_path: Path) -> None:
    site = Profilers(tmp_path)
    site.by_function = {"try_out": Tried("/w"), "prepare": PREPARED, "estimate": MEASURED}
    made = served_models(site, SERVES, {})
    turned, grown = made.config.tenants
    both = [grown, grown.model_copy(update={"name": "third"})]
    setting, _ = assemble(made.config.model_copy(update={"tenants": both}), "live-cpu.yaml")
    assert [*made.coming(setting.config.tenants[1:], setting.tenants[1:])] == [True]
    site.takes_long = True
    assert made.opened(0) is None
    made.config = setting.config
    made.change_tenants(setting.tenants, 0, 7.0)
    site.takes_long = False
    assert made.opened(0) == (0.3, 0.9)  # who comes is as it was prepared
    assert isinstance(made.measured["grown"], Measured)
    assert isinstance(made.measured["third"], str)
    made.opened(1)
    assert isinstance(made.measured["third"], Measured)
    assert turned.name not in made.measured


def test_a_model_of_who_comes_that_cannot_be_had_is_bad_input(site: Profilers) -> None:
    site.writes = Tried("/w/own.safetensors")
    made = served_models(site, SERVES, SERVES)
    third = made.config.tenants[0].model_copy(update={"name": "third"})
    site.writes = Refused("tensor 0 is missing")
    with pytest.raises(ConfigError, match=r"tenants\.third: tensor 0 is missing"):
        next(made.coming([third], assemble(made.config, "live-cpu.yaml")[0].tenants[:1]))
    site.takes_long = True
    waits = made.coming([third], assemble(made.config, "live-cpu.yaml")[0].tenants[:1])
    assert not next(waits)
    waits.close()
    assert site.stopped


def test_beside_a_model_that_only_serves_another_learns_and_is_measured(tmp_path: Path) -> None:
    site = Profilers(tmp_path)
    site.by_function = {"try_out": Tried("/w"), "prepare": PREPARED, "estimate": MEASURED}
    made = served_models(site, SERVES, {})
    assert [function for function, _ in site.begun] == ["try_out", "prepare"]
    assert made.open(0) == (0.4, 0.3)
    assert [*made.measured] == ["grown"]
    assert made.estimates is not None
    assert [one.accuracy_after for one in made.estimates] == [0.4, 0.85]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("random", "tenants.turned: cnn_wide answers with weights that are random, so no better than chance"),
        ("random (pretrained ones cannot be had: no network)", "cannot be had: no network), so no better than chance"),
        ("pretrained", "answers with the library's weights; the last layer is random unless these are its classes"),
        ("/w/own.safetensors", ""),
        ("", ""),
    ],
)
def test_weights_that_are_nobodys_own_are_told(
    site: Profilers, capsys: pytest.CaptureFixture[str], weights: str, said: str
) -> None:
    site.writes = Tried(weights)
    served_models(site, SERVES, SERVES)
    told = " ".join(capsys.readouterr().err.split())
    assert said in told
    assert bool(said) == bool(told)


def test_weights_that_do_not_fit_are_bad_input(site: Profilers) -> None:
    site.writes = Refused("/w/own.safetensors: tensor 1.weight is missing")
    with pytest.raises(ConfigError, match=r"^tenants\.turned: /w/own\.safetensors: tensor 1\.weight is missing$"):
        served_models(site, {**SERVES, "weights": "/w/own.safetensors"}, SERVES)


def test_a_model_that_learns_begins_with_weights_that_are_given(site: Profilers) -> None:
    made = served_models(site, {"weights": "/w/own.safetensors", "model_options": {"width": 8}}, {})
    (_, first), (_, second) = site.begun
    job = json.loads(first["job"])
    assert (job["weights"], job["model_options"], first["requests"]) == ("/w/own.safetensors", {"width": 8}, None)
    assert json.loads(second["job"])["weights"] is None
    assert made.served("turned") == Served(Path(PREPARED.weights), "first", 0.9)
