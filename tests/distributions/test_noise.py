"""Exact noise: tables against exact arithmetic, the law of samples with power, the tie path forced."""

import math
from decimal import Decimal, getcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from reference.statistics import ALPHA, chi_square

from kasuri.errors import NumericsError
from kasuri.noise import samplers as noise
from kasuri.noise.rng import Streams, seeded

getcontext().prec = 90
SCALES = [Fraction(1, 50), Fraction(1, 3), Fraction(1), Fraction(19, 2), Fraction(190), Fraction(700), Fraction(701),
          Fraction(10_000), Fraction(123_457, 3), Fraction(1 << 24)]  # fmt: skip


def stream(seed, purpose="noise", block=0):
    return Streams(seeded(seed).release_key(), "test").open(purpose, 0, block)


def wide(scale: Fraction, bits: int, digit_bits: int):
    first = partial(noise._twice_over, scale)
    return noise._wide(scale, noise.laplace_survival(scale), first, bits, digit_bits)


def survival(scale: Fraction, x: int) -> Decimal:
    a = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
    return 2 * a**x / (1 + a)


@pytest.mark.parametrize(
    "t", [Fraction(0), Fraction(1, 10**9), Fraction(1, 2), Fraction(22, 7), Fraction(61), Fraction(500)]
)
def test_exp_interval_holds_the_value_and_is_narrow(t):
    for w in (64, 200):
        low, high = noise.exp_minus(t, w)
        value = (-Decimal(t.numerator) / Decimal(t.denominator)).exp() * 2**w
        assert low <= value <= high
        assert high - low <= 2


@pytest.mark.parametrize("scale", SCALES[:6])
def test_one_digit_table_is_the_exact_floor(scale):
    table = noise.discrete_laplace(scale).one
    assert table.thresholds[-1] == 0
    for x in range(1, table.thresholds.size + 3):
        exact = int(survival(scale, x) * 2**31)
        assert exact == (int(table.thresholds[x - 1]) if x < table.thresholds.size else 0)


