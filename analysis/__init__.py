"""Numbers from rounds, for the command line, the studio and notebooks.

measures     tables of what traces show: acceptance, TVD, causes, calibration, findings
charts       the one catalogue of statistical figures, as Plotly figures
collected    what-if and calibration on a collected text
drafters     a drafter's checkpoint and wiring examined
engines      what other engines report
experiments  runs that are compared: sweeps, the one table, bench, cost, audit

frames, numbers and labels serve all of them.
"""
