"""The preStop hook: the program that runs in the engine container, and how it gets there."""
