"""What BGPG and WNPG share: a behaviour penalty, and updates in which two players take turns."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ottrpo.deep import runtime
from ottrpo.deep.acting import BoxActions
from ottrpo.deep.alternating import draw_noise, make_alternate
from ottrpo.deep.behaviour import Features, Smoothing, draw_features
from ottrpo.deep.directions import Direction, Draws
from ottrpo.deep.guided_loss import Objective, gaussian_log_probability
from ottrpo.deep.rollout import Rollout
from ottrpo.deep.update import Learner, minibatches

from .base import DeepAgent
from .experience import Experience
from .settings import at_least, not_negative, one_of, positive

Array = Any
TestFunctions = Literal["slot", "sample"]
TimeLimits = Literal["terminal", "bootstrap"]
# reported by the compiled update; all else goes under train/
BEHAVIOUR = ("penalty", "dual_first", "dual_last")


class GuidedAgent(DeepAgent):
    """An agent with a penalty on how far the behaviour moves; subclasses say where to go."""

    def __init__(
        self,
        policy: str | type,
        env: Any,
        *,
        clip_range: float,
        clip_range_vf: float | None,
        normalize_advantage: bool,
        ent_coef: float,
        wasserstein_coef: float,
        n_actions: int,
        n_features: int,
        feature_bandwidth: float,
        smoothing: float,
        dual_steps: int,
        dual_learning_rate: float,
        dual_decay: bool,
        test_functions: TestFunctions,
        time_limits: TimeLimits,
        **base: Any,
    ) -> None:
        super().__init__(policy, env, _init_setup_model=False, **base)
        self.clip_range = positive("clip_range", clip_range)
        self.clip_range_vf = (
            None if clip_range_vf is None else positive("clip_range_vf", clip_range_vf)
        )
        self.normalize_advantage = normalize_advantage
        self.ent_coef = not_negative("ent_coef", ent_coef)
        self.wasserstein_coef = not_negative("wasserstein_coef", wasserstein_coef)
        self.n_actions = at_least("n_actions", n_actions, 1)
        self.n_features = at_least("n_features", n_features, 1)
        self.feature_bandwidth = positive("feature_bandwidth", feature_bandwidth)
        self.smoothing = positive("smoothing", smoothing)
        self.dual_steps = at_least("dual_steps", dual_steps, 1)
        self.dual_learning_rate = positive("dual_learning_rate", dual_learning_rate)
        self.dual_decay = dual_decay
        self.test_functions = one_of("test_functions", test_functions, ("slot", "sample"))
        self.time_limits = one_of("time_limits", time_limits, ("terminal", "bootstrap"))

    def _planned_entries(self) -> int:
        size = self.actions.size if isinstance(self.actions, BoxActions) else 0
        return super()._planned_entries() + self.n_features * size

    def _setup_model(self) -> None:
        super()._setup_model()
        if not isinstance(self.actions, BoxActions):
            raise ValueError(
                f"{type(self).__name__} needs actions in a Box, got {self.action_space}: its "
                "penalty differentiates sampled actions; use OTTRPO for finite ones"
            )
        self._alternate = make_alternate(
            Objective(
                clip_range=self.clip_range,
                clip_range_vf=self.clip_range_vf,
                normalize_advantage=self.normalize_advantage,
                ent_coef=self.ent_coef,
                vf_coef=self.vf_coef,
                wasserstein_coef=self.wasserstein_coef,
            ),
            Smoothing(
                strength=self.smoothing,
                steps=self.dual_steps,
                learning_rate=self.dual_learning_rate,
                decay=self.dual_decay,
            ),
            self._direction(),
            by_sample=self.test_functions == "sample",
        )
        with runtime.on(self.jax_device):
            features = draw_features(
                self.n_features, self.actions.size, self.feature_bandwidth, self.rng
            )
            self.learner = self._learner(features)

    @abstractmethod
    def _direction(self) -> Direction:
        """How a step follows from the slopes of a minibatch."""

    @abstractmethod
    def _learner(self, features: Features) -> Learner:
        """The networks, and what the direction remembers."""

    def _estimate(self, rollout: Rollout) -> Experience:
        """Advantages and targets; as published, a time limit ends an episode for good."""
        if self.time_limits == "terminal":
            rollout = replace(rollout, terminated=rollout.done, final={})
        return self.experience(rollout)

    def _rows(self, batch: Experience) -> dict[str, Any]:
        """What the losses see, with M fresh actions of the policy that acted in each state."""
        mean, std, action = (batch.drawn[key] for key in ("mean", "std", "action"))
        shape = (len(mean), self.n_actions, mean.shape[1])
        noise = self.rng.standard_normal(shape, dtype=np.float32)
        return {
            "flat": batch.flat,
            "images": batch.images,
            "id": np.arange(len(mean), dtype=np.int32),
            "action": action,
            "log_probability": np.asarray(gaussian_log_probability(action, mean, std)),
            "old_action": mean[:, None] + std[:, None] * noise,
            "advantage": batch.advantage.astype(np.float32),
            "return": batch.target.astype(np.float32),
            "value": batch.value.astype(np.float32),
        }

    def _minibatches(self, rows: dict[str, Any]) -> tuple[Array, Array, Array, Draws]:
        """Row numbers and weights of the minibatches, the noise, and where each finds its own."""
        index, weight = minibatches(len(rows["flat"]), self.batch_size, self.n_epochs, self.rng)
        shape = (self.n_actions, rows["action"].shape[1])
        table, draws = draw_noise(index, self.dual_steps, shape, self.rng)
        return index, weight, table, draws

    @property
    def _learning_rate(self) -> Array:
        return np.float32(self.lr_schedule(self._current_progress_remaining))

    def _report(self, batch: Experience, fit: dict[str, Any]) -> dict[str, float]:
        variance = float(batch.target.var())
        explained = 1.0 - float((batch.target - batch.value).var()) / variance if variance else 0.0
        named = {(f"behaviour/{k}" if k in BEHAVIOUR else f"train/{k}"): v for k, v in fit.items()}
        return {
            **{key: float(value) for key, value in named.items()},
            "train/std": float(batch.drawn["std"].mean()),
            "train/discount": self.discount,
            "train/explained_variance": explained,
            "train/learning_rate": float(self._learning_rate),
        }
