"""What the journals of nodes tell of runs that are over or go on: the commands ``timeline`` and ``incidents``."""
