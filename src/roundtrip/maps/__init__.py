"""Room 1: geometry. Maps as functions of points, and everything one can ask of them. Knows only torch."""
