"""The table of dashboards: a new one is one file ``dashboard_<name>.py`` and one row here."""

from __future__ import annotations

from trainvitals.generate.dashboard_compare import COMPARE
from trainvitals.generate.dashboard_fleet import FLEET
from trainvitals.generate.dashboard_incidents import INCIDENTS
from trainvitals.generate.dashboard_node import NODE_AND_DEVICES
from trainvitals.generate.dashboard_run import RUN_IN_FULL
from trainvitals.generate.dashboard_self import SELF
from trainvitals.generate.panels import Dashboard

#: From the whole to the part; the last looks at the monitoring itself.
DASHBOARDS: tuple[Dashboard, ...] = (FLEET, RUN_IN_FULL, NODE_AND_DEVICES, COMPARE, INCIDENTS, SELF)
