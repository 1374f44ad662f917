"""What a collection will cost and tell, before anyone is asked: closed forms, no data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kasuri.errors import DomainError
from kasuri.local.categorical import MAKERS, Places
from kasuri.local.odds import loss
from kasuri.local.randomizer import Randomizer
from kasuri.privacy import Exact, Meant, asked


@dataclass(frozen=True)
class Option:
    """One randomizer: the standard error of one category's count (of an empty one, and of one with `share` of all
    people), bytes on the wire, and the exact loss of one report."""

    randomizer: Randomizer
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
) -> Plan:
    """Compare the randomizers for `users` people who each may spend `epsilon` in all, over `reports` fresh reports.

    randomizer: one of them by name, where the operator has chosen; `elsewhere` False leaves out the category of places
    outside the domain: then nobody may be elsewhere.
    standard_error = sqrt(n q (1 - q)) / (p - q) with the exact p and q: of the inversion; em and a prior do better.
    """
    if not isinstance(users, int) or users < 1 or not isinstance(reports, int) or reports < 1 or not 0 <= share <= 1:
        raise DomainError("plan: users and reports are whole numbers of at least 1, share lies in 0..1")
    if randomizer is not None and randomizer not in MAKERS:
        raise DomainError(f"plan: the randomizer is one of {', '.join(MAKERS)}")
    whole = asked(epsilon)
    each = Meant(whole / reports) if isinstance(whole, Meant) else whole / reports
    options = []
    for make in MAKERS.values() if randomizer is None else (MAKERS[randomizer],):
        made = make(places, epsilon=each, elsewhere=elsewhere)
        p, q = float(made.law.p), float(made.law.q)
        empty = users * q * (1 - q)
        full = users * (share * p * (1 - p) + (1 - share) * q * (1 - q))
        options.append(Option(made, empty**0.5 / (p - q), full**0.5 / (p - q), made.width, loss(made.law.ratio)))
    options.sort(key=lambda option: (option.standard_error_share, option.bytes))
    return Plan(tuple(options), users, reports, whole)
