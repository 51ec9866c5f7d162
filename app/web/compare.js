// The tab Compare: up to four runs.

mountStudio("compare", 4, "ds-c");
