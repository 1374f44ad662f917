#!/usr/bin/env python3
"""python3 run.py demo | kasuri ... | test [--full] | check | bench | docs | falsify [--hours H] | warm-up | lock
                  | licences | sbom | wheel [FOLDER]

Standard library only. `demo` and `kasuri ...` make a small environment in .venv from core.lock (hashed pins); the other
commands are for developers and add their tools to it from requirements.lock. A second start finds it ready. Further
words are handed on, e.g. `python3 run.py test -k noise`. The installer takes pip's settings: index, certificate, proxy.
"""

import ast
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(ROOT, ".tools")
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "bin")
PYTHON = os.path.join(BIN, "python")
LOG = os.path.join(TOOLS, "install.log")
COMMANDS = (
    "demo",
    "kasuri",
    "test",
    "check",
    "bench",
    "docs",
    "falsify",
    "warm-up",
    "lock",
    "licences",
    "sbom",
    "wheel",
)
SMALL = ("demo", "kasuri")

MIRROR = "PIP_INDEX_URL=https://MIRROR/simple %s"
FAILURES = (  # what pip or uv says, what has happened, what to do; %s is the command that was typed
    ("No module named pip", "this Python has no pip", "on Debian or Ubuntu: apt-get install python3-pip"),
    ("No space left|os error 28", "the disk is full", "make room: 750 MB, or 2.5 GB with the developers' tools"),
    (
        "DO NOT MATCH THE HASHES|Hash mismatch",
        "the package index gave a file that is not the pinned one, and it was refused",
        "use another index: " + MIRROR,
    ),
    (
        "UnknownIssuer|CERTIFICATE_VERIFY_FAILED|invalid peer certificate",
        "the certificate of the package index is not trusted here",
        "name the file of your network's certificate authority: SSL_CERT_FILE=CA.pem PIP_CERT=CA.pem %s",
    ),
    (
        r"\b(401|403|407) (Client Error|Unauthorized|Forbidden|Proxy)",
        "the package index or the proxy wants a password",
        "write it into ~/.netrc, or name another index: " + MIRROR,
    ),
    (
        "dns error|refused|[Cc]onnect error|timed out|NewConnection|unreachable|Max retries|ProxyError|Failed to fetch",
        "the package index cannot be reached",
        "check the network, or name a mirror or a proxy: " + MIRROR + "  or  HTTPS_PROXY=http://HOST:PORT %s",
    ),
    (
        "No matching distribution|no version of|not found in the package registry|no wheels",
        "the package index lacks a pinned version, or its file for this Python and machine",
        "use another index: " + MIRROR,
    ),
)


def say(text):
    print("kasuri: " + text, file=sys.stderr)
    sys.stderr.flush()


def call(*words, **more):
    code = subprocess.call(list(words), **dict({"cwd": ROOT}, **more))
    if code:
        sys.exit(code if code > 0 else 1)


def typed():
    """`python3 run.py` as it works in this shell."""
    found = shutil.which("python3")
    same = found and os.path.realpath(found) == os.path.realpath(sys.executable)
    return "%s %s" % ("python3" if same else shlex.quote(sys.executable), shlex.quote(sys.argv[0]))


def install(what, *words, **more):
    """Run pip or uv: a line that moves, everything they say in .tools/install.log, and one sentence if they fail."""
    begun, shown, moves = time.monotonic(), -1, sys.stderr.isatty()
    with open(LOG, "ab+") as log:
        start = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(list(words), cwd=ROOT, stdout=log, stderr=log, **more)
        try:
            while process.poll() is None:
                seconds = int(time.monotonic() - begun)
                if seconds > shown if moves else seconds >= shown + 15:
                    line = "%s, %d s %s" % (what, seconds, last_line(start))
                    if moves:
                        sys.stderr.write("\r\033[Kkasuri: " + line[:100])
                        sys.stderr.flush()
                    else:
                        say(line)
                    shown = seconds
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.terminate()
            if moves:
                sys.stderr.write("\r\033[K")
    if process.returncode:
        with open(LOG, "rb") as log:
            log.seek(start)
            said = log.read().decode("utf-8", "replace")
        command = typed() + " " + sys.argv[1]
        for signs, happened, remedy in FAILURES:
            if re.search(signs, said):
                sys.exit("kasuri: %s; %s  (details: .tools/install.log)" % (happened, remedy.replace("%s", command)))
        sys.exit("kasuri: the installer failed; mend what the end of .tools/install.log names, then: " + command)


