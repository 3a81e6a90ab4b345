"""Training: settings, data, the loop, and the folder that it fills."""
