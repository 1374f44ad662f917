"""The registry of planted faults: one list, a file for each area. Each entry is a `planted.Fault`."""

from faults import (
    geography,
    ingest,
    kanon,
    local,
    noise,
    published,
    recipes,
    series,
    shuffle,
    spark,
    traces,
    values,
    verify,
)

_ALL = (recipes, noise, published, ingest, geography, spark, verify, values, local, shuffle, kanon, traces, series)
AREAS = {str(area.__file__): area.FAULTS for area in _ALL}
FAULTS = [fault for faults in AREAS.values() for fault in faults]
