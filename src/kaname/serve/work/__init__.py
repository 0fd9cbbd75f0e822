"""Queued work over HTTP: webhooks, the view of workers, queue and schedules, and metrics."""
