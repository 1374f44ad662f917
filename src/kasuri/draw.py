"""release(): the one place where Counts meets noise (and `spark`, which pays and draws alike)."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kasuri import __version__
from kasuri.budget.ledger import Ledger, Receipt
from kasuri.errors import AccuracyWarning, KasuriError, PrivacyError
from kasuri.noise.blocks import threads_or_all
from kasuri.noise.rng import Source, Streams, secure
from kasuri.privacy import Exact, Guarantee, asked
from kasuri.published.about import About
from kasuri.published.acceptance import Acceptance, fingerprint
from kasuri.published.protected import NO_LEDGER
from kasuri.published.release import Release
from kasuri.recipes import RECIPES, best
from kasuri.recipes.mechanism import Drawn, Mechanism, Run
from kasuri.schema import Part
from kasuri.table import Counts


def release(
    counts: Counts,
    mechanism: Mechanism | None = None,
    *,
    epsilon: Exact,
    ledger: Ledger | None,
    source: Source | None = None,
    threads: int | None = None,
    about: Mapping[str, str] | None = None,
    slots: tuple[str, str] | str | None = None,
    acceptance: Acceptance | None = None,
) -> Release:
    """Publish `counts` with `mechanism`, or `best()`, at `epsilon`: the one function that draws noise on counts.

    epsilon: an exact decimal such as "0.1"; above 20 with a second word, "25 weak". ledger: must be written out; it is
    charged, durably, before the release key is made, and nothing is refunded. None means unmetered, which the guarantee
    then says. source: `secure()` unless a test wants `seeded(n)`. threads: any number gives the same result.
    about: words for readers (title, title_en, title_ja, publisher, contact, source, licence, published, language),
    which the report, the certificates, the manifest and every export then carry. slots: of a window ledger, the start
    of the slot that the records come from, or those of the first and the last; without it they count in every window.
    acceptance: criteria judged beforehand by `accept`; a release that would not meet them is refused before the charge.
    """
    if not isinstance(counts, Counts):
        raise PrivacyError("release() takes Counts (see count(), Counts.from_dense, Counts.from_coo)")
    mechanism = best() if mechanism is None else mechanism
    source = checked(mechanism, ledger, source)
    words = None if about is None else About.of(about)
    run = mechanism.on(counts.domain, counts.unit, asked(epsilon))
    if "total" in run.guarantee.public and counts.part is not None:
        raise PrivacyError("a part of a split has no public total: a record that changes may move to another part")
    warned(run, counts.data)
    threads = threads_or_all(threads)
    span = (slots, slots) if isinstance(slots, str) else slots
    paid = charge(
        run, ledger, source, data=counts.data, assumes=counts.assumes, part=counts.part, about=words, slots=span,
        acceptance=acceptance,
    )  # fmt: skip
    with paid.streams() as streams:
        drawn = draw(run, counts, streams, threads)
    recipe = MappingProxyType({**run.words(), **drawn.words})
    parts = run.domain, drawn.cells, drawn.values, drawn.measurements
    return Release(*parts, paid.guarantee, recipe, paid.provenance, paid.receipt)


def warned(run: Run, data: str | None) -> None:
    """Before the charge: refuse public tables that have the name of the confidential data, and say what speaks against
    the choice, so that who reads it may still stop."""
    if data in run.mechanism.declared:
        raise PrivacyError(f"what is declared public as {data!r} has the name of the confidential data")
    for caution in run.cautions:
        warnings.warn(caution, AccuracyWarning, stacklevel=3)


def draw(run: Run, counts: Counts, streams: Streams, threads: int) -> Drawn:
    """The one step that sees both the counts and the keystreams: transform, noise, refine."""
    return run.draw(counts.cells, counts.values, streams, threads)


def checked(mechanism: object, ledger: object, source: Source | None) -> Source:
    """Refuse what is not a recipe, a ledger or a source of randomness; the source, `secure()` where none was named."""
    if not isinstance(mechanism, Mechanism):
        raise PrivacyError(f"release() takes a recipe such as best(); known: {', '.join(RECIPES)}")
    if ledger is not None and not isinstance(ledger, Ledger):
        raise PrivacyError("release() is charged to one Ledger (see Ledger.open), or to none: write ledger=None")
    source = secure() if source is None else source
    if type(source) is not Source:
        raise PrivacyError("source must be secure() or, in a test, seeded(n)")
    return source


@dataclass(frozen=True, eq=False)
class Paid:
    """A release that is paid for and not yet drawn: what it will claim, and where its one release key comes from."""

    guarantee: Guarantee
    provenance: Mapping[str, Any]
    receipt: Receipt | None
    source: Source
    recipe: str

    @contextmanager
    def streams(self) -> Iterator[Streams]:
        """The keystreams under a fresh release key. If the block fails the ledger notes it; nothing is refunded."""
        try:
            yield Streams(self.source.release_key(), self.recipe)
        except BaseException:
            if self.receipt is not None:
                with suppress(KasuriError):  # a note for the books; the first error is the one to tell
                    self.receipt.abandon()
            raise


def charge(
    run: Run,
    ledger: Ledger | None,
    source: Source,
    *,
    data: str | None,
    assumes: tuple[str, ...],
    part: Part | None,
    about: About | None,
    slots: tuple[str, str] | None = None,
    acceptance: Acceptance | None = None,
) -> Paid:
    """Charge `ledger` for `run`, durably, before any key is made; what would not meet its criteria is refused."""
    mechanism, guarantee = run.mechanism, run.guarantee.assuming(*assumes)
    plan = mechanism.plan(run.domain, guarantee.unit, guarantee.epsilon)
    judged = None
    if acceptance is not None:
        acceptance.judge(plan, data)
        judged = acceptance.to_json()
        plan = fingerprint(plan, judged)
    provenance: dict[str, Any] = {
        "release_id": secrets.token_hex(16),
        "software": f"kasuri {__version__}",
        "source": source.words(),
        "secure": source.secure,
        "data": data,
        "plan": plan,
        "ledger": None,
    }
    if about is not None:
        provenance["about"] = about.to_json()
    if judged is not None:
        provenance["acceptance"] = judged
    receipt = None
    if ledger is None:
        guarantee = guarantee.assuming(NO_LEDGER)
    else:
        receipt = ledger.reserve(guarantee, data=data, recipe=mechanism.name, plan=plan, part=part, slots=slots)
        provenance["ledger"] = receipt.reference()
    return Paid(guarantee, MappingProxyType(provenance), receipt, source, mechanism.name)
