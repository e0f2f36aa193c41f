"""The rows of the table trips that statements are tried on (fixture `trips`)."""

AB = [("a", 1, 10, "sf"), ("b", 2, 10, "ny")]


def all_rows(con, table="trips", columns="id, v, ts, city"):
    """The rows of a table, sorted, without meta columns."""
    return con.sql(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()
