"""Declared: a series of equal releases that is priced as a whole, before the first of them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kasuri.budget.accounting import Losses, pld_epsilon, repeated
from kasuri.budget.gaussian import Normal
from kasuri.errors import PrivacyError
from kasuri.privacy import decimal, exact


@dataclass(frozen=True)
class Declared:
    """A series of equal releases, declared before the first: `releases` times one recipe on one domain.

    `plan` is the public fingerprint (recipe, domain, unit, epsilon) a release must show to count as one of them. With
    discrete Gaussian noise each release is (epsilon, delta)-DP by itself.
    """

    recipe: str
    plan: str
    epsilon: Fraction
    losses: Losses | Normal
    releases: int
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not isinstance(self.releases, int) or isinstance(self.releases, bool) or self.releases < 1:
            raise PrivacyError("a series needs a whole number of releases, at least 1")
        if isinstance(self.losses, Normal) != (self.delta > 0):
            raise PrivacyError("a series has a delta for each release where its noise is Gaussian, and only there")
        if not isinstance(self.losses, Normal):
            parts = sum((exact(epsilon) * count for epsilon, count in self.losses), start=Fraction(0))
        else:
            parts = self.losses.price(self.delta)
            if parts > self.epsilon:
                raise PrivacyError("a release of the series costs more than its epsilon at its delta")
            return
        if parts < exact(self.epsilon):
            raise PrivacyError("a series' parts lose less than its epsilon: the pair is not that of the release")

    @property
    def pure(self) -> Fraction:
        """The sum of the epsilons of the whole series."""
        return self.epsilon * self.releases

    def price(self, delta: Fraction) -> Fraction:
        """Epsilon of the whole series at `delta`."""
        return priced(self.losses, self.releases, self.epsilon, delta)

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"recipe": self.recipe, "plan": self.plan, "epsilon": decimal(self.epsilon)}
        if isinstance(self.losses, Normal):
            said |= {"delta": decimal(self.delta), "rho": decimal(self.losses.rho)}
            said["variances"] = _written(self.losses.parts)
        else:
            said["losses"] = _written(self.losses)
        return said | {"releases": self.releases}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Declared:
        named = data["recipe"], data["plan"], exact(data["epsilon"])
        if "variances" not in data:
            return cls(*named, _read(data["losses"]), data["releases"])
        losses = Normal(exact(data["rho"]), _read(data["variances"]))
        return cls(*named, losses, data["releases"], exact(data["delta"], "delta"))


def priced(losses: Losses | Normal, releases: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Epsilon at `delta` of so many releases of `epsilon` each: the least of the pure sum, where there is one, and the
    loss distribution."""
    if isinstance(losses, Normal):
        if delta == 0:
            raise PrivacyError("discrete Gaussian noise has a price at a delta above 0 only")
        return losses.repeated(releases).price(delta)
    pure = epsilon * releases
    return pure if delta == 0 else min(pure, pld_epsilon(repeated(losses, releases), delta))


def _written(parts: Losses) -> list[list[Any]]:
    return [[decimal(number), count] for number, count in parts]


def _read(parts: list[Any]) -> Losses:
    return tuple((exact(number, "a part"), int(count)) for number, count in parts)
