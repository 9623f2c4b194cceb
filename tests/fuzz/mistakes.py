"""Mistakes that people make in configs, traces, profiles, problem files and arguments, and what is said of each.

A value of a table is what is changed, and a part of the one line of refusal; where the input is used all the same, a
part of the warning, behind :data:`WARNED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fuzz.cases import profiles_text

WARNED = "warning: "

FIRST, TRACED = "tenants.0", "tenants.1.arrivals"

CONFIGS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "the GPU alone": (
        {"gpu": "a100-80gb"},
        "gpu: a mapping of keys to values (",
    ),
    "a list of GPUs": ({"gpu": [{"model": "a100-80gb"}]}, "gpu: a mapping of keys to values ("),
    "a GPU without its memory": ({"gpu.model": "a100"}, "(did you mean a100-80gb?)"),
    "a misspelt GPU": ({"gpu.model": "a100-80bg"}, "(did you mean a100-80gb?)"),
    "a GPU by a number": ({"gpu.model": 100}, "gpu.model: text is needed (got 100)"),
    "no GPU": ({"gpu.model": None}, "gpu.model: it is missing, and needed"),
    "an unknown backend": ({"gpu.backend": "cuda"}, "'sim', 'nvml', 'smi', 'mps' or 'cpu' is needed"),
    "a quoted number": ({"gpu.index": "0"}, "gpu.index: a whole number is needed, as 0"),
    "a window of no whole steps": ({"window_s": 20.5}, "a whole number of steps of 1 s is needed"),
    "a step longer than the window": ({"step_s": 30}, "a whole number of steps of 30 s is needed"),
    "a step in milliseconds": ({"step_s": 1000}, "a whole number of steps of 1000 s is needed"),
    "no window": ({"windows": 0}, "windows: at least 1 is needed (got 0)"),
    "windows in quotation marks": ({"windows": "4"}, "windows: a whole number is needed, as 4"),
    "windows as a boolean": ({"windows": True}, "windows: a whole number is needed (got True)"),
    "load in percent": ({"load": 70}, "percent? 70 % are 0.7"),
    "a load beyond use": ({"load": 5}, WARNED + "load is 5: at 1 the tenants, one after the other, would fill the GPU"),
    "a load below zero": ({"load": -0.5}, "load: more than 0 is needed"),
    "a load that is no number": ({"load": float("nan")}, "load: a finite number is needed"),
    "a window without an end": ({"window_s": float("inf")}, "window_s: a finite number is needed"),
    "a seed in words": ({"seed": "abc"}, "seed: a whole number is needed"),
    "a misspelt key": ({"window": 200}, "unknown key 'window'; did you mean 'windows'?"),
    "tenants by name": ({"tenants": {"vision": {}}}, "tenants: a list is needed"),
    "no tenants": ({"tenants": []}, "tenants: a list of 1 or more is needed"),
    "two tenants of one name": ({"tenants.1.name": "vision"}, "two tenants are called 'vision'"),
    "a name with a space": ({f"{FIRST}.name": "my model"}, "a name of letters from A to Z or a to z, digits"),
    "a name in Chinese": ({f"{FIRST}.name": "视觉"}, "a name of letters from A to Z or a to z, digits"),
    "an unknown model": ({f"{FIRST}.model": "resnet51"}, "(did you mean resnet50?)"),
    "an SLO in seconds": ({f"{FIRST}.slo_ms": 0.15}, "meets an SLO of 0.15 ms on no profile"),
    "an SLO with its unit": ({f"{FIRST}.slo_ms": "150ms"}, "a number of milliseconds is needed, as 150"),
    "an SLO that no profile meets": ({f"{FIRST}.slo_ms": 2}, "9.32 ms or more would do"),
    "accuracy in percent": ({f"{FIRST}.accuracy": {"before": 60, "after": 90}}, "percent? 60 % are 0.6"),
    "one accuracy": ({f"{FIRST}.accuracy": 0.6}, "{before, after} is needed, shares of at most 1"),
    "half an accuracy": ({f"{FIRST}.accuracy": {"before": 0.9}}, "accuracy.after: it is missing, and needed"),
    "samples alone": ({f"{FIRST}.retraining": 1000}, "(samples, epochs, windows, required …) is needed"),
    "no epoch": ({f"{FIRST}.retraining": {"samples": 5, "epochs": 0}}, "epochs: at least 1 is needed"),
    "a batch of nothing": ({f"{FIRST}.batch": 0}, "batch: at least 1 is needed"),
    "a batch that was not measured": ({f"{FIRST}.batch": 7}, "it has batches 1, 8, 32"),
    "processes that were not measured": ({f"{FIRST}.processes": 9}, "and processes 1, not every pair"),
    "a batch above its limit": ({f"{FIRST}.max_batch": 1, f"{FIRST}.batch": 8}, "with batch 8 (at most 1)"),
    "a profile of another GPU": ({f"{FIRST}.min_profile": "1g.5gb"}, "a100-80gb has 1g.10gb, 1g.10gb+me"),
    "half a profile": ({f"{FIRST}.min_profile": "9g"}, "min_profile is '9g'; a100-80gb has 1g.10gb"),
    "a weight below zero": ({f"{FIRST}.weight": -1}, "weight: at least 0 is needed"),
    "attainment in percent": ({f"{FIRST}.min_slo_attainment": 90}, "percent? 90 % are 0.9"),
    "a trace and a rate": ({f"{TRACED}.rate_rps": 5}, "give either 'trace' (a name or a file) or 'rate_rps'"),
    "no arrivals": ({TRACED: {}}, "give either 'trace' (a name or a file) or 'rate_rps'"),
    "a rate in words": ({f"{FIRST}.arrivals": {"rate_rps": "fast"}}, "a number of requests a second is needed"),
    "a rate of nothing": ({f"{FIRST}.arrivals": {"rate_rps": 0}}, "rate_rps: more than 0 is needed"),
    "a rate alone": ({f"{FIRST}.arrivals": 60}, "(trace, format, sort, gaps …) is needed (got 60)"),
    "a misspelt trace file": ({f"{TRACED}.trace": "trase.csv"}, "trace.csv?)"),
    "a misspelt shipped trace": ({f"{TRACED}.trace": "azure-convv"}, "(did you mean azure-conv?)"),
    "a folder for a trace": ({f"{TRACED}.trace": "."}, "it is a folder; a file is needed"),
    "an unknown format": ({f"{TRACED}.format": "csv"}, "'azure' or 'timestamps' is needed (got 'csv')"),
    "a format that the header contradicts": ({f"{TRACED}.format": "timestamps"}, "the column 'count' seems to count"),
    "a misspelt column": ({f"{TRACED}.column": "counts"}, "(did you mean count?); its series: 'count'"),
    "a unit of minutes": ({f"{TRACED}.unit": "min"}, "'s', 'ms', 'us' or 'ns' is needed (got 'min')"),
    "a unit where the header says one": ({f"{TRACED}.unit": "ms"}, "the header second,count says seconds"),
    "a column of times that is not there": ({f"{TRACED}.time_column": "when"}, "its columns: 'second', 'count'"),
    "a begin beyond the trace": ({f"{TRACED}.offset_s": 9000, f"{TRACED}.loop": False}, "need a trace of 9020 s"),
    "a begin without a past": (
        {f"{TRACED}.offset_s": 5, f"{TRACED}.loop": False},
        "the forecaster needs forecast.hist",
    ),
    "a begin before the trace": ({f"{TRACED}.offset_s": -5}, "offset_s: at least 0 is needed"),
    "yes in quotation marks": ({f"{TRACED}.sort": "yes"}, "sort: true or false is needed (got 'yes')"),
    "a factor alone": ({f"{TRACED}.scale": 2}, "(method, factor, smooth_s) is needed (got 2)"),
    "a factor in percent": ({f"{TRACED}.scale": {"factor": "200%"}}, "factor: a number is needed (got '200%')"),
    "thinning to more": ({f"{TRACED}.scale": {"method": "thin", "factor": 2}}, "thin needs ≤ 1 (copies or poisson"),
    "an unknown filling": ({f"{TRACED}.gaps": "fill"}, "'zero', 'interpolate' or 'refuse' is needed"),
    "misspelt profiles": ({"profiles": "profile.csv"}, "profiles.csv?)"),
    "a trace for profiles": ({"profiles": "trace.csv"}, "the header is 'second,count'; source,gpu,model,profile"),
    "a forecaster alone": ({"forecast": "ewma"}, "(method, model, history_s, half_life_s …) is needed (got 'ewma')"),
    "an unknown forecaster": ({"forecast.method": "arima"}, "'nhits' or 'known' is needed (got 'arima')"),
    "a past shorter than a season": ({"forecast": {"season_s": 200, "history_s": 20}}, "needs at least 200 s"),
    "a season of no whole steps": ({"forecast": {"season_s": 10.5, "history_s": 40}}, "a whole number of steps of 1 s"),
    "no path": ({"forecast.n_paths": 0}, "n_paths: at least 1 is needed"),
    "planning anew all the time": ({"planner.replan_every_s": 0}, "a number of seconds above 0, or 'never', is needed"),
    "planning anew off": ({"planner.replan_every_s": "off"}, "or 'never', is needed (got 'off')"),
    "planning as long as a window": ({"planner.planning_s": 20, "windows": 2}, "it must leave a step of window_s"),
    "risk in percent": ({"planner.risk": 50}, "percent? 50 % are 0.5"),
    "half a schedule": ({"planner.max_schedules": 4.5}, "max_schedules: a whole number is needed"),
    "pools by yes": ({"sharing": {"pools": "yes"}}, "off, auto, or a list of pools such as [[a, b], [c]]"),
    "a pool of somebody else": ({"sharing": {"pools": [["vision", "lang"], ["language"]]}}, "'lang' is no tenant"),
    "a tenant in no pool": ({"sharing": {"pools": [["vision"]]}}, "'language' is in no pool"),
    "jitter in percent": ({"simulation.start_jitter": 50}, "start_jitter: at most 10 is needed"),
    "faults in percent": ({"simulation.driver.error_share": 5}, "percent? 5 % are 0.05"),
    "an instance that cannot stand there": ({"simulation.others": [{"placement": "1g.10gb@9"}]}, "allowed: 0, 1, 2"),
    "an unknown drift": ({"retraining": {"drift": "linear"}}, "'compound' or 'as_given' is needed"),
    "checkpoints in percent": ({"retraining": {"checkpoints": [50]}}, "checkpoints.0: less than 1 is needed"),
    "an input beside a benchmark": (
        {f"{FIRST}.learning": {"benchmark": "digits"}, f"{FIRST}.classes": 10},
        "classes: is that of learning.benchmark; leave it out",
    ),
    "an input of another library": ({f"{FIRST}.input": {"dtype": "FP32", "shape": [4]}}, "one of bool, uint8"),
    "an input without a shape": ({f"{FIRST}.input": {"dtype": "uint8"}}, "shape: it is missing, and needed"),
    "no classes": ({f"{FIRST}.classes": 0}, "classes: at least 1 is needed"),
    "a port that is none": ({"front_door": {"port": 80000}}, "port: at most 65,535 is needed"),
    "tokens of nobody": ({"front_door": {"tokens": {"nobody": "t"}}}, "there is no such tenant; there is: vision"),
}
"""Of a small config whose second tenant has a trace of counts: keys with their dotted path, and their values."""


def _rows(template: str, n: int = 40) -> str:
    return "".join(f"{template.format(n=n, at=1_715_340_000 + n, ms=3_000 * n)}\n" for n in range(n))


TRACES: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "the count first": ("requests,timestamp\n" + _rows("5,{at}"), {}, "the time comes first: put 'timestamp' before"),
    "minutes as numbers": ("minute,requests\n" + _rows("{n},300"), {}, "'minute' may be in another unit than seconds"),
    "requests by the minute": (
        "time,rpm\n" + _rows("{ms},300"),
        {},
        "does not say what a row is: 'rpm' may be no count",
    ),
    "milliseconds": (
        "timestamp\n" + _rows("{ms}"),
        {},
        "seconds make 40 requests over 117,000 s; milliseconds make 40",
    ),
    "seconds for milliseconds": (
        "timestamp\n" + _rows("{n}", 60) + "90000\n95000\n",
        {"unit": "s"},
        WARNED + "arrivals.unit: s makes 62 requests over 26.4 hours; ms would make it 95 s",
    ),
    "milliseconds for seconds": ("t,n\n" + _rows("{at},5"), {"unit": "ms"}, "comes 0.001 s after the row before"),
    "a unit of dates": (
        "time\n" + _rows("2024-05-10 12:00:{n:02d}"),
        {"unit": "ms"},
        "is a date and time, which has no u",
    ),
    "American dates": (
        "time,requests\n" + _rows("05/10/2024 12:00:{n:02d},3"),
        {},
        "or a time like 2023-11-16 18:17:03",
    ),
    "a list of JSON": ('[{"t": 1}, {"t": 2}]', {}, "jq -c '.[]' makes them of it"),
    "times inside": (
        _rows('{{"data": {{"time": {n}}}}}'),
        {},
        "has lists and objects alone ('data'); take the time out",
    ),
    "latencies": ("time,latency_ms\n" + _rows("{n},7.5"), {}, "'latency_ms' may be no count, or of another unit"),
    "a counter": ("time,requests_total\n" + _rows("{at},{ms}"), {}, "never fall, as those of a running total"),
    "decimal commas": ("time;req/s\n" + _rows("{n};5,5"), {}, "req/s is '5,5'; a finite number ≥ 0 is needed"),
    "a page of a login": ("<html><body>Login</body></html>\n", {}, "a trace needs at least one"),
    "nothing": ("", {}, "the file is empty"),
    "a header alone": ("timestamp,requests\n", {}, "no rows below the header"),
    "out of order": ("timestamp\n1715340005\n1715340001\n", {}, "times must ascend, or arrivals.sort: true"),
    "seconds left out": ("time,requests\n0,5\n1,6\n40,5\n", {}, "38 of 41 s have no data, 38 s after 1 (line 3)"),
    "less than nothing": ("second,count\n0,-5\n", {}, "count is '-5'; a finite number ≥ 0 is needed"),
    "parts of requests": ("second,count\n0,5.5\n1,6\n", {}, "requests a second: arrivals.format: rates"),
    "an hour 24": ("timestamp,requests\n2024051022,5\n2024051023,5\n2024051024,5\n", {}, "'2024051024' is no date"),
    "all figures of k6": (
        "metric_name,timestamp\n" + _rows("http_reqs,{at}\nvus,{at}"),
        {"format": "timestamps", "time_column": "timestamp"},
        "keep those of one that has a row a request",
    ),
    "an access log": (
        _rows('1.1.1.1 - - [10/May/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5'),
        {},
        "an access log, of which",
    ),
    "three years": ("timestamp\n1600000000\n1700000000\n", {}, "at most 31622400 (366 days) are allowed"),
    "a million times too much": ("second,count\n0,5000000\n", {}, "at most 1000000 a second is allowed"),
    "no request at all": ("second,count\n" + _rows("{n},0", 60), {}, "the chosen part of the trace holds no request"),
    "an hour that comes twice": (
        "time,requests\n2024-10-27 02:59:59,5\n2024-10-27 02:00:00,6\n",
        {},
        "times must ascend",
    ),
    "two seconds for forty": (
        "second,count\n0,5\n1,5\n",
        {"loop": False},
        "need a trace of 40 s, but it has 2 s; set loop",
    ),
    "a header that contradicts its times": (
        "timestamp_ms,requests\n" + _rows("{at},5"),
        {},
        "says milliseconds, the size of",
    ),
}
"""The file of the second tenant's trace, its keys, and what is said."""


