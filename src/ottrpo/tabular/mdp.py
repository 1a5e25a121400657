"""Markov decision processes with a known transition table, played by the compiled kernels."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from ottrpo.core.checks import Bools, Floats, distributions, floats, require

from . import kernels
from .problem import Problem, Trajectories, no_mask, positive, refuse_empty_mask, streams


@final
@dataclass(frozen=True, eq=False)
class FiniteMDP(Problem):
    """A Markov decision process with a known transition table.

    The outcomes of row ``r = s * A + a`` are the entries ``offset_r[r] : offset_r[r + 1]`` of the
    outcome arrays. What the agent sees of state s is ``observation_s[s]``: the state itself,
    except where an environment keeps something to itself (Taxi's fickle passenger).

    Attributes:
        offset_r: where the outcomes of each row begin.
        probability_o: their probabilities.
        next_o: the states they lead to.
        reward_o: the rewards they pay.
        terminal_o: whether they end the episode.
        start_s: distribution of the first state.
        observation_s: what is seen of each state.
        allowed_sa: which actions the environment's own mask allows; None if it has no mask.
    """

    offset_r: Any
    probability_o: Floats
    next_o: Any
    reward_o: Floats
    terminal_o: Bools
    start_s: Floats
    observation_s: Any
    allowed_sa: Bools | None = None

    @classmethod
    def from_arrays(
        cls,
        probability_sab: ArrayLike,
        reward: ArrayLike,
        start_s: ArrayLike,
        *,
        terminal_s: ArrayLike | None = None,
        step_cap: int = 1000,
        allowed_sa: ArrayLike | None = None,
        name: str = "finite MDP",
    ) -> "FiniteMDP":
        """An MDP from P [S, A, S], rewards [S, A] or [S, A, S] and the start distribution.

        Args:
            probability_sab: P(s' | s, a).
            reward: r(s, a) or r(s, a, s').
            start_s: distribution of the first state.
            terminal_s: states whose entry ends the episode; none by default.
            step_cap: steps after which an episode is truncated.
            allowed_sa: which actions each state allows; all by default.
            name: what to call the MDP in messages.
        """
        chance = distributions("the transition probabilities", probability_sab, ndim=3)
        n_states, n_actions, n_next = chance.shape
        require(
            n_next == n_states,
            f"the transition probabilities must have shape [S, A, S], got {chance.shape}",
        )
        pay = floats("the rewards", reward)
        require(
            pay.shape in ((n_states, n_actions), chance.shape),
            f"the rewards must have shape {(n_states, n_actions)} or {chance.shape}, "
            f"got {pay.shape}",
        )
        pay_sab = pay[:, :, None] if pay.ndim == 2 else pay
        terminal = _flags("terminal_s", terminal_s, (n_states,))
        state_o, action_o, next_o = np.nonzero(chance)
        row_o = state_o * n_actions + action_o
        start = distributions("the start distribution", start_s, ndim=1)
        require(
            len(start) == n_states,
            f"the start distribution must have {n_states} entries, got {len(start)}",
        )
        return cls(
            name=name,
            n_states=n_states,
            n_actions=n_actions,
            step_cap=positive("step_cap", step_cap),
            offset_r=np.searchsorted(row_o, np.arange(n_states * n_actions + 1)),
            probability_o=chance[state_o, action_o, next_o],
            next_o=next_o,
            reward_o=np.broadcast_to(pay_sab, chance.shape)[state_o, action_o, next_o],
            terminal_o=terminal[next_o],
            start_s=start,
            observation_s=np.arange(n_states),
            allowed_sa=_allowed(allowed_sa, (n_states, n_actions)),
        )

    @classmethod
    def from_table(
        cls,
        table: Mapping[int, Mapping[int, list[tuple[float, int, float, bool]]]],
        start_s: ArrayLike,
        *,
        step_cap: int,
        observation_s: ArrayLike | None = None,
        allowed_sa: ArrayLike | None = None,
        name: str = "finite MDP",
    ) -> "FiniteMDP":
        """An MDP from Gymnasium's ``P[s][a] = [(probability, next state, reward, terminated)]``."""
        start = distributions("the start distribution", start_s, ndim=1)
        n_states, n_actions = len(table), len(table[0])
        rows = [table[s][a] for s in range(n_states) for a in range(n_actions)]
        outcomes = [outcome for row in rows for outcome in row]
        probability, after, reward, terminal = zip(*outcomes, strict=True)
        seen = np.arange(n_states) if observation_s is None else np.asarray(observation_s)
        n_seen = int(seen.max()) + 1
        return cls(
            name=name,
            n_states=n_seen,
            n_actions=n_actions,
            step_cap=positive("step_cap", step_cap),
            offset_r=np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
            probability_o=np.array(probability, dtype=np.float64),
            next_o=np.array(after, dtype=np.int64),
            reward_o=np.array(reward, dtype=np.float64),
            terminal_o=np.array(terminal, dtype=np.bool_),
            start_s=start,
            observation_s=seen,
            allowed_sa=_allowed(allowed_sa, (n_seen, n_actions)),
        )

    @property
    def fully_observed(self) -> bool:
        """Whether the agent sees the state itself."""
        return len(self.observation_s) == self.n_states

    def cumulative(self) -> Floats:
        """Running sums of the outcome probabilities within each row.

        Summed row by row, as ``numpy.cumsum`` does for a row alone, so that a draw falls on the
        same outcome as in the environment.
        """
        cumulative_o = np.empty_like(self.probability_o)
        for width in np.unique(np.diff(self.offset_r)):
            first_r = self.offset_r[:-1][np.diff(self.offset_r) == width]
            index_rk = first_r[:, None] + np.arange(width)
            cumulative_o[index_rk] = np.cumsum(self.probability_o[index_rk], axis=1)
        return cumulative_o

    def reaches_an_end(self) -> bool:
        """Whether some terminal transition can be reached from some start state."""
        width_r = np.diff(self.offset_r)
        source_o = np.repeat(np.arange(len(width_r)) // self.n_actions, width_r)
        possible_o = self.probability_o > 0
        reached_s = self.start_s > 0
        while True:
            live_o = possible_o & reached_s[source_o]
            grown_s = reached_s.copy()
            grown_s[self.next_o[live_o & ~self.terminal_o]] = True
            if (grown_s == reached_s).all():
                return bool((live_o & self.terminal_o).any())
            reached_s = grown_s

    def simulator(
        self, seed: int | np.random.SeedSequence, *, masks: bool = False
    ) -> "TableSimulator":
        """A compiled simulator."""
        return TableSimulator(self, seed, masks=masks)


@final
class TableSimulator:
    """Plays a `FiniteMDP` with the compiled kernels.

    Args:
        mdp: the problem.
        seed: seeds both streams, the environment's and the policy's.
        masks: whether the problem's mask counts.
    """

    def __init__(
        self, mdp: FiniteMDP, seed: int | np.random.SeedSequence, *, masks: bool = False
    ) -> None:
        require(not masks or mdp.allowed_sa is not None, no_mask(mdp.name))
        self._mdp = mdp
        self.allowed_sa = mdp.allowed_sa if masks else None
        self.env_rng, self.action_rng = streams(seed)
        self._tables = (
            mdp.offset_r,
            mdp.cumulative(),
            mdp.next_o,
            mdp.reward_o,
            mdp.terminal_o,
            np.cumsum(mdp.start_s),
            mdp.observation_s,
        )
        self._buffer = _buffer(0)

    def rollout(self, policy_sa: Floats, min_episodes: int, min_steps: int) -> Trajectories:
        """Whole episodes until both minima are met. The arrays are valid until the next call."""
        return Trajectories(*self._played(policy_sa, min_episodes, min_steps))

    def _played(self, policy_sa: Floats, min_episodes: int, min_steps: int) -> tuple[Any, ...]:
        cap = self._mdp.step_cap
        # the last episode begins with one of the minima unmet, and no episode exceeds the cap
        most = max(min_episodes * cap, min_steps - 1 + cap)
        if len(self._buffer[0]) < most:
            self._buffer = _buffer(most)
        steps, _ = kernels.simulate(
            self._tables,
            policy_sa,
            self.env_rng,
            self.action_rng,
            cap,
            min_episodes,
            min_steps,
            self._buffer,
        )
        return tuple(column[:steps] for column in self._buffer)

    def returns(self, policy_sa: Floats, episodes: int) -> Floats:
        """Undiscounted returns of that many episodes."""
        # summed up one after the other, as an episode pays them
        rewards = (self._played(policy_sa, 1, 1)[2] for _ in range(episodes))
        return np.array([np.cumsum(reward_t)[-1] for reward_t in rewards])

    def capture(self, arrays: dict[str, Any]) -> tuple[dict[str, Any], None]:
        """The random streams as plain data; nothing else remains between two rollouts."""
        streams = {"env": self.env_rng, "action": self.action_rng}
        return {name: rng.bit_generator.state for name, rng in streams.items()}, None

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Continue from `capture`."""
        self.env_rng.bit_generator.state = state["env"]
        self.action_rng.bit_generator.state = state["action"]

    def why_not_exact(self) -> str | None:
        """A table has no other state than its streams."""
        return None

    def reseed(self, seed: int) -> None:
        """Play on from a new stream."""
        self.env_rng = np.random.default_rng(seed)


def _buffer(steps: int) -> tuple[Any, ...]:
    dtypes = (np.int32, np.int32, np.float64, np.int32, np.int8)
    return tuple(np.empty(steps, dtype=dtype) for dtype in dtypes)


def _flags(name: str, value: ArrayLike | None, shape: tuple[int, ...]) -> Bools:
    flags = np.zeros(shape, dtype=np.bool_) if value is None else np.asarray(value) != 0
    require(flags.shape == shape, f"{name} must have shape {shape}, got {flags.shape}")
    return flags


def _allowed(allowed_sa: ArrayLike | None, shape: tuple[int, int]) -> Bools | None:
    if allowed_sa is None:
        return None
    flags = _flags("allowed_sa", allowed_sa, shape)
    refuse_empty_mask(flags)
    return flags


def say_endless(problem: Problem, episodes: int) -> None:
    """Warn that no episode ended by the task itself, where episodes are meant to end."""
    if isinstance(problem, FiniteMDP):
        if not problem.terminal_o.any():
            return  # an endless task: the cap is its horizon
        reason = (
            "a terminal state can be reached, train longer"
            if problem.reaches_an_end()
            else "no terminal state can be reached from a start state"
        )
    else:
        reason = "can the goal be reached?"
    warnings.warn(
        f"all {episodes} episodes of {problem.name} stopped at the cap of {problem.step_cap} "
        f"steps, none ended by itself: {reason}",
        stacklevel=3,
    )
