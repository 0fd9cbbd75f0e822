"""Approvals that hold for later calls, too."""
