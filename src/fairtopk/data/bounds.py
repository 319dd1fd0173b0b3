"""The most that is read of anything; what is past a bound is refused, and told the bound.

They are far above what tables and published data sets hold, and keep a damaged or hostile file
from taking all of a machine.
"""

MOST_LINE_BYTES = 2**20  # of a line of delimited text
MOST_COLUMNS = 20_000  # of a table
MOST_ROWS = 2**31 - 1  # of a table: rows are numbered in 32 bits
MOST_FEATURE = 10_000  # number of a feature in LETOR text
MOST_FILES = 100_000  # of a folder, an archive or a pattern
MOST_UNPACKED = 200  # times the packed size, of what is larger than `LEAST_BOMB`
LEAST_BOMB = 2**26  # bytes
MOST_DOWNLOAD = 10 * 10**9  # bytes
MOST_JSON_BYTES = 2**24  # of a card or a record
MOST_GROUPS = 1_000  # that items fall into
LARGEST_RELEVANCE = 100.0  # 2^y must fit float32 with room for a sum
