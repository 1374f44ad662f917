"""The import table: which module may import which. The layout is the architecture; the last column of the table in
docs/architecture.md is made from TABLE by `python3 tests/architecture/test_imports.py`."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Set
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kasuri"

TABLE: dict[str, set[str]] = {
    "<front>": {"doors"},
    "__main__": {"cli"},
    "_kernels": {"_kernels"},
    "arrays": set(),
    "budget": {"budget", "errors", "names", "notebook", "privacy", "schema"},
    "cli": {
        "<front>",
        "budget",
        "cli",
        "describe",
        "errors",
        "examples",
        "files",
        "ingest",
        "job",
        "kanon",
        "local",
        "manifest",
        "names",
        "privacy",
        "published",
        "report",
        "reproduce",
        "schema",
        "shuffle",
        "start",
        "store",
        "study",
        "words",
    },
    "doors": set(),
    "describe": {"describe", "errors", "manifest", "published", "store"},
    "draw": {"<front>", "budget", "errors", "noise", "privacy", "published", "recipes", "schema", "table"},
    "errors": set(),
    "examples": {"files", "meshcode", "schema"},
    "files": {"errors"},
    "ingest": {"_kernels", "arrays", "doors", "errors", "ingest", "meshcode", "names", "public", "schema", "table"},
    "job": {
        "budget",
        "doors",
        "draw",
        "errors",
        "files",
        "ingest",
        "job",
        "privacy",
        "public",
        "published",
        "recipes",
        "schema",
        "series",
        "spark",
        "store",
        "study",
        "table",
    },
    "kanon": {"_kernels", "arrays", "errors", "files", "kanon", "meshcode", "names", "noise", "privacy", "schema"},
    "local": {"_kernels", "doors", "errors", "files", "local", "noise", "privacy", "refine", "schema", "shuffle"},
    "manifest": {
        "arrays",
        "budget",
        "errors",
        "files",
        "manifest",
        "names",
        "noise",
        "privacy",
        "public",
        "published",
        "recipes",
        "refine",
        "report",
        "schema",
        "store",
        "words",
    },
    "meshcode": {"_kernels", "arrays", "errors"},
    "names": {"errors"},
    "noise": {"_kernels", "arrays", "errors", "noise"},
    "notebook": set(),
    "privacy": {"errors", "notebook", "schema"},
    "public": {"errors", "names", "schema"},
    "published": {
        "_kernels",
        "arrays",
        "budget",
        "errors",
        "names",
        "noise",
        "notebook",
        "privacy",
        "published",
        "recipes",
        "schema",
        "store",
        "trees",
    },
    "recipes": {
        "_kernels",
        "arrays",
        "budget",
        "errors",
        "noise",
        "privacy",
        "public",
        "published",
        "recipes",
        "refine",
        "schema",
        "trees",
    },
    "refine": {"_kernels", "arrays", "errors", "public", "refine", "schema", "trees"},
    "report": {"arrays", "errors", "files", "published", "report", "schema", "store", "words"},
    "reproduce": {
        "<front>",
        "_kernels",
        "arrays",
        "examples",
        "ingest",
        "kanon",
        "local",
        "meshcode",
        "noise",
        "refine",
        "report",
        "reproduce",
        "shuffle",
        "study",
        "trees",
    },
    "series": {
        "_kernels",
        "arrays",
        "budget",
        "draw",
        "errors",
        "files",
        "names",
        "noise",
        "privacy",
        "published",
        "recipes",
        "refine",
        "schema",
        "series",
        "store",
        "table",
    },
    "schema": {"arrays", "errors", "files", "meshcode", "names", "schema"},
    "shuffle": {
        "_kernels",
        "budget",
        "doors",
        "errors",
        "files",
        "ingest",
        "local",
        "names",
        "noise",
        "privacy",
        "published",
        "report",
        "schema",
        "shuffle",
    },
    "spark": {
        "_kernels",
        "arrays",
        "budget",
        "draw",
        "errors",
        "ingest",
        "manifest",
        "names",
        "noise",
        "privacy",
        "published",
        "recipes",
        "refine",
        "schema",
        "spark",
        "store",
        "trees",
    },
    "store": {
        "arrays",
        "doors",
        "errors",
        "files",
        "manifest",
        "meshcode",
        "names",
        "privacy",
        "published",
        "schema",
        "store",
        "trees",
    },
    "start": {
        "budget",
        "errors",
        "files",
        "ingest",
        "job",
        "manifest",
        "meshcode",
        "privacy",
        "schema",
        "start",
        "study",
    },
    "study": {
        "draw",
        "errors",
        "examples",
        "meshcode",
        "noise",
        "notebook",
        "privacy",
        "public",
        "published",
        "recipes",
        "schema",
        "study",
        "table",
        "trees",
    },
    "table": {"errors", "names", "schema"},
    "trees": {"_kernels", "arrays", "errors", "schema", "trees"},
    "words": {"recipes"},
}
"""Module (or package) -> what it may import from kasuri, lazily or not. <front> is `import kasuri`."""


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        inner = path.relative_to(SOURCE)
        name = inner.parts[0].removesuffix(".py")
        yield ("<front>" if name == "__init__" else name), path


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node, at the top or inside functions, but for what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for other in child.orelse:
                yield other
                yield from executed(other)
        else:
            yield child
            yield from executed(child)


def imported(path: Path) -> set[str]:
    found = set()
    for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "kasuri" else [node.module]
            )
        else:
            continue
        for name in names:
            parts = (name or "").split(".")
            if parts[0] == "kasuri":
                is_module = len(parts) > 1 and ((SOURCE / f"{parts[1]}.py").exists() or (SOURCE / parts[1]).is_dir())
                found.add(parts[1] if is_module else "<front>")
    return found


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda v: str(v) if isinstance(v, str) else v.name)
def test_imports_follow_the_table(name: str, path: Path):
    assert name in TABLE, f"{name} is not in the import table"
    assert imported(path) <= TABLE[name], f"{path.name} imports {sorted(imported(path) - TABLE[name])}"


def name_of(path: Path) -> str:
    parts = ["kasuri", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def doors(path: Path) -> dict[str, str]:
    """Name -> its module within a package, where the package imports it at its first use (`_HOME`)."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_HOME":
            return ast.literal_eval(node.value)
    return {}


