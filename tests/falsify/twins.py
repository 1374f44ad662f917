"""Broken twins: the shipped code with one line changed. What they print is what the shipped code prints; the falsifier
must prove from their outputs that it is not true. And its power: the smallest error of the scale that it finds."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction

from falsify import FAMILY, Bound, Job, in_twin, registry
from planted import Fault

SCALE = "scale = unit.most * cost / epsilon"
FACTORS, NEARER = (Fraction(9, 10), Fraction(8, 10)), Fraction(95, 100)


def scaled(factor: Fraction) -> Fault:
    """Every central recipe with its noise too small by this factor."""
    return Fault(f"scale x{float(factor):g}", "recipes/mechanism.py", SCALE, f"{SCALE} * Fraction({str(factor)!r})", "")


@dataclass(frozen=True)
class Twin:
    """A fault, and the case (of a claim) and runs that find it."""

    fault: Fault
    claim: str
    case: str
    runs: int
    """Enough to find it with the seed of the tests; 0: by enumeration."""

    def job(self, seed: int) -> Job:
        cases = [case.name for case in registry()[self.claim].cases]
        return Job(self.claim, cases.index(self.case), self.runs, 0, seed)


@dataclass(frozen=True)
class Caught:
    """What came of a twin."""

    name: str
    claim: str
    epsilon: float
    found: float
    caught: bool

    def row(self) -> list[str]:
        found = [f"{self.epsilon:.4g}", f"{self.found:.3f}", "yes" if self.caught else "NO"]
        return [self.name, f"`{self.claim}`", *found]


def _twin(name: str, file: str, line: str, changed: str, claim: str, case: str = "enters", runs: int = 4000) -> Twin:
    return Twin(Fault(name, file, line, changed, ""), claim, case, runs)


KERNEL = "_kernels/topdown.py"
TWINS = [
    Twin(scaled(Fraction(8, 10)), "geometric()", "enters", 4000),  # the other recipes: see `powers`
    Twin(scaled(Fraction(8, 10)), "haar_topdown()", "enters", 14_000),
    _twin("eq. (38) as printed", KERNEL, "- sums[_u(low)] - sums[_u(high)] + noise[_u(used)]",
          "- sums[_u(low)] - sums[_u(high)] + (noise[_u(used)] >> min(depth, 1))", "haar_topdown()", runs=12_000),
    _twin("eq. (38) as printed, float form", "recipes/wavelet.py", "+= parts.weights * self.noise.draw(",
          "+= np.where(parts.weights > parts.weights[0], 0.5, 1) * parts.weights * self.noise.draw(",
          'haar_topdown(transform="haar")', runs=50_000),
    _twin("a reused noise word", "recipes/engine.py", "cut or self.order.depth, tape, record, skip_noise=1)",
          "cut or self.order.depth, tape, record, skip_noise=0)", "haar_topdown()", "weight three", 600),
    _twin("levels of a tree share a noise stream", "recipes/visit.py", 'streams.open("noise", cut, block)',
          'streams.open("noise", 0, block)', 'refined_tree("u4")', "weight three", 600),
    _twin("the true total used", "recipes/shaped.py", "max(int(values.sum()) + noise, 0)",
          "max(int(values.sum()) + 0 * noise, 0)", "simplex()", runs=600),
    _twin("wrong unit: several cells counted as one", "recipes/mechanism.py", SCALE, "scale = cost / epsilon",
          "geometric()", "three cells", 2000),
    _twin("wrong unit: weights forgotten", "recipes/mechanism.py", SCALE,
          "scale = unit.max_cells * cost / epsilon", "geometric()", "weight three", 1000),
    _twin("wrong unit: replace counted as add-remove", "trees/transform.py",
          'Fraction(1 if change == "add-remove" or size == 1 else 2)', "Fraction(1)", "geometric()", "moves", 6000),
    _twin("wrong unit: replace counted once in a tree", "recipes/spending.py",
          'Fraction(1 if unit.change == "add-remove" else 2)', "Fraction(1)", 'bayes_tree("middle")', "moves", 3000),
    _twin("one cell too many is counted", "ingest/micro.py", "n, min(unit.max_cells, len(rows)), state",
          "n, min(unit.max_cells + 1, len(rows)), state", "count() of records", "one cell, many rows", 4000),
    _twin("an impossible cell is measured", KERNEL, "measured = s_left > 0 and s_right > 0", "measured = True",
          "haar_topdown()", "alone beside a mask", 2000),
    _twin("the pilot has less noise than it says", "recipes/choose.py", "self.scale / share, keys, values, streams)",
          "self.scale / share / 40, keys, values, streams)", "bayes_tree(pilot=True)", runs=2000),
    _twin("a threshold decided on the true count", "recipes/threshold.py", "keep = own >= self.least",
          "keep = values >= self.least",
          "sparse(3)", "at the threshold", 1000),
    _twin("a series priced as one release", "budget/accounting.py", "repeated(self.losses, self.releases), delta",
          "repeated(self.losses, 1), delta", "8 releases, privacy-loss distribution", runs=1500),
    _twin("n = min(nA, nB)", "shuffle/joined.py", "claims = _claims(plan, n, metered)",
          "claims = _claims(plan, most, metered)", "joined rows, two_point and two_point", "few in both tables", 400),
    _twin("a permanent report is drawn anew", "local/longitudinal.py",
          "        if category not in self._kept:\n            self._kept[category]", "        self._kept[category]",
          "local.memoised", "40 reports each", 5000),
    _twin("a device keeps the truth too often", "local/categorical.py",
          "return _respond(category, word(), self.p, self.q)", "return _respond(category, word(), self.p + 8, self.q)",
          "local.grr", "enumeration", 0),
    _twin("small classes are shown", "kanon/sample.py", "shown = sizes[of] >= k", "shown = sizes[of] >= 1",
          "sample_then_anonymize", "a class of 0 or 1", 1000),
]  # fmt: skip


ROOM = 3
"""So many times the runs of the tests where the seed may be any."""


def tried(twin: Twin, seed: int, times: int = 1) -> Caught:
    """Run one twin's audit in its own process, with so many times its runs."""
    twin = replace(twin, runs=times * twin.runs)
    exact = [twin.claim] if not twin.runs else []
    bounds = in_twin(twin.fault, [] if exact else [twin.job(seed)], FAMILY / len(TWINS), exact)
    return Caught(twin.fault.name, twin.claim, bounds[0].epsilon, bounds[0].found, bounds[0].broken)


