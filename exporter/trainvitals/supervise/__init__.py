"""Starts training commands.  Standard library only: it must work where nothing but the trainer's part is installed."""
