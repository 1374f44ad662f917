"""Reports that repeat: a permanent answer for each place, drawn once and kept, and fresh bits on top each time.

Fresh reports add up: six a day cost six epsilon a day. A memoised client draws one permanent unary report for each
category it is ever in, keeps it, and sends a freshly disturbed copy of it every time (RAPPOR's two stages). All it
sends is then a function of at most v_max permanent reports.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from numpy.typing import ArrayLike

from kasuri.errors import DomainError, PrivacyError, ProtocolError
from kasuri.local.categorical import Unary, unary
from kasuri.local.odds import BITS, demand, least, within
from kasuri.local.randomizer import ONE_DEVICE, PUBLIC, Law, Reports, Word, domain_of
from kasuri.noise.rng import Source
from kasuri.privacy import Exact, Guarantee, Meant, asked, exact, promised
from kasuri.schema import Axis, Domain, Unit

PATTERN = "the times at which a person stays or moves on are not protected, only where the person is"


@dataclass(frozen=True)
class Memoised(Unary):
    """Permanent bits as in Unary (p, q), each then sent as 1 with instant_p/N where it is 1, instant_q/N where it is 0.

    Privacy: Neighbours: a person's places are exchanged for other places, the pattern of staying and moving on kept.
    Sensitivity: at most v_max permanent reports, each of worst ratio p (N - q) / (q (N - p)). Guarantee: v_max times
    epsilon (of one permanent report) for any number of reports. Proof: docs/proofs/local_memoised.md. Public: as for
    Randomizer, and the pattern. Assumes: the client keeps its permanent reports and v_max.
    """

    instant_p: int = field(kw_only=True)
    instant_q: int = field(kw_only=True)
    v_max: int = field(kw_only=True)
    kind: ClassVar[str] = "memoised"
    basis: ClassVar[str] = "docs/proofs/local_memoised.md"

    def __post_init__(self) -> None:
        if not 0 < self.instant_q < self.instant_p < self.words:
            raise DomainError("memoised: 0 < instant_q < instant_p < 2^bits")
        if not self.elsewhere or not 1 <= self.v_max <= self.size:
            raise DomainError("memoised: v_max from 1 to the number of categories, with an elsewhere category")
        super().__post_init__()
        N = self.words
        worst = Fraction(self.p * (N - self.q), self.q * (N - self.p))
        demand(worst, self.epsilon, "the permanent report")

    @property
    def law(self) -> Law:
        """The law of a single report: both stages together."""
        N = self.words
        p, q = (Fraction(one * self.instant_p + (N - one) * self.instant_q, N * N) for one in (self.p, self.q))
        return Law(p, q, p * (1 - q) / (q * (1 - p)))

    def guarantee(self, *, reports: int = 1, person: str = "person") -> Guarantee:
        """v_max times epsilon, however many reports follow."""
        return Guarantee(
            "local",
            self.epsilon * self.v_max,
            Fraction(0),
            Unit(person, "replace", self.v_max),
            (*PUBLIC, "when a person stays or moves on"),
            (
                f"a device is in at most {self.v_max} categories, then reports elsewhere, and keeps what it drew",
                PATTERN,
                ONE_DEVICE,
            ),
            self.basis,
        )

    def permanent(self, category: int, word: Word) -> int:
        """A permanent report: d bits."""
        return int.from_bytes(super().report(category, word), "little")

    def instant(self, permanent: int, word: Word) -> bytes:
        """A disturbed copy of a permanent report."""
        sent = 0
        for x in range(self.size):
            sent |= int(word() < (self.instant_p if permanent >> x & 1 else self.instant_q)) << x
        return sent.to_bytes(self.width, "little")

    def report(self, category: int, word: Word) -> bytes:
        return self.instant(self.permanent(category, word), word)

    def randomize(self, values: ArrayLike | Sequence[str | None], *, source: Source | None = None) -> Reports:
        """Refused: a second call would draw second permanent reports of the same people, outside the claim."""
        raise PrivacyError("memoised reports need a memory for each person: use one MemoisedClient for each")


class MemoisedClient:
    """One person's memory of permanent reports. At most v_max of them: the last one is kept for "elsewhere"."""

    def __init__(self, randomizer: Memoised, *, word: Callable[[], int] | None = None) -> None:
        self.randomizer = randomizer
        self._word = word or (lambda: secrets.randbits(randomizer.bits))
        self._kept: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"MemoisedClient({self.randomizer.kind})"

    def report(self, value: str | int | None) -> bytes:
        """A report of `value`; of "elsewhere" when its place would be one too many."""
        return self.report_category(int(self.randomizer.categories([value])[0]))

    def report_category(self, category: int) -> bytes:
        """The same for a category's number."""
        randomizer = self.randomizer
        elsewhere = randomizer.size - 1
        places = len(self._kept.keys() - {elsewhere})
        if category not in self._kept and category != elsewhere and places >= randomizer.v_max - 1:
            category = elsewhere
        if category not in self._kept:
            self._kept[category] = randomizer.permanent(category, self._word)
        return randomizer.instant(self._kept[category], self._word)

    def to_json(self) -> dict[str, object]:
        """The memory, to be kept on the device: it is as confidential as the places themselves."""
        return {"randomizer": self.randomizer.fingerprint, "kept": {str(k): v for k, v in self._kept.items()}}

    def restore(self, data: Mapping[str, object]) -> None:
        """Take up a memory again, in a fresh client; one of another randomizer, or beyond v_max, is refused."""
        if self._kept:
            raise ProtocolError("this client has a memory already: restore into a fresh one")
        given, d = data.get("kept"), self.randomizer.size
        if data.get("randomizer") != self.randomizer.fingerprint or not isinstance(given, dict):
            raise ProtocolError("this memory belongs to another randomizer")
        kept: dict[int, int] = {}
        for category, bits in given.items():
            if not (isinstance(category, str) and category.isascii() and category.isdigit() and len(category) < 10):
                raise ProtocolError("this memory is damaged: categories are whole numbers")
            if int(category) >= d or type(bits) is not int or not 0 <= bits < 1 << d:
                raise ProtocolError("this memory is damaged: it holds what this randomizer does not make")
            kept[int(category)] = bits
        if len(kept) != len(given) or len(kept.keys() - {d - 1}) > self.randomizer.v_max - 1:
            raise ProtocolError("this memory holds more than v_max permanent reports")
        self._kept = kept


def memoised(
    places: Domain | Axis,
    *,
    epsilon_permanent: Exact,
    epsilon_instant: Exact,
    v_max: int,
    bits: int = BITS,
) -> Memoised:
    """Two-stage unary reports: epsilon_permanent bounds what all reports of one place tell together, epsilon_instant
    how much one copy tells of its permanent report; the claim is v_max * epsilon_permanent."""
    each = asked(epsilon_permanent, "epsilon_permanent")
    if isinstance(v_max, int) and not isinstance(each, Meant):
        promised(each * v_max, "v_max times epsilon_permanent")
    base = unary(places, epsilon=each, bits=bits)
    eps, N = exact(epsilon_instant, "epsilon_instant"), 1 << bits
    q = least(1, N // 2 - 1, lambda k: within(Fraction((N - k) ** 2, k * k), eps))
    return Memoised(
        domain_of(places), base.epsilon, base.p, base.q, True, bits=bits, instant_p=N - q, instant_q=q, v_max=v_max
    )
