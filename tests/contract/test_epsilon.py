"""An epsilon is plain ASCII text, and above 20 it needs a second word: at every door through which one can come."""

import inspect
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kasuri as ks
import kasuri.spark
from kasuri import job, kanon, local, shuffle
from kasuri.cli import app
from kasuri.local import categorical, numeric
from kasuri.privacy import MOST, Meant, asked, exact

UNIT = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(ks.Ordered("age", 4))
COUNTS = ks.Counts.from_dense([50, 60, 70, 80], DOMAIN, UNIT, "census-2020")
PLACES = ks.Nominal("place", labels=("a", "b", "c"))
SPEC = kanon.Recoding.of(kanon.numbers("age", 0, 100, [10, 50]), kanon.categories("sex", ["f", "m"]))
ROWS = pa.table({"age": np.arange(400) % 100, "sex": ["f", "m"] * 200})


@pytest.mark.parametrize(
    "text",
    ["0_1", "1e-1_0", "1_0/3", "１", "0．1", "٣", "1/３", "\u30000.1", "\t1", "0.1\n", "+0.1", "1.2.3", "1e", "e1", ".",
     "", " ", "0x1", "1,5", "inf", "nan", "1 /3", "1/ 3", "1/3/3", "1.5/2", "0.1 WEAK", "0.1weak", "weak", "weak 0.1",
     "1e+", "1e1.0"],
)  # fmt: skip
def test_text_that_is_not_a_plain_number(text):
    for read in (exact, asked):
        with pytest.raises(ks.PrivacyError):
            read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", "1/10"), (" 0.1 ", "1/10"), ("1", "1"), ("1.", "1"), (".5", "1/2"), ("1e-1", "1/10"), ("2E+0", "2"),
     ("1/3", "1/3"), ("0010", "10"), ("20", "20"), ("20.0", "20")],
)  # fmt: skip
def test_plain_numbers(text, value):
    assert exact(text) == asked(text) == Fraction(value)
    assert asked(f"{text} weak") == Fraction(value)


def of_columns(epsilon):
    return shuffle.Plan("phone", ("age",), ("spend",), {"age": (20, 80), "spend": (0, 1)}, epsilon, "1e-8")


def sampled(epsilon, cut=None):
    return kanon.sample_then_anonymize(
        ROWS, SPEC, cut=cut or {"age": 1, "sex": 1}, k=5, sampling_rate="0.1", epsilon=epsilon, delta="0.1",
        unit=ks.Unit("row", "add-remove", 1), rows_are_units=True, source=ks.seeded(1),
    )  # fmt: skip


def chosen(epsilon):
    return kanon.choose_cut(
        ROWS, SPEC, cuts=[{"age": 1, "sex": 1}], k=5, sampling_rate="0.1", epsilon=epsilon,
        unit=ks.Unit("row", "add-remove", 1), rows_are_units=True, source=ks.seeded(1),
    )  # fmt: skip


def on_spark(epsilon):
    return kasuri.spark.release(
        None, DOMAIN, ks.haar_topdown(), epsilon=epsilon, unit=UNIT, ledger=None, columns={"age": "age"}, work="none"
    )


