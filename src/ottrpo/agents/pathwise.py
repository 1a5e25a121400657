"""The rivals that follow critics along a Wasserstein gradient, on the engine of OT-TRPO.

    WPOGradient("MlpPolicy", "Pendulum-v1", seed=0).learn(50_000)
    WPPG("MlpPolicy", "Pendulum-v1", seed=0).learn(50_000)

The first is Wasserstein policy optimisation of Pfau et al., which is not the tabular `WPO` of Song
et al.; the second Wasserstein proximal policy gradient of Zhu et al.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from ottrpo.engine.algorithms.base import Algorithm
from ottrpo.engine.algorithms.wpo_gradient import WassersteinFlow
from ottrpo.engine.algorithms.wppg import ProximalTransport
from ottrpo.engine.spaces import BoxActions

from .base import DeepAgent
from .ottrpo import OTTRPO
from .settings import DeepSettings


@dataclass(frozen=True, kw_only=True)
class PathwiseSettings(DeepSettings):
    """The settings that `WPOGradient` and `WPPG` share.

    Attributes:
        learning_rate: of policy and value function; a number or a schedule.
        n_steps: steps per environment between updates.
        batch_size: states per gradient step, of critics, policy and value function.
        n_epochs: passes of the value function over a rollout.
        max_grad_norm: gradients of policy and value function are clipped to this norm.
        gae_lambda: λ of the returns that the value function learns; callbacks see them.
        n_samples: actions that are drawn in each state.
        buffer_size: steps of all environments that are kept.
        critic_ratio: gradient steps per step of the environments, of critics and policy alike.
        steps_ahead: of the returns that the critics learn.
    """

    positional: ClassVar[tuple[str, ...]] = (
        *("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "vf_coef"),
        "max_grad_norm",
    )
    fixed: ClassVar[tuple[str, ...]] = (*DeepSettings.fixed, "buffer_size")
    instead: ClassVar[Mapping[str, str]] = {
        **DeepSettings.instead,
        "normalize_advantage": "it follows critics, not advantages; see normalize_reward",
        **dict.fromkeys(
            ("clip_range", "clip_range_vf"),
            "nothing is clipped where the slope of critics is followed; see learning_rate",
        ),
        "ent_coef": "exploration is set by noise_color and policy_kwargs=dict(log_std_init=...)",
    }

    n_steps: int = 256
    batch_size: int = 128
    n_samples: int = 4
    buffer_size: int = 131_072
    critic_ratio: float = 0.25
    steps_ahead: int = 3


class PathwiseAgent(DeepAgent):
    """An agent without a trust region, that follows critics; subclasses say how."""

    told: PathwiseSettings
    LOG_STD_INIT: ClassVar[float] = OTTRPO.LOG_STD_INIT

    def _given(self, kind: type[Algorithm], *, limits_end: bool = False) -> dict[str, Any]:
        name = type(self).__name__
        if not isinstance(self.actions, BoxActions):
            raise ValueError(
                f"{name} needs actions in a Box, got {self.action_space}: it follows the slope of "
                "Q in the action; use OTTRPO for finite ones"
            )
        if self.layout.images:
            raise ValueError(f"{name} keeps no images; use OTTRPO with advantage 'gae'")
        kept = {"rollouts": self._window(self.told.buffer_size)}
        return super()._given(kind, limits_end=limits_end) | kept


@final
@dataclass(frozen=True, kw_only=True)
class WPOGradientSettings(PathwiseSettings):
    """The settings of `WPOGradient`.

    Attributes:
        kl_mean: weight of the divergence between the means of the old policy and of the new.
        kl_std: weight of the divergence between their standard deviations.
    """

    kl_mean: float = 0.07
    kl_std: float = 1.0


@final
class WPOGradient(PathwiseAgent):
    """Wasserstein policy optimisation of Pfau et al., with Stable-Baselines3's interface."""

    settings_type, algorithm_type = WPOGradientSettings, WassersteinFlow
    told: WPOGradientSettings


@final
@dataclass(frozen=True, kw_only=True)
class WPPGSettings(PathwiseSettings):
    """The settings of `WPPG`.

    Attributes:
        step: η of the proximal step.
        temperature: τ, weight of the entropy; the heat step blurs actions by a variance of 2ητ.
        prox_steps: iterations of the proximal map; with 1 actions follow the slope at their start.
    """

    step: float = 1.0
    temperature: float = 1e-3
    prox_steps: int = 1


@final
class WPPG(PathwiseAgent):
    """Wasserstein proximal policy gradient of Zhu et al., with Stable-Baselines3's interface."""

    settings_type, algorithm_type = WPPGSettings, ProximalTransport
    told: WPPGSettings
