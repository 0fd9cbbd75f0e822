"""A ledger that tools write into. It is in a module of its own, so that it is not among the values that a tool reads."""

ran_at_module: list[str] = []


def write_down(item: str) -> None:
    ran_at_module.append(item)
