"""A recipe as it is written in a job file or on the command line: its name and the arguments of its constructor.

The constructors' signatures are the only list of parameters: the models here are made from them, and with these the
JSON Schema of a job file and every check of form. Naming a table in a recipe declares it public.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, reduce
from glob import escape, glob
from inspect import getdoc, signature
from operator import or_
from pathlib import Path
from secrets import token_hex
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    create_model,
    model_validator,
)

from kasuri import privacy
from kasuri.errors import DomainError, KasuriError, PrivacyError, raise_faults
from kasuri.ingest import Query, Table, read_array, read_public
from kasuri.public import PublicMatrix, PublicTable
from kasuri.recipes import RECIPES
from kasuri.recipes.mechanism import Mechanism
from kasuri.schema import Domain, Ordered
from kasuri.schema.maps import RegionMap


class Part(BaseModel):
    """A table of a job file: fixed once read, and a key it does not have is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LatLon(Part):
    """Coordinates in degrees, in the mesh's reference system."""

    lat: str
    lon: str


Columns = dict[str, str | list[str] | LatLon]


def places(columns: Columns) -> dict[str, Any]:
    """Where each axis is, as `count` takes it."""
    return {
        name: {"lat": place.lat, "lon": place.lon} if isinstance(place, LatLon) else place
        for name, place in columns.items()
    }


def _path(value: str) -> str:
    if "\0" in value:
        raise ValueError("a path holds no NUL character")
    return value


File = Annotated[str, AfterValidator(_path)]


class PublicFile(Part):
    """A table that everyone may know, such as an earlier year. Writing it here declares it public."""

    public: str = Field(description='The name it is declared public under, e.g. "census-2015"; the guarantee says it.')
    file: File = Field(description="A .npy array of the domain's shape, or CSV or Parquet with one row per cell.")
    columns: Columns | None = Field(None, description="CSV, Parquet: axis -> column; as in [data] unless given.")
    value: str | None = Field(None, description="CSV, Parquet: the column of its numbers; as in [data] unless given.")


class MatrixFile(Part):
    """A matrix of whole numbers in a file. Writing it here declares it public."""

    public: str = Field(description='The name it is declared public under, e.g. "districts"; the guarantee says it.')
    file: File = Field(description="A .npy array of whole numbers, one column per cell.")


class MapFile(Part):
    """A map of one axis' cells to regions. Writing it here declares it public."""

    public: str = Field(description='The name it is declared public under, e.g. "municipality"; views use it.')
    axis: str = Field(description="The axis whose cells it maps.")
    file: File = Field(
        description="A .json file of `kasuri geography match`, or a .npy array of whole numbers, one per cell of the "
        "axis: a region, or -1 for none."
    )

    def read(self, base: Path) -> RegionMap:
        """The map; a file that says axis and name itself must say the same."""
        if not self.file.lower().endswith(".json"):
            return RegionMap(self.axis, read_array(base / self.file), name=self.public)
        found = RegionMap.load(base / self.file)
        if (found.axis, found.name) != (self.axis, self.public):
            raise DomainError(f"{self.file}: is the map {found.name!r} over axis {found.axis!r}; say so in the recipe")
        return found


def _exact(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('an exact decimal in quotes is needed, such as "0.05"')
    return value


Exact = Annotated[str, BeforeValidator(_exact)]
Height = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,2})$")]

_KINDS: dict[Any, Any] = {
    str: str,
    bool: StrictBool,
    int: StrictInt,
    privacy.Exact: Exact,
    privacy.Exact | None: Exact | None,
    Sequence[int]: list[StrictInt],
    tuple[str, ...]: list[str],
    Mapping[int, privacy.Exact]: dict[Height, Exact],
    Mapping[str, object]: dict[str, Exact],
    PublicTable: PublicFile,
    Sequence[Sequence[object]]: list[list[StrictInt]],
    NDArray[Any]: list[list[StrictInt]],
    PublicMatrix: MatrixFile,
    Sequence[RegionMap]: list[MapFile],
}
"""How the arguments of a constructor are written, by their types there."""


def _written(kind: Any) -> Any:
    if kind in _KINDS:
        return _KINDS[kind]
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, map(_written, get_args(kind)))
    if get_origin(kind) is Literal or kind is NoneType:
        return kind
    raise TypeError(f"an argument of type {kind}: say in _KINDS how it is written in a job file")


