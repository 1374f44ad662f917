"""The lines and pictures of [Kii2022] on the page of all papers."""

from __future__ import annotations

from typing import Any

from kasuri.report.frame import Text
from kasuri.reproduce.kii2022 import (
    FULL,
    PRINTED_CROSSING,
    PRINTED_IDENTITY,
    figure,
    figure_limits,
    figure_printed,
    figure_surface,
    text,
)
from kasuri.reproduce.paper import Chapter, Line, Picture, numbers, runs_told


def chapter(result: dict[str, Any]) -> Chapter:
    """The paper's lines on the page."""
    title = Text("Kii et al. 2022: two organisations, one shuffled join", "紀伊ほか 2022：垂直分割データの協調匿名化")
    pictures = [
        Picture("kii2022-figures1-2", Text("Kii 2022, Figures 1-2: the largest eps' of Theorem 4", "紀伊 2022 図 1〜2：ε' の上限"),
                lambda path: figure_limits(result, path)),
        Picture("kii2022", Text("Kii 2022, Figure 3 with every bound and an attack; Figures 5-7 with the diagonal apart",
                                "紀伊 2022 図 3（各上界と攻撃）、図 5〜7（対角を分離）"), lambda path: figure(result, path)),
        Picture("kii2022-figure4", Text("Kii 2022, Figure 4: only b/a matters", "紀伊 2022 図 4：b/a のみに依存"),
                lambda path: figure_surface(result, path)),
        Picture("kii2022-figures5-7", Text("Kii 2022, Figures 5-7 as the paper computes them", "紀伊 2022 図 5〜7（論文の計算方法）"),
                lambda path: figure_printed(result, path)),
    ]  # fmt: skip
    return Chapter("kii2022", title, runs_told(result["runs"], FULL), lines(result), pictures, text(result))


