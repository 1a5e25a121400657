"""Edited and invented texts for every reader of one: runs, logs, studies, problems, results."""

import json
import time

from hypothesis import strategies as st

from ottrpo.cli.problem_files import read_problem, solve_report
from ottrpo.experiments import study
from ottrpo.persistence import strict_json
from ottrpo.results import reading
from ottrpo.results.layout import METRICS, read_object
from ottrpo.results.run_directory import RunDirectory, last_records, returns_of
from ottrpo.results.study_folder import checksum

from .fuzzing import COUNTS, SLOW, edited, edits, folder, fuzzed, require_one_line, values

MANIFEST = {
    **{"environment": "Taxi-v4", "agent": "ottrpo", "agent_key": "ottrpo", "config": "default"},
    **{"seed": 3, "steps": 1000, "settings": {"radius": 0.1}, "label": "", "versions": {"a": "1"}},
}
EVALUATION = {"mark": 10, "timestep": 12, "deterministic": True, "returns": [1.0, -2.5]}
STUDY = b"""description = "two cells"
seeds = 2
first_seed = 10
[[cells]]
environments = ["CliffWalking-v1", "Taxi-v4"]
config = "default"
steps = 1000
[[cells]]
environments = ["Taxi-v4"]
[cells.vary]
radius = [0.1, 0.2]
"""
PROBLEMS = [
    {
        **{"weight_r": [0.5, 0.5], "gain_rk": [[0, 1, 2], [3, 1, 0.5]]},
        **{"cost_rk": [[0, 1, 1], [0, 2, 1]], "radius": 0.25},
    },
    {
        **{"policy": [[0.5, 0.5]], "occupancy": [1.0], "q": [[0.0, 1.0]]},
        **{"cost": "binary", "radius": 0.1},
    },
    {"gradient_rd": [[1.0, 2.0], [0.5, -1.0]], "radius": 0.3},
]
CELL = "CliffWalking-v1__ottrpo__default"
TABLE = "seed,mark,timestep,deterministic,train_seconds,returns\n" + "".join(
    f"{seed},{step},{step},0,0.5,-13 -14.5\n" for seed in (1, 2) for step in (10, 20)
)
RUNS = "cell,seed,steps,updates,violations,train_seconds,wall_seconds\n" + "".join(
    f"{CELL},{seed},20,4,0,1.5,2.5\n" for seed in (1, 2)
)

scalars = st.sampled_from(
    [None, True, -1, 0, 1e308, -1e-308, 10**400, "", "x", "\x1b[2J", [], {}, [[]], "nan", "1e999"]
)


def refused(name, reader, *arguments):
    """What the reader returns, or None where it refuses in one line; both in time."""
    began = time.process_time()
    try:
        found = reader(*arguments)
    except ValueError as refusal:
        require_one_line(refusal)
        COUNTS[f"{name} refused"] += 1
        return None
    finally:
        assert time.process_time() - began < SLOW
    COUNTS[f"{name} accepted"] += 1
    return found


def dumped(value):
    """As JSON; None for what has no text, as half of a surrogate pair."""
    try:
        return json.dumps(value).encode()
    except ValueError:
        return None


def written(name, content):
    path = folder() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


@fuzzed(edits)
def manifests(plan):
    content = edited(json.dumps(MANIFEST).encode(), plan)
    path = written("run/manifest.json", content)
    found = refused("manifests", RunDirectory.open, path.parent)
    if found is not None:
        assert json.dumps(found.manifest) == json.dumps(strict_json.loads(content))
    refused("objects", read_object, path)


@fuzzed(edits)
def logs(plan):
    """A whole line is what was written, or is refused; half a line is none."""
    honest = "".join(json.dumps(EVALUATION | {"mark": i}) + "\n" for i in range(4)).encode()
    content = edited(honest, plan)
    path = written(f"run/{METRICS}", content)
    written("run/manifest.json", json.dumps(MANIFEST).encode())
    found = refused("logs", RunDirectory.open(path.parent).metrics)
    last = last_records(path)
    if found is not None:
        assert len(found) == content.count(b"\n")
        assert last == found
        for record in found:
            refused("evaluations", returns_of, record)


@fuzzed(values | scalars, st.none() | st.integers(0, 3))
def evaluations(value, episodes):
    record = {**EVALUATION, "returns": value}
    found = refused("evaluations", returns_of, record, episodes)
    if found is not None:
        assert all(abs(number) < float("inf") for number in found)
    refused("evaluations", returns_of, value)


@fuzzed(edits)
def studies(plan):
    path = written("studies/fuzzed.toml", edited(STUDY, plan))
    found = refused("studies", study.load_study, path)
    if found is not None:
        assert sum(cell.seeds for cell in found.cells) <= study.MAX_RUNS


@fuzzed(edits)
def problems(plan):
    for honest in PROBLEMS:
        _solve(edited(json.dumps(honest).encode(), plan))


@fuzzed(st.sampled_from(PROBLEMS), st.data(), values | scalars)
def invented_problems(problem, data, value):
    key = data.draw(st.sampled_from(sorted(problem)), "key")
    content = dumped(problem | {key: value})
    if content is not None:
        _solve(content)


def _solve(content):
    problem = refused("problems", lambda: read_problem(strict_json.loads(content)))
    if problem is None:
        return
    told = refused("solutions", solve_report, problem)
    if told is not None:
        json.dumps(told, allow_nan=False)
        limit = getattr(problem, "dual", problem).radius
        assert told["spent"] <= limit


@fuzzed(edits, st.sampled_from(["manifest", "table", "runs", "sealed table", "sealed runs"]))
def results(plan, which):
    """Edited tables are refused; with sound checksums they are understood or refused."""
    contents = {f"{CELL}.csv": TABLE.encode(), "runs.csv": RUNS.encode()}
    sums = {name: checksum(content) for name, content in contents.items()}
    name = {"table": f"{CELL}.csv", "runs": "runs.csv"}.get(which.removeprefix("sealed "))
    changed = False
    if name is not None:
        content = edited(contents[name], plan)
        changed = content != contents[name]
        contents[name] = content
        if which.startswith("sealed"):
            sums[name], changed = checksum(content), False
    cell = {
        **{"environment": "CliffWalking-v1", "agent": "ottrpo", "config": "default", "label": ""},
        **{"trained_steps": 20, "seeds": [1, 2], "planned_seeds": 2, "resolved": {}},
    }
    manifest = json.dumps({"study": "s", "description": "d", "cells": {CELL: cell}, "sha256": sums})
    text = manifest.encode()
    for name, content in contents.items():
        written(f"results/{name}", content)
    path = written("results/manifest.json", edited(text, plan) if which == "manifest" else text)
    found = refused("results", reading.read_study, path.parent)
    assert not (changed and found is not None)
