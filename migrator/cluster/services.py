"""A GPU's service as a process of its own, which outlives the agent that began it, and all of Ray on its node.

Ray kills what an actor began when the node's raylet dies, in whatever session that is; so the service is begun by
``setsid --fork`` and is nobody's child. Its first act is to write down its process, before it becomes the service.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace
from yaml import safe_load

from executor.files import open_appended, open_emptied, read_input, write_whole
from executor.processes import boot_id, born
from migrator.cluster.assigned import GpuReport, LastGoodput, LearnedWeights
from migrator.config.reading import config_yaml
from migrator.config.sections import Config
from migrator.errors import LogError
from migrator.log.report import report_of
from migrator.log.runlog import read_log
from migrator.log.weights import FIRST, first_weights, served_weights

RETRY_S = 5.0
"""A service that ended is begun again after so long."""

_ANSWER_S = 1.0
"""A front door says within this whether it is ready."""

_FILE_BYTES = 2**24

_RECORD_FILE, _PID_FILE, _CONFIG_FILE, _LOG_FILE = "service.json", "pid", "config.yaml", "service.log"
_RELOAD_FILE = "reload.log"

# The process's number, when it was started, in ticks since boot, and which boot that was.
_BEGIN = """printf '%s %s %s' $$ "$(cut -d ' ' -f 22 /proc/$$/stat)" "$(cat /proc/sys/kernel/random/boot_id)" > "$0.new"
sync "$0.new" && mv "$0.new" "$0" && exec "$@"
"""


class _Record(Struct, frozen=True, kw_only=True):
    """What a GPU's service is to be."""

    run: str
    """Its folder."""
    config: str
    number: int
    """Of the assignment that its config is from."""
    serves: tuple[str, ...]
    since_s: float
    ends: bool = False
    """It is to end."""


