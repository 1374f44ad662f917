"""`kasuri` commands in processes of their own, forked from one that has loaded the command line and its libraries: a
test that gives twenty commands does not load them twenty times. How a command starts by itself is tested elsewhere
(`test_cli`, `test_first_minute`)."""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SERVER = """
import json, os, sys
import duckdb, numba, numpy, pyarrow.compute, pyarrow.csv, pyarrow.parquet
import kasuri as ks
import kasuri._kernels, kasuri.cli, kasuri.describe, kasuri.job, kasuri.report, kasuri.store, kasuri.study
kasuri._kernels.warm_up()  # loads what is compiled
assert "pandas" not in sys.modules and callable(ks.release) and callable(ks.verify) and callable(ks.count)
for line in sys.stdin:
    words, folder, environment, out, err = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        for number, place in enumerate((os.devnull, out, err)):
            os.dup2(os.open(place, os.O_RDWR), number)
        sys.argv = [os.path.join(os.path.dirname(kasuri.__file__), "__main__.py"), *words]
        kasuri.cli.process()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _server(_process: int) -> subprocess.Popen[str]:
    """One for each process that asks; it ends when that one does."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)  # closes its input, and waits
    return server


def kasuri(*words: object, cwd: str | Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `python -m kasuri WORDS` in the folder `cwd` says; it must end with `code`."""
    server = _server(os.getpid())
    assert server.stdin is not None and server.stdout is not None
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        asked = [str(word) for word in words], str(cwd), {**os.environ, **environment}, out.name, err.name
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        ended = int(server.stdout.readline())
        run = subprocess.CompletedProcess(asked[0], ended, out.read().decode(), err.read().decode())
    assert run.returncode == code, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    return run
