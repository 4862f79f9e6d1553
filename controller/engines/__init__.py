"""What the controller knows about LLM engines: their gauges, their text, their command lines."""
