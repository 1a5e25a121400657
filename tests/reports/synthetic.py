"""Results that no run has made: as many as a test needs, with the numbers it wants."""

import hashlib
import json

import numpy as np

MARKS = [*range(5, 91, 5), *range(91, 101)]  # per cent of training, as for continuous control


def cell(environment="Hopper-v5", agent="ottrpo", config="default", label="", **more):
    return {
        "environment": environment,
        "agent": agent,
        "config": config,
        "label": label,
        "steps": None,
        "settings": {},
        "resolved": {"radius": "30%"},
        "trained_steps": 1_000_000,
        **more,
    }


def name_of(table):
    parts = (table["environment"], table["agent"], table["label"] or table["config"])
    return "__".join(part.replace("/", "-").replace(" ", "-") for part in parts)


def write_study(folder, cells, *, seeds=10, score=1000.0, spread=50.0, **manifest):
    """A study's folder; ``score`` is a number or one per cell, each seed lies ``spread`` about it.

    A cell of which ``trained_steps`` is None has no runs. Cells may come by name.
    """
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    tables, runs = {}, ["cell,seed,steps,updates,violations,train_seconds"]
    named = cells if isinstance(cells, dict) else {name_of(table): table for table in cells}
    for i, (name, table) in enumerate(named.items()):
        steps = table["trained_steps"]
        level = score[i] if isinstance(score, list) else score
        tables[name] = table | {"seeds": list(range(seeds)) if steps else []}
        if steps is None:
            continue
        lines = ["seed,mark,timestep,deterministic,train_seconds,returns"]
        for seed in range(seeds):
            end = level + spread * rng.standard_normal()
            for percent in MARKS:
                mark = steps * percent // 100
                mean = end * min(1.0, percent / 50)
                for way in (1, 0):
                    returns = " ".join(f"{mean - 10 * (1 - way):.6g}" for _ in range(10))
                    lines.append(f"{seed},{mark},{mark},{way},1.5,{returns}")
            runs.append(f"{name},{seed},{steps},100,{seed % 2},{60 + seed}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "runs.csv").write_text("\n".join(runs) + "\n")
    about = {"study": folder.name, "description": "made for a test", "cells": tables}
    (folder / "manifest.json").write_text(json.dumps(about | manifest))
    return seal(folder)


def seal(folder):
    """Take the checksums of all tables, as `collect` does; the folder."""
    sums = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.csv")
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"sha256": sums}))
    return folder
