import subprocess
import sys
from pathlib import Path
from pkgutil import walk_packages

import executor

MODULES = sorted(
    {module.name for module in walk_packages(executor.__path__, "executor.")} - {"executor.nvml", "executor.smi"}
)
"""All but those that read GPUs by NVIDIA's own module."""
LOOK = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_executor_needs_no_large_library_nor_the_packages_above_it() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", LOOK, *MODULES], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"numpy", "numba", "pulp", "torch", "pynvml", "planner", "workloads", "migrator"})


def test_one_module_says_how_functions_are_compiled() -> None:
    root = Path(__file__).parents[2]
    sources = [
        path
        for name in ("executor", "forecaster", "workloads", "planner", "migrator")
        for path in (root / name).rglob("*.py")
    ]
    assert [path.name for path in sources if "import numba" in path.read_text("utf-8")] == ["compiled.py"]
