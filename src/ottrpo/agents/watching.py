"""What SB3's callbacks are told, under SB3's names and in the environments' own terms; and ours."""

from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import DictRolloutBufferSamples, RolloutBufferSamples

from ottrpo.collect.host import Infos, Recorder
from ottrpo.core.checks import Refused
from ottrpo.engine.acting import Actor
from ottrpo.engine.estimate import Experience, Rollout
from ottrpo.engine.spaces import BoxActions, Encoded
from ottrpo.engine.state import TrainState
from ottrpo.persistence.checkpoints import Keeper, StopSignals
from ottrpo.persistence.lock import DirectoryLock
from ottrpo.persistence.snapshot import Snapshot, segment_line

from .asking import distribution_of, drawn_actions, tensors

Array = Any


class Later(partial[Any]):
    """What is made when a callback asks for it: most never do."""


class Locals(UserDict[str, Any]):
    """The ``locals`` of callbacks."""

    def __getitem__(self, key: str) -> Any:
        value = self.data[key]
        if isinstance(value, Later):
            value = self.data[key] = value()
        return value

    def update(self, *others: Any, **named: Any) -> None:
        """As of any dictionary; callbacks that hold this very one have all of it already."""
        if not (others and others[0] is self):
            super().update(*others, **named)


class RolloutView:
    """A rollout under the names of SB3's ``RolloutBuffer``, [steps so far, environments, ...].

    Rewards are as they came, and values, advantages and returns are in their unit, also where the
    agent learns from normalised ones. Advantages and returns have no rows before the rollout is
    complete; then they are, like the values, those that the update learns from.

    Attributes:
        buffer_size: steps of the complete rollout.
        n_envs: environments.
        pos: steps so far.
    """

    def __init__(
        self, agent: Any, actor: Actor, recorder: Recorder, first: int = 0, *, starts: Any
    ) -> None:
        self._agent, self._actor, self._recorder, self._first = agent, actor, recorder, first
        self._starts = starts
        self.buffer_size, self.n_envs = recorder.reward.shape
        self.pos = first + 1
        self._estimate: Later | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the agent, or one from a pickle, has no rollout behind it: ``None``."""
        return type(None), ()

    def complete(self, estimate: Later) -> None:
        """Know how advantages are estimated, now that the rollout is complete."""
        self._estimate, self.pos = estimate, self.buffer_size

    @property
    def full(self) -> bool:
        """Whether the rollout is complete."""
        return self._estimate is not None

    def size(self) -> int:
        """Steps so far."""
        return self.pos

    def get(self, batch_size: int | None = None) -> Iterator[Any]:
        """The complete rollout once, shuffled, in batches of torch's tensors, as SB3's buffers.

        Raises:
            ValueError: if it is not complete.
        """
        if not self.full:
            raise Refused("a rollout has no batches before it is complete, in _on_rollout_end")
        rows, seen = self.buffer_size * self.n_envs, self.observations
        kind = DictRolloutBufferSamples if isinstance(seen, dict) else RolloutBufferSamples
        numbers = (self.values, self.log_probs, self.advantages, self.returns)
        told = [seen, self.actions.astype(np.float32), *(np.float32(x) for x in numbers)]
        order = self._agent._predict_rng.permutation(rows)  # training draws as it would have
        for chosen in np.split(order, range(batch_size or rows, rows, batch_size or rows)):
            yield kind(*(_chosen(leaf, rows, chosen) for leaf in told))

    @property
    def observations(self) -> Any:
        """What the actions answered to; of Dict spaces a dictionary."""
        seen = self._agent.layout.decode(self._encoded())
        if isinstance(seen, dict):
            return {key: self._stepwise(leaf) for key, leaf in seen.items()}
        return self._stepwise(seen)

    @property
    def actions(self) -> Array:
        """Before they were clipped, [steps, environments, coordinates]; squashed: from -1 to 1."""
        actions, drawn = self._agent.actions, self._drawn()
        if isinstance(actions, BoxActions) and actions.squash:
            return self._stepwise(np.tanh(drawn["action"]))
        taken = drawn_actions(actions, drawn)
        return self._stepwise(taken.reshape(len(taken), -1))

    @property
    def rewards(self) -> Array:
        """As the environments gave them."""
        return self._recorder.reward[self._first : self.pos]

    @property
    def episode_starts(self) -> Array:
        """Whether an episode began with the step's observation."""
        starts = np.ones(self.n_envs, np.bool_) if self._starts is None else self._starts
        return np.concatenate([starts[None], self._recorder.done])[self._first : self.pos]

    @property
    def values(self) -> Array:
        """Of the observations."""
        if self.full:
            return self._estimated("value")
        return self._agent.values_of(self._encoded()).reshape(-1, self.n_envs)

    @property
    def log_probs(self) -> Array:
        """Of the actions."""
        drawn, actions = self._drawn(), self._agent.actions
        distribution = distribution_of(actions, drawn, self._agent.rng)
        return distribution.log_prob(drawn_actions(actions, drawn)).reshape(-1, self.n_envs)

    @property
    def advantages(self) -> Array:
        """Of the actions."""
        return self._estimated("advantage")

    @property
    def returns(self) -> Array:
        """Targets of the values."""
        return self._estimated("target")

    @cached_property
    def _estimates(self) -> tuple[TrainState, Experience]:
        assert self._estimate is not None
        return self._estimate()  # type: ignore[no-any-return]

    def _estimated(self, name: str) -> Array:
        """What the update learns from, in the unit of the rewards as they came; to be read only.

        SB3's updates learn from what a callback writes here; ours would not notice.
        """
        if self._estimate is None:
            return np.zeros((0, self.n_envs))
        estimator: Any = self._estimate.func
        state, batch = self._estimates
        unit = estimator.normaliser.reward_unit(state.rewards)
        told = getattr(batch, name).reshape(-1, self.n_envs) * unit
        told.flags.writeable = False
        return told

    def _encoded(self) -> Encoded:
        flat, *images = map(self._rows, (self._recorder.flat, *self._recorder.images))
        return Encoded(flat, tuple(images))

    def _drawn(self) -> dict[str, Array]:
        return {name: self._rows(array) for name, array in self._actor.record().items()}

    def _rows(self, array: Array) -> Array:
        known = array[self._first : self.pos]
        return known.reshape(-1, *known.shape[2:])

    def _stepwise(self, rows: Array) -> Array:
        """Steps and environments apart; a number is a row of one, as in SB3's buffers."""
        return rows.reshape(-1, self.n_envs, *(rows.shape[1:] or (1,)))