@cache
def graph(*, own: bool = True) -> dict[str, frozenset[str]]:
    """Module -> the modules it imports, lazily, through lazy doors, or not. Importing a module runs the packages around
    it as well; `own` counts those that the importing module lies in itself, which run before it whatever it imports.
    The front door, which imports nothing by itself, is left out."""
    paths = {name_of(path): path for path in SOURCE.rglob("*.py")}
    homes = {name: doors(path) for name, path in paths.items() if path.name == "__init__.py"}
    found: dict[str, frozenset[str]] = {}
    for name, path in paths.items():
        wanted = set()
        for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                package = str(node.module)
                for alias in node.names:
                    home = homes.get(package, {}).get(alias.name)
                    inner = f"{package}.{home or alias.name}"
                    wanted.add(inner if inner in paths else package)
        around = {".".join(one.split(".")[:i]) for one in wanted for i in range(2, one.count(".") + 2)} - wanted
        if not own:
            around = {package for package in around if not name.startswith(package + ".")}
        found[name] = frozenset(((wanted | around) & paths.keys()) - {"kasuri", name})
    return found


def cycle(edges: Mapping[str, Set[str]]) -> list[str]:
    """The modules of one cycle in the order of their imports, the first one once more at the end; [] where none is."""
    done: set[str] = set()
    for start in sorted(edges):
        path, todo = [start], [iter(sorted(edges[start]))]
        while todo:
            following = next(todo[-1], None)
            if following is None:
                done.add(path.pop())
                todo.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                path.append(following)
                todo.append(iter(sorted(edges[following])))
    return []


