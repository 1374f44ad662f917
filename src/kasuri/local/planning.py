"""What a collection will cost and tell, before anyone is asked: closed forms, no data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kasuri.errors import DomainError
from kasuri.local import numeric
from kasuri.local.categorical import MAKERS, Places
from kasuri.local.grid import Numeric
from kasuri.local.longitudinal import memoised
from kasuri.local.odds import loss
from kasuri.local.randomizer import Randomizer
from kasuri.local.read import NUMBERS
from kasuri.privacy import Exact, Meant, asked


@dataclass(frozen=True)
class Option:
    """One randomizer: the standard error of one category's count (of an empty one, and of one with `share` of all
    people) or of the mean of numbers (where all have the worst number, and where all have the middle one), bytes on the
    wire, and the exact loss of one report (of a permanent one, for memoised)."""

    randomizer: Randomizer | Numeric
    standard_error: float
    standard_error_share: float
    bytes: int
    loss: float


@dataclass(frozen=True)
class Plan:
    """All options, the least standard error first; `epsilon` is what a person spends in `reports` reports."""

    options: tuple[Option, ...]
    users: int
    reports: int
    epsilon: Fraction

    @property
    def best(self) -> Option:
        return self.options[0]

    def to_json(self) -> dict[str, object]:
        return {
            "users": self.users,
            "reports": self.reports,
            "epsilon": str(float(self.epsilon)),
            "options": [
                {
                    "kind": option.randomizer.kind,
                    "standard_error": option.standard_error,
                    "standard_error_share": option.standard_error_share,
                    "bytes": option.bytes,
                    "loss": option.loss,
                }
                for option in self.options
            ],
        }


def plan(
    places: Places,
    *,
    users: int,
    epsilon: Exact,
    reports: int = 1,
    share: float = 0.1,
    randomizer: str | None = None,
    elsewhere: bool = True,
    v_max: int | None = None,
    epsilon_instant: Exact | None = None,
) -> Plan:
    """Compare the randomizers for `users` people who each may spend `epsilon` in all, over `reports` fresh reports.

    randomizer: one of them by name, where the operator has chosen ("cms" is count_mean_sketch). `elsewhere` False
    leaves out the category of places outside the domain: then nobody may be elsewhere. "memoised" takes `v_max` and
    `epsilon_instant` as well: epsilon is then that of v_max permanent reports together, however many copies are sent.
    standard_error = sqrt(n q (1 - q)) / (p - q) with the exact p and q: of the inversion; em and a prior do better.
    """
    _check(users, reports)
    randomizer = "count_mean_sketch" if randomizer == "cms" else randomizer
    if not 0 <= share <= 1:
        raise DomainError("plan: share lies in 0..1")
    if randomizer not in (None, "memoised", *MAKERS):
        raise DomainError(f"plan: the randomizer of places is one of {', '.join((*MAKERS, 'memoised'))}")
    kept = randomizer == "memoised"
    if kept != (v_max is not None) or kept != (epsilon_instant is not None) or (kept and not elsewhere):
        raise DomainError("plan: v_max and epsilon_instant go with memoised, which needs them and an elsewhere")
    whole = asked(epsilon)
    made: list[Randomizer]
    if v_max is not None and epsilon_instant is not None:
        if type(v_max) is not int or v_max < 1:
            raise DomainError("plan: v_max is a whole number of at least 1")
        permanent = _part(whole, v_max)
        made = [memoised(places, epsilon_permanent=permanent, epsilon_instant=epsilon_instant, v_max=v_max)]
    else:
        makers = MAKERS.values() if randomizer is None else (MAKERS[randomizer],)
        made = [make(places, epsilon=_part(whole, reports), elsewhere=elsewhere) for make in makers]
    wider = reports**0.5 if kept else 1.0  # copies of one permanent report are not new evidence
    options = []
    for one in made:
        p, q = float(one.law.p), float(one.law.q)
        empty = users * q * (1 - q)
        full = users * (share * p * (1 - p) + (1 - share) * q * (1 - q))
        lost = float(one.epsilon) if kept else loss(one.law.ratio)
        scale = wider / (p - q)
        options.append(Option(one, scale * empty**0.5, scale * full**0.5, one.width, lost))
    options.sort(key=lambda option: (option.standard_error_share, option.bytes))
    return Plan(tuple(options), users, reports, whole)


def plan_numbers(
    bounds: tuple[object, object], *, users: int, epsilon: Exact, reports: int = 1, randomizer: str | None = None
) -> Plan:
    """The same for numbers in public bounds: the standard error is that of their mean."""
    _check(users, reports)
    if randomizer not in (None, *NUMBERS):
        raise DomainError(f"plan: the randomizer of numbers is one of {', '.join(NUMBERS)}")
    whole = asked(epsilon)
    options = {}
    for name in NUMBERS if randomizer is None else (randomizer,):
        one = numeric.MAKERS[name](bounds, epsilon=_part(whole, reports))
        values = np.array([float(value) for value in one.values])
        means = np.linspace(-1, 1, one.steps + 1)
        half = float(one.high - one.low) / 2
        errors = np.sqrt((one.channel @ values**2 - means**2) / (users * reports)) * half
        options[one.kind] = Option(one, float(errors.max()), float(errors[one.steps // 2]), one.width, loss(one.ratio))
    found = sorted(options.values(), key=lambda option: (option.standard_error, option.bytes))
    return Plan(tuple(found), users, reports, whole)


def _check(users: int, reports: int) -> None:
    if not isinstance(users, int) or users < 1 or not isinstance(reports, int) or reports < 1:
        raise DomainError("plan: users and reports are whole numbers of at least 1")


def _part(whole: Fraction, parts: int) -> Fraction:
    return Meant(whole / parts) if isinstance(whole, Meant) else whole / parts
