"""A run of one window with two tenants that retrain."""

CONFIG = """\
name: two
seed: 3
gpu: {{model: a100-80gb}}
window_s: 60
windows: 1
forecast: {{history_s: 60, half_life_s: 10, n_paths: 4}}
planner: {{max_schedules: 8, planning_s: 0, replan_every_s: never}}
simulation: {{interference: {interference}}}
tenants:
  - {{name: vision, model: resnet50, slo_ms: 150,
     arrivals: {{rate_rps: {rate}}}, accuracy: {{before: 0.6, after: 0.9}},
     retraining: {{samples: 8000}}}}
  - {{name: phone, model: mobilenet-v2, slo_ms: 150,
     arrivals: {{rate_rps: {rate}}}, accuracy: {{before: 0.5, after: 0.8}},
     retraining: {{samples: 8000}}}}
"""
