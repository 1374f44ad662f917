"""Public lists that a person can declare with one choice: windows of the mesh and common sets of labels.

None of them is taken from a file, and none is chosen before a person chooses it.
"""

from __future__ import annotations

from typing import Any

from kasuri import meshcode
from kasuri.schema import WINDOWS

_FIVES = [(low, low + 4) for low in range(0, 85, 5)]
_PREFECTURES = [
    *(
        "北海道",
        "青森県",
        "岩手県",
        "宮城県",
        "秋田県",
        "山形県",
        "福島県",
        "茨城県",
        "栃木県",
        "群馬県",
        "埼玉県",
        "千葉県",
    ),
    *("東京都", "神奈川県", "新潟県", "富山県", "石川県", "福井県", "山梨県", "長野県", "岐阜県", "静岡県", "愛知県"),
    *("三重県", "滋賀県", "京都府", "大阪府", "兵庫県", "奈良県", "和歌山県", "鳥取県", "島根県", "岡山県", "広島県"),
    *("山口県", "徳島県", "香川県", "愛媛県", "高知県", "福岡県", "佐賀県", "長崎県", "熊本県", "大分県", "宮崎県"),
    *("鹿児島県", "沖縄県"),
]


def _list(about: str, labels: list[str], en: str, ja: str, *, ordered: bool = False) -> dict[str, Any]:
    return {"about": about, "kind": "ordered" if ordered else "nominal", "labels": labels, "en": en, "ja": ja}


LABELS: list[dict[str, Any]] = [
    _list("sex", ["female", "male"], "female, male", "female, male"),
    _list("sex", ["F", "M"], "F, M", "F, M"),
    _list("sex", ["男", "女"], "男, 女", "男、女"),
    _list("sex", ["1", "2"], "codes 1, 2", "コード 1、2"),
    _list("age", [*(f"{a}-{b}" for a, b in _FIVES), "85+"], "0-4, 5-9, … 85+", "0-4, 5-9, … 85+", ordered=True),
    _list("age", [*(f"{a}～{b}歳" for a, b in _FIVES), "85歳以上"], "0～4歳, … 85歳以上", "0～4歳、… 85歳以上",
          ordered=True),
    _list("age", ["0-14", "15-64", "65+"], "0-14, 15-64, 65+", "0-14, 15-64, 65+", ordered=True),
    _list("age", ["0-19", "20-64", "65+"], "0-19, 20-64, 65+", "0-19, 20-64, 65+", ordered=True),
    _list("age", [str(age) for age in range(101)], "single years 0 to 100", "各歳 0～100", ordered=True),
    _list("hour", [str(hour) for hour in range(24)], "hours 0 to 23", "0～23 時", ordered=True),
    _list("day", ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "Mon to Sun", "Mon～Sun", ordered=True),
    _list("day", list("月火水木金土日"), "月 to 日", "月～日", ordered=True),
    _list("prefecture", [f"{code:02d}" for code in range(1, 48)], "47 prefectures, codes 01 to 47",
          "47 都道府県（コード 01～47）"),
    _list("prefecture", _PREFECTURES, "47 prefectures, names", "47 都道府県（名称）"),
]  # fmt: skip
"""`about`: the kind of column a list is offered for first."""

_NAMES = {"japan": ("All Japan", "全国"), "kanto": ("Kanto", "関東"), "kinki": ("Kinki", "近畿"),
          "kyushu": ("Kyushu", "九州"), "tohoku": ("Tohoku", "東北")}  # fmt: skip


def windows(level: str) -> list[dict[str, Any]]:
    """The public windows in cells of `level`: the rectangle of whole cells that holds each."""
    per, own = meshcode.level(level).per_first, meshcode.level("500m").per_first
    found = []
    for name, (en, ja) in _NAMES.items():
        _, origin, shape = WINDOWS[name]
        start = [at * per // own for at in origin]
        end = [-(-(at + size) * per // own) for at, size in zip(origin, shape, strict=True)]
        shape = (end[0] - start[0], end[1] - start[1])
        found.append({"window": name, "en": en, "ja": ja, "origin": start, "shape": list(shape)})
    return found


def first_order(codes: list[str], level: str) -> dict[str, Any]:
    """Origin and shape of the rectangle that holds the first-order meshes of these four-digit codes."""
    per = meshcode.level(level).per_first
    rows, cols = [int(code[:2]) for code in codes], [int(code[2:]) for code in codes]
    shape = [(max(rows) - min(rows) + 1) * per, (max(cols) - min(cols) + 1) * per]
    return {"origin": [min(rows) * per, min(cols) * per], "shape": shape}


LEVELS = [{"level": name, "digits": found.digits} for name, found in meshcode.LEVELS.items()]
