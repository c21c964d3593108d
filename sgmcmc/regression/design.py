"""The design of a regression: from terms of a formula and rows to numbers, in chunks.

What a term learns from all rows, the levels of a factor, the knots of a spline or a mean, is found
first, of whole columns, one expression at a time. Then the matrix of any rows can be made alone.
Terms with many levels are not columns of zeros and ones but integers: the index of the one
coefficient that a row has.

formulaic learns levels, knots and contrasts, and multiplies terms. What stands inside of its
functions, ``log(income)`` in ``bs(log(income), df=5)``, is computed here: one evaluation for terms,
offsets and responses, which does not depend on the storage of columns or on their names.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.data.levels import Levels, factorized
from sgmcmc.regression.arithmetic import (
    plain,
)
from sgmcmc.regression.expressions import Constants, Expression, calls, need_low_powers
from sgmcmc.regression.formula import (
    INTERCEPT,
    atoms_of,
    escaped,
)
from sgmcmc.regression.frames import Factor, factor_of, need_column
from sgmcmc.regression.subexpressions import Subexpressions

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Settings:
    large: int = 32  # columns of a term above which it is held as integers
    sketch: int = 64  # rows from which the structure of a matrix is found


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Coded:
    """Columns of which each row has one that is not zero: levels of a factor, or of several.

    Attributes:
        first, size: Index of the first column among all, and number of columns.
        factors: Column of the data, its levels, and whether the first of them has no column.
        weight: Specification of the number that a row has in its column; ``None`` for 1.
    """

    first: int
    size: int
    factors: tuple[tuple[str, tuple[Any, ...], bool], ...]
    weight: Any

    @property
    def columns(self) -> slice:
        """Its columns among all."""
        return slice(self.first, self.first + self.size)

    def indices(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the index of each row's column, from 0; ``size`` if it has none."""
        import pandas as pd

        indices, stride = np.zeros(len(frame), np.int32), 1
        absent = np.zeros(len(frame), bool)
        for name, levels, reduced in self.factors:
            values = frame[name]
            is_categorical = isinstance(values.dtype, pd.CategoricalDtype)
            if is_categorical and tuple(values.cat.categories) == tuple(levels):
                codes = values.cat.codes.to_numpy().astype(np.int32)
            else:
                codes = pd.Index(levels).get_indexer(values).astype(np.int32)
            if (codes < 0).any():  # levels of another type, or new ones
                label = f"data[{name!r}]"
                observed = factorized(values, label)
                codes = observed.coded_by(Levels.of(levels), label, "regression")
            codes -= reduced
            absent |= codes < 0
            indices += stride * codes
            stride *= len(levels) - reduced
        indices[absent] = self.size
        return indices


