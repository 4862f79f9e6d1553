"""The main job, shown: a scale-down under streaming load without a cut stream, and the contrast."""
