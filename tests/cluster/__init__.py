"""A real Kubernetes on one machine, without root or a container engine.

:mod:`tests.cluster.cluster` has the object to use, ``LocalCluster``: a control plane of real programs and a process
node that runs Pods as local processes. ``python -m tests.cluster up`` runs one in the foreground.
"""
