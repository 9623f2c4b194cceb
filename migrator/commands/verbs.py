"""Which verbs there are, with a sentence of each, and which file holds it: that is loaded when the verb is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from migrator.commands.options import epilog_of, titles_of


class _Loaded(TyperCommand):
    """A verb with its options, which its help lists under titles.

    Attributes:
        titles: By an option's name; those without are listed last.
    """

    titles: Mapping[str, str] = MappingProxyType({})

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters in the order of the titles."""
        params, titles = _without_types_of_flags(super().get_params(ctx)), list(dict.fromkeys(self.titles.values()))
        for param in params if titles else ():
            if param.param_type_name == "option":
                param.rich_help_panel = self.titles.get(param.name, titles[-1])
        return sorted(params, key=lambda param: titles.index(panel) if (panel := _panel_of(param)) in titles else -1)


class Verbs(TyperGroup):
    """A group of verbs."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters."""
        return _without_types_of_flags(super().get_params(ctx))


def _without_types_of_flags(params: list[Any]) -> list[Any]:
    """The parameters; of a flag the help says no type, as it takes no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _panel_of(param: Any) -> str | None:
    found: str | None = getattr(param, "rich_help_panel", None)
    return found


class Verb(TyperCommand):
    """A verb of which a sentence is known, so that a list of verbs needs no more.

    Attributes:
        file: The module in ``migrator.commands`` whose function ``<name>_command`` has the verb's options, and does it.
    """

    def __init__(self, name: str, sentence: str, file: str | None = None) -> None:
        super().__init__(name, help=sentence)
        self.file = name if file is None else file

    def load(self) -> Any:
        """The verb with its options."""
        function = getattr(import_module(f"migrator.commands.{self.file}"), f"{self.name}_command")
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(self.name, cls=_Loaded, help=self.help, epilog=epilog_of(function))(function)
        loaded: Any = typer.main.get_command(app)
        loaded.titles = titles_of(function)
        return loaded

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Load the verb, and let it read its arguments; the context that follows is the loaded verb's."""
        return self.load().make_context(*arguments, **named)


def group_of(app: typer.Typer, verbs: Iterable[TyperCommand | TyperGroup]) -> TyperGroup:
    """The group that the app describes, with these verbs."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    group.commands.update({str(verb.name): verb for verb in verbs})
    return group


def help_without_verb(context: typer.Context) -> None:
    """Print the help and end, as done, where no verb is called."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def _group(name: str, sentence: str, *verbs: Verb) -> TyperGroup:
    app = typer.Typer(
        name=name,
        cls=Verbs,
        help=sentence,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode="rich",
    )
    app.callback()(help_without_verb)
    return group_of(app, verbs)


def _panel(title: str, *verbs: TyperCommand | TyperGroup) -> tuple[TyperCommand | TyperGroup, ...]:
    """The verbs, which the help lists under the title."""
    for verb in verbs:
        verb.rich_help_panel = title
    return verbs


_GPU = _group(
    "gpu",
    "GPU models, and what is on a GPU, a real or a simulated one.",
    Verb("models", "List the GPU models of the catalogue with their profiles.", "gpu.catalogue"),
    Verb("layouts", "Show the layouts that a GPU model can take, derived from its placements.", "gpu.catalogue"),
    Verb("describe", "Print a GPU's model, as its driver describes it, for the config's gpu.model.", "gpu.catalogue"),
    Verb("list", "List the instances on GPUs: ours and others', with their processes.", "gpu.standing"),
    Verb("diff", "Show what would have to change on a GPU to reach a layout.", "gpu.changing"),
    Verb("apply", "Bring a GPU to a layout: only what differs changes, and others' instances stay.", "gpu.changing"),
    Verb("clear", "Take away every instance of ours on a GPU.", "gpu.changing"),
    Verb("restore", "Bring back the layout that was last asked for on a GPU, as after a reboot.", "gpu.changing"),
    Verb("watch", "Print a GPU's instances, then a line for each change, until Ctrl-C.", "gpu.watch"),
    Verb("assert", "End with 0 if a GPU has just this layout, else with 1 and what differs.", "gpu.standing"),
    Verb("export", "Print a GPU's instances for other tools.", "gpu.standing"),
)

