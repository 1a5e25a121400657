"""`ottrpo bench train`: who takes part, and what follows from their speeds."""

import pytest

from ottrpo.benchmarks.train import WORK, contenders, together


def test_with_several_environments_ppo_takes_part_with_both_of_its_vector_environments():
    them = {each.agent: each for each in contenders(["ppo"], "Hopper-v5", 16)}
    threads, processes = them["ppo in 16"], them["ppo in 16 processes"]
    assert (threads.processes, processes.processes) == (False, True)
    work = {each.settings["n_envs"] * each.settings["n_steps"] for each in (threads, processes)}
    assert work == {WORK["n_steps"]}  # as much per update as in one environment


def test_ours_takes_part_with_samples_alone_which_is_as_much_work_as_ppo_has():
    them = {each.agent: each.settings for each in contenders(["ppo"], "Hopper-v5", 16)}
    assert them["ottrpo samples"] == WORK | {"advantage": "gae"}
    assert them["ottrpo samples in 16"]["advantage"] == "gae"
    assert "ottrpo samples" not in {each.agent for each in contenders(["ppo"], "Hopper-v5")}


def test_processes_are_what_they_say():
    (one,) = [each for each in contenders(["ppo"], "CartPole-v1", 2) if each.processes]
    agent = one.build("CartPole-v1")
    try:
        assert type(agent.get_env()).__name__ == "SubprocVecEnv"
        assert agent.get_env().num_envs == 2
    finally:
        agent.get_env().close()


def test_ratios_are_over_one_environment_and_over_the_quickest_ppo():
    speeds = {"ottrpo": 100.0, "ottrpo in 16": 300.0, "ppo": 10.0, "ppo in 16": 30.0}
    speeds |= {"ottrpo samples": 200.0, "ottrpo samples in 16": 900.0}
    rows = [{"agent": a, "settings": "matched", "steps_per_second": v} for a, v in speeds.items()]
    rows += [{"agent": "ppo", "settings": "own", "steps_per_second": 1e6}]  # other work
    row, samples = together("Hopper-v5", rows)
    assert (row["over_one"], row["over_best_ppo"]) == (3.0, 10.0)
    assert (row["agent"], row["best_ppo"]) == ("ottrpo in 16", "ppo in 16")
    assert (samples["over_one"], samples["over_best_ppo"]) == (4.5, 30.0)  # over its own


def test_without_ppo_there_is_no_ratio_over_it():
    rows = [
        {"agent": name, "settings": "matched", "steps_per_second": speed}
        for name, speed in {"ottrpo": 100.0, "ottrpo in 4": 150.0}.items()
    ]
    (row,) = together("Hopper-v5", rows)
    assert row["over_one"] == pytest.approx(1.5)
    assert row["over_best_ppo"] is None
