import io
import json
import os

import pytest

from ottrpo import core
from ottrpo.cli import main, problem_files

ROWS = {"weight_r": [1.0], "gain_rk": [[0.0, 1.0]], "cost_rk": [[0.0, 1.0]], "radius": 0.25}
# the paper's second example of mass splitting: from always left to a quarter right
FINITE = {
    "policy": [[1.0, 0.0]],
    "occupancy": [1.0],
    "q": [[-1.0, 1.0]],
    "cost": "binary",
    "radius": 0.25,
}
LINEAR = {"gradient_rd": [[3.0, 4.0]], "radius": 4.0}


def solve(problem, tmp_path, capsys, *options):
    path = tmp_path / "problem.json"
    path.write_text(problem if isinstance(problem, str) else json.dumps(problem))
    code = main(["solve", str(path), *options])
    return code, capsys.readouterr()


def test_rows(tmp_path, capsys):
    code, told = solve(ROWS, tmp_path, capsys, "--json")
    assert code == 0
    # moving is worth 1 per unit of cost, and a quarter of the mass may move
    assert json.loads(told.out) == {
        "multiplier": 1.0,
        "split": 0.75,
        "farthest_share": 0.25,
        "spent": 0.25,
        "value": 0.25,
        "gap": 0.0,
        "binding": True,
        "radius": 0.25,
        "rows": 1,
        "nearest_r": [0],
        "farthest_r": [1],
    }


def test_finite(tmp_path, capsys):
    _, told = solve(FINITE, tmp_path, capsys, "--json")
    report = json.loads(told.out)
    assert (report["multiplier"], report["split"], report["value"]) == (2.0, 0.75, -0.5)
    assert report["policy"] == [[0.75, 0.25]]


def test_a_tiny_radius_moves_a_tiny_share(tmp_path, capsys):
    _, told = solve(FINITE | {"radius": 1e-20}, tmp_path, capsys, "--json")
    report = json.loads(told.out)
    assert report["split"] == 1.0  # which can't tell
    assert report["farthest_share"] == pytest.approx(1e-20)
    assert report["policy"][0][1] == pytest.approx(1e-20)
    _, told = solve(ROWS | {"radius": 1e-20}, tmp_path, capsys, "--json")
    assert json.loads(told.out)["gap"] == 0.0


@pytest.mark.parametrize("gain", ["gain", "q", "advantage"])
@pytest.mark.parametrize(
    "cost", ["binary", [[0.0, 1.0], [1.0, 0.0]], {"kind": "p-norm", "p": 1}, "squared-euclidean"]
)
def test_finite_takes_any_name_of_the_gain_and_any_cost(tmp_path, capsys, gain, cost):
    problem = {key: value for key, value in FINITE.items() if key != "q"}
    problem |= {gain: FINITE["q"], "cost": cost}
    code, told = solve(problem, tmp_path, capsys, "--json")
    assert code == 0
    assert json.loads(told.out)["policy"] == [[0.75, 0.25]]


def test_a_mask_keeps_mass_from_forbidden_actions(tmp_path, capsys):
    masked = FINITE | {
        "policy": [[1.0, 0.0, 0.0]],
        "q": [[0.0, 1.0, 5.0]],
        "allowed": [[1, True, False]],
    }
    _, told = solve(masked, tmp_path, capsys, "--json")
    assert json.loads(told.out)["policy"] == [[0.75, 0.25, 0.0]]


def test_linear(tmp_path, capsys):
    _, told = solve(LINEAR, tmp_path, capsys, "--json")
    report = json.loads(told.out)
    # multiplier = |g| / (2 sqrt(radius)) = 5/4; displacement = g / (2 multiplier)
    assert report["multiplier"] == pytest.approx(1.25)
    assert report["nearest_r"][0] == pytest.approx([1.2, 1.6])
    assert report["gap"] == pytest.approx(0.0, abs=1e-12)


def test_linear_weighs_rows_equally_unless_told(tmp_path, capsys):
    two = {"gradient_rd": [[3.0, 4.0], [0.0, 1.0]], "radius": 4.0}
    _, plain = solve(two, tmp_path, capsys, "--json")
    _, same = solve(two | {"weight_r": [0.5, 0.5]}, tmp_path, capsys, "--json")
    _, other = solve(two | {"weight_r": [0.9, 0.1]}, tmp_path, capsys, "--json")
    _, metric = solve(two | {"metric": [1.0, 2.0]}, tmp_path, capsys, "--json")
    assert plain.out == same.out
    assert len({plain.out, other.out, metric.out}) == 3


def test_standard_input_and_text(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(ROWS)))
    assert main(["solve", "-"]) == 0
    told = capsys.readouterr().out
    names = [line.split()[0] for line in told.splitlines()]
    values = [float(line.split()[1]) for line in told.splitlines()]
    assert names == ["multiplier", "split", "spent", "value", "gap"]
    assert values == [1.0, 0.75, 0.25, 0.25, 0.0]


