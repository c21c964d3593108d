"""Random numbers in bulk: their laws, and the same bits from native code and from NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from sgmcmc.data import native, random_numbers
from sgmcmc.data.random_numbers import (
    PAIRS,
    Purpose,
    RunPhase,
    below,
    generator,
    standard_normals,
)
from sgmcmc.minibatches.uniform import draw_rows

MANY = 2_000_000


def stream(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def normals(count: int, rng: np.random.Generator | None = None) -> np.ndarray:
    out = np.empty(count, np.float32)
    standard_normals(rng or stream(), out)
    return out


@pytest.fixture(scope="module")
def many() -> np.ndarray:
    return normals(MANY).astype(np.float64)


# ------------------------------------------------------------- native code, NumPy and the stream

BOUNDS = (1, 2, 7, 100_000, 3 * 2**29, 2**31 - 1)


def both(
    monkeypatch: pytest.MonkeyPatch, draw: Callable[[np.random.Generator], np.ndarray]
) -> None:
    """Check that native code gives NumPy's bits, and leaves the stream where NumPy leaves it."""
    if native._numbers is None:
        pytest.skip("the native code is not built")
    rng, other = stream(), stream()
    found = draw(rng)
    with monkeypatch.context() as patch:
        patch.setenv("SGMCMC_NO_NATIVE", "1")
        expected = draw(other)
    assert found.tobytes() == expected.tobytes()
    assert rng.bit_generator.random_raw() == other.bit_generator.random_raw()


