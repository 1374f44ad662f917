"""Local differential privacy: the device randomises, the collector never sees the truth, the operator estimates.

wards = ks.Nominal("ward", labels=WARDS)
rr = ks.local.unary(wards, epsilon="0.5")
est = ks.local.estimate(rr.randomize(values), rr, method="em")     # est.counts, est.standard_error, est.converged
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kasuri import doors

_HOME = {
    "CollectorKey": "keys",
    "Device": "device",
    "Dirichlet": "estimators",
    "Estimate": "estimators",
    "MemoisedClient": "longitudinal",
    "Neighbours": "estimators",
    "Numeric": "grid",
    "Position": "places",
    "Randomizer": "randomizer",
    "Reports": "randomizer",
    "Round": "wire",
    "Store": "reports",
    "count_mean_sketch": "categorical",
    "estimate": "estimators",
    "from_columns": "estimators",
    "from_json": "read",
    "grr": "categorical",
    "hadamard": "categorical",
    "histogram": "moments",
    "hybrid": "numeric",
    "laplace": "numeric",
    "mean": "moments",
    "memoised": "longitudinal",
    "olh": "categorical",
    "oue": "categorical",
    "piecewise": "numeric",
    "place_of": "places",
    "plan": "planning",
    "plan_numbers": "planning",
    "read_reports": "files",
    "send": "device",
    "serve": "collector",
    "square_wave": "numeric",
    "summary": "moments",
    "two_point": "numeric",
    "unary": "categorical",
    "variance": "moments",
    "verify": "wire",
    "write_reports": "files",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from kasuri.local.categorical import count_mean_sketch as count_mean_sketch
    from kasuri.local.categorical import grr as grr
    from kasuri.local.categorical import hadamard as hadamard
    from kasuri.local.categorical import olh as olh
    from kasuri.local.categorical import oue as oue
    from kasuri.local.categorical import unary as unary
    from kasuri.local.collector import serve as serve
    from kasuri.local.device import Device as Device
    from kasuri.local.device import send as send
    from kasuri.local.estimators import Dirichlet as Dirichlet
    from kasuri.local.estimators import Estimate as Estimate
    from kasuri.local.estimators import Neighbours as Neighbours
    from kasuri.local.estimators import estimate as estimate
    from kasuri.local.estimators import from_columns as from_columns
    from kasuri.local.files import read_reports as read_reports
    from kasuri.local.files import write_reports as write_reports
    from kasuri.local.grid import Numeric as Numeric
    from kasuri.local.keys import CollectorKey as CollectorKey
    from kasuri.local.longitudinal import MemoisedClient as MemoisedClient
    from kasuri.local.longitudinal import memoised as memoised
    from kasuri.local.moments import histogram as histogram
    from kasuri.local.moments import mean as mean
    from kasuri.local.moments import summary as summary
    from kasuri.local.moments import variance as variance
    from kasuri.local.numeric import hybrid as hybrid
    from kasuri.local.numeric import laplace as laplace
    from kasuri.local.numeric import piecewise as piecewise
    from kasuri.local.numeric import square_wave as square_wave
    from kasuri.local.numeric import two_point as two_point
    from kasuri.local.places import Position as Position
    from kasuri.local.places import place_of as place_of
    from kasuri.local.planning import plan as plan
    from kasuri.local.planning import plan_numbers as plan_numbers
    from kasuri.local.randomizer import Randomizer as Randomizer
    from kasuri.local.randomizer import Reports as Reports
    from kasuri.local.read import from_json as from_json
    from kasuri.local.reports import Store as Store
    from kasuri.local.wire import Round as Round
    from kasuri.local.wire import verify as verify
else:
    __getattr__, __dir__ = doors.lazy("kasuri.local", _HOME)
