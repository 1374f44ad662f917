"""python3 run.py falsify [--hours H]: try to prove every printed epsilon wrong.

For each claim of the registry and each pair of neighbours: many runs, an event learnt on one half and counted on the
other, an exact lower confidence bound on epsilon (lower_bound.py). All bounds of one run hold together with probability
99.9 % (Bonferroni). Then the same against broken twins, the shipped code with one line changed, which must be caught.

  python3 run.py falsify                  some minutes
  python3 run.py falsify --hours 2        more runs and random neighbours, for two hours
  python3 run.py falsify --only haar      claims whose name holds this word; no twins
  python3 run.py falsify --record         write the tables into docs/assurance.md; with --only: the rows of those
                                          claims and of their twins

Exit code 1 where a bound exceeds a claim, or a twin was not caught.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # tests/reference, and beside this file

from claims import Case, Claim, Sample, composition_claims, recipe_claims  # noqa: E402
from claims_apart import kanon_claims, local_claims, shuffle_claims  # noqa: E402
from claims_rounds import round_claims  # noqa: E402
from claims_series import series_claims  # noqa: E402
from lower_bound import attack  # noqa: E402

from kasuri.local.odds import loss, within  # noqa: E402

FAMILY = 1e-3
"""Chance that any one bound of a whole run is wrong."""
QUICK = 240.0
"""Seconds of runs (over all cores) without --hours."""
FEWEST = 100
CHUNK = 3.0
"""Seconds of runs a worker makes at a time."""
AHEAD = 16
"""Pieces of work handed out at a time."""


@dataclass(frozen=True)
class Bound:
    """One case: what was printed, what was found."""

    claim: str
    case: str
    epsilon: float
    delta: float
    found: float
    event: str
    runs: int
    exact: bool = False
    broken: bool = False


@cache
def registry() -> dict[str, Claim]:
    every = [
        *recipe_claims(),
        *composition_claims(),
        *local_claims(),
        *shuffle_claims(),
        *kanon_claims(),
        *round_claims(),
    ]
    every += series_claims()
    assert len({claim.name for claim in every}) == len(every)
    return {claim.name: claim for claim in every}


def cases_of(claim: Claim, more: int, seed: int) -> list[Case]:
    """The claim's own cases and `more` random ones."""
    rng = np.random.default_rng(number(seed, claim.name))
    return [*claim.cases, *(claim.random(rng) for _ in range(more if claim.random else 0))]


def number(*parts: object) -> int:
    """A seed that belongs to these words and no others."""
    return int.from_bytes(hashlib.blake2b("|".join(map(str, parts)).encode(), digest_size=12).digest(), "big")


@dataclass(frozen=True)
class Job:
    """So many runs of one case on either side."""

    claim: str
    case: int
    runs: int
    more: int
    seed: int


def draw(job: Job, side: int, chunk: int, runs: int) -> Sample:
    """One chunk of a job's runs, from seeds that no other chunk has."""
    claim = registry()[job.claim]
    case = cases_of(claim, job.more, job.seed)[job.case]
    return case.sample(side, runs, number(job.seed, job.claim, case.name, job.case, side, chunk) << 32)


def joined(samples: Sequence[Sample], names: Iterable[str]) -> dict[str, np.ndarray]:
    """Chunks end to end; a column that a chunk does not have was not shown there."""
    sizes = [next(iter(sample.columns.values())).size for sample in samples]
    blank = [np.full(size, np.nan) for size in sizes]
    return {
        name: np.concatenate([sample.columns.get(name, empty) for sample, empty in zip(samples, blank, strict=True)])
        for name in sorted(names)
    }


def judge(job: Job, sides: Sequence[Sequence[Sample]], alpha: float) -> Bound:
    """The bound of a job from all its chunks."""
    every = [sample for samples in sides for sample in samples]
    printed = {(sample.epsilon, sample.delta) for sample in every}
    assert len(printed) == 1, "a claim must not depend on data or seed"
    epsilon, delta = printed.pop()
    names = set().union(*(sample.columns for sample in every))
    found = attack(joined(sides[0], names), joined(sides[1], names), float(delta), alpha)
    claim = registry()[job.claim]
    return Bound(
        job.claim, cases_of(claim, job.more, job.seed)[job.case].name, float(epsilon), float(delta), found.epsilon,
        f"{found.event}: {found.hits[0]} of {found.runs[0]}, {found.hits[1]} of {found.runs[1]}", job.runs,
        broken=found.epsilon > epsilon,
    )  # fmt: skip