DOORS = {
    "kasuri.release": lambda e: ks.release(COUNTS, ks.geometric(), epsilon=e, ledger=None, source=ks.seeded(1)),
    "kasuri.Ledger.open": lambda e: ks.Ledger.open("x.ledger", epsilon=e, unit=UNIT, data="census-2020"),
    "kasuri.local.Device": lambda e: local.Device("00" * 32, max_epsilon=e),
    **{f"kasuri.local.{name}": (lambda e, make=make: make(PLACES, epsilon=e))
       for name, make in categorical.MAKERS.items()},
    **{f"kasuri.local.{name}": (lambda e, make=make: make((0, 1), epsilon=e))
       for name, make in numeric.MAKERS.items()},
    "kasuri.local.memoised": lambda e: local.memoised(PLACES, epsilon_permanent=e, epsilon_instant="1", v_max=2),
    "kasuri.local.plan": lambda e: local.plan(PLACES, users=100, epsilon=e),
    "kasuri.local.plan_numbers": lambda e: local.plan_numbers((0, 1), users=100, epsilon=e),
    "kasuri.shuffle.Plan": of_columns,
    "kasuri.kanon.choose_cut": chosen,
    "kasuri.kanon.sample_then_anonymize": sampled,
    "kasuri.spark.release": on_spark,
}  # fmt: skip
"""Whoever comes through here makes a promise."""
STUDIES = {
    "kasuri.Mechanism.guarantee", "kasuri.Mechanism.losses", "kasuri.Mechanism.plan", "kasuri.Mechanism.scale",
    "kasuri.Mechanism.claim", "kasuri.Mechanism.on", "kasuri.Mechanism.run", "kasuri.plan",
    "kasuri.Mechanism.recurring", "kasuri.Mechanism.series", "kasuri.Mechanism.settled",
    "kasuri.compare", "kasuri.kanon.exact_delta", "kasuri.kanon.least_k",
    "kasuri.kanon.li_qardaji_su_delta", "kasuri.shuffle.attack", "kasuri.shuffle.bounds_of",
}  # fmt: skip
"""They say what would be promised, or what it would cost, and promise nothing."""
VALUES = {"kasuri.Guarantee", "kasuri.local.Numeric", "kasuri.local.Randomizer", "kasuri.shuffle.Bound"}
"""Made by the doors, and read back from files that were made by them."""


def takers():
    """Every public function, method and class with a parameter that is an epsilon."""
    for module in (ks, local, shuffle, kanon, kasuri.spark):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.ismodule(found) or not callable(found):
                continue
            inner = inspect.getmembers(found, callable) if inspect.isclass(found) else []
            for path, one in [(name, found), *((f"{name}.{k}", v) for k, v in inner if not k.startswith("_"))]:
                try:
                    words = inspect.signature(one).parameters
                except ValueError:
                    continue
                if any("epsilon" in word for word in words):
                    yield f"{module.__name__}.{path}"


def test_every_door_is_known():
    """A new function that takes an epsilon stands in one of the three lists, or this fails."""
    assert set(takers()) == set(DOORS) | STUDIES | VALUES


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kasuri.spark.cluster.session.of", lambda frame: None)
    return tmp_path


@pytest.mark.parametrize("epsilon", ["25", "20.000001", "1e3", "81/4", 21, Fraction(25)], ids=str)
@pytest.mark.parametrize("door", DOORS)
def test_above_20_needs_the_word(door, epsilon, alone):
    with pytest.raises(ks.PrivacyError, match=r"above 20.*weak"):
        DOORS[door](epsilon)
    assert not list(alone.iterdir())


BEYOND = {"kasuri.spark.release": AttributeError, "kasuri.local.laplace": ks.NumericsError}
"""What is said behind the door: of a frame that is none, and of a grid too fine for so much epsilon."""


@pytest.mark.parametrize("epsilon", ["25 weak", "20"])
@pytest.mark.parametrize("door", DOORS)
def test_with_the_word_it_is_taken_and_up_to_20_without(door, epsilon):
    if epsilon == "20" and door in ("kasuri.shuffle.Plan", "kasuri.local.memoised"):
        epsilon = "10"  # twice
    if door in BEYOND:
        with pytest.raises(BEYOND[door]):
            DOORS[door](epsilon)
    else:
        DOORS[door](epsilon)


def test_a_sum_above_20_needs_it_too():
    """Two columns of 11 tell the one who joins 22; a memory of two places of 11 tells 22."""
    of_columns("10")
    with pytest.raises(ks.PrivacyError, match="sum of the columns"):
        of_columns("11")
    assert of_columns("11 weak").local_epsilon == 22
    with pytest.raises(ks.PrivacyError, match="v_max times"):
        local.memoised(PLACES, epsilon_permanent="11", epsilon_instant="1", v_max=2)
    assert local.memoised(PLACES, epsilon_permanent="11 weak", epsilon_instant="1", v_max=2).guarantee().epsilon == 22
    with pytest.raises(ks.PrivacyError, match="chosen cut"):
        sampled("11", chosen("11"))
    assert sampled("11 weak", chosen("11")).guarantee.epsilon == 22


