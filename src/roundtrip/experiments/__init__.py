"""Room 11: experiments. One file per result: a function of its settings, and what it shows."""
