"""The names of :mod:`planner.policies.policy` under their former path; kept for one version, import them from there."""

from __future__ import annotations

from planner.policies.policy import Batching, Knows, Policy, Traits, Window

__all__ = ["Batching", "Knows", "Policy", "Traits", "Window"]
