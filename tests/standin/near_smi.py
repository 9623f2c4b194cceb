"""``nvidia-smi`` inside this process: the same C code, without a process a call."""

from __future__ import annotations

import ctypes

from executor.smi import SmiGpu, _Answer
from tests.standin.standin import Programs

_MOST = 1 << 18


class NearSmiGpu(SmiGpu):
    """A GPU driven by the stand-in's ``nvidia-smi``, some fifty times faster."""

    def __init__(self, programs: Programs) -> None:
        self._near = ctypes.CDLL(str(programs.near_smi)).nvidia_smi
        self._text = ctypes.create_string_buffer(_MOST)
        super().__init__()

    def _run(self, *arguments: str) -> _Answer:
        words = [b"nvidia-smi", *map(str.encode, arguments)]
        code = self._near(len(words), (ctypes.c_char_p * len(words))(*words), self._text, ctypes.c_size_t(_MOST))
        return _Answer(code, self._text.value.decode())