_CLUSTER = _group(
    "cluster",
    "Many GPUs: which tenant on which of them, planned and served.",
    Verb("plan", "Find who goes on which GPU of a cluster, and how near that is to the best.", "cluster"),
    Verb("verify", "Check such an answer: its rules, and its worth and bound made anew.", "cluster"),
    Verb("run", "Plan a cluster, simulate each GPU as an ordinary run, and add up what they answer.", "cluster"),
    Verb("compare", "Compare who goes where with what simpler policies do, planned and simulated.", "cluster"),
    Verb("up", "Begin a cluster's services on several nodes, by Ray.", "nodes"),
    Verb("status", "Print what a cluster that is up serves where, and what is in its way.", "nodes"),
    Verb("apply", "Plan a cluster that is up anew, with a changed config, and move tenants.", "nodes"),
    Verb("drain", "Have a node of a cluster serve nobody; its tenants move without a lost request.", "nodes"),
    Verb("down", "Stop a cluster's services in order, and end its agents.", "nodes"),
)

_FORECAST = _group(
    "forecast",
    "What forecasts of arrivals are worth.",
    Verb(
        "eval",
        "Judge forecasters on traces and past runs: forecasts at rolling origins, beside what then came.",
        "forecast",
    ),
    Verb(
        "fit",
        "Fit a network on traces or past runs, for forecast.model in a config; needs the extra neural.",
        "forecast",
    ),
    Verb("show", "Show the forecast with which a window is planned, beside what then comes.", "forecast"),
)

VERBS = (
    *_panel(
        "Set up",
        Verb("init", "Write a commented example config, and the files that it reads, to begin with."),
        Verb("doctor", "Check whether a run on a real GPU could work on this machine, and say what to do."),
        Verb("docs", "Show a page of the documentation, or list the pages."),
    ),
    *_panel(
        "Plan and run",
        Verb("run", "Run a multi-tenant workload and report its goodput per window."),
        Verb("serve", "Serve clients until it is stopped: forecast what they ask, plan, and move instances for them."),
        Verb("reload", "Have a service that runs take up its config file as it is now, or another one."),
        Verb("rollback", "Have a service that runs answer with older weights of a tenant again."),
        Verb("plan", "Solve one window offline and show its plan, without any GPU."),
        Verb("whatif", "Plan one window under every combination of changes and compare what is expected of the plans."),
        Verb(
            "compare",
            "Simulate the same requests under several sharing policies, and compare what each answers in time and "
            "right.",
        ),
        _CLUSTER,
    ),
    *_panel(
        "Look at results",
        Verb("report", "Say how a run went: which tenant fails, why, what would help; or all of it."),
        Verb("runs", "List the runs in a folder, and their state."),
        Verb("top", "Show a run in the terminal while it goes on: its layout, a line a tenant, what happened last."),
        Verb("metrics", "Give the figures of a run to Prometheus, while it runs or later."),
        Verb("diff", "Say why one run was better than another: by window, tenant and cause."),
        Verb(
            "verify",
            "Check a plan, or those of a run, against every rule and recompute goodput, with code that no engine uses.",
        ),
        Verb(
            "fidelity",
            "Simulate the requests of live runs with what these recorded, and tell how near that comes to what was "
            "counted.",
        ),
    ),
    *_panel(
        "GPUs, models and traffic",
        _GPU,
        Verb(
            "profile",
            "Measure how fast models answer, learn and start on this machine, and write the table that configs take.",
        ),
        _FORECAST,
    ),
)
"""All of them, in the order and under the titles of the program's help."""
