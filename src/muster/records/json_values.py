"""Single values out of JSON columns, in SQL, for every database: NULL where there is none of the wanted kind.

Values in such columns are users' own, so that a number may be a word elsewhere: nothing here ever fails on that.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Double, Text, bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine


class _At:
    """Parts of both kinds."""

    def __init__(self, column: ColumnElement[object], path: Sequence[str]) -> None:
        if any('"' in name for name in path):
            raise ValueError("a name in a path must not have quotation marks")
        self.column = column
        # How SQLite writes it, and how PostgreSQL does.
        self.dollar = bindparam(None, "$" + "".join(f'."{name}"' for name in path), Text)
        self.array = bindparam(None, list(path), ARRAY(Text))


class NumberAt(_At, ColumnElement[object]):
    """What is no number there is not found."""

    inherit_cache = False
    type: TypeEngine[object] = Double()


class TextAt(_At, ColumnElement[object]):
    """Any single value, as it would be written; not objects and lists."""

    inherit_cache = False
    type: TypeEngine[object] = Text()  # type: ignore[assignment]


@compiles(NumberAt, "sqlite")
def _number_sqlite(element: NumberAt, compiler: SQLCompiler, **options: object) -> str:
    column, path = compiler.process(element.column, **options), compiler.process(element.dollar, **options)
    again = compiler.process(element.dollar, **options)
    return f"CASE WHEN json_type({column}, {path}) IN ('integer', 'real') THEN json_extract({column}, {again}) END"


@compiles(NumberAt, "postgresql")
def _number_postgres(element: NumberAt, compiler: SQLCompiler, **options: object) -> str:
    column = compiler.process(element.column, **options)
    path, again = (compiler.process(element.array, **options) for _ in range(2))
    found = f"CAST({column} #>> {again} AS DOUBLE PRECISION)"
    return f"CASE WHEN json_typeof({column} #> {path}) = 'number' THEN {found} END"


@compiles(TextAt, "sqlite")
def _text_sqlite(element: TextAt, compiler: SQLCompiler, **options: object) -> str:
    column = compiler.process(element.column, **options)
    paths = [compiler.process(element.dollar, **options) for _ in range(3)]
    return (
        f"CASE json_type({column}, {paths[0]}) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' "
        f"WHEN 'object' THEN NULL WHEN 'array' THEN NULL WHEN 'text' THEN json_extract({column}, {paths[1]}) "
        f"ELSE CAST(json_extract({column}, {paths[2]}) AS TEXT) END"
    )


@compiles(TextAt, "postgresql")
def _text_postgres(element: TextAt, compiler: SQLCompiler, **options: object) -> str:
    column = compiler.process(element.column, **options)
    path, again = (compiler.process(element.array, **options) for _ in range(2))
    return f"CASE WHEN json_typeof({column} #> {path}) NOT IN ('object', 'array', 'null') THEN {column} #>> {again} END"
