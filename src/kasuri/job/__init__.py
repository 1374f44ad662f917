"""One TOML file for one release: data, domain, unit, recipe, budget, outputs. Unknown keys are refused.

Nothing public is derived from the data: what the file does not say is an error, never a guess.
"""

from kasuri.job.begun import begun, declared, recognised
from kasuri.job.checking import check, faults
from kasuri.job.facts import domain, mechanism, public_columns, sources, unit
from kasuri.job.lines import line_of, load, schema
from kasuri.job.models import Job
from kasuri.job.running import counts, judge_criteria, judge_exports, rehearse, run
from kasuri.job.template import TEMPLATE
from kasuri.job.written import python, toml

__all__ = [
    "TEMPLATE",
    "Job",
    "begun",
    "check",
    "counts",
    "declared",
    "domain",
    "faults",
    "judge_criteria",
    "judge_exports",
    "line_of",
    "load",
    "mechanism",
    "public_columns",
    "python",
    "recognised",
    "rehearse",
    "run",
    "schema",
    "sources",
    "toml",
    "unit",
]
