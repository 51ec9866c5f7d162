"""Charts: ``figures`` is the catalogue, ``chart`` makes a Plotly figure of points and words."""
