"""Submit a training to a cluster: one module a backend, and what all of them submit."""
