"""Small problems with known answers, for tests, examples and a first try.

Importing this module registers ``ottrpo/Reach-v0``, ``ottrpo/Fragile-v0``, ``ottrpo/Match-v0`` and
``ottrpo/Graze-v0`` with Gymnasium.
"""

from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

EPISODE_STEPS = 16
LABELS = 3


class Toy(gym.Env[Any, Any]):
    """Something is shown at every step, for so many steps."""

    _steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return self._draw(), {}

    @abstractmethod
    def _draw(self) -> Any:
        """What is shown next."""


class Reach(Toy):
    """Hit half the number that is shown: r = 1 - 4 |a - s/2|² per coordinate, on average.

    The best policy is a = s/2, with a return of 16 in every episode. A policy that ignores the
    state can do no better than a = 0, and earns 16 · (1 - E s²) = 10.7.
    """

    def __init__(self, size: int = 2, low: float = -1.0, high: float = 1.0) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.action_space = spaces.Box(low, high, (size,), np.float32)
        self._low, self._high = low, high

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Score the action and show the next number."""
        unit = 2.0 * (np.asarray(action) - self._low) / (self._high - self._low) - 1.0
        reward = 1.0 - 4.0 * float(np.mean((unit - 0.5 * self._shown) ** 2))
        self._steps += 1
        return self._draw(), reward, False, self._steps >= EPISODE_STEPS, {}

    def _draw(self) -> Any:
        self._shown = self.np_random.uniform(-1.0, 1.0, self.observation_space.shape)
        return self._shown.astype(np.float32)


class Fragile(Reach):
    """`Reach` by two joints, of which the first is fragile: beyond 0.8 it strains, and pays 10.

    The best policy, a = s/2, never strains it, and has a return of 16. What training costs is
    another matter: with σ above 0.3 draws strain it now and then.
    """

    STRAIN, LIMIT = 10.0, 0.8

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Score the action, and what it strains."""
        seen, reward, ended, cut, told = super().step(action)
        strained = abs(float(np.asarray(action)[0])) > self.LIMIT
        return seen, reward - self.STRAIN * strained, ended, cut, told


class Match(Toy):
    """Name the label that is shown; one point for each factor that is right.

    The best policy repeats what it sees, with a return of 16 in every episode; a uniform one
    earns 16/3 (8 with bits).

    Args:
        actions: ``discrete``, ``multi-discrete`` (two factors), ``multi-binary`` (three bits).
        observations: ``discrete`` (only with discrete actions), ``box``, ``dict`` or ``image``.
        masked: offer `action_masks`, which forbid one wrong label at each step.
    """

    def __init__(
        self, actions: str = "discrete", observations: str = "discrete", *, masked: bool = False
    ) -> None:
        self._counts = {
            "discrete": (LABELS,),
            "multi-discrete": (LABELS, LABELS),
            "multi-binary": (2, 2, 2),
        }[actions]
        self._observations = observations
        self._scalar = actions == "discrete"  # checkpoints know of it
        if actions == "discrete":
            self.action_space: spaces.Space[Any] = spaces.Discrete(LABELS)
        elif actions == "multi-discrete":
            self.action_space = spaces.MultiDiscrete(list(self._counts))
        else:
            self.action_space = spaces.MultiBinary(len(self._counts))
        code = spaces.Box(0.0, 1.0, (sum(self._counts),), np.float32)
        self.observation_space = {
            "discrete": spaces.Discrete(LABELS),
            "box": code,
            "dict": spaces.Dict({"first": code, "rest": spaces.MultiDiscrete(list(self._counts))}),
            "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
        }[observations]
        if masked:
            self.action_masks = self._action_masks

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Score the action and show the next labels."""
        labels = np.atleast_1d(action)
        if hasattr(self, "action_masks") and labels[0] == self._forbidden:
            raise ValueError(f"the action {labels[0]} is masked")
        reward = float(np.mean(labels == self._shown))
        self._steps += 1
        return self._draw(), reward, self._steps >= EPISODE_STEPS, False, {}

    def _action_masks(self) -> Any:
        allowed = np.ones(sum(self._counts), np.bool_)
        allowed[self._forbidden] = False
        return allowed

    def _draw(self) -> Any:
        self._shown = self.np_random.integers(self._counts)
        self._forbidden = int((self._shown[0] + 1) % self._counts[0])
        if self._observations == "discrete":
            return int(self._shown[0])
        code = np.concatenate(
            [np.eye(n)[label] for n, label in zip(self._counts, self._shown, strict=True)]
        ).astype(np.float32)
        if self._observations == "dict":
            return {"first": code, "rest": self._shown.astype(np.int64)}
        if self._observations == "image":
            image = np.zeros((36, 36, 1), np.uint8)
            for i, lit in enumerate(code):
                image[4 * i : 4 * i + 4, :, 0] = 255 * int(lit)
            return image
        return code


class Graze(Toy):
    """Two meadows, and none has grass twice in a row: one has to go to both, unforeseeably.

    A point for a step to within 0.2 of −0.7 or 0.7, unless the step before went there as well.
    Nothing is seen. Whoever goes to either with probability ½ earns ½ a step, 32.5 an episode, and
    no policy without memory earns more. A Gaussian has one peak: wherever it lies and however wide
    it is, it earns at most 16.3.
    """

    STEPS = 64
    MEADOWS = (-0.7, 0.7)
    REACH = 0.2

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._grazed = -1

    def _draw(self) -> Any:
        self._grazed = -1  # an episode starts: both have grass
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go somewhere."""
        where = float(np.asarray(action).reshape(-1)[0])
        here = [i for i, at in enumerate(self.MEADOWS) if abs(where - at) <= self.REACH]
        before, self._grazed = self._grazed, here[0] if here else -1
        self._steps += 1
        reward = float(bool(here) and self._grazed != before)
        return np.zeros(1, np.float32), reward, False, self._steps >= self.STEPS, {}


for _name in ("Reach", "Fragile", "Match", "Graze"):
    if f"ottrpo/{_name}-v0" not in gym.registry:
        gym.register(id=f"ottrpo/{_name}-v0", entry_point=f"{__name__}:{_name}")
