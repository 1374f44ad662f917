"""Values as a notebook shows them: small pieces of HTML, every word escaped, nothing asked of the network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def card(title: str, rows: Iterable[tuple[str, object]], *further: str) -> str:
    """A title and rows of a name and its words; `further` is HTML already."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(str(words))}</td></tr>'
        for name, words in rows
    )
    return f"<div><b>{escape(title)}</b><table>{cells}</table>{''.join(further)}</div>"


def text(words: str) -> str:
    """Text whose columns stay in line."""
    return f"<pre>{escape(words)}</pre>"