def _chosen(kept: Any, rows: int, chosen: Array) -> Any:
    """Some of all rows of what is kept by steps and environments, as torch's tensors."""
    if isinstance(kept, dict):
        return {key: _chosen(leaf, rows, chosen) for key, leaf in kept.items()}
    return tensors(kept.reshape(rows, *kept.shape[2:])[chosen])


def complete_view(agent: Any, rollout: Rollout) -> None:
    """Let what is seen of the advantages be what the update learns from."""
    view = agent.rollout_buffer
    if view is not None and not view.full:
        view.complete(Later(agent.algorithm.estimate, agent.train_state, rollout, agent._now()))


def see_to_observation(agent: Any) -> None:
    """What was seen last, encoded: of a new episode, if a callback has set other environments."""
    if agent._seen is None:
        agent._seen = agent.env.reset()
        agent._last_episode_starts = np.ones(agent.n_envs, bool)
    if not isinstance(agent._seen, Encoded):
        agent._seen = agent.layout.encode(agent._seen, agent.n_envs)


@contextmanager
def unbroken(agent: Any) -> Iterator[None]:
    """Who breaks off a rollout leaves environments that went on: the next begins new episodes."""
    try:
        yield
    except BaseException:
        agent._seen = None
        raise


class Watcher:
    """Tells SB3's callbacks about each step, and the agent about the episodes that ended."""

    def __init__(self, agent: Any, callback: BaseCallback, actor: Actor) -> None:
        self._agent, self._callback, self._actor = agent, callback, actor
        self._env, self._rows = agent.env, agent.n_envs
        held: Any = callback.locals
        self._locals = held if isinstance(held, Locals) else Locals(self=agent, env=agent.env)
        self._endings = 0

    def __call__(self, t: int, action: Array, recorder: Recorder, infos: Infos) -> bool:
        """Count the step, tell the callback; False ends training."""
        agent, told = self._agent, self._locals.data
        if t == 0:
            starts = agent._last_episode_starts
            agent.rollout_buffer = RolloutView(agent, self._actor, recorder, starts=starts)
            told["env"], told["rollout_buffer"] = agent.env, agent.rollout_buffer
            told["n_rollout_steps"] = agent.rollout_buffer.buffer_size
        else:
            agent._last_episode_starts = recorder.done[t - 1]
        agent._seen = recorder.at(t)  # what the action answered to, as SB3's callbacks find it
        agent.rollout_buffer.pos = t + 1
        agent.num_timesteps += agent.n_envs
        for info in infos:
            info.setdefault("TimeLimit.truncated", False)  # SB3's say it at every step
        told["n_steps"], told["clipped_actions"], told["infos"] = t, action, infos
        told["rewards"], told["dones"] = recorder.reward[t], recorder.done[t]
        told["actions"] = Later(self._at, recorder, t, "actions", action.shape)
        told["values"] = Later(self._at, recorder, t, "values", (-1, 1))
        told["log_probs"] = Later(self._at, recorder, t, "log_probs", -1)
        told["obs_tensor"] = Later(self._tensors, recorder.at(t))
        told["new_obs"] = Later(agent.layout.decode, recorder.at(t + 1))
        self._callback.update_locals(self._locals)  # type: ignore[arg-type]
        goes_on = self._callback.on_step()
        self._require(agent.env is self._env)
        if not goes_on:
            agent._seen, agent._last_episode_starts = recorder.at(t + 1), recorder.done[t]
            return False
        if ended := recorder.endings[self._endings :]:
            self._endings += len(ended)
            agent._update_info_buffer(ended, np.ones(len(ended)))
        return True

    def _at(self, recorder: Recorder, t: int, name: str, shape: Any) -> Array:
        """What the view has under this name of step t alone."""
        step = RolloutView(self._agent, self._actor, recorder, t, starts=None)
        return getattr(step, name).reshape(shape)

    def _tensors(self, seen: Encoded) -> Any:
        """Observations as torch's tensors."""
        return tensors(self._agent.layout.decode(seen))

    def complete(self) -> None:
        """The rollout is: tell the callback."""
        self._callback.update_locals(self._locals)  # type: ignore[arg-type]
        self._callback.on_rollout_end()
        self._require(self._agent.n_envs == self._rows)
        see_to_observation(self._agent)

    def _require(self, fits: bool) -> None:
        if not fits:
            raise ValueError(
                "a callback has set other environments than those of the rollout; do so in "
                "_on_rollout_start, or as many of them in _on_rollout_end"
            )


