"""A task that no single Gaussian solves, and bins, mixtures and flows do."""

import numpy as np
import pytest
from scipy.stats import norm

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO
from ottrpo.envs.toys import Graze

SETTINGS = {"learning_rate": 1e-3, "n_steps": 512, "gamma": 0.0, "noise_color": 0.0, "seed": 0}
BEST, BEST_GAUSSIAN = 32.5, 16.3


def earned(chances):
    """The return of a policy without memory that goes to the meadows with these chances."""
    return sum(Graze.STEPS * q - (Graze.STEPS - 1) * q**2 for q in chances)


def played(draw, episodes=400):
    env, rng, total = Graze(), np.random.default_rng(0), 0.0
    for _ in range(episodes):
        env.reset(seed=0)
        over = False
        while not over:
            _, reward, _, over, _ = env.step(np.array([draw(rng)]))
            total += reward
    return total / episodes


def test_the_toy_pays_what_it_says():
    assert earned([0.5, 0.5]) == BEST
    assert played(lambda rng: rng.choice(Graze.MEADOWS)) == pytest.approx(BEST, abs=0.5)
    chances = [
        norm.cdf(at + 0.2, 0.64, 0.29) - norm.cdf(at - 0.2, 0.64, 0.29) for at in (-0.7, 0.7)
    ]
    drawn = played(lambda rng: np.clip(rng.normal(0.64, 0.29), -1, 1))
    assert drawn == pytest.approx(earned(chances), abs=0.5)


def test_no_gaussian_earns_more_than_half():
    mean, std = np.meshgrid(np.linspace(-1.2, 1.2, 241), np.geomspace(0.01, 3.0, 300))
    reach = Graze.REACH
    value = earned(
        [norm.cdf(at + reach, mean, std) - norm.cdf(at - reach, mean, std) for at in Graze.MEADOWS]
    )
    assert BEST_GAUSSIAN - 0.1 < value.max() < BEST_GAUSSIAN


@pytest.mark.parametrize("region", ["transport", "kl"])
def test_a_policy_over_bins_learns_to_go_to_both(region):
    bins = {"policy_kwargs": {"bins": 21}, "region": region}
    agent = OTTRPO("MlpPolicy", "ottrpo/Graze-v0", **SETTINGS, **bins).learn(15_000)
    assert agent.evaluate(50, deterministic=False, seed=3).mean() > 0.9 * BEST
    probability = np.exp(agent.policy.get_distribution([[0.0]]).log_prob(_centres()))
    sides = probability[: len(probability) // 2].sum(), probability[len(probability) // 2 :].sum()
    assert min(sides) / sum(sides) > 0.35


def _centres():
    return np.linspace(-1.0, 1.0, 21)[:, None]


@pytest.mark.parametrize("kind", ["mixture", "flow"])
def test_mixtures_and_flows_learn_to_go_to_both(kind):
    faster = SETTINGS | {"learning_rate": 3e-3}
    agent = OTTRPO("MlpPolicy", "ottrpo/Graze-v0", policy_kwargs={kind: 2}, **faster).learn(15_000)
    assert agent.evaluate(50, deterministic=False, seed=3).mean() > 0.9 * BEST
    drawn = agent.predict(np.zeros((1000, 1), np.float32))[0]
    assert 0.35 < (drawn > 0).mean() < 0.65


def test_a_gaussian_that_may_learn_its_width_does_not():
    agent = OTTRPO(
        "MlpPolicy", "ottrpo/Graze-v0", advantage="gae", learn_std=True, **SETTINGS
    ).learn(15_000)
    assert agent.evaluate(50, deterministic=False, seed=3).mean() < BEST_GAUSSIAN + 1.0
