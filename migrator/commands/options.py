"""Options and arguments that several verbs have, and how a verb's help says how it is called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

RUNS = Path("runs")
"""Where runs go unless it is said."""

LONGEST_NAME = 255
"""Bytes of a file's name, without its folders."""

_Verb = TypeVar("_Verb", bound=Callable[..., None])


def with_examples(*calls: str) -> Callable[[_Verb], _Verb]:
    """End the help of a verb's function with calls of it, which are given without the program's name."""

    def marked(verb: _Verb) -> _Verb:
        vars(verb)["examples"] = calls
        return verb

    return marked


def in_groups(groups: Mapping[str, str]) -> Callable[[_Verb], _Verb]:
    """List the options of a verb's function under titles: each title with its options' names, blanks between them."""

    def marked(verb: _Verb) -> _Verb:
        vars(verb)["groups"] = {name: title for title, names in groups.items() for name in names.split()}
        return verb

    return marked


def epilog_of(verb: Callable[..., None]) -> str:
    """The last lines of a verb's help: a call each."""
    calls = vars(verb)["examples"]
    return "\n".join([f"Example{'s' if len(calls) > 1 else ''}:", *(f"  [bold]migrator {call}[/]" for call in calls)])


def titles_of(verb: Callable[..., None]) -> Mapping[str, str]:
    """By an option's name, the title under which the verb's help lists it; empty where all are under one."""
    found: Mapping[str, str] = vars(verb).get("groups", {})
    return found


def nameable(path: Path | None) -> Path | None:
    """The path of a folder that is there or is to be made, if its names can be: those above it are made before it."""
    for name in () if path is None else path.parts:
        if (n_bytes := len(os.fsencode(name))) > LONGEST_NAME:
            raise typer.BadParameter(f"{name}: its name has {n_bytes} bytes; {LONGEST_NAME} at most are allowed")
    if path is not None and os.path.lexists(path) and not path.is_dir():
        raise typer.BadParameter(f"{path}: is no folder; a folder, or the name of a new one, is needed")
    return path


ConfigFile = Annotated[Path, typer.Argument(help="The config file (YAML); see docs/configuration.md.")]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the config by its dotted path: tenants.NAME.slo_ms is one. May be given several times.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of tables.")]

Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="What has to be kept, e.g. 'slo_attainment:NAME>=0.9', else the exit code is 5. May be given several "
        "times.",
    ),
]

PlotThem = Annotated[
    Path | None, typer.Option("--plot", help="Also draw them in this HTML file; needs the extra plot.")
]

Jobs = Annotated[int | None, typer.Option(min=1, help="How many processes. Default: one a core.")]

Index = Annotated[int, typer.Option("--index", "-i", min=0, help="Which GPU, as in nvidia-smi -i.")]

Backend = Annotated[
    Literal["auto", "nvml", "smi"],
    typer.Option("--backend", case_sensitive=False, help="By what instances are changed; auto: NVML."),
]

Card = Annotated[
    str | None,
    typer.Option(
        "--gpu", metavar="sim:MODEL", help="A simulated card, e.g. sim:a100-80gb, which --state remembers; no real GPU."
    ),
]

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        callback=nameable,
        help="Where is written which instances are ours. Default: the user's own.",
    ),
]

RunIndex = Annotated[
    int | None, typer.Option("--index", "-i", min=0, help="Which real GPU, as in nvidia-smi -i; over the config.")
]

Metrics = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        metavar="PORT",
        help="Serve its metrics there while it runs, as migrator metrics does; 0: any port that is free.",
    ),
]

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also tell each new plan of the rest of a window.")]

BesideOthers = Annotated[
    bool,
    typer.Option(
        "--beside-other-managers",
        help="Go on although another manager of MIG runs on this node and may undo it (real GPU only).",
    ),
]
