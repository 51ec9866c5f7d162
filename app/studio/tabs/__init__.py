"""The page's tabs, a module each.

A tab's components are mounted in the browser when it is first opened; building them here must stay
light, so what needs torch, pandas or a model is imported inside the functions that need it.
"""

from app.studio.tabs import calibration, denoise, learn, results, run, whatif

TABS = (
    run.TAB,
    run.COMPARE,
    calibration.TAB,
    whatif.TAB,
    results.TAB,
    denoise.TAB,
    learn.TAB,
)
