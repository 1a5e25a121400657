"""Train one agent on one environment, measure it by protocol, and keep the run."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, final

from gymnasium import spaces

from ottrpo.core.checks import require, require_one_of
from ottrpo.envs import catalogue
from ottrpo.envs.functional import family_of
from ottrpo.persistence.checkpoints import (
    Checkpoints,
    Keeper,
    Saved,
    StopSignals,
    checkpoint_kind,
)
from ottrpo.persistence.snapshot import Snapshot, segment_line
from ottrpo.results.run_directory import RunDirectory, same_settings
from ottrpo.terminal import say

from . import provenance
from .protocol import Protocol, protocol_named
from .recorder import Onlooker, Recorder
from .registry import agent_by_key, agent_for, agents, configurations
from .spec import (
    DEFAULT,
    RunSpec,
    merge,
    nested,
    read_configuration,
    require_types,
)

Tell = Callable[[str], None]
ON_DEVICE = "device"  # the configuration, and the protocol, in environments of JAX


def plan_run(
    environment: str,
    *,
    agent: str = "ottrpo",
    config: str | Path | None = None,
    seed: int = 0,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    protocol: str | None = None,
) -> RunSpec:
    """Resolve what the user asked for into a run.

    Args:
        environment: a Gymnasium id, also a retired one, or the name of an environment of JAX.
        agent: its name.
        config: one of its configurations, or the path of a file of one's own; by default
            ``default``, in environments of JAX ``device``.
        seed: of everything random in training.
        steps: of training; what the configuration says by default.
        settings: laid over the configuration.
        protocol: when and how it is evaluated; by default as the paper did, in environments of
            JAX ``device``.

    Raises:
        ValueError: if the environment, the agent, the configuration or a setting is unknown.
    """
    on_device = is_functional(environment)
    finite = not on_device and _is_finite(environment)
    config = config or (ON_DEVICE if on_device else DEFAULT)
    name = catalogue.resolve(environment)
    entry = agent_for(agent, name, finite=finite)
    if on_device:
        able = [each.name for each in agents() if ON_DEVICE in configurations(each)]
        require_one_of(agent, able, "an agent that is trained in environments of JAX")
    configuration = read_configuration(entry.config_folder, config)
    merged = merge(configuration.settings_for(name), nested(settings or {}))
    known = entry.known_settings()
    for key in merged:
        require_one_of(key, sorted(known), f"a setting of {agent}")
    require_types(merged, {key: known[key].annotation for key in merged})
    entry.require_settings(merged)
    total = configuration.steps_for(name) if steps is None else steps
    if total is None:
        raise ValueError(f"the configuration {config!r} says no steps for {name}; give --steps N")
    return RunSpec(
        environment=name,
        asked_environment=environment,
        agent=agent,
        agent_key=entry.key,
        config=configuration.name,
        settings=merged,
        seed=seed,
        steps=total,
        protocol=protocol_named(protocol or (ON_DEVICE if on_device else "paper"), finite=finite),
    )


def build_agent(spec: RunSpec) -> Any:
    """The agent of ``spec``, untrained.

    Raises:
        ValueError: if a setting has a value that the agent refuses.
    """
    return agent_by_key(spec.agent_key).build(spec.environment, spec.settings, spec.seed)


def manifest(spec: RunSpec, agent: Any = None, checkpoint_every: int = 0) -> dict[str, Any]:
    """What is written down before a run starts.

    Args:
        spec: the run.
        agent: who trains, if its run has checkpoints.
        checkpoint_every: steps between checkpoints; 0 for none.
    """
    return {
        **asdict(spec),
        "resolved": agent_by_key(spec.agent_key).resolve(spec.settings),
        "checkpoints": _checkpoints(agent, checkpoint_every),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
        "arithmetic": provenance.arithmetic(),
        "commit": provenance.commit(),
    }


def _checkpoints(agent: Any, every: int) -> dict[str, Any] | None:
    if not every or not isinstance(agent, Snapshot):
        return None
    reason = agent.why_not_exact()
    return {"every": every, "mode": "exact" if reason is None else "segment", "reason": reason}


def train(spec: RunSpec, agent: Any, directory: RunDirectory, watch: Onlooker) -> None:
    """Train ``agent`` by ``spec`` and write what happens into ``directory``.

    Checkpoints are written as its manifest says. Whoever calls this holds the directory's lock.

    Raises:
        Stopped: by SIGTERM or Ctrl-C, when all is saved.
        NonFiniteError: something became NaN or infinite; the last checkpoint is good.
    """
    run = Run(spec, agent, directory, watch)
    run.restore(say)
    run.go_on()


@final
class Run:
    """A run in progress; see `ottrpo.experiments.training.Training`.

    Args:
        spec: what was asked for.
        agent: who trains, untrained.
        directory: where it is kept.
        watch: who looks on.
    """

    def __init__(self, spec: RunSpec, agent: Any, directory: RunDirectory, watch: Onlooker) -> None:
        self.spec, self._agent = spec, agent
        self.directories: Sequence[RunDirectory] = [directory]
        self._recorder = Recorder(spec, directory, watch)

    def agent(self, row: int) -> Any:
        """Who trains."""
        return self._agent

    def restore(self, tell: Tell) -> bool:
        """Be where the last checkpoint was, or else at the start; whether there was one."""
        agent, (directory,) = self._agent, self.directories
        asked = directory.manifest.get("checkpoints")
        if asked and asked["reason"] is not None:  # seeded anew at every checkpoint: another run
            tell(segment_line(asked["reason"]))
        kind = checkpoint_kind(type(agent).__name__)

        def go_back(checkpoint: Saved) -> bool:
            agent.restore(checkpoint.arrays, checkpoint.data["agent"])
            self._recorder.restore(checkpoint.data["recorder"])
            return True

        if Checkpoints(directory.checkpoint_folder, kind).newest(go_back):
            tell(f"going on from step {agent.num_timesteps:,} of {self.spec.steps:,}")
            return True
        directory.cut_logs({})
        return False

    def go_on(self) -> None:
        """Train until the end, save the agent, and let the checkpoints go."""
        agent, (directory,) = self._agent, self.directories
        remaining = self.spec.steps - int(agent.num_timesteps)
        # agents on tables always count on
        finite = agent_by_key(self.spec.agent_key).finite
        counting = {} if finite else {"reset_num_timesteps": agent.num_timesteps == 0}
        with self._looking_on(directory) as after_update, agent.telling(after_update):
            if remaining > 0:  # else it was killed between its last update and the end
                agent.learn(remaining, **counting)
        self._recorder.finish(agent)
        agent.save(directory.agent_path)
        directory.forget_checkpoints()

    @contextmanager
    def _looking_on(self, directory: RunDirectory) -> Iterator[Callable[[Any], bool]]:
        """What happens after every update: records, checkpoints, and stopping when asked to."""
        asked = directory.manifest.get("checkpoints")
        if not asked:
            yield self._recorder.after_update
            return

        def after_update(agent: Any) -> bool:
            self._recorder.after_update(agent)
            if agent.num_timesteps < self.spec.steps:
                keeper.after_update(agent)
                if stop.asked is not None:
                    raise Stopped(
                        f"stopped at step {agent.num_timesteps:,} of {self.spec.steps:,}; to go "
                        f"on: ottrpo resume {directory.path}",
                        stop,
                    )
            return True

        folder, every = directory.checkpoint_folder, asked["every"]
        with StopSignals() as stop:
            extra = lambda: {"recorder": self._recorder.state()}  # noqa: E731
            keeper = Keeper(self._agent, folder, every, stop, extra)
            yield after_update


class Stopped(Exception):
    """Training was asked to stop, and everything that was done is saved."""

    def __init__(self, message: str, stop: StopSignals) -> None:
        super().__init__(message)
        self.stop = stop


def spec_of(manifest: Mapping[str, Any]) -> RunSpec:
    """The run that a manifest describes.

    Raises:
        ValueError: if it describes none.
    """
    try:
        # JSON knows no tuples
        protocol: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in manifest["protocol"].items()
        }
        names = [field.name for field in fields(RunSpec) if field.name != "protocol"]
        return RunSpec(**{name: manifest[name] for name in names}, protocol=Protocol(**protocol))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the manifest does not describe a run: {error!r}") from error


def describes(manifest: Mapping[str, Any], spec: RunSpec) -> bool:
    """Whether a manifest is of ``spec``; settings that came into being since do not count."""
    asked = json.loads(json.dumps(asdict(spec)))  # JSON knows no tuples
    if any(manifest.get(key) != value for key, value in asked.items()):
        return False
    resolved = json.loads(json.dumps(agent_by_key(spec.agent_key).resolve(spec.settings)))
    return same_settings(manifest.get("resolved") or {}, resolved)


def load_agent(directory: RunDirectory) -> Any:
    """The trained agent of a run."""
    require(
        directory.finished,
        f"{directory.path} holds no trained agent: the run has not finished; to go on with it: "
        f"ottrpo resume {directory.path}",
    )
    entry = agent_by_key(str(directory.manifest.get("agent_key")))
    env = directory.manifest["environment"]
    # thousands side by side are a matter of training
    one = catalogue.make(env) if is_functional(env) else env
    return entry.load().load(directory.agent_path, env=one)


def is_functional(environment: str) -> bool:
    """Whether it is one of JAX: then runs are trained by `together`."""
    return family_of(environment) is not None


@cache  # making an environment is not for free, and some print while they are made
def _is_finite(environment: str) -> bool:
    env = catalogue.make(environment)
    try:
        both = (env.observation_space, env.action_space)
        return all(isinstance(space, spaces.Discrete) for space in both)
    finally:
        env.close()


def default_directory(spec: RunSpec, root: Path) -> Path:
    """A new directory under ``root``: what is trained, and when."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    parts = (spec.environment, spec.agent, spec.config, f"seed{spec.seed}", stamp)
    return root / "__".join(part.replace("/", "-").replace(":", "-") for part in parts)
