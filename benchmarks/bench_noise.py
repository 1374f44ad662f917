"""Exact discrete Laplace noise against rng.laplace (NumPy) and OpenDP's exact vector noise.

python3 run.py bench noise

OpenDP is installed into an environment of its own (.tools/peers) with uv; without it that line is skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from clock import best, line

from kasuri.noise.rng import Streams, secure
from kasuri.noise.samplers import discrete_laplace

ROOT = Path(__file__).parents[1]
N = 1 << 22
CHUNK = 1 << 16

OPENDP = """
import json, sys, time
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
n = 20_000
out = {}
for scale in json.loads(sys.argv[1]):
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    noise = dp.m.make_laplace(*space, scale=float(scale))
    data = [0] * n
    noise(data)
    start = time.process_time()
    noise(data)
    out[str(scale)] = (time.process_time() - start) / n * 1e9
print(json.dumps(out))
"""


def opendp(scales: list[int]) -> dict[str, float] | None:
    """ns per sample of OpenDP, measured in its own environment in this run."""
    uv, home = ROOT / ".tools" / "bin" / "uv", ROOT / ".tools" / "peers"
    python = home / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, home], check=True, capture_output=True)
        install = [uv, "pip", "install", "--quiet", "--python", python, "opendp"]
        subprocess.run(install, check=True, capture_output=True)
        run = subprocess.run([python, "-c", OPENDP, json.dumps(scales)], check=True, capture_output=True, text=True)
        return json.loads(run.stdout)
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> None:
    rng = np.random.default_rng()
    scales = [1, 10, 190, 700, 10_000]
    peer = opendp(scales)
    if peer is None:
        print("  OpenDP could not be installed here: its column is skipped")
    out = np.empty(CHUNK, dtype=np.int64)
    words = np.empty(CHUNK, dtype=np.uint32)
    stream = Streams(secure().release_key(), "bench").open("noise")
    cipher = best(lambda: [stream.fill(words) for _ in range(N // CHUNK)]) / N * 1e9
    line("AES-256-CTR, 4 bytes", f"{cipher:.2f} ns")
    for scale in scales:
        sampler = discrete_laplace(Fraction(scale))
        stream = Streams(secure().release_key(), "bench").open("noise")
        sampler.draw_into(stream, out)

        def ours(sampler=sampler, stream=stream) -> None:
            for _ in range(N // CHUNK):
                sampler.draw_into(stream, out)

        mine = best(ours) / N * 1e9
        numpy = best(lambda scale=scale: [rng.laplace(0, scale, CHUNK) for _ in range(N // CHUNK)]) / N * 1e9
        target = 0.2 if scale <= 700 else 0.35
        line(
            f"scale {scale}: kasuri / rng.laplace ({mine:.1f} / {numpy:.1f} ns)",
            f"{mine / numpy:.3f}",
            f"(<= {target})",
        )
        if peer is not None:
            line(
                f"scale {scale}: OpenDP / kasuri ({peer[str(scale)]:.0f} ns)",
                f"{peer[str(scale)] / mine:,.0f}",
                "(>= 1000)",
            )


if __name__ == "__main__":
    main()
