"""The samplers against exact laws in decimals, with power, and the tie path forced; benchmarks/samplers.py is the long
form (every word enumerated, 10^9 samples of a scale)."""

from fractions import Fraction

import numpy as np
import pytest
from reference import samplers as law

from kasuri.noise import samplers as noise
from kasuri.noise.rng import Streams, seeded

N = 1 << 22
ALPHA = 1e-6
SCALES = [Fraction(1, 2), Fraction(1), Fraction(10), Fraction(100), Fraction(1000)]


def histogram(sampler, bins, block):
    stream = Streams(seeded(7).release_key(), "test").open("noise", 0, block)
    return bins.count(sampler.draw(stream, N))


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_samples_have_their_law_to_the_tail(scale):
    upper, step = law.laplace(scale), Fraction(1, 1000)
    bins = law.Bins.of(upper, float(scale))
    chances = bins.chances(upper)
    assert abs(chances.sum() - 1) < 1e-12
    score = law.score_of(upper, law.laplace(scale * (1 + step)), float(step), bins)
    found = histogram(noise.discrete_laplace(scale), bins, 0)
    assert min(law.judge(found, chances, score).values()) > ALPHA
    least = law.least_error(chances, score, N, ALPHA)
    assert least < 0.004
    for block, wrong in ((1, scale * (1 + Fraction(least))), (2, scale * (1 - Fraction(least)))):
        planted = histogram(noise.discrete_laplace(wrong.limit_denominator(10**6)), bins, block)
        assert min(law.judge(planted, chances, score).values()) < ALPHA


def test_the_judge_finds_a_cut_tail_and_a_leaning_sign():
    scale = Fraction(10)
    upper = law.laplace(scale)
    bins = law.Bins.of(upper, 10.0)
    chances, samples = bins.chances(upper), noise.discrete_laplace(scale).draw(_stream(3), N)
    score = law.score_of(upper, law.laplace(scale * Fraction(1001, 1000)), 0.001, bins)

    def worst(some):
        found = law.judge(bins.count(some), chances, score)
        return min(found, key=found.get), min(found.values())

    assert worst(samples)[1] > ALPHA
    name, p = worst(np.where(np.abs(samples) > 100, np.sign(samples) * 100, samples))  # 1 in 22,000 is moved
    assert p < ALPHA and name not in ("centre", "scale", "sign")
    name, p = worst(np.where((samples < 0) & (np.arange(N) % 128 == 0), -samples, samples))
    assert p < ALPHA


def _stream(block):
    return Streams(seeded(7).release_key(), "test").open("noise", 0, block)


TIED = [(noise.discrete_laplace, law.laplace, Fraction(1, 2)), (noise.discrete_laplace, law.laplace, Fraction(10)),
        (noise.discrete_laplace, law.laplace, Fraction(700)),
        (noise.discrete_gaussian, law.gaussian, Fraction(4))]  # fmt: skip


@pytest.mark.parametrize(("make", "of", "scale"), TIED)
def test_a_tied_word_changes_its_outcome_where_the_exact_law_says(make, of, scale):
    """u = T_x: of the bits that follow, the least that give less than x are searched, in the first 64 and the next."""
    sampler, chance = make(scale), law.size(of(scale))
    last = sampler.one.thresholds.size
    for x in sorted({1, 2, 3, last // 2, last - 1, last, last + 3}):
        u = int(sampler.one.thresholds[x - 1]) if x < last else 0
        for turn in (0, 1):
            wanted = law.turning_point(chance(x), u, 31, turn)
            assert law.found_turning_point(lambda more, u=u: sampler.decide(u << 1, more), x, wanted, turn), (x, turn)


def test_both_digits_are_settled_exactly():
    scale = Fraction(1000)
    sampler = noise.discrete_laplace(scale)
    base, high = sampler.base, (1 << 31) - 1
    one = int(sampler.q.thresholds[1]) + 1  # a word that gives Q = 1
    of_q, of_zero, of_rest = law.digits(scale, base)
    cases = [
        (of_q, 32, sampler.q, lambda u, more: sampler.decide(u << 32 | high << 1, lambda t: more(t // 2)) // base),
        (of_zero, 31, sampler.zero,
         lambda u, more: sampler.decide(((1 << 32) - 1) << 32 | u << 1, lambda t: more(t // 2)) % base),
        (of_rest, 31, sampler.rest,
         lambda u, more: sampler.decide(one << 32 | u << 1, lambda t: more(t // 2)) % base),
    ]  # fmt: skip
    for chance, bits, table, size_of in cases:
        for x in (1, 2, table.thresholds.size - 1):
            u = int(table.thresholds[x - 1])
            for turn in (0, 1):
                wanted = law.turning_point(chance(x), u, bits, turn)
                assert law.found_turning_point(lambda more, u=u, f=size_of: f(u, more), x, wanted, turn), (bits, x)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(10), Fraction(100)])
def test_every_tie_and_no_other_word_asks_for_more_bits(scale):
    """Words at, beside and between all thresholds, through `draw`: the ties ask, each with its own number."""
    sampler = noise.discrete_laplace(scale)
    thresholds = np.unique(sampler.one.thresholds.astype(np.int64))
    near = thresholds[:, None] + np.arange(-3, 4)
    u = np.unique(near[(near >= 0) & (near < 1 << 31)])
    exact = [int(law.size(law.laplace(scale))(x) * (1 << 31)) for x in range(1, sampler.one.thresholds.size + 1)]
    assert np.array_equal(np.unique([*exact, 0]), thresholds)
    asked: list[int] = []

    class Words:
        drawn = 0

        def fill(self, out):
            out[:] = u[self.drawn : self.drawn + out.size] << 1
            self.drawn += out.size

        def tie(self, word, turn):
            asked.append(word)
            return 1 << 63

    words, got = Words(), []
    for start in range(0, u.size, 40):  # few at a time: `draw` refuses more ties than chance gives
        got.append(sampler.draw(words, min(40, u.size - start)))
    assert np.array_equal(u[np.unique(asked)], thresholds)
    plain = ~np.isin(u, thresholds)
    wanted = (u[plain, None] < np.array(exact)[None, :]).sum(axis=1)
    assert np.array_equal(np.concatenate(got)[plain], wanted)
