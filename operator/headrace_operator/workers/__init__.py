"""What the workers of a Queue run as: their Deployment and what is made beside it, rendered from the spec."""
