import pytest

from ottrpo.core import Binary
from ottrpo.experiments import run as runner
from ottrpo.reports.statistics import trained_scores
from ottrpo.results.reading import run_curves
from ottrpo.results.run_directory import RunDirectory


class Watch:
    def __init__(self):
        self.timesteps, self.records = [], []

    def update(self, timestep):
        self.timesteps.append(timestep)

    def evaluation(self, record):
        self.records.append(record)


def trained(path, **options):
    spec = runner.plan_run("CliffWalking-v1", agent="counting", **options)
    directory = RunDirectory.create(path, runner.manifest(spec))
    agent, watch = runner.build_agent(spec), Watch()
    runner.train(spec, agent, directory, watch)
    return spec, agent, directory, watch


def test_a_plan_takes_settings_from_file_environment_and_overrides_in_this_order(counting):
    plan = runner.plan_run("Taxi-v3", agent="counting")
    assert (plan.environment, plan.asked_environment) == ("Taxi-v4", "Taxi-v3")
    assert (plan.settings, plan.steps) == ({"stride": 30}, 600)
    assert runner.plan_run("CliffWalking-v1", agent="counting").settings == {"stride": 7}
    plan = runner.plan_run(
        "Taxi-v4",
        agent="counting",
        config="slow",
        steps=5,
        settings={"stride": 2, "cost": "binary"},
    )
    assert (plan.settings, plan.steps) == ({"stride": 2, "cost": "binary"}, 5)
    agent = runner.build_agent(plan)
    assert (agent.stride, agent.cost) == (2, Binary())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"environment": "Nope-v1"}, "can't be made"),
        ({"agent": "countin"}, "did you mean 'counting'"),
        ({"config": "slo"}, "did you mean 'slow'"),
        ({"settings": {"strid": 3}}, "did you mean 'stride'"),
        ({"settings": {"seed": 3}}, "not a setting"),
        ({"settings": {"env": "x"}}, "not a setting"),
        ({"steps": 0}, "steps must be a whole number from 1 on, got 0"),
        ({"seed": -1}, "seed must be a whole number from 0 on, got -1"),
        ({"environment": "Hopper-v5"}, "Discrete"),
    ],
)
def test_a_plan_refuses_what_is_unknown(counting, options, complaint):
    options = {"environment": "CliffWalking-v1", "agent": "counting", **options}
    with pytest.raises(ValueError, match=complaint):
        runner.plan_run(options.pop("environment"), **options)


def test_every_mark_is_evaluated_by_the_first_update_that_passes_it(counting, tmp_path):
    spec, _, directory, watch = trained(tmp_path)
    evaluations = directory.evaluations()
    assert spec.steps == 1000
    assert [e["mark"] for e in evaluations] == list(range(10, 1001, 10))
    assert all(0 <= e["timestep"] - e["mark"] < 7 for e in evaluations)
    assert all(e["returns"] == [float(e["timestep"])] * 10 for e in evaluations)
    assert watch.timesteps == list(range(7, 1002, 7))
    assert len(watch.records) == len(evaluations)
    # 91..100 per cent: ten evaluations, at the first multiples of 7 from 910 on
    last = [7 * -(-mark // 7) for mark in range(910, 1001, 10)]
    curves = run_curves([directory])[False]
    assert trained_scores(curves.mark_t, curves.return_nt, 1000).score_n == sum(last) / 10


def test_an_update_that_passes_several_marks_is_evaluated_for_each(counting, tmp_path):
    _, agent, directory, _ = trained(tmp_path, settings={"stride": 400})
    timesteps = [(e["mark"], e["timestep"]) for e in directory.evaluations()]
    assert timesteps == [(m, 400 * -(-m // 400)) for m in range(10, 1001, 10)]
    assert len(set(agent.evaluation_seeds)) == 100


def test_an_agent_that_stops_early_is_still_evaluated_at_the_end(counting, tmp_path, monkeypatch):
    import counting_agent

    monkeypatch.setattr(counting_agent.CountingAgent, "learn", lambda self, *a, **k: self)
    _, _, directory, _ = trained(tmp_path)
    assert [(e["mark"], e["timestep"]) for e in directory.evaluations()] == [(1000, 0)]


def test_updates_are_logged_with_the_count_of_violations(counting, tmp_path):
    _, _, directory, _ = trained(tmp_path)
    metrics = directory.metrics()
    assert metrics[0] == metrics[0] | {"timestep": 7, "update": 1, "violations": 1, "ot/spent": 0.5}
    # 143 updates; those at odd multiples of 7 violate
    assert (metrics[-1]["update"], metrics[-1]["violations"]) == (143, 72)
    assert [m["update"] for m in metrics] == list(range(1, 144))


def test_a_long_run_logs_some_of_its_updates_and_always_the_last(counting, tmp_path):
    _, _, directory, _ = trained(tmp_path, steps=20_002, settings={"stride": 3})
    updates = [m["update"] for m in directory.metrics()]
    assert updates[-1] == 6668  # 20,004 steps
    assert 900 < len(updates) < 1100
    assert updates == sorted(set(updates))


def test_evaluation_seeds_differ_by_mark_and_by_seed_and_repeat(counting, tmp_path):
    seeds = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        _, agent, _, _ = trained(tmp_path / name, seed=seed)
        seeds[name] = agent.evaluation_seeds
    assert seeds["a"] == seeds["b"]
    assert len(set(seeds["a"] + seeds["c"])) == 200


def test_the_manifest_says_what_was_run_with_what(counting, tmp_path):
    _, _, directory, _ = trained(tmp_path, seed=5, settings={"cost": "binary"})
    manifest = RunDirectory.open(directory.path).manifest
    assert manifest["settings"] == {"stride": 7, "cost": "binary"}
    assert (manifest["environment"], manifest["agent"], manifest["seed"]) == (
        "CliffWalking-v1",
        "counting",
        5,
    )
    assert manifest["protocol"]["episodes"] == 10
    assert manifest["versions"]["numpy"]
    assert manifest["hardware"]["cores"] >= 1


def test_a_run_can_be_loaded_again_once_it_has_finished(counting, tmp_path):
    _, agent, directory, _ = trained(tmp_path / "done")
    loaded = runner.load_agent(RunDirectory.open(directory.path))
    assert (loaded.num_timesteps, loaded.env) == (agent.num_timesteps, "CliffWalking-v1")
    spec = runner.plan_run("CliffWalking-v1", agent="counting")
    unfinished = RunDirectory.create(tmp_path / "new", runner.manifest(spec))
    with pytest.raises(ValueError, match="has not finished"):
        runner.load_agent(unfinished)
