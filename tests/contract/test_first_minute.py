"""The first minute: a small hashed environment, pip's settings for uv, one sentence for each failure, a wheel."""

import datetime
import json
import os
import platform
import shutil
import ssl
import subprocess
import sys
import threading
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from ipaddress import ip_address
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
UV = ROOT / ".tools" / "bin" / "uv"
PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The Python that made the environment: the one of the environment has no pip."""

needs_uv = pytest.mark.skipif(not UV.exists() or not PYTHON.exists(), reason="needs the uv that run.py installs")


def module(name):
    spec = spec_from_file_location(name, ROOT / f"{name}.py")
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def pins(name):
    """Requirement -> hashes of a lock."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    return {line.split(" --hash")[0].strip(): line.split(" --hash")[1:] for line in text.splitlines() if line.strip()}


def test_the_small_lock_is_the_part_of_the_large_one_that_kasuri_needs():
    small, large = pins("core.lock"), pins("requirements.lock")
    versions = {(Requirement(text).name, str(Requirement(text).specifier)): hashes for text, hashes in large.items()}
    for text, hashes in small.items():
        one = Requirement(text)
        assert versions[one.name, str(one.specifier)] == hashes and hashes, text
    chain, names = module("supply_chain"), {canonicalize_name(Requirement(text).name) for text in small}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {canonicalize_name(Requirement(text).name) for text in [*project["dependencies"], "hatchling"]}
    wanted |= chain.closure(()) | {name for name, _ in chain.needs("hatchling")}
    elsewhere = {canonicalize_name(Requirement(text).name) for text in small if "win32" in text}
    assert names - elsewhere == wanted - elsewhere
    assert "://" not in (ROOT / "core.lock").read_text(encoding="utf-8")


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # uv opens many connections at once, and a busy machine accepts them late


