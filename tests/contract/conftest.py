"""A real PostgreSQL for the store tests: started in a private folder, on a socket only, stopped at the end."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) if Path("/usr/lib/postgresql").exists() else []
    if found:
        return found[-1].parent
    path = shutil.which("initdb")
    return Path(path).parent if path else None


def _as_server(*words) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *map(str, words)] if os.geteuid() == 0 else [str(w) for w in words]


@pytest.fixture(scope="session")
def postgres_server():
    """The address of a server without a database name: `address.format(name)`."""
    programs = _programs()
    if programs is None:
        if os.environ.get("KASURI_NEEDS_POSTGRES"):
            pytest.fail("PostgreSQL is not installed")
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql postgis)")
    folder = Path(tempfile.mkdtemp(prefix="kpg-"))
    owner = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c full_page_writes=off"
    quiet = {"stdout": subprocess.DEVNULL, "cwd": folder}
    initdb = _as_server(programs / "initdb", "-D", data, "-U", owner, "-A", "trust", "-E", "UTF8", "--no-sync")
    subprocess.run(initdb, check=True, **quiet)
    start = _as_server(programs / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
    subprocess.run(start, check=True, **quiet)
    try:
        yield f"postgresql://{owner}@/{{}}?host={folder}"
    finally:
        stop = _as_server(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        subprocess.run(stop, check=True, **quiet)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server, request):
    """The address of a new empty database, with PostGIS where it is installed."""
    import psycopg

    name = "t" + os.urandom(6).hex()
    with psycopg.connect(postgres_server.format("postgres"), autocommit=True) as base:
        base.execute(f"CREATE DATABASE {name}")
    address = postgres_server.format(name)
    with psycopg.connect(address, autocommit=True) as base:
        there = base.execute("SELECT count(*) FROM pg_available_extensions WHERE name = 'postgis'").fetchone()[0]
        if there:
            base.execute("CREATE EXTENSION postgis")
    return address
