"""The harness of planted faults: a copy of the package with one place changed, and the test that must then fail.

A fault names the function, method, class or constant that it changes, not a line of a file: a function that moves to
another module is found there by its qualified name. The registry is `faults`, a file for each area.

    python tests/falsify/planted.py              # faults whose place moved or is gone, and where their text is now
    python tests/falsify/planted.py --repoint    # writes the new places into the registry
"""

import ast
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kasuri"


@dataclass(frozen=True)
class Attack:
    """The case of a claim, and the runs, with which `run.py falsify` proves from outputs that a fault broke it."""

    claim: str
    case: str = "enters"
    runs: int = 4000
    """Enough to find it with the seed of the tests; 0: by enumeration."""
    short: bool = False
    """Also in the short tests."""


@dataclass(frozen=True)
class Fault:
    """A change of the shipped code, and what finds it: a test by name, attacks on its claims, or both."""

    name: str
    where: str
    """module:qualified name, e.g. kasuri.noise.rng:Streams.open."""
    old: str
    """Text that occurs exactly once inside that definition."""
    new: str
    caught_by: str = ""
    """file::name of a test."""
    short: bool = False
    """Planted by every `run.py test`; the others by `run.py test --full`."""
    attacks: tuple[Attack, ...] = ()
    also: tuple[tuple[str, str, str], ...] = ()
    """Further places (where, old, new) that must change with the first."""
    section: str = ""
    """The section of docs/assurance.md that tells of it, if any."""

    def changes(self) -> tuple[tuple[str, str, str], ...]:
        return ((self.where, self.old, self.new), *self.also)


# -- places ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """One definition: its module and qualified name, and its characters in the file."""

    where: str
    path: Path
    start: int
    stop: int

    def text(self) -> str:
        return source(self.path)[self.start : self.stop]


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def definitions(path: Path) -> tuple[Place, ...]:
    """What a module defines at its top and in its classes, the inner ones after those around them."""
    text = source(path)
    ends = [0]
    for line in text.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    parts = ["kasuri", *path.relative_to(SOURCE).with_suffix("").parts]
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def below(body: Iterable[ast.stmt], around: str) -> Iterator[Place]:
        for node in body:
            names, decorators = [], []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names, decorators = [node.name], node.decorator_list
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            elif isinstance(node, ast.If):
                yield from below([*node.body, *node.orelse], around)
            first = min([node.lineno, *(one.lineno for one in decorators)])
            for name in names:
                yield Place(f"{module}:{around}{name}", path, ends[first - 1], ends[node.end_lineno or first])
            if isinstance(node, ast.ClassDef):
                yield from below(node.body, f"{around}{node.name}.")

    return tuple(below(ast.parse(text).body, ""))


def everywhere() -> Iterator[Place]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield from definitions(path)


def _module(where: str) -> Path | None:
    inner = SOURCE.joinpath(*where.partition(":")[0].split(".")[1:])
    return next((path for path in (inner.with_suffix(".py"), inner / "__init__.py") if path.exists()), None)


def holders(old: str) -> list[Place]:
    """The innermost definitions that hold a text once."""
    fits = [place for place in everywhere() if place.text().count(old) == 1]
    inner = {(place.path, place.start) for place in fits}
    around = {
        (place.path, place.start)
        for place in fits
        for other in fits
        if other.path == place.path and place.start <= other.start and other.stop <= place.stop and other != place
    }
    return [place for place in fits if (place.path, place.start) in inner - around] or fits


def locate(fault: Fault, where: str, old: str) -> Place:
    """The one definition of this qualified name that holds the text once: in its module or, where that has no such
    definition, anywhere in the package."""
    path, name = _module(where), where.partition(":")[2]
    own = [place for place in definitions(path) if place.where == where] if path else []
    found = own or [place for place in everywhere() if place.where.partition(":")[2] == name]
    fits = [place for place in found if place.text().count(old) == 1]
    if len(fits) == 1:
        return fits[0]
    times = ", ".join(f"{place.text().count(old)} times in {place.where}" for place in found) or "no such definition"
    now = ", ".join(place.where for place in holders(old)) or "nowhere once: write the new text of that line"
    raise LookupError(
        f"fault {fault.name!r}: its text must occur exactly once in {where} ({times}). It is now in: {now}. "
        "`python tests/falsify/planted.py --repoint` writes a single new place into tests/falsify/faults."
    )


