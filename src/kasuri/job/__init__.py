"""One TOML file for one release: data, domain, unit, recipe, budget, outputs. Unknown keys are refused.

Nothing public is derived from the data: what the file does not say is an error, never a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kasuri import doors

_HOME = {
    "Job": "models",
    "TEMPLATE": "template",
    "check": "checking",
    "counts": "running",
    "declared": "begun",
    "domain": "facts",
    "faults": "checking",
    "judge_criteria": "running",
    "judge_exports": "running",
    "line_of": "lines",
    "load": "lines",
    "mechanism": "facts",
    "public_columns": "facts",
    "python": "written",
    "recognised": "begun",
    "rehearse": "running",
    "run": "running",
    "schema": "lines",
    "sources": "facts",
    "toml": "written",
    "unit": "facts",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from kasuri.job.begun import declared as declared
    from kasuri.job.begun import recognised as recognised
    from kasuri.job.checking import check as check
    from kasuri.job.checking import faults as faults
    from kasuri.job.facts import domain as domain
    from kasuri.job.facts import mechanism as mechanism
    from kasuri.job.facts import public_columns as public_columns
    from kasuri.job.facts import sources as sources
    from kasuri.job.facts import unit as unit
    from kasuri.job.lines import line_of as line_of
    from kasuri.job.lines import load as load
    from kasuri.job.lines import schema as schema
    from kasuri.job.models import Job as Job
    from kasuri.job.running import counts as counts
    from kasuri.job.running import judge_criteria as judge_criteria
    from kasuri.job.running import judge_exports as judge_exports
    from kasuri.job.running import rehearse as rehearse
    from kasuri.job.running import run as run
    from kasuri.job.template import TEMPLATE as TEMPLATE
    from kasuri.job.written import python as python
    from kasuri.job.written import toml as toml
else:  # what a command does not ask for is not loaded
    __getattr__, __dir__ = doors.lazy("kasuri.job", _HOME)
