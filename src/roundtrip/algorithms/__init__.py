"""Room 4: algorithms. Modules from (moving, fixed) to a map, and the objective that trains them."""
