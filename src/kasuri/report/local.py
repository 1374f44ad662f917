"""The report of an estimate under local differential privacy, in the frame all reports share. Plain data in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from kasuri.report import frame, promise
from kasuri.report.frame import Section, Text
from kasuri.report.pack import HUNDREDTHS, Rows, distances, pack
from kasuri.report.view import names, places
from kasuri.schema import Domain, Nominal
from kasuri.words.japanese import ja, unit

_METHODS = {
    "em": Text("maximum likelihood (em)", "最尤推定（em）"),
    "em_columns": Text("maximum likelihood (em_columns)", "最尤推定（em_columns）"),
    "inversion": Text("inversion", "逆変換"),
    "projection": Text("inversion, then projection", "逆変換と射影"),
}
_WHOLE = 10
"""Width of an interval from which estimates are shown in whole numbers."""


def estimate_page(estimate: Mapping[str, Any], domain: Domain, title: str, title_ja: str = "",
                  names_ja: Mapping[str, str] | None = None) -> str:  # fmt: skip
    """The report on `Estimate.to_json()`; `domain` is the randomizer's places, "elsewhere" is below the map; `names_ja`
    are Japanese names of places."""
    axis = domain.axes[0]
    count, lower, upper = (np.asarray(estimate[name], dtype=float) for name in ("counts", "lower", "upper"))
    labels, level = estimate["labels"], round(100 * estimate["level"])
    on_map = axis.plane is not None
    size = domain.size if on_map else count.size
    shown = axis if on_map else Nominal(axis.name, tuple(labels))
    # whole people, but for estimates that are sharper than that
    per = 1 if np.median(upper - lower) >= _WHOLE else HUNDREDTHS
    below, above = distances(count[:size], lower[:size], upper[:size], per)
    value = np.rint(count[:size] * per).astype(np.int64)
    rows = Rows((np.arange(size),), {"value": value, "below": below, "above": above}, per)
    axes, parts, credit = places([shown])
    view = {
        "axes": axes,
        "names": {**names([shown]), **(names_ja or {})},
        "parts": [{**what, "about": told} for what, told, _ in parts],
        "mask": [],
        "estimate": True,
        "unit": estimate["guarantee"]["unit"]["id"],
        "confidence": level,
    }
    guarantee = estimate["guarantee"]
    unit_name = guarantee["unit"]["id"]
    elsewhere = [
        Text(
            f"Elsewhere: {count[i]:,.0f} ({level} % interval {lower[i]:,.0f} to {upper[i]:,.0f}).",
            f"対象範囲の外：{count[i]:,.0f}（{level} % 信頼区間 {lower[i]:,.0f}〜{upper[i]:,.0f}）。",
        ).html()
        for i in range(size, count.size)
    ]
    figure = [frame.viewer(on_map), *(f"<p>{words}</p>" for words in elsewhere), *credit]
    sections = [
        Section("map", Text("The estimate", "推定値"), figure),
        Section(
            "promise",
            Text("What is promised", "保証の内容"),
            [*promise.told(guarantee["epsilon"], guarantee["delta"], unit_name, "place"), _promise(guarantee)],
        ),
        Section("method", Text("How it was estimated", "推定の方法"), [_method(estimate)]),
    ]
    lead = Text(
        "Every person's device added noise before it sent anything: no true place was ever collected. The numbers are "
        "estimated from noisy reports, so read them with their intervals.",
        "各人の端末が送信前に雑音を加えているため、真の所在は一度も収集されていません。数値は雑音を含む報告からの推定値です。"
        "信頼区間とあわせてお読みください。",
    )
    loss = f"ε {escape(guarantee['epsilon'])}" + (
        f", δ {escape(guarantee['delta'])}" if guarantee["delta"] != "0" else ""
    )
    tiles = frame.tiles(
        [
            (Text("Reports", "報告数").html(), f"{estimate['reports']:,}", ""),
            (Text("Places", "区分").html(), f"{count.size:,}", Text("elsewhere included", "範囲外を含む").html()),
            (
                Text("Privacy loss", "プライバシー損失").html(),
                loss,
                Text("per device, in all", "端末ごと、合計").html(),
            ),
            (
                Text("Protected", "保護の単位").html(),
                Text(f"each {unit_name}", unit(unit_name)).html(),
                Text("by their own device", "本人の端末が保護").html(),
            ),
        ]
    )
    heading = Text(
        f"{title}: {estimate['reports']:,} reports, none of which is a true place",
        f"{title_ja or title}：真の所在を含まない {estimate['reports']:,} 件の報告による推定",
    )
    told, text = pack(rows)
    packed = told, ".".join([text, *(part for _, _, part in parts)])
    words = [f'<p class="lead">{lead.html()}</p>']
    return frame.page(heading, [tiles], sections, view=view, packed=packed, below=words)


def _promise(guarantee: Mapping[str, Any]) -> str:
    epsilon = guarantee["epsilon"]
    factor = f"{math.exp(min(float(epsilon), 700.0)):,.3g}"
    words = Text(
        f"Local differential privacy: the odds of any report change by at most a factor of e^{epsilon} (about "
        f"{factor}) with the place the device is in. The collector need not be trusted.",
        "局所差分プライバシー：どの場所にいても、ある報告が送られるオッズは"
        f"最大 e^{epsilon}（約 {factor}）倍しか変わりません。収集者を信頼する必要はありません。",
    )
    assumes = "".join(f"<li>{Text(item, ja(item)).html()}</li>" for item in guarantee["assumes"])
    rests = f"<p>{Text('It rests on:', '前提：').html()}</p><ul>{assumes}</ul>" if assumes else ""
    return f"<p>{words.html()}</p>{rests}"


def _method(estimate: Mapping[str, Any]) -> str:
    state = (
        Text("yes", "はい") if estimate["converged"] else Text("NO: do not use it", "いいえ（利用しないでください）")
    )
    own = str(estimate["method"])
    method = _METHODS.get(own, Text(own, own))
    return frame.facts(
        [
            (Text("Method", "手法").html(), method.html()),
            (Text("Converged", "収束").html(), state.html()),
            (Text("Passes", "反復回数").html(), f"{estimate['passes']:,}"),
            (Text("Distance to the best likelihood, at most (nats)", "最大尤度との差の上限（nat）").html(),
             f"{estimate['gap']:.2g}"),
        ]
    )  # fmt: skip
