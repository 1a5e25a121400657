"""WNPG: Wasserstein natural policy gradient, BGPG's loss along a kernelised natural gradient.

    WNPG("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Moskovitz et al., Efficient Wasserstein Natural Gradients for Reinforcement Learning (2021).
"""

from dataclasses import dataclass
from typing import ClassVar, final

from ottrpo.engine.algorithms.wnpg import Natural, WassersteinNatural

from .guided import GuidedAgent, GuidedSettings


@final
@dataclass(frozen=True, kw_only=True)
class WNPGSettings(Natural, GuidedSettings):
    """The settings of `WNPG`: those of `BGPG`, and how the natural gradient is found.

    Attributes:
        max_grad_norm: natural gradients longer than this are shortened; see ``norm_rule``.
    """

    fixed: ClassVar[tuple[str, ...]] = (*GuidedSettings.fixed, "damping", "optimizer")


@final
class WNPG(GuidedAgent):
    """Wasserstein natural policy gradient with Stable-Baselines3's interface.

    The defaults are those of the published experiments; docs/wnpg.md says where each comes from.
    """

    settings_type, algorithm_type = WNPGSettings, WassersteinNatural
    told: WNPGSettings
