"""A collected text has all that drafters propose at every token: what-if then needs no model."""
