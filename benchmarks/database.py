"""What a question costs over the engine's own time, once the tool's process is warm: sixty honest questions an engine, written as
models write them, with a comment, in a fence after a sentence.

    uv run --all-extras python benchmarks/database.py

The tool opens a DuckDB file anew for each question, so that no writer is locked out meanwhile; that is DuckDB's own time, and is
counted as such.
"""

import asyncio
import statistics
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

import duckdb
from tests.tools.test_database import ENGINES, statements
from tests.tools.test_database import sources as prepared
from tests.tools.test_database_in_use import directly

from kaname import DatabaseTool
from kaname.tools.database.engines.duckdb import SETTINGS

QUESTIONS = 60


class Folder:
    def mktemp(self, name):
        return Path(tempfile.mkdtemp(prefix=name))


def as_written(sql):
    return f"Here is the query:\n```sql\n-- as asked\n{sql}\n```"


@contextmanager
def kept(sources, engine):
    """On an open connection, but for DuckDB, whose file is opened each time."""
    if engine != "duckdb":
        with directly(sources, engine) as run:
            yield run
        return

    def run(sql):
        connection = duckdb.connect(sources["duckdb"], read_only=True, config=SETTINGS)
        connection.execute(sql).fetchall()
        connection.close()

    yield run


async def measured(sources, engine):
    tool = DatabaseTool(sources[engine], allow_superuser=True, max_rows=1000)
    asked = [sql for _, sql in statements(f"honest_{engine}.txt")][:QUESTIONS]
    over, failed = [], 0
    with kept(sources, engine) as run:
        for sql in asked:
            failed += (await tool.execute(as_written(sql))).is_error  # warm, and its plan too
            run(sql)
        for sql in asked:
            own, whole = [], []
            for _ in range(5):
                begun = perf_counter()
                run(sql)
                own.append(perf_counter() - begun)
                begun = perf_counter()
                await tool.execute(as_written(sql))
                whole.append(perf_counter() - begun)
            over.append((min(whole) - min(own)) * 1000)
    over.sort()
    print(
        f"{engine}: {len(asked)} questions, {failed} refused; over the engine's own time: median {statistics.median(over):.1f} ms, "
        f"95 of 100 within {over[int(len(over) * 0.95)]:.1f} ms, the slowest {over[-1]:.1f} ms"
    )


async def main():
    made = prepared.__wrapped__(Folder()) if hasattr(prepared, "__wrapped__") else prepared.__pytest_wrapped__.obj(Folder())
    sources = next(made)
    try:
        for engine in ENGINES:
            if engine in sources:
                await measured(sources, engine)
    finally:
        next(made, None)


asyncio.run(main())
