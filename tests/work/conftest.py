from tests.stores.postgres.conftest import server, url  # noqa: F401
