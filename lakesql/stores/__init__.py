"""Where tables lie: the protocol of a storage (`base`), and object stores.

    objects       a bucket as a Storage, over one client library
    files         its files as streams: the ends of files that are asked first, read-ahead, uploads by parts
    bridge        DuckDB reads its files over a file system of our own
    calls         a request that fails: again, or settled; counting, and the budget of a statement
    errors        what a store answers, as our errors
    settings      endpoints and credentials
    lock          Hudi's storage-based lock
    lock_object   a lock that the caller brings

`lakesql.storage` opens a storage by its address and has the local file system.
"""
