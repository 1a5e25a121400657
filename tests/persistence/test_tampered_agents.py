"""Agents whose files have sound checksums and were made to deceive: told in one line."""

import io
import json
import sys

import numpy as np
import pytest

from ottrpo import BGPG, OTTRPO, WNPG, WPO, TabularOTTRPO
from ottrpo.agents.sb3 import A2C, PPO, TRPO
from ottrpo.cli import main
from ottrpo.persistence import bundle

from . import hostile

SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "seed": 0}
GIANT_BOX = {"kind": "box", "shape": [10**6, 10**6], "dtype": "float32", "low": -1, "high": 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Arrays and data of an honest file of each kind."""
    agents = [
        TabularOTTRPO("FrozenLake-v1", initial_q=2.0),
        WPO("FrozenLake-v1", initial_q=2.0),
        OTTRPO("MlpPolicy", "Pendulum-v1", **SMALL, policy_kwargs={"net_arch": [8]}),
    ]
    folder = tmp_path_factory.mktemp("saved")
    for agent in agents:
        agent.save(folder / type(agent).__name__)
    return {
        type(agent).__name__: (type(agent), *bundle.read(folder / type(agent).__name__, name))
        for agent in agents
        for name in [type(agent).__name__]
    }


def told(content, tmp_path, capsys):
    """What `ottrpo evaluate` says about a file; it must be one line and exit code 2."""
    path = tmp_path / "agent.zip"
    path.write_bytes(content)
    capsys.readouterr()
    assert main(["evaluate", str(path), "--episodes", "1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def changed(data, path, value):
    """A copy with something else at a path like ``settings.gamma``."""
    copy = json.loads(json.dumps(data))
    *holders, last = path.split(".")
    inner = copy
    for key in holders:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copy


DEEP = {
    "state": ...,
    "state.rng": {"bit_generator": "MT19937"},
    "state.num_timesteps": "many",
    "settings": [],
    "settings.gamma": 7,
    "settings.evil": 1,
    "settings.tensorboard_log": "/tmp/evil",
    "settings.policy_kwargs": {"net_arch": [10**6, 10**6]},
    "settings.cost": {"kind": "os.system"},
    "policy": "os.system",
    "observation_space": GIANT_BOX,
    "observation_space.shape": [4],
    "observation_space.dtype": "O",
    "observation_space.kind": "pickle",
    "action_space": {"kind": "dict", "spaces": {str(i): GIANT_BOX for i in range(3)}},
    "environment": "evil_module:Env-v0",
}
TABULAR = {
    "seed": -1,
    "settings.radius": "import os",
    "settings.evil": 1,
    "environment": {"id": "evil_module:Env-v0", "kwargs": {}},
    "environment.id": "Pendulum-v1",
    "environment.kwargs": {"evil": 1},
    "simulator": None,
    "update_rng": {"bit_generator": "PCG64", "state": "x"},
    "num_timesteps": {},
}


@pytest.mark.parametrize("path", DEEP)
def test_tampered_data_of_a_deep_agent(path, saved, tmp_path, capsys):
    _, arrays, data = saved["OTTRPO"]
    told(hostile.honest("OTTRPO", arrays, changed(data, path, DEEP[path])), tmp_path, capsys)


@pytest.mark.parametrize("agent_class", [BGPG, WNPG, PPO, TRPO, A2C])
def test_other_agents_are_not_built_larger_than_they_were_saved_either(
    agent_class, tmp_path, capsys
):
    name = agent_class.__name__
    agent_class("MlpPolicy", "Pendulum-v1", n_steps=32, seed=0).save(tmp_path / name)
    arrays, data = bundle.read(tmp_path / name, name)
    giants = {"settings.policy_kwargs": {"net_arch": [10**6, 10**6]}}
    if "n_features" in data["settings"]:
        giants["settings.n_features"] = 10**9
    for path, giant in giants.items():
        content = hostile.honest(name, arrays, changed(data, path, giant))
        assert "the bundle describes" in told(content, tmp_path, capsys)
    content = hostile.honest(name, arrays, changed(data, "settings.tensorboard_log", "/tmp/evil"))
    assert "tensorboard_log" in told(content, tmp_path, capsys)


@pytest.mark.parametrize("name", ["TabularOTTRPO", "WPO"])
@pytest.mark.parametrize("path", TABULAR)
def test_tampered_data_of_a_tabular_agent(path, name, saved, tmp_path, capsys):
    _, arrays, data = saved[name]
    told(hostile.honest(name, arrays, changed(data, path, TABULAR[path])), tmp_path, capsys)


@pytest.mark.parametrize("how", ["nan", "infinite", "missing", "turned", "integers", "longer"])
@pytest.mark.parametrize("name", ["TabularOTTRPO", "WPO", "OTTRPO"])
def test_tampered_arrays(name, how, saved, tmp_path, capsys):
    _, arrays, data = saved[name]
    assert len(arrays) > 2
    for which in arrays:
        old = arrays[which]
        new = {
            "nan": lambda old=old: np.full_like(old, np.nan, dtype=np.float64),
            "infinite": lambda old=old: np.full_like(old, -np.inf, dtype=np.float64),
            "turned": lambda old=old: old[None].T,
            "integers": lambda old=old: np.full(old.shape, 7, np.int16),
            "longer": lambda old=old: np.concatenate([old.reshape(-1)] * 2),
        }.get(how)
        rest = {n: array for n, array in arrays.items() if n != which}
        content = hostile.forged(name, rest | ({which: new()} if new else {}), data)
        if how == "integers" and (which in ("q", "count") or old.dtype.kind == "i"):
            continue  # whole numbers are values like any other
        if how == "longer" and which == "rewards.return":
            continue  # of another number of environments
        told(content, tmp_path, capsys)


def test_a_file_can_t_make_us_import_a_module(saved, tmp_path, monkeypatch, capsys):
    """As if it came with a program beside it, and we stood in that directory."""
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    _, arrays, data = saved["OTTRPO"]
    content = hostile.honest("OTTRPO", arrays, data | {"environment": "evil_module:Env-v0"})
    assert "opening a file must not import 'evil_module'" in told(content, tmp_path, capsys)
    _, arrays, data = saved["WPO"]
    spec = {"id": "evil_module:Env-v0", "kwargs": {}}
    content = hostile.honest("WPO", arrays, data | {"environment": spec})
    assert "opening a file must not import 'evil_module'" in told(content, tmp_path, capsys)
    run = tmp_path / "run"
    run.mkdir()
    (run / "agent.zip").write_bytes(content)
    manifest = {"agent": "wpo", "agent_key": "wpo", "environment": "evil_module:Env-v0"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert main(["evaluate", str(run)]) == 2
    assert "must not import" in capsys.readouterr().err
    assert "evil_module" not in sys.modules
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("trick", ["pickle", "half", "version 2", "bomb", "JSON: deep lists"])
def test_every_agent_tells_what_is_wrong_with_a_file(trick, saved, tmp_path, capsys):
    content = hostile.corpus(tmp_path / "ran")[trick]
    assert "is no bundle of ours, or it is damaged: " in told(content, tmp_path, capsys)
    for agent_class, _, _ in saved.values():
        for place in (tmp_path / "agent.zip", io.BytesIO(content)):
            with pytest.raises(ValueError, match="is no bundle of ours, or it is damaged: "):
                agent_class.load(place)
    assert not (tmp_path / "ran").exists()


def test_kinds_are_not_mixed_up(saved, tmp_path, capsys):
    for name, (agent_class, arrays, data) in saved.items():
        for other in saved.keys() - {name}:
            content = hostile.honest(other, arrays, data)
            with pytest.raises(ValueError, match=f"holds a {other}, not a {name}"):
                agent_class.load(io.BytesIO(content))
    content = hostile.honest("<script>", {}, {})
    assert "holds a '<script>', which is no agent here" in told(content, tmp_path, capsys)


def test_honest_files_are_evaluated(saved, tmp_path, capsys):
    for name, (_, arrays, data) in saved.items():
        (tmp_path / "agent.zip").write_bytes(hostile.honest(name, arrays, data))
        for path in ("agent.zip", "agent"):
            assert main(["evaluate", str(tmp_path / path), "--episodes", "1", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["episodes"] == 1
