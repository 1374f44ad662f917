"""Arrays in, arrays out: compiled with numba at the first call, cached on disk. No kasuri import below this line."""

MODULES = ("records", "bayes", "fuse", "visit", "intervals", "local", "shuffle", "topdown", "kanon", "morton", "sort",
           "simplex", "mesh", "noise")  # fmt: skip
"""The dearest to compile first."""
DEMO = ("bayes", "visit", "intervals", "mesh", "sort", "morton", "noise")
"""What `kasuri demo` runs."""


def warm_up() -> None:
    """Compile (or load from the cache) every kernel by calling it on a few numbers."""
    for name in MODULES:
        warm_up_one(name)


def warm_up_beside(names: tuple[str, ...]) -> None:
    """The same for some modules, on all cores, with a line for each that is done."""
    import multiprocessing

    with multiprocessing.Pool() as pool:
        for done, name in enumerate(pool.imap_unordered(warm_up_one, names), 1):
            print(f"{name}: {done} of {len(names)}", flush=True)


def warm_up_one(name: str) -> str:
    from importlib import import_module

    import_module(f"kasuri._kernels.{name}").warm_up()
    return name
