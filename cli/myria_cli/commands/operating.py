"""`myria operate`: the control plane on Kubernetes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from myria.errors import ConfigurationError
from myria_cli import logs
from myria_cli.options import Options, command

PANEL = "Run"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""

    @command(
        app,
        "operate",
        panel=PANEL,
        examples="myria operate --dsn postgresql://myria_operator@db/myria --pod-template pod-template.yaml",
    )
    async def operate(
        options: Options,
        *,
        namespace: Annotated[
            str | None, typer.Option(help="The installation's namespace. Default: the pod's, or the kubeconfig's.")
        ] = None,
        pod_template: Annotated[
            Path | None, typer.Option(metavar="FILE", help="PodTemplate of builds. Default: operator.pod_template.")
        ] = None,
    ) -> None:
        """Run the Kubernetes operator: MyriaRebuild resources become Jobs, triggers become MyriaRebuilds.

        It needs a database (--dsn or postgres.dsn), the definition in crds/ and the Role in examples/kubernetes/rbac.
        """
        settings = options.settings(
            operator__namespace=namespace,
            operator__pod_template=str(pod_template) if pod_template is not None else None,
        )
        logs.configure(settings.service, "operator", settings.log)
        dsn = options.dsn_of(settings)
        if dsn is None:
            raise ConfigurationError(
                "the operator needs a database that pods can reach: give --dsn or set postgres.dsn",
                field="postgres.dsn",
            )
        # kopf reads the user's name, which a container's user may not have.
        os.environ.setdefault("USER", "myria")
        from myria_operator.app import operate as work  # noqa: PLC0415 - only this command needs Kubernetes' client

        await work(settings, dsn)