@pytest.mark.parametrize(
    "count", [0, 1, 2 * PAIRS - 1, 2 * PAIRS, 2 * PAIRS + 1, 300_000]
)
def test_native_normals_are_numpys_to_the_bit(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(monkeypatch, lambda rng: normals(count, rng))


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 100_001])
def test_native_integers_are_numpys_to_the_bit(
    bound: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(monkeypatch, lambda rng: below(rng, bound, (count,)))


def test_the_first_normals_do_not_depend_on_how_many_there_are() -> None:
    whole = normals(5000)
    for count in (1, 300, 512, 4097):
        np.testing.assert_array_equal(normals(count), whole[:count])


def test_in_float64_they_are_numpys() -> None:
    out = np.empty((7, 5))
    standard_normals(stream(), out)
    np.testing.assert_array_equal(out, stream().standard_normal((7, 5)))


def test_any_bit_generator_will_do() -> None:
    out = np.empty(1000, np.float32)
    standard_normals(np.random.default_rng(3), out)
    assert stats.kstest(out, "norm").pvalue > 1e-3


# ------------------------------------------------------------------------------- the normal law


def test_the_transform_is_exact_to_rounding() -> None:
    """Against the formula in float64, with the smallest and the largest uniforms among others."""
    bits = random_numbers.raw(stream(2), 2 * PAIRS * 200).reshape(-1, 2, PAIRS).copy()
    bits[0, 0, :] = 0
    bits[1, 0, :] = 2**32 - 1
    bits[2, 0, :] = np.arange(PAIRS)
    bits[:3, 1, :] ^= np.arange(PAIRS, dtype=np.uint32)
    first, second = bits[:, 0].astype(np.float64), bits[:, 1]
    u = (np.floor(first / 2) + ((second & 255) + 0.5) / 256) / 2**31
    quarter = (second >> np.uint32(30)).astype(
        np.float64
    )  # sign, and whether the two are swapped
    turn = ((second >> np.uint32(8)) & np.uint32(2**22 - 1)).astype(np.float64)
    angle = ((turn + 0.5) / 2**22 - 0.5) * np.pi / 2
    x, y = np.cos(angle) * np.where(quarter >= 2, -1, 1), np.sin(angle)
    swap = quarter % 2 == 1
    radius = np.sqrt(-2 * np.log(u))
    expected = radius[:, None] * np.stack(
        [np.where(swap, y, x), np.where(swap, x, y)], 1
    )
    found = random_numbers._box_muller(bits)
    # u is rounded to 24 bits, which moves a radius r by up to 2⁻²⁵ / r; and each of the few
    # operations after that rounds by 2⁻²⁴ of what is there.
    error = np.abs(found - expected)
    allowed = 8 * 2.0**-24 * radius + np.minimum(
        2.0**-24 / np.maximum(radius, 1e-9), 2.0**-11
    )
    assert (error <= allowed[:, None]).all()
    assert np.abs(found).max() > 7.0  # a u of 2⁻⁴⁰ is among them


def test_the_distribution_function_is_that_of_the_normal_law(many: np.ndarray) -> None:
    assert stats.kstest(many, "norm").pvalue > 1e-3


def test_the_moments(many: np.ndarray) -> None:
    # Standard errors: var(z^k) = E z^2k - (E z^k)^2.
    for power, mean, variance in (
        (1, 0, 1),
        (2, 1, 2),
        (3, 0, 15),
        (4, 3, 96),
        (6, 15, 10170),
    ):
        assert abs((many**power).mean() - mean) < 4 * np.sqrt(variance / MANY)


def test_the_tails(many: np.ndarray) -> None:
    for limit in (2.0, 3.0, 4.0):
        expected = MANY * stats.norm.sf(limit)
        for side in (many, -many):
            assert abs((side > limit).sum() - expected) < 4 * np.sqrt(expected)


def test_tails_to_one_in_a_million_million() -> None:
    """A uniform takes each of its smallest values for the share of the bits that it has."""
    second = np.tile(np.arange(PAIRS, dtype=np.uint32), (4, 1))
    first = np.repeat(np.arange(0, 8, 2, dtype=np.uint32), PAIRS).reshape(4, PAIRS)
    u = random_numbers._uniform(first, second).reshape(-1)
    np.testing.assert_array_equal(u, (np.arange(4 * PAIRS) + 0.5) / 2.0**39)


def test_the_two_of_a_pair_and_neighbours_have_nothing_in_common(
    many: np.ndarray,
) -> None:
    pairs = many[: MANY // 512 * 512].reshape(-1, 2, PAIRS)
    x, y = pairs[:, 0].ravel(), pairs[:, 1].ravel()
    for a, b in (
        (x, y),
        (many[:-1], many[1:]),
        (many[: -2 * PAIRS], many[2 * PAIRS :]),
    ):
        for f in (np.copy, np.abs, np.square):
            assert abs(np.corrcoef(f(a), f(b))[0, 1]) < 4 / np.sqrt(len(a))
    angle = (np.arctan2(y, x) / (2 * np.pi)) % 1.0
    assert stats.kstest(angle, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(angle, x**2 + y**2)[0, 1]) < 4 / np.sqrt(len(x))


def test_streams_have_nothing_in_common() -> None:
    keys = [(chain, block) for chain in range(4) for block in range(4)]
    drawn = np.array(
        [
            normals(100_000, generator(1, chain, RunPhase.CHAIN, Purpose.NOISE, block))
            for chain, block in keys
        ],
        np.float64,
    )
    for values in (drawn, drawn**2):
        others = np.corrcoef(values)[np.triu_indices(len(keys), 1)]
        assert np.abs(others).max() < 4.5 / np.sqrt(100_000)


# ------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize("bound", [7, 1000])
def test_integers_are_uniform(bound: int) -> None:
    counts = np.bincount(below(stream(), bound, (500_000,)), minlength=bound)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_as_many_are_drawn_again_as_make_it_exact() -> None:
    """Of 2³² bits a quarter is left over, where a bound of 3·2²⁹ goes twice into the rest."""
    drawn = below(stream(), 3 * 2**29, (400_000,))
    assert abs((drawn < 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400_000)
    kept = drawn[drawn >= 0]
    assert stats.chisquare(np.bincount(kept // 2**26, minlength=24)).pvalue > 1e-3


@pytest.mark.parametrize("replace", [False, True])
def test_minibatches_are_whole_where_many_numbers_are_drawn_again(
    replace: bool,
) -> None:
    rows = 3 * 2**29
    drawn = draw_rows(stream(), rows, 20, 5000, replace)
    assert drawn.min() >= 0 and drawn.max() < rows
    if not replace:
        assert all(len(np.unique(minibatch)) == 20 for minibatch in drawn)
    assert (
        stats.chisquare(np.bincount(drawn.ravel() // 2**26, minlength=24)).pvalue > 1e-3
    )
