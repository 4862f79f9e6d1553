"""The sample engine: it streams, counts and ends as a real one does, without a model.

Standard library only and relative imports only: its image is a plain Python with these files.
"""
