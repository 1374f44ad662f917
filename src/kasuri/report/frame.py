"""The frame every report shares: one HTML file in two languages, with no way to the network.

Text comes as `Text` (English, Japanese); both are in the page and a switch shows one of them. A page is a function of
its parts alone: no time, no path, no random name, so equal parts give equal bytes. The browser itself refuses to
fetch anything (Content-Security-Policy: only this page's own script, by its hash).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from kasuri.report.pack import Packed

CONFIDENTIAL = ("Confidential: computed from the original data. Do not publish.",
                "部外秘：元データから計算したものです。公表しないでください。")  # fmt: skip


@dataclass(frozen=True)
class Text:
    """The same words in English and in Japanese, plain, not yet HTML."""

    en: str
    ja: str

    def html(self) -> str:
        """Both, each in an element that the language switch shows or hides."""
        return both(escape(self.en), escape(self.ja))


@dataclass(frozen=True)
class Section:
    """A heading and what is below it, as HTML."""

    anchor: str
    heading: Text
    body: Sequence[str]


_FOOT = Text(
    "One file, no network: it can be mailed, filed and opened anywhere.",
    "通信を一切行わない単一のファイルです。メールでの送付も保管もそのままできます。",
)


def both(en: str, ja: str, tag: str = "span") -> str:
    """Two pieces of HTML, one for each language; once where they are the same."""
    return en if en == ja else f'<{tag} lang="en">{en}</{tag}><{tag} lang="ja">{ja}</{tag}>'


FORM = 'data-form="7"'
"""Marks pages of today's form. A page of another one is not made again by `verify`: only its hash is checked."""
FIGURE = ("rows", "codes", "ground", "surfaces", "insets", "charts", "bars", "map")
"""The files of the viewer that pages without a table leave out."""


def _script(figure: bool = True) -> str:
    """The viewer as one script, without lines that are comments alone and without indentation."""
    lines = "".join(
        _asset(f"viewer/{name}.js") for name in ("words", "core", *(FIGURE if figure else ()), "start")
    ).splitlines()
    bare = [line.strip() for line in lines]
    code = [
        line for line in bare if line and not line.startswith("//") and not (line[:2] == "/*" and line[-2:] == "*/")
    ]
    return '"use strict";\n' + "\n".join(code) + "\n"


@cache
def _asset(name: str) -> str:
    return (files("kasuri.report") / name).read_text(encoding="utf-8")


def page(
    title: Text,
    lead: Sequence[str],
    sections: Sequence[Section],
    *,
    view: Mapping[str, Any] | None = None,
    packed: Packed | None = None,
    below: Sequence[str] = (),
    language: str = "",
    secret: bool = False,
    paper: str = "",
) -> str:
    """The whole file. `view` and `packed` are what the viewer shows (see `viewer`, `pack`): the first section, with
    nothing but title and lead before it; `below` it are further words. `language` is the one the page opens in unless
    the reader's browser or the link asks for another; `secret` marks a page that rests on the original data, on top of
    it and on every figure; `paper` is a first page for those who print it."""
    data = ""
    if view is not None and packed is not None:
        about, text = packed
        told = json.dumps({**view, "secret": secret, "data": about}, ensure_ascii=False, sort_keys=True)
        told = told.replace("<", "\\u003c")  # no text in it can end the element
        data = (
            f'<script type="application/json" id="view">{told}</script>\n'
            f'<script type="text/plain" id="rows">{text}</script>\n'
        )
    script = _script(view is not None)
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = f"default-src 'none'; script-src 'sha256-{own}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    links = "".join(f'<li><a href="#{part.anchor}">{part.heading.html()}</a></li>' for part in sections)
    parts = [
        f'<section id="{part.anchor}" aria-labelledby="{part.anchor}-h"><h2 id="{part.anchor}-h">{part.heading.html()}'
        f"</h2>{''.join(part.body)}</section>\n"
        for part in sections
    ]
    shown = 0 if view is None else 1  # sections before the contents
    menu = f'<nav aria-label="Contents / 目次"><ul>{links}</ul></nav>'
    opens = (' class="shown"' if shown else "") + (f' data-opens="{escape(language)}"' if language else "")
    mark = f'<p class="secret" role="note">{both(*map(escape, CONFIDENTIAL))}</p>' if secret else ""
    return (
        f'<!doctype html>\n<html lang="en" {FORM}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title.en)}</title>\n<meta name="title-ja" content="{escape(title.ja)}">\n'
        f"<style>\n{_asset('page.css')}</style>\n</head>\n<body{opens}>\n{paper}"
        '<header><div class="bar"><span class="brand">kasuri <span lang="ja" class="always">絣</span></span>'
        '<div class="languages" role="group" aria-label="Language / 言語">'
        '<button type="button" data-language="en" aria-pressed="true">English</button>'
        '<button type="button" data-language="ja" aria-pressed="false" lang="ja" class="always">日本語</button>'
        f"</div></div>{mark}<h1>{title.html()}</h1>{''.join(lead)}"
        f"{'' if shown else menu}</header>\n"
        f"<main>\n{''.join(parts[:shown])}{''.join(below)}{menu if shown else ''}"
        f"{''.join(parts[shown:])}</main>\n"
        f"<footer>{_FOOT.html()}</footer>\n"
        f"{data}<script>{script}</script>\n</body>\n</html>\n"
    )


