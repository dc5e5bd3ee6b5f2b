"""An oracle: random chains of commands against a model of what each of them must exit with, count and ask.

`model` says so, by the documentation alone: it imports nothing of the package. `server` answers by a script that only
the seed decides. `chains` makes the steps and compares what the product did with the model, and `kinds` has the chains
themselves.
"""
