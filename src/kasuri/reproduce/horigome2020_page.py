"""The lines and pictures of appendix A of [Horigome2020] on the page of all papers."""

from __future__ import annotations

from typing import Any

from kasuri.report.frame import Text
from kasuri.reproduce.horigome2020 import (
    FULL,
    PEOPLE,
    PRINTED,
    PRINTED_A4,
    PRINTED_CORRELATION,
    PRINTED_DIFFERENCE,
    WARDS,
    figure,
    figure_laws,
    figure_times,
    figure_wards,
    spread,
    text,
)
from kasuri.reproduce.paper import Chapter, Line, Picture, numbers, pairs, runs_told


def pictures(result: dict[str, Any]) -> list[Picture]:
    """Figures A.1-A.4 and A.6-A.20."""
    return [
        Picture("horigome2020-ldp-a1-a4", Text("Horigome 2020, Figures A.1-A.4", "堀込 2020 図 A.1〜A.4"),
                lambda path: figure_laws(result, path)),
        Picture("horigome2020-ldp-a6-a11", Text("Horigome 2020, Figures A.6-A.11", "堀込 2020 図 A.6〜A.11"),
                lambda path: figure_wards(result, path)),
        Picture("horigome2020-ldp-a12-a14", Text("Horigome 2020, Figures A.12-A.14 and Table A.5",
                                                 "堀込 2020 図 A.12〜A.14 と表 A.5"),
                lambda path: figure(result, path)),
        Picture("horigome2020-ldp-a15-a20", Text("Horigome 2020, Figures A.15-A.20: error by epsilon and time",
                                                 "堀込 2020 図 A.15〜A.20：時刻別の誤差 S"),
                lambda path: figure_times(result, path)),
    ]  # fmt: skip


def ran(result: dict[str, Any]) -> Text:
    """How often each setting was run."""
    many = result["at_five"]["runs"]
    more = Text(
        f" The wards at 17:00 (A.4.4, Figures A.10-A.11): {many} runs.",
        f"17 時の各区（A.4.4、図 A.10〜A.11）は {many} 回。",
    )
    return runs_told(result["runs"], FULL, more)


def chapter(result: dict[str, Any]) -> Chapter:
    """The appendix' lines on the page."""
    title = Text(
        "Horigome 2020, appendix A: locations under local DP", "堀込 2020 付録 A：局所差分プライバシーによる位置情報"
    )
    return Chapter("horigome2020-ldp", title, ran(result), lines(result), pictures(result), text(result))


