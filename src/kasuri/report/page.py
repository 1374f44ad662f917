"""The report of a release: one HTML file from the release's own folder and nothing else.

*Privacy.* Reads the tables of the release, datapackage.json and the two certificates, so the page is a function of what
is published (post-processing); this package cannot import Counts (tests/architecture). Equal folders give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from kasuri.errors import FormatError, KasuriError
from kasuri.published import intervals
from kasuri.published.area import Area
from kasuri.published.protected import Described, Protected, files_of
from kasuri.report import answers, chart, compare, frame, levels, margins, promise, reliability, remarks, sums
from kasuri.report.frame import Section, Text
from kasuri.report.pack import Rows, pack
from kasuri.report.sheet import Sheet
from kasuri.report.view import Part, names, places
from kasuri.schema import ELSEWHERE, Domain
from kasuri.store import saved
from kasuri.words import japanese

REPORT = "report.html"
CONFIDENCE = 95
"""Of the columns lower and upper, in per cent."""
MOST_READ = 1 << 26
"""A table of more rows has no report: it is read whole to make one."""
_LONG = 200
"""Entries of a list in the manifest from which a page tells only their number."""
CERTIFICATES = ("certificate.md", "certificate.ja.md")


def build(folder: str | Path, manifest: Mapping[str, Any] | None = None, release: Described | None = None) -> str:
    """The report of the release in `folder`.

    `manifest` and `release` are given while a release is being written, before its file exists; both ways give the same
    bytes, since the page uses neither the manifest's digest nor what it says of the report itself, and `release` is the
    one whose tables are in the folder: what its measurements say was made once for the limits of its cells.
    """
    folder = Path(folder)
    about = read_manifest(folder) if manifest is None else manifest
    try:
        sheet = Sheet.read(folder, about)
        words = [frame.markdown(text_of(folder / name)) for name in CERTIFICATES]
        own = release if isinstance(release, Protected) else None
        ranges = ranges_of(folder, about, own)
        beyond, answered = elsewhere(folder, about, own), asked(folder, about, own)
        return compose(about, sheet, words, ranges=ranges, beyond=beyond, answered=answered)
    except KasuriError:
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError):
        raise FormatError(f"{folder}: its manifest or table is malformed; see: kasuri verify {folder}") from None


def ranges_of(folder: Path, about: Mapping[str, Any], release: Protected | None = None) -> dict[margins.Key, Rows]:
    """Sums and intervals of larger areas and of margins, from the published measurements."""
    if (about.get("intervals") or {}).get("level") is None:
        return {}
    return dict(margins.tables(release or saved.read(folder, about)))


def asked(folder: Path, about: Mapping[str, Any], release: Protected | None = None) -> list[str]:
    """What the table answers by itself, where it has an axis to be asked about."""
    if (about.get("intervals") or {}).get("level") is None:
        return []
    axes = Domain.from_json(about["domain"]).axes
    if not any(map(answers.has, axes)):
        return []
    return answers.section(release or saved.read(folder, about), CONFIDENCE)


def elsewhere(folder: Path, about: Mapping[str, Any], release: Protected | None = None) -> list[Text]:
    """What is said of records outside the places of a map: the number, and its interval."""
    domain = Domain.from_json(about["domain"])
    axes = [axis for axis in domain.axes if axis.mapped() != axis]
    if not axes:
        return []
    known = release or saved.read(folder, about)
    return [_beyond(axis.name, known) for axis in axes]


def _beyond(name: str, release: Protected) -> Text:
    area = Area.along(name, ELSEWHERE).on(release.domain)
    value, ends = release.sum_over(area), Text("", "")
    if intervals.missing(release) is None:
        found = intervals.interval(release, area, CONFIDENCE / 100)
        low, high = levels.number(found.lower), levels.number(found.upper)
        ends = Text(f" ({CONFIDENCE} % interval {low} to {high})", f"（{CONFIDENCE} % 信頼区間 {low}～{high}）")
    return Text(
        f"Elsewhere, at places outside those of {name}: {levels.number(value)}{ends.en}. This number is in the "
        "released total; the map and the areas below leave it out.",
        f"{name} の範囲外：{levels.number(value)}{ends.ja}。この数は公表値の合計に含まれますが、地図と以下の区域には"
        "含まれません。",
    )


def too_large(folder: Path) -> str | None:
    """Why the release in `folder` has no report: its table has too many rows to be read whole. None where it has."""
    from pyarrow import parquet

    names = files_of("release", (path.name for path in folder.iterdir()))
    rows = sum(parquet.read_metadata(folder / name).num_rows for name in names)
    return None if rows <= MOST_READ else f"none: the table has more than {MOST_READ} rows"


def says_the_same(folder: Path, manifest: Mapping[str, Any], *, rounding: float) -> bool | None:
    """Is the report in `folder` the one of its release? None where the page has another form than today's: an earlier
    version made it. Limits of larger areas may differ by `rounding`; by infinity where an earlier rule made them."""
    found = text_of(folder / REPORT)
    return compare.same(found, build(folder, manifest), rounding=rounding) if frame.FORM in found else None


def compose(
    about: Mapping[str, Any],
    sheet: Sheet,
    words: list[list[tuple[str, str]]],
    *,
    ranges: Mapping[margins.Key, Rows] | None = None,
    first: tuple[Section, ...] = (),
    beyond: Sequence[Text] = (),
    answered: Sequence[str] = (),
    secret: bool = False,
) -> str:
    """The page from its parts; `ranges` are the intervals of larger areas and margins; `beyond` says what no map shows;
    `answered` are questions with their answers, `first` are sections of an internal report, which `secret` marks."""
    privacy = about["privacy"]
    name = privacy["data"] or about["name"]
    packed, drawn = sheet.shown()
    kinds = levels.kinds(sheet, ranges or {})
    whole = drawn is sheet or drawn.domain != sheet.domain
    ranges = margins.shown_at(sheet.domain.axes, drawn.domain.axes, (ranges or {}) if whole else {})
    axes, parts, credit = places(drawn.domain.axes)
    parts += _ranges(axes, drawn, ranges)
    view = {
        "axes": axes,
        "mask": about["domain"]["mask"] if drawn.domain == sheet.domain else [],
        "unit": unit_of_sums(privacy["privacy_loss"]),
        "names": names(drawn.domain.axes),
        "confidence": CONFIDENCE,
        "parts": [{**what, "about": told} for what, told, _ in parts],
    }
    packed = packed[0], ".".join([packed[1], *(text for _, _, text in parts)])
    placed = any("globe" in axis for axis in axes)
    figure = [frame.viewer(placed)]
    notes = [*(frame.note(words) for words in beyond), *remarks.of(about, sheet, drawn, ranges, CONFIDENCE), *credit]
    heading = Text("The table", "統計表")
    if placed:
        plain = all(mesh.where() is None for mesh in sheet.meshes) and sheet.has_mesh
        heading = Text("The grid", "格子") if plain else Text("The map", "地図")
    error, certificate = _certificate(
        _spoken(words, sheet, privacy["expected_error"]),
        reliability.body(kinds, CONFIDENCE, secret=secret),
        _errors(privacy["expected_error"], secret),
    )
    sections = [
        Section("map", heading, figure),
        *first,
        error,
        Section(
            "promise",
            Text("What this means for your privacy", "プライバシーについて言えること"),
            promise.section(privacy, secret=secret),
        ),
        Section("levels", Text("The areas by size", "区域の大きさ別の集計"), [levels.totals(sheet)]),
        *([Section("answers", Text("Quartiles and ranks", "四分位数と順位"), answered)] if answered else []),
        certificate,
        Section("files", Text("Files and checksums", "ファイルとチェックサム"), _files(about)),
        Section("cite", Text("How to cite", "引用方法"), _cite(about, name)),
        Section("manifest", Text("The manifest", "マニフェスト"), [_manifest(about)]),
    ]
    said = about.get("about") or {}
    title, tiles = _title(about, sheet, name), _numbers(about, sheet, kinds)
    who = "".join(_credit(said, "publisher", "published", "source", "licence", "contact"))
    return frame.page(
        title,
        [*_credit(said, "publisher", "published"), tiles],
        sections,
        view=view,
        packed=packed,
        below=[
            *_credit(said, "source", "licence", "contact"),
            f'<div class="know"><div>{"".join(_words(about, sheet))}</div><div>{"".join(notes)}</div></div>',
        ],
        language=said.get("language", "").partition("-")[0],
        secret=secret,
        paper=promise.printed(about, title, who, tiles, secret=secret),
    )


def _ranges(axes: Sequence[Mapping[str, Any]], drawn: Sheet, ranges: Mapping[margins.Key, Rows]) -> Iterator[Part]:
    """The intervals of sums; areas and sums only where the rows of the page do not add up to them."""
    shown = drawn.rows if ranges else None
    for key, rows in ranges.items():
        told = sums.of(axes, shown, key) if shown is not None and shown.unit == 1 else None
        rows = sums.around(told, rows) if told is not None and drawn.grain else rows
        same = told is not None and rows.unit == 1 and sums.same(told, rows)
        yield {"what": "range", "key": list(key)}, *pack(rows, sums=same)


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


def unit_of_sums(loss: Mapping[str, Any]) -> str:
    """The unit where a sum over cells is a number of units; "" where one may be in it several times."""
    bound = loss["contribution_bound"]
    return loss["privacy_unit"] if bound["max_cells"] == 1 and bound["max_weight"] is None else ""


def _title(about: Mapping[str, Any], sheet: Sheet, name: str) -> Text:
    """The publisher's own, or a sentence that says what the page shows."""
    said = about.get("about") or {}
    own = [said.get(f"title_{language}", said.get("title")) for language in ("en", "ja")]
    made = _sentence(about, sheet, name)
    return Text(own[0] or made.en, own[1] or made.ja)


