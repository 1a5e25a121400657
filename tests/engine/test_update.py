import equinox as eqx
import jax
import numpy as np
import optax
import pytest

from ottrpo.engine.algorithms.ottrpo import actor_critic_loss
from ottrpo.engine.models.linear import towards_displaced_gaussian
from ottrpo.engine.networks import Architecture, Networks
from ottrpo.engine.update import make_descend, minibatches, start


def test_every_row_is_used_once_an_epoch_and_padding_has_no_weight():
    index, weight = minibatches(10, 4, 3, np.random.default_rng(0))
    assert index.shape == weight.shape == (9, 4)
    for epoch in range(3):
        used = index[3 * epoch : 3 * epoch + 3][weight[3 * epoch : 3 * epoch + 3] > 0]
        assert sorted(used) == list(range(10))
    np.testing.assert_allclose(weight.sum(1), 1.0)
    assert weight[2].tolist() == [0.5, 0.5, 0.0, 0.0]


def test_a_batch_larger_than_the_rollout_is_the_rollout():
    index, _ = minibatches(5, 64, 1, np.random.default_rng(0))
    assert index.shape == (1, 5)


def batch(rows):
    rng = np.random.default_rng(0)
    return {
        "flat": rng.normal(size=(rows, 3)).astype(np.float32),
        "images": (),
        "target_mean": rng.normal(size=(rows, 2)).astype(np.float32),
        "return": rng.normal(size=rows).astype(np.float32),
    }


def test_the_compiled_loop_is_plain_adam_with_clipping():
    """Against a Python loop over optax's own optimiser on the unflattened parameters."""
    networks = Networks(
        Architecture(inputs=3, outputs=2, log_std_init=0.0), np.random.default_rng(0)
    )
    rows, rate, norm = batch(20), 0.01, 0.3
    index, weight = minibatches(20, 8, 2, np.random.default_rng(1))
    loss = actor_critic_loss(towards_displaced_gaussian(None, learn_std=False), vf_coef=0.5)
    steps, first = (index, weight), start(networks, norm)
    learner, fit = make_descend(loss, norm)(first, rows, steps, np.float32(rate))

    trained, static = eqx.partition(networks, eqx.is_array)
    reference = optax.chain(optax.clip_by_global_norm(norm), optax.adam(rate, eps=1e-5))
    moments = reference.init(trained)

    def plain(trained, picked):
        networks = eqx.combine(trained, static)
        mean, _ = networks.policy.gaussian(rows["flat"][picked])
        value = networks.value(rows["flat"][picked])
        pull = ((mean - rows["target_mean"][picked]) ** 2).sum(1).mean()
        return pull + 0.5 * ((value - rows["return"][picked]) ** 2).mean()

    for picked, share in zip(index, weight, strict=True):
        gradient = jax.grad(plain)(trained, picked[share > 0])
        change, moments = reference.update(gradient, moments, trained)
        trained = optax.apply_updates(trained, change)
    expected = jax.tree.leaves(trained)
    got = jax.tree.leaves(eqx.filter(learner.networks, eqx.is_array))
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert float(fit["value_loss"]) > 0
    assert np.array_equal(learner.networks.policy.log_std, networks.policy.log_std)


def test_it_fits_what_can_be_fitted():
    networks = Networks(
        Architecture(inputs=3, outputs=2, log_std_init=0.0), np.random.default_rng(0)
    )
    rows = batch(64)
    rows["target_mean"] = 0.5 * rows["flat"][:, :2]
    rows["return"] = rows["flat"].sum(1)
    loss = actor_critic_loss(towards_displaced_gaussian(None, learn_std=False), vf_coef=0.5)
    steps = minibatches(64, 16, 200, np.random.default_rng(0))
    learner, _ = make_descend(loss, 0.5)(start(networks, 0.5), rows, steps, np.float32(3e-3))
    mean, _ = learner.networks.policy.gaussian(rows["flat"])
    assert float(((mean - rows["target_mean"]) ** 2).mean()) < 1e-3
    value = learner.networks.value(rows["flat"])
    assert float(((value - rows["return"]) ** 2).mean()) == pytest.approx(0.0, abs=0.02)
