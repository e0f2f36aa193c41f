"""Is the advice right? Predicted and measured costs of both table types over a grid of workloads; see README.md."""
