"""docs/proofs/pk_anonymity.md, "Rows of a join": every table, output and order of small domains."""

import itertools
import math
from fractions import Fraction

import pytest

import kasuri as ks
from kasuri.errors import PrivacyError
from kasuri.shuffle.pk import epsilon_each, linked


def odds_of(column):
    """label -> report -> exact probability, of a grr column of the plan."""
    truth, lie = column.randomizer.p, column.randomizer.q
    size = len(column.category.labels)
    whole = truth + (size - 1) * lie
    return [[Fraction(truth if x == y else lie, whole) for y in range(size)] for x in range(size)]


def largest_posterior(n, laws):
    """Over all true rows of n people and all outputs: the largest chance that row a is person i's."""
    cells = list(itertools.product(*(range(len(law)) for law in laws)))
    odds = {(x, y): math.prod(law[a][b] for law, a, b in zip(laws, x, y, strict=True)) for x in cells for y in cells}
    most = Fraction(0)
    for people in itertools.combinations_with_replacement(cells, n):
        for rows in itertools.combinations_with_replacement(cells, n):
            weights = {}
            for order in itertools.permutations(range(n)):
                weight = math.prod(odds[people[i], rows[order[i]]] for i in range(n))
                for i in range(n):
                    weights[i, order[i]] = weights.get((i, order[i]), 0) + weight
                weights["all"] = weights.get("all", 0) + weight
            most = max(most, *(weights[i, a] / weights["all"] for i in range(n) for a in range(n)))
    return most


@pytest.mark.parametrize(
    ("n", "labels"), [(2, (("x", "y"), ("p", "q"))), (3, (("x", "y"), ("p", "q"))), (3, (("x", "y", "z"), ("p", "q")))]
)
@pytest.mark.parametrize("epsilon", ["0.3", "1"])
def test_no_row_is_laid_to_a_person_more_surely_than_one_in_k(n, labels, epsilon):
    plan = ks.shuffle.Plan(key="id", a=("u",), b=("v",), categories=dict(zip("uv", labels, strict=True)),
                           epsilon_each=epsilon, delta="1e-6", minimum_overlap=2)  # fmt: skip
    laws = [odds_of(column) for column in plan.columns]
    k = plan.guarantee(n=n).pk
    found = largest_posterior(n, laws)
    assert found <= 1 / k
    if n == 2:  # reached: two people who differ in every column, two rows that say so
        assert float(found * k) == pytest.approx(1, abs=1e-4)
    # the factor 2 is needed: with e^(-epsilon) the claim would fail
    assert n > 2 or found > 1 / (1 + (n - 1) * Fraction(math.exp(-2 * float(epsilon))))


def test_a_second_join_of_the_same_people_does_not_wear_k_off():
    """Two joins of three people, one column: whose a row of the first is, from the rows of both, for who knows nothing
    of the people but that both labels are as likely."""
    plan = ks.shuffle.Plan(key="id", a=("u",), b=("v",), categories={"u": ("x", "y"), "v": ("p", "q")},
                           epsilon_each="1", delta="1e-6", minimum_overlap=2)  # fmt: skip
    law, n = odds_of(plan.columns[0]), 3
    k = linked(n, [plan.columns[0].epsilon])
    people, tables = (list(itertools.product(range(2), repeat=n)) for _ in range(2))
    orders = list(itertools.permutations(range(n)))

    def chance(x, rows, order):
        return math.prod(law[x[i]][rows[order[i]]] for i in range(n))

    worst = Fraction(0)
    for first, second in itertools.product(tables, repeat=2):
        other = {x: sum(chance(x, second, order) for order in orders) for x in people}
        mine = sum(chance(x, first, o) * other[x] for x in people for o in orders if o[0] == 0)
        total = sum(chance(x, first, o) * other[x] for x in people for o in orders)
        worst = max(worst, mine / total)
    assert worst <= 1 / k


def test_k_rounds_down_and_promises_nothing_beyond_its_rows():
    assert linked(101, [Fraction(0)]) <= 101 and linked(101, [Fraction(0)]) > Fraction("100.99")
    assert linked(10**6, [Fraction(50)]) == 1
    assert linked(1000, [Fraction(1)] * 2) == Fraction(math.floor((1 + 999 * math.exp(-4)) * 10**6), 10**6)


def test_anonymising_inside_the_join():
    told = {"key": "id", "bounds": {"age": (0, 100), "spend": (0, 9)}, "delta": "1e-8", "minimum_overlap": 1000}
    plan = ks.shuffle.Plan.anonymous(10, a=("age",), b=("spend",), **told)
    assert plan.guarantee(n=1000).pk >= 10 and plan.guarantee(n=5000).pk > 10
    step = plan.columns[0].epsilon + Fraction(1, 10**5)
    assert linked(1000, [step] * 2) < 10  # no larger epsilon would do
    assert ks.shuffle.Plan.from_json(plan.to_json()).hash == plan.hash
    assert "1/10" in plan.guarantee(n=1000).words() and plan.guarantee(n=1000).to_json()["pk"].startswith("10")


@pytest.mark.parametrize("k", [1, 0, -3, 2.5, 1001, "10"])
def test_no_such_k(k):
    with pytest.raises(PrivacyError):
        epsilon_each(k, 1000, 2)


def test_ab_and_k_on_the_command_line(tmp_path):
    from typer.testing import CliRunner

    from kasuri.cli import app

    def run(*words):
        return CliRunner().invoke(app, ["shuffle", "plan", *words])

    columns = ["--key", "id", "--a", "age:0:100", "--b", "spend:0:9", "--delta", "1e-8"]
    done = run(
        str(tmp_path / "ab.json"), *columns, "--epsilon-each", "1", "--mechanism", "age=two_point", "--ab", "age=1,3"
    )
    assert done.exit_code == 0, done.output
    plan = ks.shuffle.Plan.load(tmp_path / "ab.json")
    assert plan.ab["age"] == ("1", "3") and plan.columns[0].randomizer != plan.columns[1].randomizer
    assert run(str(tmp_path / "no.json"), *columns, "--epsilon-each", "1", "--ab", "age=1").exit_code == 2
    for pair in ("1,1", "2,1", "0,1", "1,1.5"):  # a = b is the truth itself; 1.5 costs more than epsilon 1
        bad = run(
            str(tmp_path / "no.json"),
            *columns,
            "--epsilon-each",
            "1",
            "--mechanism",
            "age=two_point",
            "--ab",
            f"age={pair}",
        )
        assert bad.exit_code != 0, pair
    assert not (tmp_path / "no.json").exists()
    done = run(str(tmp_path / "k.json"), *columns, "--k", "10")
    assert done.exit_code == 0 and "Pk-anonymity" in done.output
    assert run(str(tmp_path / "both.json"), *columns, "--k", "10", "--epsilon-each", "1").exit_code == 2
