"""Axes answer for themselves: nothing outside `schema/` asks which class an axis is, by class, by word or by field."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasuri.schema.axis import Axis, Plane
from kasuri.schema.kinds import KINDS

SOURCE = Path(__file__).parents[2] / "src" / "kasuri"
CLASSES = {kind.__name__ for kind in (Axis, Plane, *KINDS.values())}
FIELDS = {"labels", "level", "origin", "tree"}
"""What some axes have and others do not: asking for one by name is asking for the class."""


def last(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_a_class(node: ast.AST) -> bool:
    return any(last(part) in CLASSES for part in ast.walk(node))


def kind_of_something(node: ast.AST) -> bool:
    """`x.kind`, `x["kind"]` or `x.get("kind")`."""
    if isinstance(node, ast.Call):
        return last(node.func) == "get" and any(isinstance(a, ast.Constant) and a.value == "kind" for a in node.args)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "kind"
    return isinstance(node, ast.Attribute) and node.attr == "kind"


def says_a_kind(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Constant) and part.value in KINDS for part in ast.walk(node))


def compared(node: ast.Compare) -> str | None:
    """How a comparison asks for a class, if it does."""
    sides = [node.left, *node.comparators]
    parts = [part for side in sides for part in ast.walk(side)]
    if any(map(names_a_class, sides)):
        return "type"
    if any(last(part) == "__name__" for part in parts):
        return "name" if any(isinstance(part, ast.Constant) and part.value in CLASSES for part in parts) else None
    return "kind" if any(map(kind_of_something, sides)) and any(map(says_a_kind, sides)) else None


def called(node: ast.Call) -> str | None:
    """How a call asks for a class, or writes a function down for one."""
    if last(node.func) in ("isinstance", "issubclass"):
        return "isinstance" if names_a_class(node.args[1]) else None
    if last(node.func) in ("getattr", "hasattr"):
        asks = isinstance(node.args[1], ast.Constant) and node.args[1].value in FIELDS
        return "getattr" if asks else None
    return "dispatch" if last(node.func) == "register" and any(map(names_a_class, node.args)) else None


def chosen(node: ast.AST) -> bool:
    """Whether the kind of something chooses: the subject of `match`, the key of a table that is written out, the text
    that begins or ends with something."""
    if isinstance(node, ast.Match):
        return kind_of_something(node.subject) and any(says_a_kind(case.pattern) for case in node.cases)
    if isinstance(node, ast.Subscript):
        return kind_of_something(node.slice) and isinstance(node.value, ast.Dict) and says_a_kind(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inside = any(map(kind_of_something, (node.func.value, *node.args)))
        return inside and any(map(says_a_kind, (node.func.value, *node.args)))
    return False


def way_of(node: ast.AST) -> str | None:
    if chosen(node):
        return "kind"
    if isinstance(node, ast.Call):
        return called(node)
    if isinstance(node, ast.Compare):
        return compared(node)
    if isinstance(node, ast.MatchClass):
        return "case" if names_a_class(node.cls) else None
    if isinstance(node, ast.Dict):
        return "table" if any(last(key) in CLASSES for key in node.keys if key is not None) else None
    if isinstance(node, ast.FunctionDef) and any(last(one) == "register" for one in node.decorator_list):
        first = node.args.args[0].annotation
        return "dispatch" if first is not None and names_a_class(first) else None
    return None


def types(tree: ast.AST) -> Iterator[ast.AST]:
    """What is written as the type of something."""
    for node in ast.walk(tree):
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.AnnAssign) and last(node.annotation) == "TypeAlias":
            parts.append(node.value)
        for part in parts:
            if part is not None:
                yield from ast.walk(part)


def more_than_made(text: str) -> Iterator[int]:
    """The lines in which the class of an axis is anything but called, to make one, or written as a type: there is no
    other way to ask for a class than to have it."""
    tree = ast.parse(text)
    fine = set(map(id, types(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            fine.add(id(node.func))
            if isinstance(node.func, ast.Attribute) and not node.func.attr.startswith("__"):
                fine.add(id(node.func.value))
    for node in ast.walk(tree):
        renamed = (
            isinstance(node, ast.ImportFrom)
            and (node.module == "kasuri" or str(node.module).startswith("kasuri.schema"))
            and any(one.name in CLASSES and one.asname not in (None, one.name) for one in node.names)
        )
        handed = isinstance(node, (ast.Name, ast.Attribute)) and last(node) in CLASSES and id(node) not in fine
        if renamed or handed:
            yield node.lineno  # type: ignore[attr-defined]


def asked(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a module that ask for the class of an axis, and how."""
    for node in ast.walk(ast.parse(text)):
        how = way_of(node)
        if how is not None:
            yield node.lineno, how  # type: ignore[attr-defined]