def _sentence(about: Mapping[str, Any], sheet: Sheet, name: str) -> Text:
    """What the page shows, where the publisher does not say it."""
    loss = about["privacy"]["privacy_loss"]
    bound, total = loss["contribution_bound"], levels.number(about["total"])
    counted = japanese.counted(loss["privacy_unit"], bound["max_cells"], bound["max_weight"])
    mesh = sheet.meshes[0] if sheet.meshes else None
    many = sheet.domain.size
    where = Text(f"{many:,} cell{'s' if many != 1 else ''}", f" {many:,} セル")
    if mesh is not None and mesh.level:
        where = levels.area_name(mesh.level, 1)
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
        f'<span class="item {name}">{words.html()}<bdi{language}>{escape(said[name])}</bdi></span>'
        for name, words in names.items()
        if name in wanted and name in said
    ]
    return [f'<p class="credit">{" ".join(parts)}</p>'] if parts else []


def _words(about: Mapping[str, Any], sheet: Sheet) -> list[str]:
    """What every reader should know, below the map."""
    unit = about["privacy"]["privacy_loss"]["privacy_unit"]
    spoken = Text(
        f"The numbers carry random noise that limits what can be learned from this table about any one {unit}. "
        "Relative to the counts the noise is small for large areas and large for small ones: read the error before a "
        "single cell.",
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


def _numbers(about: Mapping[str, Any], sheet: Sheet, sizes: Sequence[reliability.Kind]) -> str:
    """The four numbers that come first: how many, how well, how protected, and who."""
    loss = about["privacy"]["privacy_loss"]
    epsilon, delta = loss["privacy_parameters"]["epsilon"], loss["privacy_parameters"]["delta"]
    unit = loss["privacy_unit"]
    sure = promise.per_cent(promise.belief(float(epsilon)), up=True)
    guess = Text(f"50\u00a0% sure → {sure}\u00a0% at most", f"確信 50\u00a0% → 最大 {sure}\u00a0%")
    limit = "" if delta == "0" else f"δ {delta}; "
    total, size, empty = about["total"], sheet.domain.size, sheet.cells.size
    bound = loss["contribution_bound"]
    counted = Text(*japanese.counted(unit, bound["max_cells"], bound["max_weight"]))
    kinds = Text("Cells that are not 0", "0 でないセル"), Text(f"of {size:,}", f"全 {size:,} セル中")
    if len(sheet.domain.axes) == 1 and sheet.domain.axes[0].level_names and not sheet.has_mesh:
        kinds = Text("Places that are not 0", "0 でない地域"), Text(f"of {size:,}", f"全 {size:,} 地域中")
    return frame.tiles(
        [
            (Text("Released total", "公表値の合計").html(), levels.number(total), counted.html()),
            reliability.tile(sizes) or (kinds[0].html(), levels.number(empty), kinds[1].html()),
            (Text("Privacy loss", "プライバシー損失").html(), f"ε {escape(epsilon)}",
             escape(limit) + guess.html()),
            (Text("Protected", "保護の単位").html(), frame.both(f"one {escape(unit)}", escape(japanese.unit(unit))),
             _protected(about).html()),
        ]
    )  # fmt: skip


def _protected(about: Mapping[str, Any]) -> Text:
    """What may be different about the unit that is protected, and in how many cells."""
    most = about["privacy"]["privacy_loss"]["contribution_bound"]["max_cells"]
    change = {
        "add-remove": Text("in the data or not", "データにあるかないか"),
        "replace": Text("whatever its record says", "記録がどうであっても"),
    }[about["privacy"]["dp_variant"]["relation"]]
    many = Text("", "") if most == 1 else Text(f", in up to {most:,} cells", f"（最大 {most:,} セル）")
    return Text(change.en + many.en, change.ja + many.ja)


def _errors(error: Mapping[str, Any], secret: bool) -> str:
    found = error.get("after_refinement") or error["before_refinement"]
    blocks = [row for row in found or () if "cells" in row]
    return chart.errors(blocks, secret, refined=bool(error.get("after_refinement"))) if blocks else ""


def _spoken(words: list[list[tuple[str, str]]], sheet: Sheet, error: Mapping[str, Any]) -> list[list[tuple[str, str]]]:
    """The certificate's table of sums, whose names are those of recipes, in the words of readers."""
    views = {row["view"]: row["sums"] for row in error.get("after_refinement") or () if "view" in row}
    named = {view: levels.sums_of(sheet.domain.axes, view, many) for view, many in views.items()}
    out = []
    for language, sections in zip(("en", "ja"), words, strict=True):
        *rest, (heading, body) = sections
        for view, text in named.items():
            cell = '<td class="t">{}</td>'
            body = body.replace(cell.format(escape(view, quote=False)), cell.format(escape(getattr(text, language))))
        notes = [*([_ADVISED] if error.get("advised_smallest_area") else []), *([_AT_ONCE] if views else [])]
        out.append([*rest, (heading, body + "".join(f"<p>{escape(getattr(note, language))}</p>" for note in notes))])
    return out


_ADVISED = Text(
    "The advised smallest area is one whose expected error is at most a quarter of a typical value. “Good to use” asks "
    f"for more: that 95 % intervals of most areas reach no further than ± {reliability.GOOD} %.",
    "「利用を推奨する最小の区域」は、誤差の期待値が代表的な値の 4 分の 1 以下となる大きさです。"
    f"「利用可」の条件はより厳しく、過半の区域で 95 % 信頼区間が ± {reliability.GOOD} % 以内となることです。",
)


_AT_ONCE = Text(
    "These errors use all the noisy numbers together. The page computes thousands of intervals at once, some of them "
    "from fewer numbers: these are valid but wider than those of Release.load(folder).interval(...).",
    "この誤差は、雑音を加えたすべての数値を合わせて用いた場合のものです。ページの信頼区間は一度に数千個を計算するため、"
    "一部はより少ない数値から求めています。正しい区間ですが、"
    "Release.load(folder).interval(...) の区間より広いことがあります。",
)


def _certificate(words: list[list[tuple[str, str]]], after: list[str], curve: str) -> list[Section]:
    """The certificate's sections, word for word, in both languages: the error, as it is after refinement, and the rest
    folded, since the page says it in its own words before."""
    english, japanese = words
    told = [
        (Text(heading, heading_ja), frame.both(body, body_ja, "div"))
        for (heading, body), (heading_ja, body_ja) in zip(english, japanese, strict=True)
    ]
    *rest, (name, errors) = told[1:]  # the first names the release, as the title does
    more = Text("For statisticians: root mean square errors, and bias", "統計の専門家向け：二乗平均平方根誤差と偏り")
    folded = f'<details class="printed"><summary>{more.html()}</summary>{errors}{curve}</details>'
    said = [*after, folded] if after else [curve, errors]
    full = "".join(f"<h3>{heading.html()}</h3>{body}" for heading, body in rest)
    named = Text("What is promised, and how it was made, word for word", "保証の内容と作成方法（証明書の全文）")
    whole = f'<details class="printed"><summary>{named.html()}</summary>{full}</details>'
    return [Section("error", name, said), Section("certificate", Text("The certificate", "証明書"), [whole])]


def _files(about: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            f"<code>{escape(str(item['path']))}</code>",
            f'<code class="hash">{escape(str(item["hash"]).removeprefix("sha256:"))}</code>',
        )
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
    own, year = [said.get(f"title_{word}", said.get("title")) for word in ("en", "ja")], said.get("published", "")[:4]
    title = own[0] or own[1] or name
    names = [
        ", ".join(part for part in (said.get("publisher"), each, said.get("published")) if part) or name for each in own
    ]
    text = Text(
        f"{names[0]}, released with differential privacy (epsilon = {loss['epsilon']}, delta = {loss['delta']}), "
        f"release {about['id']}, made with {software}.",
        f"{names[1]}（差分プライバシーによる公表、epsilon = {loss['epsilon']}、delta = {loss['delta']}）、"
        f"公表番号 {about['id']}、{software} により作成。",
    )
    bibtex = (
        f"@misc{{kasuri-{about['id'][:8]},\n"
        + (f"  author = {{{{{said['publisher']}}}}},\n" if "publisher" in said else "")
        + f"  title = {{{title}}},\n"
        + (f"  year = {{{year}}},\n" if year else "")
        + f"  note = {{released with differential privacy, epsilon {loss['epsilon']}, delta {loss['delta']}, "
        f"release {about['id']}, {software}}}\n}}"
    )
    return [f"<p>{text.html()}</p>", f"<pre>{escape(bibtex)}</pre>"]


def _manifest(about: Mapping[str, Any]) -> str:
    """datapackage.json but for its own digest, this report, and long lists (impossible cells, labels)."""
    shown = {key: value for key, value in about.items() if key != "digest"}
    shown["resources"] = [item for item in about["resources"] if item["path"] != REPORT]
    masks = [{**mask, "runs": f"({len(mask['runs'])} runs)"} for mask in about["domain"]["mask"]]
    shown["domain"] = {**about["domain"], "mask": masks}
    text = json.dumps(_short(shown), indent=2, sort_keys=True, ensure_ascii=False)
    return f'<details><summary>datapackage.json</summary><pre tabindex="0">{escape(text)}</pre></details>'


def _short(value: Any) -> Any:
    """Plain data for people: of a long list (labels of an axis, outlines), how long it is; of a long text its start."""
    if isinstance(value, Mapping):
        return {key: _short(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_short(part) for part in value] if len(value) <= _LONG else f"({len(value)} entries)"
    return (
        f"{value[:_LONG]}... ({len(value)} characters)" if isinstance(value, str) and len(value) > 10 * _LONG else value
    )