def _with_cell(column: str, value: str) -> str:
    header, first, *rest = profiles_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index(column)] = value
    return "\n".join([header, ",".join(cells), *rest, ""])


PROFILES: Mapping[str, tuple[str, str]] = {
    "a latency in words": (_with_cell("latency_ms", "fast"), "line 2: latency_ms is 'fast'; a number from"),
    "no latency": (_with_cell("latency_ms", "0"), "line 2: latency_ms is '0'; a number from"),
    "a latency in seconds": (_with_cell("latency_ms", "0.0051"), "is latency_ms in seconds?"),
    "a throughput below nothing": (_with_cell("throughput_rps", "-5"), "throughput_rps is '-5'; a number from"),
    "a latency that is a percentile": (
        _with_cell("throughput_rps", "99999"),
        "the mean time of a batch at work, no perc",
    ),
    "a GPU without its memory": (_with_cell("gpu", "a100"), "line 2: gpu: unknown GPU model 'a100' (did you mean"),
    "a profile of no GPU": (_with_cell("profile", "8g.80gb"), "a100-80gb has no MIG profile '8g.80gb'"),
    "a batch and a half": (_with_cell("batch", "1.5"), "line 2: batch is '1.5'; a whole number ≥ 1 is needed"),
    "a row twice": (profiles_text() + profiles_text().splitlines()[1] + "\n", "is in line 2 already"),
    "semicolons": (profiles_text().replace(",", ";"), "source,gpu,model,profile,batch,processes,latency_ms"),
    "no header": (profiles_text().split("\n", 1)[1], "line 1: the header is 'parvagpu"),
    "an empty file": ("", "line 1: the header is ''"),
}
"""The table, and what is said."""

