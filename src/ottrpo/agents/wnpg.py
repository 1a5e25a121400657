"""WNPG: Wasserstein natural policy gradient, BGPG's loss along a kernelised natural gradient.

    WNPG("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Moskovitz et al., Efficient Wasserstein Natural Gradients for Reinforcement Learning (2021).
"""

from typing import final

from ottrpo.engine.algorithms.wnpg import WassersteinNatural

from .guided import GuidedAgent
from .settings import WNPGSettings


@final
class WNPG(GuidedAgent):
    """Wasserstein natural policy gradient with Stable-Baselines3's interface.

    The defaults are those of the published experiments; docs/wnpg.md says where each comes from.
    """

    settings_type = WNPGSettings
    told: WNPGSettings

    def _algorithm(self) -> WassersteinNatural:
        return WassersteinNatural(
            n_basis=self.told.n_basis,
            kernel_bandwidth=self.told.kernel_bandwidth,
            damping=self.told.damping,
            damping_rule=self.told.damping_rule,
            norm_rule=self.told.norm_rule,
            singular_tolerance=self.told.singular_tolerance,
            optimiser=self.told.optimizer,
            **self._shared(),
        )
