"""The names of methods, drafters and builders, and where each is declared.

To add a method, write its home and add its lines here.
"""

PLAIN = "ar"  # plain decoding
DEFAULT = "ddtree"

METHODS = {
    PLAIN: "core.methods.plain:METHOD",
    "dflash": "core.methods.dflash:METHOD",
    "ddtree": "core.methods.ddtree:METHOD",
    "caddtree": "core.methods.caddtree:METHOD",
    "treeflash": "core.methods.treeflash:METHOD",
    "dspark": "core.methods.dspark:METHOD",
    "dflash2": "core.methods.dflash2:METHOD",
    "xpress": "core.methods.xpress:METHOD",
    "domino": "core.methods.domino:METHOD",
    "dart": "core.methods.dart:METHOD",
    "pld": "core.methods.pld:METHOD",
    "suffix": "core.methods.suffix:METHOD",
    "ngram-mod": "core.methods.ngram_mod:METHOD",
    "sps": "core.methods.sps:METHOD",
    "lookahead": "core.methods.lookahead:METHOD",
    "eagle2": "core.methods.eagle2:METHOD",
    "eagle3": "core.methods.eagle3:METHOD",
    "peagle": "core.methods.peagle:METHOD",
    "medusa": "core.methods.medusa:METHOD",
    "hydra": "core.methods.hydra:METHOD",
    "mtp": "core.methods.mtp:METHOD",
    "gemma4-assistant": "core.methods.gemma4_assistant:METHOD",
    "uno": "core.methods.uno:METHOD",
}
DRAFTERS = {
    "dflash": "core.methods.dflash:DRAFTER",
    "treeflash": "core.methods.treeflash:DRAFTER",
    "dspark": "core.methods.dspark:DRAFTER",
    "dflash2": "core.methods.dflash2:DRAFTER",
    "xpress": "core.methods.xpress:DRAFTER",
    "domino": "core.methods.domino:DRAFTER",
    "dart": "core.methods.dart:DRAFTER",
    "pld": "core.methods.pld:DRAFTER",
    "suffix": "core.methods.suffix:DRAFTER",
    "ngram-mod": "core.methods.ngram_mod:DRAFTER",
    "sps": "core.methods.sps:DRAFTER",
    "lookahead": "core.methods.lookahead:DRAFTER",
    "eagle2": "core.methods.eagle2:DRAFTER",
    "eagle3": "core.methods.eagle3:DRAFTER",
    "peagle": "core.methods.peagle:DRAFTER",
    "medusa": "core.methods.medusa:DRAFTER",
    "hydra": "core.methods.hydra:DRAFTER",
    "mtp": "core.methods.mtp:DRAFTER",
    "gemma4-assistant": "core.methods.gemma4_assistant:DRAFTER",
    "uno": "core.methods.uno:DRAFTER",
}
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
