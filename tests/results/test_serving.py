"""SavedModels of predictions: loaded and asked in a process that has TensorFlow alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc import Samples, __version__, sgld

ASK = """
import sys, time
import numpy as np, tensorflow as tf
start = time.monotonic()
model = tf.saved_model.load(sys.argv[1])
seconds = time.monotonic() - start
given = np.load(sys.argv[2])
rows = {name: tf.constant(given[name]) for name in given}
found = {name: model.signatures[name](**rows)[name].numpy() for name in model.signatures}
assert not [name for name in sys.modules if name.startswith("sgmcmc")]
assert "tensorflow_probability" not in sys.modules
np.savez(sys.argv[3], seconds=seconds, **found)
"""

rng = np.random.default_rng(1)


def predict(params: Any, dataset: Any) -> tf.Tensor:
    eta = tf.linalg.matvec(dataset["x"], params["b"]) + tf.gather(
        params["u"], dataset["g"]
    )
    return tf.stack([tf.sigmoid(eta), eta], axis=1)


def test_predictions_are_those_of_samples(tmp_path: Path) -> None:
    draws = {"b": rng.normal(size=(2, 150, 3)), "u": rng.normal(size=(2, 150, 4))}
    draws = {name: a.astype(np.float32) for name, a in draws.items()}
    samples = Samples(draws, settings={"n_chains": 2, "dtype": "float32"})
    x, g = (
        rng.normal(size=(37, 3)).astype(np.float32),
        rng.integers(0, 4, 37).astype(np.int32),
    )
    data = {"x": x, "g": tf.constant(g)}
    few = {name: values[:2] for name, values in data.items()}
    path = samples.export(
        tmp_path / "served", predict, few, draws=100, quantiles=(0.1, 0.5, 1.0)
    )
    np.savez(tmp_path / "rows.npz", x=x, g=g)
    arguments = [str(path), str(tmp_path / "rows.npz"), str(tmp_path / "found.npz")]
    subprocess.run(
        [sys.executable, "-c", ASK, *arguments], check=True, cwd=tmp_path, timeout=120
    )
    found = np.load(tmp_path / "found.npz")
    kept = samples[::3]
    assert found["draws"].shape == (2, 50, 37, 2)
    expected = kept.predict(predict, data, reduce=None)
    np.testing.assert_allclose(found["draws"], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["mean"], kept.predict(predict, data), atol=1e-6)
    quantiles = kept.predict(
        predict, data, reduce="quantiles", quantiles=(0.1, 0.5, 1.0)
    )
    np.testing.assert_allclose(found["quantiles"], quantiles, atol=1e-6)
    assert tf.saved_model.load(str(path)).sgmcmc_version.numpy().decode() == __version__
    for wrong in (lambda: Samples.load(path), lambda: Samples.open(path)):
        with pytest.raises(
            ValueError, match="`path`: .* is a SavedModel, with predictions"
        ):
            wrong()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_draws_are_those_of_tensorflow_lite(tmp_path: Path) -> None:
    draws = {"b": rng.normal(size=(2, 40, 3)).astype(np.float32)}
    samples = Samples(draws, settings={"n_chains": 2, "dtype": "float32"})
    x = rng.normal(size=(37, 3)).astype(np.float32)

    def probability(params: Any, dataset: Any) -> tf.Tensor:
        return tf.sigmoid(tf.reduce_sum(dataset["x"] * params["b"], 1))

    path = samples.export(tmp_path / "served", probability, {"x": x[:2]})
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(path), signature_keys=["draws"]
    )
    lite = tf.lite.Interpreter(model_content=converter.convert())
    found = lite.get_signature_runner("draws")(x=x)["draws"]
    expected = samples.predict(probability, {"x": x}, reduce=None)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    samples = Samples({"theta": np.zeros((50, 2))})
    data = {"x": np.zeros(3)}

    def first(params: Any, dataset: Any) -> tf.Tensor:
        return dataset["x"] * params["theta"][0]

    def fixed(params: Any, dataset: Any) -> tf.Tensor:
        return tf.zeros(int(dataset["x"].shape[0]), tf.float64) + params["theta"][0]

    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(ValueError, match="is there already"):
        samples.export(tmp_path / "there", first, data)
    with pytest.raises(ValueError, match="any number of rows"):
        samples.export(tmp_path / "a", fixed, data)
    with pytest.raises(ValueError, match="entry for each of the"):
        samples.export(tmp_path / "a", lambda params, dataset: params["theta"][0], data)
    with pytest.raises(ValueError, match="called 'a b'"):
        samples.export(
            tmp_path / "a", lambda p, d: d["a b"] * p["theta"][0], {"a b": np.zeros(3)}
        )
    with pytest.raises(ValueError, match="`quantiles` must be"):
        samples.export(tmp_path / "a", first, data, quantiles=[2])
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_zarr_is_what_xarray_opens(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    xarray = pytest.importorskip("xarray")
    draws = {
        "b": rng.normal(size=(2, 150, 3)).astype(np.float32),
        "s": rng.normal(size=(2, 150)),
    }
    samples = Samples(draws, settings={"n_chains": 2, "method": "sgld"})
    labels = {"feature": ["age", "dose", "sex"]}
    path = samples[::2].to_zarr(
        tmp_path / "a.zarr", dims={"b": ["feature"]}, coords=labels
    )
    with xarray.open_zarr(path) as found:
        assert dict(found.sizes) == {"chain": 2, "draw": 75, "feature": 3}
        np.testing.assert_array_equal(found["b"], draws["b"][:, ::2])
        np.testing.assert_array_equal(found["s"].sel(draw=148), draws["s"][:, 148])
        assert found.attrs["sampling_method"] == "sgld"
    with pytest.raises(ValueError, match="`path`: .* is there already"):
        samples.to_zarr(path)
    with pytest.raises(ValueError, match="holds no draws"):
        Samples({}).to_zarr(tmp_path / "b.zarr")
    assert [one.name for one in tmp_path.iterdir()] == ["a.zarr"]


def test_served_draws_have_their_weights(tmp_path: Path) -> None:
    weights = np.array([0.0, 1.0, 0.0, 5.0, 2.0, 0.5] * 10)
    theta = rng.normal(size=(2, 60))
    samples = Samples({"theta": theta}, settings={"n_chains": 2}, weights=weights)
    data = {"x": rng.normal(size=5)}

    def f(params: Any, dataset: Any) -> tf.Tensor:
        product = dataset["x"] * params["theta"]
        return tf.stack([product, product**2], 1)

    quantiles = [0.0, 0.05, 0.3, 0.5, 0.95, 1.0]
    path = samples.export(tmp_path / "served", f, data, quantiles=quantiles)
    model = tf.saved_model.load(str(path)).signatures
    x = tf.constant(data["x"])
    np.testing.assert_allclose(
        model["mean"](x=x)["mean"], samples.predict(f, data), rtol=1e-9
    )
    expected = samples.predict(f, data, reduce="quantiles", quantiles=quantiles)
    np.testing.assert_allclose(
        model["quantiles"](x=x)["quantiles"], expected, rtol=1e-9
    )
    every = model["draws"](x=x)
    assert every["draws"].shape == (2, 40, 5, 2)  # those that count
    np.testing.assert_allclose(
        tf.tensordot(tf.reshape(every["weights"], [80]), tf.reshape(every["draws"], [80, 10]), 1),
        np.reshape(samples.predict(f, data), -1), rtol=1e-9,
    )  # fmt: skip


def test_inputs_are_the_entries_that_are_read(tmp_path: Path) -> None:
    """Nobody who is served has a response, nor what only the likelihood reads."""

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return (
            -0.5 * dataset["w"] * (dataset["y"] - params["theta"] * dataset["x"]) ** 2
        )

    data = {name: rng.normal(size=50) ** 2 for name in ("x", "y", "w", "not a name")}
    samples = sgld(
        log_lik,
        data,
        {"theta": 0.0},
        1e-4,
        minibatch_size=10,
        n_iters=20,
        seed=1,
        verbose=False,
    )

    def f(params: Any, dataset: Any) -> tf.Tensor:
        unused = {name: 2.0 * column for name, column in dataset.items()}
        return unused["x"] * params["theta"] / 2.0

    path = samples.export(tmp_path / "served", f)
    served = tf.saved_model.load(str(path)).signatures["mean"]
    assert list(served.structured_input_signature[1]) == ["x"]
    found = served(x=tf.constant([1.0, 2.0]))["mean"]
    np.testing.assert_allclose(
        found, samples["theta"].mean() * np.array([1.0, 2.0]), rtol=1e-5
    )


def test_leave_one_out_has_the_weights_of_draws() -> None:
    """Draws with weights 0 and 1 are those with weight 1 alone."""
    theta, x = rng.normal(0.0, 0.1, (2, 400)), rng.normal(size=100)
    counts = np.tile([0.0, 1.0], 200)
    theta[:, ::2] += 3.0

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * (dataset["x"] - params["theta"]) ** 2

    weighted = Samples({"theta": theta}, settings={"n_chains": 2}, weights=counts)
    alone = Samples(
        {"theta": np.repeat(theta[:, 1::2], 2, 1)}, settings={"n_chains": 2}
    )
    found, wanted = (each.loo({"x": x}, log_lik=log_lik) for each in (weighted, alone))
    assert abs(found.elpd - wanted.elpd) < 1e-6