PROBLEMS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "steps that arrivals do not have": ({"n_steps": 200}, "arrivals_rps has 10 numbers; n_steps is 200"),
    "one rate for all steps": ({"tenants.0.arrivals_rps": 200}, "arrivals_rps is 200; a list is needed"),
    "arrivals below nothing": ({"tenants.0.arrivals_rps": [-1] * 10}, "a finite number ≥ 0"),
    "a GPU without its memory": ({"gpu": "a100"}, "(did you mean a100-80gb?)"),
    "a profile of another GPU": ({"tenants.1.capability_rps": {"1g.10gb": 4, "3g.40gb": 5}}, "a100-40gb"),
    "accuracy in percent": ({"tenants.0.accuracy": {"before": 62, "after": 86}}, "is 86; at most 1 is needed"),
    "a schema to come": ({"schema": 2}, "schema is 2; 1 is the only one known"),
    "no schema": ({"schema": None}, "schema is missing"),
    "an unknown cost model": ({"reconfiguration": "fast"}, "'paper' or 'physical' is needed"),
    "a state of the other model": (
        {"initial": {"resnet50": ["2g.10gb"]}},
        "known: held, retrainings, loans, next_epoch_step",
    ),
    "a misspelt key": ({"tenant": []}, "unknown key tenant (did you mean tenants?)"),
    "instances on each other": (
        {"initial": {"held": [["2g.10gb@0", "resnet50", 0], ["1g.5gb@1", "bert", 0]]}},
        "are no layout",
    ),
    "steps of no length": ({"step_s": 0}, "step_s is 0.0; a finite number"),
    "an instance of nobody": (
        {"initial": {"held": [["2g.10gb@0", "resnet", 0]]}},
        "'resnet' is no tenant of the problem",
    ),
    "two tenants of one name": ({"tenants.1.name": "resnet50"}, "which is given twice; names must differ"),
}
"""Of a small problem of the physical model: keys with their dotted path, and their values."""

