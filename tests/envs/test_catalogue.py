"""The paper's environments under today's names (errata: environment ids)."""

import gymnasium
import pytest

from ottrpo.envs.catalogue import CATALOGUE, grid, make, resolve, step_cap, translation

PAPER_IDS = {
    "CliffWalking-v0": "CliffWalking-v1",
    "Taxi-v3": "Taxi-v4",
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Hopper-v3": "Hopper-v5",
    "Swimmer-v3": "Swimmer-v5",
    "HalfCheetah-v3": "HalfCheetah-v5",
}


def test_every_environment_of_the_paper_has_an_installed_name():
    assert {e.paper_id: e.env_id for e in CATALOGUE if e.paper_id} == PAPER_IDS
    for env_id in PAPER_IDS.values():
        assert env_id in gymnasium.registry


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.env_id)
def test_an_installed_name_is_not_translated_and_a_retired_one_is_said(entry):
    assert resolve(entry.env_id) == entry.env_id
    assert translation(entry.env_id) is None
    for retired in entry.retired_ids:
        assert retired not in (entry.env_id, resolve(retired))
        assert entry.env_id in translation(retired)


@pytest.mark.parametrize("env_id", ["CliffWalking-v0", "CliffWalking-v1"])
def test_cliff_walking_ends_after_5001_steps(env_id):
    env = make(env_id)
    env.reset(seed=0)
    total, steps, ended = 0.0, 0, False
    while not ended:  # action 3 walks left, into the wall, for ever
        _, reward, terminated, truncated, _ = env.step(3)
        total, steps, ended = total + reward, steps + 1, terminated or truncated
    assert (steps, total, terminated) == (5001, -5001.0, False)


def test_every_environment_has_a_time_limit():
    for entry in CATALOGUE:
        registered = gymnasium.spec(entry.env_id).max_episode_steps
        assert (registered is None) == (entry.max_episode_steps is not None)
        expected = registered or step_cap(entry.env_id)
        assert make(entry.env_id).spec.max_episode_steps == expected


@pytest.mark.parametrize("env_id", ["CliffWaling-v1", "Hopper-v1", "no such thing", ""])
def test_an_unknown_environment_is_refused_in_one_line(env_id):
    with pytest.raises(ValueError, match="can't be made") as caught:
        make(env_id)
    assert "\n" not in str(caught.value)


def test_an_argument_the_environment_does_not_have_is_refused():
    with pytest.raises(ValueError, match="no_such_argument"):
        make("CliffWalking-v1", no_such_argument=1)


def test_the_grid_of_cliff_walking_is_the_environment_s():
    env = make("CliffWalking-v1").unwrapped
    drawn = grid("CliffWalking-v1")
    assert drawn.columns == env.shape[1]
    # each arrow points where the action leads from the middle of the grid
    offset = {"↑": -12, "→": 1, "↓": 12, "←": -1}
    for action, arrow in enumerate(drawn.arrows):
        ((_, after, _, _),) = env.P[17][action]
        assert after == 17 + offset[arrow]
    # stepping onto the cliff costs 100 and leads back to the start; the goal ends the episode
    cliff = [s for s, sign in drawn.signs.items() if sign == "▒"]
    for state in cliff:
        ((_, after, reward, _),) = env.P[state - 12][2]
        assert (after, reward) == (36, -100)
    assert env.P[35][2][0][1:] == (47, -1, True)
    assert grid("Taxi-v4") is None
