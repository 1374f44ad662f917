"""The two READMEs: the code in them runs, and the Japanese one shows what the English one shows."""

import re
from pathlib import Path

from kasuri.examples import KANTO
from kasuri.ingest import read_table

ROOT = Path(__file__).parents[2]
ENGLISH, JAPANESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ja.md"))


def blocks(text):
    """Code blocks without their comments."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S)
    return [(kind, re.sub(r"\s+#.*", "", body)) for kind, body in found]


def shape(text):
    """How many headings, table rows, bullets and pictures there are, and where the links go."""
    counts = [len(re.findall(rule, text, re.M)) for rule in (r"^#+ ", r"^\|", r"^- ", r"^!\[")]
    return counts, {link.replace("docs/guide/ja/", "docs/guide/").replace("-ja.md", ".md") for link in links(text)}


def links(text):
    return {link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("README")}


def test_both_show_the_same():
    assert blocks(ENGLISH) == blocks(JAPANESE)
    assert shape(ENGLISH) == shape(JAPANESE)


def test_links_lead_somewhere():
    for link in links(ENGLISH) | links(JAPANESE):
        assert link.startswith("https://") or (ROOT / link.partition("#")[0]).exists(), link


def test_the_python_block_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = [body for kind, body in blocks(ENGLISH) if kind == "python"]
    exec(compile(code, "README.md", "exec"), {"frame": read_table(KANTO)})
    assert (tmp_path / "release" / "report.html").exists()
