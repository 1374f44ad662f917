"""The report of two organisations' joined table, in the frame all reports share. Plain data in.

Everything on the page follows from the joined rows, which are what is published, and from synthetic rows made of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kasuri.report import frame, promise
from kasuri.report.frame import Section, Text, small
from kasuri.words.japanese import ja, name

_REACH = 1.959963984540054
"""Standard errors from the middle of a 95 % interval to its end."""
_MATRIX = 24
"""Most columns of the coloured table of correlations."""
_PAIRS = 120
"""Most rows of the table of pairs; those learned best come first."""

_SIDE = {"a": Text("organisation a", "組織 a"), "b": Text("organisation b", "組織 b")}
_MECHANISM = {
    "coin": Text("two-point with a coin for squares", "二点回答（硬貨で値か二乗かを選ぶ）"),
    "two_point": Text("two-point", "二点回答"),
    "piecewise": Text("piecewise", "区分一様（piecewise）"),
    "hybrid": Text("hybrid", "混合（hybrid）"),
    "laplace": Text("Laplace", "ラプラス"),
    "grr": Text("k-ary randomised response", "k 値ランダム化回答"),
    "one_hot": Text("one-hot (unary) response", "one-hot ランダム化回答"),
}


def join_page(about: Mapping[str, Any]) -> str:
    """The report on `shuffle.summary(...)`: what was estimated of a join, and what is promised."""
    claims, moments = about["claims"], about["moments"]
    public, n = claims["public"], claims["n"]
    lead = Text(
        f"Two organisations joined what they know of the same {n:,} people. Every value was randomised before it left "
        "its organisation; the joined rows carry neither name nor pseudonym and are in random order. The numbers are "
        "estimates from noisy reports: read them with their intervals.",
        f"二つの組織が、共通する {n:,} 人について持つデータを結合しました。どの値も組織の外に出る前に確率的に変えられ、"
        "結合した行には氏名も仮名もなく、並び順も無作為です。数値は雑音を含む報告からの推定値です。"
        "信頼区間とあわせてお読みください。",
    )
    joiner = claims["joiner"]
    tiles = [
        (Text("People in both tables", "両方の表にある人").html(), f"{n:,}", Text("joined rows", "結合した行").html()),
        (Text("Privacy loss to the public", "一般公開に対するプライバシー損失").html(),
         f"ε {escape(public['epsilon'])}",
         Text(f"δ {small(public['delta'])}; smaller is safer", f"δ {small(public['delta'])}、小さいほど安全").html()),
        (Text("Privacy loss to whoever joins", "結合する者に対するプライバシー損失").html(),
         Text("trusted", "信頼する第三者").html() if joiner is None else _loss(joiner),
         escape(str(about["plan"]["trusted_joiner"])) if joiner is None
         else Text("no gain from shuffling", "シャッフルの効果なし").html()),
        (Text("Columns", "列").html(), f"{len(about['plan']['a'])} + {len(about['plan']['b'])}",
         Text("of organisation a and b", "組織 a と組織 b").html()),
    ]  # fmt: skip
    sections = [
        Section("means", Text("Means and shares", "平均と割合"), _means(about)),
        Section("pairs", Text("How the columns go together", "列どうしの関係"), _together(about)),
        *_tables(about["contingency"]),
        *_models(about["models"]),
        *_synthetic(about),
        Section(
            "promise",
            Text("What is promised", "保証の内容"),
            [*promise.told(public["epsilon"], public["delta"], "person", "replace"), *_promise(about)],
        ),
        Section("rests", Text("What it rests on", "前提"), _rests(public, claims["not_protected"])),
        Section("plan", Text("The plan both sides agreed on", "両組織が合意した計画"), _plan(about)),
        Section("cite", Text("How to cite", "引用方法"), [_cite(about)]),
    ]
    notes = [frame.note(Text(note, ja(note))) for note in moments["notes"]]
    title = Text(f"What two organisations know of the same {n:,} people, joined without names",
                 f"二つの組織が持つ {n:,} 人のデータを、氏名なしで結合した統計")  # fmt: skip
    return frame.page(title, [f'<p class="lead">{lead.html()}</p>', frame.tiles(tiles), *notes], sections)


def _loss(claim: Mapping[str, Any]) -> str:
    delta = claim["delta"]
    return f"ε {escape(claim['epsilon'])}" + ("" if delta == "0" else f", δ {escape(small(delta))}")


def _factor(epsilon: str, language: str = "en") -> str:
    """e^epsilon and what that is, rounded up."""
    value = math.exp(float(epsilon)) if float(epsilon) < 700 else math.inf
    digits = 10.0 ** (math.floor(math.log10(value)) - 2) if math.isfinite(value) else 1.0
    shown = (
        f"{math.ceil(value / digits) * digits:,.4g}" if value < 1e4 else f"{math.ceil(value / digits) * digits:,.0f}"
    )
    if value >= 1e12:
        return f"e^{epsilon}"
    return f"e^{epsilon} (about {shown})" if language == "en" else f"e^{epsilon}（約 {shown}）"


# ---- numbers ----


def near(value: float | None, error: float | None) -> str:
    """A number with the decimals its standard error justifies: two digits of the error."""
    if value is None:
        return "–"
    places = 4 if not error else min(9, max(0, 1 - math.floor(math.log10(error))))
    text = f"{value:,.{places}f}"
    return text.replace("-", "−" if float(text.replace(",", "")) else "")


def _ends(value: float, error: float) -> tuple[float, float]:
    return value - _REACH * error, value + _REACH * error


def _interval(value: float | None, error: float | None) -> str:
    if value is None or error is None:
        return "–"
    low, high = _ends(value, error)
    return Text(f"{near(low, error)} to {near(high, error)}", f"{near(low, error)}〜{near(high, error)}").html()


def _far(other: float, value: float, error: float) -> str:
    """A word where a second number lies outside the interval of the first."""
    low, high = _ends(value, error)
    text = Text("outside the interval", "信頼区間の外")
    return "" if low <= other <= high else f'<span class="ends">{text.html()}</span>'


def _strip(low: float, high: float, value: float, error: float, other: float | None = None) -> str:
    """A line from `low` to `high` with an estimate and its 95 % interval on it; `other` is a second mark."""

    def x(at: float) -> float:
        return round(100 * min(max((at - low) / (high - low), 0.0), 1.0), 2)

    first, last = (x(end) for end in _ends(value, error))
    mark = "" if other is None else f'<rect class="other" x="{x(other) - 0.5:g}" y="0" width="1" height="20"/>'
    return (
        '<svg class="strip" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" x="0" y="9" width="100" height="2"/>'
        f'<rect class="reach" x="{first:g}" y="6" width="{max(last - first, 0.6):g}" height="8"/>'
        f'<rect class="here" x="{x(value) - 0.4:g}" y="2" width="0.8" height="16"/>{mark}</svg>'
    )


def _levels(plan: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, str | None]]:
    """(column, side, label or None) of everything estimated, in the order of the moments."""
    for side in ("a", "b"):
        for column in plan[side]:
            for label in column.get("labels", [None]):
                yield column, side, label


def _named(column: Mapping[str, Any], label: str | None) -> str:
    return _called(column["name"]) + ("" if label is None else escape(f": {label}"))


def _called(column: str) -> str:
    return Text(column, name(column)).html()


# ---- means, pairs, tables ----


def _means(about: Mapping[str, Any]) -> list[str]:
    moments, synthetic = about["moments"], about["synthetic"]
    made = None if synthetic is None else synthetic["quality"]["means"]
    rows = []
    for i, (column, side, label) in enumerate(_levels(about["plan"])):
        factor, unit = (1.0, "") if label is None else (100.0, " %")
        low, high = (float(end) for end in column.get("bounds", ("0", "1")))
        mean, error = moments["mean"][i] * factor, moments["mean_error"][i] * factor
        other = None if made is None else made[i] * factor
        strip = _strip(low * factor, high * factor, mean, error, other)
        ends = Text(f"{low:,g} to {high:,g}", f"{low:,g}〜{high:,g}").html() if label is None else ""
        rows.append(
            [
                f'{_named(column, label)}<span class="ends">{_SIDE[side].html()}</span>',
                strip + (f'<span class="ends">{ends}</span>' if ends else ""),
                f"{near(mean, error)} ± {near(error, error)}{unit}", _interval(mean, error),
                *([] if other is None else [near(other, error) + unit + _far(other, mean, error)]),
            ]
        )  # fmt: skip
    head = [
        Text("column", "列"), Text("in its bounds", "範囲の中の位置"),
        Text("mean or share ± standard error", "平均・割合 ± 標準誤差"), Text("95 % interval", "95 % 信頼区間"),
    ]  # fmt: skip
    words = Text(
        "The dark mark is the estimate, the band its 95 % interval, the line the public bounds (shares: 0 to 100 %).",
        "濃い印が推定値、帯が 95 % 信頼区間、線が公開されている値の範囲（割合は 0〜100 %）です。",
    )
    more = Text("The orange mark is the mean of the synthetic rows.", "橙色の印は合成データの平均です。")
    if made is not None:
        head.append(Text("synthetic rows", "合成データ"))
    told = f"<p>{words.html()}{' ' + more.html() if made is not None else ''}</p>"
    return [told, frame.table([part.html() for part in head], rows, numbers=range(2, len(head)))]


def _shown(plan: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any], str, str | None]]:
    """Numbers and labels without mirrors: of two labels the second says all."""
    out = []
    for i, (column, side, label) in enumerate(_levels(plan)):
        if label is None or len(column["labels"]) > 2 or label == column["labels"][1]:
            out.append((i, column, side, label))
    return out


def _together(about: Mapping[str, Any]) -> list[str]:
    moments, shown = about["moments"], _shown(about["plan"])
    words = Text(
        "Correlations, shrunk towards 0 by their noise. Orange: they rise together; blue: one falls as the other "
        "rises. A grey “?” is an estimate not larger than two of its standard errors: nothing was learned there. “–”: "
        "labels of one column, or not to be told from these reports.",
        "相関係数です（雑音の大きさに応じて 0 に近づけてあります）。橙色は一方が大きいほど他方も大きい関係、"
        "青色はその逆を表します。灰色の「?」は推定値が標準誤差の 2 倍を超えないもので、何も分かったとは言えません。"
        "「–」は同じ列の区分どうし、またはこの報告からは推定できないものです。",
    )
    out = [f"<p>{words.html()}</p>", _matrix(moments, shown[:_MATRIX])]
    if len(shown) > _MATRIX:
        left = len(shown) - _MATRIX
        more = Text(f"{left} more columns are in the table below.", f"ほか {left} 列は下の表にあります。")
        out.append(f"<p>{more.html()}</p>")
    pairs = _pairs(moments, shown)
    head = [
        Text("pair", "組"), Text("covariance", "共分散"), Text("standard error", "標準誤差"),
        Text("95 % interval", "95 % 信頼区間"), Text("correlation", "相関係数"), Text("standard error", "標準誤差"),
        Text("covariance above two errors", "共分散が誤差の 2 倍を超えるか"),
    ]  # fmt: skip
    out.append(frame.table([part.html() for part in head], [row for _, row in pairs[:_PAIRS]], numbers=range(1, 6)))
    if len(pairs) > _PAIRS:
        rest = len(pairs) - _PAIRS
        out.append(f"<p>{Text(f'and {rest:,} more pairs', f'ほか {rest:,} 組').html()}</p>")
    note = Text(
        "Standard errors count the noise of the randomisation and that people differ: the intervals are for the "
        "population these people are a sample of.",
        "標準誤差には、ランダム化の雑音と人による違いの両方が含まれます。"
        "信頼区間は、これらの人々を標本とする母集団についてのものです。",
    )
    return [*out, frame.note(note)]


def _pairs(
    moments: Mapping[str, Any], shown: Sequence[tuple[int, Any, str, str | None]]
) -> list[tuple[float, list[str]]]:
    """Rows of the table of pairs, those across both organisations first, then by how surely they are told."""
    out = []
    yes, no = Text("yes", "はい").html(), "?"
    for at, (i, one, side, label) in enumerate(shown):
        for j, two, other, second in shown[at + 1 :]:
            if one is two:
                continue
            value, error = moments["covariance"][i][j], moments["covariance_error"][i][j]
            r, own = moments["correlation"][i][j], moments["correlation_error"][i][j]
            sure = abs(value) / error if error else math.inf
            row = [f"{_named(one, label)} × {_named(two, second)}", near(value, error), near(error, error),
                   _interval(value, error), near(r, own), near(own, own),
                   yes if moments["learned"][i][j] else no]  # fmt: skip
            out.append((sure + (1e9 if side != other else 0), row))
    return sorted(out, key=lambda pair: -pair[0])


def _matrix(moments: Mapping[str, Any], shown: Sequence[tuple[int, Any, str, str | None]]) -> str:
    top = "".join(f'<th scope="col">{_named(column, label)}</th>' for _, column, _, label in shown)
    lines = []
    for i, one, _, label in shown:
        cells = []
        for j, two, _, _ in shown:
            r = moments["correlation"][i][j]
            if i == j:
                cells.append('<td class="same"></td>')
            elif one is two or r is None:
                cells.append('<td class="n none">–</td>')
            elif not moments["correlation_learned"][i][j]:
                cells.append(f'<td class="n none">{near(r, 0.01)}?</td>')
            else:
                cells.append(f'<td class="n" style="background:{_colour(r)}">{near(r, 0.01)}</td>')
        lines.append(f'<tr><th scope="row">{_named(one, label)}</th>{"".join(cells)}</tr>')
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="correlations / 相関係数">'
        f'<table class="matrix"><thead><tr><td></td>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def _colour(r: float) -> str:
    """From blue by way of white to orange, light enough for dark text."""
    share, end = min(abs(r), 1.0) ** 0.7, (236, 150, 60) if r > 0 else (120, 160, 225)
    return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in end)


def _tables(found: Sequence[Mapping[str, Any]]) -> list[Section]:
    if not found:
        return []
    words = Text(
        "People by two columns of labels: estimate ± standard error. A small count may come out below 0; “?” is an "
        "estimate not larger than two of its errors.",
        "二つの区分の組み合わせごとの人数（推定値 ± 標準誤差）です。少ない人数は負になることがあります。"
        "「?」は推定値が標準誤差の 2 倍を超えないものです。",
    )
    out = [f"<p>{words.html()}</p>"]
    for table in found:
        head = [f"{escape(table['row'])} \\ {escape(table['column'])}", *map(escape, table["columns"])]
        rows = []
        parts = (table[part] for part in ("rows", "counts", "standard_error", "learned"))
        for label, counts, errors, learned in zip(*parts, strict=True):
            cells = [
                f"{near(c, max(e, 10))} ± {near(e, max(e, 10))}{'' if known else ' ?'}"
                for c, e, known in zip(counts, errors, learned, strict=True)
            ]
            rows.append([escape(label), *cells])
        out.append(frame.table(head, rows, numbers=range(1, len(head))))
    return [Section("contingency", Text("Counts by two columns", "クロス集計"), out)]


def _models(found: Sequence[Mapping[str, Any]]) -> list[Section]:
    out = []
    head = [
        Text("", "").html(), Text("coefficient", "係数").html(), Text("standard error", "標準誤差").html(),
        Text("95 % interval", "95 % 信頼区間").html(),
    ]  # fmt: skip
    for model in found:
        rows = [
            [escape(name), near(value, error) + ("" if known else " ?"), near(error, error), _interval(value, error)]
            for name, value, error, known in zip(
                model["names"], model["coefficients"], model["standard_error"], model["learned"], strict=True
            )
        ]
        out.append(f"<h3>{Text(model['kind'], ja(model['kind'])).html()}: {escape(model['target'])}</h3>")
        out.append(frame.table(head, rows, numbers=range(1, 4)))
        out += [frame.note(Text(note, ja(note))) for note in model["notes"]]
    return [Section("models", Text("Models", "モデル"), out)] if out else []


def _synthetic(about: Mapping[str, Any]) -> list[Section]:
    made = about["synthetic"]
    if made is None:
        return []
    quality = made["quality"]
    rows = [[_called(own), f"{value:.3f}"] for own, value in quality["marginals"].items()]
    told = Text(
        f"{made['rows']:,} synthetic people ({made['method']}), drawn from the estimates on this page and nothing "
        "else: no row is a person's record, and they cost no further privacy.",
        f"合成データ {made['rows']:,} 人分（{made['method']}）。このページの推定値だけから作られており、"
        "実在の人の記録ではありません。追加のプライバシー損失もありません。",
    )
    how = Text(
        "How far they are from the estimates: numbers, difference of means in standard deviations; labels, total "
        "variation (0: equal, 1: nothing in common).",
        "推定値との隔たり：数値は平均の差（標準偏差を単位とする）、"
        "区分は全変動距離（0 は一致、1 は共通部分なし）です。",
    )
    failed = Text(
        "FAILED: means over 3 standard errors off the estimates. Do not use these rows: ",
        "不合格：平均が推定値から標準誤差の 3 倍を超えて外れています。この合成データは使わないでください：",
    )
    warned = [f'<p class="lead">{failed.html()}{escape(", ".join(quality["failed"]))}</p>'] if quality["failed"] else []
    apart = Text("Correlations differ on average by", "相関係数の差の平均").html()
    noise = Text("Their own standard error, on average", "相関係数の推定値自体の標準誤差（平均）").html()
    facts = [(apart, _three(quality["correlation"])), (noise, _three(quality["correlation_noise"]))]
    facts += [
        (Text(f"Regression of {own}: largest difference", f"{name(own)} の回帰：係数の差の最大").html(), _three(value))
        for own, value in quality["regression"].items()
    ]
    head = [Text("column", "列").html(), Text("distance", "隔たり").html()]
    notes = [frame.note(Text(note, ja(note))) for note in made["notes"]]
    table = frame.table(head, rows, numbers=[1])
    body = [*warned, f"<p>{told.html()}</p><p>{how.html()}</p>", *notes, table, frame.facts(facts)]
    return [Section("synthetic", Text("Synthetic rows", "合成データ"), body)]


def _three(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


# ---- what is promised ----


def _promise(about: Mapping[str, Any]) -> list[str]:
    claims, plan = about["claims"], about["plan"]
    public, joiner, n = claims["public"], claims["joiner"], claims["n"]
    epsilon, delta = public["epsilon"], public["delta"]
    but = (
        Text("", "")
        if delta == "0"
        else Text(f", but for a chance of {small(delta)}", f"（確率 {small(delta)} を除く）")
    )
    words = Text(
        f"Whoever sees the {n:,} joined rows, or anything made of them, and knows all about everyone else, can hardly "
        f"tell which values one person has: their odds change by at most a factor of {_factor(epsilon)}{but.en}. "
        "Protected are a person's values, on both sides at once.",
        f"結合した {n:,} 行、またはそれから作られたものを見る人が、ほかの全員のことをすべて知っていても、"
        f"ある人の値を見分けるオッズは最大 {_factor(epsilon, 'ja')}倍しか変わりません{but.ja}。"
        "保護されるのは、両組織にある一人分の値すべてです。",
    )
    amplified = claims["bound"] != "local"
    gain = Text(
        f"Shuffling lowered the loss from {about['local_epsilon']} (each report by itself) to {epsilon}; theorem: "
        f"{claims['bound']}."
        if amplified
        else f"Shuffling gained nothing here: with these epsilons and {n:,} rows the loss is that of each report by "
        "itself.",
        f"シャッフルにより、損失は {about['local_epsilon']}（報告単独の場合）から {epsilon} に下がりました"
        f"（用いた定理：{claims['bound']}）。"
        if amplified
        else f"この ε と {n:,} 行では、シャッフルによる損失の低減はなく、報告単独の場合と同じです。",
    )
    head = [
        Text("who", "誰が").html(), Text("sees", "何を見るか").html(),
        Text("what limits it", "プライバシー損失の上限").html(),
    ]  # fmt: skip
    rows = [
        [Text("everyone", "すべての人").html(),
         Text("joined rows in random order, without pseudonyms; this page; synthetic rows",
              "仮名を除き無作為に並べ替えた結合行、このページ、合成データ").html(), _loss(public)],
        *(_party(about, side) for side in ("a", "b")),
        [Text("whoever joins", "結合する者").html(),
         Text("both files of randomised rows with pseudonyms, also rows that found no partner",
              "仮名付きのランダム化済みファイル（両組織分、相手のない行を含む）").html(),
         _loss(joiner) if joiner is not None
         else Text(f"trusted: {plan['trusted_joiner']}", f"信頼する第三者：{plan['trusted_joiner']}").html()],
    ]  # fmt: skip
    return [f"<p>{words.html()}</p>", frame.note(gain), frame.table(head, rows)]


def _party(about: Mapping[str, Any], side: str) -> list[str]:
    own, other = about["sides"][side], "b" if side == "a" else "a"
    return [
        _SIDE[side].html(),
        Text(
            f"its own rows in full; of organisation {other} what everyone sees, and if it joins, what whoever joins "
            "sees",
            f"自組織の行のすべて。組織 {other} については一般公開と同じもの"
            "（自ら結合する場合は「結合する者」と同じもの）",
        ).html(),
        Text(
            f"as that line; its own file costs its people ε {own}",
            f"該当する行と同じ。自組織のファイルの損失は ε {own}",
        ).html(),
    ]


def _rests(public: Mapping[str, Any], not_protected: str) -> list[str]:
    items = "".join(f"<li>{Text(item, ja(item)).html()}</li>" for item in public["assumes"])
    known = Text(
        "Treated as known to everyone: " + ", ".join(public["public"]) + ".",
        "公開情報として扱うもの：" + "、".join(map(ja, public["public"])) + "。",
    )
    left = Text(
        not_protected,
        "保護されないもの：誰が結合表に含まれるか、両組織の表と重なりの行数、全員に共通する事柄。",
    )
    return [f"<ul>{items}</ul>", frame.note(left), f"<p>{known.html()}</p>"]


def _plan(about: Mapping[str, Any]) -> list[str]:
    plan = about["plan"]
    rows = []
    for side in ("a", "b"):
        for column in plan[side]:
            low, high = column.get("bounds", (None, None))
            values = ", ".join(map(escape, column["labels"])) if low is None else f"{escape(low)} – {escape(high)}"
            rows.append([_called(column["name"]), _SIDE[side].html(), values, _MECHANISM[column["mechanism"]].html(),
                         escape(column["epsilon"])])  # fmt: skip
    head = [
        Text("column", "列").html(), Text("from", "提供元").html(),
        Text("bounds or labels (public)", "範囲・区分（公開）").html(),
        Text("randomised by", "ランダム化の方法").html(), "ε",
    ]  # fmt: skip
    outside = {"refuse": Text("refused", "受け付けない"), "clip": Text("clipped to the bounds", "範囲の端に丸める")}
    facts = [
        (Text("Joined on", "結合キー").html(), escape(plan["key"])),
        (Text("Least overlap", "最小の重なり").html(), f"{plan['minimum_overlap']:,}"),
        (Text("Values outside the bounds", "範囲外の値").html(), outside[plan["outside"]].html()),
        (Text("SHA-256 of the plan", "計画の SHA-256").html(), f"<code>{escape(about['plan_hash'])}</code>"),
    ]
    return [frame.table(head, rows, numbers=[4]), frame.facts(facts)]


def _cite(about: Mapping[str, Any]) -> str:
    public, n = about["claims"]["public"], about["claims"]["n"]
    short = about["plan_hash"][:16]
    text = Text(
        f"Joined table of {n:,} people under plan {short} (shuffle model, epsilon = {public['epsilon']}, "
        f"delta = {small(public['delta'])}), made with kasuri.",
        f"計画 {short} による {n:,} 人の結合表（シャッフルモデル、epsilon = {public['epsilon']}、"
        f"delta = {small(public['delta'])}）、kasuri により作成。",
    )
    return f"<p>{text.html()}</p>"
