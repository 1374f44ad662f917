"""Each fault that would break privacy or the result, planted in the shipped code, is caught by a named test that sees
outputs alone. The same tests pass on the code as it is. About twenty that guard a scale, a stream or a leak are planted
here every time, the others by `run.py test --full`; that each has its place and its test is checked every time."""

import ast
from functools import cache

import planted
import pytest
from faults import FAULTS
from planted import ROOT, Fault, assert_caught, locate, plant

import kasuri as ks
from kasuri.recipes import RECIPES


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_its_place_and_what_finds_it(fault):
    for where, old, new in fault.changes():
        place = locate(fault, where, old)
        ast.parse(planted.source(place.path).replace(place.text(), place.text().replace(old, new)))
        assert old != new
    assert fault.caught_by or fault.attacks, "nothing finds it"
    assert fault.caught_by or not fault.short
    if fault.caught_by:
        file, _, name = fault.caught_by.partition("::")
        assert name in functions_of(file), f"{file} has no test {name}"


def test_names_are_names():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert sum(fault.short for fault in FAULTS) >= 20


def test_every_family_of_recipes_has_a_planted_fault():
    """The module of each recipe's run, so that a new family is not left without one."""
    domain, unit = ks.Domain.of(ks.Mesh("g", shape=(4, 4))), ks.Unit("person", "add-remove", 1)
    families = {type(make().on(domain, unit, "1")).__module__ for make in RECIPES.values()}
    changed = {
        locate(fault, where, old).where.partition(":")[0] for fault in FAULTS for where, old, _ in fault.changes()
    }
    assert families <= changed, f"plant a fault in {sorted(families - changed)}"


CAUGHT = [fault for fault in FAULTS if fault.caught_by]


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.name, marks=() if fault.short else pytest.mark.full) for fault in CAUGHT]
)
def test_planted_fault_is_caught(fault, tmp_path, record_property):
    assert_caught(fault, tmp_path)
    if fault.section:
        told = {"section": fault.section, "name": f"planted: {fault.name}", "found": "caught"}
        for key, value in (told | {"tried": f"one change of `{fault.where}`"}).items():
            record_property(key, value)


# -- the harness -------------------------------------------------------------------------------------------------------

STEP = "def step(x):\n    return x + 1\n"
KIND = "class Kind:\n    def step(self, x):\n        return x + 1\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of three modules in the place of kasuri."""
    monkeypatch.setattr(planted, "SOURCE", tmp_path / "kasuri")
    for name, text in {"a.py": STEP, "deep/b.py": KIND, "deep/c.py": "LIMIT = 7\n"}.items():
        path = tmp_path / "kasuri" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "kasuri"


def fault(where: str, old: str = "x + 1", new: str = "x + 2") -> Fault:
    return Fault("one too many", where, old, new)


@pytest.mark.parametrize(("where", "found"), [
    ("kasuri.a:step", "kasuri.a:step"),
    ("kasuri.deep.b:Kind.step", "kasuri.deep.b:Kind.step"),
    ("kasuri.deep.b:Kind", "kasuri.deep.b:Kind"),
    ("kasuri.gone:step", "kasuri.a:step"),
    ("kasuri.a:Kind.step", "kasuri.deep.b:Kind.step"),
])  # fmt: skip
def test_a_place_is_found_by_its_qualified_name_wherever_it_moved(package, where, found):
    assert locate(fault(where), where, "x + 1").where == found


def test_a_place_that_nobody_can_tell_is_refused_by_name(package):
    with pytest.raises(LookupError, match=r"'one too many'.*no such definition.*now in: kasuri.a:step, kasuri.deep.b"):
        locate(fault("kasuri.a:walk"), "kasuri.a:walk", "x + 1")
    with pytest.raises(LookupError, match=r"0 times in kasuri[.]a:step.*nowhere once"):
        locate(fault("kasuri.a:step"), "kasuri.a:step", "x + 9")
    (package / "d.py").write_text(STEP, encoding="utf-8")
    with pytest.raises(LookupError, match=r"1 times in kasuri[.]a:step, 1 times in kasuri.d:step"):
        locate(fault("kasuri.gone:step"), "kasuri.gone:step", "x + 1")


def test_only_the_place_is_changed_and_the_rest_is_linked(package, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    plant(fault("kasuri.deep.b:Kind.step"), copy)
    assert (copy / "kasuri/deep/b.py").read_text(encoding="utf-8") == KIND.replace("x + 1", "x + 2")
    assert (copy / "kasuri/a.py").readlink() == package / "a.py" and (copy / "kasuri/deep/c.py").is_symlink()
    assert (package / "deep/b.py").read_text(encoding="utf-8") == KIND


def test_a_test_that_passes_catches_nothing(tmp_path):
    """A fault that changes no behaviour: the harness says that it was not caught."""
    test = "tests/contract/test_names.py::test_names_that_hide_or_break_are_refused_where_they_are_built"
    harmless = Fault("nothing changed", "kasuri.names:faults", "in _REFUSED", "in  _REFUSED", test)
    with pytest.raises(AssertionError, match="not caught"):
        assert_caught(harmless, tmp_path)
