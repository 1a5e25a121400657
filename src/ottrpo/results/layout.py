"""Where things lie.

runs/STUDY/CELL/seedN       a run of a study; STUDY-N-steps if its length was changed
runs/STUDY/CELL/seedN.log   what its process printed
results/STUDY               what is kept of a study
"""

from pathlib import Path
from typing import Any

from ottrpo.persistence import strict_json
from ottrpo.persistence.bundle import RUN_AGENT, read_plain
from ottrpo.persistence.checkpoints import FOLDER

RUNS_ROOT = Path("runs")
TRIALS_ROOT = RUNS_ROOT / "trials"
RESULTS_ROOT = Path("results")
PUBLISHED = Path(__file__).parent.parent / "published"

MANIFEST = "manifest.json"
# of a run
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
LOGS = (METRICS, EVALUATIONS)
AUDIT = "audit.json"
AGENT = Path(RUN_AGENT).stem
CHECKPOINTS = FOLDER
# of a study
RUNS = "runs.csv"
AUDITS = "audits.csv"


def elsewhere(results: Path) -> str:
    """What to add where ``results`` lack something: one's own hide the published ones."""
    own = results not in (PUBLISHED, Path(PUBLISHED.name))
    return f" (what came with ottrpo: --results {PUBLISHED.name})" if own else ""


def runs_folder(study: str, steps: int | None) -> Path:
    """Where the runs of a study are; those of another length are elsewhere."""
    return RUNS_ROOT / (study if steps is None else f"{study}-{steps}-steps")


def run_path(runs: Path, cell: str, seed: int) -> Path:
    """The directory of one run among the ``runs`` of a study."""
    return runs / cell / f"seed{seed}"


def cell_of(run: Path) -> str:
    """The name of the cell that a run of a study belongs to."""
    return run.parent.name


def log_of(run: Path) -> Path:
    """What a run's process prints; beside the directory, which belongs to the run alone."""
    return run.with_name(f"{run.name}.log")


def run_directories(path: Path) -> list[Path]:
    """The runs in ``path``: itself, the seeds of a cell, or the cells of a study with theirs."""
    if (path / MANIFEST).is_file():
        return [path]
    return sorted(
        manifest.parent
        for pattern in (f"*/{MANIFEST}", f"*/*/{MANIFEST}")
        for manifest in path.glob(pattern)
    )


def default_out(*, seeds: int | None, steps: int | None) -> Path:
    """Where results go: a shortened study must not replace what is published."""
    if steps is not None:
        return TRIALS_ROOT / f"{steps}-steps"
    return RESULTS_ROOT if seeds is None else TRIALS_ROOT


def read_object(path: Path) -> dict[str, Any]:
    """The one JSON object in a file that may come from a stranger.

    Raises:
        ValueError: if it can't be read, or is something else.
    """
    try:
        found = strict_json.loads(read_plain(path, strict_json.MAX_BYTES))
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold one JSON object")
    return found
