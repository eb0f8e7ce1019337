"""DITTO on verl: reinforcement learning with verbal feedback, as a plug-in of verl 0.9.x.

Importing this package costs nothing; `plugin` is what verl loads in every process.
"""
