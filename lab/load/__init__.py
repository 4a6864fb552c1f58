"""Sending a workload to a server over HTTP, and measuring what comes back."""