class Recipe(Part):
    """A recipe's name and arguments; `make` builds it."""

    name: str

    def make(self, opened: Callable[[PublicFile | MatrixFile | MapFile], Any]) -> Mechanism:
        """The recipe, with what `opened` makes of the files it names."""
        given = {name: _value(getattr(self, name), opened) for name in self.model_fields_set if name != "name"}
        return RECIPES[self.name](**given)

    def mechanism(
        self, base: Path, domain: Domain, columns: Mapping[str, Any] | None = None, value: str | None = None
    ) -> Mechanism:
        """The recipe for tables over `domain`. Its files are relative to `base`; in a CSV or Parquet file the axes
        are in `columns` and the numbers in `value` unless the recipe says otherwise."""

        def opened(part: PublicFile | MatrixFile | MapFile) -> Any:
            if isinstance(part, MatrixFile):
                return PublicMatrix(read_array(base / part.file), part.public)
            if isinstance(part, MapFile):
                return part.read(base)
            return public_table(part, base, domain, columns, value)

        return self.make(opened)

    @property
    def public(self) -> list[PublicFile | MatrixFile | MapFile]:
        """The files it declares public."""
        given = (getattr(self, name) for name in self.model_fields_set)
        flat = (part for one in given for part in (one if isinstance(one, list) else [one]))
        return [part for part in flat if isinstance(part, PublicFile | MatrixFile | MapFile)]

    @model_validator(mode="after")
    def _sound(self) -> Recipe:
        try:  # a constructor never looks into its tables: any will do to find its faults before a file is opened
            self.make(_stand_in)
        except KasuriError as error:
            raise ValueError("; ".join(error.faults)) from None
        return self


def public_table(
    part: PublicFile, base: Path, domain: Domain, columns: Mapping[str, Any] | None, value: str | None
) -> PublicTable:
    """A table that a file of everyone's holds; `columns` and `value` as for `Recipe.mechanism`."""
    table = part.file.lower().endswith((".csv", ".parquet"))
    return read_public(
        base / part.file,
        domain,
        name=part.public,
        columns=places(part.columns) if part.columns is not None else columns if table else None,
        value=part.value if part.value is not None or not table else value,
    )


def _stand_in(part: PublicFile | MatrixFile | MapFile) -> PublicTable | PublicMatrix | RegionMap:
    if isinstance(part, MatrixFile):
        return PublicMatrix([[1]], part.public)
    if isinstance(part, MapFile):
        return RegionMap(part.axis, [0], name=part.public)
    return PublicTable.from_dense([1], Domain.of(Ordered("any", 1)), name=part.public)


def _value(value: Any, opened: Callable[[PublicFile | MatrixFile | MapFile], Any]) -> Any:
    if isinstance(value, PublicFile | MatrixFile | MapFile):
        return opened(value)
    if isinstance(value, list) and any(isinstance(part, MapFile) for part in value):
        return tuple(opened(part) for part in value)
    if isinstance(value, dict):
        return {int(key) if key.isdecimal() else key: part for key, part in value.items()}
    return tuple(value) if isinstance(value, list) and not any(isinstance(part, list) for part in value) else value


@cache
def model(name: str) -> type[Recipe]:
    """The model of a recipe, made when it is first asked for: a command names one of them."""
    make = RECIPES[name]
    kinds = get_type_hints(make)
    fields: dict[str, Any] = {"name": (Literal[name], ...)}
    for given in signature(make).parameters.values():
        default = list(given.default) if isinstance(given.default, tuple) else given.default
        fields[given.name] = _written(kinds[given.name]), default
    words = (getdoc(make) or "").partition("\n\n")[0].replace("\n", " ")
    return create_model(name, __base__=Recipe, __doc__=words, **fields)


def parse(text: str) -> Recipe:
    """One recipe as it is written on the command line: `haar_topdown`, or with its arguments in TOML,
    `bayes_tree(pilot=true)`, `auto(areas=[1, 16], metric="mae")`.

    >>> parse('privelet(order="2d")').mechanism(Path(), Domain.of(Ordered("age", 4))).name
    'privelet'
    """
    name, bracket, rest = text.strip().partition("(")
    if (bracket and not rest.endswith(")")) or "\n" in rest:
        raise DomainError(f"recipe {text.strip()!r}: the closing bracket is missing on its line")
    try:
        given = arguments(rest[:-1].strip())
    except (ValueError, RecursionError) as error:
        raise DomainError(
            f"recipe {text.strip()[:80]!r}: arguments are written as in a job file, text in quotes, such as "
            f'auto(areas=[1, 16], metric="mae") ({error})'
        ) from None
    if "name" in given:
        raise DomainError(f"recipe {text.strip()!r}: its name goes before the bracket")
    name = name.strip()
    if name not in RECIPES:
        raise DomainError(f"recipe {name}: name: {name!r} is not known; use {', '.join(RECIPES)}")
    content = {"name": name, **given}
    try:
        return model(name).model_validate(content)
    except ValidationError as error:
        raise DomainError(*(f"recipe {name}: {words}" for _, words in form_faults(error, content, name))) from None


def arguments(text: str) -> dict[str, Any]:
    """What is in the brackets of a recipe or an axis: keys and values in TOML. ValueError (RecursionError for lists
    in lists in lists, numbers of thousands of digits among the former) where it is something else."""
    last = token_hex(8)
    (given,) = tomllib.loads(f"given = {{ {text}{', ' if text else ''}{last} = 0 }}").values()
    if given.pop(last, None) is None:  # the table ended before its end, and a comment hid the rest
        raise ValueError("a bracket too many")
    return dict(given)


