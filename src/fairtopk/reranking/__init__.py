"""Post-processing: from lists with scores and group labels to lists in a fairer order.

All of it needs the group of each item when it serves. `fairtopk.rerank` runs it by name.
"""

from fairtopk.reranking.exposure_lp import birkhoff
from fairtopk.reranking.fa_ir import PrefixTable, prefix_table
from fairtopk.reranking.lists import Policy

__all__ = ["Policy", "PrefixTable", "birkhoff", "prefix_table"]
