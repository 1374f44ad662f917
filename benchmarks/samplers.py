"""The noise samplers at release quality: every word of their tables enumerated, ties settled bit by bit, and a thousand
million samples of every scale against the exact law, with the power of the test.

    python benchmarks/samplers.py                       # the table of docs/assurance.md (some 20 minutes of one core)
    python benchmarks/samplers.py --samples 1e7         # quickly, nothing is recorded

The enumeration feeds all 2^31 (2^32) first words to the shipped kernels: a value must come out for exactly the words
that the exact law, written out in decimals, says; on a threshold the further bits are searched for the point where the
outcome changes, which must be the exact one. The samples then judge the whole path, keystream included: centre, tail,
sign and scale; the stream is seeded, so that the table can be made again. The same test must refuse samples of a scale
that is wrong by the error it says it finds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "falsify")]

from assurance import record  # noqa: E402
from reference import samplers as law  # noqa: E402

from kasuri._kernels.noise import one_digit, two_digits  # noqa: E402
from kasuri.local import bits as packed  # noqa: E402
from kasuri.noise.rng import Streams, seeded  # noqa: E402
from kasuri.noise.samplers import Sampler, discrete_gaussian, discrete_laplace  # noqa: E402

LAPLACE = (Fraction(1, 2), Fraction(1), Fraction(10), Fraction(100), Fraction(700), Fraction(1000), Fraction(100_000))
GAUSSIAN = (Fraction(1), Fraction(100), Fraction(10_000))
COINS = (1 << 31, 1154832155, 429497)  # of 2^32: a half, 1 / (1 + e) nearly, 1e-4 nearly
ALPHA = 1e-3
"""Chance that a right sampler fails anywhere in the table; Bonferroni over all its tests."""
TESTS = (len(LAPLACE) + len(GAUSSIAN)) * 14 + len(COINS)
CHUNK, TIES = 1 << 16, 200


class FailedError(Exception):
    """What was found to be wrong."""


def enumerate_words(table: Callable[[np.ndarray, np.ndarray, np.ndarray], int], bits: int, exact: list[int]) -> None:
    """Feed every word u to a table: #{x : u < exact[x - 1]} must come out, exact[x - 1] = floor(2^bits P(. >= x)), and
    the undecided words must be those at the thresholds."""
    undecided: list[int] = []
    fall = np.array([1 << bits, *exact, 0], np.int64)  # x comes out for fall[x + 1] <= u < fall[x]
    out, ties = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
    first = np.arange(CHUNK, dtype=np.uint64)
    for start in range(0, 1 << bits, CHUNK):
        found = table(first + np.uint64(start), out, ties)
        least, most = np.searchsorted(-fall, [-(start + CHUNK - 1), -start]) - 1
        edges = np.clip(fall[least : most + 2][::-1], start, start + CHUNK)
        if not np.array_equal(out, np.repeat(np.arange(most, least - 1, -1), np.diff(edges))):
            raise FailedError("a word gives another value than its probability says")
        undecided += (start + ties[:found]).tolist()
    if undecided != sorted({*exact, 0}):
        raise FailedError("the undecided words are not those at the thresholds")


def floors(chance: Callable[[int], Decimal], bits: int, most: int | None = None) -> list[int]:
    """floor(2^bits P(. >= x)) for x = 1, 2, ... while it is above 0 (and x <= most)."""
    found: list[int] = []
    with localcontext() as context:
        context.prec = law.DIGITS
        while (most is None or len(found) < most) and (value := int(chance(len(found) + 1) * (1 << bits))):
            found.append(value)
    return found


def settle(size_of: Callable[[int, Callable[[int], int]], int], chance: Callable[[int], Decimal],
           exact: list[int], bits: int) -> int:  # fmt: skip
    """Search the point where a tied word changes its outcome, for up to TIES thresholds and the tail; in the first 64
    further bits and in the next. Returns how many points were searched."""
    chosen = sorted({*range(1, min(4, len(exact)) + 1), *np.linspace(1, len(exact) + 6, TIES).astype(int).tolist()})
    points = 0
    for x in chosen:
        u = exact[x - 1] if x <= len(exact) else 0
        if chance(x) <= 0:  # R ends at its base
            continue
        for turn in (0, 1):
            wanted = law.turning_point(chance(x), u, bits, turn)
            found = law.found_turning_point(lambda more, u=u: size_of(u, more), x, wanted, turn)
            if not found:
                raise FailedError(f"a tie at threshold {x} is not settled where the exact law says")
            points += 1
    return points


def enumerate_sampler(sampler: Sampler, scale: Fraction, kind: str) -> tuple[int, int]:
    """(words fed to the kernels, ties searched) of one sampler."""
    if sampler.one is not None:
        table = sampler.one
        chance = law.size((law.laplace if kind == "laplace" else law.gaussian)(scale))
        exact = floors(chance, 31)

        def one(u: np.ndarray, out: np.ndarray, ties: np.ndarray) -> int:
            return one_digit(
                (u << np.uint64(1)).astype(np.uint32), table.thresholds, table.guide, table.shift, out, ties
            )

        enumerate_words(one, 31, exact)
        return 1 << 31, settle(lambda u, more: sampler.decide(u << 1, more), chance, exact, 31)
    return _enumerate_digits(sampler, scale)


def _enumerate_digits(sampler: Sampler, scale: Fraction) -> tuple[int, int]:
    base, q, zero, rest = sampler.base, sampler.q, sampler.zero, sampler.rest
    assert q is not None and zero is not None and rest is not None
    laws = law.digits(scale, base)
    tables = (q.thresholds, q.guide, q.shift, zero.thresholds, zero.guide, zero.shift,
              rest.thresholds, rest.guide, rest.shift)  # fmt: skip
    high = (1 << 31) - 1  # further bits of R that give R = 0, and are not a threshold
    some = int(q.thresholds[1]) + 1  # a word of Q that gives Q = 1

    def run(words: np.ndarray, out: np.ndarray, ties: np.ndarray) -> int:
        return two_digits(words, base, *tables, out, ties)

    def of_q(u: np.ndarray, out: np.ndarray, ties: np.ndarray) -> int:
        found = run(u << np.uint64(32) | np.uint64(high << 1), out, ties)
        if (out % base).any():
            raise FailedError("R is not 0")
        out //= base
        return found

    def of_r(first: int) -> Callable[[np.ndarray, np.ndarray, np.ndarray], int]:
        def made(u: np.ndarray, out: np.ndarray, ties: np.ndarray) -> int:
            found = run(u << np.uint64(1) | np.uint64(first << 32), out, ties)
            out %= base
            return found

        return made

    parts = [
        (of_q, 32, laws[0], None, lambda u, more: sampler.decide(u << 32 | high << 1, lambda t: more(t // 2)) // base),
        (of_r((1 << 32) - 1), 31, laws[1], base - 1,
         lambda u, more: sampler.decide(((1 << 32) - 1) << 32 | u << 1, lambda t: more(t // 2)) % base),
        (of_r(some), 31, laws[2], base - 1,
         lambda u, more: sampler.decide(some << 32 | u << 1, lambda t: more(t // 2)) % base),
    ]  # fmt: skip
    words = points = 0
    for table, bits, chance, most, size_of in parts:
        exact = floors(chance, bits, most)
        enumerate_words(table, bits, exact)
        points += settle(size_of, chance, exact, bits)
        words += 1 << bits
    return words, points


def histogram(sampler: Sampler, bins: law.Bins, n: int, block: int) -> np.ndarray:
    stream = Streams(seeded(2026).release_key(), "samplers").open("noise", 0, block)
    counts, out = np.zeros(2 * bins.most, np.int64), np.empty(CHUNK, np.int64)
    for start in range(0, n, CHUNK):
        part = out[: min(CHUNK, n - start)]
        counts += bins.count(sampler.draw_into(stream, part))
    return counts


def sampled(kind: str, scale: Fraction, n: int, block: int) -> tuple[float, float, str]:
    """(least p-value times the number of tests, relative error of the scale it finds, what refused the planted one)."""
    make, of = (discrete_laplace, law.laplace) if kind == "laplace" else (discrete_gaussian, law.gaussian)
    power = 1 if kind == "laplace" else 2  # the Gaussian's parameter is sigma^2
    upper, step = of(scale), Fraction(1, 1000)
    bins = law.Bins.of(upper, float(scale) ** (1 / power))
    chances = bins.chances(upper)
    score = law.score_of(upper, of(scale * (1 + step) ** power), float(step), bins)
    least = law.least_error(chances, score, n, ALPHA / TESTS)
    worst = TESTS * min(law.judge(histogram(make(scale), bins, n, block), chances, score).values())
    if worst < ALPHA:
        raise FailedError(f"{kind} {scale}: its samples do not have its law")
    refused = []
    for sign in (1, -1):
        wrong = scale * (1 + sign * Fraction(least).limit_denominator(10**6)) ** power
        planted = law.judge(histogram(make(wrong), bins, n, block + 1000 * (2 + sign)), chances, score)
        if TESTS * min(planted.values()) < ALPHA:
            refused.append("larger" if sign > 0 else "smaller")
    return min(1.0, worst), least, " and ".join(refused) or "none"


def coins(threshold: int, n: int, block: int) -> tuple[float, float]:
    """(p-value times the number of tests, relative error of p found) of the randomizers' coins, threshold / 2^32."""
    streams, seen, chance = Streams(seeded(2026).release_key(), "samplers"), 0, threshold / 2**32
    for i in range(0, n, 1 << 24):
        words = packed.coins(streams, "coin", block * 1000 + (i >> 24), 1 << 24, threshold, 32)
        seen += int(np.bitwise_count(words).sum())
    drawn = -(-n >> 24) << 24
    worst = TESTS * law.binomial(seen, drawn, chance)
    if worst < ALPHA:
        raise FailedError(f"coin {threshold}: not its probability")
    return min(1.0, worst), law.least_share(chance, drawn, ALPHA / TESTS)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--samples", type=float, default=1e9)
    n = int(options.parse_args().samples)
    rows = []
    cases = [("laplace", scale) for scale in LAPLACE] + [("gaussian", scale) for scale in GAUSSIAN]
    for block, (kind, scale) in enumerate(cases):
        start = time.process_time()
        sampler = (discrete_laplace if kind == "laplace" else discrete_gaussian)(scale)
        words, points = enumerate_sampler(sampler, scale, kind) if n >= 10**9 else (0, 0)
        worst, least, planted = sampled(kind, scale, n, block)
        name = f"discrete Laplace, scale {scale}" if kind == "laplace" else f"discrete Gaussian, sigma^2 {scale}"
        rows.append([name, f"{words:,}", f"{points:,}", f"{n:,}", f"{worst:.3g}", f"{least:.1e}", planted])
        print(*rows[-1], f"{time.process_time() - start:.0f} s", sep=" | ", flush=True)
    for block, threshold in enumerate(COINS):
        worst, least = coins(threshold, n, block)
        rows.append([f"local coin, {threshold} / 2^32", "-", "-", f"{n:,}", f"{worst:.3g}", f"{least:.1e}", "-"])
        print(*rows[-1], sep=" | ", flush=True)
    if n < 10**9:
        return
    text = (
        "Every first word was fed to the shipped kernel: each value came out for exactly as many words as the exact "
        "law says, and the words at a threshold, and no others, were left to the slow rule. There (at up to "
        f"{TIES} thresholds of a table, its tail among them) the point where the outcome changes was searched in the "
        "first and in the second 64 further bits, and is the exact one: right to 2^-159. Then samples: centre, tail, "
        "exact binomial tails, sign and scale; p is the least p-value "
        f"times all {TESTS} tests of the table, refused below {ALPHA:g}. The last columns are the smallest relative "
        "error of the scale (of p, for a coin) found with 99 % power, and which of two samplers wrong by that much, "
        "larger and smaller, were refused in this run."
    )
    columns = ["sampler", "words enumerated", "ties searched", "samples", "p", "error found", "planted errors refused"]
    record("samplers", "python benchmarks/samplers.py", text, columns, rows)


if __name__ == "__main__":
    main()