def test_what_was_made_keeps_working(alone):
    """Saved releases, ledgers, plans and randomizers hold the number alone, as before, and need no word."""
    from kasuri.manifest import verify

    ledger = ks.Ledger.open("big.ledger", epsilon="60 weak", unit=UNIT, data="census-2020")
    out = ks.release(COUNTS, ks.geometric(), epsilon="25 weak", ledger=ledger)
    out.save("r")
    assert out.guarantee.to_json()["epsilon"] == "25"
    assert verify("r", ledger="big.ledger")["faults"] == [] and ks.Release.load("r").guarantee.epsilon == 25
    again = ks.Ledger.open("big.ledger", epsilon="60", unit=UNIT, data="census-2020")
    assert again.balance().left == 35 and ks.Ledger.load("big.ledger").verify()["balance"]["left"] == "35"
    plan = of_columns("25 weak")
    plan.save("plan.json")
    assert "weak" not in (alone / "plan.json").read_text() and shuffle.Plan.load("plan.json") == plan
    for made in (local.grr(PLACES, epsilon="25 weak"), local.memoised(PLACES, epsilon_permanent="25 weak",
                                                                      epsilon_instant="1", v_max=1)):  # fmt: skip
        assert local.from_json(made.to_json()) == made
    number = local.piecewise((0, 1), epsilon="25 weak")
    assert numeric.from_json(number.to_json()) == number


def test_studies_take_it_with_and_without_the_word():
    found = [ks.geometric().scale(DOMAIN, UNIT, e) for e in ("25", "25 weak", Fraction(25))]
    assert found == [Fraction(1, 25)] * 3
    rows = ks.compare(COUNTS, [ks.geometric()], epsilons=["25", "30 weak"], areas=[1], trials=1).rows
    assert [row["epsilon"] for row in rows] == ["25", "30"]


def test_the_word_travels_with_the_number():
    assert isinstance(asked("25 weak"), Meant) and asked(asked("25 weak")) == 25 and not isinstance(asked("20"), Meant)
    assert MOST == 20 and asked(Fraction(20)) == 20
    with pytest.raises(ks.PrivacyError):
        asked(asked("25 weak") / 1)  # another number, and nobody has said that it is meant


def test_the_command_line_and_jobs(alone):
    (alone / "t.csv").write_text("mesh_code,n\n533945261,3\n")
    table = ["t.csv", "--window", "5339", "--code", "mesh_code", "--count", "n", "--unit", "person", "--change",
             "add-remove", "--max-cells", "1"]  # fmt: skip
    open_it = ["--data", "c", "--unit", "person", "--change", "add-remove", "--max-cells", "1"]
    commands = {
        "release": ["release", *table, "--unmetered", "--out", "r", "--epsilon"],
        "ledger": ["ledger", "open", "x.ledger", *open_it, "--epsilon"],
        "local": ["local", "plan", "--users", "10", "--labels", "a,b", "--epsilon"],
        "shuffle": ["shuffle", "plan", "p.json", "--key", "k", "--a", "x:0:1", "--b", "y:0:1", "--delta", "1e-8",
                    "--epsilon-each"],
    }  # fmt: skip
    for name, words in commands.items():
        refused = CliRunner().invoke(app, [*words, "25"])
        assert refused.exit_code == 1 and "above 20" in str(refused.exception), (name, refused.output)
        assert [path.name for path in alone.iterdir()] == ["t.csv"]
    for name, words in commands.items():
        taken = CliRunner().invoke(app, [*words, "25 weak"])
        assert taken.exit_code == 0, (name, taken.output, taken.exception)
    CliRunner().invoke(app, ["init", "job.toml"])
    text = (alone / "job.toml").read_text()
    for epsilon, refused in (('"25"', True), ('"25 weak"', False), ('"0_1"', True)):
        (alone / "job.toml").write_text(text.replace('epsilon = "0.1"', f"epsilon = {epsilon}"))
        faults = "\n".join(job.check(alone / "job.toml"))
        assert ("above 20" in faults or "finite decimal" in faults) == refused, faults
