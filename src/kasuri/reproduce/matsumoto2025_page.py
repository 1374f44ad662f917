"""The lines and pictures of [Matsumoto2025] on the page of all papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kasuri.report.frame import Text
from kasuri.reproduce.matsumoto2025 import (
    FULL,
    NATIONAL,
    PRINTED_NATIONAL,
    PRINTED_SECONDS,
    figure,
    figure_1,
    figure_5,
    figure_6,
    text,
)
from kasuri.reproduce.paper import Chapter, Line, Picture, numbers, pairs, runs_told


def pictures(result: dict[str, Any], data: Path | None) -> list[Picture]:
    """Figures 1-4, and 5-6 where the national mesh is there."""
    out = [
        Picture("matsumoto2025-figure1", Text("Matsumoto 2025, Figure 1: the evaluation map", "松本 2025 図 1：評価用データ"),
                figure_1),
        Picture("matsumoto2025-figures2-4",
                Text("Matsumoto 2025, Figures 2-4: RMSE and mean error by size of the true count",
                     "松本 2025 図 2〜4：真値の大きさ別の RMSE と ME"),
                lambda path: figure(result, path)),
    ]  # fmt: skip
    if data is not None and result["national"] is not None:
        out += [
            Picture("matsumoto2025-figure5", Text("Matsumoto 2025, Figure 5: the census", "松本 2025 図 5：国勢調査"),
                    lambda path: figure_5(data, path)),
            Picture("matsumoto2025-figure6",
                    Text("Matsumoto 2025, Figure 6: RMSE and mean error on the census", "松本 2025 図 6：実データの RMSE と ME"),
                    lambda path: figure_6(result["national"], path)),
        ]  # fmt: skip
    return out


def ran(result: dict[str, Any]) -> Text:
    """How often each setting was run; Table 4 has 25 restorations in the paper."""
    few = (result["national"] or {"runs": 0})["runs"]
    more = Text(
        f" Table 4 and Figure 6: {few} restorations, 25 in the paper.", f"表 4・図 6 は {few} 回（論文は 25 回）。"
    )
    return runs_told(result["runs"], FULL, more)


def chapter(result: dict[str, Any], data: Path | None = None) -> Chapter:
    """The paper's lines on the page."""
    title = Text("Matsumoto, Matsui, Terada 2025: negative l2 on a simplex", "松本・松井・寺田 2025：負の ℓ2 正則化")
    return Chapter("matsumoto2025", title, ran(result), lines(result), pictures(result, data), text(result))


