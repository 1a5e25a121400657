"""BGPG, and what WNPG shares with it: a behaviour penalty, and two players that take turns.

    BGPG("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Pacchiano et al., Learning to Score Behaviors for Guided Policy Optimization (2020).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

from ottrpo.engine.algorithms.base import Algorithm
from ottrpo.engine.algorithms.behaviour import Smoothing
from ottrpo.engine.algorithms.bgpg import BehaviourGuided
from ottrpo.engine.algorithms.objective import Objective
from ottrpo.engine.spaces import BoxActions

from .base import DeepAgent
from .policies import weight_decay_of
from .settings import DeepSettings


@dataclass(frozen=True, kw_only=True)
class GuidedSettings(Objective, DeepSettings):
    """The settings of `BGPG`: those of its `Objective`, and how far behaviour moved.

    Attributes:
        gae_lambda: λ of the generalised advantage estimate.
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
    noise_color: Any = 0.0
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

    def _given(self, kind: type[Algorithm], *, limits_end: bool = False) -> dict[str, Any]:
        if not isinstance(self.actions, BoxActions):
            raise ValueError(
                f"{type(self).__name__} needs actions in a Box, got {self.action_space}: its "
                "penalty differentiates sampled actions; use OTTRPO for finite ones"
            )
        if weight_decay_of(self.policy_kwargs):
            raise ValueError(f"{type(self).__name__} has no weight_decay; use optimizer_class Adam")
        told = self.told
        smoothing = Smoothing(
            strength=told.smoothing,
            steps=told.dual_steps,
            learning_rate=told.dual_learning_rate,
            decay=told.dual_decay,
        )
        own = {"smoothing": smoothing, "by_sample": told.test_functions == "sample"}
        return super()._given(kind, limits_end=told.time_limits == "terminal") | own


@final
class BGPG(GuidedAgent):
    """Behaviour-guided policy gradient with Stable-Baselines3's interface.

    The defaults are those of the published experiments; docs/bgpg.md says where each comes from.
    """

    settings_type, algorithm_type = GuidedSettings, BehaviourGuided
