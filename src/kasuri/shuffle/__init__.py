"""Two organisations, one table that nobody can trace: pseudonymise, randomise, shuffle, forget, join.

plan = ks.shuffle.Plan(key="phone", a=("age",), b=("spend",), bounds={"age": (20, 80), "spend": (0, 1000)},
                       epsilon_each="1", delta=1e-8)
with ks.shuffle.Party(plan, "a", secret) as a: table_a = a.run(rows_a)
joined = ks.shuffle.join(plan, table_a, table_b)
ks.shuffle.covariance(joined); ks.shuffle.synthesize(joined, rows=100_000)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kasuri import doors

_HOME = {
    "Bound": "bounds",
    "Claims": "plan",
    "Joined": "joined",
    "Party": "party",
    "Plan": "plan",
    "Secret": "secret",
    "Shuffled": "party",
    "attack": "bounds",
    "bounds_of": "bounds",
    "contingency": "statistics",
    "covariance": "statistics",
    "exchange": "secret",
    "join": "joined",
    "logistic": "models",
    "pca": "models",
    "quality": "synthesis",
    "regression": "models",
    "report": "overview",
    "summary": "overview",
    "svm": "models",
    "synthesize": "synthesis",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from kasuri.shuffle.bounds import Bound as Bound
    from kasuri.shuffle.bounds import attack as attack
    from kasuri.shuffle.bounds import bounds_of as bounds_of
    from kasuri.shuffle.joined import Joined as Joined
    from kasuri.shuffle.joined import join as join
    from kasuri.shuffle.models import logistic as logistic
    from kasuri.shuffle.models import pca as pca
    from kasuri.shuffle.models import regression as regression
    from kasuri.shuffle.models import svm as svm
    from kasuri.shuffle.overview import report as report
    from kasuri.shuffle.overview import summary as summary
    from kasuri.shuffle.party import Party as Party
    from kasuri.shuffle.party import Shuffled as Shuffled
    from kasuri.shuffle.plan import Claims as Claims
    from kasuri.shuffle.plan import Plan as Plan
    from kasuri.shuffle.secret import Secret as Secret
    from kasuri.shuffle.secret import exchange as exchange
    from kasuri.shuffle.statistics import contingency as contingency
    from kasuri.shuffle.statistics import covariance as covariance
    from kasuri.shuffle.synthesis import quality as quality
    from kasuri.shuffle.synthesis import synthesize as synthesize
else:
    __getattr__, __dir__ = doors.lazy("kasuri.shuffle", _HOME)
