"""The report of a release: one HTML file from the release's own folder and nothing else.

*Privacy.* Reads the tables of the release, datapackage.json and the two certificates, so the page is a function of what
is published (post-processing); this package cannot import Counts (tests/architecture). Equal folders give equal bytes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import FormatError, KasuriError
from kasuri.published import intervals
from kasuri.published.protected import files_of
from kasuri.report import chart, frame
from kasuri.report.frame import Section, Text
from kasuri.report.pack import HUNDREDTHS, Rows, distances, pack, unpack, whole
from kasuri.report.sheet import Sheet, summed
from kasuri.schema import Axis
from kasuri.store import saved
from kasuri.words import japanese

REPORT = "report.html"
CONFIDENCE = 95
"""Of the columns lower and upper, in per cent."""
MOST_READ = 1 << 26
"""A table of more rows has no report: it is read whole to make one."""
MOST_AREAS = 60_000
"""A level of more areas has no intervals in the page."""
MOST_LABELS = 20_000
"""An axis with more labels is shown by number."""
CERTIFICATES = ("certificate.md", "certificate.ja.md")


def build(folder: str | Path, manifest: Mapping[str, Any] | None = None) -> str:
    """The report of the release in `folder`.

    `manifest` is given while a release is being written, before its file exists; both ways give the same bytes, since
    the page uses neither the manifest's digest nor what it says of the report itself.
    """
    folder = Path(folder)
    about = read_manifest(folder) if manifest is None else manifest
    try:
        sheet = Sheet.read(folder, about)
        words = [frame.markdown(text_of(folder / name)) for name in CERTIFICATES]
        return compose(about, sheet, words, ranges=ranges_of(folder, about, sheet))
    except KasuriError:
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError):
        raise FormatError(f"{folder}: its manifest or table is malformed; see: kasuri verify {folder}") from None


def ranges_of(folder: Path, about: Mapping[str, Any], sheet: Sheet) -> dict[int, Rows]:
    """Sums and intervals of the coarser levels, from the published measurements, by the number of the level."""
    if (about.get("intervals") or {}).get("level") is None or len(sheet.domain.axes) != 1 or not sheet.has_mesh:
        return {}
    release, out = saved.read(folder, about), {}
    for at, step in enumerate(sheet.meshes[0].levels):
        if at == 0 or sheet.cells.size > MOST_AREAS * step.side**2:
            continue
        found = intervals.by_step(release, step)
        if found is not None and found[0].size <= MOST_AREAS:
            areas, values, lower, upper = found
            unit = whole([values])
            below, above = distances(values, lower, upper, unit)
            columns = {"value": np.rint(values * unit).astype(np.int64), "below": below, "above": above}
            out[at] = Rows((areas,), columns, unit)
    return out


def too_large(folder: Path) -> str | None:
    """Why the release in `folder` has no report: its table has too many rows to be read whole. None where it has."""
    from pyarrow import parquet

    names = files_of("release", (path.name for path in folder.iterdir()))
    rows = sum(parquet.read_metadata(folder / name).num_rows for name in names)
    return None if rows <= MOST_READ else f"none: the table has more than {MOST_READ} rows"


def says_the_same(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Is the report in `folder` the one of its release? Bytes may differ where another zlib squeezed the rows; what
    they hold may not."""
    found, made = text_of(folder / REPORT), build(folder, manifest)
    if found == made:
        return True
    (head, packed, foot), (head_here, packed_here, foot_here) = _around(found), _around(made)
    if (head, foot) != (head_here, foot_here):
        return False
    view = json.loads(head.rpartition('id="view">')[2].partition("</script>")[0])
    told = [view["data"], *(about for _, about in view["ranges"])]
    try:
        pairs = [
            (unpack(about, one), unpack(about, other))
            for about, one, other in zip(told, packed.split("."), packed_here.split("."), strict=True)
        ]
    except (ValueError, KeyError, TypeError, zlib.error):
        return False
    return all(_alike(one, other, 0 if i == 0 else 1) for i, (one, other) in enumerate(pairs))


def _alike(one: Rows, other: Rows, rounding: int) -> bool:
    """Whether two tables are the same, but for `rounding` in limits, which are computed and not read."""
    return all(np.array_equal(a, b) for a, b in zip(one.index, other.index, strict=True)) and all(
        np.abs(one.columns[name] - other.columns[name]).max(initial=0)
        <= (rounding if name in ("below", "above") else 0)
        for name in one.columns
    )


