"""The import table: which module may import which. The layout is the architecture (docs/architecture.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kasuri"

TABLE: dict[str, set[str]] = {
    "_kernels": {"_kernels"},
    "accounting": {"errors", "privacy", "schema"},
    "aside": {"errors"},
    "bars": {"bounds", "errors", "estimate", "laws", "measurements", "order", "regions", "schema", "transform"},
    "bayes": {"_kernels", "order", "public", "refine", "schema", "visited"},
    "blocks": {"noise", "rng"},
    "bounded": {"errors"},
    "bounds": {"_kernels", "estimate", "regions"},
    "cli": {"<front>", "accounting", "aside", "cli", "errors", "examples", "ingest", "job", "kanon", "ledger",
            "local", "manifest", "names", "parameters", "privacy", "report", "reproduce", "schema", "shuffle",
            "store", "study"},
    "doors": set(),
    "draw": {"<front>", "blocks", "errors", "ledger", "privacy", "published", "recipes", "rng", "schema", "table"},
    "engine": {"_kernels", "blocks", "measurements", "noise", "order", "refine", "rng"},
    "errors": set(),
    "estimate": {"_kernels", "measurements", "noise", "order", "visited"},
    "evidence": set(),
    "examples": {"schema"},
    "ingest": {"_kernels", "errors", "ingest", "meshcode", "names", "public", "schema", "table"},
    "intervals": {"bars", "bounds", "errors", "published", "recipes", "regions"},
    "job": {"draw", "errors", "ingest", "ledger", "parameters", "privacy", "published", "recipes", "schema",
            "spark", "store", "table"},
    "kanon": {"_kernels", "aside", "errors", "kanon", "meshcode", "names", "noise", "privacy", "rng", "schema"},
    "laws": {"blocks", "evidence", "noise", "rng"},
    "ledger": {"accounting", "errors", "ledger", "names", "privacy", "schema"},
    "local": {"_kernels", "aside", "bounded", "doors", "errors", "local", "noise", "privacy", "refine", "rng",
              "schema"},
    "manifest": {"aside", "bounded", "errors", "evidence", "intervals", "laws", "ledger", "manifest",
                 "measurements", "names", "privacy", "public", "published", "recipes", "refine", "report",
                 "schema", "store"},
    "measurements": set(),
    "meshcode": {"_kernels", "errors"},
    "names": {"errors"},
    "noise": {"_kernels", "errors", "rng"},
    "order": {"_kernels", "errors", "meshcode", "schema"},
    "parameters": {"errors", "ingest", "public", "recipes", "schema"},
    "privacy": {"errors", "schema"},
    "project": {"_kernels", "errors"},
    "public": {"errors", "names", "schema"},
    "published": {"errors", "intervals", "ledger", "measurements", "meshcode", "privacy", "regions", "schema",
                  "store"},
    "recipes": {"_kernels", "accounting", "bars", "bayes", "blocks", "engine", "errors", "evidence", "laws",
                "measurements", "noise", "order", "privacy", "project", "public", "recipes", "refine", "rng",
                "schema", "strategy", "transform", "visit", "visited"},
    "refine": {"_kernels", "errors"},
    "regions": {"_kernels", "errors", "order", "schema"},
    "report": {"aside", "bounded", "errors", "meshcode", "published", "report", "schema"},
    "reproduce": {"<front>", "_kernels", "examples", "ingest", "kanon", "local", "meshcode", "noise", "order",
                  "project", "report", "rng", "shuffle", "study"},
    "rng": {"errors"},
    "schema": {"errors", "meshcode", "names"},
    "shuffle": {"_kernels", "aside", "bounded", "doors", "errors", "ingest", "ledger", "local", "names", "privacy",
                "published", "report", "rng", "schema", "shuffle"},
    "spark": {"_kernels", "blocks", "draw", "engine", "errors", "ingest", "ledger", "manifest", "measurements",
              "names", "order", "privacy", "published", "recipes", "refine", "rng", "schema", "spark", "store",
              "visit", "visited"},
    "store": {"aside", "bounded", "errors", "intervals", "manifest", "meshcode", "names", "privacy", "published",
              "regions", "schema", "store"},
    "strategy": {"errors", "schema"},
    "study": {"bounds", "draw", "errors", "privacy", "published", "recipes", "regions", "rng", "schema", "study",
              "table"},
    "table": {"errors", "names", "schema"},
    "transform": {"order", "schema"},
    "visit": {"_kernels", "blocks", "engine", "errors", "noise", "order", "rng", "visited"},
    "visited": set(),
    "<front>": {"doors"},
}  # fmt: skip
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


@pytest.mark.parametrize("start", ["refine", "project", "strategy", "public", "bayes"])
def test_refinement_cannot_reach_counts_or_noise(start):
    reach, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in reach:
            reach.add(name)
            todo += TABLE[name]
    assert not reach & {"table", "noise", "rng", "draw"}


@pytest.mark.parametrize("start", ["recipes", "intervals", "report"])
def test_what_is_drawn_chosen_or_shown_cannot_reach_counts(start):
    reach, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in reach and name != "<front>":
            reach.add(name)
            todo += TABLE[name]
    assert "table" not in reach


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
