def take(
    source: int,
    rows: int,
    rows_itemsize: int,
    out: int,
    count: int,
    row_bytes: int,
    threads: int = 1,
) -> None: ...
def register(library: str, gather_rows: str, copy_minibatch: str) -> bool: ...
