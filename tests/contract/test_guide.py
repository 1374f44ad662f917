"""Every block of the guide runs, page by page: Python in one folder, commands in another, in order.

A reader's own files (`made`) lie there already. A block whose kind is not known here fails its page: nothing in the
guide is skipped.
"""

import contextlib
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kasuri.examples import KANTO
from kasuri.study import outlook

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))
OWN = {"spark", "estat"}
"""Pages with a test of their own: they need a program that may be missing."""
SHOWN = {"text", "javascript", "html", "sql", "json"}
"""Not programs of ours: what a program prints, what another system is told."""
BLOCK = re.compile(r"^(?P<fence>`{3,})(?P<kind>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """(kind, text) of every block of a page; directives of the documentation tool are no blocks."""
    found = [(m["kind"].strip(), m["body"]) for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    return [(kind, body) for kind, body in found if not kind.startswith("{")]


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """What a reader has: a census table as Parquet and CSV, an e-Stat file, UCI Adult and its recoding, examples."""
    folder = tmp_path_factory.mktemp("samples")
    from pyarrow import csv, parquet

    table = parquet.read_table(KANTO)
    shutil.copy(KANTO, folder / "census.parquet")
    csv.write_csv(table, folder / "census.csv")
    lines = ["KEY_CODE,HTKSYORI,HTKSAKI,GASSAN,T001141001", ",,,,　人口（総数）"]
    for code, people in zip(*(table[name].to_pylist() for name in ("mesh_code", "population")), strict=True):
        if str(code).startswith("5339"):
            lines.append(f"{code},0,,,{people}")
    with zipfile.ZipFile(folder / "tblT001141H5339.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("tblT001141H5339.txt", ("\r\n".join(lines) + "\r\n").encode("cp932"))
    adult = ROOT / "src" / "kasuri" / "reproduce" / "adult"
    for name in ("adult.toml", "education.csv"):
        shutil.copy(adult / name, folder)
    from kasuri.reproduce import horigome2020_kanon

    csv.write_csv(horigome2020_kanon.adult(), folder / "adult.csv")
    left = shutil.ignore_patterns("release", "*.gpkg")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=left)
    return folder


def commands(body: str) -> list[tuple[str, list[str]]]:
    """(command, lines it is shown to print) of a console block."""
    out: list[tuple[str, list[str]]] = []
    for line in body.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            out.append((line[2:].strip(), []))
        elif line.strip():
            assert out, f"a console block starts with a command: {line}"
            out[-1][1].append(line.strip())
    return out


def run(command: str, folder: Path, running: list) -> str:
    """What a command prints; `&` leaves it running. Plain kasuri commands run in this process: the same, but faster."""
    from kasuri.cli import app

    bare = command.split(" # ")[0].split("  #")[0].strip()
    if bare.startswith("kasuri ") and not re.search(r"[|&;$<>*]", bare):
        result = CliRunner().invoke(app, shlex.split(bare)[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{bare}: {result.output}"
        return result.output
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    if bare.endswith("&"):
        running.append(subprocess.Popen(["bash", "-c", bare[:-1]], cwd=folder, env=environment, start_new_session=True,
                                        stdout=subprocess.DEVNULL))  # fmt: skip
        return ""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", bare], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, f"{bare}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def follow(page: Path, folder: Path, made: Path, monkeypatch, change=lambda text: text) -> None:
    """Do what a page says, beside copies of what is `made`. `change` puts the reader's own addresses into
    its text. What `kasuri plan` tries beforehand it tries on a small public model: the page shows no figure of it that
    is compared."""
    monkeypatch.setattr(outlook, "model", functools.partial(outlook.model, cells=1 << 12))
    python, shell = folder / "python", folder / "shell"
    for own in (python, shell):
        shutil.copytree(made, own)
    names: dict = {"__name__": "__guide__"}
    running: list[subprocess.Popen] = []
    found = blocks(page)
    assert found, f"{page.name} shows nothing to run"
    try:
        for kind, text in found:
            body = change(text)
            if kind == "python":
                monkeypatch.chdir(python)
                exec(compile(body, page.name, "exec"), names)
            elif kind == "console":
                monkeypatch.chdir(shell)
                for command, shown in commands(body):
                    printed = " ".join(run(command, shell, running).split())
                    for line in shown:
                        for piece in line.split("..."):
                            assert " ".join(piece.split()) in printed, f"{page.name}: {command} does not print {line!r}"
            elif kind == "toml":
                tomllib.loads(body)
                if name := re.match(r"# (\S+\.toml)\b", body):
                    (shell / name[1]).write_text(body, encoding="utf-8")
                    (python / name[1]).write_text(body, encoding="utf-8")
            else:
                assert kind in SHOWN, f"{page.name}: a block of kind {kind!r} would not be run"
                assert not re.search(r"^\$ |^kasuri ", body, re.M), f"{page.name}: commands belong in a console block"
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in OWN], ids=lambda page: page.stem)
def test_every_block_of_the_page_runs(page, tmp_path, made, monkeypatch):
    follow(page, tmp_path, made, monkeypatch)


def test_a_newcomer_takes_an_estat_file_to_postgis(tmp_path, made, monkeypatch, postgres):
    """Following guide/estat.md to the letter, but for the address of the database."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    with psycopg.connect(postgres) as base:
        if not base.execute("SELECT count(*) FROM pg_extension WHERE extname = 'postgis'").fetchone()[0]:
            pytest.skip("PostGIS is not installed (apt-get install postgis)")
    page = GUIDE / "estat.md"
    shown = "postgresql://me@localhost/statistics"
    assert page.read_text(encoding="utf-8").count(shown) >= 2
    follow(page, tmp_path, made, monkeypatch, lambda text: text.replace(shown, postgres))
    with psycopg.connect(postgres) as base:
        cells, total = base.execute("SELECT count(*), sum(value) FROM release").fetchone()
        inside, one, srid = base.execute(
            "SELECT sum(value) FILTER (WHERE ST_Within(geom, ST_MakeEnvelope(139, 35.333, 140.001, 36.001, 6668))), "
            "min(ST_Area(geom)), min(ST_SRID(geom)) FROM release"
        ).fetchone()
        coarse = base.execute("SELECT sum(value) FROM release_1km").fetchone()[0]
        epsilon = base.execute("SELECT epsilon FROM release_meta").fetchone()[0]
    assert cells > 5000 and inside == total == coarse and srid == 6668 and epsilon == "0.5"
    assert one == pytest.approx(1 / 240 / 160)
    assert (tmp_path / "shell" / "tokyo" / "report.html").exists()


def test_the_spark_page_runs(tmp_path):
    """In a process of its own: its Java would outlive the page. The commands need a cluster and are not run."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java on this machine (apt-get install default-jre-headless)")
    found = blocks(GUIDE / "spark.md")
    assert {kind for kind, _ in found} == {"python", "toml", "console"}
    for body in (body for kind, body in found if kind == "toml"):
        tomllib.loads(body)
    text = "\n".join(body for kind, body in found if kind == "python")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_block_that_would_be_skipped_fails(tmp_path, made, monkeypatch):
    for i, body in enumerate(("```python3\nprint(1)\n```\n", "```\nkasuri demo\n```\n", "```text\n$ kasuri demo\n```\n",
                              "```console\n$ kasuri --version\nkasuri 9.9\n```\n")):  # fmt: skip
        (tmp_path / f"{i}.md").write_text(f"# x\n\n{body}", encoding="utf-8")
        (tmp_path / str(i)).mkdir()
        with pytest.raises(AssertionError):
            follow(tmp_path / f"{i}.md", tmp_path / str(i), made, monkeypatch)
