"""Room 2: losses. Pure functions of maps, tensors and points; one number out."""
