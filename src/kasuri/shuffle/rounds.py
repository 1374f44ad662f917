"""The shuffle-model claim of a closed round of local reports: what the published estimate costs, beside epsilon.

Each device sent one fresh epsilon-LDP report. Whoever sees only a symmetric function of the n reports of a round (the
estimate; an export in a fresh order) sees no more than the shuffled reports, so that the clones bound of [Feldman2023]
holds for n (docs/proofs/shuffle_bounds.md, "A round of local reports"). It never replaces the local epsilon: the
collector itself sees every report.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from kasuri.errors import PrivacyError
from kasuri.local.longitudinal import Memoised
from kasuri.local.wire import Round
from kasuri.privacy import Guarantee, exact
from kasuri.schema import Unit
from kasuri.shuffle import bounds

PROOF = "docs/proofs/shuffle_bounds.md"
ASSUMES = (
    "the other devices are honest: those that collude with who reads the estimate do not count to n",
    "the collector shuffles, shows symmetric functions of the reports alone and keeps the reports to itself",
    "nothing was shown of the round while it was open: two estimates tell of the reports between them",
    "a person has one token",
)
ADD_UP = "rounds that one person joins add up"
_DEVICE = Unit("device", "replace", 1)


def central_claim(opened: Round, n: int, delta: object) -> Guarantee:
    """What the estimate from the n reports of a closed round costs one device's value, for who sees it alone.

    Privacy
    -------
    Neighbours: one device's value changes; n is public. Sensitivity: one fresh report a device, epsilon-LDP in exact
    odds. Guarantee: (epsilon, delta) by the least valid shuffle bound. Proof: docs/proofs/shuffle_bounds.md. Public: n,
    the round. Assumes: `ASSUMES` and `ADD_UP`, and one-round tokens, so that n reports are n devices'.
    """
    wanted = exact(delta, "delta")
    faults = [
        (isinstance(opened.randomizer, Memoised), "memoised reports are copies of one draw, not fresh ones"),
        (opened.reports_per_device != 1, "a device may report more than once in this round"),
        (not opened.tokens, "without one-round tokens n reports need not be n devices'"),
        (not 2 <= n <= bounds.MAX_PEOPLE, "fewer than two reports hide nobody"),
        (not 0 < wanted < 1, "delta must lie between 0 and 1"),
    ]
    told = [words for bad, words in faults if bad]
    if told:
        raise PrivacyError(f"no shuffle-model claim: {'; '.join(told)}. The local epsilon is what holds")
    found = bounds.least(n, [Fraction(opened.randomizer.epsilon)], wanted, paired=False)
    return Guarantee("shuffle", found.epsilon, found.delta, _DEVICE, ("round", "n"), (*ASSUMES, ADD_UP), PROOF)


def together(claims: Sequence[Guarantee]) -> Guarantee:
    """What the published estimates of several rounds cost a person who joined them all: the sum.

    `claims` has one claim a round: the central one, or the local one where a round has no other.

    Privacy
    -------
    Neighbours: one person's values change, in every round; n of each is public. Sensitivity: as of the rounds.
    Guarantee: sums of epsilon and delta (basic composition: every round draws fresh noise, and a round may be opened
    in view of the estimates of those before it). Proof: docs/proofs/shuffle_bounds.md. Public: as of the rounds.
    Assumes: as of the rounds, and that a person has one device.
    """
    epsilon = sum((claim.epsilon for claim in claims), Fraction(0))
    delta = sum((claim.delta for claim in claims), Fraction(0))
    if not claims or delta >= 1:
        raise PrivacyError("no claim of these rounds together: there is none, or their deltas add up to 1 and more")
    caveats = tuple(dict.fromkeys(words for claim in claims for words in claim.assumes if words != ADD_UP))
    public = tuple(dict.fromkeys(words for claim in claims for words in claim.public))
    assumes = (*caveats, "a person joins each round with one device")
    return Guarantee("shuffle", epsilon, delta, _DEVICE, public, assumes, PROOF)
