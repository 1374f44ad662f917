"""Coasts, boundaries and place names that reports draw, from public files into src/kasuri/report/ground.npz.

    python benchmarks/extract_ground.py FOLDER src/kasuri/report/ground.npz

FOLDER holds jp_municipalities.topojson and .csv, places_japan.csv, us_counties_10m.topojson,
world_countries_50m.topojson and places_world.csv.gz (see NOTICE). Lines are kept once: an arc that two places share is
one line of the coarsest kind it separates; arcs with land on one side only are joined to rings.
"""

import csv
import gzip
import io
import json
import re
import sys
from pathlib import Path

import numpy as np

PER_DEGREE = 10_000
RING, COUNTRY, STATE, COUNTY = range(4)
APART = {"392", "840"}  # Japan and the United States have files of their own


def topology(path, layer):
    """The arcs in degrees, and per place its id, properties and directed arcs."""
    told = json.loads(path.read_text(encoding="utf-8"))
    scale, move = (np.array(told["transform"][part]) for part in ("scale", "translate"))
    arcs = [np.cumsum(np.array(arc), axis=0) * scale + move for arc in told["arcs"]]
    places = []
    for shape in told["objects"][layer]["geometries"]:
        polygons = {"Polygon": [shape.get("arcs", [])], "MultiPolygon": shape.get("arcs", [])}.get(shape["type"], [])
        used = [number for polygon in polygons for ring in polygon for number in ring]
        places.append((shape.get("id", ""), shape["properties"], used))
    return arcs, places


def lines(arcs, places, group, shared):
    """(kind, points) of every arc that is used: rings of what has land on one side, and lines between places, of kind
    `shared[0]` where the `group` differs, else `shared[1]`."""
    users = {}
    for place, (_, _, used) in enumerate(places):
        for number in used:
            users.setdefault(number if number >= 0 else ~number, []).append((place, number >= 0))
    out, coast = [], []
    for number, sides in users.items():
        between = {group(places[place]) for place, _ in sides}
        if len({place for place, _ in sides}) == 1:
            if len(sides) == 1:  # used twice by one place: a cut, not an edge
                coast.append(arcs[number] if sides[0][1] else arcs[number][::-1])
        else:
            out.append((shared[0] if len(between) > 1 else shared[1], arcs[number]))
    return out + [(RING, ring) for ring in rings(coast)]


def rings(arcs):
    """Directed arcs joined end to end."""
    starts = {}
    for at, arc in enumerate(arcs):
        starts.setdefault(tuple(arc[0]), []).append(at)
    left, out = set(range(len(arcs))), []
    for first in range(len(arcs)):
        if first not in left:
            continue
        left.discard(first)
        parts = [arcs[first]]
        while tuple(parts[-1][-1]) != tuple(parts[0][0]):
            following = [at for at in starts.get(tuple(parts[-1][-1]), []) if at in left]
            if not following:
                break
            left.discard(following[0])
            parts.append(arcs[following[0]][1:])
        out.append(np.concatenate(parts))
    return out


def unrolled(points):
    """Longitudes without a leap at the 180th meridian; a ring around a pole is left as it is cut."""
    if np.abs(points[:, 1]).max() > 85:
        return points
    return np.column_stack([np.unwrap(points[:, 0], period=360), points[:, 1]])


def thin(points, side):
    """Points of a line that leave the square of `side` degrees that the point before is in; both ends."""
    if side == 0 or len(points) < 3:
        return points
    square = np.floor(points / side)
    keep = np.any(np.diff(square, axis=0, prepend=np.nan) != 0, axis=1)
    keep[[0, -1]] = True
    return points[keep]


def bare(name):
    """A romanised name without the word for its kind: Shinjuku Ku, Chūō-ku."""
    return re.sub(r"[ -](shi|ku|machi|cho|chō|mura|son|Shi|Ku|Machi|Cho|Mura|Son|To|Fu|Ken)$", "", name)


