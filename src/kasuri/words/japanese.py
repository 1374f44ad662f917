"""Japanese for the phrases that claims, certificates and reports are made of: one table for all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PHRASES = {
    # what a claim rests on
    "no ledger": "台帳なし：同じデータのほかの公表による消費は制限されない",
    "the keystream": "鍵ストリーム（BLAKE2b 鍵による AES-256-CTR）は理想的な乱数と同等である",
    "idealised numerics": "理想的な数値計算を仮定する（浮動小数点の雑音、論文の再現用）",
    "the provider bounded each": "提供者が単位ごとの寄与を制限している（表は集計済みで受領した）",
    "rows depend on their own id alone": "各行はその識別子の記録だけから決まる（申告による。kasuri は検査していない）",
    "a unit is counted in different cells": "一単位は異なるセルで数えられ、各セルでの回数は単位の定める上限以下である",
    "cells the provider withheld": "提供者が秘匿したセルは、提供者が指定する隣接セルに合算されている",
    "one record changes its cell": "一人の記録が別のセルに移るだけで出入りはなく、宣言した総数は二つの表で同じである",
    "the frame gave Spark": "Spark が読むたびに同じ行が得られた",
    "Spark's event logs": "Spark のイベントログ、画面、計測値にはタスクごとの行数が含まれるため、"
    "元データと同様に秘匿する",
    "a person reports with one device": "一人は一つの端末だけで報告する",
    "the times at which a person stays": "移動の有無とその時刻は保護されず、保護されるのは所在のみである",
    "each row is a unit of its own": "各行をそれぞれ一つの単位とみなす（呼び出し側の申告による。識別子の列はない）",
    "every row lies in the declared": "すべての行は宣言した範囲にある（そうでない行は受け付けない）",
    "both parties follow the protocol": "両組織は手順に従い（セミオネスト）、各自のファイル以外の情報を持ち寄らない",
    "both parties deleted the secret": "両組織は、共有した秘密、並び順、並べ替え前の行を削除した",
    "whoever joins shows joined rows only": "結合する者は、結合できた行だけを外に出す",
    "a key names one person": "結合キーは一人に一つであり、一つのキーは一人だけを指す",
    # what is treated as public
    "domain": "領域（セルの全体）",
    "mask": "ありえないセルの一覧",
    "total": "総数",
    "declared density": "宣言した密度と、空でないセルの大きさ",
    "plan": "計画（列、範囲、手法、ε）",
    "membership": "誰が表に含まれるか",
    "sizes of both tables": "両組織の表と重なりの行数",
    "recoding": "一般化の規則",
    "cuts": "一般化の候補",
    "cut": "一般化の水準",
    "k": "k の値",
    "sampling rate": "抽出率",
    "column types": "列の型",
    "retention": "値を保持する確率",
    "number of rows": "行数",
    "randomizer": "ランダム化の方式",
    "that a person takes part": "参加しているかどうか",
    "number of reports": "報告数",
    "when a person stays": "移動の有無とその時刻",
    # how a release was made
    "by kasuri, when counting": "集計時に kasuri が制限",
    "by kasuri, when counting rows taken on trust": "集計時に kasuri が制限"
    "（各行がその識別子の記録だけから決まることは申告による）",
    "by the provider of the table, on trust": "表の提供者の申告による（kasuri は検査していません）",
    "discrete Laplace": "離散ラプラス",
    "discrete Gaussian": "離散ガウス",
    "float Laplace": "浮動小数点ラプラス",
    "exact on the integers": "整数上で厳密",
    "floating point": "浮動小数点（論文の再現用）",
    "operating system, AES-256-CTR": "OS の乱数源と AES-256-CTR",
    # bias, as releases saved by earlier versions say it; now kasuri.words.bias
    "Cells below the threshold": "閾値に満たないセルは 0 になります。"
    "小さなセルは失われ、小さなセルばかりの区域は低めになります。",
    "Thresholding pulls": "閾値処理はセルを 0 に近づけます。小さなセルは失われ、密なセルは平均して低めになります。",
    "none: every sum": "偏りはありません。どの合計も不偏であり、負の値になることもあります。",
    "Making the table non-negative": "負の値をなくす補正のため、小さな区域には偏りが生じます。"
    "空のセルは平均して高め、密なセルは低めになります。偏りは広い区域の合計では小さく、総数ではほとんどありません。",
    # no interval
    "drawn with level jumps": "階層を飛ばして抽出したため、区間の計算に必要な測定値が残っていません"
    "（haar_topdown(descent='plain') では公表されます）",
    "a cluster wrote the table in parts": "クラスターが表を分割して書いたため、lower 列と upper 列がありません"
    "（Release.load(folder).interval(...) で任意の区域の信頼区間を計算できます）",
    # joined tables
    "its variance cannot be identified": "この方法の報告からは分散を推定できません。"
    "piecewise、hybrid、coin のいずれかで計画してください",
    "the noise is larger than the variance": "雑音が分散より大きいため、相関係数は推定できません",
    "its mean or variance was moved": "平均または分散を、値の範囲が許し誤差が否定しない値に移しました",
    "not all correlations can be imitated": "すべての相関係数を同時には再現できないため、"
    "再現できる最も近いものにしました",
    "second-order expansion": "損失関数を二次まで展開しているため、強い効果の係数は小さめに出ます",
    "the moments are nearly singular": "特徴量の積率行列が特異に近く、係数は不安定です",
    "linear regression": "線形回帰",
    "logistic regression": "ロジスティック回帰",
    "linear SVM": "線形 SVM（最小二乗）",
    # k-anonymity
    "k-anonymity is a property of this table": "k-匿名性はこの表の性質であり、作り方の性質ではありません。"
    "差分プライバシーではなく、ほかの知識を持つ人がこの表から知りうることに上限はありません。",
    "The realised loss is what this one output": "実現損失は、一つの記録を除いた場合と比べて、"
    "この一つの出力がたまたま失った量です。"
    "別の標本や別の隣接データでは、際限なく大きくなることがあります。一般化の切り方をデータから選んでいるため、"
    "この監査のどの式もその上限にはなりません。保証ではありません。",
    "These hold only if the generalisation is fixed": "データを見る前に一般化を固定し"
    "（sample_then_anonymize がそうします）、"
    "一般化した列以外を公表しない場合にのみ成り立ちます。その場合に限り、保証となります。",
}
"""Beginnings of phrases; one that ends in a letter must be followed by none."""

MEASURED = {
    "counts": "計数",
    "identity": "セルごとの計数",
    "total": "総数",
    "sum_difference": "和と差",
    "haar": "ハール係数",
    "haar_nd": "多次元のハール係数",
    "nominal": "区分の木の係数",
    "fourier": "フーリエ係数",
    "matrix": "行列による合計",
}
"""What was measured, by the name of the transform."""
REFINED = {
    "none": "なし",
    "inverse": "逆変換",
    "topdown": "上位から順に整合させる補正",
    "consistency": "階層間の整合化",
    "least squares": "最小二乗",
    "linear program": "線形計画",
    "bayes": "ベイズ推定",
    "woven": "織り合わせた木の推定",
    "chosen": "測定値から選ばれた補正",
    "threshold": "閾値処理",
    "simplex": "単体への射影",
    "lasso": "LASSO による縮小",
    "nonneg lasso": "非負の LASSO による縮小",
}
"""What was done with the noisy numbers, by the name of the refinement."""

_MODEL = {
    "central": "差分プライバシー",
    "local": "局所差分プライバシー",
    "shuffle": "シャッフルモデルの差分プライバシー",
}
_UNIT = {"person": "個人", "household": "世帯", "phone": "端末", "device": "端末", "row": "行"}
_PATTERNS = (
    (r"(.+) joins, passes on joined rows only and keeps nothing",
     "{} が結合を行い、結合できた行だけを渡し、何も保持しない"),
    (r"(.+) with these options publishes no measurements",
     "方式 {} は、この設定では区間の計算に必要な測定値を公表しません"),
    (r"a device sends at most (\d+) reports? of this randomizer", "一つの端末がこの方式で送る報告は {} 件までである"),
    (r"a device is in at most (\d+) categories, .*",
     "一つの端末が報告する区分は {} 個までで、以後は「範囲外」と報告し、引いた値を保持する"),
    (r"table (.+) \(prior\)", "事前情報とした表 {}"),
    (r"table (.+) \(tuning\)", "調整に用いた表 {}"),
    (r"matrix of the recipe \((.+)\)", "方式に書かれた行列（{}）"),
    (r"matrix (.+) \(strategy\)", "測定に用いた行列 {}"),
    (r"matrix (.+) \(workload\)", "質問の一覧とした行列 {}"),
)  # fmt: skip
"""Phrases that hold a name or a number."""


def ja(phrase: str) -> str:
    """The phrase in Japanese; one that is not known stays as it is. A note "column: phrase" keeps its column."""
    for pattern, words in _PATTERNS:
        if match := re.fullmatch(pattern, phrase):
            return words.format(match[1])
    found = _known(phrase)
    if found is None and ": " in phrase:
        column, _, rest = phrase.partition(": ")
        known = _known(rest)
        found = None if known is None else f"{column}：{known}"
    return phrase if found is None else found


def _known(phrase: str) -> str | None:
    fits = [start for start in PHRASES if phrase.startswith(start) and not phrase[len(start) :][:1].isalpha()]
    return PHRASES[max(fits, key=len)] if fits else None


def measured(query: str) -> str:
    """What a mechanism measured."""
    level = re.fullmatch(r"counts of level (.+)", query)
    return f"階層 {level[1]} の計数" if level else MEASURED.get(query, query)


_NAMES = {
    "age": "年齢", "sex": "性別", "female": "女", "male": "男", "hour": "時刻", "day": "日", "month": "月",
    "year": "年", "slot": "時間枠", "place": "場所",
    "home": "居住地", "work": "従業地", "origin": "出発地", "destination": "到着地", "ward": "区",
    "municipality": "市区町村", "prefecture": "都道府県", "region": "地方", "country": "国", "state": "州",
    "county": "郡", "district": "地区", "town": "町", "occupation": "職業", "income": "所得", "elsewhere": "範囲外",
    "education": "学歴", "workclass": "雇用形態", "spend": "支出",
}  # fmt: skip
"""Names that axes, levels and labels often have."""


def name(word: str) -> str:
    """An axis, a level or a label that is called so; one that is not known stays as it is."""
    return _NAMES.get(word, word)


def unit(name: str) -> str:
    """What is protected."""
    return _UNIT.get(name, name)


def counted(name: str, max_cells: int, max_weight: int | None) -> tuple[str, str]:
    """What a sum over cells is a number of, in English and in Japanese: units only where each is in one cell, once."""
    most = max_cells * (max_weight or 1)
    if max_weight is not None:
        return f"in weights (one {name} adds up to {most:,})", f"重みの合計（{unit(name)} 1 単位につき最大 {most:,}）"
    if max_cells > 1:
        return f"counts (one {name} adds up to {most:,})", f"件（{unit(name)} 1 単位につき最大 {most:,} 件）"
    return ("people", "人") if name == "person" else (f"{name}s" if name.isalpha() else name, f"{name} 件")


def relation(name: str, change: str, most: int) -> str:
    """Which change is protected."""
    acts = {"add-remove": "データに加わる・抜ける場合", "replace": "記録の内容が変わる場合"}
    return f"{unit(name)} 1 単位（最大 {most} セル）が{acts[change]}"


def claim(guarantee: Mapping[str, Any]) -> str:
    """`Guarantee.words()` in Japanese, from its JSON."""
    loss = f"epsilon = {guarantee['epsilon']}" + (
        f"、delta = {guarantee['delta']}" if guarantee["delta"] != "0" else ""
    )
    who = guarantee["unit"]
    return f"{_MODEL[guarantee['model']]}、{loss}。{relation(who['id'], who['change'], who['max_cells'])}の保護です。"
