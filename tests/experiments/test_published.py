"""The paper's printed numbers, and what can be read off them (docs/errata.md)."""

import csv

import pytest

from ottrpo.envs.catalogue import CATALOGUE, CLIFF_WALKING_CAP
from ottrpo.experiments.published import TABLES, trained_score
from ottrpo.experiments.registry import agent_by_key

ENVIRONMENTS = [entry.env_id for entry in CATALOGUE if entry.paper_id]


def table(name):
    with open(TABLES / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_names_an_environment_of_the_paper():
    known = {entry.paper_id for entry in CATALOGUE if entry.paper_id}
    for name in ("tab_trained_scores", "tab_computationaltime"):
        rows = table(name)
        assert {row["environment"] for row in rows} <= known
        assert len({(row["environment"], row["algorithm"]) for row in rows}) == len(rows)


def test_published_scores_are_found_by_todays_names():
    assert trained_score("CliffWalking-v1", "ottrpo").score == -14
    assert trained_score("Taxi-v4", "wpo").score == -65
    assert trained_score("HalfCheetah-v5", "ppo").score == 5078
    assert trained_score("CartPole-v1", "ottrpo") is None
    assert trained_score("Hopper-v5", "wpo") is None
    assert all(trained_score(env_id, "ottrpo") for env_id in ENVIRONMENTS)


def test_the_printed_spread_is_not_over_seeds():
    # A2C on CliffWalking prints -512 ± 0. Nine runs at the optimum, -13, and one that never
    # arrives, -5001, have exactly this mean, but a spread over runs of almost 1500.
    runs = [-13.0] * 9 + [-float(CLIFF_WALKING_CAP)]
    mean = sum(runs) / len(runs)
    over_seeds = (sum((run - mean) ** 2 for run in runs) / len(runs)) ** 0.5
    printed = trained_score("CliffWalking-v1", "a2c")
    assert round(mean) == printed.score == -512
    assert printed.spread == 0
    assert over_seeds == pytest.approx(1496.4)


def test_ppo_never_reaches_the_goal_of_cliff_walking():
    # -1 a step and no fall: the goal was not reached in 5001 steps
    assert trained_score("CliffWalking-v1", "ppo").score == -CLIFF_WALKING_CAP


def test_the_claim_on_swimmer_is_against_the_paper_s_own_trpo():
    ours, trpo = (trained_score("Swimmer-v5", name).score for name in ("ottrpo", "trpo"))
    assert ours / trpo == pytest.approx(1.50, abs=0.01)
    gamma = next(r for r in table("tab_continuous_hyperparameters") if r["parameter"] == "gamma")
    assert float(gamma["Swimmer-v3"]) == 0.999  # and TRPO's discount is not printed


def test_normalisation_must_be_said_by_name():
    # the table's one word `normalize` could mean any of three settings, so it is none of ours
    known = agent_by_key("ottrpo").known_settings()
    assert {"normalize_advantage", "normalize_obs", "normalize_reward"} <= set(known)
    assert "normalize" not in known
    rows = {row["parameter"]: row for row in table("tab_continuous_hyperparameters")}
    assert rows["normalize"]["Swimmer-v3"] == "false"
    assert rows["sde_sample_freq"]["Swimmer-v3"] == "-1"
