"""The guide's code runs, block by block, in one namespace."""

import re
import tomllib
from pathlib import Path

from kasuri import kanon

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "kanonymity.md"


def test_every_block_of_the_guide_runs(capsys):
    text = GUIDE.read_text(encoding="utf-8")
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 6
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    printed = capsys.readouterr().out
    assert "epsilon 1.1" in printed and "local differential privacy" in printed and "CONFIDENTIAL" in printed
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    spec = kanon.Recoding.from_dict(tomllib.loads(toml))
    assert spec.names == ("age", "workclass") and spec.attributes[1].missing == "?"
