"""The Store protocol in parts: one file per concern, with its steps and the values that they take and return."""