class CheckpointEvery(BaseCallback):
    """Keeps checkpoints from which `resume` goes on bit for bit.

    In training::

        agent.learn(1_000_000, callback=CheckpointEvery(50_000, "checkpoints"))

    and after an interruption of any kind::

        agent = OTTRPO.resume("checkpoints", env=env)
        agent.learn(
            agent.remaining_timesteps,
            reset_num_timesteps=False,
            callback=CheckpointEvery(50_000, "checkpoints"),
        )

    The agents on tables take it as well (their `learn` always counts on).

    SIGTERM and Ctrl-C write one more before they are obeyed, at the end of the current update.
    Environments that can't be captured exactly are seeded anew and reset at every checkpoint; that
    is said when training starts. The state of other callbacks is not kept.

    Args:
        steps: between two checkpoints; the first update that passes a multiple of it writes one.
        folder: where they go; the last two are kept.
        verbose: 1: tell of each.
    """

    def __init__(self, steps: int, folder: str | Path, verbose: int = 0) -> None:
        super().__init__(verbose)
        self._steps, self._folder = int(steps), Path(folder)

    def start(self, agent: Any) -> None:
        """Training starts, or goes on."""
        if not isinstance(agent, Snapshot):
            raise ValueError(f"{type(agent).__name__} can't go on from a checkpoint")
        self._folder.mkdir(parents=True, exist_ok=True)
        agent.while_learning.enter_context(DirectoryLock(self._folder))
        self._stop = agent.while_learning.enter_context(StopSignals())
        self._keeper = Keeper(agent, self._folder, self._steps, self._stop)
        agent.snapshot()  # what can't be saved is refused now, not after the first hours
        reason = agent.why_not_exact()
        if reason is not None:
            print(segment_line(reason))  # noqa: T201  # a run that differs for it is told so

    def __call__(self, agent: Any) -> None:
        """Called after every update."""
        written = self._keeper.after_update(agent)
        if written is not None and self.verbose:
            print(f"checkpoint: {written}")  # noqa: T201  # asked for
        if self._stop.asked is not None:
            again = f"{type(agent).__name__}.resume({str(self._folder)!r})"
            print(f"stopped at step {agent.num_timesteps:,}; to go on: {again}")  # noqa: T201
        self._stop.obey()

    def _on_training_start(self) -> None:
        agent: Any = self.model
        self.start(agent)
        agent.while_learning.enter_context(agent.telling(self))

    def _on_step(self) -> bool:
        return True
