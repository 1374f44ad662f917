"""The patent behind [Terada2015], claim by claim, figure by figure: [JP6310345B2].

The results are those of the paper's reproduction. Claims 3 to 6 are listed in the words of the description: the text at
hand prints the independent claims alone.
"""

from __future__ import annotations

from typing import Any

from kasuri.report.frame import Text
from kasuri.reproduce.paper import Chapter, Line
from kasuri.reproduce.terada2015_page import ran


def chapter(result: dict[str, Any]) -> Chapter:
    """The patent's lines on the page; `result` is that of `terada2015`."""
    title = Text("Patent JP6310345B2: device, method, database", "特許 6310345：装置・方法・データベース作成方法")
    return Chapter("jp6310345b2", title, ran(result), lines(result))


def lines(result: dict[str, Any]) -> list[Line]:
    """Claims 1-10, the embodiments and Figures 1-8."""
    show, release = "kasuri reproduce terada2015", "kasuri release --help"
    table, own = result["table"], result["coefficients"]
    none = f"cells below 0: {table['Proposed']['negative_cells']:g}"
    same = f"cells below 0: {table['Proposed (float Haar)']['negative_cells']:g}"
    scale = Text("2(1+k)/ε is for a record that moves; 2k/ε is tight, since the root does not change",
                 "2(1+k)/ε はレコードの移動に対する値。根は変わらないので 2k/ε で足りる")  # fmt: skip
    twice = Text("the same as claim 2 in law, exactly enumerated", "請求項 2 と出力の分布が等しい（厳密に列挙）")
    return [
        Line("Claim 1", Text("Device: transform, noise, refinement, inverse, output", "装置：変換・乱数付与・精緻化・逆変換・出力"),
             "kasuri.recipes.wavelet.Refined", "pytest tests/laws/test_topdown.py", Text("no cell below 0", "負値なし"), none, twice),
        Line("Claim 2", Text("Device: noise and refinement in one fast pass", "装置：乱数付与と精緻化を同時に行う高速変換"),
             "kasuri.recipes.descent", show, Text("no cell below 0", "負値なし"), none),
        Line("Claim 3", Text("The transform is Haar", "第 1 線形変換は Haar ウェーブレット変換"), "kasuri.trees.transform.haar", show,
             Text("no cell below 0", "負値なし"), same),
        Line("Claim 4", Text("Laplace or geometric noise", "ラプラス乱数または幾何乱数"), "kasuri.noise.laws",
             "pytest tests/distributions/test_noise.py", "Lap(λ/2^i), λ = 2(1+k)/ε",
             "exact discrete Laplace on integers; floating-point Laplace to compare", scale),
        Line("Claim 5", Text("Details are corrected so that no approximation is below 0", "近似係数が負とならないよう詳細係数を補正"),
             "kasuri.refine.topdown", "pytest tests/laws/test_topdown.py", "|cD| at most cA", "the same, from the top"),
        Line("Claim 6", Text("Sparse input: only cells that are not 0 are transformed", "疎データ形式：非 0 のみ変換"),
             "kasuri.recipes.engine", "pytest tests/laws/test_equal_in_law.py", "O(m log n)", "equal in law to the dense form"),
        Line("Claim 7", Text("Method of claim 1", "請求項 1 の方法"), "kasuri.draw.release", release, Text("no cell below 0", "負値なし"), none),
        Line("Claim 8", Text("Method of claim 2", "請求項 2 の方法"), "kasuri.draw.release", release, Text("no cell below 0", "負値なし"), none),
        Line("Claim 9", Text("A database of the protected table", "保護された集計データのデータベース作成"), "kasuri.store",
             release, Text("database", "データベース"), "DuckDB, SQLite, PostgreSQL, Parquet"),
        Line("Claim 10", Text("The same by the fast pass", "高速変換によるデータベース作成"), "kasuri.store", release,
             Text("database", "データベース"), "DuckDB, SQLite, PostgreSQL, Parquet"),
        Line("eq. 11", Text("One coefficient with Lap(λ/2^i)", "係数 1 個の保護"), "docs/proofs/haar_topdown.md",
             "pytest tests/laws/test_sensitivity.py", "λ-DP", "(1/λ)-DP", Text("the patent has it upside down", "逆数の誤り")),
        Line("eq. 12-32", Text("Refinement and fast refinement", "精緻化と高速変換"), "kasuri.refine.topdown",
             "pytest tests/laws/test_equal_in_law.py", "expectation of every cell kept", "only that of the total",
             Text("measured: +3.1 on empty cells, -13.2 on cells of 100 and more at ε 0.1", "測定：空のセルで +3.1、100 以上で -13.2")),
        Line("eq. 33-36", Text("Sum-difference decomposition", "和差分解"), "kasuri.trees.transform.sum_difference",
             "pytest tests/laws/test_transform.py", "Lap(GS/ε) on all", "the default: integers throughout"),
        Line("embodiments", Text("Nominal wavelet", "Nominal ウェーブレット変換"), "kasuri.trees.transform.nominal",
             "pytest tests/laws/test_transform.py", "named", 'haar_topdown(transform="nominal")'),
        Line("embodiments", Text("Fourier transform", "フーリエ変換"), "kasuri.recipes.fourier", show, "named as a tree",
             "built as Barak et al.: noise, linear program",
             Text("it does not satisfy the patent's tree condition", "特許の木構造の条件を満たさない")),
        Line("embodiments", Text("Data of several dimensions", "多次元のデータ系列"), "docs/proofs/standard_decomposition.md", show,
             "named", "two axes coefficient by coefficient; any number axis by axis; Morton for use",
             Text("from three axes on no clamp of coefficients can be non-negative", "3 軸以上では係数ごとの精緻化は不可能")),
        Line("embodiments", Text("Output of the refined coefficients W+ in place of V+", "V+ に代えて W+ を出力"),
             "kasuri.reproduce.terada2015.refined_coefficients", show, "named",
             f"{own['coefficients']:,} coefficients, {own['nonzero']:,} not 0; inverse equals V+: "
             f"{'yes' if own['inverse_equal'] else 'no'}"),
        Line("Figures 1-2, 7", Text("Parts of the two devices", "装置の構成"), "docs/architecture.md", release,
             Text("block diagrams", "構成図"), Text("one function per block", "各ブロックに 1 関数")),
        Line("Figures 3-5", Text("Example of eight cells: W, W*, W+", "8 セルの例"), "kasuri.trees.transform",
             "pytest tests/laws/test_transform.py", Text("tree of coefficients", "係数の木"), "the same layout, (cA | cD ... )"),
        Line("Figures 6, 8", Text("Flow charts", "フローチャート"), "docs/architecture.md", release, Text("steps", "手順"),
             "refine(transform(counts) + noise)"),
    ]  # fmt: skip
