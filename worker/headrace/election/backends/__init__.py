"""Locks in different stores, behind one protocol: `headrace.election.record.Lock`.

`lease` needs the extra ``headrace[kubernetes]``, `mongo` the extra ``headrace[mongo]``; import their modules directly.
"""