ARGUMENTS: Mapping[str, tuple[str, str]] = {
    "a misspelt verb": ("pln config.yaml", "Did you mean 'plan'?"),
    "a misspelt config": ("plan confg.yaml", "(did you mean config.yaml?)"),
    "a misspelt option": ("plan config.yaml --widow 1", "(Possible options: --window)"),
    "windows in words": ("run config.yaml --windows two", "'--windows': a whole number is needed, not 'two'"),
    "a misspelt policy": ("run config.yaml --policy migratr", "(did you mean migrator?)"),
    "a rival that is none": ("compare config.yaml --policies static,foo", "policy 'foo': known are migrator"),
    "a key without a value": ("plan config.yaml --set load", "KEY=VALUE is needed"),
    "a misspelt key": ("plan config.yaml --set lod=0.5", "did you mean 'load'?"),
    "a misspelt tenant": ("plan config.yaml --set tenants.visio.slo_ms=5", "no entry 'visio'; it has vision, language"),
    "nothing to vary": ("whatif config.yaml --vary load", "KEY=V1,V2 is needed"),
    "a word to vary": ("whatif config.yaml --vary load=0.1..x", "a load > 0 and at most 10"),
    "a search for the best": ("whatif config.yaml --vary load=0.1,0.2 --find best", "max:load, min:slo_ms"),
    "a report of nothing": ("report runs/none", "is no run: it holds no events.jsonl"),
    "a report of a config": ("report config.yaml", "config.yaml is no run but a file"),
    "a proof of half": ("verify problem.json", "give a PLAN and the PROBLEM that it answers, or a RUN"),
    "two things to plan": ("plan config.yaml --problem problem.json", "give either a CONFIG or --problem FILE"),
    "nothing to plan": ("plan", "give either a CONFIG or --problem FILE"),
    "a misspelt engine": ("plan --problem problem.json --engine gurobbi", "unknown engine 'gurobbi'; known: exact"),
    "a file for a folder": (
        "run config.yaml --out trace.csv",
        "is no folder; a folder, or the name of a new one, is needed",
    ),
    "a misspelt example": ("init quickstrt", "(did you mean quickstart?)"),
    "a real card for a simulated one": ("gpu list --gpu a100-80gb", "such as sim:a100-80gb"),
    "a seed in words": ("run config.yaml --seed x", "'--seed': a whole number is needed, not 'x'"),
    "a run that is none": ("diff a b", "a is no run"),
    "a window that there is not": ("plan config.yaml --window 9", "config.yaml has windows 0 to 0"),
    "a misspelt page": ("docs trases", "(did you mean traces?)"),
    "nothing to go on with": ("run --resume runs/zz", "is no run: it holds no events.jsonl"),
    "a misspelt trace": ("forecast eval azur-conv", "(did you mean azure-conv?)"),
    "an indentation by tabs": ("plan tabs.yaml", "line 2 begins with a tab; YAML is indented with spaces"),
}
"""Behind the program's name, in a folder with ``config.yaml``, ``problem.json``, ``trace.csv`` and ``tabs.yaml``."""
