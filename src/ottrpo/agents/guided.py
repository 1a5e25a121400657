"""What BGPG and WNPG share: a behaviour penalty, and updates in which two players take turns."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ottrpo.engine.algorithms.behaviour import Smoothing
from ottrpo.engine.algorithms.objective import Objective
from ottrpo.engine.spaces import BoxActions

from .base import DeepAgent
from .policies import weight_decay_of
from .settings import DeepSettings


@dataclass(frozen=True, kw_only=True)
class GuidedSettings(DeepSettings):
    """The settings of `BGPG`.

    Attributes:
        gae_lambda: λ of the generalised advantage estimate.
        clip_range: PPO's clipping of the ratio; 10 is as good as none.
        clip_range_vf: clipping of the value's change; ``None`` for none.
        normalize_advantage: standardise the advantages of each minibatch.
        ent_coef: weight of the entropy bonus.
        vf_coef: weight of the value function's mean squared error.
        wasserstein_coef: κ, weight of the behaviour penalty.
        n_actions: M, sampled actions of the old and of the new policy per state.
        n_features: D, random features of the test functions.
        feature_bandwidth: σ; the features' frequencies have standard deviation 1/σ.
        smoothing: γ, weight of the entropy in the smoothed Wasserstein distance.
        dual_steps: T, ascent steps of the test functions before each step of the policy.
        dual_learning_rate: of those steps.
        dual_decay: divide it by the square root of the step's number.
        test_functions: ``slot``, as published: coefficients belong to places in a minibatch,
            whatever state stands there; ``sample``: to the states. Zero at every rollout's start.
        time_limits: ``terminal``, as published: nothing follows an episode that was cut off;
            ``bootstrap``: its value does.
        noise_color: exponent of the power spectrum of the noise over time: 0 white, 1 pink; a
            number or a schedule.
    """

    positional: ClassVar[tuple[str, ...]] = (
        *("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda"),
        *("clip_range", "clip_range_vf", "normalize_advantage", "ent_coef", "vf_coef"),
        *("max_grad_norm", "use_sde", "sde_sample_freq"),
    )
    fixed: ClassVar[tuple[str, ...]] = (*DeepSettings.fixed, "n_features", "feature_bandwidth")

    learning_rate: Any = 5e-5
    gamma: Any = 0.99
    gae_lambda: float = 0.95
    vf_coef: float = 0.25
    noise_color: Any = 0.0
    clip_range: float = 10.0
    clip_range_vf: float | None = 10.0
    ent_coef: float = 0.0
    wasserstein_coef: float = 0.1
    n_actions: int = 10
    n_features: int = 100
    feature_bandwidth: float = 0.1
    smoothing: float = 1.0
    dual_steps: int = 25
    dual_learning_rate: float = 0.05
    dual_decay: bool = False
    test_functions: Literal["slot", "sample"] = "slot"
    time_limits: Literal["terminal", "bootstrap"] = "terminal"


class GuidedAgent(DeepAgent):
    """An agent with a penalty on how far the behaviour moves; subclasses say where to go."""

    told: GuidedSettings

    def _planned_entries(self) -> int:
        entries = super()._planned_entries()
        size = self.actions.size if isinstance(self.actions, BoxActions) else 0
        return entries + self.told.n_features * size

    def _shared(self, *, limits_end: bool = False) -> dict[str, Any]:
        if not isinstance(self.actions, BoxActions):
            raise ValueError(
                f"{type(self).__name__} needs actions in a Box, got {self.action_space}: its "
                "penalty differentiates sampled actions; use OTTRPO for finite ones"
            )
        if weight_decay_of(self.policy_kwargs):
            raise ValueError(f"{type(self).__name__} has no weight_decay; use optimizer_class Adam")
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