@pytest.mark.parametrize("scale", SCALES[6:])
def test_two_digit_tables_are_the_exact_floors(scale):
    s = noise.discrete_laplace(scale)
    a = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
    c, big = 2 / (1 + a), a**s.base
    for q in range(1, s.q.thresholds.size, 7):
        assert int(c * big**q * 2**32) == s.q.thresholds[q - 1]
    for r in range(1, s.base, max(1, s.base // 200)):
        assert int((a**r - big) / (1 - big) * 2**31) == s.rest.thresholds[r - 1]
        assert int((c * a**r - c * big) / (1 - c * big) * 2**31) == s.zero.thresholds[r - 1]


@pytest.mark.parametrize("scale", SCALES[:6])
def test_look_up_is_the_slow_rule_on_edges(scale):
    """Words at, just above and just below thresholds, and random ones: the kernel agrees with exact decisions."""
    sampler = noise.discrete_laplace(scale)
    rng = np.random.default_rng(3)
    edges = sampler.one.thresholds[rng.integers(0, sampler.one.thresholds.size, 40)].astype(np.int64)
    u = np.unique(
        np.clip(np.concatenate((edges - 1, edges, edges + 1, rng.integers(0, 1 << 31, 100))), 0, (1 << 31) - 1)
    )
    words = ((u << 1) | rng.integers(0, 2, u.size)).astype(np.uint32)

    class Fixed:
        drawn = 0

        def fill(self, out):
            out[:] = words

        def tie(self, word, turn):
            return (word * 0x9E3779B97F4A7C15 + turn) % (1 << 64)

    got = sampler.draw(Fixed(), words.size)
    for i, word in enumerate(words.tolist()):
        bits = word >> 1
        for turn in range(2):
            bits = (bits << 64) | Fixed().tie(i, turn)
        uniform = Decimal(bits) / Decimal(2 ** (31 + 128))
        x = int(abs(got[i]))
        assert x == 0 or uniform < survival(scale, x)
        assert uniform >= survival(scale, x + 1)
        assert x == 0 or (got[i] < 0) == bool(word & 1)


def gof(samples: np.ndarray, scale: float) -> float:
    """p-value that integer samples are discrete Laplace of `scale`: |x| in about 60 bins, and the sign."""
    a = math.exp(-1 / scale)
    x = np.abs(samples)
    edges = np.unique(np.floor(np.linspace(0, 6 * scale + 6, 60))).astype(int)
    tail = np.where(edges == 0, 1.0, 2 * np.exp(-edges / scale) / (1 + a))
    expected = np.append(tail[:-1] - tail[1:], tail[-1]) * samples.size
    observed = np.bincount(np.searchsorted(edges, x, side="right") - 1, minlength=expected.size)
    moved = samples[samples != 0]
    signs = chi_square(np.array([(moved > 0).sum(), (moved < 0).sum()]), np.full(2, moved.size / 2))
    return min(chi_square(observed, expected), signs)


@pytest.mark.parametrize("scale", SCALES[1:])
def test_law_of_the_samples_and_power(scale):
    samples = noise.discrete_laplace(scale).draw(stream(1), 200_000)
    assert gof(samples, float(scale)) > ALPHA
    assert gof(samples, float(scale) * 0.8) < ALPHA
    assert gof(samples, float(scale) * 1.25) < ALPHA
    assert gof(np.where(samples == 1, -1, samples), float(scale)) < ALPHA or scale > 100


def test_the_helper_rejects_shifts_and_clipping():
    samples = noise.discrete_laplace(Fraction(10)).draw(stream(2), 200_000)
    assert gof(samples + 1, 10.0) < ALPHA
    assert gof(np.clip(samples, -30, 30), 10.0) < ALPHA
    assert gof(np.abs(samples), 10.0) < ALPHA


def test_tiny_scale_is_almost_always_zero_but_not_by_rounding():
    sampler = noise.discrete_laplace(Fraction(1, 50))  # P(|X| >= 1) = 3.9e-22: only the tie path can give it
    assert not sampler.draw(stream(3), 10_000).any()
    assert (
        sampler.decide(0, lambda turn: 1 if turn == 1 else 0) == 2
    )  # U = 2^-159 lies between P(|X| >= 3) and P(|X| >= 2)
    assert sampler.decide(0, lambda turn: (1 << 64) - 1) == 0


@pytest.mark.parametrize("scale", [Fraction(5), Fraction(2000), Fraction(1 << 45)])
def test_cuts_change_nothing(scale):
    sampler = noise.discrete_laplace(scale)
    whole = sampler.draw(stream(4), 50_000)
    cut, s = [], stream(4)
    for size in (1, 2, 100, 16_384, 16_385, 17_128):
        cut.append(sampler.draw(s, size))
    assert np.array_equal(whole, np.concatenate(cut))


def test_ties_are_settled_by_their_own_word(monkeypatch):
    """Force every word onto a threshold: the law must still be right, since further bits decide."""
    scale = Fraction(3)
    sampler = noise.discrete_laplace(scale)
    threshold = int(sampler.one.thresholds[1])  # u = T_2: |X| is 1 or more, and at least 2 with probability frac
    source = stream(5)

    class Tied:
        drawn = 0

        def fill(self, out):
            out[:] = threshold << 1
            self.drawn += out.size

        def tie(self, word, turn):
            return source.tie(word, turn)

    got = np.concatenate([sampler.draw(tied, 64) for tied in [Tied()] for _ in range(40)])
    fraction = float(survival(scale, 2) * 2**31 - threshold)
    assert set(np.unique(got)) <= {1, 2}
    assert (
        chi_square(np.array([(got == 1).sum(), (got == 2).sum()]), got.size * np.array([1 - fraction, fraction]))
        > ALPHA
    )


WIDE = [Fraction((1 << 24) + 1), Fraction(3 * 10**9, 7), Fraction(1 << 40), Fraction(1 << 55)]


@pytest.mark.parametrize("scale", WIDE)
def test_the_digits_of_a_wide_scale_are_the_exact_floors(scale):
    s = noise.discrete_laplace(scale)
    a = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
    c, big = 2 / (1 + a), a ** (s.wide * s.high.base)
    assert math.prod(len(law.one.thresholds) for _, law in s.low) == s.wide
    for q in range(1, s.high.q.thresholds.size, 97):
        assert int(c * big**q * 2**32) == s.high.q.thresholds[q - 1]
    for factor, law in s.low:
        radix = law.one.thresholds.size
        whole = a ** (factor * radix)
        for d in {1, 2, radix - 1, *range(1, radix, max(1, radix // 50))} - {radix}:
            assert int((a ** (factor * d) - whole) / (1 - whole) * 2**31) == law.one.thresholds[d - 1]


@pytest.mark.parametrize("scale", WIDE)
def test_law_of_wide_scales_and_power(scale):
    samples = noise.discrete_laplace(scale).draw(stream(6), 100_000)
    assert gof(samples, float(scale)) > ALPHA
    assert gof(samples, float(scale) * 0.8) < ALPHA
    assert gof(samples, float(scale) * 1.25) < ALPHA
    for shift in range(0, int(scale).bit_length() - 8, 6):  # digits that hardly feel the law are uniform
        assert (
            chi_square(np.bincount((np.abs(samples) >> shift) % 64, minlength=64), np.full(64, samples.size / 64))
            > ALPHA
        )


@pytest.mark.parametrize(("bits", "digit_bits"), [(1, 16), (2, 1), (3, 2)])
def test_the_wide_form_has_the_law_of_every_integer(bits, digit_bits):
    """The same construction at a scale where every value is seen often, H = 0 among them: |x| one by one."""
    scale = Fraction(16 << bits)
    sampler = wide(scale, bits, digit_bits)
    samples = np.abs(sampler.draw(stream(9), 20_000))
    a = math.exp(-1 / scale)
    reach = np.arange(5 * int(scale))
    tail = np.where(reach == 0, 1.0, 2 * a**reach / (1 + a))
    expected = np.append(tail[:-1] - tail[1:], tail[-1]) * samples.size
    observed = np.bincount(np.minimum(samples, reach[-1]), minlength=reach.size)
    assert chi_square(observed, expected) > ALPHA
    moved = np.where(samples == 1, 0, samples)  # the helper sees one value displaced
    assert chi_square(np.bincount(np.minimum(moved, reach[-1]), minlength=reach.size), expected) < ALPHA


def test_a_wide_word_is_decided_as_its_bits_say():
    """H = 0 by the second word alone, both signs; and beyond 2^62 nothing is returned."""
    sampler = wide(Fraction(64), 2, 16)
    a = (-Decimal(1) / Decimal(64)).exp()
    c, big = 2 / (1 + a), a**4

    class Fixed:
        drawn = 0

        def __init__(self, *words):
            self.words = words

        def fill(self, out):
            out[:] = self.words
            self.drawn += out.size

        def tie(self, word, turn):
            return 0 if turn < 8 else 1 << 63

    top = (1 << 32) - 1 << 32  # the largest U: Q = 0, and R = 0 with the low bits set as well
    for second in (0, 1 << 62, 3 << 62, (1 << 64) - 1):
        u = Decimal(second) / Decimal(2**64)
        size = sum(u < (c * a**x - c * big) / (1 - c * big) for x in range(1, 4))
        for sign in (0, 1):
            got = sampler.draw(Fixed(top | 0xFFFFFFFE | sign, second), 1)[0]
            assert got == (-size if sign else size)
    huge = noise.discrete_laplace(Fraction(1 << 55))
    with pytest.raises(NumericsError, match="2\\^62"):
        huge.draw(Fixed(0, 0), 1)


@pytest.mark.parametrize("scale", [WIDE[0], WIDE[2]])  # one digit below the high part, and two
def test_no_further_bits_of_a_wide_draw_are_used_twice(scale):
    """Every word of several pairs tied, in each digit and for several turns: no number of bits is asked for twice, and
    each is asked for by its own word."""
    sampler = noise.discrete_laplace(scale)
    high, turns, pairs = sampler.high, 3, 20
    first = int(high.q.thresholds[0]) << 32 | int(high.rest.thresholds[0]) << 1
    second = sum(int(law.one.thresholds[0]) << (32 * j + 1) for j, (_, law) in enumerate(sampler.low))
    laws = [(high.digits[0], high.q, 32), (high.digits[2], high.rest, 31)]
    laws += [(law.survival, law.one, 31) for _, law in sampler.low]
    asked = []

    def more(law, turn):
        """Bits that leave the digit undecided for some turns: those of the probability itself."""
        chance, table, bits = law
        low, high = chance(1, bits + 64 * (turns + 2))
        assert low >> 64 * (turns + 1) == high >> 64 * (turns + 1)
        assert low >> 64 * (turns + 2) == table.thresholds[0]
        return 0 if turn >= turns else (low >> 64 * (turns + 1 - turn)) % (1 << 64)

    class Tied:
        drawn = 0

        def fill(self, out):
            out[::2], out[1::2] = first, second
            self.drawn += out.size

        def tie(self, word, turn):
            asked.append((word, turn))
            own = laws[2:] if word & 1 else laws[:2]
            return more(own[turn % len(own)], turn // 2)

    tied = Tied()
    for _ in range(3):
        sampler.draw(tied, pairs)
    digits = {0: 2, 1: len(sampler.low)}
    wanted = {
        (word, 2 * turn + j) for word in range(6 * pairs) for j in range(digits[word & 1]) for turn in range(turns + 1)
    }
    assert len(asked) == len(set(asked)) and set(asked) == wanted


WIDER = [(Fraction(1, 50), Fraction(1, 10)), (Fraction(10), Fraction(40)), (Fraction(250, 3), Fraction(100)),
         (Fraction(10), Fraction(2000)), (Fraction(1 << 20), Fraction(1 << 26, 3))]  # fmt: skip


def tail(scale: Fraction, wider: Fraction) -> tuple[Decimal, Decimal]:
    """(c, a) of P(|M| >= x) = c a^x, where E z^M is the quotient of both laws' generating functions."""
    a, b = ((-Decimal(s.denominator) / Decimal(s.numerator)).exp() for s in (wider, scale))
    zero = b / a * ((1 - a) / (1 - b)) ** 2
    return 2 * (1 - zero) / (1 + a), a


@pytest.mark.parametrize(("scale", "wider"), WIDER)
def test_widening_tables_are_the_exact_floors(scale, wider):
    c, a = tail(scale, wider)
    for w in (64, 200):
        low, high = noise.widening_tail(scale, wider, w)
        assert low <= c * 2**w <= high and high - low <= 2
    sampler = noise.widening(scale, wider)
    table, base, bits = (sampler.one, 1, 31) if sampler.one else (sampler.q, sampler.base, 32)
    if table is not None:
        for x in range(1, min(table.thresholds.size, 300)):
            assert int(table.thresholds[x - 1]) == int(c * a ** (base * x) * 2**bits)


@pytest.mark.parametrize(("scale", "wider"), [(Fraction(2, 3), Fraction(5, 3)), (Fraction(5), Fraction(6))])
def test_noise_made_wider_is_discrete_laplace_exactly(scale, wider):
    """The convolution number by number; without the part at 0 it is not."""
    c, a = tail(scale, wider)
    reach = 60 + int(80 * wider)
    b = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()

    def law(x):
        return (1 - b) / (1 + b) * b ** abs(x)

    def more(x):
        return 1 - c * a if x == 0 else c * (1 - a) * a ** abs(x) / 2

    for x in (0, 1, 2, 7):
        found = sum(law(x - m) * more(m) for m in range(-reach, reach + 1))
        assert abs(found - (1 - a) / (1 + a) * a**x) < Decimal(10) ** -30


@pytest.mark.parametrize(("scale", "wider"), WIDER[1:])
def test_the_sum_of_noise_and_what_widens_it_has_the_wider_law(scale, wider):
    n = 100_000
    inner = noise.discrete_laplace(scale).draw(stream(21), n)
    more = noise.widening(scale, wider).draw(stream(22), n)

    def gof(samples, of):
        edges = np.unique(np.round(float(of) * np.linspace(0, 6, 30))[1:].astype(np.int64))
        a = math.exp(-1 / of)
        upper = np.append(2 * a**edges / (1 + a), 0.0)
        expected = np.append(1 - upper[0], upper[:-1] - upper[1:]) * samples.size
        found = np.bincount(np.searchsorted(edges, np.abs(samples), "right"), minlength=edges.size + 1)
        return chi_square(found, expected)

    assert gof(inner + more, wider) > ALPHA
    for wrong in (0.8, 1.25):
        assert gof(inner + more, float(wider) * wrong) < ALPHA
    planted = inner + noise.discrete_laplace(wider).draw(stream(22), n)
    assert gof(planted, wider) < ALPHA or wider > 10 * scale
    assert abs(np.corrcoef(inner, more)[0, 1]) < 0.02 and abs((more > 0).sum() - (more < 0).sum()) < 5 * math.sqrt(n)


@pytest.mark.parametrize("sigma2", [Fraction(1, 3), Fraction(4), Fraction(2500)])
def test_discrete_gaussian(sigma2):
    s = float(sigma2)
    reach = np.arange(0, int(7 * math.sqrt(s)) + 3)
    weight = np.exp(-(reach**2) / (2 * s)) * np.where(reach == 0, 1, 2)
    pmf = weight / weight.sum()
    table = noise.discrete_gaussian(sigma2).one
    exact = 1 - np.cumsum(pmf)[: min(6, table.thresholds.size)]
    assert np.allclose(table.thresholds[: exact.size] / 2**31, exact, rtol=1e-6, atol=2**-30)
    samples = noise.discrete_gaussian(sigma2).draw(stream(7), 200_000)
    observed = np.bincount(np.abs(samples), minlength=reach.size)[: reach.size]
    assert chi_square(observed, pmf * samples.size) > ALPHA
    for wrong in (0.8, 1.25):
        other = np.exp(-(reach**2) / (2 * s * wrong**2)) * np.where(reach == 0, 1, 2)
        assert chi_square(observed, other / other.sum() * samples.size) < ALPHA


def test_streams_of_purposes_levels_and_blocks_differ():
    streams = Streams(seeded(8).release_key(), "recipe")
    first = {}
    for key in [("noise", 0, 0), ("coin", 0, 0), ("noise", 1, 0), ("noise", 0, 1), ("noise.tie", 0, 0)]:
        words = np.empty(4, np.uint64)
        streams.open(*key).fill(words)
        first[key] = tuple(words.tolist())
    other = np.empty(4, np.uint64)
    Streams(seeded(8).release_key(), "another").open("noise", 0, 0).fill(other)
    assert len({*first.values(), tuple(other.tolist())}) == 6


def test_refused():
    with pytest.raises(NumericsError):
        noise.discrete_laplace(Fraction(0))
    with pytest.raises(NumericsError, match="wider"):
        noise.widening(Fraction(2), Fraction(2))
    with pytest.raises(NumericsError):
        noise.discrete_gaussian(Fraction(1 << 40))
