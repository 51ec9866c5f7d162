"""Methods: one home for each, and the list of them.

method     what a method, a drafter and a builder say of themselves: titles, options, notes
names      the list of names, and where each is declared
registry   how a name becomes a method
loading    from a checkpoint folder to a drafter on the target's device

Every other module or folder here is the home of one method: everything that is its own is there,
and its name appears nowhere else in the program.
"""
