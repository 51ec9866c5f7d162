"""The seam between training and the homes of drafters, which lies below both.

student  how a drafter learns: ``Student`` is the network, ``DrafterTraining`` how it is made and
         how it ships
corpus   the documents of a run, and the places a step learns at
shards   the files that hold the text with its features
"""
