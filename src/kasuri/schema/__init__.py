"""What is public about a table: its axes, its impossible cells, and the unit that is protected.

Nothing here is ever taken from data. A cell is one number: the row-major (C order) index over `Domain.shape`.
Every kind of axis answers for itself (`axis`), in a file of its own; nothing outside this package asks for its class.
"""

from kasuri.schema.axis import ELSEWHERE, Axis, Plane, Step
from kasuri.schema.domain import MAX_CELLS, RESERVED, Domain
from kasuri.schema.grid import Grid
from kasuri.schema.h3 import H3
from kasuri.schema.mask import MAX_MASK, Mask
from kasuri.schema.mesh import WINDOWS, Mesh
from kasuri.schema.nominal import Nominal
from kasuri.schema.ordered import Ordered
from kasuri.schema.regions import Regions
from kasuri.schema.time import Time
from kasuri.schema.tree import Tree
from kasuri.schema.unit import PROVIDER_BOUNDED, ROWS_ALONE, Change, Part, Unit
from kasuri.schema.window import Window

__all__ = [
    "ELSEWHERE",
    "H3",
    "MAX_CELLS",
    "MAX_MASK",
    "PROVIDER_BOUNDED",
    "RESERVED",
    "ROWS_ALONE",
    "WINDOWS",
    "Axis",
    "Change",
    "Domain",
    "Grid",
    "Mask",
    "Mesh",
    "Nominal",
    "Ordered",
    "Part",
    "Plane",
    "Regions",
    "Step",
    "Time",
    "Tree",
    "Unit",
    "Window",
]
