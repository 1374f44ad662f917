"""Series of maps: filtered against alone and against the best preset of bayes_tree, events, a real series, the nation.

nice .venv/bin/python benchmarks/series.py [accuracy] [festivals] [real] [national] [--data FOLDER] [--seed 20]
    [--epsilons 1,5] [--shares panel,operator] [--json FILE]

The city is semi-synthetic: 128 x 128 cells of 500 m around Tokyo bay, real night and day maps and their real monthly
changes, assumed hourly dynamics, 4 weeks from a Monday, with a public holiday, an earthquake, a festival and an outage.
Two shares of its people: a panel of 1 % and an operator of 40 %. Noise is the product's own, from seeded streams. The
filter's constants were set on other seeds than the defaults here. Errors are of normal hours of weeks 2 to 4. The eight
hours of one festival at one place are eight numbers, no measurement: `festivals` has one at each of many places.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import kasuri as ks
from kasuri.noise.rng import Streams
from kasuri.recipes.counttree import CountTreeRun
from kasuri.refine import filter as filters
from kasuri.series import Calendar
from kasuri.series.hour import Hour, SlotRun, flagged, levels_of, shape_of, to_cells

DATA = Path(__file__).parents[2] / "shared" / "data"
ROW0, COL0, SIDE = 8500, 6272, 128
SIZES = (1, 16, 256, SIDE * SIDE)
UNIT = ks.Unit("phone", "add-remove", 1, per="slot")
WINDOW = ks.Window("7d", slot="1h", zone="+09:00")
START = WINDOW.index("2020-10-05T00:00+09:00")
HOLIDAY = 7  # the second Monday
CALENDAR = Calendar.weekly(days_off=["2020-10-12"])
SHARES = {"panel": 0.01, "operator": 0.4}
FESTIVAL = 19 * 24  # Saturday of week 3
RISE = {16: 0.15, 17: 0.35, 18: 0.6, 19: 0.85, 20: 1.0, 21: 0.8, 22: 0.35}  # of 200,000 people, by hour
BLOCK = 6  # cells a side of a festival


# -- the city ----------------------------------------------------------------------------------------------------------


def _smooth(rng, scale, side=SIDE):
    """A smooth random field of unit variance."""
    f = np.fft.rfft2(rng.standard_normal((side, side)))
    ky, kx = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]
    out = np.fft.irfft2(f * np.exp(-2 * (np.pi * scale) ** 2 * (ky**2 + kx**2)), s=(side, side))
    return out / out.std()


def maps(data: Path):
    """(night, day on working days, day on days off, eight monthly ratios), people per cell."""
    import pyarrow.parquet as pq

    t = pq.read_table(data / "jp_mesh500_2020.parquet", columns=["mesh_code", "population"])
    code = t["mesh_code"].to_numpy().astype(np.int64)
    pp, uu, q, v, r, w, m = (
        code // 10**7,
        code // 10**5 % 100,
        code // 10**4 % 10,
        code // 1000 % 10,
        code // 100 % 10,
        code // 10 % 10,
        code % 10,
    )
    row, col = 160 * pp + 20 * q + 2 * r + (m - 1) // 2 - ROW0, 160 * uu + 20 * v + 2 * w + (m - 1) % 2 - COL0
    inside = (row >= 0) & (row < SIDE) & (col >= 0) & (col < SIDE)
    census = np.zeros((SIDE, SIDE))
    census[row[inside], col[inside]] = t["population"].to_numpy()[inside]
    f = pq.read_table(data / "jp_flow1km_tokyo_2019_2021.parquet").to_pandas()
    f["row"] = 80 * (f.mesh1km // 10**6) + 10 * (f.mesh1km // 1000 % 10) + f.mesh1km // 10 % 10 - ROW0 // 2
    f["col"] = 80 * (f.mesh1km // 10**4 % 100) + 10 * (f.mesh1km // 100 % 10) + f.mesh1km % 10 - COL0 // 2
    half = SIDE // 2
    f = f[(f.row >= 0) & (f.row < half) & (f.col >= 0) & (f.col < half)]

    def km(year, month, dayflag, zone):
        one = f[(f.year == year) & (f.month == month) & (f.dayflag == dayflag) & (f.timezone == zone)]
        out = np.zeros((half, half))
        np.add.at(out, (one.row.to_numpy(), one.col.to_numpy()), one.population.to_numpy())
        return out

    def up(a):
        return np.kron(a, np.ones((2, 2)))

    night_km, day_km, off_km = km(2019, 10, 1, 1), km(2019, 10, 1, 0), km(2019, 10, 0, 0)
    sums = census.reshape(half, 2, half, 2).sum(axis=(1, 3))
    known = night_km > 0
    fix = np.where(known & (sums > 0), np.clip(night_km / np.maximum(sums, 1), 0.5, 2.0), 1.0)
    night = census * up(fix)
    ratio = np.where(known, np.clip(day_km / np.maximum(night_km, 1), 0.3, 30), np.nan)
    ratio_off = np.where(known, np.clip(off_km / np.maximum(night_km, 1), 0.3, 30), np.nan)
    # outside Tokyo: a Tokyo cell of like density, damped with distance
    rank = np.argsort(np.where(known, night_km, np.inf).ravel())[: known.sum()]
    dens = night_km.ravel()[rank]
    yy, xx = np.mgrid[0:half, 0:half]
    centre = np.array(
        [np.average(yy, weights=np.where(known, day_km, 0)), np.average(xx, weights=np.where(known, day_km, 0))]
    )
    damp = np.exp(-np.hypot(yy - centre[0], xx - centre[1]) / 25)
    here = sums * fix
    at = np.clip(np.searchsorted(dens, here.ravel()), 0, dens.size - 1)
    for one in (ratio, ratio_off):
        like = one.ravel()[rank][at].reshape(half, half)
        one[~known] = (1 + (like - 1) * damp)[~known]

    def day(r):
        out = night * up(r)
        gain = np.maximum(out - night, 0)
        flat = gain.ravel()
        top = np.argsort(-flat)[:60]  # half of the gain of a business district on a few cells
        out = night + gain * 0.5 + np.minimum(out - night, 0)
        extra = np.zeros(flat.size)
        extra[top] = flat[top] / flat[top].sum() * gain.sum() * 0.5
        return out + 0.35 * extra.reshape(SIDE, SIDE) + 0.15 * gain * 1.0

    months = []
    for month in (1, 2, 6, 7, 8, 9, 11, 12):
        a = km(2019, month, 1, 0)
        months.append(np.log(up(np.where((a > 0) & (day_km > 0), np.clip(a / np.maximum(day_km, 1), 0.5, 2.0), 1.0))))
    return night, day(ratio), day(ratio_off), np.array(months)


def rates(data: Path, seed: int, weeks: int = 4):
    """People per hour and cell, with the anomalies; and where these are."""
    rng = np.random.default_rng(seed)
    night, day, off, months = maps(data)
    shift = 0.7 * _smooth(rng, 6) + 0.3 * rng.standard_normal((SIDE, SIDE))
    weights = np.zeros(8)
    hours = []
    holiday = HOLIDAY
    before = np.zeros((SIDE, SIDE))
    for d in range(7 * weeks):
        rest = d % 7 in (5, 6) or d == holiday
        weights = 0.8 * weights + 0.15 * rng.standard_normal(8)
        daily = (
            0.05 * _smooth(rng, 5) + 0.06 * rng.standard_normal((SIDE, SIDE)) + np.tensordot(weights, months, 1) * 0.3
        )
        for h in range(24):
            inner = 0.05 * _smooth(rng, 5) + 0.06 * rng.standard_normal((SIDE, SIDE))
            before = 0.85 * before + np.sqrt(1 - 0.85**2) * inner
            morning, evening = (8.2, 18.8) if not rest else (10.5, 19.5)
            s = (
                1
                / (1 + np.exp(-(h + 0.5 - morning - shift) / 0.8))
                * 1
                / (1 + np.exp((h + 0.5 - evening - shift) / 1.0))
            )
            other = off if rest else day
            hours.append(((1 - s) * night + s * other) * np.exp(daily + before))
    lam = np.array(hours)
    events = {}
    # earthquake: Wednesday of week 2, 15 h to Thursday 9 h: three quarters of the day map stay
    q = 9 * 24
    for t in range(q + 15, q + 33):
        lam[t] = 0.25 * lam[t] + 0.75 * lam[q + 14] * lam[t].sum() / lam[q + 14].sum()
    events["earthquake"] = range(q + 15, q + 33)
    # festival: Saturday of week 3, 16-22 h, 6 x 6 cells, +200,000 at the peak
    sums = around(lam[FESTIVAL + 12])
    i, j = (int(k) for k in np.unravel_index(np.argmin(np.abs(sums - 240_000)), sums.shape))
    celebrate(lam, i, j)
    events["festival"] = range(FESTIVAL + 16, FESTIVAL + 24)
    # outage: Wednesday of week 4, 10-16 h, 32 x 32 cells report nothing
    out = 23 * 24
    events["outage"] = range(out + 10, out + 16)
    events["holiday"] = range(holiday * 24, holiday * 24 + 24)
    return lam, events, {"festival": (i, j, BLOCK), "outage": (32, 32, 32)}


def around(values):
    """Sums over all blocks as large as a festival."""
    return np.lib.stride_tricks.sliding_window_view(values, (BLOCK, BLOCK)).sum(axis=(2, 3))


def celebrate(lam, i, j, people=200_000):
    for hour, part in RISE.items():
        lam[FESTIVAL + hour, i : i + BLOCK, j : j + BLOCK] += people * part / BLOCK**2


def go_on(rng, x, before, lam, t):
    """People of hour t given those of the hour before: some stay, others come."""
    p = (0.95 if t % 24 < 6 else 0.8) * np.minimum(1.0, lam / np.maximum(before, 1e-9))
    return rng.binomial(x, np.minimum(p, 1.0)) + rng.poisson(np.maximum(lam - p * before, 0))


def counts(lam, events, places, share, seed):
    """People stay: X = Binomial(X before, p) + Poisson, with Poisson marginals."""
    rng = np.random.default_rng(seed)
    lam = lam * share
    x = rng.poisson(lam[0])
    out = np.empty(lam.shape, dtype=np.int64)
    for t in range(lam.shape[0]):
        x = go_on(rng, x, lam[t - 1], lam[t], t) if t else x
        out[t] = x
    a, b, s = places["outage"]
    for t in events["outage"]:
        out[t, a : a + s, b : b + s] = 0
    return out


# -- filtering without a ledger: the same draws and the same filter ---------------------------------------------------


class Filter:
    """Slots of a series, drawn from seeded streams and filtered; nothing is paid or kept."""

    def __init__(self, domain: ks.Domain, epsilon: str, seed: int, calendar: Calendar = CALENDAR,
                 window: ks.Window = WINDOW) -> None:  # fmt: skip
        recipe = ks.refined_tree("series", noise="gaussian", delta="1e-9")
        each = recipe.recurring(domain, UNIT, window, epsilon, "1e-9").epsilon
        run = recipe.on(domain, UNIT, each)
        assert isinstance(run, CountTreeRun)
        self.run, self.calendar, self.window, self.seed = run, calendar, window, seed
        self.shape = shape_of(run, calendar.rows(window))
        self.state = filters.begin(self.shape)
        self.seconds = 0.0

    def begun(self, state: filters.State, seed: int) -> Filter:
        """The same series from a state on, with other noise."""
        other = copy.copy(self)
        other.state, other.seed = state, seed
        return other

    def step(self, values: Any, slot: int) -> Hour:
        domain = self.run.domain
        cells = np.flatnonzero(values.ravel())
        when = self.calendar.when(self.window, slot)
        start = time.process_time()
        run = SlotRun.of(self.run, tuple(filters.wanted(self.shape, self.state, when)))
        streams = Streams(ks.seeded(self.seed * 100_003 + slot).release_key(), "refined_tree")
        numbers = run.draw(cells, values.ravel()[cells].astype(np.int64), streams, 1).measurements
        assert numbers is not None
        levels = levels_of(self.run, numbers)
        found, self.state = filters.step(self.shape, self.state, levels, when)
        out, whole, spread = to_cells(self.run, levels, found)
        self.seconds += time.process_time() - start
        parts = domain, out, whole, numbers, self.run.guarantee, self.run.words(), {"source": "seeded"}
        return Hour(*parts, slot=self.window.label(slot), spread=spread, flags=flagged(self.run, levels, found))


def city() -> ks.Domain:
    return ks.Domain.of(ks.Mesh("grid", level="500m", origin=(ROW0, COL0), shape=(SIDE, SIDE)))


def blocks(values: Any, size: int) -> Any:
    side = round(size**0.5)
    rows, cols = values.shape
    return values.reshape(rows // side, side, cols // side, side).sum(axis=(1, 3))


def squares(found: Any, true: Any, sizes: Any = SIZES) -> list[float]:
    return [float(((blocks(found, size) - blocks(true, size)) ** 2).mean()) for size in sizes]


def accuracy(data: Path, seed: int, out: dict[str, Any], epsilons: tuple[str, ...], shares: tuple[str, ...]) -> None:
    lam, happened, places = rates(data, seed)
    apart = {t for span in happened.values() for t in range(span[0], span[-1] + 7)}
    normal = [t for t in range(168, lam.shape[0]) if t not in apart]
    domain = city()
    for share in shares:
        truth = counts(lam, happened, places, SHARES[share], seed + 1)
        for epsilon in epsilons:
            flow = Filter(domain, epsilon, seed + 2)
            errors, alone, covered = {}, {}, []
            event: dict[str, Any] = {}
            for t in range(truth.shape[0]):
                hour = flow.step(truth[t], START + t)
                single = hour.alone()
                maps = hour.to_dense(), single.to_dense()
                errors[t], alone[t] = (squares(one, truth[t]) for one in maps)
                if t in normal[::40]:
                    rng = np.random.default_rng(t)
                    for _ in range(12):
                        side = int(rng.choice([1, 4, 16]))
                        row, col = (int(rng.integers(0, SIDE - side)) for _ in range(2))
                        held = single.interval(rows=slice(row, row + side), cols=slice(col, col + side))
                        covered.append(held.lower <= truth[t, row : row + side, col : col + side].sum() <= held.upper)
                for name, span in happened.items():
                    if span[0] <= t < span[-1] + 7:
                        note = event.setdefault(name, {"during": [], "after": [], "area": [], "flags": []})
                        note["during" if t in span else "after"].append((errors[t], alone[t]))
                        note["flags"].append(len(hour.flags))
                        if name in places:
                            i, j, side = places[name]
                            box = np.s_[i : i + side, j : j + side]
                            off = [int(one[box].sum() - truth[t][box].sum()) for one in maps]
                            note["area"].append((t % 24, int(truth[t][box].sum()), *off))
            rooted = [np.sqrt(np.mean([found[t] for t in normal], axis=0)) for found in (errors, alone)]
            best = baselines(domain, truth, normal, epsilon, seed)
            told = {
                "filtered": rooted[0], "alone": rooted[1], "over alone": rooted[0] / rooted[1], "bayes": best,
                "over bayes": rooted[0] / best, "cpu per slot": flow.seconds / truth.shape[0],
                "alone covers": float(np.mean(covered)), "areas": len(covered),
            }  # fmt: skip
            cold = [np.sqrt(np.mean([found[t] for t in range(24, 168)], axis=0)) for found in (errors, alone)]
            told["first week over alone"] = cold[0] / cold[1]
            plain = {
                name: value.round(3).tolist() if hasattr(value, "round") else value for name, value in told.items()
            }
            print(share, "epsilon", epsilon, json.dumps(plain), flush=True)
            out[f"{share} {epsilon}"] = plain | {"events": events(event)}
            for name, note in out[f"{share} {epsilon}"]["events"].items():
                print("  ", name, json.dumps(note), flush=True)


def events(found: dict[str, Any]) -> dict[str, Any]:
    """Root mean squares during and after each, filtered and alone; of the area itself the errors hour by hour."""
    out = {}
    for name, note in found.items():
        told: dict[str, Any] = {"flagged slots": sum(flags > 0 for flags in note["flags"]), "of": len(note["flags"])}
        for when in ("during", "after"):
            if note[when]:
                both = np.sqrt(np.mean(note[when], axis=0))
                told[when] = {"filtered": both[0].round(1).tolist(), "alone": both[1].round(1).tolist()}
        if note["area"]:
            during = np.array(note["area"][:8])
            told["area, RMSE filtered, alone"] = np.sqrt((during[:, 2:] ** 2.0).mean(axis=0)).round(1).tolist()
            told["area: hour, true, filtered off, alone off"] = [list(map(int, row)) for row in note["area"]]
        out[name] = told
    return out


def baselines(domain: ks.Domain, truth: Any, normal: list[int], epsilon: str, seed: int, hours: int = 12) -> Any:
    """The best preset of bayes_tree at every size, priced as a series: RMSE over some of the normal hours."""
    found = []
    for preset in ("sparse", "scattered", "middle", "dense"):
        recipe = ks.bayes_tree(preset)
        each = recipe.recurring(domain, UNIT, WINDOW, epsilon, "1e-9").epsilon
        rows = []
        for t in normal[:: max(len(normal) // hours, 1)]:
            table = ks.Counts.from_dense(truth[t], domain, UNIT, data="flow")
            made = ks.release(table, recipe, epsilon=each, ledger=None, source=ks.seeded(seed + t), threads=1)
            rows.append(squares(made.to_dense(), truth[t]))
        found.append(np.sqrt(np.mean(rows, axis=0)))
    return np.min(found, axis=0)


# -- festivals ---------------------------------------------------------------------------------------------------------


def festivals(data: Path, seed: int, out: dict[str, Any], epsilons: tuple[str, ...], shares: tuple[str, ...],
              many: int = 24) -> None:  # fmt: skip
    """The same festival at many places of the city whose blocks hold half to twice as many people, each with people and
    noise of its own; and many times at the place of `accuracy`, with its people and other noise."""
    lam, happened, places = rates(data, seed)
    i, j, _ = places["festival"]
    quiet = lam.copy()
    celebrate(quiet, i, j, -200_000)
    rng = np.random.default_rng(seed + 3)
    there = around(quiet[FESTIVAL + 12])
    likely = np.argwhere((there > 120_000) & (there < 480_000))
    picks = [(int(a), int(b)) for a, b in likely[rng.permutation(len(likely))[:many]]]
    for share in shares:
        truth = counts(lam, happened, places, SHARES[share], seed + 1)
        for epsilon in epsilons:
            flow = Filter(city(), epsilon, seed + 2)
            for t in range(FESTIVAL + 15):
                flow.step(truth[t], START + t)
            state, fresh, again = flow.state, [], []
            for k, (a, b) in enumerate(picks):
                celebrate(quiet, a, b)
                people = {FESTIVAL + 15: truth[FESTIVAL + 15]}
                for t in happened["festival"]:
                    people[t] = go_on(rng, people[t - 1], *(SHARES[share] * quiet[t - 1 : t + 1]), t)
                celebrate(quiet, a, b, -200_000)
                fresh.append(_festival(flow.begun(state, 10_000 * seed + 2 * k), people, a, b))
                again.append(_festival(flow.begun(state, 10_000 * seed + 2 * k + 1), truth, i, j))
            told = {"places": _told(fresh), "one place again": _told(again)}
            print("festivals", share, "epsilon", epsilon, json.dumps(told), flush=True)
            out[f"festivals {share} {epsilon}"] = told


def _festival(flow: Filter, people: Any, i: int, j: int) -> Any:
    """Errors of the area, filtered and alone, by hour."""
    box, rows = np.s_[i : i + BLOCK, j : j + BLOCK], []
    for t in range(FESTIVAL + 15, FESTIVAL + 24):
        hour = flow.step(people[t], START + t)
        rows.append([int(one.to_dense()[box].sum() - people[t][box].sum()) for one in (hour, hour.alone())])
    return np.array(rows[1:])


def _paired(found: Any) -> tuple[Any, Any]:
    """Root mean squares, filtered over alone, of pairs of squared errors of the same noise; with its standard error."""
    filtered, alone = found.mean(axis=0)
    ratio = np.sqrt(filtered / alone)
    apart = found[:, 0] / filtered - found[:, 1] / alone
    return ratio, ratio / 2 * np.std(apart, axis=0, ddof=1) / np.sqrt(len(found))


def _told(found: list[Any]) -> dict[str, Any]:
    """Root mean squares over all hours, filtered over alone with the standard error of that, and hour by hour."""
    off = np.array(found, dtype=float)
    each = (off**2).mean(axis=1)
    filtered, alone = each.mean(axis=0)
    ratio, error = _paired(each)
    by_hour = np.sqrt((off**2).mean(axis=0)).round().astype(int)
    return {
        "many": len(each), "filtered": round(float(np.sqrt(filtered)), 1), "alone": round(float(np.sqrt(alone)), 1),
        "ratio": round(float(ratio), 3), "standard error": round(float(error), 3),
        "hours 16-23, filtered": by_hour[:, 0].tolist(), "alone by hour": by_hour[:, 1].tolist(),
        "bias, filtered": off[:, :, 0].mean(axis=0).round().astype(int).tolist(),
    }  # fmt: skip


# -- a real series -----------------------------------------------------------------------------------------------------


def real(data: Path, seed: int, out: dict[str, Any], draws: int = 6) -> None:
    """36 months of people flow by 1 km cells of Tokyo, weekday days, at the epsilon where a month alone has 20 % cell
    error (RMSE over the mean of the cells that are not empty)."""
    import pyarrow.parquet as pq

    f = pq.read_table(data / "jp_flow1km_tokyo_2019_2021.parquet").to_pandas()
    f = f[(f.dayflag == 1) & (f.timezone == 0)]
    row = 80 * (f.mesh1km // 10**6) + 10 * (f.mesh1km // 1000 % 10) + f.mesh1km // 10 % 10
    col = 80 * (f.mesh1km // 10**4 % 100) + 10 * (f.mesh1km // 100 % 10) + f.mesh1km % 10
    inside = (row >= 4230) & (row < 4230 + 64) & (col >= 3100) & (col < 3100 + 128)
    row, col, f = row[inside] - 4230, col[inside] - 3100, f[inside]
    side = 128
    maps = np.zeros((36, side, side), dtype=np.int64)
    np.add.at(
        maps, (((f.year - 2019) * 12 + f.month - 1).to_numpy(), row.to_numpy(), col.to_numpy()), f.population.to_numpy()
    )
    domain = ks.Domain.of(ks.Mesh("grid", shape=(side, side)))
    window = ks.Window("30d", slot="30d")
    mean = maps[maps > 0].mean()
    recipe = ks.refined_tree("series", noise="gaussian", delta="1e-9")
    low, high = 1e-4, 1.0
    for _ in range(12):  # by the closed form of a slot alone
        middle = (low * high) ** 0.5
        run = recipe.on(domain, UNIT, f"{middle:.6f}")
        rmse = next(one.rmse for one in run.errors() if one.cells == 1)  # type: ignore[union-attr]
        low, high = (middle, high) if rmse > 0.2 * mean else (low, middle)
    epsilon = f"{high:.6f}"
    rows = []
    for draw in range(draws):
        flow = Filter(domain, epsilon, seed + draw, Calendar(season=12), window)
        for month in range(36):
            hour = flow.step(maps[month], month + 500)
            if month >= 6:
                rows.append([squares(one.to_dense(), maps[month]) for one in (hour, hour.alone())])
    ratio, error = _paired(np.array(rows))
    filtered, alone = np.sqrt(np.mean(rows, axis=0))
    told = {"epsilon of a month": epsilon, "cells": list(SIZES), "filtered": filtered.round(1).tolist(),
            "alone": alone.round(1).tolist(), "draws": draws, "ratio": ratio.round(4).tolist(),
            "standard error": error.round(4).tolist()}  # fmt: skip
    print("real", json.dumps(told), flush=True)
    out["real"] = told


# -- the nation --------------------------------------------------------------------------------------------------------


def national(data: Path, seed: int, out: dict[str, Any], hours: int = 8) -> None:
    """An hour of 4096 x 4096 cells with the filter on, against bayes_tree's warm CPU in the same process."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / "jp_mesh500_2020.parquet", columns=["mesh_code", "population"])
    code = table["mesh_code"].to_numpy().astype(np.int64)
    rows, cols = _places(code)
    rows, cols = rows - 6912, cols - 3328
    inside = (rows >= 0) & (rows < 4096) & (cols >= 0) & (cols < 4096)
    base = np.zeros((4096, 4096))
    base[rows[inside], cols[inside]] = table["population"].to_numpy()[inside]
    domain = ks.Domain.of(ks.Mesh("grid", shape=(4096, 4096)))
    rng = np.random.default_rng(seed)
    hourly = [rng.poisson(base * 0.4 * (1 + 0.1 * np.sin(t / 4))) for t in range(2)]
    each = ks.bayes_tree("sparse").recurring(domain, UNIT, WINDOW, "1", "1e-9").epsilon
    plain = []
    for t in range(3):
        counted = ks.Counts.from_dense(hourly[t % 2], domain, UNIT, data="flow")
        start = time.process_time()
        ks.release(counted, ks.bayes_tree("sparse"), epsilon=each, ledger=None, source=ks.seeded(t), threads=1)
        plain.append(time.process_time() - start)
    flow, spent, errors = Filter(domain, "1", seed), [], []
    for t in range(hours):
        before = flow.seconds
        hour = flow.step(hourly[t % 2], START + t)
        spent.append(flow.seconds - before)
        errors.append([squares(one.to_dense(), hourly[t % 2], (1, 16, 256)) for one in (hour, hour.alone())])
    last = np.sqrt(np.mean(errors[hours // 2 :], axis=0))
    told = {
        "bayes_tree warm CPU s": round(min(plain[1:]), 2), "filtered slot CPU s": [round(one, 2) for one in spent],
        "ratio": round(float(np.median(spent[1:])) / min(plain[1:]), 2),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "known nodes": [int(known.prefix.size) for known in flow.state.known],
        "filtered over alone": (last[0] / last[1]).round(3).tolist(),
    }  # fmt: skip
    print("national", json.dumps(told), flush=True)
    out["national"] = told


def _places(code: Any) -> tuple[Any, Any]:
    pp, uu, q, v = code // 10**7, code // 10**5 % 100, code // 10**4 % 10, code // 1000 % 10
    r, w, m = code // 100 % 10, code // 10 % 10, code % 10
    return 160 * pp + 20 * q + 2 * r + (m - 1) // 2, 160 * uu + 20 * v + 2 * w + (m - 1) % 2


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("parts", nargs="*", default=["accuracy", "festivals", "real", "national"])
    words.add_argument("--data", type=Path, default=DATA)
    words.add_argument("--seed", type=int, default=20)
    words.add_argument("--epsilons", default="1,5")
    words.add_argument("--shares", default="panel,operator")
    words.add_argument("--json", type=Path)
    asked = words.parse_args()
    out: dict[str, Any] = {}
    if "accuracy" in asked.parts:
        accuracy(asked.data, asked.seed, out, tuple(asked.epsilons.split(",")), tuple(asked.shares.split(",")))
    if "festivals" in asked.parts:
        festivals(asked.data, asked.seed, out, tuple(asked.epsilons.split(",")), tuple(asked.shares.split(",")))
    if "real" in asked.parts:
        real(asked.data, asked.seed, out)
    if "national" in asked.parts:
        national(asked.data, asked.seed, out)
    if asked.json is not None:
        asked.json.write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
