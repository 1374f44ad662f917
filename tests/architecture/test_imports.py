"""The import table: which module may import which. The layout is the architecture (docs/architecture.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kasuri"

TABLE: dict[str, set[str]] = {
    "<front>": {"doors"},
    "__main__": {"cli"},
    "_kernels": {"_kernels"},
    "budget": {"budget", "errors", "names", "notebook", "privacy", "schema"},
    "cli": {
        "<front>",
        "budget",
        "cli",
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
        "report",
        "reproduce",
        "schema",
        "shuffle",
        "store",
        "study",
    },
    "doors": set(),
    "draw": {"<front>", "budget", "errors", "noise", "privacy", "published", "recipes", "schema", "table"},
    "errors": set(),
    "examples": {"schema"},
    "files": {"errors"},
    "ingest": {"_kernels", "errors", "ingest", "meshcode", "names", "public", "schema", "table"},
    "job": {
        "budget",
        "draw",
        "errors",
        "ingest",
        "job",
        "privacy",
        "public",
        "published",
        "recipes",
        "schema",
        "spark",
        "store",
        "table",
    },
    "kanon": {"_kernels", "errors", "files", "kanon", "meshcode", "names", "noise", "privacy", "schema"},
    "local": {"_kernels", "doors", "errors", "files", "local", "noise", "privacy", "refine", "schema"},
    "manifest": {
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
    },
    "meshcode": {"_kernels", "errors"},
    "names": {"errors"},
    "noise": {"_kernels", "errors", "noise"},
    "notebook": set(),
    "privacy": {"errors", "notebook", "schema"},
    "public": {"errors", "names", "schema"},
    "published": {
        "_kernels",
        "budget",
        "errors",
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
    "refine": {"_kernels", "errors", "public", "refine", "schema", "trees"},
    "report": {"errors", "files", "published", "report", "schema"},
    "reproduce": {
        "<front>",
        "_kernels",
        "examples",
        "ingest",
        "kanon",
        "local",
        "meshcode",
        "noise",
        "refine",
        "report",
        "shuffle",
        "study",
        "trees",
    },
    "schema": {"errors", "meshcode", "names", "schema"},
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
    "store": {"errors", "files", "manifest", "meshcode", "names", "privacy", "published", "schema", "store", "trees"},
    "study": {
        "draw",
        "errors",
        "noise",
        "notebook",
        "privacy",
        "published",
        "recipes",
        "schema",
        "study",
        "table",
        "trees",
    },
    "table": {"errors", "names", "schema"},
    "trees": {"_kernels", "errors", "schema", "trees"},
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


def graph() -> dict[str, set[str]]:
    """Module -> the modules it imports, lazily or not. Importing a module runs the packages around it as well; the
    front door, which imports nothing by itself, is left out."""
    paths = {name_of(path): path for path in SOURCE.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, path in paths.items():
        wanted = set()
        for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {one if one in paths else str(node.module) for one in inner}
        around = {".".join(one.split(".")[:i]) for one in wanted for i in range(2, one.count(".") + 2)}
        found[name] = ((wanted | around) & paths.keys()) - {"kasuri", name}
    return found


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


def test_the_page_tells_the_table():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| .*? \| (.*?) \|$", page, re.MULTILINE)
    told = {module: set() if names == "-" else set(names.split(", ")) for module, names in rows}
    wanted = {
        module: {"the front door" if name == "<front>" else name for name in names - {module}}
        for module, names in TABLE.items()
        if module != "<front>"
    }
    assert told == wanted


def test_no_module_is_too_long():
    long = {
        str(path.name): n for _, path in modules() if (n := len(path.read_text(encoding="utf-8").splitlines())) > 600
    }
    assert not long


def test_front_door_is_small_sorted_and_complete():
    import kasuri

    assert kasuri.__all__ == sorted(kasuri.__all__)
    assert len(kasuri.__all__) <= 40
    for name in kasuri.__all__:
        assert getattr(kasuri, name) is not None
