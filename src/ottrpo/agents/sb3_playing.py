"""Evaluation of the imported agents: whole episodes that training does not notice."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy

Array = Any
TOGETHER = 10  # episodes that share one evaluation of the policy per step
Act = Callable[[Array], Array]


def play(
    envs: Sequence[Any],
    episodes: int,
    act: Act,
    seed: int,
    before_step: Callable[[int], None],
    after_episode: Callable[[], object],
) -> Array:
    """Undiscounted returns; each environment plays one episode after another.

    Which seed an episode gets depends on its number alone, not on who plays it.

    Args:
        envs: Gymnasium environments, no more than episodes.
        episodes: how many.
        act: actions for a batch of observations, one of each environment.
        seed: of the environments.
        before_step: told the number of each step.
        after_episode: called after each.
    """
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(episodes)]
    returns = np.zeros(episodes)
    playing = {row: row for row in range(len(envs))}  # environment -> episode
    waiting = iter(range(len(envs), episodes))
    observations = [env.reset(seed=seeds[row])[0] for row, env in enumerate(envs)]
    step = 0
    while playing:
        before_step(step)
        actions = act(_stacked(observations))
        for row, episode in list(playing.items()):
            observation, reward, terminated, truncated, _ = envs[row].step(actions[row])
            returns[episode] += float(reward)
            if terminated or truncated:
                del playing[row]
                after_episode()
                following = next(waiting, None)
                if following is not None:
                    playing[row] = following
                    observation, _ = envs[row].reset(seed=seeds[following])
            observations[row] = observation
        step += 1
    return returns


def _stacked(observations: Sequence[Any]) -> Any:
    if not isinstance(observations[0], dict):
        return np.stack(observations)
    return {key: np.stack([seen[key] for seen in observations]) for key in observations[0]}


@contextmanager
def noise_from(seed: int, policy: ActorCriticPolicy) -> Iterator[None]:
    """Torch's noise from ``seed`` inside; outside it goes on as if nothing had happened."""
    distribution = policy.action_dist
    names = ("exploration_mat", "exploration_matrices") if policy.use_sde else ()
    kept = {name: getattr(distribution, name) for name in names}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
    for name, matrix in kept.items():
        setattr(distribution, name, matrix)


def policy_table(policy: ActorCriticPolicy, states: int) -> Array:
    """Probabilities of the actions in each of the states of a finite problem."""
    numbers = torch.arange(states)
    with torch.no_grad():
        distribution: Any = policy.get_distribution(numbers).distribution
        table = distribution.probs.cpu().numpy().astype(np.float64)
    return table / table.sum(axis=1, keepdims=True)
