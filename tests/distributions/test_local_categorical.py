"""Every randomizer of categories has exactly the law it states: by enumeration of all random words on small domains,
and the bulk kernels by enumeration of theirs; then the whole bulk path by a test that also rejects wrong laws."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from reference.local import law_by_enumeration, response_law, unary_law

import kasuri as ks
from kasuri._kernels import local as kernels
from kasuri.local.bits import coins, flip
from kasuri.local.categorical import MAKERS, bucket
from kasuri.local.odds import within
from kasuri.noise.rng import Streams

PLACES = ks.Nominal("place", labels=("a", "b"))  # with "elsewhere": 3 categories

SMALL = {
    "unary": (MAKERS["unary"](PLACES, epsilon="1", bits=4), 3),
    "oue": (MAKERS["oue"](PLACES, epsilon="1", bits=4), 3),
    "grr": (MAKERS["grr"](PLACES, epsilon="1", bits=8), 1),
    "olh": (MAKERS["olh"](PLACES, epsilon="1", bits=6), 2),
    "hadamard": (MAKERS["hadamard"](PLACES, epsilon="1", bits=6), 2),
    "count_mean_sketch": (MAKERS["count_mean_sketch"](PLACES, epsilon="1", bits=4, buckets=2, hashes=4), 3),
}
"""kind -> (randomizer of 3 categories, random words a report takes)."""


def laws(kind):
    randomizer, words = SMALL[kind]
    return randomizer, [law_by_enumeration(randomizer, x, words) for x in range(randomizer.size)]


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_worst_ratio_is_the_stated_one_and_within_epsilon(kind):
    randomizer, law = laws(kind)
    reports = set().union(*law)
    worst = Fraction(0)
    for report in reports:
        chances = [of.get(report, Fraction(0)) for of in law]
        assert min(chances) > 0, "a report that some category cannot send"
        worst = max(worst, max(chances) / min(chances))
    assert worst == randomizer.law.ratio
    assert within(worst, randomizer.epsilon)
    assert all(sum(of.values()) == 1 for of in law)


@pytest.mark.parametrize("kind", ["unary", "oue"])
def test_unary_law_is_the_definition(kind):
    randomizer, law = laws(kind)
    p, q = Fraction(randomizer.p, 16), Fraction(randomizer.q, 16)
    for x in range(3):
        assert law[x] == unary_law(p, q, 3, x)


def test_response_law_is_the_definition():
    randomizer, law = laws("grr")
    p, q = Fraction(randomizer.p, 256), Fraction(randomizer.q, 256)
    for x in range(3):
        assert [law[x][bytes([y])] for y in range(3)] == response_law(p, q, 3, x)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_support_and_law_agree_with_the_enumeration(kind):
    """supports() says exactly which categories a report speaks for, and P(report | x) = C(report) (ratio or 1)."""
    randomizer, law = laws(kind)
    reports = sorted(set().union(*law))
    rows = np.frombuffer(b"".join(reports), np.uint8).reshape(len(reports), randomizer.width)
    bits = np.unpackbits(randomizer.supports(rows), axis=1, bitorder="little")[:, :3]
    assert not randomizer.bad_rows(rows).any()
    for x, y in itertools.permutations(range(3), 2):
        p = sum(law[x][r] for r, z in zip(reports, bits, strict=True) if z[x])
        q = sum(law[x][r] for r, z in zip(reports, bits, strict=True) if z[y])
        assert p == randomizer.law.p
        if kind in ("unary", "oue", "grr", "hadamard"):  # hashing kinds: q is the mean over ideal hash functions
            assert q == randomizer.law.q
    for report, z in zip(reports, bits, strict=True):
        base = {law[x][report] / (randomizer.law.ratio if z[x] else 1) for x in range(3)}
        assert len(base) == 1
    expected = sum(bits[i].astype(int) for i in range(len(reports)))
    assert randomizer.agreeing(rows).tolist() == expected.tolist()


@pytest.mark.parametrize("threshold", range(1, 16))
def test_bit_sliced_coins_by_enumeration(threshold):
    """All 16 values of a 4-bit uniform, spread over the lanes of four words: exactly `threshold` of 16 are ones."""
    lanes = np.arange(64) % 16
    planes = iter([sum(int(u >> j & 1) << i for i, u in enumerate(lanes)) for j in (3, 2, 1, 0)])
    out = np.zeros(3, np.uint64)
    flip(Given(lambda size: [next(planes)] * size), threshold, 4, out)
    ones = [[int(word) >> i & 1 for i in range(64)] for word in out]
    assert ones == [[int(u < threshold) for u in lanes]] * 3


class Given:
    """A keystream of given words."""

    def __init__(self, words):
        self._words = words

    def fill(self, out):
        out[:] = self._words(out.size)


@pytest.mark.parametrize("threshold", [1, 3, 0x55555555, 0x80000000, 0xFFFFFFFF, 0x44444444])
def test_words_that_are_decided_early_are_left_alone(threshold):
    """A twin that compares whole numbers: where words drop out, each goes on with its own lanes."""
    rng = np.random.default_rng(threshold)
    drawn, size = [], 300
    live = [list(range(size))]

    def words(count):
        assert count == len(live[-1])
        drawn.append((live[-1], rng.integers(0, 1 << 64, count, dtype=np.uint64)))
        return drawn[-1][1]

    real = np.flatnonzero
    out = np.zeros(size, np.uint64)
    uniform = np.zeros((size, 64), object)
    seen = np.zeros(size, int)

    def watch(undecided):  # the words that stay, as the code finds them
        left = real(undecided)
        if left.size and left.size < 0.75 * undecided.size:
            live.append([live[-1][i] for i in left])
        return left

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "flatnonzero", watch)
        flip(Given(words), threshold, 32, out)
    for at, plane in drawn:
        for word, value in zip(at, plane.tolist(), strict=True):
            uniform[word] = uniform[word] * 2 + np.array([value >> i & 1 for i in range(64)], object)
            seen[word] += 1
    for word in range(size):
        high = threshold >> 32 - seen[word]
        assert seen[word] == 32 or not (uniform[word] == high).any()  # no lane was left in doubt
        wanted = [int(u < high) for u in uniform[word]]
        assert [int(out[word]) >> i & 1 for i in range(64)] == wanted


def test_bulk_response_kernels_by_enumeration():
    randomizer, law = laws("grr")
    words = (np.arange(256, dtype=np.uint64) << np.uint64(24)).astype(np.uint32)
    for x in range(3):
        out = np.empty(256, np.int64)
        kernels.k_ary(words, np.full(256, x), 3, randomizer.p, randomizer.q, 8, out)
        assert {bytes([y]): Fraction(n, 256) for y, n in Counter(out.tolist()).items()} == law[x]
    randomizer, law = laws("hadamard")
    pairs = np.array(list(itertools.product(range(64), repeat=2)), dtype=np.uint64).ravel() << np.uint64(26)
    for x in range(3):
        out = np.empty(4096, np.int64)
        kernels.hadamard_reports(pairs.astype(np.uint32), np.full(4096, x), randomizer.p, 2, 6, out)
        assert {bytes([y]): Fraction(n, 4096) for y, n in Counter(out.tolist()).items()} == law[x]


def test_hash_is_the_same_on_the_device_and_in_bulk():
    seeds = np.arange(0, 2**32, 2**32 // 997, dtype=np.uint64).astype(np.uint32)
    for category in (0, 1, 2, 1000, 2**20 - 1):
        out = np.empty(seeds.size, np.int64)
        kernels.hash_values(seeds, np.full(seeds.size, category), 5, out)
        assert out.tolist() == [bucket(int(s), category, 5) for s in seeds]


def chi_square(seen: dict[bytes, int], law: dict[bytes, Fraction]) -> float:
    """Pearson's statistic in standard deviations above its mean."""
    n = sum(seen.values())
    value = sum((seen.get(r, 0) - n * float(c)) ** 2 / (n * float(c)) for r, c in law.items())
    freedom = len(law) - 1
    return (value - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_bulk_randomize_has_the_law_and_the_test_has_power(kind):
    randomizer, law = laws(kind)
    n = 60_000
    for x in range(3):
        rows = randomizer.randomize(np.full(n, x), source=ks.seeded(7 + x)).rows
        seen = Counter(map(bytes, rows))
        assert set(seen) <= set(law[x])
        assert chi_square(seen, law[x]) < 6
        assert chi_square(seen, law[(x + 1) % 3]) > 20, "the test must tell the law of another category"


@pytest.mark.parametrize("kind", ["unary", "oue"])
def test_the_coin_of_the_truth_is_its_own(kind):
    """The true bits of a block's first 64 reports say nothing about the first 64 bits of the others' stream."""
    randomizer = MAKERS[kind](ks.Nominal("p", labels=tuple("abcdefg")), epsilon="1")
    truth, others = [], []
    for seed in range(400):
        rows = randomizer.randomize(np.zeros(64, np.int64), source=ks.seeded(seed)).rows
        flat = np.unpackbits(rows.ravel(), bitorder="little")[:64]
        keep = np.arange(64) % 8 != 0
        truth.append((rows[:, 0] & 1)[keep])
        others.append(flat[keep])
    found = np.corrcoef(np.concatenate(truth), np.concatenate(others))[0, 1]
    assert abs(found) < 5 / (400 * 56) ** 0.5


def test_bulk_coins_reject_wrong_probabilities():
    bits = coins(Streams(bytes(32), "test"), "coins", 0, 1 << 20, 1 << 30, 32)
    ones = int(np.unpackbits(bits.view(np.uint8)).sum())
    n = 1 << 20
    assert abs(ones - n / 4) < 5 * (n * 3 / 16) ** 0.5
    for wrong in (0.8, 1.25):
        assert abs(ones - wrong * n / 4) > 50 * (n * 3 / 16) ** 0.5
