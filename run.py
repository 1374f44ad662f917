#!/usr/bin/env python3
"""python3 run.py demo | test [--full] | check | bench | docs | falsify [--hours H] | warm-up | lock | licences | sbom

Standard library only. Makes its own environment in .venv from requirements.lock (hashed pins) and runs there;
a second start finds the environment ready. Further words are handed on, e.g. `python3 run.py test -k noise`.
"""
import hashlib
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(ROOT, ".tools")
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python")
COMMANDS = ("demo", "test", "check", "bench", "docs", "falsify", "warm-up", "lock", "licences", "sbom")


def say(text):
    print(text, file=sys.stderr)
    sys.stderr.flush()


def call(*words, **more):
    code = subprocess.call(list(words), cwd=ROOT, **more)
    if code:
        sys.exit(code if code > 0 else 1)


def uv():
    """uv in .tools: installed with --target, which a Debian Python without venv allows too."""
    program = os.path.join(TOOLS, "bin", "uv")
    if not os.path.exists(program):
        say("kasuri: installing uv into .tools (once)")
        quiet = ["--quiet", "--no-warn-script-location", "--root-user-action=ignore"]
        pinned = ["--require-hashes", "-r", "bootstrap.lock"]
        pip = [sys.executable, "-m", "pip", "install", *quiet, "--target", TOOLS, *pinned]
        if subprocess.call(pip, cwd=ROOT, stdout=sys.stderr) or not os.path.exists(program):
            sys.exit("kasuri: 'pip' could not install uv; on Debian or Ubuntu: apt-get install python3-pip")
    return program


def fingerprint():
    digest = hashlib.sha256(sys.version.encode())
    for name in ("requirements.lock", "pyproject.toml"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def environment():
    """Create or refresh .venv when requirements.lock, pyproject.toml or Python changed; else do nothing."""
    stamp = os.path.join(VENV, "kasuri.stamp")
    wanted = fingerprint()
    try:
        with open(stamp) as file:
            if file.read() == wanted:
                return
    except OSError:
        pass
    program = uv()
    say("kasuri: making the environment in .venv (once)")
    call(program, "venv", "--quiet", "--clear", "--python", sys.executable, VENV)
    install = [program, "pip", "install", "--quiet", "--compile-bytecode", "--python", PYTHON]
    call(*install, "--require-hashes", "-r", "requirements.lock")
    call(*install, "--no-deps", "--no-build-isolation", "-e", ".")
    with open(stamp, "w") as file:
        file.write(wanted)


def main():
    if sys.version_info < (3, 11):
        sys.exit("kasuri needs Python 3.11 or newer; this is Python %d.%d." % sys.version_info[:2])
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__.strip())
    command, rest = sys.argv[1], sys.argv[2:]
    if command == "lock":
        call(uv(), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes",
             "--no-emit-index-url", "--no-header", "--no-annotate", "--extra", "dev",
             "-o", "requirements.lock", "pyproject.toml", *rest)
        return
    environment()
    if command == "demo":
        call(PYTHON, "-m", "kasuri.cli", "demo", *rest)
    elif command == "test":
        full = "--full" in rest
        marks = [] if full else ["-m", "not full"]
        if "-n" not in rest:  # a process per core
            marks += ["-n", str(min(os.cpu_count() or 1, 4))]
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
        say("kasuri: open docs/_build/index.html")
    elif command in ("licences", "sbom"):
        call(PYTHON, "supply_chain.py", command, *rest)
    elif command == "falsify":
        call(PYTHON, "tests/falsify/falsify.py", *rest)
    elif command == "warm-up":
        call(PYTHON, "-c", "import kasuri._kernels as kernels; kernels.warm_up()")


if __name__ == "__main__":
    main()
