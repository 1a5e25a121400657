"""The defaults that adapt: a discount that looks as far as episodes last, noise that fades."""

import numpy as np
import pytest

from ottrpo.agents.ottrpo import OTTRPO
from ottrpo.engine.schedules import Straight, as_schedule, value_at

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}}


def agent(**settings):
    return OTTRPO("MlpPolicy", "Pendulum-v1", seed=0, **(SMALL | settings))


@pytest.mark.parametrize(
    ("advantage", "lengths", "horizon"),
    [
        *(("gae", [20, 40], 100), ("gae", [150, 250], 200), ("gae", [1000], 1000)),
        *(("gae", [5000], 1000), ("mixed", [5, 7], 100), ("mixed", [20, 40], 300)),
        *(("mixed", [150, 250], 2000), ("mixed", [1000], 10_000), ("mixed", [5000], 10_000)),
    ],
)
def test_automatic_discount_follows_the_length_of_episodes(advantage, lengths, horizon):
    trained = agent(advantage=advantage).learn(64)
    trained.ep_info_buffer.clear()
    trained.ep_info_buffer.extend({"l": length, "r": 0.0} for length in lengths)
    assert trained.discount == pytest.approx(1 - 1 / horizon)


@pytest.mark.parametrize(("advantage", "horizon"), [("gae", 128), ("mixed", 1280)])
def test_automatic_discount_before_any_episode_has_ended(advantage, horizon):
    trained = agent(advantage=advantage).learn(128)  # Pendulum's episodes last 200 steps
    assert len(trained.ep_info_buffer) == 0
    assert trained.discount == pytest.approx(1 - 1 / horizon)
    assert trained.last_update["train/discount"] == trained.discount


def test_a_given_discount_stays():
    trained = agent(gamma=0.9).learn(64)
    assert trained.discount == 0.9
    with pytest.raises(ValueError, match="gamma"):
        agent(gamma=1.5)


@pytest.mark.parametrize(
    ("advantage", "ended", "faded"), [("gae", 0, 0.2), ("mixed", 0, 0.5), ("mixed", 1, 0.1)]
)
def test_noise_fades_from_pink_to_white(advantage, ended, faded):
    schedule = agent(advantage=advantage).schedules.noise_color
    lefts = (1.0, 1.0 - 0.5 * faded, 1.0 - faded, 0.3, 0.0)
    values = [value_at(schedule, left, ended) for left in lefts]
    assert values == pytest.approx([1, 0.5, 0, 0, 0])
    assert agent(noise_color=0.5).schedules.noise_color == 0.5
    with pytest.raises(ValueError, match="noise_color"):
        agent(noise_color=-1.0)


def test_labels_have_no_noise_to_colour():
    OTTRPO("MlpPolicy", "CartPole-v1", seed=0, **SMALL).learn(64)
    with pytest.raises(ValueError, match="noise_color"):
        OTTRPO("MlpPolicy", "CartPole-v1", seed=0, noise_color=1.0, **SMALL)


def test_lines_may_end_early():
    line = as_schedule({"start": 2.0, "end": 1.0, "end_fraction": 0.5})
    assert [line(left) for left in (1.0, 0.75, 0.5, 0.0)] == pytest.approx([2.0, 1.5, 1.0, 1.0])
    assert Straight(2.0, 1.0)(0.25) == pytest.approx(1.25)
    with pytest.raises(ValueError, match="end_fraction"):
        Straight(1.0, 0.0, 0.0)


def test_fading_noise_survives_saving(tmp_path):
    trained = agent(noise_color={"start": 1.0, "end": 0.0, "end_fraction": 0.5}).learn(64)
    trained.save(tmp_path / "agent")
    loaded = OTTRPO.load(tmp_path / "agent")
    left = np.linspace(1, 0, 5)
    fades, faded = (one.schedules.noise_color for one in (trained, loaded))
    assert [faded(x) for x in left] == [fades(x) for x in left]
