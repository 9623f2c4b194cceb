"""What is refused takes little memory: 256 MiB and eight times the file at most."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MIB = 2**20

PEAK = """
import re, sys
from migrator import cli
sys.argv[0] = "migrator"
try:
    cli.main()
except SystemExit as ending:
    print(int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) // 1024, ending.code)
"""
"""Not by ``getrusage``, whose peak begins with that of the process that started this one."""


def _sparse(path: Path, n_bytes: int) -> None:
    path.touch()
    os.truncate(path, n_bytes)


def _lists(n: int) -> bytes:
    return b"[" + b"[]," * n + b"[]]"


REFUSED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "zeros that unpack": ("forecast eval FILE.csv.gz", lambda path: path.write_bytes(gzip.compress(bytes(256 * MIB)))),
    "rows that unpack": (
        "forecast eval FILE.csv.gz",
        lambda path: path.write_bytes(gzip.compress(b"0,1\n" * (32 * MIB))),
    ),
    "rows without end": ("forecast eval FILE.csv", lambda path: path.write_bytes(b"0\n" * (8 * MIB))),
    "one long line": ("forecast eval FILE.csv", lambda path: path.write_bytes(b"5," * (8 * MIB))),
    "a sparse file": ("forecast eval FILE.csv", lambda path: _sparse(path, 2**40)),
    "Prometheus": ("forecast eval FILE.json", lambda path: path.write_bytes(b'{"a":' + _lists(9 * MIB) + b"}")),
    "a line of JSON": (
        "forecast eval FILE.json",
        lambda path: path.write_bytes(b'{"at":1}\n{"at":' + _lists(9 * MIB) + b"}"),
    ),
    "lists": ("plan --problem FILE.json", lambda path: path.write_bytes(_lists(20 * MIB))),
    "a sparse log": ("report FOLDER", lambda path: _sparse(path, 2**40)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_takes_little_memory(tmp_path: Path, what: str) -> None:
    words, write = REFUSED[what]
    typed = [word.replace("FILE", str(tmp_path / "file")).replace("FOLDER", str(tmp_path)) for word in words.split()]
    path = Path(typed[-1]) if "FILE" in words else tmp_path / "events.jsonl"
    write(path)
    ran = subprocess.run([sys.executable, "-c", PEAK, *typed], capture_output=True, text=True, check=True)
    peak_mib, code = map(int, ran.stdout.split()[-2:])
    assert (code, len(ran.stderr.splitlines())) == (2, 1)
    assert peak_mib <= 256 + 8 * path.stat().st_blocks * 512 / MIB, ran.stderr
