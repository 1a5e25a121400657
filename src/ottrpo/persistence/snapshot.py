"""How every agent puts its training down and takes it up again, and the one moment for it.

The moment is after an update, when nothing is half done: logs are complete, and whoever wants to
look on, to save or to stop is told (`Boundary`). What training depends on from there goes out and
comes in by one pair of methods (`Snapshot`).

An environment whose state can't be captured is trained in by segments, cut at the checkpoints. At
the start of each it is seeded from (seed, number of the segment) and reset, in every run that has
checkpoints, whether it was ever interrupted or not. So what follows a checkpoint depends on the
checkpoint alone.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from .checkpoints import Saved, checkpoint_kind, last_checkpoint
from .strict_json import Arrays, decode, encode, global_randomness, set_global_randomness

Data = dict[str, Any]
Listener = Callable[[Any], bool | None]
VERSION = 2  # of what `Snapshot.snapshot` gives; until 1 each family of agents had its own
_STREAM = 0x7365676D


class Boundary:
    """The moment after an update: who listens is told in turn, and may end training."""

    while_learning: ExitStack  # what a listener holds while training lasts, let go however it ends
    _listeners: tuple[Listener, ...] = ()

    @contextmanager
    def telling(self, listener: Listener) -> Iterator[None]:
        """Inside, ``listener`` is called with the agent after every update.

        Returning False ends training there, as if its steps had been taken.
        """
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        with ExitStack() as self.while_learning:
            yield

    def _after_update(self) -> bool:
        """Tell everybody; whether to go on."""
        answers = [listener(self) is not False for listener in self._listeners]
        return all(answers)


class World(Protocol):
    """What an agent trains in: environments of SB3, or a simulator of a finite problem."""

    def why_not_exact(self) -> str | None:
        """Why it can't be relied on to go on exactly from `capture`; ``None`` if it can."""

    def capture(self, arrays: Arrays) -> tuple[Any, str | None]:
        """Its state as plain data, its arrays in ``arrays``; why that is not all of it, if so."""

    def restore(self, state: Any, arrays: Mapping[str, Any]) -> None:
        """Go on from `capture`; it has been seeded."""

    def reseed(self, seed: int) -> Any:
        """Make what follows depend on ``seed`` alone; what is seen then, if anything."""


