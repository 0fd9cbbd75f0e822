from tests.journals.postgres.conftest import server, url  # noqa: F401