def lines(result: dict[str, Any]) -> list[Line]:
    """Every protocol, algorithm, theorem and figure of the paper."""
    show, here, own = "kasuri reproduce kii2022", "kasuri.reproduce.kii2022", result["as_printed"]
    use = result["figures5to7"]
    overlap = Text(
        "n must be the overlap: rows of one side can be told apart", "n は共通集合の大きさ：片側のみの行は区別できる"
    )
    diagonal = Text("the diagonal of two-point reports is a constant: the variance cannot be identified from it",
                    "二値報告の対角は定数：分散は識別できない")  # fmt: skip
    three = result["figure3"]
    at_four = three["local"].index(4.0)
    out = [
        Line("Protocol 1", Text("Pseudonyms, randomised columns, shuffle, deletion, join", "仮名化・ランダム化・置換・削除・連結"),
             "kasuri.shuffle.party", "kasuri shuffle --help", "delete the secret and the permutation",
             "and the unshuffled tables and the generator's state",
             Text("membership in both tables is not protected", "双方に属するという事実は保護されない")),
        Line("sec. 2, option 1", Text("Private set intersection", "秘匿共通集合"), "docs/proofs/shuffle_join.md",
             "kasuri shuffle --help", "named", "not built: a keyed hash of the join key is used instead",
             Text("the paper names it as an option and does not use it", "論文は選択肢として挙げるのみ")),
        Line("sec. 2, option 2", Text("Pk-anonymisation inside the join, over the columns of both sides", "双方の属性数による Pk-匿名化"),
             "kasuri.shuffle.pk", "pytest tests/laws/test_shuffle_pk.py", "k by randomisation with mA + mB columns",
             "Plan.anonymous(k); k = 1 + (n-1) prod e^(-2 eps_j), enumerated",
             Text("not against the joiner, nor a party that kept its reports", "連結者や報告を保持した当事者に対しては成り立たない")),
        Line("Algorithm 1", Text("Two-point mechanism of Nguyen", "Nguyễn らの二値メカニズム"), "kasuri.local.numeric.two_point",
             "pytest tests/distributions/test_local_numeric.py", "ε-LDP, mean x", "odds exact, mean x"),
        Line("Algorithm 2", Text("Piecewise mechanism", "Piecewise メカニズム"), "kasuri.local.numeric.piecewise",
             "pytest tests/distributions/test_local_numeric.py", "ε-LDP, mean x", "odds exact on a grid, mean x"),
        Line("sec. 2", Text("Hybrid mechanism", "Hybrid メカニズム"), "kasuri.local.numeric.hybrid",
             "pytest tests/distributions/test_local_numeric.py", "named", "odds exact, mean x"),
        Line("Algorithm 3, Theorem 1", Text("The (a, b) two-point mechanism: ε-LDP exactly if (a+b)/(b-a) is at most e^ε",
                                            "(a, b) 二値メカニズム"), "kasuri.local.numeric.two_point",
             "pytest tests/distributions/test_local_numeric.py", "0 < a <= b", "a < b",
             Text("with a = b every report is the truth: refused", "a = b では報告が真値そのもの：拒否する")),
        Line("Lemma 1", Text("E[x'] = x", "E[x'] = x"), "kasuri.local.numeric.two_point",
             "pytest tests/distributions/test_local_numeric.py", "mean x", "mean x, by enumeration"),
        Line("Theorem 2", Text("E[x'y'] = xy", "E[x'y'] = xy"), "kasuri.shuffle.statistics",
             "pytest tests/distributions/test_shuffle_statistics.py", "for any two columns", "for two different columns", diagonal),
        Line("Theorem 3", Text("Shuffling amplifies: eps* at n = 10^6, eps' = 4, δ = 10^-10", "シャッフルによる増幅"),
             "kasuri.shuffle.bounds.theorem_3", show, "0.248", f"{three['n']['1000000']['theorem 3'][at_four]:.3f}",
             Text(f"better bounds: {three['n']['1000000']['clones 2023'][at_four]:.3f} (clones 2023), "
                  f"{three['n']['1000000']['blanket'][at_four]:.3f} (blanket); an attack proves "
                  f"{three['n']['1000000']['attack'][at_four]:.3f}",
                  f"より良い上界：{three['n']['1000000']['clones 2023'][at_four]:.3f}、"
                  f"{three['n']['1000000']['blanket'][at_four]:.3f}。攻撃は {three['n']['1000000']['attack'][at_four]:.3f} を証明")),
    ]  # fmt: skip
    for n, row in result["counter_example"].items():
        out.append(
            Line(f"Theorem 4, overlap {int(n):,}", Text("nA = nB = 10^6, eps' = 4", "nA = nB = 10^6、ε' = 4"), "kasuri.shuffle.bounds",
                 show, f"{row['theorem 4']}", f"an attack proves {row['attack']:.3f}; ours {row['ours']:.3f}", overlap)
        )  # fmt: skip
    out += [
        Line("Figure 1", Text("Largest eps' for n = 10^3, ..., 10^6 at δ* = 10^-10", "n = 10^3〜10^6 の ε' の上限（δ* = 10^-10）"),
             f"{here}.largest_local", f"{show} --figures DIR", "at most about 8",
             numbers([values[8] for values in result["figure1"].values()], 2)),
        Line("Figure 2", Text("Largest eps' at n = 10^6 for δ* = 10^-10, ..., 10^-7", "n = 10^6 の ε' の上限"),
             f"{here}.largest_local", f"{show} --figures DIR", "at most about 8",
             numbers([values[3] for values in result["figure2"].values()], 2)),
        Line("Figure 3", Text("eps' for eps* = 0.1, 0.2, 0.5, 1 at n = 10^6", "n = 10^6 で ε* = 0.1, 0.2, 0.5, 1 となる ε'"),
             f"{here}.inverse", show, numbers([row["printed"] for row in result["printed"].values()], 1),
             numbers([row["measured"] for row in result["printed"].values()], 2),
             Text("read off a plot in the paper", "論文は図からの読み取り")),
        Line("Figure 4", Text("Error over (a, b), ε = 1: along b/a times 1, 1.25, 1.5, 2, 3, 4", "(a, b) による誤差、ε = 1"),
             f"{here}.figure_surface", f"{show} --figures DIR", Text("unstable for small a", "a が小さいと不安定"),
             numbers([row[1] for row in own["surface"]], 1),
             Text("only b/a matters; the instability was floating point", "b/a のみに依存し、不安定さは浮動小数点による")),
        Line("Figure 5", Text("Error of the covariance matrix at ε 0.1, 1, 10 of a column: two-point; Laplace",
                              "列あたり ε 0.1, 1, 10 の分散共分散行列の誤差"), f"{here}.as_the_paper", f"{show} --figures DIR",
             Text("curves", "曲線"), "; ".join(
                 numbers([own[name][own["columns"].index(e)][0] for e in (0.1, 1.0, 10.0)], 3) for name in ("two_point", "laplace")),
             diagonal),
        Line("Figure 6", Text("Laplace wins from this epsilon on", "Laplace が優位となる ε"), f"{here}.as_the_paper", show,
             f"{PRINTED_CROSSING}", f"{own['crossing']:.2f}",
             Text("of a column, whole matrix: the diagonal decides it", "列あたり、行列全体：対角成分が決める")),
        Line("Figure 7, blue", Text("Error of the correlation matrix at eps0 = 0.004", "ε0 = 0.004 の相関行列の誤差"),
             f"{here}.as_the_paper", show, f"{PRINTED_IDENTITY}", f"{own['correlation'][2]:.4f} at 0.001, {own['correlation'][3]:.4f} at 0.01",
             Text(f"the identity matrix, which needs no data, has {use['identity']:.4f}", f"データの要らない単位行列で {use['identity']:.4f}")),
        Line("Figure 7, red", Text("eps* at eps' = 4, n = 30,162", "ε' = 4、n = 30,162 の ε*"), "kasuri.shuffle.bounds.theorem_3", show,
             "about 1", f"{own['amplified']['4']:.2f}" if own["amplified"]["4"] else "no value",
             Text(f"Theorem 4 ends at eps' = {own['limit']:.2f}", f"定理 4 の適用範囲は ε' = {own['limit']:.2f} まで")),
        Line("sec. 5, [12]", Text("Synthesis from means, histograms, covariances", "平均・ヒストグラム・共分散からの合成"),
             "kasuri.shuffle.synthesis", "kasuri shuffle --help", "named", "Gaussian copula with the estimated correlation"),
        Line("sec. 5, [13]", Text("Synthesis by principal components", "主成分分析による合成"), "kasuri.shuffle.synthesis",
             "kasuri shuffle synthesize --method", "named", "method pca"),
        Line("sec. 5, [14]", Text("Synthesis by regression, column by column", "線形回帰による逐次合成"),
             "kasuri.shuffle.synthesis.sequence", "kasuri shuffle synthesize --method", "named", "method regression"),
        Line("sec. 5, [15]", Text("Synthesis by support vector machines", "SVM による合成"),
             "kasuri.shuffle.synthesis.sequence", "kasuri shuffle synthesize --method", "named", "method svm, least squares",
             Text("the hinge has no unbiased value on a noisy row, the square has", "ヒンジ損失は雑音付きの行で不偏推定できない")),
    ]  # fmt: skip
    for mechanism, table in use["mechanisms"].items():
        cells = [table["covariance"][-2], table["correlation"][-2]]
        shown = ", ".join("unknown" if value is None else f"{value:.4f}" for value in cells)
        out.append(
            Line(f"sec. 4, {mechanism}", Text("Covariance and correlation error off the diagonal at epsilon 12 of a row",
                                              "対角外の共分散・相関の誤差（行あたり ε = 12）"), f"{here}.utility", show,
                 Text("not printed: mixed with the diagonal", "掲載なし：対角と混在"), shown, diagonal)
        )  # fmt: skip
    return out
