"""Runs of several seeds in one program: those in environments of JAX.

Each seed has a run directory like any other. What they share is the program that trains them, and
the checkpoint, which lies with the first of them: so they go on together, bit for bit.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np

from ottrpo.collect.device import CULPRITS
from ottrpo.core.checks import NonFiniteError, require
from ottrpo.core.cost_data import cost_from_data
from ottrpo.device import make_train
from ottrpo.device.fleet import Fleet
from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Checkpoints, Saved, StopSignals, checkpoint_kind
from ottrpo.persistence.strict_json import decode, encode
from ottrpo.results.run_directory import RunDirectory

from .provenance import devices
from .recorder import Onlooker, Recorder, evaluation_seed
from .registry import agent_by_key
from .run import Stopped, Tell, manifest, spec_of
from .spec import RunSpec

Array = Any
TOGETHER = "together"  # in a manifest: the directories of those that were trained with a run
STRETCHES = 100  # of a training, at least: so often the host looks on
CHECKPOINTS = 20  # of a training, by default


@final
@dataclass(frozen=True)
class Seat:
    """A run after an update, as the recorder sees an agent.

    Attributes:
        num_timesteps: taken.
        last_update: what it told.
        returns: of its evaluations, by their seeds and ways to act.
    """

    num_timesteps: int
    last_update: Mapping[str, float]
    returns: Mapping[tuple[int, bool], Array]

    def evaluate(self, episodes: int, *, deterministic: bool, seed: int) -> Array:
        """Returns of whole episodes."""
        return self.returns[seed, deterministic]


@final
class Together:
    """Runs that differ in their seeds alone; see `ottrpo.experiments.training.Training`.

    Args:
        specs: what is run.
        watch: who looks on, at all of them as one.

    Raises:
        ValueError: if there is no such environment, or a setting can't be on a device.
    """

    directories: Sequence[RunDirectory]  # given when the program is made: it may find no room
    _recorders: Sequence[Recorder]
    _done: int  # updates

    def __init__(self, specs: Sequence[RunSpec], watch: Onlooker) -> None:
        self._specs, self._watch = specs, watch
        spec = self.spec = specs[0]
        settings = dict(spec.settings)
        if "cost" in settings:
            settings["cost"] = cost_from_data(settings["cost"])
        self.training = make_train(
            spec.environment,
            settings,
            total_timesteps=spec.steps,
            agent=agent_by_key(spec.agent_key).load(),
        )
        updates = self.training.loop.updates
        seeds = [each.seed for each in specs]
        self.fleet = Fleet(self.training, seeds, chunk=max(1, updates // STRETCHES))
        self._seats: dict[int, Seat] = {}  # after the last update

    def compile(self, tell: Tell, *, checkpoints: bool = True) -> None:
        """Make the program, and look whether there is room for it, before anything is written.

        Raises:
            ValueError: if it takes more memory than there is, or than a checkpoint may have.
        """
        size = self.fleet.size()
        require(
            not checkpoints or size < bundle.MAX_ARRAYS,
            f"a checkpoint would have {size:,} bytes, more than {bundle.MAX_ARRAYS:,}; take fewer "
            "seeds side by side or fewer n_envs, or --checkpoint-every 0",
        )
        tell("compiling ...")
        protocol = self.spec.protocol
        seconds = self.fleet.compile((len(protocol.deterministic), protocol.episodes))
        tell(f"compiled in {seconds:.1f} s; memory: {self.fleet.require_room()}")

    def go_on(self) -> None:
        """Train to the end.

        Raises:
            Stopped: by SIGTERM or Ctrl-C, when all is saved.
            NonFiniteError: in some of the runs something was no number; the others are finished.
        """
        asked = self.directories[0].manifest.get("checkpoints")
        marks = self.spec.protocol.marks(self.spec.steps)
        stops, due = self._stops(marks, asked["every"] if asked else None)
        with StopSignals() as stop:
            for before, done in pairwise([self._done, *(at for at in stops if at > self._done)]):
                if (self.fleet.broken() > 0).all():
                    break
                self._stretch(before, done, marks)
                if done == stops[-1]:
                    break
                if asked and (done in due or stop.asked is not None):
                    self._checkpoint(done)
                if stop.asked is not None:
                    raise Stopped(self._stopped(done, saved=bool(asked)), stop)
        self._finish()

    def agent(self, row: int) -> Any:
        """What one of the runs has learnt, as an ordinary agent."""
        return self.training.as_agent(self.fleet.state(row), self._specs[row].seed)

    # ------------------------------------------------------------------ inside

    def _stops(self, marks: Sequence[int], every: int | None) -> tuple[list[int], set[int]]:
        """After how many updates to look: now and then, at marks, and where checkpoints are due."""
        rows, updates = self.fleet.rows, self.training.loop.updates
        steps = range(0, updates * rows, max(every, rows)) if every else ()
        due = {-(-step // rows) for step in steps}
        now_and_then = range(0, updates, self.fleet.chunk)
        return sorted({*now_and_then, *(-(-mark // rows) for mark in marks), *due, updates}), due

    def _stretch(self, before: int, done: int, marks: Sequence[int]) -> None:
        """Train on, evaluate at the marks that were passed, and write it all down."""
        fleet, rows = self.fleet, self.fleet.rows
        told = fleet.advance(done - before)
        good = np.asarray(fleet.loops.train.progress.updates)
        passed = [mark for mark in marks if before * rows < mark <= done * rows]
        returns = [self._evaluated(mark) for mark in passed]
        for row, recorder in enumerate(self._recorders):
            found = {key: value for each in returns for key, value in each[row].items()}
            for update in range(before, min(done, int(good[row]))):
                report = {name: float(all_[row, update - before]) for name, all_ in told.items()}
                self._seats[row] = Seat((update + 1) * rows, report, found)
                recorder.after_update(self._seats[row])
        self._show(done * rows, told, passed, returns)

    def _evaluated(self, mark: int) -> list[dict[tuple[int, bool], Array]]:
        """The returns of every run, by the seeds that its recorder asks with."""
        protocol = self.spec.protocol
        ways = protocol.deterministic
        seeds = [[evaluation_seed(each.seed, mark, way) for way in ways] for each in self._specs]
        with ExitStack() as timing:
            for recorder in self._recorders:
                timing.enter_context(recorder.evaluating())
            returns = self.fleet.evaluate(seeds, [float(not w) for w in ways], protocol.episodes)
        return [
            {
                (seed, way): returns[row, i]
                for i, (seed, way) in enumerate(zip(each, ways, strict=True))
            }
            for row, each in enumerate(seeds)
        ]

    def _show(
        self, step: int, told: Mapping[str, Array], passed: Sequence[int], returns: Sequence[Any]
    ) -> None:
        last = {name: values[:, -1] for name, values in told.items()}
        self._watch.figures({name: float(np.mean(values)) for name, values in last.items()})
        for mark, each in zip(passed, returns, strict=True):
            for way in self.spec.protocol.deterministic:
                found = [v for row in each for (_, kind), v in row.items() if kind == way]
                record = {"timestep": step, "mark": mark, "deterministic": way}
                self._watch.evaluation(record | {"returns": np.concatenate(found).tolist()})
        self._watch.update(step)

    def _finish(self) -> None:
        """Save the agents; the checkpoint goes when all of them are there."""
        alive = self.fleet.broken() == 0
        for row, directory in enumerate(self.directories):
            if alive[row] and not directory.finished:
                self._recorders[row].finish(self._seats[row])
                self.agent(row).save(directory.agent_path)
        if not alive.all():
            raise NonFiniteError("; ".join(self._complaints()))
        self.directories[0].forget_checkpoints()

    def _complaints(self) -> list[str]:
        steps = np.asarray(self.fleet.loops.train.progress.steps)
        return [
            f"{spec.environment}, seed {spec.seed}: {CULPRITS[culprit - 1]} that is not finite in "
            f"the update after step {int(step):,}; that update is taken back, and the run ends "
            f"there ({directory.path})"
            for spec, directory, culprit, step in zip(
                self._specs, self.directories, self.fleet.broken(), steps, strict=True
            )
            if culprit
        ]

    def _stopped(self, done: int, *, saved: bool) -> str:
        path, step = self.directories[0].path, done * self.fleet.rows
        again = f"to go on: ottrpo resume {path}" if saved else "it has no checkpoints"
        return f"stopped at step {step:,} of {self.spec.steps:,}; {again}"

    # ------------------------------------------------------------------ checkpoints

    @property
    def _checkpoints(self) -> Checkpoints:
        kind = checkpoint_kind(type(self).__name__)
        return Checkpoints(self.directories[0].checkpoint_folder, kind)

    def _checkpoint(self, done: int) -> None:
        arrays: dict[str, Array] = {}
        loops = encode(self.fleet.arrays(), arrays, "fleet")
        data = {"loops": loops, "updates": done}
        data |= {"recorders": [recorder.state() for recorder in self._recorders]}
        self._checkpoints.write(done * self.fleet.rows, arrays, data)

    def restore(self, tell: Tell) -> bool:
        """Be where the last checkpoint was, or else at the start; whether there was one."""
        self._recorders = [
            Recorder(spec, directory, Onlooker())
            for spec, directory in zip(self._specs, self.directories, strict=True)
        ]

        def go_back(saved: Saved) -> int:
            self.fleet.restore(decode(saved.data["loops"], saved.arrays))
            for recorder, state in zip(self._recorders, saved.data["recorders"], strict=True):
                recorder.restore(state)
            return int(saved.data["updates"])

        done = self._checkpoints.newest(go_back)
        self._done = done or 0
        if done is not None:
            tell(f"going on from step {done * self.fleet.rows:,} of {self.spec.steps:,}")
            return True
        for directory in self.directories:
            directory.cut_logs({})
        self.fleet.begin()
        return False


def begun(
    specs: Sequence[RunSpec], paths: Sequence[Path], checkpoint_every: int | None
) -> list[RunDirectory]:
    """New directories, whose manifests know of each other; see `training.begin`."""
    every = checkpoint_every
    if every is None:
        every = max(1, specs[0].steps // CHECKPOINTS)
    kept = {"every": every, "mode": "exact", "reason": None} if every else None
    names = [path.name for path in paths]
    shared = {"checkpoints": kept, "devices": devices(), TOGETHER: names}
    return [
        RunDirectory.create(path, manifest(spec) | shared)
        for spec, path in zip(specs, paths, strict=True)
    ]


def found(directory: RunDirectory) -> list[RunDirectory]:
    """The directories of the runs that were trained together with one, itself among them.

    Raises:
        ValueError: if the others are not beside it.
    """
    names = directory.manifest.get(TOGETHER)
    plain = isinstance(names, list) and all(
        isinstance(name, str) and Path(name).name == name for name in names
    )
    if not isinstance(names, list) or not plain or not names:
        raise ValueError(f"{directory.path} does not say what it was trained together with")
    return [directory] if len(names) == 1 else [_beside(directory, name) for name in names]


def _beside(directory: RunDirectory, name: str) -> RunDirectory:
    path = directory.path.parent / name
    require(path.is_dir(), f"{directory.path} was trained together with {path}, which is not there")
    other = RunDirectory.open(path)
    own, others = (asdict(spec_of(each.manifest)) | {"seed": 0} for each in (directory, other))
    same = own == others and other.manifest.get(TOGETHER) == directory.manifest.get(TOGETHER)
    require(same, f"{path} is not what {directory.path} was trained together with")
    return other
