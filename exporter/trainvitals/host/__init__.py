"""What the operating system tells about this node: one file per subsystem.

Each takes the roots that it reads (``/sys``, ``/proc``) through its constructor and knows nothing of metrics.
"""
