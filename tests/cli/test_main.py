import json
import subprocess
import sys

import pytest

from ottrpo.cli import VERBS, main


def test_help_lists_every_verb(capsys):
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {verb}" in told for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    assert main([verb, "--help"]) == 0
    assert f"usage: ottrpo {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "a verb is missing"),
        (["slove"], "did you mean 'solve'?"),
        (["solve"], "PROBLEM"),
        (["solve", "a.json", "b.json"], "b.json"),
        (["solve", "no-such-file.json"], "no-such-file.json: No such file"),
        (["train"], "ENV"),
        (["train", "CliffWalking-v1", "--sed", "3"], "--seed"),
        (["train", "CliffWalking-v1", "--seed", "x"], "--seed: 'x' is no whole number"),
        (["train", "CliffWalking-v1", "--steps", "1.5"], "'1.5' is no whole number, such as"),
        (["train", "CliffWalking-v1", "--steps", "inf"], "'inf' is no whole number, such as"),
        (
            ["evaluate", "no-such-run"],
            "there is no no-such-run: neither a run's directory nor a file",
        ),
        (["evaluate", "nothere.zip"], "there is no nothere.zip: neither a run's directory nor"),
        (["evaluate", ".", "--episodes", "0"], "--episodes must be at least 1, got 0"),
        (["reproduce", "no-such-study"], "'no-such-study' is not a study"),
        (["reproduce", "smoke", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["bench", "no-such-benchmark"], "'no-such-benchmark' is not a benchmark"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(arguments, told, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert captured.err.startswith("ottrpo: ")
    assert captured.err.count("\n") == 1


def test_anything_else_that_goes_wrong_is_exit_code_1(monkeypatch, capsys):
    def broken(self):
        raise RuntimeError("the roof is off")

    monkeypatch.setattr("ottrpo.cli.listing.List.run", broken)
    assert main(["list"]) == 1
    assert "the roof is off" in capsys.readouterr().err


def test_too_little_memory_is_told_in_one_line(monkeypatch, capsys):
    def greedy(self):
        raise MemoryError("unable to allocate 29.8 GiB")

    monkeypatch.setattr("ottrpo.cli.listing.List.run", greedy)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "ottrpo: not enough memory: unable to allocate 29.8 GiB\n"


def test_a_directory_in_the_place_of_a_page_is_named_and_not_the_draft(tmp_path, capsys):
    assert main(["explore", "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"ottrpo: {tmp_path}: Is a directory\n"


def test_an_interruption_is_exit_code_1_without_a_traceback(monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("ottrpo.cli.listing.List.run", interrupted)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "ottrpo: interrupted\n"


def test_version(capsys):
    from ottrpo import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ottrpo {__version__}\n"


def test_list_tells_what_there_is(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == {"costs", "agents", "environments", "studies", "benchmarks"}
    assert {"binary", "squared-euclidean", "table"} <= set(data["costs"])
    assert data["environments"]["Taxi-v4"]["paper"] == "Taxi-v3"
    for names in data.values():
        assert all(name in text for name in names)


def test_list_shows_agents_with_their_configurations(counting, capsys):
    assert main(["list", "--json"]) == 0
    agents = json.loads(capsys.readouterr().out)["agents"]
    assert agents["counting"]["configurations"] == {"default": "for tests", "slow": ""}
    assert main(["list"]) == 0
    assert "counts (--agent counting)" in (told := capsys.readouterr().out)
    assert "    --config default  for tests\n" in told


def test_every_agent_has_the_three_configurations_that_one_asks_for(capsys):
    assert main(["list", "--json"]) == 0
    agents = json.loads(capsys.readouterr().out)["agents"]
    # PPO's loss with all else ours, which no paper has, and those that came after the paper
    for later in ("clipped-ppo", "wpo-gradient", "wppg"):
        agents.pop(later)
    for agent in agents.values():
        assert {"default", "paper", "tuned"} <= set(agent["configurations"])


def test_doctor_finds_this_installation_well(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["versions"]["numpy"]
    assert report["hardware"]["cores"] >= 1
    assert "cpu" in report["devices"]["torch"]
    assert all(outcome["passed"] for outcome in report["self_test"].values())


def test_doctor_says_what_is_broken_and_exits_with_1(monkeypatch, capsys):
    def broken():
        raise ArithmeticError("two and two are five")

    monkeypatch.setattr("ottrpo.cli.doctor.SELF_TESTS", {"sums": broken})
    monkeypatch.setattr("ottrpo.cli.doctor._devices", dict)
    assert main(["doctor"]) == 1
    assert "FAILED" in (told := capsys.readouterr().out)
    assert "two and two are five" in told


def test_the_command_line_asks_for_one_thread_before_numpy_is_loaded():
    program = (
        "import sys, os; from ottrpo.cli import main; main(['--version']);"
        "assert 'numpy' not in sys.modules; print(os.environ['OMP_NUM_THREADS'])"
    )
    environment = {"PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout.splitlines()[-1:] == ["1"], done.stderr


@pytest.mark.parametrize(
    "key", ["ottrpo", "bgpg", "wnpg", "wpo-gradient", "wppg", "tabular-ottrpo", "wpo"]
)
def test_the_settings_of_an_agent_are_listed_as_they_are_written(key, capsys):
    assert main(["list", "--agent", key, "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert all(told["about"] for name, told in settings.items() if name not in NO_SETTINGS)
    assert main(["list", "--agent", key]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert settings["radius" if "radius" in settings else "n_steps"]["about"] in printed
    assert main(["list", "--agent", "otrpo"]) == 2
    assert "did you mean 'ottrpo'" in capsys.readouterr().err


NO_SETTINGS = ("policy", "initial_policy")  # arguments of the constructor beside them


def test_quiet_prints_errors_and_json_alone(capfd, tmp_path):
    problem = tmp_path / "problem.json"
    row = {"weight_r": [1.0], "gain_rk": [[0.0, 1.0]], "cost_rk": [[0.0, 1.0]], "radius": 0.25}
    problem.write_text(json.dumps(row))
    assert main(["solve", str(problem), "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["--quiet", "solve", str(problem)]) == 0  # before the verb as well
    capfd.readouterr()
    assert main(["solve", str(problem), "--quiet", "--json"]) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["multiplier"] == 1.0
    assert told.err == ""
    assert main(["solve", "--quiet", "nothere.json"]) == 2
    assert "nothere.json: No such file" in capfd.readouterr().err


def test_the_package_is_run_as_a_module_as_well():
    said = subprocess.run(
        [sys.executable, "-m", "ottrpo", "list", "--json"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "ottrpo" in said.stdout
