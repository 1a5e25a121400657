"""Inputs nobody would think of, for everything that reads a file.

    python -m tests.persistence.fuzz --minutes 10

Hypothesis draws them, and a plain random generator many more: honest files with edits, files with
sound checksums around edited or invented contents, and agents whose saved data was tampered with.
A reader may refuse with one line, or return exactly what an honest writer must have meant; anything
else is told with the shortest input that shows it.
"""

import argparse
import io
import json
import math
import time
import warnings
from functools import cache

import numpy as np
from hypothesis import strategies as st

from ottrpo.experiments import registry
from ottrpo.persistence import bundle, strict_json
from ottrpo.persistence.checkpoints import Checkpoints, checkpoint_kind
from ottrpo.persistence.lock import NAME, DirectoryLock
from ottrpo.persistence.strict_json import global_randomness, set_global_randomness

from . import fuzz_texts, hostile
from .fuzzing import (
    COUNTS,
    SLOW,
    SLOW_ONES,
    TARGETS,
    edited,
    edits,
    folder,
    fuzzed,
    leaves,
    require_one_line,
    run,
    values,
)

__all__ = ["SLOW_ONES", "TARGETS", "fuzz_texts", "run"]

HONEST = hostile.honest()
INSIDE = hostile.members()


def read(content):
    """What the reader returns, or None where it refuses as it should."""
    began = time.process_time()
    try:
        return bundle.read(io.BytesIO(content), hostile.KIND)
    except bundle.BundleError as refusal:
        require_one_line(refusal)
        return None
    finally:
        assert time.process_time() - began < SLOW


# ---------------------------------------------------------------- the readers


@fuzzed(edits)
def whole_files(plan):
    content = edited(HONEST, plan)
    assert (read(content) is None) == (content != HONEST)


@fuzzed(st.binary(max_size=300))
def anything(content):
    assert read(content) is None


@fuzzed(edits)
def edited_data(plan):
    text = edited(INSIDE["data.json"], plan)
    found = read(hostile.assembled(data=text))
    if found is not None:
        _require_same(found[1], json.loads(text, object_hook=_float_from))


@fuzzed(values)
def invented_data(value):
    try:
        text = json.dumps(value).encode()
    except ValueError:
        return
    found = read(hostile.assembled(data=text))
    if found is not None:
        _require_same(found[1], json.loads(text, object_hook=_float_from))
    if isinstance(value, dict) and "__float__" not in str(value):
        ours = read(hostile.assembled(data=strict_json.dumps(value)))
        assert ours is not None, "an honest value is refused"
        _require_same(ours[1], value)


@fuzzed(edits)
def edited_arrays(plan):
    content = edited(INSIDE["arrays.safetensors"], plan)
    found = read(hostile.assembled(arrays=content))
    if found is not None:
        assert sum(array.nbytes for array in found[0].values()) <= len(content)


entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*bundle.DTYPES, "BF16", "O", "f8"]) | leaves,
        "shape": st.lists(st.integers(0, 5), max_size=3) | st.lists(values, max_size=3) | values,
        "data_offsets": st.lists(st.integers(0, 64), min_size=2, max_size=2) | values,
    }
)
headers = st.dictionaries(st.text(max_size=6), entries | values, max_size=3)


@fuzzed(headers, st.binary(max_size=64), st.none() | st.integers(0, 2**64 - 1))
def invented_arrays(header, body, claimed):
    try:
        content = hostile.tensors(header, body, claimed)
    except ValueError:
        return
    found = read(hostile.assembled(arrays=content))
    if found is not None:
        assert found[0].keys() == header.keys()
        assert sum(array.nbytes for array in found[0].values()) == len(body)


@fuzzed(edits | st.dictionaries(st.sampled_from(["format", "kind", "sha256", "x"]), values))
def descriptions(plan):
    if isinstance(plan, dict):
        try:
            content = hostile.assembled(**plan)
        except ValueError:
            return
    else:
        about = edited(INSIDE["bundle.json"], plan)
        content = bundle.pack(INSIDE | {"bundle.json": about})
    found = read(content)
    assert found is None or found[1] == hostile.DATA


