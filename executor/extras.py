"""How an optional extra of this distribution is installed: from where the distribution itself was."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

DISTRIBUTION = "migrator-mig"


def install(extra: str) -> str:
    """The command that installs it, from the clone, file, repository or registry that this program is from."""
    return f"pip install {shlex.quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - workers do not need it

    sources = Path(__file__).parents[1]
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    if text is None and (sources / "pyproject.toml").is_file():  # a clone's sources, run as they are
        return _of_path(sources, extra)
    try:
        origin: Any = json.loads(text or "{}")
    except ValueError:
        origin = {}
    match origin:
        case {"url": str(url), "vcs_info": {"vcs": str(vcs)}}:
            return f"{DISTRIBUTION}[{extra}] @ {vcs}+{url}"
        case {"url": str(url)} if url.startswith("file:"):
            return _of_path(Path(url2pathname(urlsplit(url).path)), extra)
        case {"url": str(url)}:
            return f"{DISTRIBUTION}[{extra}] @ {url}"
        case _:  # PEP 610: from a registry, by name
            return f"{DISTRIBUTION}[{extra}]"


def _of_path(path: Path, extra: str) -> str:
    """A clone or a file; the clone is ``.`` where one is in it, or where it is no more."""
    is_here = not path.exists() or path.resolve() == Path.cwd()
    return f"{'.' if is_here else path}[{extra}]"
