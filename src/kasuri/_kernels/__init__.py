"""Arrays in, arrays out: compiled with numba at the first call, cached on disk. No kasuri import below this line."""

MODULES = ("records", "bayes", "fuse", "visit", "intervals", "local", "shuffle", "topdown", "kanon", "morton", "sort",
           "simplex", "mesh", "noise")  # fmt: skip
"""The dearest to compile first."""


def warm_up() -> None:
    """Compile (or load from the cache) every kernel by calling it on a few numbers."""
    for name in MODULES:
        warm_up_one(name)


def warm_up_one(name: str) -> None:
    from importlib import import_module

    import_module(f"kasuri._kernels.{name}").warm_up()
