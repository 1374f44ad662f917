"""Broken twins: the shipped code with one line changed. What they print is what the shipped code prints; the falsifier
must prove from their outputs that it is not true. And its power: the smallest error of the scale that it finds."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction

from falsify import FAMILY, Bound, Job, in_twin, registry
from faults import FAULTS
from planted import Attack, Fault

from kasuri.recipes import RECIPES

SCALE = next(fault for fault in FAULTS if fault.name == "scale x0.8")
FACTORS, NEARER = (Fraction(9, 10), Fraction(8, 10)), Fraction(95, 100)


def scaled(factor: Fraction) -> Fault:
    """Every central recipe with its noise too small by this factor."""
    return replace(SCALE, name=f"scale x{float(factor):g}", new=f"{SCALE.old} * Fraction({str(factor)!r})")


@dataclass(frozen=True)
class Twin:
    """A fault, and one of the attacks that find it."""

    fault: Fault
    attack: Attack

    def job(self, seed: int, times: int) -> Job:
        claim, case, runs = self.attack.claim, self.attack.case, self.attack.runs
        return Job(claim, [one.name for one in registry()[claim].cases].index(case), times * runs, 0, seed)


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


TWINS = [Twin(fault, attack) for fault in FAULTS for attack in fault.attacks]


DEAR, ENOUGH = 20.0, 30_000
"""Milliseconds of a run from which scaled noise is not tried, and the runs that find x0.9 where it is found."""
ROOM = 3
"""So many times the runs of the tests where the seed may be any."""


def tried(twin: Twin, seed: int, times: int = 1) -> Caught:
    """Run one twin's audit in its own process, with so many times its runs."""
    claim = twin.attack.claim
    exact, jobs = ([], [twin.job(seed, times)]) if twin.attack.runs else ([claim], [])
    (bound,) = in_twin(twin.fault, jobs, FAMILY / len(TWINS), exact)
    return Caught(twin.fault.name, claim, bound.epsilon, bound.found, bound.broken)


def twin_rows(twins: Sequence[Twin], seed: int, cores: int, tell: Callable[[str], None]) -> list[Caught]:
    """These twins, as many at a time as there are cores."""
    out = []
    with ThreadPoolExecutor(cores) as threads:
        for caught in threads.map(lambda twin: tried(twin, seed, ROOM), twins):
            tell(f"{caught.name}, {caught.claim}: {caught.found:.3f} of {caught.epsilon:.3f}")
            out.append(caught)
    return out


def powers(jobs: Sequence[Job], cores: int, tell: Callable[[str], None], of: int = 0) -> dict[str, str]:
    """For each claim that rests on a noise scale the mildest error of it that its first case finds, with as many runs
    as the audit of the shipped code gave that case, or as the claim asks for. x0.95 is tried where the bound of x0.9
    promises it."""
    first = {job.claim: job for job in jobs if job.case == 0 and registry()[job.claim].covers in SCALED}
    left_out = {name: untried(registry()[name].cost) for name in first if registry()[name].cost > DEAR}
    first = {name: job for name, job in first.items() if name not in left_out}
    first = {name: replace(job, runs=max(job.runs, registry()[name].enough)) for name, job in first.items()}
    found = left_out | {name: f"none up to x0.8 in {job.runs:,} runs" for name, job in first.items()}
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


def untried(cost: float) -> str:
    """Why no scaled noise was tried on a claim whose runs cost so many milliseconds."""
    return f"not tried: {ENOUGH:,} runs on each side are {2 * ENOUGH * cost / 60_000:.0f} CPU minutes"


def _spread(jobs: Sequence[Job], fault: Fault, alpha: float, cores: int) -> list[Bound]:
    """One fault, many jobs: the dearest first, each process its share."""
    dear = sorted(jobs, key=lambda job: -job.runs * registry()[job.claim].cost)
    with ThreadPoolExecutor(cores) as threads:
        parts = threads.map(
            lambda own: in_twin(fault, own, alpha) if own else [], [dear[i::cores] for i in range(cores)]
        )
        return list(itertools.chain(*parts))


# a series whose releases lose more than they say is refused by the series itself
SCALED = frozenset({*RECIPES, "count"})
