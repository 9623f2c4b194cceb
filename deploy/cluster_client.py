"""A client of a cluster: ``python cluster_client.py http://head:8700/routes TENANT < ask.json``.

It asks tenants where the routes say, which it reads again every second. Where nobody says them, the last ones hold:
services do not depend on who routes.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.request import urlopen

EVERY_S = 1.0
"""A former door answers for five seconds after the routes have changed."""


class Tenants:
    """Finds the doors of tenants by a cluster's ``GET /routes``."""

    def __init__(self, routes: str, every_s: float = EVERY_S) -> None:
        self._routes, self._every_s, self._read_s = routes, every_s, float("-inf")
        self._doors: dict[str, Any] = {}

    def door(self, tenant: str) -> dict[str, Any]:
        """One of the tenant's doors, each as often as its share says."""
        if not self._doors or time.monotonic() >= self._read_s + self._every_s:
            self._read_s = time.monotonic()
            with suppress(OSError, HTTPException), urlopen(self._routes, timeout=1) as answer:
                self._doors = json.load(answer)["tenants"]
        doors = self._doors[tenant]
        (door,) = random.choices(doors, [one["share"] for one in doors])
        return dict(door)

    def ask(self, tenant: str, body: bytes) -> dict[str, Any]:
        """What the tenant's model answers."""
        door = self.door(tenant)
        with urlopen(f"{door['url']}/v2/models/{door['model']}/infer", body) as answer:
            return dict(json.load(answer))


if __name__ == "__main__":
    json.dump(Tenants(sys.argv[1]).ask(sys.argv[2], sys.stdin.buffer.read()), sys.stdout)
