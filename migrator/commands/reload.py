"""``migrator reload``: has a service that runs take up its config file as it is now, or another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import with_examples
from migrator.config.changing import changes_of, require_layout, restarts
from migrator.errors import MigratorError
from migrator.inputs.assembly import untraced
from migrator.inputs.in_force import config_in_force, given_in, kept_versions, order_of, require_versions
from migrator.log.orders import give, log_of_service
from migrator.log.records import OrderRefused, Reloaded
from migrator.terminal.console import escape, output


@with_examples("reload runs/shop --check", "reload runs/shop --config shop.yaml")
def reload_command(
    service: Annotated[Path, typer.Argument(help="The service's folder.")],
    *,
    config: Annotated[
        Path | None,
        typer.Option(help="Another config file (YAML), from now on the service's own. Default: the one that it has."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say what would change, and restart.")] = False,
) -> None:
    """Have a service take up its config file as it is now; in one line why not, where it goes on as before.

    Raises:
        ConfigError: The config cannot be used, or has another value of a key that may not change.
        MigratorError: The folder holds no service, or none runs there; or it refuses the config.
        LiveError: The service ended before it answered.
        LogError: There is no run in the folder, or its log is damaged.
    """
    log = log_of_service(service)
    given = given_in(log)
    if config is None and given is None:
        raise MigratorError(f"{service}: its log does not name the config's file; name it by --config")
    file, assigned = given or (Path(), ())
    file = config or file
    asked, order = order_of(file, assigned)
    changes = changes_of(config_in_force(log), untraced(asked, str(file)).config, str(file))
    require_layout(asked, changes, str(file))
    require_versions(asked.tenants, kept_versions(log))
    for change in changes:
        output().print(escape(f"{'would change' if check else 'changes'}: {change}"), soft_wrap=True)
    if not changes:
        output().print(f"no key of {escape(str(file))} differs", soft_wrap=True)
    if check:
        output().print(restarts(asked, changes), soft_wrap=True)
        return
    answer = give(service, order)
    if isinstance(answer, OrderRefused):
        raise MigratorError(answer.reason)
    assert isinstance(answer, Reloaded)
    output().print("taken up; token files were read anew")
