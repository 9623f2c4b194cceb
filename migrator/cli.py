"""The command line: what users type, and the one place where errors become exit codes.

A verb's file is imported when the verb is called. Importing this module brings in neither numpy, numba nor PuLP, so
``--help`` is quick.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from signal import SIGINT, Signals
from typing import Annotated

import typer
from typer.core import TyperGroup

from executor.compiled import listen
from executor.errors import ExecutorError
from executor.files import LIMIT
from migrator import __version__
from migrator.commands.options import LONGEST_NAME
from migrator.commands.verbs import VERBS, Verbs, group_of, help_without_verb
from migrator.errors import ExitCode, MigratorError, exit_code_of
from migrator.terminal.console import complain, let_streams_take_any_text, note
from migrator.terminal.signals import exit_code, interruptible
from planner.errors import PolicyError


def command_line() -> TyperGroup:
    """The program, with all of its verbs."""
    app = typer.Typer(
        name="migrator",
        cls=Verbs,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
        help="Share a MIG GPU among continually retrained models so that goodput is highest.",
        epilog="Start with: [bold]migrator init quickstart[/], then [bold]migrator run quickstart.yaml[/]. "
        "Pages that this help names are printed by [bold]migrator docs PAGE[/].",
    )
    app.callback()(_root)
    return group_of(app, VERBS)


def _print_version(value: bool) -> None:  # typer calls it by position, and by this name
    if value:
        typer.echo(f"migrator {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - an option of its own, with a callback
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Read traces and logs of up to so many bytes, unpacked. Default: 1 GiB, or 32 times a packed size.",
        ),
    ] = None,
) -> None:
    LIMIT.said_bytes = max_bytes
    help_without_verb(context)


def main() -> None:
    """Run the command line; every error ends in one line and its exit code, never in a traceback.

    ``MIGRATOR_TRACEBACK=1`` shows the traceback of unforeseen errors, for bug reports, and of a policy's own.
    """
    let_streams_take_any_text()
    listen(note)
    with interruptible() as interruption:
        try:
            code = (
                command_line()(standalone_mode=False) or 0
            )  # a command returns nothing; --version and --help their code
            if sys.stdout is not None:
                sys.stdout.flush()
        except typer.Exit as ending:
            code = ending.exit_code
        except BaseException as error:  # noqa: BLE001 - the last line of defence of the whole program
            code = _report(_cause(error))
        if code == ExitCode.INTERRUPTED:  # by our own table, or by typer, which makes an interrupt its code
            code = _interrupted(interruption.received)
    sys.exit(code)


def _interrupted(received: Sequence[Signals]) -> int:
    """Say what ended the program, and return its exit code."""
    by = "" if received[:1] in ([], [SIGINT]) else f" by {received[0].name}"
    complain(f"interrupted{by}")
    return exit_code(received)


def _cause(error: BaseException) -> BaseException:
    """The error itself, or the closed pipe that typer made an end of the program, or what found the terminal closed."""
    cause = error.__context__
    if isinstance(error, OSError) and error.filename is None and isinstance(cause, KeyboardInterrupt):
        return cause
    return cause if isinstance(error, SystemExit) and isinstance(cause, BrokenPipeError) else error


def _report(error: BaseException) -> int:
    """Report an error in one line and return its exit code."""
    if isinstance(error, SystemExit):  # by which typer ends a completion, or its installation
        return int(error.code or 0)
    if _is_usage(error):
        complain(_usage(error))
        return ExitCode.BAD_INPUT
    code = exit_code_of(error)
    if code is ExitCode.INTERRUPTED:
        return code
    if isinstance(error, BrokenPipeError):
        _forget_output()
        return ExitCode.DONE
    if isinstance(error, PolicyError) and error.__cause__ is not None and os.environ.get("MIGRATOR_TRACEBACK"):
        raise error
    if isinstance(error, OSError):
        _complain_of_system(error)
    elif isinstance(error, MigratorError | ExecutorError) or code is not ExitCode.FAILED:
        complain(str(error))
    elif isinstance(error, MemoryError):
        complain("out of memory")
    elif os.environ.get("MIGRATOR_TRACEBACK"):
        raise error
    else:
        complain(f"unforeseen {type(error).__name__}: {error}; MIGRATOR_TRACEBACK=1 shows where, please report it")
    return code


def _usage(error: BaseException) -> str:
    """What is wrong with the arguments; what pydantic says of a value, in our words."""
    from pydantic import ValidationError  # noqa: PLC0415 - typer loads it for a wrong value alone

    from planner.files.strict import as_text  # noqa: PLC0415 - the same
    from planner.files.words import needed  # noqa: PLC0415 - the same

    said: str = error.format_message()  # type: ignore[attr-defined]
    if not isinstance(error.__cause__, ValidationError):
        return said
    first = error.__cause__.errors()[0]
    return f"{said.partition(': ')[0]}: {needed(first)} is needed, not {as_text(first['input'])}"


def _complain_of_system(error: OSError) -> None:
    """Name what the system refused. All files of ours are named where they are written; what is not is an output."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    is_long = error.errno == errno.ENAMETOOLONG
    allowed = f"; {LONGEST_NAME} bytes at most are allowed, with all folders 4095" if is_long else ""
    named = error.filename or ("standard output" if is_full else "input/output")
    complain(f"{named}: {error.strerror or error}{allowed}")
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """Let what is still in the buffer go nowhere, without another complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_usage(error: BaseException) -> bool:
    return hasattr(error, "format_message") and hasattr(error, "exit_code")
