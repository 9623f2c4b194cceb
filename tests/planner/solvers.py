"""The solvers that tests are run on; those on Gurobi are left out where gurobipy is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from planner.engines.milp.solvers import Solver

HAS_GUROBI = find_spec("gurobipy") is not None

WITHOUT_GUROBI = pytest.mark.skipif(not HAS_GUROBI, reason="gurobipy is not installed")

SOLVERS = tuple(pytest.param(s.value, marks=WITHOUT_GUROBI if s is Solver.GUROBI else ()) for s in Solver)
