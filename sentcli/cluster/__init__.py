"""Work on a Ray cluster: joining one or starting one, its nodes, and a pool of workers on it."""
