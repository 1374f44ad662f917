"""Places in public files: codes, names and parents of a list, shapes checked once, and points found among them."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kasuri import names
from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, FormatError
from kasuri.schema import systems

MAX_BYTES = 1 << 28
"""Bytes of the longest file of places, and of all shapes of an axis."""
MAX_LEVELS = 100
"""Levels of the deepest tree of places or labels."""
TOLERANCE = 1e-6
"""Share of the smaller of two places that both may cover unless a larger one is said: rounding at a border."""
FORMATS = ("GeoJSON", "TopoJSON", "GPKG", "ESRI Shapefile")
"""What a file of shapes may be: it holds its places itself. GDAL also reads files that point to other files, and whole
folders, which is to say the confidential file by a name that is not its own."""
_SHOWN = 10
_AT_ONCE = 1 << 20
"""Points that are looked for together: more take more memory, not less time."""

Source = str | Path | Mapping[str, Sequence[Any]] | Any
Index = tuple[Any, Any]


@dataclass(frozen=True)
class Listed:
    """A list of places, as it was read: one code each, names by column, parents and shapes where there are any."""

    codes: tuple[str, ...]
    parents: tuple[str, ...] | None
    titles: dict[str, tuple[str, ...]]
    shapes: tuple[bytes | None, ...] | None
    crs: str


def read(
    source: Source, code: str, parent: str | None, titles: Sequence[str] | None, layers: Sequence[str], crs: str | None
) -> tuple[Listed, list[str]]:
    """Files, a mapping of columns or an Arrow table, one after the other where there are several; and what is wrong
    with them. A system that they do not agree on is left out."""
    parts = list(source) if isinstance(source, list | tuple) else [source]
    tables = [table for part in parts for table in _tables(part, layers)]
    own = {system for _, system in tables if system is not None}
    wrong = []
    if crs is not None and own - {crs}:
        wrong.append(f"the shapes are in {', '.join(sorted(own))}, not in {crs}; leave crs out")
    elif len(own) > 1:
        wrong.append(f"the shapes are in several systems, {', '.join(sorted(own))}; bring them into one")
    every = list(dict.fromkeys(name for table, _ in tables for name in table))
    wanted = parent or ("parent" if "parent" in every else None)
    title = [name for name in every if name == "name" or name.startswith("name_")] if titles is None else list(titles)
    lost = [name for name in (code, wanted, *title) if name is not None and name not in every]
    if lost:
        wrong.append(f"the list of places has no column {', '.join(lost)}; its columns are {', '.join(every)}")
    columns = {name: [value for table, _ in tables for value in _column(table, name)] for name in every}
    shapes = tuple(columns["geometry"]) if "geometry" in columns else None
    system = None if wrong and own else next(iter(own), crs)
    if shapes is not None and system is None and not own:
        wrong.append("the shapes come without a reference system; name it: crs = EPSG:4326")
    if code not in every:
        raise DomainError(*wrong)
    wanted = wanted if wanted in every else None
    told = [name for name in (code, wanted, *title) if name in every]
    numbers = [name for name in told if not all(isinstance(value, str | None) for value in columns[name])]
    if numbers:
        wrong.append(
            f"column {', '.join(numbers)} is not text; codes, parents and names of places must be text, since a number "
            "has lost its leading zeros"
        )
    texts = {name: tuple("" if value is None else str(value) for value in columns[name]) for name in told}
    above = None if wanted is None else texts[wanted]
    names_of = {name: texts[name] for name in title if name in texts}
    return Listed(texts[code], above, names_of, shapes, system or ""), wrong


def _column(table: Mapping[str, Sequence[Any]], name: str) -> Sequence[Any]:
    return table[name] if name in table else [None] * len(next(iter(table.values()), ()))


def _tables(part: Any, layers: Sequence[str]) -> list[tuple[Mapping[str, Sequence[Any]], str | None]]:
    """Columns of one part, and the system of its shapes."""
    if isinstance(part, Mapping):
        sizes = {len(values) for values in part.values()}
        if len(sizes) > 1:
            raise DomainError("the columns of a list of places must have one length")
        return [(part, None)]
    if not isinstance(part, str | Path):
        import pyarrow as pa

        table = pa.table(part)
        return [({name: table[name].to_pylist() for name in table.column_names}, None)]
    path = Path(part)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    if path.is_dir():
        raise FormatError(f"{path}: is a folder; name the file in it that holds the places")
    if size > MAX_BYTES:
        raise FormatError(f"{path}: more than {MAX_BYTES >> 20} MiB")
    if path.suffix.lower() == ".csv":
        return [(_csv(path), None)]
    return [_layer(path, layer) for layer in layers or (None,)]


def _csv(path: Path) -> dict[str, list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))
    except UnicodeDecodeError:
        raise FormatError(f"{path}: not UTF-8; save it as UTF-8") from None
    except csv.Error:
        raise FormatError(f"{path}: cannot be read as CSV") from None
    rows = [row for row in rows if row]
    header = [name.strip() for name in rows[0]] if rows else []
    faults = [f"{path}: column {name!r} is there twice" for name in set(header) if header.count(name) > 1]
    faults += [
        f"{path}: row {i} has {len(row)} fields for {len(header)} columns"
        for i, row in enumerate(rows[1:], 1)
        if len(row) != len(header)
    ][:_SHOWN]
    if faults:
        raise DomainError(*faults)
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(header)}


def _layer(path: Path, layer: str | None) -> tuple[dict[str, list[Any]], str | None]:
    try:
        import pyogrio
    except ImportError:
        raise DomainError(f"{path}: files with shapes need pyogrio; pip install 'kasuri[geo]'") from None
    import pyarrow as pa

    pointed = FormatError(f"{path}: does not hold shapes itself; use GeoJSON, TopoJSON, GeoPackage or Shapefile")
    try:
        if not _alone(path) or pyogrio.read_info(path, layer=layer)["driver"] not in FORMATS:
            raise pointed
        about, found = pyogrio.read_arrow(path, layer=layer)
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, ValueError, RecursionError):
        raise FormatError(f"{path}: cannot be read as a file of shapes, or has no such layer") from None
    table = pa.table(found)
    shape = about["geometry_name"] or "wkb_geometry"
    columns = {("geometry" if name == shape else name): table[name].to_pylist() for name in table.column_names}
    system = about["crs"]
    if system is not None and systems.number(system) is None:
        number = systems.pyproj().CRS.from_user_input(system).to_epsg()
        system = None if number is None else f"EPSG:{number}"
    return columns, system


_BINARY = (b"SQLite format 3\0", b"\x00\x00\x27\x0a")
"""How a GeoPackage and a Shapefile begin."""
_POINTS = re.compile(rb"\\u|link|url|gdal_streamed_alg", re.IGNORECASE)


def _alone(path: Path) -> bool:
    """Whether GDAL may open a file at all: it tells by the content what a file is, and follows an address in it (a
    virtual layer, a web service, a pipeline, a reference system that lies elsewhere) before it says so."""
    with path.open("rb") as file:
        if file.read(16).startswith(_BINARY):
            return True
        file.seek(0)
        text = file.read().removeprefix(codecs.BOM_UTF8).lstrip()
    if not text.startswith(b"{"):
        return False
    return _POINTS.search(text) is None or not _points(json.loads(text))


def _points(tree: Any) -> bool:
    """Whether JSON asks for what lies elsewhere, at any depth."""
    todo = [tree]
    while todo:
        item = todo.pop()
        inner = list(item.items()) if isinstance(item, dict) else []
        kinds = [value.lower() for name, value in inner if name.lower() == "type" and isinstance(value, str)]
        if "gdal_streamed_alg" in kinds:
            return True
        for system in (value for name, value in inner if name.lower() == "crs" and isinstance(value, dict)):
            if any(name.lower() == "type" and str(said).lower() in ("link", "url") for name, said in system.items()):
                return True
        todo += [value for _, value in inner] if isinstance(item, dict) else item if isinstance(item, list) else ()
    return False


def by_prefix(found: Listed, prefix: Sequence[int]) -> tuple[Listed, tuple[str, ...], list[str]]:
    """Parents by the first characters of codes, and what is wrong with that; places above that the list lacks are added
    without a name."""
    lengths = list(prefix)
    wrong = []
    if not lengths or any(a >= b for a, b in zip([0, *lengths], lengths, strict=False)):
        wrong.append("prefix is the length of the codes of every level, rising from the top: (2, 5)")
        lengths = []
    odd = [code for code in found.codes if len(code) not in lengths]
    if odd and lengths:
        some = ", ".join(odd[:5]) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
        wrong.append(f"there are codes of a length that is not in prefix {tuple(lengths)}: {some}")
    codes = dict.fromkeys(found.codes)
    for code in found.codes:
        codes.update(dict.fromkeys(code[:size] for size in lengths if size < len(code)))
    added = list(codes)[len(dict.fromkeys(found.codes)) :]
    every = (*found.codes, *added)
    above = tuple(code[: max([size for size in lengths if size < len(code)], default=0)] for code in every)
    blank = ("",) * len(added)
    titles = {title: values + blank for title, values in found.titles.items()}
    shapes = None if found.shapes is None else found.shapes + (None,) * len(added)
    return replace(found, codes=every, titles=titles, shapes=shapes), above, wrong


def faults(found: Listed, parents: Sequence[str], axis: str) -> list[str]:
    """All that is wrong with a list of places as a tree; names may repeat, codes may not."""
    own = f"axis {axis!r}"
    out = [] if found.codes else [f"{own}: the list has no place"]
    out += names.first(found.codes, f"{own}: code")
    for title, values in found.titles.items():
        out += names.first(values, f"{own}: {title}")
        if not title.isidentifier():
            out.append(f"{own}: a column of names is called {title!r}; rename it with letters, digits and underscores")
    missing = [i for i, code in enumerate(found.codes) if not code]
    out += _listed(missing, f"{own}: row {{}} has no code")
    above: dict[str, set[str]] = {}
    count: dict[str, int] = {}
    for code, parent in zip(found.codes, parents, strict=True):
        above.setdefault(code, set()).add(parent)
        count[code] = count.get(code, 0) + 1
    out += _listed([code for code in above if len(above[code]) > 1], f"{own}: {{}} has two parents")
    twice = [code for code in count if code and count[code] > 1 and len(above[code]) == 1]
    out += _listed(twice, f"{own}: the code {{}} is there more than once")
    orphans = [code for code, up in above.items() if any(one and one not in above for one in up)]
    out += _listed(orphans, f"{own}: {{}} has a parent that is not in the list")
    out += _listed(endless({code: min(up) for code, up in above.items()}), f"{own}: the parents of {{}} never end")
    return out


def _listed(wrong: Sequence[object], words: str) -> list[str]:
    more = [] if len(wrong) <= _SHOWN else [words.format(f"and {len(wrong) - _SHOWN} more; each")]
    return [words.format(one) for one in wrong[:_SHOWN]] + more


def endless(parents: Mapping[str, str]) -> list[str]:
    """Codes from which no top is reached in `MAX_LEVELS` steps."""
    out = []
    for code in parents:
        at = code
        for _ in range(MAX_LEVELS):
            at = parents.get(at, "")
            if not at:
                break
        else:
            out.append(code)
    return out


def shapely() -> Any:
    """The library, or the refusal that says how to get it."""
    try:
        import shapely as library
    except ImportError:
        raise DomainError("shapes of places need the library shapely; pip install 'kasuri[geo]'") from None
    return library


def outlines(
    shapes: Sequence[bytes | None], codes: Sequence[str], crs: str, axis: str, repair: bool, tolerance: float
) -> tuple[tuple[bytes, ...], list[str]]:
    """Shapes as WKB multipolygons, rings counter-clockwise; and all that is wrong with them: one is missing, crosses
    itself (unless it may be repaired: its ground stays, lines without ground go), is not in its system (where that is
    known) or covers another."""
    library, own = shapely(), f"axis {axis!r}"
    told = np.array([shape if isinstance(shape, bytes) else None for shape in shapes], dtype=object)
    with np.errstate(invalid="ignore"):  # coordinates that are not numbers cross themselves
        found = library.force_2d(library.from_wkb(told, on_invalid="ignore"))
        if repair:
            found = library.make_valid(found, method="structure", keep_collapsed=False)
    area = np.isin(library.get_type_id(found), (3, 6)) & ~library.is_empty(found)
    out = _listed([codes[i] for i in np.flatnonzero(~area).tolist()], f"{own}: {{}} has no polygon")
    valid = library.is_valid(found)
    crossing = [codes[i] for i in np.flatnonzero(area & ~valid).tolist()]
    out += _listed(crossing, f"{own}: the outline of {{}} crosses itself; correct it, or say repair = true")
    if crs and area.any():
        out += systems.elsewhere(crs, library.total_bounds(found).tolist(), f"{own}: the shapes")
    sound = np.flatnonzero(area & valid)
    out += _overlaps(found[sound], [codes[i] for i in sound.tolist()], own, tolerance)
    if out:
        return (), out
    parts = [library.get_parts(one) for one in found]
    turned = library.orient_polygons(np.array([library.multipolygons(part) for part in parts], dtype=object))
    return tuple(library.to_wkb(turned, byte_order=1).tolist()), []


def _overlaps(found: Any, codes: Sequence[str], own: str, tolerance: float) -> list[str]:
    library = shapely()
    a, b = library.STRtree(found).query(found, predicate="intersects")
    a, b = a[a < b], b[a < b]
    relation = ~library.touches(found[a], found[b])
    a, b = a[relation], b[relation]
    both = library.area(library.intersection(found[a], found[b]))
    share = both / np.minimum(library.area(found[a]), library.area(found[b]))
    wrong = np.flatnonzero(share > tolerance)
    worst = wrong[np.argsort(-share[wrong], kind="stable")].tolist()
    pairs = [f"{codes[a[i]]} and {codes[b[i]]} cover the same ground ({share[i]:.2g} of the smaller)" for i in worst]
    return _listed(pairs, f"{own}: {{}}; correct them, or say a larger tolerance")


def union(shapes: Sequence[bytes]) -> bytes:
    """The outline of places together."""
    library = shapely()
    whole = library.union_all(library.from_wkb(np.array(shapes, dtype=object)))
    turned = library.orient_polygons(library.multipolygons(library.get_parts(whole)))
    return bytes(library.to_wkb(turned, byte_order=1))


def gaps(shapes: Sequence[bytes]) -> list[tuple[float, float, float]]:
    """Ground that places enclose and none of them covers, the largest first: (x, y) inside it, and its part of the
    ground that they cover."""
    library = shapely()
    whole = library.union_all(library.from_wkb(np.array(shapes, dtype=object)))
    holes = [ring for part in library.get_parts(whole) for ring in library.get_rings(part)[1:]]
    if not holes:
        return []
    found = library.polygons(holes)
    middle, share = library.get_coordinates(library.point_on_surface(found)), library.area(found) / library.area(whole)
    order = np.argsort(-share, kind="stable")
    return [(float(x), float(y), float(part)) for (x, y), part in zip(middle[order], share[order], strict=True)]


def extent(shapes: Sequence[bytes]) -> tuple[float, float, float, float]:
    """West, south, east and north of all shapes."""
    west, south, east, north = shapely().total_bounds(shapely().from_wkb(np.array(shapes, dtype=object))).tolist()
    return west, south, east, north


def index(shapes: Sequence[bytes]) -> Index:
    """Shapes made ready for many points."""
    library = shapely()
    found = library.from_wkb(np.array(shapes, dtype=object))
    library.prepare(found)
    return library.STRtree(found), found


def find(ready: Index, y: Float, x: Float) -> Int:
    """The place in which each point is, -1 where it is in none. A point on a border is in the first of the places that
    share it, in the order of the tree."""
    parts = [slice(start, start + _AT_ONCE) for start in range(0, x.size, _AT_ONCE)]
    return np.concatenate([_find(ready, y[part], x[part]) for part in parts] or [np.zeros(0, dtype=np.int64)])


def _find(ready: Index, y: Float, x: Float) -> Int:
    library, (tree, shapes) = shapely(), ready
    out = np.full(x.size, -1, dtype=np.int64)
    good = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    at, place = tree.query(library.points(x[good], y[good]))
    order = np.argsort(place, kind="stable")[::-1]  # the first place is written last; one place after the other
    at, place = good[at[order]], place[order]
    inside = library.intersects_xy(shapes[place], x[at], y[at])
    out[at[inside]] = place[inside]
    return out


def most(ready: Index, outlines: Any, move: systems.Move) -> Int:
    """The place that covers most of each outline (moved corner by corner), the first of equals; -1 where none does."""
    library, (tree, shapes) = shapely(), ready

    def there(xy: Float) -> Float:
        y, x = move(xy[:, 1], xy[:, 0])
        return np.column_stack([x, y])

    cells = library.transform(library.from_wkb(outlines.to_pylist()), there)
    out = np.full(len(cells), -1, dtype=np.int64)
    at, place = tree.query(cells, predicate="intersects")
    ground = library.area(library.intersection(cells[at], shapes[place]))
    ranked = np.lexsort((place, -ground, at))
    first = ranked[np.unique(at[ranked], return_index=True)[1]]
    first = first[ground[first] > 0]
    out[at[first]] = place[first]
    return out
