"""accept(): would a release be good enough? Judged before any data is touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.draw import release
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.noise.rng import seeded
from kasuri.privacy import Exact, Meant, asked
from kasuri.public import PublicTable
from kasuri.published.acceptance import Acceptance, Criterion, Verdict, by_form, down
from kasuri.recipes.mechanism import DENSE_CELLS, Mechanism, NoForm
from kasuri.schema import Domain, Unit
from kasuri.study.evaluate import Blocks, Summed, areas_of
from kasuri.study.evaluate import Regions as Irregular
from kasuri.table import Counts

Sums = Blocks | Irregular | Summed


def accept(
    criteria: Sequence[Criterion],
    mechanism: Mechanism,
    domain: Domain,
    unit: Unit,
    *,
    epsilon: Exact,
    public: PublicTable | None = None,
    trials: int = 20,
    progress: Callable[[float], None] | None = None,
) -> Acceptance:
    """Judge `criteria` for releases of `mechanism` at `epsilon`, to be handed to `release(..., acceptance=)`.

    By a closed form where the recipe has one of what it releases; else `public`, a table over the same domain (an
    earlier census that is published, an estimate), is released `trials` times with seeded noise, and its areas of more
    than `people` are counted: a criterion is met if the mean share, less two standard errors over the trials, reaches
    the share asked for.

    Privacy
    -------
    Nothing is charged and nothing of the data is read: Counts are refused. The table is taken as public because you
    declare it so by name. Proof: docs/proofs/acceptance.md.

    Cost: O(n) for n cells, per trial; closed forms O(depth).
    """
    if isinstance(public, Counts):
        raise PrivacyError("accept: criteria are never judged on Counts; public= is a PublicTable")
    faults = []
    if not criteria or any(not isinstance(criterion, Criterion) for criterion in criteria):
        faults.append('accept: criteria is a list such as [ks.Criterion(16, people=500, within="5 %", share="95 %")]')
    if not isinstance(mechanism, Mechanism):
        faults.append("accept: mechanism is a recipe such as ks.best()")
    if public is not None and not isinstance(public, PublicTable):
        faults.append("accept: public is a PublicTable")
    elif public is not None and public.domain != domain:
        faults.append(f"accept: the public table {public.name!r} is over another domain than the release")
    if not isinstance(trials, int) or isinstance(trials, bool) or trials < 2:
        faults.append("accept: trials is a whole number from 2")
    raise_faults(DomainError, faults)
    areas = _areas(domain, criteria)
    loss = asked(epsilon)
    run = mechanism.on(domain, unit, loss)
    plan = run.mechanism.plan(domain, unit, loss)
    told = [by_form(run, criterion) for criterion in criteria]
    judged = {
        criterion: Verdict(criterion, form)
        for criterion, form in zip(criteria, told, strict=True)
        if not isinstance(form, NoForm)
    }
    if len(judged) == len(set(criteria)):
        return Acceptance(tuple(judged[criterion] for criterion in criteria), plan)
    if public is None:
        raise DomainError(*dict.fromkeys(form.why for form in told if isinstance(form, NoForm)))
    truth = Counts.from_coo(public.cells, np.rint(public.values).astype(np.int64), domain, unit, data=public.name)
    tried = {one: _Tried(areas[one.areas], one, truth) for one in criteria if one not in judged}
    raise_faults(DomainError, [one.nothing for one in tried.values() if not one.judged.any()])
    for trial in range(trials):
        out = release(truth, run.mechanism, epsilon=Meant(loss), ledger=None, source=seeded(trial)).to_dense()
        for one in tried.values():
            one.add(out)
        if progress is not None:
            progress((trial + 1) / trials)
    judged |= {one: found.verdict() for one, found in tried.items()}
    verdicts = tuple(judged[criterion] for criterion in criteria)
    return Acceptance(verdicts, plan, (public.name, public.fingerprint()), trials)


def _areas(domain: Domain, criteria: Sequence[Criterion]) -> dict[int | str, Sums]:
    """The areas of every criterion, with all faults at once; none of a domain too large to be written out, of which
    closed forms alone can speak."""
    if domain.size > DENSE_CELLS:
        return {}
    asked_for = dict.fromkeys(criterion.areas for criterion in criteria)
    faults: list[str] = []
    found: dict[int | str, Sums] = {}
    for one in asked_for:
        sizes, views = ([one], ()) if isinstance(one, int) else ((), [one])
        try:
            found |= areas_of(domain, sizes, (), views, domain.maps)
        except DomainError as error:
            faults += error.faults
    raise_faults(DomainError, faults)
    return found


class _Tried:
    """The areas of one criterion on the public table, and the shares of them within reach, trial by trial."""

    def __init__(self, areas: Sums, criterion: Criterion, truth: Counts) -> None:
        dense = np.zeros(truth.domain.size, dtype=np.int64)
        dense[truth.cells] = truth.values
        self._areas, self._criterion, self._shares = areas, criterion, list[float]()
        sums = areas.sums(dense.reshape(truth.domain.shape)).ravel()
        self.judged = sums > criterion.people
        self._sums = sums[self.judged]
        self.nothing = f"accept: no area of the public table holds more than asked: {criterion.words()}"

    def add(self, out: NDArray[Any]) -> None:
        off = np.abs(self._areas.sums(out).ravel()[self.judged] - self._sums)
        self._shares.append(float((off <= float(self._criterion.within) * self._sums).mean()))

    def verdict(self) -> Verdict:
        margin = 2 * float(np.std(self._shares, ddof=1)) / math.sqrt(len(self._shares))
        return Verdict(self._criterion, down(float(np.mean(self._shares))), -down(-margin), int(self.judged.sum()))