def last_line(start):
    with open(LOG, "rb") as log:
        log.seek(start)
        lines = log.read().decode("utf-8", "replace").split("\n")
    return "".join("(%s)" % line.strip() for line in lines[-2:-1] if line.strip())


def uv():
    """uv in .tools: installed with --target, which a Debian Python without venv allows too."""
    program = os.path.join(TOOLS, "bin", "uv")
    os.makedirs(TOOLS, exist_ok=True)
    if not os.path.exists(program):
        quiet = ["--quiet", "--no-warn-script-location", "--root-user-action=ignore", "--disable-pip-version-check"]
        pinned = ["--require-hashes", "-r", "bootstrap.lock"]
        pip = [sys.executable, "-m", "pip", "install", *quiet, "--target", TOOLS, *pinned]
        install("installing uv into .tools (once)", *pip)
    return program


def settings():
    """The environment for uv: the system's certificates, and what pip was told; a setting of uv's own comes first."""
    env, pip = dict(os.environ), {}
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    lines = [line.partition("=") for line in listed.stdout.splitlines()]
    for section in ("global.", "install.", ":env:."):  # the later one wins, as in pip
        pip.update({key[len(section) :]: ast.literal_eval(value) for key, _, value in lines if key.startswith(section)})

    def hand(key, *names, joined=" ", only=lambda word: True):
        words = [word for word in pip.get(key, "").split() if only(word)]
        if words and not any(env.get(name) for name in names):
            env[names[0]] = joined.join(words)

    def there(place):  # pip passes over a folder that is gone, uv does not
        path = place[len("file://") :] if place.startswith("file://") else place
        return "://" in path or os.path.exists(path)

    env.setdefault("UV_SYSTEM_CERTS", "true")
    hand("index-url", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
    hand("extra-index-url", "UV_INDEX", "UV_EXTRA_INDEX_URL", only=there)
    hand("find-links", "UV_FIND_LINKS", joined=",", only=there)
    hand("trusted-host", "UV_INSECURE_HOST")
    hand("cert", "SSL_CERT_FILE")
    hand("proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    hand("timeout", "UV_HTTP_TIMEOUT")
    if env.get("UV_INDEX") or env.get("UV_EXTRA_INDEX_URL"):  # as pip: every index is asked; the hashes decide
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return env


def fingerprint():
    digest = hashlib.sha256(sys.version.encode())
    for name in ("core.lock", "requirements.lock", "pyproject.toml"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def environment(small):
    """Make or refresh .venv where the locks, pyproject.toml or Python changed or the developers' tools are missing."""
    stamp, wanted = os.path.join(VENV, "kasuri.stamp"), fingerprint()
    try:
        with open(stamp) as file:
            found = file.read().split()
    except OSError:
        found = []
    if found[:1] == [wanted] and (small or "dev" in found):
        return
    program, env = uv(), settings()
    cache = None
    if small and not env.get("UV_CACHE_DIR"):  # beside .venv, so that files are linked and not copied; then removed
        cache = env["UV_CACHE_DIR"] = os.path.join(TOOLS, "cache")
    what = "making the environment in .venv (once)" if small else "adding the developers' tools to .venv (once)"
    if found[:1] != [wanted]:
        install(what, program, "venv", "--clear", "--python", sys.executable, VENV, env=env)
    pip = [program, "pip", "install", "--python", PYTHON]
    if small:  # Python compiles what is used when it is first used: 80 MB and half of the seconds less
        install(what, *pip, "--require-hashes", "-r", "core.lock", env=env)
    else:
        install(what, *pip, "--compile-bytecode", "--require-hashes", "-r", "requirements.lock", env=env)
    install(what, *pip, "--no-deps", "--no-build-isolation", "-e", ".", env=env)
    with open(stamp, "w") as file:
        file.write(wanted + ("" if small else " dev"))
    if cache:
        shutil.rmtree(cache, ignore_errors=True)
    if small:
        install("compiling what the demo runs, on all cores (once)", PYTHON, "-c", COMPILE % "DEMO")


COMPILE = "import kasuri._kernels as kernels; kernels.warm_up_beside(kernels.%s)"


def warm_up():
    """Compile what is not compiled yet, kernels and modules, on all cores."""
    call(PYTHON, "-m", "compileall", "-q", "-j", "0", "src")
    call(PYTHON, "-c", COMPILE % "MODULES", stdout=subprocess.DEVNULL)


def lock(rest):
    """Both locks: what developers use, and the part of it that kasuri itself needs (and what builds it)."""
    compile = [
        uv(),
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--python-version",
        "3.11",
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-header",
        "--no-annotate",
        *rest,
    ]
    call(*compile, "--extra", "dev", "-o", "requirements.lock", "pyproject.toml", env=settings())
    process = subprocess.run(
        [*compile, "-c", "requirements.lock", "-o", "core.lock", "pyproject.toml", "-"],
        cwd=ROOT,
        env=settings(),
        input=b"hatchling\n",
    )
    sys.exit(process.returncode)


def main():
    if os.name != "posix":
        sys.exit("kasuri runs on Linux and macOS; on Windows run the same command inside WSL (wsl --install).")
    if sys.version_info < (3, 11):
        sys.exit("kasuri needs Python 3.11 or newer; this is Python %d.%d." % sys.version_info[:2])
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__.strip())
    command, rest = sys.argv[1], sys.argv[2:]
    if command == "lock":
        lock(rest)
    environment(small=command in SMALL)
    if command in SMALL:
        words = ["demo", *rest] if command == "demo" else rest
        hints = dict(os.environ, KASURI_COMMAND=typed() + " kasuri")  # the command that its hints print
        call(PYTHON, "-m", "kasuri", *words, cwd=None, env=hints)
    elif command == "test":
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # its processes share what it makes of the tests
        warm_up()  # or each process of the tests would compile every kernel that it meets
        full = "--full" in rest
        marks = [] if full else ["-m", "not full"]
        if "-n" not in rest:  # a process more than cores: tests wait for executors, browsers and servers
            marks += ["-n", str(min(os.cpu_count() or 1, 4) + 1)]
        call(PYTHON, "-m", "pytest", *marks, *[word for word in rest if word != "--full"])
    elif command == "check":
        call(os.path.join(BIN, "ruff"), "check", ".")
        call(os.path.join(BIN, "ruff"), "format", "--check", "--quiet", "src", "tests", "benchmarks")
        call(PYTHON, "-m", "mypy")
        call(PYTHON, "-m", "pytest", "tests/architecture")
    elif command == "bench":
        call(PYTHON, "benchmarks/run.py", *rest)
    elif command == "docs":
        call(PYTHON, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "docs", "docs/_build", *rest)
        say("open docs/_build/index.html")
    elif command in ("licences", "sbom"):
        call(PYTHON, "supply_chain.py", command, *rest)
    elif command == "wheel":
        call(PYTHON, os.path.join(ROOT, "wheel.py"), *rest, cwd=None)
    elif command == "falsify":
        call(PYTHON, "tests/falsify/falsify.py", *rest)
    elif command == "warm-up":
        warm_up()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nkasuri: stopped; the same command goes on from here")
