"""All a report says of a join, as plain data, and the report itself. Post-processing of the joined rows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from kasuri.errors import DomainError, PrivacyError
from kasuri.privacy import decimal
from kasuri.shuffle.joined import Joined
from kasuri.shuffle.models import Model
from kasuri.shuffle.statistics import contingency, covariance
from kasuri.shuffle.synthesis import Synthetic, quality

_LABELS, _TABLES = 400, 12
"""Most cells of one table of counts, and most tables, in a summary."""


def summary(joined: Joined, *, synthetic: Synthetic | None = None, models: Iterable[Model] = ()) -> dict[str, Any]:
    """Plan, claims, means, covariances, counts by every two columns of labels (small ones), models, and how near
    synthetic rows are: JSON data. Refused where anything was drawn from a seed.

    Privacy
    -------
    Neighbours, Public, Assumes: as of the joined rows. Sensitivity: none: no data but the joined rows is read.
    Guarantee: that of the joined rows (post-processing). Proof: docs/proofs/shuffle_join.md.
    """
    if not joined.secure or (synthetic is not None and not synthetic.secure):
        raise PrivacyError("rows drawn from a seed are for tests: no report is made of them")
    if synthetic is not None and synthetic.guarantee != joined.claims.public:
        raise DomainError("the synthetic rows were made of other joined rows")
    plan = joined.plan
    labelled = [column for column in plan.columns if not column.is_number]
    pairs = [
        (one, two)
        for one, two in combinations(labelled, 2)
        if one.category.size * two.category.size <= _LABELS
    ][:_TABLES]  # fmt: skip
    moments = covariance(joined).to_json()
    return {
        "plan": plan.to_json(),
        "plan_hash": plan.hash,
        "claims": joined.claims.to_json(),
        "local_epsilon": decimal(plan.local_epsilon),
        "sides": {side: decimal(plan.side_claim(side).epsilon) for side in ("a", "b")},
        "moments": moments,
        "contingency": [
            {"row": one.name, "column": two.name, **contingency(joined, one.name, two.name).to_json()}
            for one, two in pairs
        ],
        "models": [model.to_json() for model in models],
        "synthetic": None
        if synthetic is None
        else {
            "rows": len(synthetic),
            "method": synthetic.method,
            "notes": [note for note in synthetic.notes if note not in moments["notes"]],
            "quality": quality(synthetic, joined).to_json(),
        },
    }


def report(joined: Joined, *, synthetic: Synthetic | None = None, models: Iterable[Model] = ()) -> str:
    """The report on a join: one HTML file, English and Japanese, no network. Equal rows give equal bytes."""
    from kasuri.report.shuffle import join_page

    return join_page(summary(joined, synthetic=synthetic, models=models))
