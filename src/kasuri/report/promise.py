"""What a guarantee means to those who do not read formulas: a sentence, a small picture, the budget as a bar, and what
is trusted as a list. The first printed page of a report is made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from html import escape
from typing import Any

from kasuri.report import chart
from kasuri.report.frame import Text
from kasuri.words import japanese

_WEAK = 0.99
"""A belief from which the promise alone no longer protects much."""


def belief(epsilon: float) -> float:
    """How sure somebody can become at most who began at even odds: their odds grow by e^epsilon at most."""
    return 1 / (1 + math.exp(-min(epsilon, 700.0)))


def per_cent(share: float, *, up: bool) -> str:
    """With as many digits as tell it from 0 and from 100; rounded `up`, or down, never to look safer."""
    rest = max(min(share, 1 - share), 1e-12)
    digits = 1 if rest > 0.001 else min(12, math.ceil(-math.log10(rest)) - 1)
    scale = 10.0**digits
    whole = math.ceil(100 * share * scale - 1e-9) if up else math.floor(100 * share * scale + 1e-9)
    return f"{min(max(whole, 1), 100 * scale - 1) / scale:.{digits}f}"


def _chance(delta: str) -> Text:
    """A small probability as one in so many."""
    exact = Fraction(delta)
    if exact.numerator != 1:
        return Text(delta, delta)
    return Text(f"1 in {exact.denominator:,}", f"{exact.denominator:,} 分の 1")


def sentence(epsilon: str, delta: str, unit: str, relation: str) -> Text:
    """Epsilon in words."""
    most = belief(float(epsilon))
    sure = per_cent(most, up=True)
    own = japanese.unit(unit)
    guess = {
        "add-remove": Text(f"whether one {unit} is in the data at all", f"ある{own}がデータに含まれているかどうか"),
        "replace": Text(f"which of two records the data hold of one {unit}", f"ある{own}の記録が二つのうちどちらか"),
        "place": Text(f"at which of two places one {unit} is", f"ある{own}が二つの場所のどちらにいるか"),
    }[relation]
    chance = _chance(delta)
    but = Text("", "") if delta == "0" else Text(
        f" (but for cases of probability {chance.en} at most)", f"（確率 {chance.ja} 以下の例外を除く）"
    )  # fmt: skip
    weak = Text("", "")
    if most > _WEAK:
        weak = Text(
            " With an epsilon this large, the promise alone rules out little.",
            "ε がこれほど大きい場合、この保証だけで防げることは多くありません。",
        )
    return Text(
        f"Suppose somebody knows everything about all others and has no idea {guess.en}: 50 to 50. After reading "
        f"everything published here, they can be at most {sure} % sure{but.en}. This holds whatever else "
        f"they know and whatever they compute, now or later.{weak.en}",
        f"ほかのすべての人について何もかも知っている人が、{guess.ja}を五分五分と考えているとします。ここで公表する内容を"
        f"すべて読んでも、その確信は高くても {sure} % です{but.ja}。ほかに何を知っていても、"
        f"いつどのような計算をしても変わりません。{weak.ja}",
    )


def picture(epsilon: str, secret: bool) -> str:
    """How far a belief can move: from even odds to the most the promise allows, on either side."""
    most, wide, left = belief(float(epsilon)), 480, 30
    span = wide - 2 * left

    def x(share: float) -> float:
        return round(left + span * share, 1)

    reach = x(most) - x(1 - most)
    low, high = per_cent(1 - most, up=False), per_cent(most, up=True)
    words = [
        chart.both_text(left, 82, Text("0 %: ruled out", "0 %：確実に違う"), "start"),
        chart.both_text(wide - left, 82, Text("100 %: certain", "100 %：確実にそう"), "end"),
        chart.both_text(x(0.5), 16, Text("before: 50 %", "読む前：50 %"), "middle"),
        chart.both_text(x(0.5), 104, Text(f"after: {low} % to {high} %", f"読んだ後：{low} % 〜 {high} %"), "middle"),
    ]  # fmt: skip
    return (
        f'<figure class="belief"><svg viewBox="0 0 {wide} 112" role="img" aria-label="belief before and after / '
        f'確信度"><rect class="track" x="{left}" y="38" width="{span}" height="14" rx="7"/>'
        f'<rect class="reach" x="{x(1 - most)}" y="34" width="{max(reach, 3):g}" height="22" rx="4"/>'
        f'<line class="even" x1="{x(0.5)}" x2="{x(0.5)}" y1="24" y2="62"/>{"".join(words)}'
        f"{chart.watermark(secret, wide, 112)}</svg></figure>"
    )


def budget(accounting: Mapping[str, Any]) -> str:
    """What was spent before, by this release, and what is left; or that nobody counts."""
    ledger = accounting["ledger"]
    if not isinstance(ledger, Mapping):
        words = Text(
            "No ledger: this release was not charged to a budget, so nothing bounds what other releases of the same "
            "data spend.",
            "台帳なし：この公表は予算に計上されていないため、同じデータのほかの公表による消費は制限されません。",
        )
        return f'<p class="note">{words.html()}</p>'
    allowed, before, after = (
        float(ledger[when][what]) for when, what in (("after", "allowance"), ("before", "left"), ("after", "left"))
    )
    if not allowed > 0 or not math.isfinite(allowed):
        return ""
    spent, own = max(0.0, 1 - before / allowed), max(0.0, (before - after) / allowed)
    parts = [("spent", spent), ("own", own), ("left", max(0.0, 1 - spent - own))]
    bar = "".join(
        f'<span class="{name}" style="width:{100 * share:.4g}%"></span>' for name, share in parts if share > 0
    )
    money = escape(str(ledger["charged"]["currency"]))
    words = Text(
        f"Of {allowed:g} allowed ({money}): {allowed * spent:.4g} spent before, {allowed * own:.4g} by this release, "
        f"{after:.4g} left.",
        f"上限 {allowed:g}（{money}）のうち、以前の消費 {allowed * spent:.4g}、この公表 {allowed * own:.4g}、"
        f"残り {after:.4g}。",
    )
    return f'<div class="budget" aria-hidden="true">{bar}</div><p>{words.html()}</p>'


def trusted(assumes: list[str]) -> str:
    """What the guarantee rests on, to be ticked off by whoever checks it."""
    items = "".join(f"<li>{Text(item, japanese.ja(item)).html()}</li>" for item in assumes)
    none = Text("Nothing but the mathematics and the software.", "数学とソフトウェア以外の前提はありません。")
    return f'<ul class="check">{items}</ul>' if items else f"<p>{none.html()}</p>"


def told(epsilon: str, delta: str, unit: str, relation: str, *, secret: bool = False) -> list[str]:
    """The sentence and the picture."""
    words = sentence(epsilon, delta, unit, relation)
    return [f'<p class="lead">{words.html()}</p>', picture(epsilon, secret)]


def section(privacy: Mapping[str, Any], *, secret: bool = False) -> list[str]:
    """The body of the section for the privacy officer."""
    loss = privacy["privacy_loss"]
    parameters, relation = loss["privacy_parameters"], privacy["dp_variant"]["relation"]
    spent, rests = Text("The budget", "プライバシー予算"), Text("What is trusted", "信頼しているもの")
    return [
        *told(parameters["epsilon"], parameters["delta"], loss["privacy_unit"], relation, secret=secret),
        f"<h3>{spent.html()}</h3>{budget(privacy['accounting'])}",
        f"<h3>{rests.html()}</h3>{trusted(privacy['assumes'])}",
    ]  # fmt: skip


def printed(about: Mapping[str, Any], title: Text, credit: str, tiles: str, *, secret: bool = False) -> str:
    """Page one on paper: the certificate."""
    heading = Text("Certificate of the release", "公表の証明書")
    name = Text("Release", "公表番号")
    check = Text("To check every file and the signature: kasuri verify FOLDER --key PUBLISHER.key.pub",
                 "全ファイルと署名の検証：kasuri verify FOLDER --key PUBLISHER.key.pub")  # fmt: skip
    made = escape(str(about["privacy"]["implementation"]["software"]))
    return (
        f'<section class="paper" aria-hidden="true"><p class="kind">{heading.html()}</p>'
        f'<p class="title">{title.html()}</p>{credit}{tiles}{"".join(section(about["privacy"], secret=secret))}'
        f'<p class="small">{name.html()}: <code>{escape(str(about["id"]))}</code> · {made}<br>{check.html()}</p>'
        "</section>"
    )