def test_nothing_outside_schema_asks_for_the_class_of_an_axis():
    found = [
        f"{path.relative_to(SOURCE)}, line {line}: {how}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] != "schema"
        for line, how in asked(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_outside_schema_the_class_of_an_axis_only_makes_one():
    found = [
        f"{path.relative_to(SOURCE)}, line {line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] != "schema"
        for line in more_than_made(path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize("planted", [
    "x = isinstance(axis, Mesh)", "x = isinstance(axis, (schema.Mesh, Time))", "x = type(axis) is Mesh",
    "t: type = Mesh\nx = isinstance(axis, t)", "KINDS = (Mesh, Time)", "x = Mesh in type(axis).__mro__",
    "x = dict([(Mesh, 1)])[type(axis)]", "x = Mesh.__instancecheck__(axis)", "x = dispatch(Mesh)(axis)",
    "from kasuri.schema import Mesh as M", "match axis:\n    case Mesh(level=None): pass", "def f(kind=Mesh): pass",
    "x = [one for one in (Mesh, Time) if one is kind]",
])  # fmt: skip
def test_a_class_that_is_handed_around_is_seen(planted):
    assert list(more_than_made(planted))


def test_making_an_axis_and_naming_its_type_are_fine():
    text = (
        "Places: TypeAlias = Domain | Axis\ndef f(axis: Mesh | None) -> list[Time]:\n    return Mesh.window(ks.Time(1))"
    )
    assert not list(more_than_made(text))


@pytest.mark.parametrize(
    "planted",
    [
        "meshes = [axis for axis in domain.axes if isinstance(axis, Mesh)]",
        "if isinstance(axis, (ks.Nominal, Ordered)) and axis.labels: pass",
        "if not isinstance(axis, Plane | Time): pass",
        "if issubclass(type(axis), schema.Axis): pass",
        "if type(axis) is Time: pass",
        "match axis:\n    case Mesh(level=None): pass",
        'if axis.kind == "mesh": pass',
        'draw = {"mesh": drawn, "time": listed}[axis.kind]',
        'draw = {"mesh": drawn}.get(axis.kind, listed)',
        'if axis.kind.startswith("mesh"): pass',
        'match axis.kind:\n    case "mesh" | "grid": pass',
        'if axis.kind in ("nominal", "ordered"): pass',
        'if data["kind"] != "time": pass',
        'if data.get("kind") == "mesh": pass',
        'labels = getattr(axis, "labels", None) or ()',
        "draw = {Mesh: drawn, schema.Time: listed}[type(axis)]",
        'if type(axis).__name__ == "Mesh": pass',
        'if axis.__class__.__name__ in ("Nominal", "Ordered"): pass',
        "@drawn.register\ndef _(axis: Mesh): pass",
        "@drawn.register(Nominal)\ndef _(axis): pass",
    ],
)
def test_the_test_sees_every_way_of_asking(planted):
    assert list(asked(planted))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_says_its_own_word(kind):
    assert KINDS[kind.kind] is kind and "kind" in vars(kind)
