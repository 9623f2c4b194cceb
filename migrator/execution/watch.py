"""What is known of a GPU whose driver may fall silent: up to when its state is confirmed, and its blind seconds.

The driver is asked every second whether it answers and whether anything has changed, and instances are read anew every
few seconds. A reading that finds the same UUIDs proves that these instances stood since the one before: until then
nothing counts that they are said to have done.
"""

from __future__ import annotations

from math import inf

from executor.errors import GpuError, GpuLostError, MigModeOffError, NoGpuError, PermanentGpuError
from executor.gpu import BELIEVE_FOR_S
from migrator.log.trouble import BlindSpan


class NoAnswerError(PermanentGpuError):
    """The GPU has not answered for as long as a run waits for it, or its MIG mode is off, so it has no instances.

    Attributes:
        blind: The seconds up to now of unknown GPU state.
    """

    def __init__(self, message: str, blind: BlindSpan) -> None:
        super().__init__(message)
        self.blind = blind


class DriverWatch:
    """Keeps account of the answers of a driver, each to a question that was put to it at a second of the run.

    Attributes:
        known_s: GPU state is confirmed up to this time, but for blind seconds; infinite where nothing has to be asked.
        was_lost: Whether the driver has said, since instances were last read, that the GPU is gone: with it every
            process that computed on it.
    """

    def __init__(self, silent_s: float | None, now_s: float) -> None:
        """Instances were read now. After ``silent_s`` without an answer it is too late; ``None``: always answers."""
        self._silent_s = silent_s
        self.known_s = inf if silent_s is None else now_s
        self._answered_s = now_s
        self._unanswered_s: float | None = None
        self._blind: BlindSpan | None = None
        self._doubt: str | None = None
        self.was_lost = False

    @property
    def is_on(self) -> bool:
        """Whether the driver may fall silent."""
        return self._silent_s is not None

    @property
    def is_blind(self) -> bool:
        """Whether the GPU's state is unknown, as the driver did not answer."""
        return self._blind is not None

    def answered(self, asked_s: float) -> None:
        """The driver has answered what it was asked then."""
        self._answered_s = max(self._answered_s, asked_s)
        self._unanswered_s = None

    def doubt(self, reason: str) -> None:
        """Something of ours was gone, since when is not known: the next reading tells since when it may have been."""
        self._doubt = reason

    def read(self, asked_s: float, now_s: float, lost: str | None) -> BlindSpan | None:
        """Instances were read, as asked for then; the seconds up to now, if any, of which it is unknown.

        ``lost`` names which of ours are gone. It is known to have stood when instances were last read, whatever
        the driver has told since: not every loss has an event.
        """
        if not self.is_on:
            return None
        self.answered(asked_s)
        blind, doubt = self._blind, self._doubt
        self._blind = self._doubt = None
        self.was_lost = False
        begins_s = [] if blind is None else [blind.from_s]
        begins_s += [] if lost is None and doubt is None else [self.known_s]
        if not begins_s:
            self.known_s = max(self.known_s, asked_s)
            return None
        reasons = (None if blind is None else blind.reason, lost, doubt)
        self.known_s = now_s
        return BlindSpan(min(begins_s), now_s, "; ".join(reason for reason in reasons if reason is not None))

    def waited(self, asked_s: float, now_s: float) -> BlindSpan | None:
        """No answer has come; the beginning of blind seconds, if that has taken too long.

        Raises:
            NoAnswerError: It has taken far too long.
        """
        return self.refused(asked_s, now_s, None) if now_s - asked_s > BELIEVE_FOR_S else None

    def refused(self, asked_s: float, now_s: float, error: GpuError | None) -> BlindSpan | None:
        """The driver did not answer as one does that works, or not at all; the beginning of blind seconds, if any.

        Raises:
            NoAnswerError: It has not answered for too long, or MIG mode is off.
        """
        if self._silent_s is None:
            return None
        self._unanswered_s = asked_s if self._unanswered_s is None else self._unanswered_s
        reason = f"the driver has not answered for {BELIEVE_FOR_S:g} s" if error is None else str(error)
        is_new, blind = self._blind is None, self._blind or BlindSpan(self._answered_s, None, reason)
        self._blind = blind
        self.was_lost |= isinstance(error, GpuLostError | NoGpuError)
        whole = BlindSpan(self.known_s, now_s, reason)  # nothing will be read that could tell more
        if isinstance(error, MigModeOffError):
            raise NoAnswerError(str(error), whole) from error
        if now_s - self._unanswered_s >= self._silent_s:
            waited = f"the GPU has not answered for {now_s - blind.from_s:.0f} s (gpu.silent_s is {self._silent_s:g})"
            raise NoAnswerError(f"{waited}: {reason}", whole) from error
        return blind if is_new else None
