"""The Kubernetes operator of Headrace: reconciles Queue and QueueVersion objects."""
