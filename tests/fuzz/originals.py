"""Good files of every kind, small enough that a command on them takes a moment; what is wrong comes later."""

from __future__ import annotations

from typing import Any

CONFIG: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "gpu": {"model": "a100-80gb", "backend": "sim"},
    "window_s": 20,
    "step_s": 1,
    "windows": 1,
    "load": 0.6,
    "profiles": "profiles.csv",
    "profile_variant": "recorded",
    "forecast": {"method": "ewma", "history_s": 20, "half_life_s": 10, "n_paths": 2},
    "planner": {"max_schedules": 4, "planning_s": 0.0},
    "estimates": {"accuracy_sigma": 0.1, "time_sigma": 0.1},
    "simulation": {
        "start_jitter": 0.1,
        "service_jitter": 0.0,
        "driver": {"error_share": 0.0, "in_use_share": 0.0, "in_use_s": 1.0},
        "others": [{"placement": "1g.10gb@6", "from_s": 30, "to_s": 40}],
    },
    "tenants": [
        {
            "name": "vision",
            "model": "resnet50",
            "slo_ms": 150,
            "arrivals": {"rate_rps": 60},
            "accuracy": {"before": 0.6, "after": 0.9},
            "retraining": {"samples": 500, "epochs": 1},
            "worker_start_s": 1.0,
        },
        {
            "name": "language",
            "model": "bert-large",
            "slo_ms": 330,
            "arrivals": {
                "trace": "trace.csv",
                "offset_s": 20,
                "loop": True,
                "scale": {"method": "poisson", "smooth_s": 5},
            },
            "accuracy": [{"before": 0.5, "after": 0.8}, {"before": 0.4, "after": 0.7}],
            "worker_start_s": 2.0,
            "weight": 1.5,
        },
    ],
}

PAPER: dict[str, Any] = {
    "schema": 1,
    "gpu": "a100-40gb",
    "step_s": 1.0,
    "n_steps": 6,
    "reconfiguration": "paper",
    "tenants": [
        {
            "name": "resnet50",
            "arrivals_rps": [221, 246, 218, 200, 230, 240],
            "capability_rps": {"1g.5gb": 45, "2g.10gb": 88},
            "retraining_s": {"1g.5gb": 2.5, "2g.10gb": 1.4},
            "accuracy": {"before": 0.62, "after": 0.86},
            "overhead_s": 0.5,
            "min_profile": "1g.5gb",
            "weight": 2.0,
        },
        {
            "name": "bert",
            "arrivals_rps": [21, 24.5, 21, 20, 23, 24],
            "capability_rps": {"1g.5gb": 15, "3g.20gb": 48},
            "retraining_options": [{"name": "full", "time_s": {"3g.20gb": 1.5}, "accuracy_after": 0.9}],
            "accuracy": {"before": 0.5},
            "retraining_required": False,
            "overhead_s": 0.5,
            "min_profile": "1g.5gb",
        },
    ],
    "initial": {"resnet50": ["2g.10gb"], "bert": ["1g.5gb"]},
}

PHYSICAL: dict[str, Any] = {
    **PAPER,
    "reconfiguration": "physical",
    "n_steps": 10,
    "switch_s": 0.5,
    "tenants": [
        {**tenant, "arrivals_rps": [*tenant["arrivals_rps"], 20, 30, 20, 30], "retraining_start_s": 0.5}
        for tenant in PAPER["tenants"]
    ],
    "initial": {
        "held": [["2g.10gb@0", "resnet50", 0], ["1g.5gb@6", "bert", 1]],
        "retrainings": [["1g.5gb@5", "resnet50", 2]],
        "next_epoch_step": 1,
    },
}

TRACES = {
    "counts": "second,count\n" + "".join(f"{second},{10 + second % 7}\n" for second in range(60)),
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    + "".join(f"2023-11-16 18:17:{second:02d}.9799600,4808,10\n" for second in range(60)),
    "timestamps": "".join(f"{second / 3:.3f}\n" for second in range(180)),
    "rates": "sep=;\nTime;req/s\n" + "".join(f"{1715342400 + 15 * row};{row / 4}\n" for row in range(20)),
    "prometheus": '{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": ['
    + ",".join(f'[{1715342400 + second}, "{second % 7}"]' for second in range(60))
    + "]}]}}",
    "lines": "".join(f'{{"timestamp": {second / 4}, "input_length": 9}}\n' for second in range(180)),
    "rows": "timestamp,requests\n" + "".join(f"2023-11-16T18:17:{second:02d},{second}\n" for second in range(60)),
}
