"""What BGPG and WNPG share: a behaviour penalty, and updates in which two players take turns."""

from typing import Any

from ottrpo.engine.algorithms.behaviour import Smoothing
from ottrpo.engine.algorithms.objective import Objective
from ottrpo.engine.spaces import BoxActions

from .base import DeepAgent
from .settings import GuidedSettings


class GuidedAgent(DeepAgent):
    """An agent with a penalty on how far the behaviour moves; subclasses say where to go."""

    told: GuidedSettings

    def _planned_entries(self) -> int:
        size = self.actions.size if isinstance(self.actions, BoxActions) else 0
        return super()._planned_entries() + self.told.n_features * size

    def _shared(self, *, limits_end: bool = False) -> dict[str, Any]:
        if not isinstance(self.actions, BoxActions):
            raise ValueError(
                f"{type(self).__name__} needs actions in a Box, got {self.action_space}: its "
                "penalty differentiates sampled actions; use OTTRPO for finite ones"
            )
        limits_end = self.told.time_limits == "terminal"
        return super()._shared(limits_end=limits_end) | {
            "objective": Objective(
                clip_range=self.told.clip_range,
                clip_range_vf=self.told.clip_range_vf,
                normalize_advantage=self.told.normalize_advantage,
                ent_coef=self.told.ent_coef,
                vf_coef=self.told.vf_coef,
                wasserstein_coef=self.told.wasserstein_coef,
            ),
            "smoothing": Smoothing(
                strength=self.told.smoothing,
                steps=self.told.dual_steps,
                learning_rate=self.told.dual_learning_rate,
                decay=self.told.dual_decay,
            ),
            "n_actions": self.told.n_actions,
            "n_features": self.told.n_features,
            "feature_bandwidth": self.told.feature_bandwidth,
            "by_sample": self.told.test_functions == "sample",
        }
