"""Sphinx: `python3 run.py docs`; nothing is fetched."""

project = "kasuri"
author = "the kasuri developers"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "kasuri"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]
