"""What a finite problem is to an agent: something that gives simulators with their own streams."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from ottrpo.core import FiniteProblem
from ottrpo.core.checks import Bools, Floats, NonFiniteError, require
from ottrpo.persistence.snapshot import World

from . import kernels


@final
@dataclass(frozen=True, eq=False, slots=True)
class Trajectories:
    """Whole episodes, one after another, one entry per step.

    Attributes:
        state_t: the state (observation) acted in.
        action_t: the action taken.
        reward_t: the reward received.
        next_t: the state reached.
        ending_t: `kernels.RUNNING`, `TERMINATED` (by the task) or `TRUNCATED` (by the step cap).
    """

    state_t: Any
    action_t: Any
    reward_t: Floats
    next_t: Any
    ending_t: Any

    @property
    def columns(self) -> tuple[Any, ...]:
        """The five arrays in the order in which the kernels take them."""
        return self.state_t, self.action_t, self.reward_t, self.next_t, self.ending_t

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.state_t)

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return int(np.count_nonzero(self.ending_t))

    @property
    def truncated(self) -> int:
        """Number of episodes that the step cap ended."""
        return int(np.count_nonzero(self.ending_t == kernels.TRUNCATED))

    @property
    def total_reward(self) -> float:
        """Sum of all rewards."""
        return float(self.reward_t.sum())


class Simulator(World, Protocol):
    """A problem being played, with its own random streams, which are part of its state."""

    @property
    def allowed_sa(self) -> Bools | None:
        """Which actions each state allows, as far as known; None if nothing is forbidden."""

    def rollout(self, policy_sa: Floats, min_episodes: int, min_steps: int) -> Trajectories:
        """Whole episodes until both minima are met. The arrays are valid until the next call."""

    def returns(self, policy_sa: Floats, episodes: int) -> Floats:
        """Undiscounted returns of that many episodes."""


@dataclass(frozen=True, eq=False)
class Problem(ABC):
    """A finite problem: `FiniteMDP` or `SteppedProblem`.

    Attributes:
        name: what to call it in messages; the environment's id where there is one.
        n_states: number of observations, i.e. of rows in a policy table.
        n_actions: number of actions.
        step_cap: steps after which an episode is truncated.
    """

    name: str
    n_states: int
    n_actions: int
    step_cap: int

    @abstractmethod
    def simulator(self, seed: int | np.random.SeedSequence, *, masks: bool = False) -> Simulator:
        """A simulator with random streams of its own, that obeys action masks if asked to."""


def within_mask(policy_sa: Floats, allowed_sa: Bools) -> Floats:
    """The policy conditioned on the allowed actions; uniform over them if it gives them nothing."""
    inside_sa = np.where(allowed_sa, policy_sa, 0.0)
    total_s = inside_sa.sum(axis=1, keepdims=True)
    uniform_sa = allowed_sa / allowed_sa.sum(axis=1, keepdims=True)
    return np.where(total_s > 0, inside_sa / np.where(total_s > 0, total_s, 1.0), uniform_sa)


def require_finite(name: str, quantity: str, array: Floats, step: int) -> None:
    """Raise unless ``array``, of a batch that started at ``step``, holds finite numbers only."""
    if np.isfinite(array).all():
        return
    index = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
    # rewards come one per step; a table has no steps, only the batch that led to it
    where = f"step {step + int(index[0])}" if array.ndim == 1 else f"the batch from step {step}"
    raise NonFiniteError(
        f"{name}: environment 0 led to a {quantity} of {array[index]} at {where}; the policy and "
        "its estimates are as they were before. Look at the environment's rewards there"
    )


def refuse_empty_mask(allowed_sa: Bools, first_state: int = 0) -> None:
    """Raise if some state, counted from ``first_state``, allows no action at all."""
    empty_s = ~allowed_sa.any(axis=1)
    require(
        not empty_s.any(),
        f"the action mask forbids all {allowed_sa.shape[1]} actions in state "
        f"{first_state + int(empty_s.argmax())}; allow at least one in every state",
    )


def no_mask(name: str) -> str:
    """What to say when masks are asked for and there are none."""
    return f"{name} reports no action mask; leave masks at False"


def streams(
    seed: int | np.random.SeedSequence,
) -> tuple[np.random.Generator, np.random.Generator]:
    """The environment's and the policy's stream.

    The environment's is the one that ``env.reset(seed=seed)`` gives Gymnasium's environments.
    """
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    (for_actions,) = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, 1)).spawn(1)
    return np.random.default_rng(root), np.random.default_rng(for_actions)


def positive(name: str, value: int) -> int:
    """``value`` as a positive integer."""
    require(int(value) == value and value > 0, f"{name} must be a positive integer, got {value}")
    return int(value)


@final
@dataclass(frozen=True, eq=False, slots=True)
class Improvement:
    """One update of a policy: what was to be solved and what came out.

    Attributes:
        problem: the trust-region problem on the batch.
        policy_sa: the new policy.
        multiplier: λ.
        spent: transport cost between the old and the new policy, or what the region counts.
        value: the value of the dual at λ; the new policy is optimal if it attains it.
        split_mass: weight of the mass that was shared between two targets.
        moved: weight of the rows that the update would move, given a little more radius.
        radius: what could be spent; if there was a price instead, what was.
        transport: if the region counts more than transport, the transport of the plan.
    """

    problem: FiniteProblem
    policy_sa: Floats
    multiplier: float
    spent: float
    value: float
    split_mass: float
    moved: float
    radius: float
    transport: float | None = None
