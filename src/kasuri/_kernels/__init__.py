"""Arrays in, arrays out: compiled with numba at the first call, cached on disk. No kasuri import below this line."""


def warm_up() -> None:
    """Compile (or load from the cache) every kernel by calling it on a few numbers."""
    from kasuri._kernels import kanon, local, mesh, morton, noise, records, shuffle, simplex, sort, topdown, visit

    for module in (kanon, local, mesh, morton, noise, records, shuffle, simplex, sort, topdown, visit):
        module.warm_up()
