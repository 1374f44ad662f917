"""What every reproduction hands over: lines (what a paper prints, what is measured here) and pictures; and the two
pages made of them, docs/papers.md and one HTML file in two languages.

Both pages are functions of the results alone, so that they cannot say what was not measured.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from kasuri.report import frame
from kasuri.report.frame import Section, Text


@dataclass(frozen=True)
class Line:
    """One thing a paper has (a system, algorithm, claim, table or figure) and where it is here.

    `where` is a module, a page or a test; `command` shows it; `note` is the erratum where the values differ.
    """

    place: str
    what: Text
    where: str
    command: str
    printed: str | Text
    measured: str | Text
    note: Text | None = None


@dataclass(frozen=True)
class Picture:
    """A figure of the paper, drawn again: `draw` writes a PNG."""

    name: str
    caption: Text
    draw: Callable[[Path], None]


@dataclass(frozen=True)
class Chapter:
    """One paper on the page: its anchor, title, how often each setting was run, lines, pictures, and the text of its
    tables."""

    anchor: str
    title: Text
    runs: Text
    lines: Sequence[Line]
    pictures: Sequence[Picture] = ()
    text: str = ""


def runs_told(runs: int, full: int, more: Text | None = None) -> Text:
    """How often each setting was run, and whether that is what `--full` does; `more` names what was run otherwise."""
    more = more or Text("", "")
    if runs < full:
        return Text(
            f"From a quick run: {runs} runs a setting; --full takes {full}.{more.en}",
            f"簡易実行：各設定 {runs} 回（--full では {full} 回）。{more.ja}",
        )
    return Text(
        f"From a full run: {runs} runs a setting, no fewer than in the paper.{more.en}",
        f"完全実行：各設定 {runs} 回（文献の回数以上）。{more.ja}",
    )


def sheet(wide: float, high: float, rows: int = 1, columns: int = 1, **how: Any) -> tuple[Any, list[Any]]:
    """A figure without a window and its axes, row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide, high), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **how).ravel().tolist()


def save(figure: Any, path: Path) -> None:
    """The figure as PNG."""
    figure.savefig(path, dpi=110)


def draw(chapters: Sequence[Chapter], folder: Path) -> list[Path]:
    """Every picture into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for chapter in chapters:
        for picture in chapter.pictures:
            out.append(folder / f"{picture.name}.png")
            picture.draw(out[-1])
    return out


def markdown(chapters: Sequence[Chapter]) -> str:
    """docs/papers.md."""
    out = [
        "# The papers, line by line",
        "",
        "Every system, algorithm, claim, table and figure of the five papers: where it is, the command that shows it, "
        "what is printed and what is measured. Generated from the reproductions: `kasuri reproduce all --figures DIR` "
        "writes this page, the results it rests on (`papers.json`), every figure, and one HTML page of all of them. "
        "Errata in full: [references](references.md).",
    ]
    for chapter in chapters:
        out += ["", f"## {chapter.title.en}", "", chapter.runs.en, ""]
        out += ["| place | what | where | command | printed | measured | erratum, remark |", "| --- " * 7 + "|"]
        for line in chapter.lines:
            cells = (
                line.place,
                line.what.en,
                f"`{line.where}`",
                f"`{line.command}`",
                _plain(line.printed),
                _plain(line.measured),
                "no erratum" if line.note is None else line.note.en,
            )
            out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(out) + "\n"


def _plain(value: str | Text) -> str:
    return value if isinstance(value, str) else value.en


def _html(value: str | Text) -> str:
    return escape(value) if isinstance(value, str) else value.html()


def page(chapters: Sequence[Chapter], folder: Path) -> str:
    """One HTML file of all lines and of the pictures that `draw` put into the folder."""
    lead = Text(
        "Every table and figure of the five papers on which kasuri is built, measured again, beside the printed value. "
        "Where they differ the erratum says why. The data are public or made up, and the noise is seeded so that a "
        "second run gives the same numbers; times are CPU seconds of one machine.",
        "kasuri の基礎である 5 つの文献のすべての表と図を測り直し、掲載値と並べました。異なる箇所には正誤を付します。"
        "データは公開または人工のもので、雑音は再現できるよう種を固定しています。時間はある計算機での CPU 秒です。",
    )
    head = (
        Text("Place", "箇所").html(),
        Text("What", "内容").html(),
        Text("Printed", "掲載値").html(),
        Text("Measured", "測定値").html(),
        Text("Erratum, remark", "正誤・注記").html(),
        Text("Where it is; command", "実装；コマンド").html(),
    )
    sections = [
        Section(
            chapter.anchor,
            chapter.title,
            [
                f"<p>{chapter.runs.html()}</p>",
                *(_figure(picture, folder) for picture in chapter.pictures),
                frame.table(head, [_row(line) for line in chapter.lines]),
                f"<details><summary>{Text('Tables as printed by the command', 'コマンドが出力する表').html()}</summary>"
                f'<div class="scroll" tabindex="0"><pre>{escape(chapter.text)}</pre></div></details>'
                if chapter.text
                else "",
            ],
        )
        for chapter in chapters
    ]
    title = Text("The papers, measured again", "文献の再現")
    return frame.page(title, [f'<p class="lead">{lead.html()}</p>'], sections)


def _row(line: Line) -> tuple[str, ...]:
    note = Text("no erratum", "正誤なし") if line.note is None else line.note
    where = f"<code>{escape(line.where)}</code><br><code>{escape(line.command)}</code>"
    return (escape(line.place), line.what.html(), _html(line.printed), _html(line.measured), note.html(), where)


def _figure(picture: Picture, folder: Path) -> str:
    data = base64.b64encode((folder / f"{picture.name}.png").read_bytes()).decode()
    alt = escape(f"{picture.caption.en} / {picture.caption.ja}")
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{alt}" style="max-width:100%">'
        f"<figcaption>{picture.caption.html()}</figcaption></figure>"
    )


def numbers(values: Sequence[float], places: int) -> str:
    """A row of numbers for one cell."""
    return " / ".join(f"{value:,.{places}f}" for value in values)


def pairs(values: Mapping[str, float], places: int) -> str:
    """Named numbers for one cell."""
    return ", ".join(f"{name} {value:,.{places}f}" for name, value in values.items())
