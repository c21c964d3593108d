#!/usr/bin/env bash
# Installs R where it is missing, and checks the R package; `make test-r` calls both.
#
#   r/check.sh install            R and the packages it needs, from Debian
#   r/check.sh check PYTHON DIR   R CMD build, R CMD check, tests included, with that Python,
#                                 in that folder, which is made anew
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

debian_packages=(r-base-core r-cran-reticulate r-cran-testthat)

complete() {
    command -v R >/dev/null &&
        Rscript -e 'stopifnot(all(c("reticulate", "testthat") %in% rownames(installed.packages())))' \
            >/dev/null 2>&1
}

install() {
    if complete; then
        return
    fi
    local by_hand="Install R with the packages reticulate and testthat, and run this again."
    if ! command -v apt-get >/dev/null; then
        echo "R, or one of its packages, is missing, and there is no apt-get. $by_hand" >&2
        exit 1
    fi
    local as_root=()
    if [[ "$(id -u)" != 0 ]]; then
        if ! command -v sudo >/dev/null; then
            echo "R, or one of its packages, is missing, and only root can install it. $by_hand" >&2
            echo "On Debian: apt-get install ${debian_packages[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends "${debian_packages[@]}"
}

check() {
    # Not by realpath, which would lead out of a virtual environment.
    [[ "$1" == /* ]] && RETICULATE_PYTHON="$1" || RETICULATE_PYTHON="$PWD/$1"
    export RETICULATE_PYTHON SGMCMC_PAGE="$PWD/docs/from-r.md"
    local package="$PWD/r"
    rm -rf "$2"
    mkdir -p "$2"
    cd "$2"
    R CMD build "$package"
    local log=sgmcmc.Rcheck/00check.log
    R CMD check --no-manual sgmcmc_*.tar.gz || {
        cat sgmcmc.Rcheck/tests/*.fail 2>/dev/null
        exit 1
    }
    if grep --quiet 'WARNING$' "$log"; then
        echo "R CMD check has warnings." >&2
        exit 1
    fi
}

"$@"
