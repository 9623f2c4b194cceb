"""A CUDA process that says what it has, and waits to be told to go: ``libcuda`` alone, without torch."""

from __future__ import annotations

import ctypes
import json
import sys

_MULTIPROCESSORS = 16
"""``CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT``."""


def main(*mebibytes: str) -> None:
    """Print the SMs that it may use, and which of these allocations it is given, each alone."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            sys.exit(f"{name}: CUDA error {code}")

    device, context, n_sms = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuDeviceGetAttribute", ctypes.byref(n_sms), _MULTIPROCESSORS, device)
    given = []
    for size in mebibytes:
        block = ctypes.c_uint64()
        is_given = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(int(size) << 20)) == 0
        given.append(is_given)
        if is_given:
            call("cuMemFree_v2", block)
    sys.stdout.write(json.dumps({"sms": n_sms.value, "given": given}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    call("cuCtxSynchronize")
    call("cuDevicePrimaryCtxRelease_v2", device)
