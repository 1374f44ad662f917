"""Bounded counts of records, word for word: a dictionary, hashlib, sorted."""

import hashlib
from collections import Counter, defaultdict


def bounded(rows, max_cells, key, max_weight=None):
    """rows: (id, cell, weight); cell None where a row is outside. Ids of text have at most 1024 bytes.
    Returns {cell: count}."""
    units = defaultdict(dict)
    for unit, cell, weight in rows:
        if isinstance(unit, str) and len(unit.encode()) > 1024:
            continue
        if cell is None or (max_weight is not None and weight <= 0):
            continue
        worth = 1 if max_weight is None else min(weight, max_weight)
        units[unit][cell] = max(units[unit].get(cell, 0), worth)
    out = Counter()
    for unit, cells in units.items():

        def rank(cell, unit=unit):
            return hashlib.sha256(f"{key.hex()}|{unit}|{cell}".encode()).digest()

        for cell in sorted(cells, key=rank)[:max_cells]:
            out[cell] += cells[cell]
    return dict(out)
