"""The lines and pictures of [Terada2015] on the page of all papers."""

from __future__ import annotations

from typing import Any

from kasuri.report.frame import Text
from kasuri.reproduce.paper import Chapter, Line, Picture, numbers, runs_told
from kasuri.reproduce.terada2015 import (
    FULL,
    PRINTED,
    PRINTED_DENSITY,
    PRINTED_NEGATIVE,
    PRINTED_TIME,
    figure,
    maps,
    text,
)


def pictures(result: dict[str, Any]) -> list[Picture]:
    """Figures 1-7."""
    return [
        Picture(
            "terada2015-figures1-5",
            Text("Terada 2015, Figures 1-5: the census and one output of each method; red: below 0",
                 "寺田 2015 図 1〜5：国勢調査と各方式の出力（赤は負値）"),
            maps,
        ),
        Picture(
            "terada2015-figure6",
            Text("Terada 2015, Figure 6: error by size of area", "寺田 2015 図 6：領域サイズと誤差"),
            lambda path: figure(result, path, None),
        ),
        Picture(
            "terada2015-figure7",
            Text("Terada 2015, Figure 7: errors up to 800", "寺田 2015 図 7：誤差 800 以下を拡大"),
            lambda path: figure(result, path, 800),
        ),
    ]  # fmt: skip


def ran(result: dict[str, Any]) -> Text:
    """How often each recipe was run."""
    few = result["standard"]["runs"]
    more = Text(f" The standard decomposition (section 6): {few} runs.", f"標準分解（6 節）は {few} 回。")
    return runs_told(result["runs"], FULL, more)


def chapter(result: dict[str, Any]) -> Chapter:
    """The paper's lines on the page."""
    title = Text("Terada, Suzuki, Yamaguchi, Hongo 2015: large tables", "寺田ほか 2015：大規模集計データ")
    return Chapter("terada2015", title, ran(result), lines(result), pictures(result), text(result))


