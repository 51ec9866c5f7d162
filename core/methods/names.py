"""The names of methods, drafters and builders, and where each is declared.

To add a method, write its home and add its name here.
"""

PLAIN = "ar"  # plain decoding
DEFAULT = "ddtree"

# Homes of a drafter and its method, by their name.
_HOMES = (
    "treeflash", "dspark", "dflash2", "xpress", "domino", "dart", "pld", "suffix", "ngram-mod",
    "sps", "lookahead", "eagle2", "eagle3", "peagle", "medusa", "hydra", "mtp", "gemma4-assistant",
    "uno",
)  # fmt: skip


def _in_home(name: str, what: str) -> str:
    return f"core.methods.{name.replace('-', '_')}:{what}"


METHODS = {PLAIN: "core.methods.plain:METHOD"} | {
    name: _in_home(name, "METHOD") for name in ("dflash", "ddtree", "caddtree", *_HOMES)
}
DRAFTERS = {name: _in_home(name, "DRAFTER") for name in ("dflash", *_HOMES)}
BUILDERS = {
    "chain": "core.methods.builders:CHAIN",
    "best-first": "core.methods.builders:BEST_FIRST",
    "opt-tree": "core.methods.builders:OPT_TREE",
    "sampled-chain": "core.methods.builders:SAMPLED_CHAIN",
    "cost-aware": "core.methods.caddtree:BUILDER",
    "continuity": "core.methods.dart:BUILDER",
    "eagle2": "core.methods.eagle3:BUILDER",
    "static": "core.methods.medusa:BUILDER",
}
