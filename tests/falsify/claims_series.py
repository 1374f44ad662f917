"""Claims of a series without end: streams that differ by one person's window, everything published, the filter on."""

from fractions import Fraction
from functools import cache, partial

import numpy as np
from claims import Case, Claim, Sample

import kasuri as ks
from kasuri.budget.declared import Declared
from kasuri.noise.rng import Streams
from kasuri.recipes.counttree import CountTreeRun
from kasuri.refine import filter as filters
from kasuri.series import Calendar
from kasuri.series.hour import SlotRun, levels_of, shape_of, to_cells

GRID = ks.Domain.of(ks.Mesh("g", shape=(2, 2)))
PHONE = ks.Unit("phone", "add-remove", 1, per="slot")
WINDOW, CALENDAR = ks.Window("3h", slot="1h"), Calendar()
DELTA = Fraction(1, 1000)
SLOTS = 5
"""One before the person's window, its three, and one after it, which has learned from them."""
PATHS = {"stays": (0, 0, 0), "moves about": (0, 3, 1), "one slot of it": (2, None, None)}


@cache
def schedule() -> tuple[CountTreeRun, Declared]:
    recipe = ks.refined_tree("series", noise="gaussian", delta=str(DELTA))
    series = recipe.recurring(GRID, PHONE, WINDOW, "3", DELTA)
    run = recipe.on(GRID, PHONE, series.epsilon)
    assert isinstance(run, CountTreeRun)
    return run, series


def stream(path: str, side: int, runs: int, seed: int) -> Sample:
    """All that is published of a few slots, and what a window of them costs."""
    run, series = schedule()
    shape = shape_of(run, CALENDAR.rows(WINDOW))
    base = np.array([4, 0, 2, 1])
    seen: dict[str, list[float]] = {}
    for at in range(runs):
        state, shown = filters.begin(shape), {}
        total = np.zeros(4)
        for slot in range(SLOTS):
            table = base.copy()
            where = PATHS[path][slot - 1] if side and 1 <= slot <= 3 else None
            if where is not None:
                table[where] += 1
            cells = np.flatnonzero(table)
            when = CALENDAR.when(WINDOW, slot)
            streams = Streams(ks.seeded(seed + at * SLOTS + slot).release_key(), "refined_tree")
            drawing = SlotRun.of(run, tuple(filters.wanted(shape, state, when)))
            numbers = drawing.draw(cells, table[cells], streams, 1).measurements
            assert numbers is not None
            levels = levels_of(run, numbers)
            found, state = filters.step(shape, state, levels, when)
            out, values, _ = to_cells(run, levels, found)
            dense = np.zeros(4)
            dense[out] = values
            total += dense * (1 <= slot <= 3)
            shown |= {f"{slot} y {i}": float(y) for i, y in enumerate(np.concatenate([level.y for level in levels]))}
            shown |= {f"{slot} cell {i}": float(value) for i, value in enumerate(dense)}
        sides = [0, 3, 1] if path == "moves about" else [0, 0, 0]
        shown["sum along a path"] = sum(
            shown[f"{1 + j} y {1 + cell}"] + shown[f"{1 + j} y 0"] for j, cell in enumerate(sides)
        )
        shown |= {f"sum of filtered {i}": float(value) for i, value in enumerate(total)}
        shown["learned"] = float(state.known[-1].x[0])
        for name, value in shown.items():
            seen.setdefault(name, []).append(value)
    columns = {name: np.array(values) for name, values in seen.items()}
    return Sample(columns, series.price(DELTA), DELTA)


def series_claims() -> list[Claim]:
    cases = tuple(Case(path, partial(stream, path)) for path in PATHS)
    return [Claim("a series without end, filtered", "Series", cases, work=1.0, cost=12, least=1500)]
