"""How fast runs would be that were never measured: a guess.

``speeds.toml`` holds what every agent's training took us, with its default settings and without
the environment's share, beside how long a small loop took on the same machine. Here the loop is
timed again, and the environment is stepped for a moment. The table is what
``python -m ottrpo.experiments.pace`` prints.
"""

import sys
import time
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import final

import numpy as np

from ottrpo.envs import catalogue
from ottrpo.envs.stepping import Clock, step_seconds
from ottrpo.threads import default_to_one_thread

from .registry import AgentEntry, agents
from .spec import RunSpec

TABLE = Path(__file__).parent / "speeds.toml"
CONTINUOUS, FINITE = "Pendulum-v1", "FrozenLake-v1"
# Long enough that what is done once does not count.
TRAINED_STEPS = 20_000
PLAYED_EPISODES = 10
# Steps of an environment that are timed, and rounds of the loop: enough for others who use the
# machine to make themselves felt.
STEPS, ROUNDS = 1_000, 20_000


@final
@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of one agent, without the environment's.

    Attributes:
        start: until the first update is done: building, compiling.
        train: per step of training.
        play: per step of an evaluation of ten episodes.
    """

    start: float
    train: float
    play: float


def guessed_seconds(spec: RunSpec) -> float | None:
    """How long a run will take; None if nothing is known of its agent."""
    table = _table()
    if spec.agent_key not in table["agents"]:
        return None
    pace = Pace(**table["agents"][spec.agent_key])
    finite = spec.agent_key in {entry.key for entry in agents() if entry.finite}
    stepping = 0.0 if finite else _stepping(spec.environment)
    played = _played_steps(spec)
    ours = pace.start + spec.steps * pace.train + played * pace.play
    return ours * _machine() + (spec.steps + played) * stepping


def loop_seconds(clock: Clock = time.perf_counter) -> float:
    """What tells machines apart: small arrays and plain Python, as in a run."""
    weight = np.random.default_rng(0).standard_normal((64, 64))
    total, row = 0.0, np.ones(64)
    began = clock()
    for i in range(ROUNDS):
        row = np.tanh(weight @ row)
        total += float(row[0]) * (i % 7)
    return clock() - began


def measured(entry: AgentEntry) -> Pace:
    """What an agent takes on this machine, in seconds of its process."""
    from .run import build_agent, plan_run

    environment = FINITE if entry.finite else CONTINUOUS
    spec = plan_run(environment, agent=entry.name, steps=TRAINED_STEPS)
    stepping = 0.0 if entry.finite else step_seconds(environment, STEPS, time.process_time)
    began = time.process_time()
    agent = build_agent(spec)
    agent.learn(1)
    start, first = time.process_time() - began, agent.num_timesteps
    began, before = time.process_time(), 0 if not entry.finite else first
    agent.learn(TRAINED_STEPS)
    train = (time.process_time() - began) / (agent.num_timesteps - before)
    agent.evaluate(PLAYED_EPISODES)
    began = time.process_time()
    agent.evaluate(PLAYED_EPISODES)
    play = (time.process_time() - began) / (PLAYED_EPISODES * _longest_episode(environment))
    return Pace(
        start=max(0.0, start - first * train),
        train=max(0.0, train - stepping),
        play=max(0.0, play - stepping),
    )


@cache
def _table() -> dict[str, dict[str, dict[str, float]]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


@cache
def _machine() -> float:
    """How much longer things take here than where the table was made."""
    return loop_seconds() / _table()["machine"]["loop"]  # type: ignore[operator]


@cache
def _stepping(environment: str) -> float:
    return step_seconds(environment, STEPS)


def _played_steps(spec: RunSpec) -> int:
    """Of all evaluations, at most."""
    protocol = spec.protocol
    episodes = protocol.episodes * len(protocol.marks(spec.steps)) * len(protocol.deterministic)
    return episodes * _longest_episode(spec.environment)


@cache
def _longest_episode(environment: str) -> int:
    env = catalogue.make(environment, disable_env_checker=True)
    found = None if env.spec is None else env.spec.max_episode_steps
    env.close()
    return found or catalogue.DEFAULT_CAP


def main() -> None:
    """Print the table, as measured on this machine."""
    lines = ["[machine]", f"loop = {loop_seconds(time.process_time):.3g}"]
    for entry in agents():
        lines += ["", f"[agents.{entry.key}]"]
        lines += [f"{name} = {value:.2g}" for name, value in asdict(measured(entry)).items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    default_to_one_thread()
    main()