def lines(result: dict[str, Any]) -> list[Line]:
    """Every algorithm, table and figure of the paper."""
    show, here = "kasuri reproduce matsumoto2025", "kasuri.reproduce.matsumoto2025"
    laplace = Text(
        "with the true total the scale must be 2/ε: as printed it is 2ε-DP",
        "真の総数の下では尺度 2/ε が必要（掲載では 2ε）",
    )
    total = Text("the true total is not private under add-remove: bought with a share of epsilon, or declared public",
                 "真の総数は追加・削除の下で保護されない：ε の一部で求めるか公開と宣言する")  # fmt: skip
    out = [
        Line("eq. 3", Text("Laplace mechanism", "Laplace メカニズム"), "kasuri.recipes.laplace", "pytest tests/golden/test_terada.py",
             "Laplace(1/ε)", "1/ε under add-remove, 2/ε under replace", laplace),
        Line("eq. 4-5", Text("Lasso and non-negative Lasso", "Lasso と非負 Lasso"), "kasuri.recipes.nonneg_lasso",
             "pytest tests/laws/test_project.py", "argmin", "closed form, equal to its slow twin"),
        Line("eq. 6-10", Text("Projection onto the simplex", "単体への射影"), "kasuri.recipes.simplex",
             "pytest tests/laws/test_simplex.py", "sort", "tally and shrinking set; equal to the sort", total),
        Line("sec. 2.4", Text("Nearest whole point of the simplex", "単体上の最近整数点"), "kasuri._kernels.simplex",
             "pytest tests/laws/test_simplex.py", "rounding up and down", "largest remainders, nearest by enumeration"),
        Line("eq. 11-13", Text("Negative l2 regularisation", "負の ℓ2 正則化"), "kasuri.recipes.neg_l2_simplex",
             "pytest tests/laws/test_project.py", "convex minus convex, iterated", "eq. 14 at once; the iteration has the same limit, tested"),
        Line("eq. 14", Text("It is the projection of the table over γ", "1/γ 倍した射影に等しい"), "kasuri.recipes.neg_l2_simplex",
             "pytest tests/laws/test_project.py", "γ = 1 - nλ", "γ = 1 - λ",
             Text("the factor n belongs to a loss divided by n; γ is the parameter here", "n は損失を n で割る場合の係数")),
        Line("eq. 15, Figure 1", Text("The evaluation map, share of cells not 0", "評価用データの非ゼロ割合"), f"{here}.city",
             f"{show} --figures DIR", "3.3 %", f"{result['true_nonzero']:.2f} %"),
        Line("sec. 4.1", Text("λ searched on the true table", "真の表での λ の探索"), "kasuri.refine.project",
             "pytest tests/golden/test_matsumoto.py", "least RMSE against the truth",
             "γ from a public table or by simulation from the noisy one: within 2 % of the best",
             Text("the search on the true table is a leak, as the paper says", "真の表での探索は漏えい（論文も明記）")),
    ]  # fmt: skip
    artefact = Text("tuned like the proposed method it is as good: the printed row is a tuning artefact",
                    "提案手法と同様に調整すれば同等：掲載値は調整の産物")  # fmt: skip
    for name, row in result["table"].items():
        for table, key, words, places in (
            ("Table 1", "rmse", Text("RMSE at epsilon 0.1 / 1 / 10", "ε = 0.1 / 1 / 10 の RMSE"), 4),
            ("Table 2", "nonzero", Text("cells that are not 0, %", "非ゼロ割合 (%)"), 2),
        ):
            printed = numbers(row[f"printed_{key}"], places) if f"printed_{key}" in row else "not in the paper"
            note = artefact if name == "NNL" else None
            if row["private"]:
                note = Text("kasuri's: epsilon-DP, total and tuning included", "kasuri：総数と調整を含めて ε-DP")
            out.append(Line(f"{table}, {name}", words, here, show, printed, numbers(row[key], places), note))
    machine = Text("seconds are of other machines: ratios to Simplex", "計算機が異なるため Simplex との比")
    for name, row in PRINTED_SECONDS.items():
        found = [entry["ratio_to_simplex"][name] for entry in result["timing"]]
        told = [entry["printed_ratio_to_simplex"][name] for entry in result["timing"]]
        note = machine
        if name == "NNL":
            note = Text(
                f"{machine.en}; closed form here, so no memory runs out", f"{machine.ja}；閉形式のためメモリ不足なし"
            )
        out.append(
            Line(f"Table 3, {name}", Text("Time at 4,096 / 65,536 / 1,048,576 cells over that of Simplex",
                                          "4,096 / 65,536 / 1,048,576 セルの時間の Simplex 比"), here, show,
                 " / ".join("-" if value is None else f"{value:.2f}" for value in told)
                 + f" (seconds {' / '.join('-' if v is None else str(v) for v in row)})",
                 numbers(found, 2), note)
        )  # fmt: skip
    out.append(
        Line("Figures 2-4", Text("RMSE and mean error by size of the true count", "真値の範囲別の RMSE と ME"), f"{here}.figure",
             f"{show} --figures DIR", Text("bars", "棒グラフ"),
             "Proposed at 100+, ε 0.1: RMSE " + numbers([result["table"]["Proposed"]["classes"][0]["100+"]["rmse"]], 1)
             + ", ME " + numbers([result["table"]["Proposed"]["classes"][0]["100+"]["me"]], 1)
             + "; Simplex: RMSE " + numbers([result["table"]["Simplex"]["classes"][0]["100+"]["rmse"]], 1)
             + ", ME " + numbers([result["table"]["Simplex"]["classes"][0]["100+"]["me"]], 1))
    )  # fmt: skip
    found = result["national"]
    asked = f"{show} --data DIR"
    if found is None:
        missing = Text(f"not run: needs {NATIONAL}", f"未実行：{NATIONAL} が必要")
        return [
            *out,
            Line("Table 4, Figures 5-6", Text("The national mesh", "全国メッシュ"), here, asked, "see paper", missing),
        ]
    merged = Text("cells merged by the census set to 0, γ = 0.99", "秘匿合算セルを 0 とし γ = 0.99")
    out += [
        Line("Table 4", Text("Cells of the census that are not 0, %", "国勢調査の非ゼロ割合 (%)"), f"{here}.national", asked,
             "2.10", f"{found['true_nonzero']:.2f}", merged),
        Line("Table 4", Text("Cells that are not 0, %", "非ゼロ割合 (%)"), f"{here}.restored", asked,
             pairs(PRINTED_NATIONAL, 2), pairs(found["nonzero"], 2), merged),
        Line("Table 4", Text("Seconds of one restoration", "1 回の復元の秒数"), f"{here}.restored", asked,
             pairs(found["printed_seconds"], 1), pairs(found["seconds"], 1), machine),
        Line("Figure 5", Text("Map of the census", "国勢調査の地図"), f"{here}.figure_5", f"{asked} --figures DIR",
             Text("map", "地図"), Text("drawn", "描画")),
    ]  # fmt: skip
    for name, parts in found["classes"].items():
        out.append(
            Line(f"Figure 6, {name}", Text("RMSE / mean error: all, 0, 1-9, 10-99, 100+", "RMSE / ME：全体、0、1-9、10-99、100+"),
                 f"{here}.figure_6", f"{asked} --figures DIR", Text("bars without numbers", "数値のない棒グラフ"),
                 ", ".join(f"{part} {row['rmse']:.2f} / {row['me']:+.2f}" for part, row in parts.items()))
        )  # fmt: skip
    return out
