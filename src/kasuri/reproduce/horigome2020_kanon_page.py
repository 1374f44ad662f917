"""The lines and pictures of chapters 2-4 of [Horigome2020] on the page of all papers."""

from __future__ import annotations

from typing import Any

from kasuri.report.frame import Text
from kasuri.reproduce.horigome2020_kanon import FULL, PRINTED_RECORDS, figure, figure_records, text
from kasuri.reproduce.paper import Chapter, Line, Picture, numbers, runs_told


def chapter(result: dict[str, Any]) -> Chapter:
    """The thesis' lines on the page."""
    title = Text("Horigome 2020: k-anonymity audited with epsilon", "堀込 2020：プライバシー費用による k-匿名化の評価")
    pictures = [
        Picture("horigome2020-kanon-figure41", Text("Horigome 2020, Figure 4.1: records by combination",
                                                    "堀込 2020 図 4.1：レコード数分布"),
                lambda path: figure_records(result, path)),
        Picture("horigome2020-kanon", Text("Horigome 2020, Figures 4.2-4.3: realised loss by sampling rate and by k",
                                           "堀込 2020 図 4.2〜4.3：サンプリング率と k による実現損失"),
                lambda path: figure(result, path)),
    ]  # fmt: skip
    return Chapter("horigome2020-kanon", title, runs_told(result["runs"], FULL), lines(result), pictures, text(result))


def lines(result: dict[str, Any]) -> list[Line]:
    """Every algorithm, claim, table and figure of chapters 2-4."""
    show, here = "kasuri reproduce horigome2020 --part kanon", "kasuri.reproduce.horigome2020_kanon"
    realised = Text("it is the realised loss of one output, not a guarantee: infinite where a class is sampled whole",
                    "1 つの出力の実現損失であり保証ではない：全員が抽出された組では無限大")  # fmt: skip
    out = [
        Line("Definition 1", Text("epsilon-DP", "ε-差分プライバシー"), "kasuri.privacy.Guarantee", "kasuri kanon audit --help",
             "Pr[A(D) = S]", "the audit's epsilon is never called a guarantee", realised),
        Line("Definition 2", Text("k-anonymity", "k-匿名性"), "kasuri.kanon.specialize", "pytest tests/laws/test_kanon_laws.py",
             "each class at least k", "each class at least k, tested"),
        Line("sec. 2.3, Figure 2.1", Text("Trees of work and age", "業種と年齢の一般木"), "src/kasuri/reproduce/adult/thesis.toml",
             show, "six leaves each", "six decades of age, six classes of work"),
        Line("sec. 2.4", Text("NCP: [10s-20s, Government]", "NCP：[10s-20s, Government]"), "kasuri.kanon.hierarchy",
             "pytest tests/golden/test_kanon_golden.py", "2/6 + 3/6 = 5/6", "5/6"),
        Line("sec. 2.4", Text("Top-down specialisation by least NCP, global recoding", "NCP 最小の属性による細分化（大域的再符号化）"),
             "kasuri.kanon.specialize", "pytest tests/laws/test_kanon_laws.py", "algorithm",
             "equal to a slow twin, no split left that keeps k"),
        Line("Proposition 1", Text("Loss of sampling alone: ln(1-β) - ln(1 - s/n)", "サンプリングのみの損失"), "kasuri.kanon.audit",
             "pytest tests/golden/test_kanon_golden.py", "called epsilon-DP", "realised loss of a class, both directions", realised),
        Line("sec. 3.2", Text("Loss of sampling, then k-anonymising: ln(d(1-β)/(d-n))", "サンプリング + k-匿名化の損失"),
             "kasuri.kanon.audit", "kasuri kanon audit --help", "d(1-β)/(d-n) at most e^ε",
             "the same value per class, and the theorem of Li, Qardaji and Su for a fixed generalisation",
             Text("a cut that follows the data makes it neither an upper nor a lower bound", "データに依存する分割では上界でも下界でもない")),
        Line("sec. 4.2, Figure 4.1", Text("Records of Adult without missing values", "欠損のない Adult のレコード数"),
             f"{here}.records", f"{show} --figures DIR", f"{PRINTED_RECORDS:,}",
             f"{sum(result['records']):,} in {len(result['records']):,} combinations",
             Text("one fewer: UCI's two files have 45,222 complete rows", "UCI の 2 ファイルの完全な行は 45,222 行")),
    ]  # fmt: skip
    for cut in result["cuts"]:
        out.append(
            Line(f"Figure {cut['figure']}", Text(f"Cut of age at k = {cut['k']}", f"k = {cut['k']} の年齢の一般化"), f"{here}.cuts",
                 show, ", ".join(cut["drawn"]), ", ".join(cut["found"]))
        )  # fmt: skip
    unmatched = Text("a mean of ten runs cannot have the printed value; the trend can be checked",
                     "10 回の平均が掲載値になることはあり得ない。傾向のみ確認できる")  # fmt: skip
    for s in result["settings"]:
        out.append(
            Line(f"Table 4.1, β {s['sampling_rate']}, k {s['k']}", Text("Largest finite realised loss, mean (deviation)",
                                                                      "有限な実現損失の最大、平均（標準偏差）"), f"{here}.run", show,
                 f"{s['printed_mean']:.3f} ({s['printed_deviation']:.3f})", f"{s['mean']:.3f} ({s['deviation']:.3f}), infinite in "
                 f"{s['infinite']} of {result['runs']} runs", unmatched)
        )  # fmt: skip
    by_rate = [s["mean"] for s in result["settings"] if s["k"] == 10]
    by_k = [
        s["mean"] for s in sorted((s for s in result["settings"] if s["sampling_rate"] == "0.2"), key=lambda s: s["k"])
    ]
    out += [
        Line("Figure 4.2", Text("Loss by sampling rate at k = 10", "サンプリング率による変化"), f"{here}.figure", f"{show} --figures DIR",
             Text("rises", "増加"), numbers(by_rate, 3), unmatched),
        Line("Figure 4.3", Text("Loss by k = 3, 5, 10, 15 at rate 0.2", "k = 3, 5, 10, 15 による変化"), f"{here}.figure",
             f"{show} --figures DIR", Text("falls", "減少"), numbers(by_k, 3), unmatched),
    ]  # fmt: skip
    return out
