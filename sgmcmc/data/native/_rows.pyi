def take(
    source: int, rows: int, rows_itemsize: int, out: int, count: int, row_bytes: int
) -> None: ...
def sweep(
    source: int,
    length: int,
    region: int,
    rows: int,
    rows_itemsize: int,
    out: int,
    count: int,
    size: int,
    row_bytes: int,
) -> None: ...
def register(library: str, gather_rows: str, copy_minibatch: str) -> bool: ...
