"""phi / Phi, on which errors after refinement rest, against SciPy; and the default release runs without SciPy, which is
not among the core dependencies."""

import subprocess
import sys

import numpy as np
import pytest

from kasuri._kernels.bayes import hazards


def test_hazards():
    special = pytest.importorskip("scipy.special")
    r = np.concatenate([np.linspace(-60, 60, 4001), [-6.0, 6.0, 0.0]])
    out = np.empty(r.size)
    hazards(r, out)
    with np.errstate(under="ignore"):
        exact = np.exp(-0.5 * r * r - 0.5 * np.log(2 * np.pi) - special.log_ndtr(r))
    assert np.allclose(out, exact, rtol=1e-9, atol=1e-300)
    far = np.empty(2)
    hazards(np.array([-1e4, 1e4]), far)
    assert np.allclose(far, [1e4, 0], rtol=1e-6)


def test_a_default_release_needs_no_scipy(tmp_path):
    code = """
import sys
sys.modules["scipy"] = None
import numpy as np, kasuri as ks
unit = ks.Unit("person", "add-remove", 1)
mesh = ks.Domain.of(ks.Mesh("g", shape=(128, 128)))
table = ks.Domain.of(ks.Nominal("a", ("x", "y")), ks.Ordered("b", 9))
for domain in (mesh, table):
    counts = ks.Counts.from_dense(np.full(domain.shape, 3), domain, unit, data="d")
    out = ks.release(counts, epsilon="1", ledger=None)
    out.save(sys.argv[1] + "/" + out.recipe["name"], unmetered=True)
    assert ks.verify(sys.argv[1] + "/" + out.recipe["name"]).ok
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
