"""The privacy block as a page a privacy officer can read, in English and in Japanese. Same facts, same order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kasuri.privacy import written
from kasuri.words.bias import AREAS
from kasuri.words.japanese import MEASURED, REFINED, ja, measured, unit


def english(privacy: Mapping[str, Any], about: Mapping[str, str] | None = None) -> str:
    """certificate.md; `about` is what the publisher says of the release."""
    loss, variant = privacy["privacy_loss"], privacy["dp_variant"]
    parameters, bound = loss["privacy_parameters"], loss["contribution_bound"]
    implementation, accounting = privacy["implementation"], privacy["accounting"]
    return _page(
        "Privacy certificate",
        [
            (
                "Release",
                [
                    f"Release `{privacy['release_id']}` of the data set **{privacy['data'] or 'without a name'}**.",
                    *_about(about, _ABOUT, "en"),
                ],
            ),
            (
                "What is promised",
                [
                    f"{_VARIANT[variant['name']]}, {_parameters(parameters, _ENGLISH)}.",
                    f"Protected: {loss['privacy_unit_description']}. Whoever sees this release and knows everything "
                    "else can tell the two cases apart hardly better than without it: their odds change by at most a "
                    f"factor of e^{parameters['epsilon']}"
                    + (f", but for a chance of {parameters['delta']}." if parameters["delta"] != "0" else "."),
                    f"Contribution bound: {_cells(bound['max_cells'])}"
                    + _most(bound, ", sum at most {}", ", weight at most {}")
                    + f" per {loss['privacy_unit']}, enforced {bound['enforced']}."
                    + (f" {bound['sums']['en']}" if "sums" in bound else ""),
                    f"Treated as known to everyone: {', '.join(variant['unprotected_quantities']) or 'nothing'}.",
                ],
            ),
            ("What it rests on", [f"- {item}" for item in privacy["assumes"]] or ["No further assumption."]),
            ("Budget", _budget(accounting, _ENGLISH)),
            (
                "How it was made",
                [
                    *(
                        f"- {part['query']}: {part['noise']} noise of scale {part['scale']}, sensitivity "
                        f"{part['sensitivity']} (recipe `{part['recipe']}`)"
                        for part in implementation["mechanisms"]
                    ),
                    f"- post-processing: {accounting['post_processing']['name']}, sees "
                    f"{accounting['post_processing']['sees']}",
                    f"- randomness: {implementation['randomness']}; sampler: {implementation['sampler']}",
                    f"- software: {implementation['software']}; proof: {implementation['basis']}",
                ],
            ),
            (
                "How far off it may be",
                [*_errors(privacy["expected_error"], _ENGLISH), *_bias(privacy["expected_error"]["bias"], "en")],
            ),
            *_accepted(privacy.get("acceptance"), "Acceptance", _ENGLISH, _criterion),
        ],
    )


def japanese(privacy: Mapping[str, Any], about: Mapping[str, str] | None = None) -> str:
    """certificate.ja.md; `about` is what the publisher says of the release."""
    loss, variant = privacy["privacy_loss"], privacy["dp_variant"]
    parameters, bound = loss["privacy_parameters"], loss["contribution_bound"]
    implementation, accounting = privacy["implementation"], privacy["accounting"]
    refined = accounting["post_processing"]
    said = refined.get("ja") or REFINED.get(refined["name"], refined["name"])
    change = {"add-remove": "データに加わる、または抜ける", "replace": "記録の内容が変わる"}[variant["relation"]]
    if "total" in variant["unprotected_quantities"]:
        change = "別のセルに移る（出入りはなく、総数は変わらない）"
    return _page(
        "プライバシー証明書",
        [
            (
                "公表物",
                [
                    f"データセット **{privacy['data'] or '（名称なし）'}** の公表 `{privacy['release_id']}`。",
                    *_about(about, _ABOUT_JA, "ja"),
                ],
            ),
            (
                "保証の内容",
                [
                    f"{_VARIANT_JA[variant['name']]}、{_parameters(parameters, _JAPANESE)}。",
                    f"保護の単位：{unit(loss['privacy_unit'])} 1 単位（最大 {bound['max_cells']} セル"
                    + _most(bound, "、合計 {} 以下", "、重み {} 以下")
                    + f"）が{change}場合。ほかのすべてを知る人がこの公表物を見ても、二つの場合を見分けるオッズは"
                    f"最大 e^{parameters['epsilon']} 倍しか変わりません"
                    + (f"（確率 {parameters['delta']} を除く）。" if parameters["delta"] != "0" else "。"),
                    f"寄与の上限：{ja(bound['enforced'])}。" + (bound["sums"]["ja"] if "sums" in bound else ""),
                    f"公開情報として扱うもの：{'、'.join(map(ja, variant['unprotected_quantities'])) or 'なし'}。",
                ],
            ),
            ("前提", [f"- {ja(item)}" for item in privacy["assumes"]] or ["追加の前提はありません。"]),
            ("プライバシー予算", _budget(accounting, _JAPANESE)),
            (
                "作成方法",
                [
                    *(
                        f"- {measured(part['query'])}：{ja(part['noise'])}雑音、尺度 {part['scale']}、"
                        f"感度 {part['sensitivity']}（方式 `{part['recipe']}`）"
                        for part in implementation["mechanisms"]
                    ),
                    f"- 後処理：{said}（雑音を加えた値のみを参照）",
                    f"- 乱数：{ja(implementation['randomness'])}、雑音の生成：{ja(implementation['sampler'])}",
                    f"- ソフトウェア：{implementation['software']}、証明：{implementation['basis']}",
                ],
            ),
            (
                "誤差の目安",
                [*_errors(privacy["expected_error"], _JAPANESE), *_bias(privacy["expected_error"]["bias"], "ja")],
            ),
            *_accepted(privacy.get("acceptance"), "受け入れ基準", _JAPANESE, _criterion_ja),
        ],
    )


_VARIANT = {
    "pure": "Pure differential privacy",
    "approximate": "Approximate differential privacy",
    "zero-concentrated": "Zero-concentrated differential privacy",
}
_VARIANT_JA = {
    "pure": "純粋差分プライバシー",
    "approximate": "近似差分プライバシー",
    "zero-concentrated": "ゼロ集中差分プライバシー",
}
_ENGLISH = {
    "none": "This release was charged to no ledger: nothing bounds what other releases of the same data spend.",
    "ledger": "Ledger `{ledger}`, entry {entry}.",
    "series": "Release {number} of {of} of a series declared beforehand, which costs {price} as a whole, "
    "set aside from the start.",
    "window": "Slot {slot} ({length}) of a series without end. Whatever one unit did in {words} changes the "
    "probability of anything published of this series, ever, by a factor of at most e^{price}, but for delta {delta}. "
    "It is not a promise about more than that span: a longer one costs more.",
    "split": "Part {part} of one table that was split (`{id}`). Its parts are charged in parallel: a unit is in at "
    "most {parts_per_unit} of them, so together they cost as much as the dearest {parts_per_unit}, and each is charged "
    "what it adds to that.",
    "epsilon": "epsilon",
    "delta": "delta",
    "rho": "rho",
    "comma": ", ",
    "before": "left before",
    "charged": "charged",
    "after": "left after",
    "allowance": "allowance",
    "cells": "| cells in the area | expected error (root mean square) of the released sum |",
    "earlier": "| cells in the area | expected error (root mean square, before refinement) |",
    "noise": "| cells in the area | error of the noise alone (root mean square); refinement changes it |",
    "views": "| table of sums | sums | expected error (root mean square) of one of them |",
    "estimated": "Errors are estimated from the published noisy numbers, for all areas of a size together: a single "
    "area may be off by more.",
    "at_most": "at most {}",
    "unknown": "This recipe has no closed form for its error.",
    "advised": "Advised smallest area: {cells} cells.",
    "accepted": "Declared and judged before the charge, without a look at the data:",
    "form": "Judged by a closed form, for the smallest areas of the kind.",
    "public": "Where areas are counted: judged on {trials} releases of the public table {name}, less twice the "
    "standard error of the simulation.",
}
_JAPANESE = {
    "none": "この公表は台帳に計上されていません。同じデータのほかの公表による消費は制限されません。",
    "ledger": "台帳 `{ledger}`、記録番号 {entry}。",
    "series": "あらかじめ宣言した系列 {of} 回のうち {number} 回目。系列全体の消費は {price} で、"
    "最初に確保されています。",
    "window": "終わりのない系列の時間枠 {slot}（長さ {length}）。"
    "時間枠単位で数えて連続するどの {span} の間の一人の行動も、"
    "この系列で公表されるすべての結果の確率を e^{price} 倍以内でしか変えません（δ = {delta} を除く）。"
    "それより長い期間についての保証ではありません。",
    "split": "一つの表を分割したもの（`{id}`）の一部：{part}。分割の各部は並列に計上されます。"
    "一つの単位は最大 {parts_per_unit} 個の部に属するため、全体の消費は大きいほうから {parts_per_unit} 個の部の合計で、"
    "各部にはその増分だけが計上されます。",
    "epsilon": "ε",
    "delta": "δ",
    "rho": "ρ",
    "comma": "、",
    "before": "公表前の残り",
    "charged": "今回の消費",
    "after": "公表後の残り",
    "allowance": "許容総量",
    "cells": "| 区域のセル数 | 公表される合計の誤差の期待値（二乗平均平方根） |",
    "earlier": "| 区域のセル数 | 誤差の期待値（二乗平均平方根、補正前） |",
    "noise": "| 区域のセル数 | 雑音のみの誤差（二乗平均平方根）。補正により変わります |",
    "views": "| 合計の表 | 合計の数 | 合計一つの誤差の期待値（二乗平均平方根） |",
    "estimated": "誤差は、公表された雑音入りの数値から、同じ大きさの区域全体について推定したものです。"
    "個々の区域の誤差はこれより大きいことがあります。",
    "at_most": "{} 以下",
    "unknown": "この方式には誤差を与える式がありません。",
    "advised": "利用を推奨する最小の区域：{cells} セル。",
    "accepted": "計上前に宣言し、データを参照せずに判定したもの：",
    "form": "該当する最小の区域について、式により判定しました。",
    "public": "区域数を示した項目は、公開表 {name} を {trials} 回公表する模擬計算により、"
    "計算の標準誤差の 2 倍を差し引いて判定しました。",
}


_ABOUT = {
    "title": "Title: ",
    "publisher": "Publisher: ",
    "published": "Published: ",
    "source": "Source: ",
    "licence": "Licence: ",
    "contact": "Contact: ",
}
_ABOUT_JA = {
    "title": "表題：",
    "publisher": "公表者：",
    "published": "公表日：",
    "source": "出典：",
    "licence": "利用条件：",
    "contact": "連絡先：",
}


def _about(said: Mapping[str, str] | None, words: Mapping[str, str], language: str) -> list[str]:
    """What the publisher declares, a line each; the title as it is in the language of the page."""
    if not said:
        return []
    own = {**said, **({"title": said[f"title_{language}"]} if f"title_{language}" in said else {})}
    return [f"- {words[name]}{own[name]}" for name in words if name in own]


def _cells(most: int) -> str:
    return "1 cell" if most == 1 else f"at most {most} cells"


def _page(title: str, sections: list[tuple[str, list[str]]]) -> str:
    parts = [f"# {title}"]
    for heading, lines in sections:
        blocks: list[str] = []
        for line in lines:
            joins = bool(blocks) and line[:1] in "-|" and blocks[-1][:1] == line[:1]
            if joins:
                blocks[-1] += f"\n{line}"
            else:
                blocks.append(line)
        parts.append(f"## {heading}\n\n" + "\n\n".join(blocks))
    return "\n\n".join(parts) + "\n"


def _parameters(parameters: Mapping[str, Any], words: Mapping[str, str]) -> str:
    found = [(name, parameters[name]) for name in ("epsilon", "delta", "rho") if parameters[name] not in (None, "0")]
    return words["comma"].join(f"{words[name]} = {value}" for name, value in found)


def _budget(accounting: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    ledger = accounting["ledger"]
    if ledger is None:
        return [words["none"]]
    rows = [
        (words["allowance"], ledger["after"]["allowance"]),
        (words["before"], ledger["before"]["left"]),
        (words["charged"], ledger["charged"]["amount"]),
        (words["after"], ledger["after"]["left"]),
    ]
    currency = ledger["charged"]["currency"]
    table = [f"| | {words.get(currency, currency)} |", "|---|---|"]
    place = [words[kind].format(**ledger[kind]) for kind in ("series", "window", "split") if kind in ledger]
    return [words["ledger"].format(**ledger), *table, *(f"| {name} | {value} |" for name, value in rows), *place]


def _errors(error: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """After refinement where that is told (releases of earlier versions do not), else of the noise."""
    after, noise = error.get("after_refinement"), error["before_refinement"]
    if after is None and noise is None:
        return [words["unknown"]]

    def number(row: Mapping[str, Any]) -> str:
        told = f"{row['rmse']:,g}"
        return told if row["exact"] else words["at_most"].format(told)

    blocks = [row for row in (noise if after is None else after) if "cells" in row]
    head = "earlier" if "after_refinement" not in error else "noise" if after is None else "cells"
    lines = [words[head], "|---|---|"]
    lines += [f"| {row['cells']:,} | {number(row)} |" for row in blocks]
    views = [row for row in after or () if "view" in row]
    if views:
        lines += ["", words["views"], "|---|---|---|"]
        lines += [f"| {row['view']} | {row['sums']:,} | {number(row)} |" for row in views]
    if after is not None and noise != after:
        lines.append(words["estimated"])
    if error["advised_smallest_area"] is not None:
        lines.append(words["advised"].format(cells=f"{error['advised_smallest_area']['cells']:,}"))
    return lines


def _bias(said: str | list[Mapping[str, str]], language: str) -> list[str]:
    """A line per kind of area; releases of earlier versions have one sentence for all."""
    if isinstance(said, str):
        return [said if language == "en" else ja(said)]
    if language == "en":
        lines = [f"- {item['area']}: {item['en']}" for item in said]
        return ["Bias, the mean of released less true, by kind of area:", *lines]
    lines = [f"- {AREAS.get(item['area'], item['area'])}：{_spoken(item['ja'])}" for item in said]
    return ["偏り（公表値と真の値の差の平均）、区域の種類別：", *lines]


_BIAS = (("epsilon ", "ε = "), ("レシピが", "方式が"))
"""Words of bias as manifests store them, and as the certificate has them."""


def _spoken(stored: str) -> str:
    for before, words in _BIAS:
        stored = stored.replace(before, words)
    return stored


def _accepted(
    said: Mapping[str, Any] | None,
    heading: str,
    words: Mapping[str, str],
    line: Callable[[Mapping[str, Any]], str],
) -> list[tuple[str, list[str]]]:
    """What the release had to reach, where something was declared."""
    if said is None:
        return []
    closed = any(row["judged"] is None for row in said["criteria"])
    how = [words["form"]] if closed else []
    if said["public"] is not None:
        how.append(words["public"].format(trials=said["trials"], name=said["public"]["name"]))
    return [(heading, [words["accepted"], *(line(row) for row in said["criteria"]), *how])]


def _criterion(row: Mapping[str, Any]) -> str:
    areas = f"areas of {row['areas']:,} cells" if isinstance(row["areas"], int) else row["areas"]
    asked = f"{_share(row['share'])} of {areas} over {row['people']:,} within {_share(row['within'])}"
    return f"- {asked}: {_found(row)} expected" + ("" if row["judged"] is None else f", on {row['judged']:,} areas")


def _criterion_ja(row: Mapping[str, Any]) -> str:
    areas = f"{row['areas']:,} セルの区域" if isinstance(row["areas"], int) else row["areas"]
    asked = f"{areas}のうち {row['people']:,} を超えるものの {_share(row['share'])} で誤差 {_share(row['within'])} 以内"
    return f"- {asked}：期待値 {_found(row)}" + ("" if row["judged"] is None else f"（{row['judged']:,} 区域）")


def _share(text: str) -> str:
    return f"{float(100 * written(text)):.4g} %"


def _found(row: Mapping[str, Any]) -> str:
    return f"{100 * (row['found'] - row['margin']):.2f} %"


def _most(bound: Mapping[str, Any], sums: str, weights: str) -> str:
    """The most of one unit in a cell, where that is not 1."""
    if "max_sum" in bound:
        return sums.format(bound["max_sum"])
    return weights.format(bound["max_weight"]) if bound["max_weight"] else ""


def japanese_before(page: str) -> str:
    """certificate.ja.md as earlier versions worded it: the same facts, some of them in English. `verify` takes both,
    so that their releases stay whole."""
    return "\n".join(map(_line_before, page.split("\n")))


_LINES_BEFORE = {
    f"- {ja('the keystream')}": "- 鍵列（BLAKE2b 鍵による AES-256-CTR）は理想的な乱数と同等である",
    _JAPANESE["noise"]: "| 区域のセル数 | ノイズのみの誤差（二乗平均平方根）。補正により変わります |",
    _JAPANESE["estimated"]: "誤差は、公表されたノイズ付きの数値から、同じ大きさの区域全体について推定したものです。"
    "個々の区域の誤差はこれより大きいことがあります。",
    _JAPANESE["unknown"]: "このレシピには誤差を与える式がありません。",
    "| | ε |": "| | epsilon |",
    "| | ρ |": "| | rho |",
}
_MEASURED_BEFORE = {words: name for name, words in MEASURED.items()}
_NAMES_BEFORE = {"ε": "epsilon", "δ": "delta", "ρ": "rho"}
_REFINED_BEFORE = {words: name for name, words in REFINED.items()}


def _line_before(line: str) -> str:
    if line in _LINES_BEFORE:
        return _LINES_BEFORE[line]
    if made := re.fullmatch(r"- (.+?)：(.+雑音、尺度 .+)（方式 (`.+`)）", line):
        level = re.fullmatch(r"階層 (.+) の計数", made[1])
        query = f"counts of level {level[1]}" if level else _MEASURED_BEFORE.get(made[1], made[1])
        return f"- {query}：{made[2]}（レシピ {made[3]}）"
    if refined := re.fullmatch(r"- 後処理：(.+)（雑音を加えた値のみを参照）", line):
        return f"- 後処理：{_REFINED_BEFORE.get(refined[1], refined[1])}（雑音を加えた値のみを参照）"
    if line.partition("：")[0].removeprefix("- ") in AREAS.values():
        for before, words in _BIAS:
            line = line.replace(words, before)
        return line
    if line.startswith("公開情報として扱うもの："):
        return line.replace("方式に書かれた行列（", "レシピに書かれた行列（")
    if promise := re.fullmatch(rf"({'|'.join(_VARIANT_JA.values())})、(ε = .+|ρ = .+)。", line):
        said = promise[2].replace("、", ", ")
        return f"{promise[1]}、" + re.sub("[εδρ]", lambda sign: _NAMES_BEFORE[sign[0]], said) + "。"
    return line
