"""WNPG: Wasserstein natural policy gradient, BGPG's loss along a kernelised natural gradient.

    WNPG("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Moskovitz et al., Efficient Wasserstein Natural Gradients for Reinforcement Learning (2021).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from ottrpo.engine.algorithms.natural_gradient import Bandwidth, DampingRule, NormRule
from ottrpo.engine.algorithms.wnpg import WassersteinNatural

from .guided import GuidedAgent, GuidedSettings


@final
@dataclass(frozen=True, kw_only=True)
class WNPGSettings(GuidedSettings):
    """The settings of `WNPG`: those of `BGPG`, and how the natural gradient is found.

    Attributes:
        max_grad_norm: natural gradients longer than this are shortened; see ``norm_rule``.
        n_basis: basis points of the kernel, drawn anew from each minibatch.
        kernel_bandwidth: ``squared``: the mean squared distance to the basis points; ``root``: its
            square root.
        damping: ε at the start.
        damping_rule: ``shrink``, as published: it only ever shrinks; ``two-sided``: it also grows
            when steps reduce the loss by less than expected; ``fixed``.
        norm_rule: what becomes of a natural gradient longer than ``max_grad_norm``: ``unit``, as
            published: it is rescaled to length 1; ``clip``: to ``max_grad_norm``.
        singular_tolerance: directions of the kernel's Gram matrix below this share of the largest
            are left out.
        optimizer: what follows the natural gradient: ``adam``, ``momentum`` or ``sgd``.
    """

    fixed: ClassVar[tuple[str, ...]] = (*GuidedSettings.fixed, "damping", "optimizer")

    n_basis: int = 5
    kernel_bandwidth: Bandwidth = "squared"
    damping: float = 1e-5
    damping_rule: DampingRule = "shrink"
    norm_rule: NormRule = "unit"
    singular_tolerance: float = 0.0
    optimizer: Literal["adam", "momentum", "sgd"] = "adam"


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