@pytest.fixture
def clone(tmp_path):
    """What run.py needs to start, with the uv of this environment."""
    home = tmp_path / "clone"
    (home / ".tools").mkdir(parents=True)
    for name in ("run.py", "core.lock", "requirements.lock", "bootstrap.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, home)
    (home / ".tools" / "bin").symlink_to(UV.resolve().parent)
    return home


def start(clone, *words, python=PYTHON, **settings):
    """run.py with no setting of this machine but those given."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    quick = {
        "UV_HTTP_RETRIES": "0",
        "UV_HTTP_TIMEOUT": "120",
        "UV_HTTP_CONNECT_TIMEOUT": "120",
        "UV_CONFIG_FILE": "",
        "PIP_CONFIG_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
    }
    (clone / "uv.toml").write_text("")
    env = {**keep, "HOME": str(clone.parent), **quick, **settings}
    env["UV_CONFIG_FILE"] = str(clone / "uv.toml")
    return subprocess.run([str(python), "run.py", *words], cwd=clone, env=env, capture_output=True, text=True)


class Index(BaseHTTPRequestHandler):
    """A package index that answers everything alike; of a wrong file it has every name."""

    def do_GET(self):
        status = self.server.status
        if status == "wrong file":
            name = self.path.strip("/").split("/")[-1]
            if self.path.startswith("/simple/"):
                pinned = [text for text in pins("core.lock") if Requirement(text).name == name]
                versions = [str(Requirement(text).specifier).removeprefix("==") for text in pinned]
                files = [f"{name.replace('-', '_')}-{version}-py3-none-any.whl" for version in versions]
                digests = {text: [h.strip()[1:].replace("sha256:", "sha256=") for h in pins("core.lock")[text]]
                           for text in pinned}  # fmt: skip
                links = [f'<a href="/files/{file}#{digests[text][0]}">{file}</a>'
                         for file, text in zip(files, pinned, strict=True)]  # fmt: skip
                body = ("<!DOCTYPE html><html><body>" + "".join(links) + "</body></html>").encode()
                kind = "text/html"
            else:
                body, kind = wheel(name), "application/octet-stream"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.send_error(status)

    do_HEAD = do_GET  # noqa: N815 (the name is http.server's)

    def log_message(self, *words):
        pass


def wheel(name):
    """A file of the right name that holds something else."""
    import io

    stem = "-".join(name.split("-")[:2])
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        project, version = stem.split("-")
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return body.getvalue()


@pytest.fixture
def index():
    """Starts indexes on loopback: index(status, certificate) -> address."""
    servers = []

    def begin(status, certificate=None):
        server = Server(("127.0.0.1", 0), Index)
        server.status = status
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}/simple"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A private authority and, signed by it, a certificate with key for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("authority")
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, words)]) for words in ("Office CA", "index")]
    made = []
    for number in (0, 1):
        builder = (
            x509.CertificateBuilder().subject_name(names[number]).issuer_name(names[0])
            .public_key(keys[number].public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=number == 0, path_length=None), critical=True)
        )  # fmt: skip
        if number:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
            )
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    key = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.pem").write_bytes(made[0])
    (folder / "server.pem").write_bytes(made[1] + key)
    return folder / "ca.pem", folder / "server.pem"


def refused(run, clone):
    """The one sentence, its remedy last; the details are in the log."""
    assert run.returncode == 1 and run.stdout == "" and "Traceback" not in run.stderr
    *progress, last = run.stderr.strip().splitlines()
    assert all(line.startswith("kasuri: making the environment") for line in progress), run.stderr
    assert last.startswith("kasuri: ") and "(details: .tools/install.log)" in last, run.stderr
    assert (clone / ".tools" / "install.log").stat().st_size > 0
    return last


@needs_uv
@pytest.mark.parametrize(
    ("status", "words", "remedy"),
    [
        (404, "lacks a pinned version", "PIP_INDEX_URL="),
        (403, "wants a password", "~/.netrc"),
        (401, "wants a password", "~/.netrc"),
        (503, "cannot be reached", "HTTPS_PROXY="),
        ("wrong file", "is not the pinned one", "PIP_INDEX_URL="),
    ],
)
def test_a_bad_index_ends_in_one_sentence(clone, index, status, words, remedy):
    last = refused(start(clone, "kasuri", "--version", PIP_INDEX_URL=index(status)), clone)
    assert words in last and remedy in last and "run.py kasuri" in last


@needs_uv
def test_no_network_ends_in_one_sentence(clone):
    last = refused(start(clone, "demo", PIP_INDEX_URL="http://127.0.0.1:9/simple"), clone)
    assert "cannot be reached" in last and "run.py demo" in last


@needs_uv
def test_a_private_authority_is_refused_until_it_is_named(clone, index, authority, tmp_path):
    ca, server = authority
    address = index(404, server)
    assert "certificate" in refused(start(clone, "demo", PIP_INDEX_URL=address), clone)
    assert "lacks a pinned version" in refused(
        start(clone, "demo", PIP_INDEX_URL=address, SSL_CERT_FILE=str(ca)), clone
    )
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\ncert = {ca}\nindex-url = {address}\n")  # pip's own file is enough
    assert "lacks a pinned version" in refused(start(clone, "demo", PIP_CONFIG_FILE=str(settings)), clone)


@needs_uv
def test_pips_settings_reach_uv_and_uvs_own_come_first(clone, tmp_path):
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://mirror.example/a\nproxy = http://proxy.example:3128\ntimeout = 77\n"
        f"extra-index-url =\n  https://one.example/simple\n  file://{tmp_path}\n  file://{tmp_path}/gone\n"
        "trusted-host = mirror.example\n[install]\nindex-url = https://mirror.example/b\n"
    )
    show = "import run; got = run.settings(); print({k: v for k, v in got.items() if k[:3] in ('UV_', 'SSL', 'HTT')})"

    def asked(**more):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(settings), **more}
        run = subprocess.run([str(PYTHON), "-c", show], cwd=clone, env=env, capture_output=True, text=True, check=True)
        return {name: value for name, value in eval(run.stdout).items() if name != "SSL_CERT_FILE"}  # the machine's

    assert asked() == {
        "UV_DEFAULT_INDEX": "https://mirror.example/b",
        "UV_INDEX": f"https://one.example/simple file://{tmp_path}",
        "UV_INSECURE_HOST": "mirror.example",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "UV_HTTP_TIMEOUT": "77",
        "UV_SYSTEM_CERTS": "true",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    own = asked(
        PIP_INDEX_URL="https://mirror.example/c", UV_INDEX_URL="https://mirror.example/uv", HTTPS_PROXY="http://p"
    )
    assert "UV_DEFAULT_INDEX" not in own and own["HTTPS_PROXY"] == "http://p"
    assert asked(PIP_INDEX_URL="https://mirror.example/c")["UV_DEFAULT_INDEX"] == "https://mirror.example/c"


@needs_uv
def test_a_python_without_pip_is_told_what_to_install(clone):
    (clone / ".tools" / "bin").unlink()
    run = start(clone, "demo", python=sys.executable)
    if run.returncode == 0 or "has no pip" not in run.stderr:
        pytest.fail(run.stderr)
    assert "apt-get install python3-pip" in run.stderr.splitlines()[-1]


def test_hints_are_the_command_that_was_typed(tmp_path):
    def asked(*words, **settings):
        env = {**os.environ, **settings}
        return subprocess.run(
            [sys.executable, "-m", "kasuri", *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )

    typed = "python3 run.py kasuri"
    assert asked("init", "job.toml", KASURI_COMMAND=typed).stdout.endswith(f"then: {typed} check job.toml\n")
    assert f"\n  {typed} demo local\n" in asked("demo", "--help", KASURI_COMMAND=typed).stdout
    assert f"`{typed} ledger open`" in asked("ledger", "show", "no.ledger", KASURI_COMMAND=typed).stderr
    assert "-m kasuri check other.toml" in asked("init", "other.toml").stdout


def test_import_is_light():
    """Under 0.3 s of CPU, the start of Python included."""
    code = "import kasuri, resource as r; own = r.getrusage(r.RUSAGE_SELF); print(own.ru_utime + own.ru_stime)"
    assert min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)) < 0.3


def test_every_command_is_known_to_hints():
    import typer

    from kasuri.cli import app
    from kasuri.cli.spoken import COMMANDS

    assert sorted(typer.main.get_command(app).commands) == list(COMMANDS)


def test_completion_answers():
    env = {**os.environ, "_KASURI_COMPLETE": "complete_bash", "COMP_WORDS": "kasuri le", "COMP_CWORD": "1"}
    program = Path(sys.executable).with_name("kasuri")
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    run = subprocess.run([str(program)], env=env, capture_output=True, text=True)
    assert run.stdout.split() == ["ledger"]


def fresh(folder, wheel_file):
    """A new environment with kasuri from a wheel; what it depends on is lent by the one that runs this."""
    subprocess.run([str(UV), "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [str(UV), "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel_file)]
    subprocess.run(install, check=True)
    lent = Path(metadata.distribution("numpy").locate_file(""))
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(f"{lent}\n")  # its own .pth files, the editable kasuri's too, are not read
    return folder / "bin" / "kasuri"


def lend_kernels(folder):
    """What this checkout has compiled of the same sources: another half a minute would prove nothing more."""
    (inside,) = (folder / "lib").glob("python*/site-packages/kasuri/_kernels")
    (inside / "__pycache__").mkdir(exist_ok=True)
    for path in (ROOT / "src" / "kasuri" / "_kernels" / "__pycache__").glob("*.nb?"):
        shutil.copy(path, inside / "__pycache__")


@needs_uv
def test_a_wheel_in_a_fresh_environment(tmp_path):
    """Built by hatchling, installed, used: everything the package ships is in it and nothing else is needed."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KASURI_COMMAND")}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, env=env, check=True, capture_output=True)
    (made,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        inside = set(archive.namelist())
    tracked = subprocess.run(["git", "ls-files", "src/kasuri"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert {name.removeprefix("src/") for name in tracked if (ROOT / name).exists()} <= inside
    assert {Path(name).name for name in inside if ".dist-info/licenses/" in name} == {"LICENSE", "NOTICE"}

    program = fresh(tmp_path / "venv", made)
    lend_kernels(tmp_path / "venv")
    where = [str(program.with_name("python")), "-c", "import kasuri; print(kasuri.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(tmp_path / "venv"))

    def run(*words):
        return subprocess.run([str(program), *words], cwd=tmp_path, env=env, capture_output=True, text=True)

    done = run("demo", "--out", "demo")
    assert done.returncode == 0, done.stderr
    assert f"{program} init job.toml" in done.stdout  # not on PATH: the hint names it by its path
    assert run("verify", "demo").returncode == 0
    assert run("demo", "--out", "demo").returncode == 1


@pytest.mark.full
@needs_uv
@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiled kernels are shipped for x86-64")
def test_a_wheel_with_compiled_kernels(tmp_path):
    """Nothing is compiled in its first run, from any path, nor where nothing can be written; damaged kernels are
    compiled again; a processor without AVX2 takes none of them."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KASURI_COMMAND")}
    made = [sys.executable, str(ROOT / "wheel.py"), str(tmp_path)]
    subprocess.run(made, env=env, check=True, capture_output=True)
    (made,) = tmp_path.glob("*.whl")
    assert made.name.endswith("_x86_64.whl") and not (ROOT / "src/kasuri/_kernels/compiled").exists()
    program = fresh(tmp_path / "venv", made)
    kernels = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages" / "kasuri" / "_kernels"

    def demo(name, **more):
        command = [str(program), "demo", "--out", str(tmp_path / name)]
        done = subprocess.run(command, cwd=tmp_path, env=env | more, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return len(list((kernels / "__pycache__").glob("*.nbc")))

    assert demo("first") == demo("nowhere", NUMBA_CACHE_LOCATOR_CLASSES="kasuri._kernels.cached._Nowhere") == 0
    target = (kernels / "compiled" / "target.json").read_text()
    check = (
        "import sys; from kasuri._kernels import cached; cached.binding.get_host_cpu_features = lambda: {'avx2': %s}; "
    )
    check += f"cached._LEVEL = ('avx2',); print(cached._shipped_for({json.loads(target)[0]!r}) is not None)"
    for has in (True, False):
        command = [str(program.with_name("python")), "-c", check % has]
        assert subprocess.run(command, env=env, capture_output=True, text=True).stdout == f"{has}\n"
    for path in (kernels / "compiled").glob("morton.*.nbc"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert demo("damaged") > 0


@pytest.mark.full
@needs_uv
def test_pip_install_from_the_sources(tmp_path):
    """`pip install .` with what it downloads, in an environment that borrows nothing."""
    subprocess.run([str(PYTHON), "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [str(tmp_path / "venv" / "bin" / "pip"), "install", "--quiet"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    sources = tmp_path / "sources"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(sources)], check=True)
    subprocess.run([*pip, "--require-hashes", "-r", "core.lock"], cwd=sources, env=env, check=True)
    subprocess.run([*pip, "--no-deps", "."], cwd=sources, env=env, check=True)
    program = [str(tmp_path / "venv" / "bin" / "kasuri"), "demo", "--out", "demo"]
    done = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
