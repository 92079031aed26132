"""One partition in memory: every transition on its indexes, as pure steps of a given time.

The rules are those of the scripts in ``headrace/stores/redis/lua``; the conformance suite holds both to them.
"""

from __future__ import annotations

from headrace.stores.memory.partition.auditing import AuditingRules
from headrace.stores.memory.partition.claiming import ClaimingRules
from headrace.stores.memory.partition.housekeeping import HousekeepingRules
from headrace.stores.memory.partition.inquiry import InquiryRules
from headrace.stores.memory.partition.moving import MovingRules
from headrace.stores.memory.partition.parking import ParkingRules
from headrace.stores.memory.partition.producing import ProducingRules
from headrace.stores.memory.partition.settling import SettlingRules
from headrace.stores.memory.partition.sleeping import SleepingRules
from headrace.stores.memory.partition.topology import TopologyRules
from headrace.stores.memory.partition.withdrawing import WithdrawingRules


class Partition(
    TopologyRules,
    ProducingRules,
    ClaimingRules,
    SettlingRules,
    HousekeepingRules,
    ParkingRules,
    MovingRules,
    SleepingRules,
    WithdrawingRules,
    InquiryRules,
    AuditingRules,
):
    """A partition that exists. What it holds is in `headrace.stores.memory.partition.contents`."""
