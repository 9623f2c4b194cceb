"""Variables of a mixed-integer program that each know what they mean, so that a plan can be given as its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulp

Expression = Any
"""A number, a variable of PuLP, or a sum of them."""


def present_value(expression: Expression) -> float:
    """What the expression comes to at the variables' present values."""
    return float(pulp.value(expression))


def meaning_positive(expression: Expression) -> Callable[[], float]:
    """1 where the expression is above 0, else 0."""
    return lambda: float(present_value(expression) > 0)


def meaning_number(expression: Expression, number: int) -> Callable[[], float]:
    """1 where the integer expression is ``number``, else 0."""
    return lambda: float(round(present_value(expression)) == number)


class MeantVariables:
    """Makes the variables and constraints of one program, which is to be minimised.

    A variable's meaning is the value that those made before it give it. A solver's start then needs the decisions
    only: all other variables are worked out in the order in which they were made.
    """

    def __init__(self, name: str) -> None:
        self.program = pulp.LpProblem(name, pulp.LpMinimize)
        self._meanings: list[tuple[pulp.LpVariable, Callable[[], float]]] = []

    def decision(self, name: str) -> pulp.LpVariable:
        """A binary that no other variable determines."""
        return self.program.add_variable(name, cat=pulp.LpBinary)

    def binary(self, name: str, meaning: Callable[[], float]) -> pulp.LpVariable:
        """A binary that means ``meaning()``."""
        return self._meant(self.program.add_variable(name, cat=pulp.LpBinary), meaning)

    def real(self, name: str, least: float, most: float, meaning: Callable[[], float]) -> pulp.LpVariable:
        """A number in ``[least, most]`` that means ``meaning()``; sums that round beyond a bound are that bound."""

        def within() -> float:
            return min(max(meaning(), least), most)

        return self._meant(self.program.add_variable(name, least, most), within)

    def _meant(self, variable: pulp.LpVariable, meaning: Callable[[], float]) -> pulp.LpVariable:
        self._meanings.append((variable, meaning))
        return variable

    def require(self, *constraints: pulp.LpConstraint) -> None:
        """Add the constraints."""
        for constraint in constraints:
            self.program.addConstraint(constraint)

    def equals(self, name: str, one: Expression, other: Expression, most: int) -> pulp.LpVariable:
        """Equals(A, B) of two integers in ``[0, most]``: 1 if they are equal, else 0.

        Exactly one of A = B, A > B and A < B holds, each with a binary.
        """
        difference = pulp.lpSum([one, -other])
        equal = self.binary(f"{name}_eq", meaning_number(difference, 0))
        more = self.binary(f"{name}_gt", meaning_positive(difference))
        less = self.binary(f"{name}_lt", meaning_positive(-difference))
        self.require(equal + more + less == 1)
        self.require(difference <= most * more - less, difference >= more - most * less)
        return equal

    def work_out(self) -> None:
        """Give every variable but the decisions the value that it means."""
        for variable, meaning in self._meanings:
            variable.setInitialValue(meaning())
