"""Waiting for the end of a process that need be no child of this one."""

from __future__ import annotations

import os
import select

PATIENCE_S = 30.0
"""A machine under heavy load may need some of it; a process that hangs, all."""


def ends(pid: int) -> bool:
    """Whether the process ends before patience does."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], PATIENCE_S)[0])
    finally:
        os.close(descriptor)
