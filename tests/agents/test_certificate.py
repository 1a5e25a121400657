"""What an update says it spent is what the policy of raw observations has moved."""

import pytest
from stable_baselines3.common.callbacks import BaseCallback

from ottrpo import OTTRPO


class Stop(BaseCallback):
    """After some steps of a long training: its schedules are those of a long one."""

    def _on_step(self):
        return self.num_timesteps < 3 * 2048


@pytest.mark.parametrize("advantage", ["mixed", "gae"])
def test_no_update_leaves_the_region_whatever_the_normaliser_does(advantage):
    agent = OTTRPO("MlpPolicy", "Hopper-v5", advantage=advantage, seed=3)
    kind, told = type(agent.algorithm), []
    improve = kind.improve

    def watched(before, state, batch, draws, now):
        state, report = improve(agent.algorithm, before, state, batch, draws, now)
        flat = agent.algorithm.estimate.normaliser(state.observations, batch.raw)
        rows = {"flat": flat, "images": (), **agent.algorithm.model.region_rows(batch)}
        told.append((float(agent.algorithm.spent(state.networks.policy, rows)), report))
        return state, report

    vars(agent.algorithm)["improve"] = watched  # it is frozen
    agent.learn(1_000_000, callback=Stop())
    assert len(told) >= 2
    for spent, report in told:
        assert spent == pytest.approx(float(report["ot/spent"]), rel=1e-4)
        assert spent <= float(report["ot/radius"])
