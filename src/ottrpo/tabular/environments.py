"""From Gymnasium environments to finite problems.

An environment that carries its transition table (CliffWalking, Taxi, FrozenLake and their random
variants) becomes a `FiniteMDP`; any other with Discrete observations and actions is stepped.
"""

import copy
import json
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces, wrappers

from ottrpo.core.checks import Floats, require
from ottrpo.envs import catalogue
from ottrpo.persistence.environments.layers import layers_of

from .mdp import FiniteMDP
from .problem import Problem, positive
from .stepped import SteppedProblem

# Wrappers that change neither observations, rewards nor endings other than by a time limit: the
# table of the environment beneath is still the truth. Any other wrapper means stepping.
TRANSPARENT_WRAPPERS = (
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.RecordEpisodeStatistics,
    wrappers.TimeLimit,
)
# Steps of the real environment that are looked up in its table before the table is believed.
TABLE_CHECK_STEPS = 50


def as_problem(
    env: "str | gym.Env[Any, Any] | Problem",
    *,
    step_cap: int | None = None,
    use_table: bool = True,
) -> Problem:
    """The finite problem of an environment: by its table if it has one, else by stepping it.

    Args:
        env: an id, an environment, or a problem, which is returned as it is.
        step_cap: steps after which an episode is truncated; by default the environment's own
            time limit, else the catalogue's: no episode is endless.
            It can tighten the limit of an environment that is already made, not loosen it.
        use_table: False steps the environment even if it has a table.
    """
    if isinstance(env, Problem):
        require(
            step_cap is None or step_cap == env.step_cap,
            f"{env.name} already has a step cap of {env.step_cap}, got step_cap={step_cap}",
        )
        return env
    made: Any = _make(env, step_cap) if isinstance(env, str) else env
    name = made.spec.id if made.spec is not None else type(made.unwrapped).__name__
    _require_discrete(name, made)
    limit = _time_limit(made) or catalogue.step_cap(name)
    cap = limit if step_cap is None else min(limit, positive("step_cap", step_cap))
    if use_table and _has_trustworthy_table(made):
        return _from_env_table(name, made, cap)
    return SteppedProblem(
        name=name,
        n_states=int(made.observation_space.n),
        n_actions=int(made.action_space.n),
        step_cap=cap,
        make=lambda: copy.deepcopy(made),
    )


def _make(env_id: str, step_cap: int | None) -> gym.Env[Any, Any]:
    line = catalogue.translation(env_id)
    if line is not None:
        sys.stderr.write(f"{line}\n")
    if step_cap is None:
        return catalogue.make(env_id)
    return catalogue.make(env_id, max_episode_steps=positive("step_cap", step_cap))


def _require_discrete(name: str, env: gym.Env[Any, Any]) -> None:
    for what, space in (("observations", env.observation_space), ("actions", env.action_space)):
        require(
            isinstance(space, spaces.Discrete),
            f"a tabular agent needs Discrete observations and actions, {name} has {what} in "
            f"{space}; use the agent for continuous problems, OTTRPO",
        )


def _time_limit(env: gym.Env[Any, Any]) -> int | None:
    """The tightest TimeLimit around the environment."""
    limits = [
        int(layer._max_episode_steps)
        for layer in layers_of(env, whole=True)
        if isinstance(layer, wrappers.TimeLimit)
    ]
    return min(limits, default=None)


def _is_plain(env: gym.Env[Any, Any]) -> bool:
    return all(
        isinstance(layer, TRANSPARENT_WRAPPERS) for layer in [*layers_of(env, whole=True)][:-1]
    )


def _has_trustworthy_table(env: Any) -> bool:
    """Whether ``env.unwrapped.P`` says all there is to say about the environment."""
    inner = env.unwrapped
    zero_based = env.observation_space.start == 0 and env.action_space.start == 0
    has_table = hasattr(inner, "P") and hasattr(inner, "initial_state_distrib")
    return _is_plain(env) and zero_based and has_table