@fuzzed(st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
def locks(content):
    path = folder() / NAME
    path.write_bytes(content)
    try:
        with DirectoryLock(folder()):
            pass
    except ValueError as refusal:
        require_one_line(refusal)


@fuzzed(edits)
def checkpoints(plan):
    kept = Checkpoints(folder() / "checkpoints", hostile.KIND)
    if not kept.folder.exists():
        for step in (1, 2):
            kept.write(step, hostile.ARRAYS, hostile.DATA)
        _whole_newest.append((kept.folder / "step-000000000000002.zip").read_bytes())
    content = edited(_whole_newest[0], plan)
    (kept.folder / "step-000000000000002.zip").write_bytes(content)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = kept.newest(lambda saved: saved)
    changed = content != _whole_newest[0]
    assert (found.step, len(told)) == ((1, 1) if changed else (2, 0))


_whole_newest: list[bytes] = []


# ---------------------------------------------------------------- the agents


def _agent(name):
    (entry,) = (entry for entry in registry.agents() if entry.class_name == name)
    if entry.finite:
        return entry.load()("FrozenLake-v1", initial_q=2.0)
    settings = {"n_steps": 32, "policy_kwargs": {"net_arch": [4]}}
    return entry.load()("MlpPolicy", "Pendulum-v1", seed=0, **settings)


@cache
def _saved(name):
    """The class of an agent, and the arrays and data of its honest file."""
    agent = _agent(name)
    agent.save(folder() / name)
    return type(agent), *bundle.read(folder() / name, name)


@cache
def _stopped(name):
    """The class of an agent, and the arrays and data of its honest checkpoint."""
    agent = _agent(name).learn(32)
    return type(agent), *agent.snapshot()


def _places(value, path=()):
    """The path of everything inside a value."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:3]):
            yield from _places(inner, (*path, index))


def _with(value, path, new):
    """The value with something else at a path; nothing there if it is ``...``."""
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is ...:
        del changed[path[0]]
    else:
        changed[path[0]] = _with(changed[path[0]], path[1:], new)
    return changed


absurd = st.sampled_from(
    [..., 0, -1, 10**9, 2**64, math.nan, math.inf, "", "os:system-v0", [], {}, [10**6] * 3, None]
)


@fuzzed(st.data())
def agents(data):
    name = data.draw(st.sampled_from([entry.class_name for entry in registry.agents()]), "agent")
    agent_class, arrays, saved = _saved(name)
    path = data.draw(st.sampled_from([p for p in _places(saved) if p]), "place")
    tampered = _with(saved, path, data.draw(absurd | values, "value"))
    changed = dict(arrays)
    if data.draw(st.booleans(), "arrays too"):
        which = data.draw(st.sampled_from(sorted(arrays)), "array")
        new = data.draw(st.sampled_from([None, math.nan, 1, "int", "axis"]), "how")
        changed = _tampered_arrays(changed, which, new)
    try:
        content = hostile.forged(name, changed, tampered)
    except ValueError:
        return
    (folder() / "tampered.zip").write_bytes(content)
    try:
        loaded = agent_class.load(folder() / "tampered.zip")
    except ValueError as refusal:
        COUNTS["agents refused"] += bool(str(refusal))
    else:
        COUNTS["agents accepted"] += 1
        for array in loaded.get_parameters().values():
            assert np.isfinite(array).all()


@fuzzed(st.data())
def resumed(data):
    name = data.draw(st.sampled_from(["TabularOTTRPO", "OTTRPO"]), "agent")
    agent_class, arrays, state = _stopped(name)
    path = data.draw(st.sampled_from([p for p in _places(state) if p]), "place")
    tampered = _with(state, path, data.draw(absurd | values, "value"))
    where = folder() / "resumed"
    try:
        Checkpoints(where, checkpoint_kind(name)).write(1, arrays, {"agent": tampered})
    except ValueError:
        return
    before = global_randomness()
    try:
        agent_class.resume(where)
    except ValueError as refusal:
        COUNTS["resumed refused"] += bool(str(refusal))
    else:
        COUNTS["resumed accepted"] += 1
    finally:
        set_global_randomness(before)


def _tampered_arrays(arrays, which, how):
    old = arrays.pop(which)
    if how is None:
        return arrays
    new = {"int": lambda: np.zeros(old.shape, np.int8), "axis": lambda: old[None]}.get(how)
    return arrays | {which: np.full(old.shape, how) if new is None else new()}


# ---------------------------------------------------------------- running it


def _float_from(made):
    if set(made) == {"__float__"}:
        return float(made["__float__"])
    return made


def _require_same(found, meant):
    assert json.dumps(found, sort_keys=True) == json.dumps(meant, sort_keys=True)


def main():
    """Fuzz for some minutes and tell how many inputs were tried."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", nargs="*", choices=TARGETS)
    options = parser.parse_args()
    began = time.monotonic()
    counts = run(60 * options.minutes, seed=options.seed, only=options.only)
    for name, count in counts.items():
        print(f"{name:<16} {count:>10,}")
    took = (time.monotonic() - began) / 60
    print(f"{'all':<16} {sum(counts.values()):>10,} inputs in {took:.1f} minutes, none misread")


if __name__ == "__main__":
    main()
