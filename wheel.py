"""python3 run.py wheel [FOLDER]: a wheel with its kernels compiled, for this Python, this system and any processor of
level x86-64-v3 (those since about 2015). Other machines compile kernels at their first call, as without this.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.abspath(__file__))
COMPILED = os.path.join(ROOT, "src", "kasuri", "_kernels", "compiled")
COMPILE = """
import json
import kasuri._kernels as kernels
kernels.warm_up()
from numba.core.registry import cpu_target
print(json.dumps(cpu_target.target_context.codegen().magic_tuple()))
"""


def main(folder="dist"):
    if platform.machine() != "x86_64":
        sys.exit("kasuri: compiled kernels are shipped for x86-64 only; `pip wheel .` makes a wheel without them")
    target = os.path.abspath(folder)
    try:
        with tempfile.TemporaryDirectory() as cache:
            print("kasuri: compiling the kernels, about half a minute", file=sys.stderr, flush=True)
            env = dict(os.environ, NUMBA_CACHE_DIR=cache, NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES="")
            run = [sys.executable, "-c", COMPILE]
            made = subprocess.run(run, env=env, stdout=subprocess.PIPE, text=True, check=True)
            os.makedirs(COMPILED)
            for place, _, names in os.walk(cache):
                for name in names:
                    shutil.copy(os.path.join(place, name), COMPILED)
        with open(os.path.join(COMPILED, "target.json"), "w", encoding="ascii") as file:
            json.dump(json.loads(made.stdout), file)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target]
        sys.exit(subprocess.call(build, cwd=ROOT))
    finally:
        shutil.rmtree(COMPILED, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