class GpuService:
    """The service of one GPU, by what lies in its folder: begun, reloaded, stopped, and begun again if it is gone."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", program: Sequence[str] = ()) -> None:
        """``address`` is the node's, for doors that listen on all of its; ``program`` is the command line."""
        self._folder, self._address = folder, address
        self._program = tuple(program) or (sys.executable, "-m", "migrator")
        self._tried_s, self._is_told = -RETRY_S, False
        self._reload: tuple[_Record, subprocess.Popen[bytes]] | None = None
        self._was_ready = frozenset[str]()
        folder.mkdir(parents=True, exist_ok=True)
        self._record = self._read()
        if self._record is None and self._pid() is not None:  # nobody knows whom it serves
            self._record = _Record(run="", config="", number=0, serves=(), since_s=0.0, ends=True)

    def keep(self, config: Config | None, number: int) -> GpuReport:
        """As ``KeptService.keep``; a service that refuses another set ends, and one with that set begins."""
        pid = self._pid()
        if self._record is not None and pid is None and (self._record.ends or config is None):
            self._write(None)
        wanted = None if config is None else self._wanted(config, number)
        if self._record is None and wanted is not None:
            self._write(wanted)
        record = self._record
        if record is not None and pid is None:
            self._begin(record)
        elif record is not None and not record.ends and wanted is None:
            self._write(replace(record, ends=True))
        elif record is not None and not record.ends and wanted is not None and record.config != wanted.config:
            self._ask_to_reload(replace(wanted, run=record.run), record)
        record = self._record
        if record is not None and record.ends and pid is not None and not self._is_told:
            self._is_told = True
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return self._report(pid, config)

    @property
    def serves(self) -> tuple[str, ...]:
        """As :attr:`migrator.cluster.staying.LearningService.serves`."""
        return () if self._record is None else self._record.serves

    @property
    def ends(self) -> bool:
        """As :attr:`migrator.cluster.staying.LearningService.ends`."""
        return self._record is not None and self._record.ends

    def learned(self, tenant: str) -> LearnedWeights | None:
        """As :meth:`migrator.cluster.staying.LearningService.learned`."""
        if self._record is None or tenant not in self._record.serves:
            return None
        run = Path(self._record.run)
        with suppress(LogError):
            if (own := served_weights(read_log(run)).get(tenant)) is not None and own.file is not None:
                return LearnedWeights(own.file, own.version, own.accuracy)
        (entry,) = [one for one in safe_load(self._record.config)["tenants"] if one["name"] == tenant]
        first = first_weights(run, tenant) if entry.get("weights") is None else None
        return None if first is None else LearnedWeights(first, FIRST, None)

    def goodput(self) -> LastGoodput:
        """As ``KeptService.goodput``."""
        with suppress(LogError, LookupError):
            run = Path("" if self._record is None else self._record.run)
            settled = [one.total for one in report_of(read_log(run, 0.0)).windows if one.total is not None]
            return LastGoodput(settled[-1].requests.goodput_pct, settled[-1].expected_goodput_pct)
        return LastGoodput()

    # --- what lies in the folder

    def _read(self) -> _Record | None:
        try:
            return decode(read_input(self._folder / _RECORD_FILE, _FILE_BYTES), type=_Record)
        except (OSError, MsgspecError):
            return None

    def _write(self, record: _Record | None) -> None:
        if record is None:
            (self._folder / _RECORD_FILE).unlink(missing_ok=True)
        else:
            write_whole(self._folder / _RECORD_FILE, encode(record))
        if record is None or self._record is None:
            self._tried_s = -RETRY_S
        self._record, self._is_told, self._reload = record, False, None

    def _pid(self) -> int | None:
        """The service's process, if it is still the one that was begun."""
        try:
            pid, ticks, boot = read_input(self._folder / _PID_FILE, _FILE_BYTES).decode().split()
        except (OSError, ValueError):
            return None
        return int(pid) if boot == boot_id() and born(int(pid)) == int(ticks) else None

    def _wanted(self, config: Config, number: int) -> _Record:
        serves = tuple(one.name for one in config.tenants)
        run = str(self._folder / f"run-{number}")
        return _Record(run=run, config=config_yaml(config), number=number, serves=serves, since_s=time.time())

    # --- what is begun

    def _begin(self, record: _Record) -> None:
        """Begin it, unless that was tried a moment ago: its process may be about to write itself down."""
        if time.monotonic() < self._tried_s + RETRY_S:
            return
        self._tried_s = time.monotonic()
        write_whole(self._folder / _CONFIG_FILE, record.config.encode())
        service = [*self._program, "serve", str(self._folder / _CONFIG_FILE), "--out", record.run]
        if safe_load(record.config)["gpu"]["backend"] == "cpu":  # or a node's second one would be the first
            service += ["--state", str(self._folder / "state")]
        begin = ["setsid", "--fork", "sh", "-c", _BEGIN, str(self._folder / _PID_FILE), *service]
        with open_appended(self._folder / _LOG_FILE) as log:
            environment = {key: value for key, value in os.environ.items() if not _is_of_ray(key)}
            subprocess.run(  # noqa: S603 - our own command line
                begin, env=environment, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True
            )

    def _ask_to_reload(self, wanted: _Record, before: _Record) -> None:
        """Have the service take the set up, in the background; its answer is looked for at later calls."""
        if self._reload is None:
            write_whole(self._folder / _CONFIG_FILE, wanted.config.encode())
            ask = [*self._program, "reload", wanted.run, "--config", str(self._folder / _CONFIG_FILE)]
            with open_emptied(self._folder / _RELOAD_FILE) as said:
                process = subprocess.Popen(  # noqa: S603 - our own command line
                    ask, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said
                )
            self._reload = wanted, process
            return
        asked, process = self._reload
        if process.poll() is not None:
            self._write(asked if process.returncode == 0 else replace(before, ends=True))

    # --- what is said

    def _report(self, pid: int | None, config: Config | None) -> GpuReport:
        record = self._record
        if record is None or config is None or config.front_door is None:
            return GpuReport(pid=pid)
        door = config.front_door
        host = self._address if door.host in ("0.0.0.0", "::") else door.host  # noqa: S104 - to be replaced
        ready = frozenset() if pid is None or record.ends else self._ready(host, door.port, record.serves)
        said = f"not ready yet: {', '.join(sorted({*record.serves} - ready))}" if ready != {*record.serves} else ""
        if pid is None:
            said = f"begun; {self._folder / _LOG_FILE} has what it says"
        elif record.ends:
            said = (
                f"drains, and begins with another set ({self._folder / _RELOAD_FILE} says why it did not take that up)"
            )
        elif self._reload is not None:
            said = "is asked to take up another set"
        return GpuReport(pid, f"http://{host}:{door.port}", record.serves, ready, record.since_s, said)

    def _ready(self, host: str, port: int, names: Sequence[str]) -> frozenset[str]:
        """Whom it can answer for; the door's one word for all counts who came lately only once it was served."""
        is_all = self._answers(host, port, "/v2/health/ready")
        if not is_all and not self._answers(host, port, "/v2/health/live"):
            return frozenset()
        known = self._was_ready if is_all else frozenset[str]()
        ready = frozenset(
            name for name in names if name in known or self._answers(host, port, f"/v2/models/{name}/ready")
        )
        self._was_ready = ready if is_all else self._was_ready & ready
        return ready

    def _answers(self, host: str, port: int, path: str) -> bool:
        with closing(HTTPConnection(host, port, timeout=_ANSWER_S)) as asked, suppress(OSError, HTTPException):
            asked.request("GET", path)
            return asked.getresponse().status == 200
        return False


def _is_of_ray(variable: str) -> bool:
    """Whether Ray sets the variable for its workers: a service has its own GPU and threads."""
    return variable.startswith("RAY_") or variable in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
