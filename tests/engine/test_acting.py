import jax.numpy as jnp
import numpy as np
import pytest

from ottrpo.engine import arrays
from ottrpo.engine.acting import (
    Eyes,
    act,
    actor_for,
    coloured_noise,
    draw_noise,
    evaluate_rows,
    forward_for,
)
from ottrpo.engine.networks import ACTIVATIONS, Architecture, Networks, activation_name
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.state import Normaliser

BOX = BoxActions(-np.ones(2, np.float32), np.ones(2, np.float32), (2,))


def normaliser(size=3):
    made = Normaliser(measured=np.ones(size, bool), clip_obs=5.0)
    rows = np.random.default_rng(9).normal(1.0, 3.0, size=(100, size))
    return Eyes(made, made.fold_observations(made.start(1)[0], rows))


def actor_with(networks, actions, steps, rows, seed=0, masked=False, **noise):
    rng = np.random.default_rng(seed)
    drawn = draw_noise(networks.policy, actions, rng, steps=steps, rows=rows, **noise)
    return actor_for(networks.policy, normaliser(), actions, rows, drawn, masked=masked)


def gaussian_networks(**changes):
    return Networks(
        Architecture(inputs=3, outputs=2, log_std_init=-1.0, **changes), np.random.default_rng(1)
    )


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_all_evaluators_compute_the_same_network(activation):
    networks = gaussian_networks(activation=activation, ortho_init=False)
    norm, policy, value = normaliser(), networks.policy, networks.value
    raw = np.random.default_rng(0).normal(size=(7, 3))
    raw[5:] *= 1000.0  # these are clipped
    flat, mean = norm(raw), np.empty((7, 2), np.float32)
    latent = forward_for(policy.body, policy.head, norm, rows=7)(raw, (), mean)
    np.testing.assert_allclose(mean, policy.gaussian(flat)[0], atol=1e-5)
    np.testing.assert_allclose(latent, policy.body(flat, ()), atol=1e-5)
    np.testing.assert_allclose(
        evaluate_rows(policy.body, policy.head, flat, ()), policy.gaussian(flat)[0], atol=1e-5
    )
    np.testing.assert_allclose(
        evaluate_rows(value.body, value.head, flat, ())[:, 0], value(flat), atol=1e-5
    )


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_compiled_activations_are_jaxs_wherever_they_are_asked(activation):
    jax_version, number = ACTIVATIONS[activation]
    x = np.concatenate([np.linspace(-12, 12, 1001), [-1e30, 1e30, -0.0, np.nan]]).astype(np.float32)
    compiled = x.copy()
    arrays.activate(number, compiled)
    np.testing.assert_allclose(compiled, jax_version(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hidden", [(), (5,), (16, 8, 4)])
def test_any_number_of_layers_and_switched_off_normalisation(hidden):
    policy = gaussian_networks(policy_layers=hidden, ortho_init=False).policy
    made = Normaliser(measured=np.ones(3, bool), clip_obs=1.0, observations=False)
    off = Eyes(made, made.start(1)[0])
    raw, mean = np.random.default_rng(0).normal(0.0, 9.0, size=(4, 3)), np.empty((4, 2), np.float32)
    forward_for(policy.body, policy.head, off, rows=4)(raw, (), mean)
    np.testing.assert_allclose(mean, policy.gaussian(raw.astype(np.float32))[0], atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
def test_features_of_any_type_are_seen_as_they_are(dtype):
    policy, norm = gaussian_networks().policy, normaliser()
    given = np.array([[0, 1, 1, 0], [1, 0, 1, 1]], dtype)[:, :3]  # with gaps between its rows
    means = np.empty((2, 2, 2), np.float32)
    forward = forward_for(policy.body, policy.head, norm, rows=2)
    forward(given, (), means[0])
    forward(given.astype(np.float64), (), means[1])
    np.testing.assert_array_equal(*means)


def test_activations_by_torch_class():
    import torch

    assert activation_name(torch.nn.LeakyReLU) == "leakyrelu"
    with pytest.raises(ValueError, match=r"allowed: tanh, relu"):
        activation_name("softsign")


@pytest.mark.parametrize("use_sde", [False, True])
def test_what_is_recorded_is_the_distribution_that_was_drawn_from(use_sde):
    networks = gaussian_networks(use_sde=use_sde)
    norm, steps, rows = normaliser(), 400, 3
    actor = actor_with(networks, BOX, steps, rows, seed=3, sde_sample_freq=1)
    observation = np.random.default_rng(4).normal(size=(rows, 3))
    world = np.stack([actor.act(t, observation) for t in range(steps)])
    drawn = actor.record()
    mean, std = networks.policy.gaussian(norm(observation))
    np.testing.assert_allclose(drawn["mean"][5], mean, atol=1e-5)
    np.testing.assert_allclose(drawn["std"][5], std, rtol=1e-4)
    z = (drawn["action"] - drawn["mean"]) / drawn["std"]
    assert abs(z.mean()) < 0.05
    assert z.std() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_array_equal(world, np.clip(drawn["action"], -1, 1))


def test_sde_keeps_its_noise_for_as_long_as_asked():
    networks = gaussian_networks(use_sde=True)
    actor = actor_with(networks, BOX, steps=8, rows=1, sde_sample_freq=4)
    observation = np.ones((1, 3))
    for t in range(8):
        actor.act(t, observation)
    action = actor.record()["action"][:, 0]
    assert (action[:4] == action[0]).all()
    assert (action[4:] == action[4]).all()
    assert (action[0] != action[4]).all()


def test_any_box_is_the_unit_box_to_the_policy():
    box = BoxActions(np.array([0.0, -4.0], np.float32), np.array([2.0, -3.0], np.float32), (2,))
    assert not box.is_unit
    assert box.to_world(np.array([[-1.0, 1.0]], np.float32)).tolist() == [[0.0, -3.0]]
    assert box.to_world(np.zeros((1, 2), np.float32)).tolist() == [[1.0, -3.5]]


def finite_actor(counts, **changes):
    actions = FiniteActions(counts, np.zeros(len(counts), np.int64), scalar=len(counts) == 1)
    networks = Networks(
        Architecture(inputs=3, outputs=actions.factors * actions.choices, ortho_init=False),
        np.random.default_rng(0),
    )
    return actions, networks, changes


def test_labels_are_drawn_with_their_probabilities():
    actions, networks, _ = finite_actor((3, 2))
    norm, steps = normaliser(), 20_000
    actor = actor_with(networks, actions, steps, rows=1)
    observation = np.full((1, 3), 0.5)
    for t in range(steps):
        actor.act(t, observation)
    logits = np.array(networks.policy.logits(norm(observation), (), 3)[0], np.float64)
    logits[1, 2] = -np.inf  # the second factor has two labels only
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    label = actor.record()["label"][:, 0]
    for factor in range(2):
        frequency = np.bincount(label[:, factor], minlength=3) / steps
        np.testing.assert_allclose(frequency, probability[factor], atol=0.015)
    assert label[:, 1].max() == 1


def test_masked_labels_are_never_drawn():
    actions, networks, _ = finite_actor((3,))
    actor = actor_with(networks, actions, steps=300, rows=1, masked=True)
    mask = actions.pad_mask([[True, False, True]])
    drawn = {int(actor.act(t, np.ones((1, 3)), mask=mask)[0]) for t in range(300)}
    assert drawn == {0, 2}
    with pytest.raises(ValueError, match="3 entries, got 2"):
        actions.pad_mask([[True, False]])


@pytest.mark.parametrize("color", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("steps", [256, 255])
def test_coloured_noise_is_standard_normal_with_the_asked_spectrum(color, steps):
    noise = coloured_noise((steps, 3000, 1), color, np.random.default_rng(0))[:, :, 0]
    np.testing.assert_allclose(noise.std(1), 1.0, atol=0.08)
    power = (np.abs(np.fft.rfft(noise, axis=0)) ** 2).mean(1)[1:-1]
    frequency = np.arange(1, len(power) + 1)
    slope = np.polyfit(np.log(frequency), np.log(power), 1)[0]
    assert slope == pytest.approx(-color, abs=0.05)


def test_orthogonal_initialisation_has_sb3s_gains():
    networks = gaussian_networks()
    weight = np.asarray(networks.policy.body.layers[1].weight)
    np.testing.assert_allclose(weight.T @ weight, 2.0 * np.eye(64), atol=1e-4)
    head = np.asarray(networks.policy.head.weight)
    np.testing.assert_allclose(head.T @ head, 1e-4 * np.eye(2), atol=1e-6)
    assert float(jnp.abs(networks.value.head.bias).max()) == 0.0


def test_images_too_small_for_the_encoder_are_refused():
    with pytest.raises(ValueError, match="36 by 36"):
        Networks(Architecture(inputs=0, outputs=2, images=((1, 20, 20),)), np.random.default_rng(0))


@pytest.mark.parametrize("use_sde", [False, True])
@pytest.mark.parametrize("box", [BOX, BoxActions(np.float32([0, -4]), np.float32([2, -3]), (2,))])
def test_the_host_acts_as_the_pure_function_says(use_sde, box):
    networks, steps, rows = gaussian_networks(use_sde=use_sde), 6, 4
    settings = {"sde_sample_freq": 2, "noise_color": 1.0}
    actor = actor_with(networks, box, steps, rows, **settings)
    rng, eyes = np.random.default_rng(0), normaliser()
    noise = draw_noise(networks.policy, box, rng, steps=steps, rows=rows, **settings)
    seen = np.random.default_rng(1).normal(size=(steps, rows, 3))
    fast = [actor.act(t, seen[t]) for t in range(steps)]
    for t in range(steps):
        world, record = act(networks.policy, box, eyes(seen[t]), (), noise.at(t))
        np.testing.assert_allclose(fast[t], world, atol=1e-5)
        for key, array in actor.record().items():
            np.testing.assert_allclose(array[t], record[key], atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_the_host_draws_the_labels_that_the_pure_function_draws(masked):
    actions, networks, _ = finite_actor((3, 2))
    steps, rows = 50, 3
    actor = actor_with(networks, actions, steps, rows, masked=masked)
    noise = draw_noise(networks.policy, actions, np.random.default_rng(0), steps=steps, rows=rows)
    rng, eyes, mask = np.random.default_rng(1), normaliser(), None
    for t in range(steps):
        seen = rng.normal(size=(rows, 3))
        if masked:
            mask = actions.pad_mask(rng.random((rows, 5)) < 0.5) | np.array([1, 0, 0], bool)
        labels, record = act(networks.policy, actions, eyes(seen), (), noise.at(t), mask)
        np.testing.assert_array_equal(actor.act(t, seen, mask=mask), labels)
        np.testing.assert_allclose(actor.record()["logits"][t], record["logits"], atol=1e-5)