class Snapshot(Boundary, ABC):
    """An agent whose training can be stopped after an update and go on as if it had not been.

    `snapshot` gives all that the rest of training depends on, as arrays and plain data, and
    `restore` takes it back. An agent says what it has learnt (`_learnt`, `_restore`), what else it
    needs to go on (`_kept`, `_go_on`) and what it trains in (`_world`).
    """

    num_timesteps: int
    seed: int | None
    _total_timesteps: int = 0
    _segment: int = 0
    _segment_root: int | None = None
    _judged: tuple[World, str | None] | None = None  # a world, and why it is not exact

    @property
    def remaining_timesteps(self) -> int:
        """Steps that were asked for and not yet taken when training stopped."""
        return max(self._total_timesteps - self.num_timesteps, 0)

    def why_not_exact(self) -> str | None:
        """Why the environment can't be captured exactly; ``None`` if it can.

        It is found out once for an environment, and a checkpoint remembers it.
        """
        world = self._world()
        if self._judged is None or self._judged[0] != world:
            self._judged = (world, world.why_not_exact())
        return self._judged[1]

    def snapshot(self) -> tuple[Arrays, Data]:
        """All that the rest of training depends on, after an update."""
        arrays, data = self._learnt()
        judged = self.why_not_exact()
        environment, reason = self._world().capture(arrays)
        training = {
            "version": VERSION,
            "class": type(self).__name__,
            "segment": self._segment,
            "segment_root": self._root(),
            "mode": "exact" if judged is None and reason is None else "segment",
            "reason": judged or reason,
            **self._description(),
            "environment": environment,
            "kept": encode(self._kept() | {"random": self._randomness()}, arrays, "training"),
        }
        return arrays, data | {"training": training}

    def checkpoint(self) -> tuple[Arrays, Data]:
        """The snapshot that a checkpoint is made of; without exactness a new segment starts."""
        if self.why_not_exact() is None:
            arrays, data = self.snapshot()
            if data["training"]["reason"] is None:
                return arrays, data
            self._judged = (self._world(), data["training"]["reason"])  # it no longer can be
        self.start_segment()
        return self.snapshot()

    def restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Become what `snapshot` described; `learn` with ``remaining_timesteps`` goes on.

        Raises:
            ValueError: if that was another agent, one in other environments, or of another version.
        """
        training = data["training"]
        _require_version(training)
        if training["class"] != type(self).__name__:
            raise ValueError(f"the checkpoint is of a {training['class']}")
        self._require_fitting(training)
        self._segment, self._segment_root = int(training["segment"]), int(training["segment_root"])
        first = self._seed_world()
        self._world().restore(training["environment"], arrays)
        self._judged = (self._world(), training["reason"])
        self._restore(arrays, data)
        kept = decode(training["kept"], arrays)
        self._go_on(kept, first)
        self._set_randomness(kept["random"])

    @classmethod
    def resume(cls, path: Any, env: Any = None, **settings: Any) -> Self:
        """An agent at its last checkpoint, to go on with.

        ``agent.learn(agent.remaining_timesteps, reset_num_timesteps=False)`` then ends bit for bit
        where it would have ended without the interruption (agents on tables always count on).

        Args:
            path: a checkpoint, the folder that `CheckpointEvery` fills, or the directory of a run.
            env: like the one that was trained in; by default it is made from its id.
            settings: those that were functions and can't be saved: schedules; or ``device``.

        Raises:
            ValueError: if there is no checkpoint, or it does not fit.
        """
        return last_checkpoint(
            Path(path),
            checkpoint_kind(cls.__name__),
            lambda checkpoint: cls._at(checkpoint, env, settings),
        )

    @classmethod
    def _at(cls, checkpoint: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        data = checkpoint.data["agent"]
        _require_version(data["training"])
        missing = sorted(set(data["training"]["functions"]) - set(settings))
        if missing:
            raise ValueError(
                f"{missing[0]} was a function, which can't be saved; give it again: "
                f"resume(path, {missing[0]}=...)"
            )
        agent = cls._made_again(replace(checkpoint, data=data), env, settings)
        agent.restore(checkpoint.arrays, data)
        return agent

    def start_segment(self) -> None:
        """Seed and reset the environment, so that what follows does not depend on its past."""
        self._segment += 1
        self._seed_world()

    def _seed_world(self) -> Any:
        return self._start_from(self._world().reseed(segment_seed(self._root(), self._segment)))

    # ------------------------------------------------------------------ what an agent says

    @abstractmethod
    def _learnt(self) -> tuple[Arrays, Data]:
        """What `save` writes, without the environment."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Take over what `_learnt` gave."""

    @abstractmethod
    def _kept(self) -> Data:
        """What else the rest of training depends on, as `strict_json.encode` takes it."""

    @abstractmethod
    def _go_on(self, kept: Data, first: Any) -> None:
        """Take over what `_kept` gave; ``first`` is what seeding the environment led to."""

    @abstractmethod
    def _world(self) -> World:
        """What it trains in."""

    @classmethod
    @abstractmethod
    def _made_again(cls, saved: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        """An agent with the saved settings, or those given instead, in ``env`` or one like it."""

    def _start_from(self, observation: Any) -> Any:
        """Go on from the first observation of new episodes; it, as the agent keeps it."""
        return observation

    def _description(self) -> Data:
        """What `resume` has to know; settings that are functions can't be saved."""
        return {"functions": []}

    def _require_fitting(self, training: Mapping[str, Any]) -> None:
        """Refuse what was kept of another number of environments."""

    def _randomness(self) -> Data:
        return global_randomness()

    def _set_randomness(self, states: Data) -> None:
        set_global_randomness(states)

    def _root(self) -> int:
        """Where the seeds of segments come from: the seed, or chance if there is none."""
        if self._segment_root is None:
            self._segment_root = secrets.randbits(63) if self.seed is None else self.seed
        return self._segment_root


def _require_version(training: Mapping[str, Any]) -> None:
    version = training.get("version", 1)
    if version != VERSION:
        raise ValueError(
            f"the checkpoint has version {version!r}, this ottrpo goes on from version {VERSION}; "
            "finish the training with the ottrpo that began it"
        )


def segment_seed(root: int, segment: int) -> int:
    """The seed of the environment in a segment; far from any that people train with."""
    stream = np.random.SeedSequence([root, _STREAM, segment])
    return int(stream.generate_state(1)[0] >> 1)  # vector environments count on from it


def segment_line(reason: str) -> str:
    """What is said when the environments can't be captured exactly."""
    return (
        f"checkpoints: the environment can't be captured exactly ({reason}); it is seeded anew and "
        "reset at every checkpoint instead"
    )
