"""Every Python block of the guide runs, page by page, in a fresh folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    if "pyspark" in "".join(blocks):  # a process of its own: its Java would outlive the page
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            pytest.skip("no Java on this machine (apt-get install default-jre-headless)")
        done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, f"{page.name}", "exec"), namespace)