def enumerated(name: str) -> Bound:
    """A claim whose whole law can be written down."""
    exact = registry()[name].exact
    assert exact is not None
    epsilon, ratio = exact()
    broken = not within(ratio, epsilon)
    return Bound(name, "enumeration", float(epsilon), 0.0, loss(ratio), "worst ratio", 0, True, broken)


def planned(names: Sequence[str], seconds: float, more: int, seed: int, *, fewest: int = FEWEST) -> list[Job]:
    """How many runs each case gets from so many seconds in all."""
    weights: list[tuple[str, int, float]] = []
    for name in names:
        claim = registry()[name]
        for i in range(len(cases_of(claim, more, seed))):
            weights.append((name, i, claim.work * (1.0 if i else 2.0)))
    total = sum(weight for *_, weight in weights)
    jobs = []
    for name, i, weight in weights:
        claim = registry()[name]
        runs = int(1000 * seconds * weight / total / (2 * claim.cost))
        least = claim.least if i == 0 and fewest >= FEWEST else 0
        jobs.append(Job(name, i, min(max(runs, fewest, least), 400_000), more, seed))
    return jobs


def whole(job: Job, alpha: float) -> Bound:
    """A job from beginning to end."""
    return judge(job, [[draw(job, side, 0, job.runs)] for side in (0, 1)], alpha)


def carry_out(jobs: Sequence[Job], alpha: float, pool: Executor | None, tell: Callable[[str], None]) -> list[Bound]:
    """Every job's bound, in the order of the jobs. Long ones are cut into chunks, which the pool shares."""
    if pool is None:
        return [whole(job, alpha) for job in jobs]
    found: dict[int, Bound] = {}
    parts: dict[int, dict[tuple[int, int], Sample]] = {}
    waiting: dict[Future[Any], tuple[int, tuple[int, int] | None]] = {}
    queue: list[tuple[int, int, int, int]] = []
    for i in sorted(range(len(jobs)), key=lambda i: -jobs[i].runs * registry()[jobs[i].claim].cost):
        sizes = _chunks(jobs[i])
        long = [(i, side, chunk, runs) for side in (0, 1) for chunk, runs in enumerate(sizes)]
        queue += long if len(sizes) > 1 else [(i, -1, 0, 0)]
    queue.reverse()
    start, last = time.monotonic(), 0.0
    while queue or waiting:
        while queue and len(waiting) < AHEAD:  # few at a time, so that few wait in memory
            i, side, chunk, runs = queue.pop()
            if side < 0:
                waiting[pool.submit(whole, jobs[i], alpha)] = (i, None)
            else:
                waiting[pool.submit(draw, jobs[i], side, chunk, runs)] = (i, (side, chunk))
        ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in ready:
            i, place = waiting.pop(future)
            if place is None:
                found[i] = bound = future.result()
                if bound.broken:
                    tell(f"EXCEEDED: {bound.claim}, {bound.case}: {bound.found:.3f} > {bound.epsilon:.3f}")
                continue
            own = parts.setdefault(i, {})
            own[place] = future.result()
            if len(own) == 2 * len(_chunks(jobs[i])):
                sides = [[own[key] for key in sorted(own) if key[0] == side] for side in (0, 1)]
                waiting[pool.submit(judge, jobs[i], sides, alpha)] = (i, None)
                del parts[i]
        if time.monotonic() - last > 10:
            last = time.monotonic()
            tell(f"{len(found)} of {len(jobs)} pairs of neighbours, {last - start:.0f} s")
    return [found[i] for i in range(len(jobs))]


def _chunks(job: Job) -> list[int]:
    size = max(1, int(1000 * CHUNK / registry()[job.claim].cost))
    return [min(size, job.runs - at) for at in range(0, job.runs, size)]


def audit(
    jobs: Sequence[Job],
    pool: Executor | None = None,
    tell: Callable[[str], None] = lambda words: None,
    of: int = 0,
    more: Sequence[str] = (),
) -> list[Bound]:
    """The bounds of these jobs, all true together with 99.9 % (with those of a table of `of` pairs, where they join
    one), and those of their claims, and of `more` of them, that can be enumerated."""
    names = dict.fromkeys([*(job.claim for job in jobs), *more])
    bounds = [enumerated(name) for name in names if registry()[name].exact is not None]
    return bounds + carry_out(jobs, FAMILY / max(len(jobs), of), pool, tell)


# -- broken twins ----------------------------------------------------------------------------------------------------


