"""Every configuration that is shipped can be used."""

import pytest

from ottrpo.cli import main
from ottrpo.envs.catalogue import CATALOGUE
from ottrpo.experiments import registry, run
from ottrpo.experiments.spec import read_configuration

CONFIGURATIONS = [
    pytest.param(entry, name, id=f"{entry.key}-{name}")
    for entry in registry.agents()
    for name in registry.configurations(entry)
]


@pytest.mark.parametrize(("entry", "name"), CONFIGURATIONS)
def test_a_configuration_resolves_on_every_environment_it_names(entry, name):
    configuration = read_configuration(entry.config_folder, name)
    assert configuration.description
    fallback = "CliffWalking-v1" if entry.finite else "MountainCarContinuous-v0"
    for environment in configuration.environments or [fallback]:
        spec = run.plan_run(environment, agent=entry.name, config=name)
        assert spec.agent_key == entry.key
        if entry.finite:
            run.build_agent(spec)


def test_every_agent_has_a_default_for_every_environment_of_the_paper():
    for entry in registry.agents():
        for known in CATALOGUE:
            finite = known.env_id.startswith(("Cliff", "Taxi", "Frozen"))
            if known.paper_id and finite == entry.finite:
                spec = run.plan_run(known.env_id, agent=entry.name)
                assert (spec.agent_key, spec.config) == (entry.key, "default")


def test_training_from_the_command_line_learns_the_cliff(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", "CliffWalking-v1", "--out", out]) == 0
    told = capsys.readouterr().out
    assert "score -13.00 ± 0.00" in told
    assert "paper -14 ± 0" in told
    assert main(["evaluate", out, "--deterministic", "--episodes", "2"]) == 0
    assert "-13.00 ± 0.00 over 2 episodes" in capsys.readouterr().out