def twin_rows(seed: int, cores: int, tell: Callable[[str], None]) -> list[Caught]:
    """Every twin, as many at a time as there are cores."""
    out = []
    with ThreadPoolExecutor(cores) as threads:
        for caught in threads.map(lambda twin: tried(twin, seed, ROOM), TWINS):
            tell(f"{caught.name}, {caught.claim}: {caught.found:.3f} of {caught.epsilon:.3f}")
            out.append(caught)
    return out


def powers(jobs: Sequence[Job], cores: int, tell: Callable[[str], None], of: int = 0) -> dict[str, str]:
    """For each claim that rests on a noise scale the mildest error of it that its first case finds, with as many runs
    as the audit of the shipped code gave that case, or as the claim asks for. x0.95 is tried where the bound of x0.9
    promises it."""
    first = {job.claim: job for job in jobs if job.case == 0 and registry()[job.claim].covers in SCALED}
    first = {name: replace(job, runs=max(job.runs, registry()[name].enough)) for name, job in first.items()}
    found = {name: f"none up to x0.8 in {job.runs:,} runs" for name, job in first.items()}
    alpha, left = FAMILY / max(len(jobs), of), list(first)

    def note(bounds: Sequence[Bound], factor: Fraction) -> None:
        for bound in bounds:
            if bound.broken:
                found[bound.claim] = f"scale x{float(factor):g} in {bound.runs:,} runs"
        tell(f"scale x{float(factor):g}: found in {sum(bound.broken for bound in bounds)} of {len(bounds)} claims")

    for factor in FACTORS:
        bounds = _spread([first[name] for name in left], scaled(factor), alpha, cores)
        note(bounds, factor)
        if factor == FACTORS[0]:
            promising = [bound.claim for bound in bounds if bound.found * (factor / NEARER) > bound.epsilon]
            note(_spread([first[name] for name in promising], scaled(NEARER), alpha, cores), NEARER)
        left = [bound.claim for bound in bounds if not bound.broken]
    return found


def _spread(jobs: Sequence[Job], fault: Fault, alpha: float, cores: int) -> list[Bound]:
    """One fault, many jobs: the dearest first, each process its share."""
    dear = sorted(jobs, key=lambda job: -job.runs * registry()[job.claim].cost)
    with ThreadPoolExecutor(cores) as threads:
        parts = threads.map(
            lambda own: in_twin(fault, own, alpha) if own else [], [dear[i::cores] for i in range(cores)]
        )
        return list(itertools.chain(*parts))


# a series whose releases lose more than they say is refused by the series itself
SCALED = frozenset({
    "geometric", "laplace", "privelet", "haar_topdown", "refined_tree", "bayes_tree", "auto", "simplex",
    "neg_l2_simplex", "nonneg_lasso", "lasso", "hierarchy", "fourier", "matrix", "sparse", "count",
})  # fmt: skip
