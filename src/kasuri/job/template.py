"""The commented job file that `kasuri init` writes."""

TEMPLATE = """\
# A kasuri job: one table, one release. Run:  kasuri check job.toml  then  kasuri release job.toml
# Nothing here is ever taken from the data; paths are relative to this file.
# engine = "spark"                # on a cluster, with the table [spark] below; see the guide

[data]
name = "census-2020"              # a declared name, used in the ledger and the certificate
files = ["census.csv"]            # CSV (UTF-8) or Parquet; or a stored table of a DuckDB or SQLite file or PostgreSQL:
# database = "x.duckdb"           #   table = "visits", where = [{ column = "age", op = ">=", value = 18 }]
                                  #   or query = "SELECT person, mesh_code FROM visits WHERE age >= 18"
columns = { grid = "mesh_code" }  # axis -> column; a mesh also ["row", "col"] or { lat = "y", lon = "x" }
weight = "population"             # counts of a table that is one row per cell; leave out for records with ids
# sampling_key = "64 hexadecimal digits"   which cells of a crowded unit stay; fresh at random unless given

[[axes]]                          # the public domain
kind = "mesh"
name = "grid"
level = "500m"                    # 80km 10km 5km 2km 1km 500m 250m 125m
window = "kanto"                  # japan kanto kinki kyushu tohoku, a first-order mesh such as "5339",
                                  # or: origin = [8400, 6080] and shape = [512, 512]
# [[axes]]
# kind = "nominal"                # also "ordered" (size, labels) and "time" (start, seconds, size)
# name = "sex"
# labels = ["female", "male"]
# elsewhere = true                # one more label, for records with any other one
# labels_file = "wards.csv"       # or instead a public CSV file: a column code (or label), and parent for a tree
# tree = { east = ["a", "b"], west = ["c"] }   # public groups of labels, nested at will; see transform = "nominal"

# [[masks]]                       # public impossible cells, such as the sea: always 0, and less noise elsewhere
# axes = ["grid"]
# file = "sea.npy"                # a numpy array of true (nobody can be there) and false, of the window's shape

[unit]                            # who is protected: no defaults
id = "person"                     # the id column; with it in the file, kasuri bounds contributions itself
change = "add-remove"             # or "replace"
max_cells = 1
# max_weight = 10                 # needed where records carry weights
# max_sum = 1000                  # needed where sums are published (sum = "spend" in [data]): most per unit and cell

[recipe]                          # its name and its arguments, as in Python; kasuri plan job.toml shows its error
name = "best"                     # chosen from what is declared here; it says what and why
# name = "haar_topdown"           # the recipe before: the cost follows the people
# name = "bayes_tree"             # small errors at every area size; how epsilon is shared over the levels:
# pilot = true                    #   one level is measured first and chooses, or
# shares = "middle"               #   "sparse", "middle", "dense", or { 0 = "0.6", 3 = "0.2", 5 = "0.2" } by height, or
# facts = { density = "0.35", size = "480" }   # public facts: share of non-empty cells, their mean count
# prior = { public = "census-2015", file = "census-2015.csv" }   # an earlier table, declared public by this name
# name = "auto"                   # the best of the trees for the areas you publish
# areas = [1, 16, 256]            #   sizes in cells
# metric = "rmse"                 #   or "mae"; and prior, as above
# name = "refined_tree"           # shares = "even16", "u4", "tilt16" or by height
# name = "neg_l2_simplex"         # gamma = "auto" or an exact decimal; tune_on = a table, declared as prior is
# name = "sparse"                 # threshold = "auto" or a whole number

[budget]
epsilon = "0.1"                   # exact, in quotes
unmetered = true                  # charged to no ledger, and the release says so
# ledger = "census.ledger"        # or instead: the budget that pays (kasuri ledger open)

[output]
folder = "release"                # a new folder
exports = []                      # "release.gpkg", "release.csv", "release.sqlite", "postgresql://..."
levels = []                       # "1km", "10km": the sums at coarser levels, in the exports

# [acceptance]                    # what the release must be expected to reach, judged before the data is read
# on = { public = "census-2015", file = "census-2015.csv" }    # on a public table, where no closed form tells
# [[acceptance.criteria]]         # "95 % of areas of 16 cells over 500 people within 5 %"
# areas = 16                      # cells, or a view: "age, sex", the name of a map
# people = 500
# within = "5 %"
# share = "95 %"

# [about]                         # words for readers: on the report, the certificates and every export
# title = "Where people live around Tokyo, 2020"   # a sentence
# title_ja = "東京周辺の人口（2020年）"              # on the Japanese pages
# publisher = "Statistics Office"
# contact = "statistics@example.org"
# source = "2020 census, Statistics Office"        # the credit that the source asks for
# licence = "CC BY 4.0"
# published = 2026-11-18          # the day of publication; the run leaves no time stamp
# language = "en"                 # of these words

# [spark]
# work = "/shared/tmp"            # a folder that driver and executors share
# partitions = 400                # tasks per shuffle
"""