def test_standard_input_has_an_end(monkeypatch, capsys):
    monkeypatch.setattr("ottrpo.cli.solve.MAX_BYTES", 100)
    monkeypatch.setattr("sys.stdin", io.StringIO(" " * 101))
    assert main(["solve", "-"]) == 2
    assert "more than 100 characters" in capsys.readouterr().err


def test_a_radius_that_does_not_bind_is_said(tmp_path, capsys):
    _, told = solve(ROWS | {"radius": 2.0}, tmp_path, capsys)
    assert "does not limit" in told.out


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[1, 2]", "one JSON object, got list"),
        ("{}", "known as a problem by one of"),
        (json.dumps(ROWS)[:-1] + ', "radius": 3.0}', "has the key 'radius' twice"),
        ("[" * 100_000, "JSON"),
        ('{"gain_rk": [[NaN]]}', "must be finite, got NaN"),
        ('{"gain_rk": [[%s]]}' % ("9" * 4000), "must be finite, got one of 4,000 digits"),
        (ROWS | {"radius": 0}, "radius must be positive"),
        (ROWS | {"radius": "wide"}, "radius must be a positive number"),
        (ROWS | {"radius": None}, "radius must be a positive number"),
        (ROWS | {"raduis": 1}, "raduis"),
        (ROWS | {"radius": True}, "radius must be made of numbers, got true or false"),
        (ROWS | {"gain_rk": [[0.0, True]]}, "gain_rk must be made of numbers, got true or false"),
        (FINITE | {"cost": {"kind": "p-norm", "p": True}}, "cost must be made of numbers"),
        ({"gain_rk": [[1.0]]}, "missing"),
        (ROWS | {"stay_r": [0.7]}, "stay_r must name candidates"),
        (ROWS | {"stay_r": [1e30]}, "stay_r must name candidates"),
        (ROWS | {"stay_r": [10**30]}, "stay_r must name candidates"),
        (ROWS | {"stay_r": {"a": 1}}, "stay_r must be an array of numbers"),
        (ROWS | {"weight_r": [-1.0]}, "weight_r must not be negative"),
        (ROWS | {"gain_rk": [[0.0], [1.0, 2.0]]}, "gain_rk must be an array of numbers"),
        (ROWS | {"cost_rk": [[1.0, 1.0]]}, "cost 0"),
        (ROWS | {"gain_rk": "abc"}, "gain_rk"),
        (ROWS | {"gain_rk": {"a": 1}}, "gain_rk must be an array of numbers"),
        (ROWS | {"stay_r": ["x"]}, "problem.json"),
        (FINITE | {"cost": "binry"}, "did you mean 'binary'"),
        (FINITE | {"cost": {"kind": "p-norm"}}, "needs the fields"),
        (FINITE | {"cost": {"kind": "p-norm", "p": 1, "q": 2}}, "'q' is not a field"),
        (FINITE | {"cost": {"p": 1}}, "needs a 'kind'"),
        (FINITE | {"cost": {"kind": "p-norm", "p": "one"}}, "must be a number"),
        (FINITE | {"cost": None}, "cost table"),
        (FINITE | {"gain": [[0.0, 0.0]]}, "exactly one of"),
        (FINITE | {"policy": [[0.5, 0.4]]}, "policy_sa must sum to 1"),
        (FINITE | {"allowed": [[0, 0]]}, "forbids every action"),
        (LINEAR | {"metric": [1.0, -1.0]}, "metric must be positive"),
        (LINEAR | {"gradient_rd": []}, "gradient_rd"),
        (LINEAR | {"gradient_rd": 3}, "gradient_rd"),
    ],
)
def test_a_bad_file_is_told_in_one_line_with_exit_code_2(problem, told, tmp_path, capsys):
    code, captured = solve(problem, tmp_path, capsys)
    assert code == 2
    assert captured.out == ""
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert main(["solve", str(tmp_path / "pipe")]) == 2
    assert capsys.readouterr().err.endswith("pipe: it is not a regular file\n")


@pytest.mark.parametrize("field", ["multiplier", "spent"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_number_that_is_none_is_told(tmp_path, capsys, monkeypatch, field, value, options):
    """Whatever the solver makes of numbers at the ends of float64."""

    def solve_dual(problem):
        return core.solve_dual(problem)._replace(**{field: value})

    monkeypatch.setattr(problem_files, "solve_dual", solve_dual)
    code, told = solve(ROWS, tmp_path, capsys, *options)
    assert (code, told.out) == (2, "")
    assert f"too far apart for float64: {field} {value}" in told.err


def test_a_directory_and_a_binary_file_are_no_problems(tmp_path, capsys):
    assert main(["solve", str(tmp_path)]) == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert main(["solve", str(tmp_path / "binary")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
