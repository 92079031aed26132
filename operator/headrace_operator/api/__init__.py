"""The API of the operator: the objects Queue and QueueVersion as pydantic models, from which the CRDs are made."""