def _from_env_table(name: str, env: gym.Env[Any, Any], cap: int) -> FiniteMDP:
    inner: Any = env.unwrapped
    table, start_s, observation_s = inner.P, inner.initial_state_distrib, None
    if getattr(inner, "fickle_passenger", False):
        table, start_s, observation_s = _with_fickle_passenger(inner)
    allowed_sa = None
    if hasattr(inner, "action_mask"):
        allowed_sa = np.array([inner.action_mask(s) for s in range(len(inner.P))])
    mdp = FiniteMDP.from_table(
        table,
        start_s,
        step_cap=cap,
        observation_s=observation_s,
        allowed_sa=allowed_sa,
        name=name,
    )
    _check_table(mdp, env)
    return mdp


def _with_fickle_passenger(taxi: Any) -> tuple[dict[int, Any], Floats, Any]:
    """Taxi's table with the passenger's hidden intention as part of the state.

    State ``s + 500`` is s with a passenger who will change their mind: on the first step that
    moves the taxi with the passenger inside, the destination becomes one of the three others.
    """
    n = len(taxi.P)
    place = [taxi.decode(s) for s in range(n)]

    def outcomes(s: int, outcome: tuple[float, int, float, bool]) -> list[Any]:
        chance, after, reward, terminated = outcome
        row, column, passenger, destination = place[s]
        new_row, new_column, new_passenger, _ = place[after]
        if passenger != 4 or (row, column) == (new_row, new_column):
            return [(chance, after + n, reward, terminated)]
        others = [d for d in range(4) if d != destination]
        return [
            (chance / 3, taxi.encode(new_row, new_column, new_passenger, d), reward, terminated)
            for d in others
        ]

    fickle = {
        s + n: {a: [o for old in row for o in outcomes(s, old)] for a, row in taxi.P[s].items()}
        for s in range(n)
    }
    start_s = np.concatenate(
        [
            (1 - taxi.fickle_probability) * taxi.initial_state_distrib,
            taxi.fickle_probability * taxi.initial_state_distrib,
        ]
    )
    return {**taxi.P, **fickle}, start_s, np.tile(np.arange(n), 2)


def _check_table(mdp: FiniteMDP, env: gym.Env[Any, Any]) -> None:
    """Look some steps of the real environment up in the table, so that a wrong one is refused."""
    source_r, action_r = np.divmod(np.arange(len(mdp.offset_r) - 1), mdp.n_actions)
    row_o = np.repeat(np.arange(len(source_r)), np.diff(mdp.offset_r))
    known = set(
        zip(
            mdp.observation_s[source_r[row_o]].tolist(),
            action_r[row_o].tolist(),
            mdp.observation_s[mdp.next_o].tolist(),
            mdp.reward_o.tolist(),
            mdp.terminal_o.tolist(),
            strict=True,
        )
    )
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    for _ in range(TABLE_CHECK_STEPS):
        action = int(rng.integers(mdp.n_actions))
        after, reward, terminated, truncated, _ = env.step(action)
        require(
            (int(observation), action, int(after), float(reward), bool(terminated)) in known,
            f"the transition table of {mdp.name} does not hold the step ({int(observation)}, "
            f"{action}) -> ({int(after)}, {reward}, {terminated}) that the environment made; "
            "step the environment instead: as_problem(env, use_table=False)",
        )
        observation = env.reset()[0] if terminated or truncated else after


def environment_spec(env: "str | gym.Env[Any, Any] | Problem") -> dict[str, Any] | None:
    """What is needed to make the environment again, as plain data; None if that can't be said."""
    if isinstance(env, str):
        return {"id": catalogue.resolve(env), "kwargs": {}}
    if not isinstance(env, gym.Env) or env.spec is None:
        return None
    if not _is_plain(env):
        return None
    kwargs = dict(env.spec.kwargs)
    if env.spec.max_episode_steps is not None:
        kwargs["max_episode_steps"] = env.spec.max_episode_steps
    try:
        json.dumps(kwargs)
    except TypeError:
        return None
    return {"id": env.spec.id, "kwargs": kwargs}


def environment_from_spec(
    spec: Mapping[str, Any] | None, problem: str, **keywords: Any
) -> gym.Env[Any, Any]:
    """The registered environment that `environment_spec` described, made with these as well."""
    if spec is None:
        raise ValueError(
            f"the agent was trained on {problem!r}, which is not a registered environment; "
            "give it: load(path, env=...)"
        )
    catalogue.require_no_import(spec["id"])
    return catalogue.make(spec["id"], **{**spec["kwargs"], **keywords})
