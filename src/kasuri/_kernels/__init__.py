"""Arrays in, arrays out: compiled with numba at the first call, cached on disk. No kasuri import below this line."""

_MODULES = ("bayes", "fuse", "intervals", "kanon", "local", "mesh", "morton", "noise", "records", "shuffle", "simplex",
            "sort", "topdown", "visit")  # fmt: skip


def warm_up() -> None:
    """Compile (or load from the cache) every kernel by calling it on a few numbers."""
    from importlib import import_module

    for name in _MODULES:
        import_module(f"kasuri._kernels.{name}").warm_up()
