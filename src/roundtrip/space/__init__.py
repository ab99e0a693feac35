"""Room 5: the physical world. Files, orientation, millimetres; the rooms below know only unit coordinates."""