def lines(result: dict[str, Any]) -> list[Line]:
    """Every system, algorithm, claim, table and figure of the appendix."""
    show, here = "kasuri reproduce horigome2020 --part ldp", "kasuri.reproduce.horigome2020"
    drawn, draws = Text("drawn", "描画"), f"{show} --figures DIR"
    spread_words = Text("ten wards as printed, the other 13 by their population", "10 区は掲載値、残る 13 区は人口比")
    found, five = result["correlation"]["measured"], result["at_five"]
    ten = [[WARDS[name][t] for name in WARDS] for t in range(len(PEOPLE))]
    out = [
        Line("Definition 3", Text("Local differential privacy", "局所差分プライバシーの定義"), "docs/proofs/local_categorical.md",
             "pytest tests/distributions/test_local_categorical.py", "odds at most e^ε", "odds of every report enumerated"),
        Line("A.2.2", Text("RAPPOR-type unary reports, p = e^(ε/2)/(1+e^(ε/2))", "RAPPOR 型の単項報告"), "kasuri.local.unary",
             "pytest tests/distributions/test_local_categorical.py", "ε-LDP", "odds exact integers, at most e^ε",
             Text("six reports a day cost a person 6 ε", "1 日 6 回の報告は 1 人あたり 6 ε を消費する")),
        Line("A.3.1", Text("Maximum likelihood from column sums", "列和からの最尤推定"), "kasuri.local.estimators.invert", show,
             "(n' - ℓq)/(p - q)", "the same: method inversion"),
        Line("A.3.2", Text("EM on whole reports", "報告全体に対する EM アルゴリズム"), "kasuri.local.estimators.estimate", show,
             "until the change is at most ε₂ (not printed)", "certified maximum; the thesis' stop at 1e-5 beside it",
             Text("the E-step's denominator is Σ Pr[z given v_j] θ_j; an early stop pulls to equal shares",
                  "E ステップの分母は Σ Pr[z|v_j] θ_j。早期停止は一様分布へ引き寄せる")),
        Line("A.3.2, example", Text("Weights of z = (1, 0, 1, 0)", "z = (1, 0, 1, 0) の重み"), f"{here}.stopped_em",
             "pytest tests/contract/test_papers.py", "p³q : pq³ : p³q : pq³", "the same, tested"),
        Line("Table A.1", Text("Symbols n, n', n̂, n*", "記号表"), "docs/glossary.md", show, "symbols",
             "truth, column sums, inversion, em"),
        Line("Table A.2", Text("People in the 23 wards by time", "時間ごとの 23 区の人口"), f"{here}.PEOPLE", show,
             numbers(list(PEOPLE.values()), 0), numbers([int(spread(t).sum()) for t in PEOPLE], 0)),
        Line("Table A.3", Text("People of ten wards by time", "10 区の時間ごとの人口"), f"{here}.WARDS", show,
             "ten rows", "input of every run", spread_words),
        Line("Table A.4", Text("Mean, largest, least of the ten wards", "10 区の平均・最大・最小"), f"{here}.PRINTED_A4",
             "pytest tests/contract/test_papers.py", "; ".join(numbers(row, 1) for row in PRINTED_A4.values()),
             "; ".join(numbers([f(row) for row in ten], 1) for f in (lambda r: sum(r) / len(r), max, min))),
        Line("Table A.5, MLE", Text("Mean of S by epsilon 0.5, 1, ..., 5", "ε = 0.5, 1, …, 5 の S の平均"), f"{here}.run", show,
             numbers(PRINTED["inversion"], 0), numbers(result["measured"]["inversion"], 0), spread_words),
        Line("Table A.5, EM", Text("Mean of S by epsilon 0.5, 1, ..., 5", "ε = 0.5, 1, …, 5 の S の平均"), f"{here}.run", show,
             numbers(PRINTED["em"], 0), numbers(result["measured"]["em, stopped"], 0),
             Text("at its maximum: " + numbers(result["measured"]["em"], 0),
                  "最大化まで収束させた場合：" + numbers(result["measured"]["em"], 0))),
        Line("A.4.4", Text("Correlation of a ward's error with its population", "誤差と人口の相関"), f"{here}.at_five", show,
             pairs(PRINTED_CORRELATION, 3),
             pairs({"em": found["em, stopped"], "inversion": found["inversion"]}, 3),
             Text(f"ten runs leave 0.2 of uncertainty; here {five['runs']}", f"10 回では 0.2 の不確かさ。ここでは {five['runs']} 回")),
        Line("A.4.4", Text("MLE less EM at 17:00, ε 0.5", "17:00、ε 0.5 の最尤と EM の差"), f"{here}.at_five", show,
             f"{PRINTED_DIFFERENCE:.0f}", f"{five['difference']:.0f}", spread_words),
        Line("Figure A.1", Text("Flip chance q by epsilon: at 0.5, 5", "ε に対する確率 q：0.5, 5"), f"{here}.figure_laws", draws,
             Text("curve", "曲線"), numbers([result["flip"]["0.5"], result["flip"]["5"]], 4)),
        Line("Figure A.2", Text("Law of the ones sent, n = 505, ℓ = 4640", "n' の確率分布"), f"{here}.sent_ones", draws,
             "a sum of two binomial terms at h = np", "convolution of the two binomials",
             Text("the sum over h of products is meant, not a sum of two terms", "2 項の和ではなく h についての積和が正しい")),
        Line("Figure A.3", Text("Estimate by pass", "反復回数による推定値"), f"{here}.course", draws, Text("curves", "曲線"),
             "after 200 passes " + pairs({f"ε {e}": row[-1] for e, row in result["course"].items()}, 0) + "; truth 505"),
        Line("Figure A.4", Text("People of four wards by time", "4 区の人口推移"), f"{here}.figure_laws", draws,
             Text("curves", "曲線"), drawn, Text("Koto is not in Table A.3: by population", "江東区は表 A.3 にない：人口比")),
        Line("Figure A.5", Text("System: position, ward, report, server, estimate", "システム構成"), "src/kasuri/local/collector.py",
             "kasuri local --help", Text("diagram", "構成図"), Text("a phone's page finds the ward of a position, reports, and shows what it sent; collector and estimates run",
                                                                       "端末のページが位置から区を求め、報告し、送った内容を示す。収集・推定も動作")),
        Line("Figures A.6-A.7", Text("Maps at 8:00 and 14:00", "8:00 と 14:00 の地図"), f"{here}.figure_wards", draws,
             Text("maps", "地図"), drawn, spread_words),
        Line("Figures A.8-A.9", Text("Estimates by ward, and against the truth", "区別の推定と真値との散布図"),
             f"{here}.figure_wards", draws, Text("bars, points", "棒・散布図"),
             f"mean of ten runs at the truth's {max(result['maps']['truth'])}: EM {max(five['ten']['em, stopped']):.0f}",
             spread_words),
        Line("Figures A.10-A.11", Text("Maps of the mean absolute error", "平均絶対誤差の地図"), f"{here}.figure_wards", draws,
             Text("maps", "地図"), f"sum over wards: EM {sum(five['mean_error']['em, stopped']):.0f}, "
             f"MLE {sum(five['mean_error']['inversion']):.0f}", spread_words),
        Line("Figures A.12-A.14", Text("Maps: people, sum of reports, EM", "地図：真の人口、報告の和、EM"), f"{here}.figure", draws,
             Text("maps", "地図"), drawn, spread_words),
    ]  # fmt: skip
    for number, (time, rows) in enumerate(result["by_time"].items(), 15):
        out.append(
            Line(f"Figure A.{number}", Text(f"Error S at {time}, ε 0.5 / 2 / 5: MLE; EM", f"{time} の誤差 S（ε 0.5 / 2 / 5）：最尤；EM"),
                 f"{here}.figure_times", draws, Text("curves", "曲線"),
                 "; ".join(numbers([rows[m][i] for i in (0, 3, 9)], 0) for m in ("inversion", "em, stopped")))
        )  # fmt: skip
    return out
