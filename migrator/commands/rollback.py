"""``migrator rollback``: has a service answer with older weights of a tenant again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import with_examples
from migrator.errors import MigratorError
from migrator.log.orders import Rollback, give, log_of_service
from migrator.log.records import OrderRefused, RolledBack
from migrator.terminal.console import escape, output


@with_examples("rollback runs/shop search", "rollback runs/shop search window-12")
def rollback_command(
    service: Annotated[Path, typer.Argument(help="The service's folder.")],
    tenant: Annotated[str, typer.Argument(help="Whose weights.")],
    version: Annotated[
        str | None, typer.Argument(help="Which: first, or as the log names them. Default: those before.")
    ] = None,
) -> None:
    """Have a service answer with older weights of a tenant again, until a retraining brings others.

    Raises:
        MigratorError: The folder holds no service, or none runs there; or it has no such tenant, or not these weights.
        LiveError: The service ended before it answered.
        LogError: There is no run in the folder, or its log is damaged.
    """
    log_of_service(service)
    answer = give(service, Rollback(tenant=tenant, version=version))
    if isinstance(answer, OrderRefused):
        raise MigratorError(answer.reason)
    assert isinstance(answer, RolledBack)
    told = f"{answer.tenant} answers with {answer.version} again, in place of {answer.before}"
    output().print(escape(told), soft_wrap=True)
