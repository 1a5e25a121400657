"""Searching for settings: what is found is kept, gone on with, and can be trained with."""

import json
import os
import tomllib
from contextlib import contextmanager

import numpy as np
import optuna
import pytest

from ottrpo.cli import main
from ottrpo.experiments import registry, tuning
from ottrpo.experiments.tuning import Search

SEARCH = Search(environment="CliffWalking-v1", steps=1000)


class Fake:
    """Learns nothing, and returns what its radius is worth."""

    def __init__(self, spec):
        self.worth, self.num_timesteps, self._told = spec.settings.get("radius", 0.5), 0, []

    @contextmanager
    def telling(self, function):
        self._told.append(function)
        yield

    def learn(self, steps):
        for self.num_timesteps in range(100, steps + 1, 100):
            for function in self._told:
                function(self)

    def evaluate(self, episodes, *, deterministic, seed):
        return np.full(episodes, self.worth)


def test_a_search_goes_on_where_it_was_and_its_file_can_be_trained_with(tmp_path, capsys):
    storage, out = str(tmp_path / "search"), tmp_path / "found.toml"
    command = ["tune", "CliffWalking-v0", "--steps", "600", "--storage", storage, "-o", str(out)]
    assert main([*command, "--trials", "2"]) == 0
    assert "2 trials of 600 steps, 0 done before" in capsys.readouterr().out
    assert main([*command, "--trials", "3"]) == 0
    told = capsys.readouterr().out
    assert "3 trials of 600 steps, 2 done before" in told
    assert told.count("\ntrial ") == 1
    assert "unchanged -" in told
    found = tomllib.loads(out.read_text())
    assert found["extends"] == "default"
    run = tmp_path / "run"
    train = ["train", "CliffWalking-v1", "--config", str(out), "--steps", "200", "--out", str(run)]
    assert main(train) == 0
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["config"] == "found"
    assert manifest["settings"].items() >= found["environments"]["CliffWalking-v1"].items()


def test_the_best_is_never_worse_than_the_configuration(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "build_agent", Fake)
    study = tuning.open_search(SEARCH, tmp_path / "search")
    tuning.tune(SEARCH, study, 12, lambda trial: None)
    assert study.trials[0].user_attrs["settings"] == {}
    assert study.trials[0].value == 0.5
    best = max(t.user_attrs["settings"].get("radius", 0.5) for t in study.trials if t.value)
    assert study.best_value == best >= 0.5
    found = tomllib.loads(tuning.settings_file(SEARCH, study))["environments"]["CliffWalking-v1"]
    assert found.get("radius", 0.5) == best


def test_what_lags_behind_is_ended_early(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "build_agent", Fake)
    study = tuning.open_search(SEARCH, tmp_path / "search")
    tuning.tune(SEARCH, study, 20, lambda trial: None)
    pruned = [t for t in study.trials if t.state is optuna.trial.TrialState.PRUNED]
    assert pruned
    whole = [t.value for t in study.trials if t.value is not None]
    assert all(min(t.intermediate_values.values()) < max(whole) for t in pruned)
    assert all(len(t.intermediate_values) < tuning.RUNGS for t in pruned)


def test_a_trial_that_somebody_stopped_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "build_agent", Fake)
    study = tuning.open_search(SEARCH, tmp_path / "search")
    study.ask()
    again = tuning.open_search(SEARCH, tmp_path / "search")
    assert [t.state.name for t in again.trials] == ["FAIL"]
    assert tuning.ended(again) == 0


def test_an_interruption_says_how_to_go_on(monkeypatch, tmp_path, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "tune", stopped)
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "CliffWalking-v1", "--trials", "1", "--steps", "1000"]) == 1
    assert capsys.readouterr().err == "ottrpo: interrupted; the same command goes on\n"


def test_files_of_a_search_are_named_without_colons(monkeypatch, tmp_path):
    """As runs are: programs that copy files take what stands before one for a machine."""

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "tune", stopped)
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "gymnasium:CliffWalking-v1", "--trials", "1", "--steps", "1000"]) == 1
    (journal,) = (tmp_path / "runs").glob("*.journal")
    assert journal.name == "tune__gymnasium-CliffWalking-v1__ottrpo__default.journal"


def test_another_search_in_the_same_file_is_refused(tmp_path):
    tuning.open_search(SEARCH, tmp_path / "search")
    other = Search(environment="CliffWalking-v1", steps=2000)
    with pytest.raises(ValueError, match="is of another search"):
        tuning.open_search(other, tmp_path / "search")


def test_what_is_tried_are_settings_of_the_agents():
    spaces = tomllib.loads(tuning.SPACES.read_text())
    keys = {entry.key: set(entry.known_settings()) for entry in registry.agents()}
    assert set(spaces) == set(keys)
    for key, space in spaces.items():
        assert {name.split(".")[0] for name in space} <= keys[key]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["NoSuch-v0"], "'NoSuch-v0' can't be made"),
        (["CliffWalking-v1", "--agent", "nobody"], "'nobody' is not an agent"),
        (["CliffWalking-v1", "--trials", "0"], "--trials must be at least 1, got 0"),
        (["CliffWalking-v1", "-o", "found.yml"], "found.yml must end in .toml"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_configuration_file_of_one_s_own(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    train = ["train", "CliffWalking-v1", "--config", str(path), "--out", str(tmp_path / "run")]
    assert main(train) == 2
    assert "mine.toml: No such file or directory" in capsys.readouterr().err
    path.write_text("[settings]\nradiuss = 0.1\n")
    assert main(train) == 2
    assert "'radiuss' is not a setting of ottrpo; did you mean 'radius'?" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{", "[]\n", '{"op_code": 99}\n', "[" * 100_000 + "\n", None])
def test_a_file_that_is_no_search_is_refused_in_one_line(content, tmp_path):
    storage = tmp_path / "search"
    if content is None:
        os.mkfifo(storage)
    else:
        storage.write_text(content + "\n")
    with pytest.raises(ValueError, match="search can't be read as a search") as refused:
        tuning.open_search(SEARCH, storage)
    assert "\n" not in str(refused.value)


def test_a_search_of_gigabytes_is_not_read(tmp_path):
    with (tmp_path / "search").open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(ValueError, match="more than 67,108,864"):
        tuning.open_search(SEARCH, tmp_path / "search")