def viewer(mesh: bool) -> str:
    """The place the viewer fills: a map where there is one, else bars; both with a table of the largest."""
    fingers = Text("Drag to move, pinch to zoom.", "ドラッグで移動、ピンチで拡大・縮小。")
    keys = Text(
        " The wheel zooms with Ctrl, or after a click on the map (Esc ends it). "
        "Keyboard: arrows move the cursor (with Shift ten cells), + and - zoom, "
        "0 shows all, Page Up and Page Down change the level.",
        "ホイールは Ctrl を押しながら、または地図をクリックした後に拡大・縮小します（Esc で解除）。"
        "キーボード：矢印キーでカーソル移動（Shift で 10 セル）、+ と - で拡大・縮小、"
        "0 で全体、Page Up / Page Down で階層を切り替えます。",
    )
    missing = Text(
        "The map needs JavaScript; the tables below do not.",
        "地図の表示には JavaScript が必要です。以下の表は JavaScript なしで読めます。",
    )
    if mesh:
        stage = (
            '<div class="stage" id="stage"><canvas id="canvas" tabindex="0" role="application" aria-describedby="hint" '
            'aria-label="map"></canvas><div class="zoom"><button type="button" id="in">+</button>'
            '<button type="button" id="out">−</button><button type="button" id="all"><svg viewBox="0 0 16 16" '
            'aria-hidden="true"><path d="M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4"/></svg></button>'
            '<button type="button" id="full"><svg viewBox="0 0 16 16" aria-hidden="true">'
            '<path d="M9 7l5-5M10 2h4v4M7 9l-5 5M2 10v4h4"/></svg></button></div></div>'
            '<div class="panel"><p class="readout" id="readout" role="status" aria-live="polite"></p>'
            '<p class="advice" id="advice"></p>'
            '<div class="tools" id="tools"></div><div class="use" id="use"></div></div><div id="charts"></div>'
        )
        hint = f'{fingers.html()}<span class="keys">{keys.html()}</span>'
        stage = f'<div class="look">{stage}</div><div id="multiples"></div><p class="hint" id="hint">{hint}</p>'
    else:
        stage = (
            '<div class="tools" id="tools"></div><div id="charts"></div><div id="bars"></div>'
            '<div class="use" id="use"></div>'
        )
    return (
        f"<noscript><p>{missing.html()}</p></noscript>{stage}"
        '<details id="largest-box"><summary id="largest-title"></summary>'
        '<div class="scroll" tabindex="0" role="group" aria-labelledby="largest-title">'
        '<table id="largest"></table></div></details>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """A table of HTML cells; columns in `numbers` are set flush right."""
    kind = ["n" if i in numbers else "t" for i in range(len(head))]
    top = "".join(f'<th scope="col" class="{k}">{cell}</th>' for k, cell in zip(kind, head, strict=True))
    lines = "".join(
        "<tr>" + "".join(f'<td class="{k}">{cell}</td>' for k, cell in zip(kind, row, strict=True)) + "</tr>"
        for row in rows
    )
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="table / 表">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values, both HTML."""
    lines = "".join(f'<tr><th scope="row">{name}</th><td class="n">{value}</td></tr>' for name, value in rows)
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def tiles(rows: Iterable[tuple[str, str, str]]) -> str:
    """Large numbers: (name, value, words below), HTML."""
    return '<dl class="tiles">' + "".join(
        f'<div><dt>{name}</dt><dd><span class="big">{value}</span> <span class="small">{words}</span></dd></div>'
        for name, value, words in rows
    ) + "</dl>"  # fmt: skip


def note(text: Text) -> str:
    """A paragraph that stands out."""
    return f'<p class="note">{text.html()}</p>'


def small(text: str) -> str:
    """0.00000001 as a power of ten; other decimals as they are."""
    digits = text.removeprefix("0.").lstrip("0")
    if not text.startswith("0.000") or len(digits) != 1:
        return text
    power = "10⁻" + str(len(text) - 2).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if digits == "1" else f"{digits} × {power}"


def markdown(text: str) -> list[tuple[str, str]]:
    """The sections of a certificate as (heading, HTML): paragraphs, lists, tables, **bold** and `code`; all else is
    text. Reads what kasuri writes and trusts none of it."""
    out: list[tuple[str, str]] = []
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, body = part.partition("\n")
        out.append((heading.strip(), "".join(_block(block) for block in body.strip().split("\n\n"))))
    return out


def _block(block: str) -> str:
    lines = block.split("\n")
    if lines[0].startswith("- "):
        return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"
    if lines[0].startswith("|"):
        cells = [[_inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in lines]
        return table(cells[0], cells[2:], numbers=range(1, len(cells[0])))
    return f"<p>{_inline(block)}</p>"


def _inline(text: str) -> str:
    safe = escape(text, quote=False)
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
