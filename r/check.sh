#!/usr/bin/env bash
# Installs R where it is missing, and checks the R package; `make test-r` calls both.
#
#   r/check.sh install            R and the packages it needs, from Debian
#   r/check.sh bundle             the Python package into inst/dist, for tarballs and installTF()
#   r/check.sh check PYTHON DIR   R CMD build, vignettes included, and R CMD check --as-cran, as far as
#                                 it goes without a network, with that Python, in that folder,
#                                 which is made anew
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

needed=(nlme reticulate testthat)
# For vignettes, and for tests that are skipped without them. R CMD check --as-cran asks a server
# about each that is not installed, and ends without a network.
suggested=(bayesplot bit64 coda emmeans knitr lme4 loo MASS Matrix posterior rmarkdown rstantools tibble)
packages=("${needed[@],,}" "${suggested[@],,}")
debian_packages=(r-base-core pandoc qpdf "${packages[@]/#/r-cran-}")

have() {
    command -v R >/dev/null &&
        Rscript -e 'stopifnot(all(commandArgs(TRUE) %in% rownames(installed.packages())))' "$@" \
            >/dev/null 2>&1
}

install() {
    if have "${needed[@]}" "${suggested[@]}" && command -v qpdf >/dev/null; then
        return
    fi
    local as_root=()
    if [[ "$(id -u)" != 0 ]]; then
        as_root=(sudo)
    fi
    if ! command -v apt-get >/dev/null || { [[ "${#as_root[@]}" != 0 ]] && ! command -v sudo >/dev/null; }; then
        if have "${needed[@]}"; then
            echo "Without all of ${suggested[*]}: some tests are skipped." >&2
            return
        fi
        echo "R, or one of its packages, is missing, and cannot be installed from here." >&2
        echo "Install R with the packages ${needed[*]}, and run this again." >&2
        echo "On Debian, as root: apt-get install ${debian_packages[*]}" >&2
        exit 1
    fi
    "${as_root[@]}" apt-get update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends "${debian_packages[@]}"
}

bundle() {
    mkdir -p r/inst/dist
    tar -czf r/inst/dist/sgmcmc.tar.gz --exclude __pycache__ --exclude '*.so' \
        pyproject.toml README.md LICENSE MANIFEST.in sgmcmc
}

check() {
    # Not by realpath, which would lead out of a virtual environment.
    [[ "$1" == /* ]] && RETICULATE_PYTHON="$1" || RETICULATE_PYTHON="$PWD/$1"
    export RETICULATE_PYTHON SGMCMC_DOCS="$PWD/docs"
    # What asks servers, and what asks for every suggested package.
    export _R_CHECK_CRAN_INCOMING_=false _R_CHECK_SYSTEM_CLOCK_=false _R_CHECK_FORCE_SUGGESTS_=false
    # TensorFlow's, of this process or of any other.
    export _R_CHECK_THINGS_IN_TEMP_DIR_EXCLUDE_='^__autograph_generated_file'
    local package="$PWD/r" vignettes=()
    have knitr rmarkdown && command -v pandoc >/dev/null || vignettes=(--no-build-vignettes)
    bundle
    rm -rf "$2"
    mkdir -p "$2"
    cd "$2"
    R CMD build "${vignettes[@]}" "$package"
    # Else an installation from this clone would take it, however old.
    rm -r "$package/inst/dist"
    local log=sgmcmc.Rcheck/00check.log
    # The vignettes have just been run.
    R CMD check --as-cran --no-manual --ignore-vignettes sgmcmc_*.tar.gz || {
        cat sgmcmc.Rcheck/tests/*.fail 2>/dev/null
        exit 1
    }
    if grep --quiet -E '(WARNING|NOTE)$' "$log"; then
        echo "R CMD check has warnings or notes." >&2
        exit 1
    fi
}

"$@"
