"""Orders to the ranks of a run on this node: finding them, telling them, and hearing what they say.

``trainvitals ctl`` and the exporter, when it is allowed to, give orders in this way.
"""
