"""The viewer's reading of packed rows (report/viewer/rows.js) gives what Python packed."""

import json
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from kasuri.report.pack import Rows, pack

NODE = shutil.which("node")
READ = """
let sent = "";
process.stdin.on("data", (part) => { sent += part; });
process.stdin.on("end", async () => {
  const { about, text } = JSON.parse(sent), out = await unpack(about, text);
  const columns = Object.fromEntries(Object.entries(out.columns).map(([name, numbers]) => [name, Array.from(numbers)]));
  process.stdout.write(JSON.stringify({ index: out.index.map((numbers) => Array.from(numbers)), columns }));
});
"""


@pytest.mark.skipif(NODE is None, reason="node is not installed: apt-get install nodejs")
@pytest.mark.parametrize(("most", "grain", "step"), [(40, 1, 1), (10**12, 5, 50)])
def test_rows_come_back_in_the_viewer(most, grain, step):
    """Equal values, negative ones, ones above 2^32, cells without an interval."""
    rng = np.random.default_rng(most)
    value = np.concatenate([rng.integers(-most, most, 300), rng.integers(-9, 9, 300)]) * grain
    low, high = (value - rng.integers(0, 90, 600)) // step * step, -(-(value + rng.integers(0, 90, 600)) // step) * step
    below, above = np.where(value % 7 == 0, -1, value - low), np.where(value % 7 == 0, -1, high - value)
    rows = Rows((np.arange(600) * 3,), {"value": value, "below": below, "above": above}, 1, step, grain)
    about, text = pack(rows)
    script = (files("kasuri.report") / "viewer/rows.js").read_text(encoding="utf-8") + READ
    done = subprocess.run([NODE, "-e", script], input=json.dumps({"about": about, "text": text}), capture_output=True,
                          text=True, check=True, timeout=60)  # fmt: skip
    found = json.loads(done.stdout)
    assert found["index"] == [rows.index[0].tolist()]
    assert {name: found["columns"][name] for name in rows.columns} == {k: v.tolist() for k, v in rows.columns.items()}
