"""The paper's two candidates in every state: the mean, and the action that was drawn."""

from typing import Any, final

from ottrpo.engine.advantage import AdvantageNetwork
from ottrpo.engine.arrays import namespace
from ottrpo.engine.estimate import Experience

from .base import Plan, recorded
from .gaussian import CandidatesModel

Array = Any


@final
class Sample(CandidatesModel):
    """To stay at the mean gains nothing, to go to the sampled action its advantage."""

    name = "sample"
    advantages = ("gae",)

    def plan(
        self,
        batch: Experience,
        advantage_r: Array,
        radius: Array,
        network: AdvantageNetwork | None,
        draws: Any,
    ) -> Plan:
        """Two candidates: (paper, step 4, GAE)."""
        mean, action = recorded(batch, "mean", "action")
        return _pair_plan(self, batch, mean, action, advantage_r, radius)


@final
class Antithetic(CandidatesModel):
    """A bad action speaks for its mirror image, so that no sample is lost.

    To first order around the mean m the advantage is odd, A(m + δ) = −A(m − δ), so a negative
    advantage at a is a positive one at 2m − a.
    """

    name = "antithetic"
    advantages = ("gae",)

    def plan(
        self,
        batch: Experience,
        advantage_r: Array,
        radius: Array,
        network: AdvantageNetwork | None,
        draws: Any,
    ) -> Plan:
        """Two candidates, the better side of the mean."""
        mean, action = recorded(batch, "mean", "action")
        xp = namespace(mean)
        target = xp.where(advantage_r[:, None] >= 0, action, 2.0 * mean - action)
        return _pair_plan(self, batch, mean, target, xp.abs(advantage_r), radius)


def _pair_plan(
    model: CandidatesModel,
    batch: Experience,
    mean_rd: Array,
    target_rd: Array,
    gain_r: Array,
    radius: Array,
) -> Plan:
    xp = namespace(mean_rd)
    gain_rk = xp.stack([xp.zeros_like(gain_r), gain_r], axis=1)
    candidate_rkd = xp.stack([mean_rd, target_rd], axis=1)
    return model.towards(batch, gain_rk, candidate_rkd, xp.zeros_like(mean_rd)[:, None], radius)
