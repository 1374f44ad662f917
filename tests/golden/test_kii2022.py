"""Kii et al. 2022 beside what is measured here: printed epsilons, one mechanism for every (ca, cb), the baseline."""

import numpy as np
import pytest

from kasuri.reproduce import kii2022 as paper


@pytest.mark.parametrize(("amplified", "local"), [(0.1, 2.34), (0.2, 3.56), (0.5, 5.60), (1.0, 7.53)])
def test_figure_3_in_numbers(amplified, local):
    assert paper.inverse(amplified) == pytest.approx(local, abs=0.006)


def test_figures_1_and_2():
    assert paper.largest_local(10**6, 1e-10) == pytest.approx(7.88, abs=0.01)  # the paper: about 8 at most
    assert paper.largest_local(10**3, 1e-10) == pytest.approx(0.97, abs=0.01)


def test_figure_4_only_the_ratio_matters():
    assert paper.ratios()["same"]


def test_figure_7_is_the_identity_matrix():
    data = paper.adult()
    truth = np.stack([data[name] for name in paper.COLUMNS])
    assert truth.shape == (6, 30_162) and truth.min() == -1 and truth.max() == 1
    corr = np.corrcoef(truth)
    assert np.abs(corr - np.eye(6)).mean() == pytest.approx(0.054, abs=0.002)


def test_text_and_figure_are_made(tmp_path):
    use = {"n": 5, "epsilons": [1.0], "identity": 0.05, "zero_covariance": 0.004, "mechanisms": {}}
    for name in paper.MECHANISMS:
        use["mechanisms"][name] = {"covariance": [0.1], "diagonal": [None], "correlation": [None], "as_printed": [0.05]}
    rows = {name: [0.1] * 3 for name in ("theorem 3", "clones 2023", "blanket", "attack")}
    result = {
        "printed": {"0.1": {"measured": 2.34, "printed": 2.4}},
        "counter_example": {"10000": {"theorem 4": 0.248, "attack": 0.486, "ours": 0.605}},
        "figure3": {"local": [1, 2, 3], "n": {"10000": rows, "1000000": rows}},
        "figure4": {"same": True},
        "as_printed": paper.as_the_paper(1),
        "figures5to7": use,
    }
    assert "unknown" in paper.text(result)
    paper.figure(result, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