def test_no_module_imports_itself_through_others():
    """Lazy imports counted: a module can be read, tested and moved with what lies below it."""
    assert " -> ".join(cycle(graph(own=False))) == ""


def test_a_cycle_is_found_and_told():
    edges = dict(graph(own=False))
    edges["kasuri.store.columns"] |= {"kasuri.published.release"}
    told = cycle(edges)
    assert told[0] == told[-1] and {"kasuri.store.columns", "kasuri.published.release"} <= set(told)
    assert all(other in edges[one] for one, other in pairwise(told))
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def reach(start: str) -> set[str]:
    """Every module that a module, or one in a package, imports directly or through others."""
    edges, seen = graph(), set()
    todo = [name for name in edges if name == start or name.startswith(start + ".")]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += edges[name]
    return seen


@pytest.mark.parametrize("start", ["kasuri.refine", "kasuri.recipes.strategy", "kasuri.public", "kasuri.trees"])
def test_refinement_cannot_reach_counts_or_noise(start):
    away = {name for name in reach(start) if name == "kasuri.table" or re.match(r"kasuri[.](noise|draw)\b", name)}
    assert not away


@pytest.mark.parametrize("start", ["kasuri.recipes", "kasuri.published.intervals", "kasuri.report"])
def test_what_is_drawn_chosen_or_shown_cannot_reach_counts(start):
    assert "kasuri.table" not in reach(start)


PAGE = SOURCE.parents[1] / "docs" / "architecture.md"
ROW = re.compile(r"^\| `([^`]+)` \| (.*) \| .*? \|$", re.MULTILINE)


def told(page: str) -> str:
    """The page with the last column made from the table; a module without a row gets one to be described."""

    def row(module: str, holds: str) -> str:
        names = sorted("the front door" if name == "<front>" else name for name in TABLE[module] - {module})
        first = [name for name in names if name == "the front door"]
        return f"| `{module}` | {holds} | {', '.join([*first, *(n for n in names if n not in first)]) or '-'} |"

    rows = {module: holds for module, holds in ROW.findall(page) if module in TABLE}
    begin, end = (
        page.index("| --- | --- | --- |\n") + len("| --- | --- | --- |\n"),
        page.index("\n\n`tests/architecture"),
    )
    rows |= {module: UNTOLD for module in TABLE if module not in rows and module != "<front>"}
    return page[:begin] + "\n".join(row(module, holds) for module, holds in rows.items()) + page[end:]


UNTOLD = "(what it holds)"


def test_the_page_tells_the_table():
    page = PAGE.read_text(encoding="utf-8")
    assert page == told(page), "run `python3 tests/architecture/test_imports.py`"
    assert UNTOLD not in page, "say in docs/architecture.md what the new module holds"


def test_no_module_is_too_long():
    long = {
        str(path.relative_to(SOURCE)): n
        for _, path in modules()
        if (n := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert not long


def test_no_function_is_too_complex():
    limit = ["--select", "C901", "--config", "lint.mccabe.max-complexity=15", "--config", "lint.per-file-ignores={}"]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--ignore-noqa", *limit, "--output-format", "json"]
    said = subprocess.run([*command, str(SOURCE)], capture_output=True, text=True)
    found = {
        f"{Path(fault['filename']).relative_to(SOURCE).as_posix()}: {fault['message'].split('`')[1]}"
        for fault in json.loads(said.stdout)
    }
    assert not found


def test_front_door_is_small_sorted_and_complete():
    import kasuri

    assert kasuri.__all__ == sorted(kasuri.__all__)
    assert len(kasuri.__all__) <= 40  # the six values, what makes them, and series of them
    for name in kasuri.__all__:
        assert getattr(kasuri, name) is not None


if __name__ == "__main__":
    PAGE.write_text(told(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