def split(text: str) -> list[str]:
    """A list of recipes at its commas, but not at those inside brackets or quotes.

    >>> split('geometric, auto(areas=[1, 16]), privelet')
    ['geometric', 'auto(areas=[1, 16])', 'privelet']
    """
    parts, depth, start = [], 0, 0
    for found in re.finditer(r"\"[^\"]*\"|'[^']*'|[\[({]|[\])}]|,", text):
        mark = found.group()
        depth += (mark in "[({") - (mark in "])}")
        if mark == "," and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    return [part.strip() for part in (*parts, text[start:])]


Place = tuple[str | int, ...]


def form_faults(error: ValidationError, content: Any, of: str = "") -> list[tuple[Place, str]]:
    """Every fault of form: where in `content` (keys and indices) and, in words, where, what and what to do. `of` is the
    recipe that `content` was read as, where it was read as one."""
    found: dict[Place, list[str]] = {}
    for fault in error.errors():
        at, said = _words(fault, content, of)
        if said not in found.setdefault(at, []):
            found[at].append(said)
    return [
        (at, f"{'.'.join(map(str, at))}: {' or '.join(words)}" if at else " or ".join(words))
        for at, words in found.items()
    ]


def _words(fault: Any, content: Any, model_name: str) -> tuple[Place, str]:
    kind = fault["type"]
    at: list[str | int] = []
    for i, part in enumerate(fault["loc"]):  # parts that are not in the content name one of several forms
        last = i + 1 == len(fault["loc"])
        if part in (range(len(content)) if isinstance(content, list) else content if isinstance(content, dict) else ()):
            content = content[part]
        elif not (last and kind in ("missing", "extra_forbidden")):
            model_name = str(part)
            continue
        at.append(part)
    if kind.startswith("union_tag_"):
        at.append(fault["ctx"]["discriminator"].strip("'"))
        if kind == "union_tag_not_found":
            return tuple(at), "missing; it has no default"
        known = fault["ctx"]["expected_tags"].replace("'", "")
        return tuple(at), f"{fault['ctx']['tag']!r} is not known; use {known}"
    if kind == "extra_forbidden":
        if model_name not in RECIPES:
            return tuple(at), "unknown key; is it misspelt?"
        takes = sorted(name for name in model(model_name).model_fields if name != "name")
        return tuple(at), f"unknown key; {model_name} takes {', '.join(takes) or 'no arguments'}"
    if kind == "missing":
        return tuple(at), "missing; it has no default"
    said = fault["msg"].removeprefix("Value error, ")
    return tuple(at), said if kind == "value_error" else f"{said[0].lower()}{said[1:]}"


def refuse_public(
    public: Sequence[PublicFile | MatrixFile | MapFile],
    data: str | None,
    sources: Sequence[Path | str | Query | Table],
    base: Path,
) -> None:
    """Refuse what is declared public and has the name of the confidential data, or is (or may be) one of its
    `sources`: files and folders as paths; addresses and patterns, as Spark takes them, as text; a table or a query."""
    found = []
    for part in public:
        what = f"the public {'matrix' if isinstance(part, MatrixFile) else 'table'} {part.public!r}"
        if part.public == data:
            found.append(f"{what} has the name of the confidential data: it is not public")
        found += [f"{what} {fault}" for source in sources for fault in same_file(base / part.file, source)]
    raise_faults(PrivacyError, dict.fromkeys(found))


def same_file(file: Path, source: Path | str | Query | Table) -> Iterator[str]:
    """How the public `file` may be the confidential `source`."""
    if isinstance(source, (Query, Table)):
        paths = [] if "://" in source.database else [Path(source.database)]
        if isinstance(source, Query):
            if file.name.lower() in source.sql.lower():
                yield "is named in the query of the confidential data: it is not public"
            paths += map(Path, source.reads.values())
    elif isinstance(source, str):
        local = source.removeprefix("file://")
        if "://" in local or not local.startswith("/") or set(local) & set("[]{}%\\"):
            # the address is not quoted: it can hold a password
            yield "cannot be compared with the confidential data, which is at an address; name local files one by one"
            return
        paths = [Path(found) for found in glob(local, include_hidden=True)] if set(local) & set("*?") else [Path(local)]
    else:
        paths = [source]
    own, real = _identity(file), Path(os.path.realpath(file))
    for path in [slot for named in paths for slot in _slots(named)]:
        if Path(os.path.realpath(path)) in (real, *real.parents) or (
            own is not None and own in map(_identity, (path, *_inside(path)))
        ):
            yield "is the confidential file itself: it is not public"


_SLOT = re.compile(r"\{(?:(?:local_)?(?:start|end)|date|hour|minute)\}")
"""Placeholders of a slot in the paths of a series."""


def _slots(path: Path) -> Iterator[Path]:
    """The path itself, and where it names the slot of a series what is there of any slot."""
    yield path
    parts = _SLOT.split(str(path))
    if len(parts) > 1:
        yield from map(Path, glob("*".join(map(escape, parts)), include_hidden=True))


def _inside(path: Path) -> Iterator[Path]:
    """All that a reader of a folder finds: links to other folders are followed, each folder once."""
    seen = set()
    for folder, folders, files in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
        else:
            seen.add(real)
            yield from (Path(folder, name) for name in (*folders, *files))


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, whatever its name: links of both kinds lead to one. None where it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