def names(folder):
    """(native name, Latin name, code, lon, lat, people), the largest first."""
    out = []
    cities = list(csv.DictReader((folder / "places_japan.csv").open(encoding="utf-8")))
    for row in cities:
        out.append((row["name_ja"], bare(row["name_romaji"]), row["code"], row["lon"], row["lat"],
                    row["population_2020"]))  # fmt: skip
    known = {row["code"] for row in cities}
    capitals = {row["pref_ja"]: row for row in cities if row["kind"] == "capital"}
    prefectures, people = {}, {}
    for row in csv.DictReader((folder / "jp_municipalities.csv").open(encoding="utf-8")):
        prefectures[row["pref_ja"]] = row["pref_en"], row["pref_code"]
        people[row["pref_ja"]] = people.get(row["pref_ja"], 0) + int(row["population_2020"] or 0)
        if row["code"] in known:
            continue
        city = row["parent_ja"] if row["parent_ja"].endswith("市") else ""
        out.append((city + row["name_ja"], bare(row["name_romaji"]), row["code"], row["lon"], row["lat"],
                    row["population_2020"]))  # fmt: skip
    for name, (latin, code) in prefectures.items():
        at = capitals[name]
        out.append((name, latin + " prefecture", code, at["lon"], at["lat"], people[name]))
    with gzip.open(folder / "places_world.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["iso_a2"] != "JP":
                latin = row["name_en"] or row["name_ascii"]
                out.append((row["name"], "" if latin == row["name"] else latin, "", row["lon"], row["lat"],
                            row["pop_max"]))  # fmt: skip
    states = {}
    told = json.loads((folder / "us_counties_10m.topojson").read_text(encoding="utf-8"))
    for shape in told["objects"]["states"]["geometries"]:
        states[shape["id"]] = shape["properties"]["name"]
    _, counties = topology(folder / "us_counties_10m.topojson", "counties")
    arcs = topology(folder / "us_counties_10m.topojson", "counties")[0]
    for code, told, used in counties:
        if not used:
            continue
        points = np.concatenate([arcs[n if n >= 0 else ~n] for n in used])
        lon, lat = (points.min(axis=0) + points.max(axis=0)) / 2
        out.append((f"{told['name']}, {states[code[:2]]}", "", code, lon, lat, 0))
    clean = [(a, b, c, round(float(x) * PER_DEGREE), round(float(y) * PER_DEGREE), max(0, int(float(n or 0))))
             for a, b, c, x, y, n in out]  # fmt: skip
    return sorted(clean, key=lambda row: (-row[5], row[2], row[0], row[3]))


def planes(numbers):
    """Whole numbers, zigzagged, as planes of bytes, the lowest first: close neighbours squeeze well."""
    zigzag = (numbers << 1) ^ (numbers >> 63)
    many = (int(zigzag.max()).bit_length() + 7) // 8
    return np.stack([(zigzag >> 8 * i & 255).astype(np.uint8) for i in range(many)])


def main(folder, target):
    found = []
    japan = lines(*topology(folder / "jp_municipalities.topojson", "municipalities"), lambda p: p[0][:2],
                  (STATE, COUNTY))  # fmt: skip
    found += [(kind, thin(points, 0.001 if kind == RING else 0.002)) for kind, points in japan]
    america = lines(*topology(folder / "us_counties_10m.topojson", "counties"), lambda p: p[0][:2], (STATE, COUNTY))
    found += america
    arcs, places = topology(folder / "world_countries_50m.topojson", "countries")
    others = [place for place in places if place[0] not in APART]
    found += [(kind, thin(points, 0.02)) for kind, points in lines(arcs, others, lambda p: p[0], (COUNTRY, COUNTRY))]
    whole = [(kind, np.rint(unrolled(points) * PER_DEGREE).astype(np.int64)) for kind, points in found]
    whole.sort(key=lambda line: (line[0], line[1][0].tolist(), len(line[1])))
    points = np.concatenate([line for _, line in whole])
    table = names(folder)
    text = "\n".join("\t".join(row[:3]) for row in table)
    file = io.BytesIO()
    np.savez_compressed(
        file,
        kind=np.array([kind for kind, _ in whole], np.uint8),
        size=np.array([len(line) for _, line in whole], np.uint32),
        xy=planes(np.diff(points, axis=0, prepend=0).T),
        names=np.frombuffer(text.encode(), np.uint8),
        at=np.array([row[3:5] for row in table], np.int32).T,
        people=np.array([row[5] for row in table], np.uint32),
    )
    target.write_bytes(file.getvalue())
    print({kind: sum(k == kind for k, _ in whole) for kind in range(4)}, len(points), len(table), len(file.getvalue()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