@dataclass(frozen=True)
class Design:
    """Terms of a formula, as numbers of any rows.

    Attributes:
        terms: Names of all columns.
        dense: Indices of the columns of the dense matrix among all.
        spec: Specification of the dense columns, for formulaic.
        coded: Other columns.
        variables: Columns of the data that are needed.
        factors: Columns of the data that are factors.
        subexpressions: Values of parts of the terms, which formulaic is handed.
    """

    terms: tuple[str, ...]
    dense: np.ndarray
    spec: Any
    coded: tuple[Coded, ...]
    variables: tuple[str, ...]
    factors: dict[str, Factor]
    subexpressions: Subexpressions

    @property
    def has_intercept(self) -> bool:
        """Whether the first column is the intercept."""
        return self.terms[:1] == (INTERCEPT,)

    def matrix(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the dense columns of some rows, (rows, dense columns), in float64.

        Raises:
            ValueError: A column is missing, has missing values or levels that were not seen, or a
                term is not finite.
        """
        for name in self.variables:
            need_column(frame, name)
        if not len(self.dense):
            return np.zeros((len(frame), 0))
        matrix = _matrix(self.spec, frame, self.subexpressions)
        self._need_finite(matrix, self.dense, frame)
        return matrix

    def need_known(self, frame: pd.DataFrame) -> None:
        """Refuse rows with levels of factors that are not those of the design.

        Splines and the like are not evaluated: all rows together have other knots.

        Raises:
            ValueError: There is such a level, or a column is missing or of another kind.
        """
        import formulaic

        for name in self.variables:
            need_column(frame, name)
        for spec in (self.spec, *(term.weight for term in self.coded)):
            if spec is None:
                continue
            self.subexpressions.frame(frame, _expressions(spec))
            used = {f.expr: f for term in spec.formula for f in term.factors}
            states = {expr: state for expr, (_, state) in spec.encoder_state.items()}
            factors = [
                f for expr, f in used.items() if "categories" in states.get(expr, ())
            ]
            coded = formulaic.ModelSpec(
                _formula([_term([factor]) for factor in factors]),
                na_action="raise",
                output="sparse",
                transform_state=spec.transform_state,
                encoder_state=spec.encoder_state,
            )
            if factors:
                _matrix(coded, frame, self.subexpressions)

    def weights(self, coded: Coded, frame: pd.DataFrame) -> np.ndarray | None:
        """Return the number that each row has in its column; ``None`` for 1."""
        if coded.weight is None:
            return None
        weights = _matrix(coded.weight, frame, self.subexpressions)[:, :1]
        self._need_finite(weights, [coded.first], frame)
        return weights[:, 0]

    def _need_finite(
        self,
        values: np.ndarray,
        columns: Sequence[int] | np.ndarray,
        frame: pd.DataFrame,
    ) -> None:
        bad = ~np.isfinite(values)
        if bad.any():
            row, number = np.argwhere(bad)[0]
            term = self.terms[columns[number]]
            at = ", ".join(
                f"{name} is {frame[name].iloc[row]}" for name in self.variables
            )
            raise ValueError(
                f"`formula`: the term {term!r} is {values[row, number]:g} in row {row}, where "
                f"{at}. It must be finite."
            )

    def named(self, terms: Sequence[str]) -> Design:
        """Return the design with other names of its columns."""
        return replace(self, terms=tuple(terms))

    def without_intercept(self) -> Design:
        """Return the design without its first column, the intercept."""
        assert self.terms[0] == INTERCEPT and self.dense[0] == 0
        others = [term for term in self.spec.formula if str(term) != "1"]
        return replace(
            self,
            terms=self.terms[1:],
            dense=self.dense[1:] - 1,
            spec=self.spec.subset(_formula(others)),
            coded=tuple(replace(term, first=term.first - 1) for term in self.coded),
        )


def make_design(terms: str, frame: pd.DataFrame, large: int | None = None) -> Design:
    """Return the design of some terms.

    Args:
        terms: Right side of a formula, without bars and offsets.
        frame: All rows.
        large: Columns of a term above which it is held as integers; 32 by default.

    Raises:
        ValueError: The terms cannot be read or made; the message names the term.
    """
    import formulaic

    need_low_powers(terms)
    columns = [str(name) for name in frame.columns]
    plain_terms, atoms = atoms_of(terms, columns, "atom_of_formula_")
    try:
        parsed = formulaic.Formula(plain_terms)
    except Exception as error:
        reason = re.sub(r"\s*⧛.*?⧚\s*|\n.*", "", str(error), flags=re.DOTALL)
        for name, atom in atoms.items():
            reason = reason.replace(name, atom)
        raise ValueError(f"`formula`: {terms!r} cannot be read. {reason}") from error
    if not isinstance(parsed, formulaic.SimpleFormula):
        raise ValueError(
            f"`formula`: {terms!r} must be terms of one predictor. Write effects of groups in "
            "parentheses, such as (1 | g)."
        )
    learner = _Learner(frame)
    changed = {}
    for expr, factor in {f.expr: f for term in parsed for f in term.factors}.items():
        if factor.eval_method is factor.EvalMethod.LITERAL:
            changed[expr] = factor
        elif expr in atoms:
            changed[expr] = learner.learned(Expression(atoms[expr], columns))
        else:
            raise ValueError(f"`formula`: {terms!r} cannot be read.")
    terms_changed = [[changed[f.expr] for f in term.factors] for term in parsed]
    spec = learner.specification(_formula(list(map(_term, terms_changed))))
    return learner.design(spec, _SETTINGS.large if large is None else large)


def evaluated(expression: str, frame: pd.DataFrame, constants: Constants) -> np.ndarray:
    """Return an expression of columns, such as ``log(t)``, for each row: numbers in float64.

    Args:
        expression: Expression.
        frame: Rows.
        constants: Numbers of all rows by expression. Those that are not known are added: then the
            frame must have all rows.

    Raises:
        ValueError: It cannot be computed, or is not finite.
    """
    parsed = Expression(expression, frame.columns)
    for name in parsed.variables:
        need_column(frame, name)
    if parsed.stateful:
        raise ValueError(
            f"`formula`: {expression!r} is outside of the terms and must be a function of each "
            "row alone. Compute a column of `data` before."
        )
    values = parsed.values(parsed.frozen(frame, constants), frame, constants)
    numbers = np.broadcast_to(np.asarray(plain(values)), (len(frame),))
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        column = parsed.column_of(parsed.tree)
        at = ""
        if column is None:
            text = f"`formula`: {expression!r}"
            at = ", ".join(
                f"{name} is {frame[name].iloc[row]}" for name in parsed.variables
            )
        else:
            text = f"`data[{column!r}]`"
        where = f", where {at}" if at else ""
        raise ValueError(
            f"{text} is {numbers[row]:g} in row {row}{where}. It must be finite."
        )
    return numbers


def _matrix(
    spec: Any, frame: pd.DataFrame, subexpressions: Subexpressions
) -> np.ndarray:
    rows = subexpressions.frame(frame, _expressions(spec))
    context = subexpressions.context
    matrix = _of_formulaic(
        lambda: spec.get_model_matrix(rows, context=context, output="numpy"),
        subexpressions,
    )
    return np.asarray(matrix, np.float64).reshape(len(frame), -1)


def _expressions(spec: Any) -> list[str]:
    return [factor.expr for term in spec.formula for factor in term.factors]


def _of_formulaic(make: Any, subexpressions: Subexpressions) -> Any:
    """Return a result of formulaic, with our errors in place of its errors and warnings."""
    import formulaic.errors

    try:
        with warnings.catch_warnings():
            # formulaic only warns of new levels, and treats them as the first one.
            warnings.simplefilter("error", formulaic.errors.DataMismatchWarning)
            return make()
    except Exception as error:
        raise ValueError(
            f"`formula` cannot be evaluated. {subexpressions.written(str(error))}"
        ) from error


def _formula(terms: Sequence[Any]) -> Any:
    import formulaic

    return formulaic.Formula(list(terms), _ordering="none")


def _term(factors: Sequence[Any]) -> Any:
    from formulaic.parser.types import Term

    return Term(factors)


class _Learner:
    """Constants that the terms of a design learn from all rows, one expression after the other.

    Args:
        frame: All rows.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self._sketch = frame.iloc[: _SETTINGS.sketch].reset_index(drop=True)
        self._subexpressions = Subexpressions({})
        self._transform_state: dict[str, Any] = {}
        self._encoder_state: dict[str, Any] = {}
        self._variables: dict[str, None] = {}

    def learned(self, expression: Expression) -> Any:
        """Return a factor for formulaic, whose state is that of all rows."""
        import formulaic
        from formulaic.parser.types import Factor

        frame, subexpressions = self._frame, self._subexpressions
        names = expression.variables
        for name in names:
            need_column(frame, name)
        self._variables |= dict.fromkeys(names)
        column = expression.column_of(expression.tree)
        tree = expression.frozen(frame, subexpressions.constants)
        text = subexpressions.added(expression, tree, self._sketch)
        subexpression = subexpressions.by_name.get(text)
        if subexpression is None:
            factor = Factor(text, eval_method="python")
            is_factor = "C" in calls(expression.tree)
        else:
            factor = Factor(text, eval_method="lookup")
            is_factor = subexpression.levels
            values = subexpression.values(self._sketch, subexpressions.constants)
            if not is_factor and values.dtype.kind in "mM":
                name = f"`data[{column!r}]`"
                if column is None:
                    name = (
                        f"`formula`: {subexpressions.written(subexpression.written)!r}"
                    )
                example = column or "k"
                raise TypeError(
                    f"{name} holds dates or times, which have no unit. Write a number of them, "
                    f"such as I({example}.dt.dayofyear) or I({example}.dt.days)."
                )
        if is_factor:
            call = expression.tree
            inside = call.args[0] if isinstance(call, ast.Call) and call.args else call
            coded = expression.column_of(inside)
            if coded is not None:
                _need_few_levels(frame[coded], coded, written_out=column is None)
            rows = _unique_rows(frame[names])
        elif expression.stateful:
            rows = frame[names]
        else:
            return factor
        formula = _formula([_term([factor])])
        spec = formulaic.ModelSpec(formula, na_action="raise", output="sparse")
        spec = self._fitted(spec, subexpressions.frame(rows, [text]))
        _need_levels(spec.encoder_state, subexpressions, frame)
        self._transform_state |= spec.transform_state
        self._encoder_state |= spec.encoder_state
        return factor

    def _fitted(self, spec: Any, values: pd.DataFrame) -> Any:
        context = self._subexpressions.context
        matrix = _of_formulaic(
            lambda: spec.get_model_matrix(values, context=context), self._subexpressions
        )
        return matrix.model_spec

    def specification(self, formula: Any) -> Any:
        """Return the specification of a formula of factors that are learned, for formulaic."""
        import formulaic

        spec = formulaic.ModelSpec(
            formula,
            na_action="raise",
            output="sparse",
            transform_state=self._transform_state,
            encoder_state=self._encoder_state,
        )
        values = self._subexpressions.frame(self._sketch, _expressions(spec))
        return self._fitted(spec, values)

    def design(self, spec: Any, large: int) -> Design:
        """Return the design of a specification, terms of more columns than this as integers."""
        subexpressions = self._subexpressions
        names: list[str] = []
        dense: list[int] = []
        dense_terms, coded = [], []
        columns: dict[int, None] = {}  # but the intercept
        for term in spec.structure:
            first = len(names)
            names += term.columns
            indices = range(first, len(names))
            if term.term.degree:
                columns |= dict.fromkeys(indices)
            integers = None
            if len(term.columns) > large:
                integers = _coded_columns(term, first, spec, subexpressions)
            if integers is None:
                dense += indices
                dense_terms.append(term.term)
            else:
                coded += integers
        dense_spec = spec if dense else None
        if dense and coded:
            dense_spec = spec.subset(_formula(dense_terms))
        plain = [subexpressions.written(name) for name in names]
        count = Counter(plain)
        terms = []
        for index, (name, shown) in enumerate(zip(names, plain, strict=True)):
            if count[shown] > 1:  # in backticks
                shown = subexpressions.written(name, unique=True)
            terms.append(escaped(shown, [INTERCEPT] * (index in columns)))
        return Design(
            terms=tuple(terms),
            dense=np.asarray(dense, int),
            spec=dense_spec,
            coded=tuple(coded),
            variables=tuple(self._variables),
            factors=self._factors(spec),
            subexpressions=subexpressions,
        )

    def _factors(self, spec: Any) -> dict[str, Factor]:
        factors = {}
        for expr, (_, state) in spec.encoder_state.items():
            column = self._subexpressions.column(expr)
            if column and "categories" in state:
                factors[column] = factor_of(self._frame[column], state["categories"])
        return factors


def _unique_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that differ, without levels that are not there."""
    import pandas as pd

    unique = frame.drop_duplicates().reset_index(drop=True)
    used = {
        name: unique[name].cat.remove_unused_categories()
        for name in unique.columns
        if isinstance(unique[name].dtype, pd.CategoricalDtype)
    }
    return unique.assign(**used)


def _need_few_levels(values: pd.Series, name: str, written_out: bool) -> None:
    """Refuse a factor with a level of its own in each row, and numbers that are stored as text.

    Args:
        values: Column.
        name: Its name.
        written_out: Whether the formula says that it is a factor, as in ``C(x)``.
    """
    levels = values.unique()
    if len(levels) <= _SETTINGS.large:
        return
    if len(levels) == len(values):
        raise ValueError(
            f"`data[{name!r}]` is a factor with a level of its own in each of {len(values)} rows. "
            "Leave it out of the terms; if these are measurements, make them numbers."
        )
    if not written_out and isinstance(levels[0], str):
        try:
            for text in levels:
                float(text)
        except ValueError:
            return
        raise ValueError(
            f"`data[{name!r}]` holds numbers as text, which would be a factor of {len(levels)} "
            f"levels. Make it numbers, pd.to_numeric(data[{name!r}]), or write C({name}) for a "
            "factor."
        )


def _need_levels(
    states: Any, subexpressions: Subexpressions, frame: pd.DataFrame
) -> None:
    for expression, (_, state) in states.items():
        if len(state.get("categories", (0, 1))) >= 2:
            continue
        column = subexpressions.column(expression)
        name = f"`data[{column!r}]`"
        if column is None or frame[column].dtype.kind in "iuf":
            name = f"`formula`: {subexpressions.written(expression)}"
        raise ValueError(f"{name} has one level: a factor needs two or more.")


def _coded_columns(
    structure: Any, first: int, spec: Any, subexpressions: Subexpressions
) -> list[Coded] | None:
    """Return the columns of a term as integers; ``None`` if a row may have more than one."""
    import formulaic
    from formulaic.parser.types import Factor

    coded = []
    for scoped in structure.scoped_terms:
        factors, numbers, size = [], [], 1
        for factor in scoped.factors:
            expression = factor.factor.expr
            kind, state = spec.encoder_state[expression]
            if kind is not Factor.Kind.CATEGORICAL:
                numbers.append(factor.factor.factor)
                continue
            name = subexpressions.column(expression, contrasts=False)
            if name is None:
                return None  # contrasts of the user
            factors.append((name, tuple(state["categories"]), bool(factor.reduced)))
            size *= len(state["categories"]) - factor.reduced
        if scoped.scale != 1 or not factors:
            return None
        weight = None
        if numbers:
            weight = formulaic.ModelSpec(
                _formula([_term(numbers)]),
                na_action="raise",
                output="numpy",
                transform_state=spec.transform_state,
                encoder_state=spec.encoder_state,
            )
        coded.append(Coded(first, size, tuple(factors), weight))
        first += size
    size_of_all = sum(term.size for term in coded)
    is_complete = size_of_all == len(structure.columns)
    return coded if is_complete else None  # else a spline times a factor