def _around(text: str) -> tuple[str, str, str]:
    """The page before its packed rows, these, and what follows."""
    head, mark, rest = text.partition('id="rows">')
    packed, _, foot = rest.partition("</script>")
    return head + mark, packed, foot


def compose(
    about: Mapping[str, Any],
    sheet: Sheet,
    words: list[list[tuple[str, str]]],
    *,
    ranges: Mapping[int, Rows] | None = None,
    first: tuple[Section, ...] = (),
    secret: bool = False,
) -> str:
    """The page from its parts; `ranges` are the intervals of coarser levels; `first` are sections of an internal
    report, which `secret` marks."""
    privacy = about["privacy"]
    name = privacy["data"] or about["name"]
    packed, drawn = sheet.shown()
    levels = {at: pack(rows) for at, rows in (ranges or {}).items()} if drawn is sheet else {}
    view = {
        "axes": [view_axis(axis) for axis in drawn.domain.axes],
        "mask": about["domain"]["mask"] if drawn.domain == sheet.domain else [],
        "unit": unit_of_sums(privacy["privacy_loss"]),
        "confidence": CONFIDENCE,
        "ranges": [[at, told] for at, (told, _) in levels.items()],
    }
    packed = packed[0], ".".join([packed[1], *(text for _, text in levels.values())])
    figure = [frame.viewer(sheet.has_mesh), *_remarks(about, sheet, drawn, levels.keys())]
    heading = Text("The table", "統計表")
    if sheet.has_mesh:
        placed = any(mesh.level for mesh in sheet.meshes)
        heading = Text("The map", "地図") if placed else Text("The grid", "格子")
    sections = [
        Section("map", heading, figure),
        *first,
        Section("levels", Text("Totals by size of area", "区域の大きさ別の集計"), [_levels(sheet)]),
        *_certificate(words, _errors(privacy["expected_error"], secret)),
        Section("files", Text("Files and checksums", "ファイルとチェックサム"), _files(about)),
        Section("cite", Text("How to cite", "引用方法"), _cite(about, name)),
        Section("manifest", Text("The manifest", "マニフェスト"), [_manifest(about)]),
    ]
    said = about.get("about") or {}
    return frame.page(
        _title(about, sheet, name),
        [*_credit(said, "publisher", "published"), _numbers(about, sheet)],
        sections,
        view=view,
        packed=packed,
        below=[*_credit(said, "source", "licence", "contact"), *_words(about, sheet)],
        language=said.get("language", "").partition("-")[0],
        secret=secret,
    )


def view_axis(axis: Axis) -> dict[str, Any]:
    """One axis as the viewer wants it."""
    plane = axis.plane
    if plane is not None:
        levels = [{"name": step.name, "side": step.side, "offset": list(step.offset)} for step in plane.levels]
        rows, cols = plane.shape
        return {
            "kind": "mesh", "name": axis.name, "size": rows * cols, "rows": rows, "cols": cols,
            "level": plane.jis_level, "origin": list(plane.origin), "levels": levels, "labels": None,
        }  # fmt: skip
    labels = None if axis.sizes[0] > MOST_LABELS else axis.shown()
    return {"kind": axis.kind, "name": axis.name, "size": axis.sizes[0], "labels": labels}


