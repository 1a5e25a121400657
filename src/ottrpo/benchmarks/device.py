"""Training where the simulation runs: ours and Brax's own PPO in one process, one after the other.

Both train in the same environment for the same number of steps, each with its own settings: ours
are the configuration `device`, Brax's those that its authors publish. Times are of training once it
runs; compilation and evaluations are told apart. What is known is written down at once, so that a
measurement that is cut off is not lost.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar, NamedTuple

import tyro

from ottrpo.core.checks import require, require_one_of
from ottrpo.envs import functional
from ottrpo.experiments import provenance
from ottrpo.experiments.registry import agent_by_key
from ottrpo.experiments.spec import merge, parse_overrides, read_configuration
from ottrpo.persistence.bundle import write_atomically

from .device_trainings import (
    SIMULATED,
    SMALL,
    Budget,
    Moment,
    brax_ppo,
    brax_settings,
    our_fleet,
    ours,
    seeds_together,
    simulated,
)
from .harness import Benchmark, Figures, Row, tell

BRAX, SIMULATION = "brax-ppo", "simulation"
OURS = ("ottrpo", "clipped-ppo")
ENVIRONMENTS = ("brax:halfcheetah", "brax:ant")
EPISODES = 128  # of an evaluation, as many as Brax has


def figures_of(curve: Sequence[Row]) -> Row:
    """Speed once it runs, and what came before: compilation, by when the first stretch was done.

    The first stretch counts as compilation as far as it was longer than the others.
    """
    stretches = [
        (after["steps"] - before["steps"], after["training"] - before["training"])
        for before, after in pairwise(curve)
    ]
    running = stretches[1:] or stretches
    steps, seconds = (sum(column) for column in zip(*running, strict=True))
    usual = median(taken / count for count, taken in running) * stretches[0][0]
    return {
        "steps": curve[-1]["steps"],
        "steps_per_s": steps / seconds,
        "compile_s": curve[0]["at_s"] + max(stretches[0][1] - usual, 0.0),
        "all_s": curve[-1]["at_s"],
        "score": curve[-1]["returned"],
        "best": max(moment["returned"] for moment in curve),
    }


def against_brax(figures: Figures) -> list[Row]:
    """Of each of ours and each environment: how it compares with Brax's PPO.

    The score is the one that Brax's PPO has at its end, the median of its seeds; the time is that
    of the training, evaluations and compilation not counted, until a seed has it.
    """
    rows: list[Row] = []
    for env_id in dict.fromkeys(row["environment"] for row in figures.get("training", [])):
        theirs = _of(figures, env_id, BRAX)
        if not theirs.speeds:
            continue
        score = median(curve[-1]["returned"] for curve in theirs.curves)
        for name in OURS:
            own = _of(figures, env_id, name)
            if own.speeds:
                times = own.time_to(score), theirs.time_to(score)
                rows.append(
                    {
                        "environment": env_id,
                        "who": name,
                        "seeds": f"{len(own.curves)} against {len(theirs.curves)}",
                        "speed_ratio": median(own.speeds) / median(theirs.speeds),
                        "score": median(curve[-1]["returned"] for curve in own.curves),
                        "score_of_brax": score,
                        "seconds_to_it": times[0],
                        "seconds_of_brax": times[1],
                        "time_ratio": times[0] / times[1] if times[0] and times[1] else None,
                    }
                )
    return rows


class Measured(NamedTuple):
    """The trainings of one contender in one environment."""

    speeds: list[float]
    curves: list[list[dict[str, float]]]

    def time_to(self, score: float) -> float | None:
        """Seconds of training until the score, the median of seeds; ``None`` if most never do.

        Steps at each seed's usual speed: Brax's own clock has compilation in it.
        """
        found = median(
            next((at["steps"] / speed for at in curve if at["returned"] >= score), math.inf)
            for speed, curve in zip(self.speeds, self.curves, strict=True)
        )
        return found if math.isfinite(found) else None


def _of(figures: Figures, env_id: str, who: str) -> Measured:
    asked = {"environment": env_id, "who": who}
    speeds = [row["steps_per_s"] for row in figures["training"] if asked.items() <= row.items()]
    finished = [each for each in figures["curves"] if asked.items() <= each.items()][: len(speeds)]
    return Measured(speeds, [each["curve"] for each in finished])


@dataclass(frozen=True, kw_only=True)
class Device(Benchmark):
    """Training on an accelerator: ours, PPO's loss on the same engine, and Brax's own PPO."""

    titles: ClassVar = {
        SIMULATION: "the bare simulation, random actions",
        "training": "training once it runs, without evaluations; compilation apart",
        "against_brax": "ours beside Brax's PPO: speed, and the time until its last score",
        "seeds": "several seeds in one program",
    }

    envs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ENV")] = ENVIRONMENTS
    """which environments, of Brax"""
    who: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")] = (SIMULATION, *OURS, BRAX)
    """what is measured, in this order"""
    steps: int = 50_000_000
    """environment steps of each training; quickly 4,096"""
    evaluations: int = 10
    """stretches of a training, each followed by an evaluation"""
    seconds: float = 600.0
    """of a training, evaluations not counted, after which it ends with its stretch"""
    runs: Annotated[tuple[int, ...], tyro.conf.arg(metavar="SEED")] = (0,)
    """a training of each with each of these seeds, one after the other"""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N")] = ()
    """how long so many seeds take in one program; the first is what the others are compared with"""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """settings of ours, laid over the configuration"""
    out: Path | None = None
    """a folder for device.json, written anew after every part"""

    def __post_init__(self) -> None:
        for name in self.who:
            require_one_of(name, (SIMULATION, *OURS, BRAX), "measured here")
        for env_id in self.envs:
            require(functional.family_of(env_id) == "brax", f"{env_id!r} is not of Brax")
        require(self.evaluations >= 2, f"--evaluations must be 2 or more, got {self.evaluations}")

    def measure(self) -> Figures:
        """One after the other; what is known is written down at once."""
        figures: Figures = {
            "hardware": provenance.hardware() | {"devices": provenance.devices()},
            "versions": provenance.versions() | {"brax": version("brax")},
            "commit": provenance.commit(),
        }
        for env_id in self.envs:
            for name in self.who:
                tell(f"{env_id}: {name}")
                if name == SIMULATION:
                    self._keep(figures, SIMULATION, self._simulation(env_id))
                else:
                    self._train(figures, name, env_id)
            if self.seeds:
                settings, updates = self._settings("ottrpo", env_id), 2 if self.quick else 10
                for row in seeds_together(env_id, settings, self.seeds, updates):
                    self._keep(figures, "seeds", row)
        return figures

    def _simulation(self, env_id: str) -> Row:
        n_envs = self._settings("ottrpo", env_id)["n_envs"]
        return simulated(env_id, n_envs, 4 if self.quick else SIMULATED)

    def _train(self, figures: Figures, name: str, env_id: str) -> None:
        """Train with every seed; every moment is written down."""
        began = time.perf_counter()
        budget = Budget(self.steps, self.evaluations, EPISODES, self.seconds)
        if self.quick:
            budget = budget._replace(steps=4096, episodes=4)
        if name == BRAX:
            settings = brax_settings(env_id, small=self.quick)
            train = partial(brax_ppo, env_id, settings)
        else:
            settings = self._settings(name, env_id)
            train = partial(ours, our_fleet(env_id, name, settings, budget))
        for seed in self.runs:
            about = {"environment": env_id, "who": name, "seed": seed}
            curve: list[Row] = []
            self._keep(figures, "curves", about | {"settings": settings, "curve": curve})
            train(seed, budget, partial(self._note, figures, curve, began))
            self._keep(figures, "training", about | figures_of(curve))
            began = time.perf_counter()

    def _note(self, figures: Figures, curve: list[Row], began: float, moment: Moment) -> None:
        curve.append({"at_s": time.perf_counter() - began, **vars(moment)})
        self._write(figures)

    def _settings(self, agent: str, env_id: str) -> dict[str, Any]:
        configuration = read_configuration(agent_by_key(agent).config_folder, "device")
        settings = merge(configuration.settings_for(env_id), parse_overrides(self.set))
        return settings | (SMALL if self.quick else {})

    def _keep(self, figures: Figures, key: str, row: Row) -> None:
        figures.setdefault(key, []).append(row)
        if compared := against_brax(figures):
            figures["against_brax"] = compared
        self._write(figures)

    def _write(self, figures: Figures) -> None:
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            write_atomically(self.out / "device.json", json.dumps(figures, indent=2).encode())
