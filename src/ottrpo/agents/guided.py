"""What BGPG and WNPG share: a behaviour penalty, and updates in which two players take turns."""

from typing import Any, Literal

from ottrpo.engine.algorithms.behaviour import Smoothing
from ottrpo.engine.algorithms.objective import Objective
from ottrpo.engine.spaces import BoxActions

from .base import DeepAgent
from .settings import at_least, not_negative, one_of, positive

TestFunctions = Literal["slot", "sample"]
TimeLimits = Literal["terminal", "bootstrap"]


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

    def _shared(self, *, limits_end: bool = False) -> dict[str, Any]:
        if not isinstance(self.actions, BoxActions):
            raise ValueError(
                f"{type(self).__name__} needs actions in a Box, got {self.action_space}: its "
                "penalty differentiates sampled actions; use OTTRPO for finite ones"
            )
        limits_end = self.time_limits == "terminal"
        return super()._shared(limits_end=limits_end) | {
            "objective": Objective(
                clip_range=self.clip_range,
                clip_range_vf=self.clip_range_vf,
                normalize_advantage=self.normalize_advantage,
                ent_coef=self.ent_coef,
                vf_coef=self.vf_coef,
                wasserstein_coef=self.wasserstein_coef,
            ),
            "smoothing": Smoothing(
                strength=self.smoothing,
                steps=self.dual_steps,
                learning_rate=self.dual_learning_rate,
                decay=self.dual_decay,
            ),
            "n_actions": self.n_actions,
            "n_features": self.n_features,
            "feature_bandwidth": self.feature_bandwidth,
            "by_sample": self.test_functions == "sample",
        }
