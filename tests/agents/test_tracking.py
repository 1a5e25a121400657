"""The page on trackers tells the truth: its programs run, with stand-ins for the trackers."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tracking.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture
def logged(monkeypatch, tmp_path):
    """What the stand-ins are told: numbers, step."""
    monkeypatch.chdir(tmp_path)
    told = []

    @contextmanager
    def start_run():
        yield

    def log(numbers, step):
        told.append((numbers, step))

    wandb, mlflow = ModuleType("wandb"), ModuleType("mlflow")
    wandb.init = lambda **about: SimpleNamespace(log=log, finish=lambda: told.append("finished"))
    mlflow.start_run, mlflow.log_metrics = start_run, log
    mlflow.log_artifact = lambda path: told.append(Path(path).stat().st_size > 0)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return told


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_every_update_is_told(logged, tracker):
    (program,) = (block for block in BLOCKS if f"import {tracker}" in block)
    exec(compile(BLOCKS[0] + program, str(PAGE), "exec"), {"__name__": "page"})
    *updates, last = logged
    assert last in ("finished", True)
    assert [step for _, step in updates] == [512, 1024]
    for numbers, _ in updates:
        assert numbers["ot/radius"] == pytest.approx(0.4)
        assert {"ot/spent", "ot/violation", "time/total_timesteps"} <= set(numbers)