# -- planting ----------------------------------------------------------------------------------------------------------


def plant(fault: Fault, target: Path) -> None:
    """A copy of the package with the fault in it; unchanged files are links, so what is compiled is found again."""
    texts: dict[Path, str] = {}
    for where, old, new in fault.changes():
        place = locate(fault, where, old)
        inner = place.path.relative_to(SOURCE)
        whole = texts.get(inner, source(place.path))
        texts[inner] = whole.replace(place.text(), place.text().replace(old, new))
        assert texts[inner] != whole, f"fault {fault.name!r} changes nothing in {where}"
    folders = {folder for inner in texts for folder in inner.parents}
    for folder in sorted(folders):
        place_of = target / "kasuri" / folder
        place_of.mkdir()
        for path in (SOURCE / folder).iterdir():
            inner = path.relative_to(SOURCE)
            if path.name != "__pycache__" and inner not in texts and inner not in folders:
                (place_of / path.name).symlink_to(path)
        stale = {inner.stem for inner in texts if inner.parent == folder}
        (place_of / "__pycache__").mkdir()
        for path in (SOURCE / folder / "__pycache__").glob("*"):
            if path.name.partition(".")[0] not in stale:
                (place_of / "__pycache__" / path.name).symlink_to(path)
    for inner, text in texts.items():
        (target / "kasuri" / inner).write_text(text, encoding="utf-8")


PRELOADED = ["pytest", "hypothesis", "numpy", "numba", "scipy.stats", "pyarrow", "pyarrow.compute", "pyarrow.parquet",
             "duckdb", "pydantic", "typer"]  # fmt: skip
"""Imported once, in the process from which the runs of planted faults are forked. Nothing of kasuri is."""
SIGNS = ("AssertionError", "PrivacyError", "ProtocolError", "FormatError", "DID NOT RAISE")


def run_here(folder: str, test: str, log: str) -> None:
    """What a forked process does: pytest on one test, with the changed package before all others."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.chdir(ROOT)
    os.environ.update(PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # half of what such a run costs, and none of them is needed
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", test])
    import kasuri

    assert str(kasuri.__file__).startswith(folder), "the changed copy was not imported"
    sys.stdout.flush()
    os._exit(int(code))


def assert_caught(fault: Fault, folder: Path) -> None:
    """Plant the fault in `folder` and run its test there: it fails, and not for want of the package."""
    plant(fault, folder)
    log = folder / "said.txt"
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOADED)
    run = processes.Process(target=run_here, args=(str(folder), fault.caught_by, str(log)))
    run.start()
    run.join(300)
    if run.exitcode is None:
        run.kill()
        pytest.fail("the test that should catch it did not end")
    said = log.read_text(encoding="utf-8", errors="replace")
    if " skipped" in said and run.exitcode == 0:
        pytest.skip("the test that catches it needs a program that is not installed")
    # not 1 alone: the value's own checks may refuse the fault while the test's file is read
    assert run.exitcode != 0, f"not caught:\n{said[-2000:]}"
    assert "the changed copy was not imported" not in said
    assert any(sign in said for sign in SIGNS), said[-3000:]


# -- places that moved -------------------------------------------------------------------------------------------------


def moved(fault: Fault) -> Iterator[tuple[str, str]]:
    """(place as written, place as found) of each change that is elsewhere now; '' where nobody can say."""
    for where, old, _ in fault.changes():
        try:
            found = locate(fault, where, old).where
        except LookupError:
            fits = holders(old)
            found = fits[0].where if len(fits) == 1 else ""
        if found != where:
            yield where, found


def main(words: list[str]) -> int:
    from faults import AREAS

    lost = 0
    for path, faults in AREAS.items():
        text = Path(path).read_text(encoding="utf-8")
        for fault in faults:
            for where, found in moved(fault):
                lost += not found
                print(f"{fault.name}: {where} -> {found or 'nowhere once: write its new text'}")
                head, entry, rest = text.partition(f"Fault({_quoted(fault.name)},")
                if found and entry:
                    text = head + entry + rest.replace(f'"{where}"', f'"{found}"', 1)
        if "--repoint" in words:
            Path(path).write_text(text, encoding="utf-8")
    return 1 if lost else 0


def _quoted(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]
    sys.exit(main(sys.argv[1:]))