def in_twin(fault: object, jobs: Sequence[Job], alpha: float, exact: Sequence[str] = ()) -> list[Bound]:
    """The same audit, in a process that imports a copy of the package with one line changed."""
    from planted import plant

    with tempfile.TemporaryDirectory() as folder:
        plant(fault, Path(folder))  # type: ignore[arg-type]
        environment = dict(os.environ, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
        asked = {"jobs": [asdict(job) for job in jobs], "alpha": alpha, "exact": list(exact), "in": folder}
        run = subprocess.run(
            [sys.executable, str(HERE / "falsify.py"), "--asked", json.dumps(asked)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if run.returncode:
        raise RuntimeError(f"the twin did not run: {run.stderr[-2000:]}")
    return [Bound(**row) for row in json.loads(run.stdout)]


def answer(asked: str) -> None:
    """What a twin's process does."""
    import kasuri

    wanted = json.loads(asked)
    assert kasuri.__file__.startswith(wanted["in"]), "the changed copy was not imported"
    bounds = [enumerated(name) for name in wanted["exact"]]
    bounds += carry_out([Job(**job) for job in wanted["jobs"]], wanted["alpha"], None, lambda words: None)
    json.dump([asdict(bound) for bound in bounds], sys.stdout)


# -- the command -----------------------------------------------------------------------------------------------------


def say(words: str) -> None:
    print(f"falsify: {words}", file=sys.stderr, flush=True)


def worst(bounds: Iterable[Bound]) -> dict[str, Bound]:
    """For each claim the case that comes nearest to its epsilon."""
    found: dict[str, Bound] = {}
    for bound in bounds:
        if (
            bound.claim not in found
            or bound.found / bound.epsilon > found[bound.claim].found / found[bound.claim].epsilon
        ):
            found[bound.claim] = bound
    return found


def main(words: Sequence[str] | None = None) -> int:
    from twins import TWINS, powers, twin_rows

    parser = argparse.ArgumentParser(prog="python3 run.py falsify", description=__doc__.split("\n\n")[0],
                                     epilog="example: python3 run.py falsify --hours 0.5")  # fmt: skip
    parser.add_argument("--hours", type=float, help="spend so long; otherwise some minutes")
    parser.add_argument("--only", default="", help="claims whose name holds this word (or one of a|b|c); no twins "
                        "unless they are recorded")  # fmt: skip
    parser.add_argument("--seed", type=int, help="repeat a run; otherwise a fresh one, which is printed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; one per core unless given")
    parser.add_argument("--json", action="store_true", help="the tables as JSON on standard output")
    parser.add_argument("--record", action="store_true", help="write the tables, or the rows of --only, into "
                        "docs/assurance.md")  # fmt: skip
    parser.add_argument("--asked", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.asked is not None:
        answer(given.asked)
        return 0
    names = [name for name in registry() if any(word in name for word in given.only.split("|"))]
    if not names:
        parser.error(f"no claim holds {given.only!r}; there are {', '.join(registry())}")
    seed = secrets.randbits(48) if given.seed is None else given.seed
    cores = given.workers
    seconds = QUICK if given.hours is None else 3600 * given.hours * cores * (1.0 if given.only else 0.5)
    more = 0 if given.hours is None else round(6 * given.hours)
    jobs = planned(names, seconds, more, seed)
    say(
        f"seed {seed}; {len(names)} claims, {len(jobs)} pairs of neighbours, {sum(2 * job.runs for job in jobs):,} runs"
    )
    of = len(planned(list(registry()), seconds, more, seed))  # rows of a part must hold beside all the others
    began = time.monotonic()
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        bounds = audit(jobs, pool, say, of, names)
    strengths, tried = {}, []
    if given.record or not given.only:
        strengths = powers(jobs, cores, say, of)
        tried = [twin for twin in TWINS if twin.attack.claim in names]
    rows = claim_rows(bounds, strengths)
    if given.record:
        keep_claims(rows, seed, (time.monotonic() - began) / 60, given.hours, given.only)
    caught = twin_rows(tried, seed, cores, say)
    twins = [twin.row() for twin in caught]
    if given.record and twins:
        keep_twins(twins, given.hours, given.only)
    if given.json:
        tables: dict[str, Any] = {"seed": seed, "claims": [asdict(bound) for bound in bounds], "power": strengths}
        print(json.dumps(tables | {"twins": [asdict(twin) for twin in caught]}, indent=1))
    else:
        show([CLAIM_COLUMNS, *rows])
        if twins:
            show([TWIN_COLUMNS, *twins])
    broken, missed = [bound for bound in bounds if bound.broken], [twin for twin in caught if not twin.caught]
    for bound in broken:
        words = f"at least {bound.found:.4f}, printed {bound.epsilon}"
        say(f"EXCEEDED: {bound.claim}, {bound.case}: {words}; {bound.event}")
    for twin in missed:
        say(f"NOT CAUGHT: {twin.name} ({twin.claim}): {twin.found:.3f} of {twin.epsilon:.3f}")
    say(f"{len(bounds)} bounds, {len(broken)} above a claim; {len(caught) - len(missed)} of {len(caught)} twins caught")
    return 1 if broken or missed else 0


CLAIM_COLUMNS = [
    "claim",
    "of",
    "epsilon",
    "delta",
    "lower bound",
    "pairs",
    "runs",
    "nearest pair",
    "mildest fault found",
]
TWIN_COLUMNS = ["one changed line", "claim attacked", "epsilon printed", "lower bound", "caught"]


def claim_rows(bounds: Sequence[Bound], strengths: dict[str, str]) -> list[list[str]]:
    rows = []
    for name, bound in worst(bounds).items():
        claim = registry()[name]
        own = [other for other in bounds if other.claim == name]
        delta = f"{bound.delta:.3g}" if bound.delta else "0"
        strength = strengths.get(name, "any: enumerated" if claim.exact else "see the twins")
        runs = f"{sum(2 * other.runs for other in own):,}"
        printed = [f"{bound.epsilon:.4g}", delta, f"{bound.found:.3f}"]
        rows.append([f"`{name}`", claim.covers, *printed, str(len(own)), runs, bound.case, strength])
    return rows


def show(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


def _command(hours: float | None, only: str = "") -> str:
    narrowed = f" --only '{only}'" if only else ""
    return "python3 run.py falsify" + (f" --hours {hours:g}" if hours else "") + narrowed + " --record"


def keep_claims(rows: list[list[str]], seed: int, took: float, hours: float | None, only: str = "") -> None:
    """The whole table, or the rows of a run with --only in the place of the older ones."""
    from assurance import kept, record

    earlier = kept("claims") if only else {}
    names = [row[0] for row in rows]
    order = [f"`{name}`" for name in registry()]
    rows = sorted(
        [row for row in earlier.get("rows", []) if row[0] not in names and row[0] in order] + rows,
        key=lambda row: order.index(row[0]),
    )
    runs = [part for part in earlier.get("runs", []) if not set(part["rows"]) <= set(names)]
    runs.append({"seed": seed, "minutes": round(took), "command": _command(hours, only), "rows": names})
    seeds = " and ".join(f"{part['seed']} (`{part['command']}`)" for part in runs)
    pairs, times = (sum(int(row[CLAIM_COLUMNS.index(name)].replace(",", "")) for row in rows)
                    for name in ("pairs", "runs"))  # fmt: skip
    text = (
        f"{len(rows)} claims, {pairs} pairs of neighbours or enumerations, {times:,} runs, "
        f"{sum(part['minutes'] for part in runs)} minutes with those of the last column, seed {seeds}.\n"
        "The lower bound is what the outputs prove about epsilon: with "
        "a confidence of 99.9 % for the whole table the\ntrue loss is at least so large. A bound below the claim does "
        "not prove the claim; the last column says which fault so many runs on each side find.\nA run of a local "
        "randomizer is 40 reports. [How to read it](guide/assurance.md)."
    )
    record("claims", _command(hours), text, CLAIM_COLUMNS, rows, runs=runs)


def keep_twins(rows: list[list[str]], hours: float | None, only: str = "") -> None:
    """The whole table, or the rows of a run with --only in the place of the older ones."""
    from assurance import kept, record
    from twins import TWINS

    earlier = kept("twins") if only else {}
    new, order = [row[:2] for row in rows], [[twin.fault.name, f"`{twin.attack.claim}`"] for twin in TWINS]
    rows = sorted(
        [row for row in earlier.get("rows", []) if row[:2] not in new and row[:2] in order] + rows,
        key=lambda row: order.index(row[:2]),
    )
    caught = sum(row[-1] == "yes" for row in rows)
    text = (
        f"{caught} of {len(rows)} copies of the package with one line changed were caught: the lower bound from their "
        "outputs exceeds\nthe epsilon that they print."
    )
    notes = earlier.get("text", "").partition("they print.")[2]
    own = f"\nRows of {', '.join(sorted({row[1] for row in new}))} are from `{_command(hours, only)}`."
    notes = notes.replace(own, "") + own if only else ""
    record("twins", earlier.get("command", _command(hours)), text + notes, TWIN_COLUMNS, rows)


if __name__ == "__main__":
    sys.exit(main())
