"""Arrays in, arrays out: compiled with numba at the first call, cached on disk. No kasuri import below this line."""


def warm_up() -> None:
    """Compile (or load from the cache) every kernel by calling it on a few numbers."""
    from kasuri._kernels import bayes, intervals, kanon, local, mesh, morton, noise, records, simplex, sort, topdown
    from kasuri._kernels import visit as visited

    for module in (bayes, intervals, kanon, local, mesh, morton, noise, records, simplex, sort, topdown, visited):
        module.warm_up()