def read_manifest(folder: Path) -> dict[str, Any]:
    """datapackage.json of a saved release."""
    try:
        about = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
        about["privacy"]["privacy_loss"], about["resources"], about["domain"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(f"{folder}: no saved release (datapackage.json is missing or malformed)") from None
    return about


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read ({type(error).__name__})") from None


def number(value: float) -> str:
    """A number with separators; two decimals where it is not whole."""
    return f"{value:,.0f}" if value == round(value) else f"{round(value * HUNDREDTHS) / HUNDREDTHS:,.2f}"


def unit_of_sums(loss: Mapping[str, Any]) -> str:
    """The unit where a sum over cells is a number of units; "" where one may be in it several times."""
    bound = loss["contribution_bound"]
    return loss["privacy_unit"] if bound["max_cells"] == 1 and bound["max_weight"] is None else ""


def _title(about: Mapping[str, Any], sheet: Sheet, name: str) -> Text:
    """The publisher's own, or a sentence that says what the page shows."""
    said = about.get("about") or {}
    if "title" in said:
        return Text(said["title"], said["title"])
    loss = about["privacy"]["privacy_loss"]
    bound, total = loss["contribution_bound"], number(about["total"])
    counted = japanese.counted(loss["privacy_unit"], bound["max_cells"], bound["max_weight"])
    mesh = sheet.meshes[0] if sheet.meshes else None
    where = Text(f"{sheet.domain.size:,} cells", f"{sheet.domain.size:,} セル")
    if mesh is not None and mesh.level:
        where = area_name(mesh.level, 1)
    return Text(
        f"{name} shows {total} {counted[0]} in {where.en}; random noise protects each {loss['privacy_unit']}.",
        f"{name}：{total} {counted[1]}を{where.ja}で示します。"
        f"雑音により{japanese.unit(loss['privacy_unit'])}を保護しています。",
    )


def _credit(said: Mapping[str, str], *wanted: str) -> list[str]:
    """Those of the words `wanted` that its publisher says: who publishes it, when, from what source, and what others
    may do with it."""
    names = {
        "publisher": Text("Published by ", "公表者："),
        "published": Text("on ", "公表日：") if "publisher" in said else Text("Published on ", "公表日："),
        "source": Text("Source: ", "出典："),
        "licence": Text("Licence: ", "利用条件："),
        "contact": Text("Contact: ", "連絡先："),
    }
    language = f' lang="{escape(said["language"])}" class="always"' if "language" in said else ""
    parts = [
        f'<span class="item">{words.html()}<span{language}>{escape(said[name])}</span></span>'
        for name, words in names.items()
        if name in wanted and name in said
    ]
    return [f'<p class="credit">{" ".join(parts)}</p>'] if parts else []


def _words(about: Mapping[str, Any], sheet: Sheet) -> list[str]:
    """What every reader should know, below the map."""
    unit = about["privacy"]["privacy_loss"]["privacy_unit"]
    spoken = Text(
        f"The numbers carry random noise that limits what this table can tell about any one {unit}. Relative to the "
        "counts the noise is small for large areas and large for small ones: read the error before a single cell.",
        f"数値には確率的な雑音が加えられており、どの{japanese.unit(unit)}についても、この表から知りうることが限られています。"
        "件数に対する雑音の割合は広い区域では小さく、狭い区域では大きくなります。"
        "個々のセルを読む前に誤差の目安をご覧ください。",
    )
    where = Text("where nobody was counted", "誰も数えられていない所")
    if sheet.has_mesh:
        where = Text("in the sea, on mountains and in other empty places", "海や山など人のいない場所")
    noise = Text(
        f"Small numbers may be shown {where.en}, because noise is added to every cell that is not declared impossible, "
        "and nothing is taken back by looking at the data. A cell is not exactly what was counted but that number "
        "changed by noise, so two cells that differ by little may be equal in truth.",
        f"{where.ja}にも小さな数が示されることがあります。雑音は、ありえないと宣言したセルを除くすべてのセルに加えられ、"
        "元データを見て取り除くことはしないためです。"
        "セルの値は数えたままの値ではなく、雑音で変えられています。わずかな差は、実際には差がない場合もあります。",
    )
    return [f'<p class="lead">{spoken.html()}</p>', f'<p id="why">{noise.html()}</p>']


def _numbers(about: Mapping[str, Any], sheet: Sheet) -> str:
    """The four numbers that come first."""
    loss = about["privacy"]["privacy_loss"]
    epsilon, delta = loss["privacy_parameters"]["epsilon"], loss["privacy_parameters"]["delta"]
    unit = loss["privacy_unit"]
    limit = "" if delta == "0" else f"δ {delta}; "
    total, size, empty = about["total"], sheet.domain.size, sheet.cells.size
    bound = loss["contribution_bound"]
    counted = Text(*japanese.counted(unit, bound["max_cells"], bound["max_weight"]))
    return frame.tiles(
        [
            (Text("Released total", "公表値の合計").html(), number(total), counted.html()),
            (Text("Cells that are not 0", "0 でないセル").html(), number(empty),
             Text(f"of {size:,}", f"全 {size:,} セル中").html()),
            (Text("Privacy loss", "プライバシー損失").html(), f"ε {escape(epsilon)}",
             escape(limit) + Text("smaller is safer", "小さいほど安全").html()),
            (Text("Protected", "保護の単位").html(), frame.both(escape(unit), escape(japanese.unit(unit))),
             frame.both(escape(loss["privacy_unit_description"]), _relation_ja(about))),
        ]
    )  # fmt: skip


def _relation_ja(about: Mapping[str, Any]) -> str:
    most = about["privacy"]["privacy_loss"]["contribution_bound"]["max_cells"]
    change = {"add-remove": "データに加わる・抜ける場合", "replace": "記録の内容が変わる場合"}
    return f"最大 {most} セル、{change[about['privacy']['dp_variant']['relation']]}"


def _remarks(about: Mapping[str, Any], sheet: Sheet, drawn: Sheet, levels: Collection[int]) -> list[str]:
    out = []
    if drawn.domain != sheet.domain:
        was, now = next(pair for pair in zip(sheet.meshes, drawn.meshes, strict=True) if pair[0] != pair[1])
        side = -(-max(was.shape) // max(now.shape))
        coarse = now.level or f"{side} x {side}"
        out.append(
            frame.note(
                Text(
                    f"The released table is too large for one page: the map shows its sums at {coarse}. Every cell is "
                    "in release.parquet.",
                    f"公表した表は一つのページに収まらないため、地図は {coarse} に集計した値を示します。"
                    "すべてのセルの値は release.parquet にあります。",
                )
            )
        )
    elif drawn is not sheet:
        out.append(
            frame.note(
                Text(
                    f"The released table is too large for one page: its {drawn.cells.size:,} largest values are shown, "
                    "the others as 0. Every cell is in release.parquet.",
                    f"公表した表は一つのページに収まらないため、絶対値の大きい {drawn.cells.size:,} 件のみを示し、"
                    "ほかは 0 として表示します。すべてのセルの値は release.parquet にあります。",
                )
            )
        )
    return [*out, *([frame.note(_bars(sheet, about.get("intervals") or {}, levels))] if sheet.cells.size else [])]


def _bars(sheet: Sheet, told: Mapping[str, Any], levels: Collection[int]) -> Text:
    """Which values have an interval and which have none, and why: from what the release says of its own recipe."""
    if not sheet.has_intervals:
        why = str(told.get("why") or "the release does not say")
        return Text(
            f"No value on this page has an interval (the columns lower and upper are empty): {why}. The expected error "
            "below says how far a value may be off.",
            f"このページの値には信頼区間がありません（lower 列と upper 列は空です）。理由：{japanese.ja(why)}。"
            "値のずれの目安は下の「誤差の目安」をご覧ください。",
        )
    without = int((~np.isfinite(sheet.lower)).sum())
    some = Text("", "") if not without else Text(
        f" {without:,} of them have none: their columns lower and upper are empty.",
        f"そのうち {without:,} 個には信頼区間がありません（lower 列と upper 列が空です）。",
    )  # fmt: skip
    also = Text("", "")
    if levels:
        named = [area_name(step.name if sheet.meshes[0].level else None, step.side)
                 for at, step in enumerate(sheet.meshes[0].levels) if at in levels]  # fmt: skip
        also = Text(
            " and with " + ", ".join(name.en for name in named), "と" + "、".join(name.ja for name in named) + "の区域"
        )
    return Text(
        f"{CONFIDENCE} % intervals are shown with the {sheet.cells.size:,} listed cells, one by one{also.en}.{some.en} "
        "The page shows none for cells that are not listed (released as 0), nor for other sums, since intervals do not "
        "add up: Release.load(folder).interval(...) computes the right one for any area, empty cells "
        "included.",
        f"{CONFIDENCE} % 信頼区間は、掲載した {sheet.cells.size:,} 個のセル{also.ja}のそれぞれに付いています。{some.ja}"
        "掲載のないセル（0 として公表）や、そのほかの合計には表示しません。"
        "信頼区間は足し合わせられないためです。"
        "Release.load(folder).interval(...) により、空のセルを含む任意の区域の信頼区間を計算できます。",
    )


def _levels(sheet: Sheet) -> str:
    """Per level of the first mesh: areas that are not 0, the total, the median and the largest."""
    mesh = sheet.meshes[0] if sheet.meshes else None
    head = [
        Text("area", "区域").html(),
        Text("areas that are not 0", "0 でない区域数").html(),
        Text("total", "合計").html(),
        Text("median of these", "その中央値").html(),
        Text("largest", "最大値").html(),
    ]
    lines = []
    if mesh is None:
        lines.append([Text("one cell", "1 セル").html(), *_four(sheet.values)])
    else:
        index = sheet.domain.unravel(sheet.cells)
        row, col = (index[place] for place in sheet.domain.positions(mesh.name))
        values: Any = sheet.values
        for step in mesh.levels:
            side, (above, beside) = step.side, step.offset
            width = (mesh.shape[1] - 1 + beside) // side + 1
            high = (mesh.shape[0] - 1 + above) // side + 1
            _, (sums,) = summed((row + above) // side * width + (col + beside) // side, [values], width * high)
            lines.append([area_name(step.name if mesh.level else None, side).html(), *_four(sums)])
    return frame.table(head, lines, numbers=range(1, 5))


def area_name(level: str | None, side: int) -> Text:
    """What an area of one size is called: by its mesh level, or by the cells to its side."""
    if level is None:
        return Text(f"{side} x {side} cells", f"{side} × {side} セル")
    spaced = re.sub("(k?m)$", r" \1", level)
    return Text(f"{spaced} cells", f"{level}メッシュ")


def _four(values: NDArray[Any]) -> list[str]:
    if values.size == 0:
        return ["0", "0", "–", "–"]
    return [
        f"{values.size:,}",
        number(values.sum()),
        f"{np.median(values):,.1f}".removesuffix(".0"),
        number(values.max()),
    ]


def _errors(error: Mapping[str, Any], secret: bool) -> str:
    found = error["before_refinement"]
    return "" if found is None else chart.errors(found, secret)


def _certificate(words: list[list[tuple[str, str]]], curve: str) -> list[Section]:
    """The certificate's sections, word for word, in both languages: the error first, with its chart."""
    english, japanese = words
    out = []
    for (heading, body), (heading_ja, body_ja) in zip(english, japanese, strict=True):
        anchor = "c-" + re.sub("[^a-z0-9]+", "-", heading.lower())
        out.append(Section(anchor, Text(heading, heading_ja), [frame.both(body, body_ja, "div")]))
    *rest, last = out[1:]  # the first names the release, as the title does
    return [replace(last, anchor="error", body=[curve, *last.body]), *rest]


def _files(about: Mapping[str, Any]) -> list[str]:
    rows = [
        (f"<code>{escape(str(item['path']))}</code>", f"<code>{escape(str(item['hash']))}</code>")
        for item in about["resources"]
        if item["path"] != REPORT
    ]
    check = Text(
        "To check the folder this report came with, every file and the signature of its publisher:",
        "この報告書が入っていたフォルダーの全ファイルと公表者の署名を確かめるには：",
    )
    return [
        frame.table([Text("file", "ファイル").html(), "SHA-256"], rows),
        f"<p>{check.html()}</p><pre>kasuri verify FOLDER --key PUBLISHER.key.pub</pre>",
    ]


def _cite(about: Mapping[str, Any], name: str) -> list[str]:
    loss = about["privacy"]["privacy_loss"]["privacy_parameters"]
    software = about["privacy"]["implementation"]["software"]
    said = about.get("about") or {}
    name = ", ".join(said[part] for part in ("publisher", "title", "published") if part in said) or name
    text = Text(
        f"{name}, released with differential privacy (epsilon = {loss['epsilon']}, delta = {loss['delta']}), "
        f"release {about['id']}, made with {software}.",
        f"{name}（差分プライバシーによる公表、epsilon = {loss['epsilon']}、delta = {loss['delta']}）、"
        f"公表番号 {about['id']}、{software} により作成。",
    )
    bibtex = (
        f"@misc{{kasuri-{about['id'][:8]},\n  title = {{{name}}},\n"
        f"  note = {{released with differential privacy, epsilon {loss['epsilon']}, delta {loss['delta']}, "
        f"release {about['id']}, {software}}}\n}}"
    )
    return [f"<p>{text.html()}</p>", f"<pre>{escape(bibtex)}</pre>"]


def _manifest(about: Mapping[str, Any]) -> str:
    """datapackage.json but for its own digest, this report, and the long list of impossible cells."""
    shown = {key: value for key, value in about.items() if key != "digest"}
    shown["resources"] = [item for item in about["resources"] if item["path"] != REPORT]
    masks = [{**mask, "runs": f"({len(mask['runs'])} runs)"} for mask in about["domain"]["mask"]]
    shown["domain"] = {**about["domain"], "mask": masks}
    text = json.dumps(shown, indent=2, sort_keys=True, ensure_ascii=False)
    return f"<details><summary>datapackage.json</summary><pre>{escape(text)}</pre></details>"