def lines(result: dict[str, Any]) -> list[Line]:
    """Every algorithm, claim, table and figure of the paper."""
    show = "kasuri reproduce terada2015"
    table = result["table"]
    window = Text(
        "2020 census window: the paper's of 2010 is not available", "2020 年の区画：論文の 2010 年版は入手不可"
    )
    known = [
        _claim("sec. 4.1, A.1", "Haar transform, of sparse input in O(m log n)", "Haar 変換、疎な入力で O(m log n)",
               "src/kasuri/recipes/engine.py", "pytest tests/laws/test_transform.py", "cA += v, cD = cA + g(i) v",
               "cA += v/2, cD += g(i) v/2; inverse and equality with the dense transform tested",
               Text("(A.1)-(A.2) lack the halves and name cA for cD", "(A.1)〜(A.2) は 1/2 が抜け、cD を cA と誤記")),
        _claim("sec. 4.2.1, T1", "Top-down refinement, dense", "Top-down 精緻化（直列構成）",
               "kasuri.recipes.wavelet.Refined", "pytest tests/laws/test_topdown.py", "eq. 24-31",
               "non-negative, idempotent, keeps the total", None),
        _claim("sec. 4.2.2, T2", "Top-down refinement, sparse", "Top-down 精緻化（並列構成）", "kasuri.recipes.descent",
               "pytest tests/laws/test_equal_in_law.py", "Lap(λ/2^i) at level i-1 (eq. 38-39)", "Lap(λ/2^(i-1))",
               Text("as printed a release costs 2k/(k+1) = 1.895 epsilon at k = 18",
                    "掲載どおりでは k = 18 で 1.895 ε を消費する")),
        _claim("Lemma 1, A.2", "T1 and T2 have the same law", "T1 と T2 は出力等価", "docs/proofs/haar_topdown.md",
               "pytest tests/laws/test_equal_in_law.py", "proof", "equal by exact enumeration of small trees", None),
        _claim("Theorem 1", "The output is epsilon-DP", "出力は ε-差分プライバシーを満たす", "docs/proofs/haar_topdown.md",
               "pytest tests/laws/test_sensitivity.py", "exponent -(k - ⌈log2 i⌉) + 1 in eq. 45",
               "sensitivity 1 + k by brute force over all unit vectors",
               Text("the exponent is -(k - ⌈log2 i⌉ + 1)", "指数は -(k - ⌈log2 i⌉ + 1) が正しい")),
        Line("Theorem 2", Text("No cell is below 0", "非負制約の充足"), "kasuri.refine.topdown", show,
             "0", f"{table['Proposed']['negative_cells']:g}"),
        Line("Theorem 3", Text("Variance of a block at most (2/3) λ² (1 + 2/q²)", "部分和のノイズ分散の上界"),
             "kasuri.recipes.wavelet.tree_errors", "pytest tests/golden/test_terada.py",
             "Var = 2^l σ² (eq. 51, first line)", "4^l σ²; exact law of Privelet within Monte-Carlo error",
             Text("the first line of eq. 51 lacks a square", "式 (51) 1 行目は 2 乗が抜けている")),
        _claim("Theorem 4", "T2 costs O(m+ log n)", "T2 の計算量は O(m+ log n)", "kasuri.recipes.descent",
               "pytest tests/laws/test_equal_in_law.py", "O(m+ log n)", "the descent visits nodes of a sum above 0 only", None),
    ]  # fmt: skip
    remarks = {
        "fourier": Text("the tables after the linear program have no cell below 0, at the price of bias",
                        "線形計画法を適用した後の表に負値はないが、偏りが生じる"),
    }  # fmt: skip
    for row in result["table1"]:
        known.append(
            Line(
                f"Table 1, {row['method']}",
                Text("Cells below 0 | sums over areas | cost", "非負制約｜部分和精度｜計算量"),
                f"kasuri.recipes.{row['recipe']}",
                show,
                row["printed"],
                f"256 cells: {row['negative_share']:.1f} % below 0; RMSE of a cell {row['rmse_cell']:.0f}, of the sum of "
                f"all {row['rmse_whole']:.0f} (mean error {row['bias_whole']:+.0f}); CPU {row['cpu_ms']:.1f} ms",
                remarks.get(row["recipe"]),
            )
        )  # fmt: skip
    for name in ("Laplace", "Privelet (2D)", "Privelet (Morton)", "Proposed"):
        for metric in ("mae", "rmse"):
            note = window if name == "Proposed" else None
            if name == "Proposed":
                law = "190" if metric == "mae" else "268.7"
                note = Text(f"{window.en}; at 2^18 the law is exactly Lap(190): {law}, the printed value is chance",
                            f"{window.ja}；2^18 の分布は厳密に Lap(190) で {law}、掲載値は偶然")  # fmt: skip
            known.append(
                Line(
                    f"Table 2, {name} {metric.upper()}",
                    Text("Error by area size 2^0, 2^2, ..., 2^18", "領域サイズ 2^0, 2^2, …, 2^18 の誤差"),
                    "kasuri.reproduce.terada2015",
                    show,
                    numbers(PRINTED[name][metric], 1),
                    numbers(table[name][metric], 1),
                    note,
                )
            )
    for name, row in table.items():
        if name not in PRINTED:
            continue
        known.append(
            Line(f"sec. 6.3-6.4, {name}", Text("Cells below 0; cells that are not 0; time of one run",
                                               "負値のセル数；非 0 の割合；1 回の時間"),
                 "kasuri.reproduce.terada2015", show,
                 f"{PRINTED_NEGATIVE[name]:,}; {PRINTED_DENSITY[name]} %; {PRINTED_TIME} ms",
                 f"{row['negative_cells']:,.0f}; {row['density']:.1f} %; {row['cpu_ms']:.0f} ms", window)
        )  # fmt: skip
    known += [
        Line("sec. 6.2", Text("Cells of the data that are not 0", "対象データの密度"), "kasuri.examples", show, "36.3 %",
             f"{result['true_density']:.1f} %", window),
        Line("sec. 6.4", Text("Bound of the RMSE of a cell", "セルの RMSE の上界"), "kasuri.study.plan", show, "153.13",
             f"{table['Privelet (Morton)']['exact_rmse'][0]:.2f}",
             Text("the root of 24,067 is 155.13", "24,067 の平方根は 155.13")),
        Line("sec. 5.3", Text("Ranges that are not blocks: RMSE of Privelet (exact law)",
                              "整列しない範囲：Privelet の RMSE（厳密な法則）"),
             "kasuri.reproduce.terada2015.range_variance", show, "not printed",
             "; ".join(f"{e['privelet_rmse']:.0f} ({e['exact_privelet_rmse']:.0f})" for e in result["unaligned"])),
    ]  # fmt: skip
    for name, words in (
        ("lattice", Text("coefficient by coefficient, two axes", "係数ごと、2 軸")),
        ("axes", Text("axis by axis, any number of axes", "軸ごと、任意の軸数")),
    ):
        row = result["standard"]["table"][name]
        known.append(
            Line(f"sec. 6, {name}", Text(f"Standard decomposition refined {words.en}: MAE by area size",
                                         f"標準分解の精緻化（{words.ja}）：領域サイズ別 MAE"),
                 "kasuri.reproduce.standard", show, Text("larger than along the Morton curve", "Morton 順序より大きい"),
                 numbers(row["mae"], 0),
                 Text("possible coefficient by coefficient for two axes only: from three on no clamp can be "
                      "non-negative (docs/proofs/standard_decomposition.md)",
                      "係数ごとの精緻化で非負にできるのは 2 軸まで。3 軸以上では不可能"))
        )  # fmt: skip
    known += [
        _claim("sec. 6.1", "Morton order by bit interleaving", "ビット交互配置による Morton 順序", "kasuri._kernels.morton",
               "pytest tests/laws/test_order.py", "eq. 53-55", "bijection, squares stay together, tested", None),
        Line("Figures 1-5", Text("Maps of the data and of four outputs", "対象データと 4 方式の出力の地図"),
             "kasuri.reproduce.terada2015.maps", f"{show} --figures DIR", Text("maps", "地図"),
             Text("drawn", "描画"), window),
        Line("Figures 6-7", Text("Table 2 as curves", "表 2 の図示"), "kasuri.reproduce.terada2015.figure",
             f"{show} --figures DIR", Text("curves", "曲線"), Text("drawn, printed values as crosses", "描画（×は掲載値）")),
    ]  # fmt: skip
    return known


def _claim(
    place: str, en: str, ja: str, where: str, command: str, printed: str, measured: str, note: Text | None
) -> Line:
    return Line(place, Text(en, ja), where, command, printed, measured, note)
