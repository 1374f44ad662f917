"""The same release where the records are: bounding and counting in Spark, the top of the tree on the driver, its blocks
on the executors, under the same keystreams as on one machine and so with the same result, bit for bit."""

from kasuri.spark.cluster import SparkRelease, release

__all__ = ["SparkRelease", "release"]
